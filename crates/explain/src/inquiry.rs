//! What asks in rounds.

use std::sync::Arc;

use jiff::Timestamp;

use crate::{Answer, Query};

/// Something that asks for evidence in rounds until it needs nothing more.
pub trait Inquiry {
    /// Returns the next round of queries; none once nothing more is needed.
    fn ask(&mut self) -> Vec<Query>;

    /// Takes the answer to one of them. `now` is the time of the server's clock when it was given.
    fn hear(&mut self, now: Timestamp, query: Query, answer: Arc<Answer>);
}
