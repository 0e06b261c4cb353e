//! Operations on releases: from the input to a plan, and from a plan to the release's inventory. All front ends share them.

mod apply;
mod delete;
mod error;
mod read;
mod record;

pub use apply::{ApplyInput, PreparedApply, apply, prepare_apply};
pub use delete::{DeleteInput, PreparedDelete, Subject, delete, prepare_delete};
pub use error::OperationError;
pub use record::{Inherited, forget, load_record, take_over};
