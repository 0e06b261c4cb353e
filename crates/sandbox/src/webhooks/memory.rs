//! What a request knows from webhooks.

use std::collections::BTreeMap;

use serde_json::Value;

/// A call of a webhook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Call {
    /// The address, with `timeout` in its query.
    pub(super) url: String,
    /// The certificates that the webhook's must be signed by, in PEM and base64; empty for those of the system.
    pub(super) ca_bundle: String,
    /// The time limit in seconds, by the system's clock: a paused one does not run for other processes.
    pub(super) seconds: u64,
    /// The review, whose UID is yet to be set.
    pub(super) review: String,
}

/// The answer to a call: a review, or the reason why there is none.
pub(crate) type Answer = Result<Reply, String>;

/// A review that a webhook has answered with.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    /// The UID of the review that was sent.
    pub(crate) uid: String,
    pub(crate) review: Value,
}

/// What a request knows after it has been interrupted by calls of webhooks.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    pub(super) answers: BTreeMap<Call, Answer>,
    /// The calls without which the request cannot continue.
    pub(super) wanted: Vec<Call>,
    /// The time of the request: if it is repeated a second later, its reviews must remain the same.
    pub(super) time: Option<String>,
    /// What the server generated for the object that the request creates.
    pub(crate) identity: Option<Identity>,
    /// The objects of a collection that the request has deleted.
    pub(crate) collection: Option<Collection>,
    /// The warnings of webhooks.
    pub(crate) warnings: Vec<String>,
}

/// What the server generates for a new object.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) uid: String,
    /// The end of a generated name.
    pub(crate) suffix: Option<String>,
}

/// The progress of the deletion of a collection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collection {
    pub(crate) revision: String,
    /// Namespace and name of the objects that are still to be deleted, the last one first.
    pub(crate) rest: Vec<(Box<str>, Box<str>)>,
    pub(crate) deleted: Vec<Value>,
}

impl Memory {
    /// Returns the calls without which the request cannot continue.
    pub(crate) fn take_wanted(&mut self) -> Vec<Call> {
        let wanted = std::mem::take(&mut self.wanted);
        if !wanted.is_empty() {
            // The repetition of the request gets them again.
            self.warnings.clear();
        }
        wanted
    }

    pub(crate) fn is_waiting(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Adds the answers to calls.
    pub(crate) fn learn(&mut self, answers: Vec<(Call, Answer)>) {
        self.answers.extend(answers);
    }
}
