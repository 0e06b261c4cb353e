//! The status that a pass over a payload publishes to a `ClusterVersion` (config.openshift.io/v1).
//!
//! Conditions, reasons and messages are those of the cluster-version operator (`pkg/cvo/status.go`). What is published follows
//! from the record of the release and from live objects, so that a new process publishes the same. The conditions that it says
//! nothing about, such as `RetrievedUpdates`, belong to other managers.

mod live;

use billhook_objects::{Digest, ObjectKey};
use billhook_plan::{AppliedVersion, VersionState};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    history::State,
    messages::{UPDATE_FAILED, Upgradeable},
    read::Payload,
    rules::Decisions,
};

pub use live::Live;

/// The API group of the kind.
pub const GROUP: &str = "config.openshift.io";

/// The version of the kind in which it is published.
pub const VERSION: &str = "v1";

/// The name of the kind in requests.
pub const PLURAL: &str = "clusterversions";

/// The kind.
pub const KIND: &str = "ClusterVersion";

/// The reason of several failures.
const MULTIPLE_ERRORS: &str = "MultipleErrors";

/// What is known when a pass starts or has ended.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The versions that were applied, the newest first: that of the pass.
    pub history: &'a [AppliedVersion],
    /// What the pass is for.
    pub state: State,
    /// The errors of the manifests that failed in this pass or, when it starts, in the last pass of the same version.
    pub failures: &'a [String],
    /// How far the pass came, if it ended before it was complete.
    pub progress: Option<Progress>,
    /// The objects that are being deleted because a manifest requests it.
    pub deleting: &'a [ObjectKey],
    /// Whether objects are left to other managers by overrides.
    pub has_overrides: bool,
    /// A text that differs if the content of the payload does, [`fingerprint`].
    pub fingerprint: &'a str,
}

/// How far a pass came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many manifests are done.
    pub done: usize,
    /// How many manifests the pass has.
    pub total: usize,
}

/// A condition, without the time of its last transition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `True` or `False`.
    pub status: &'static str,
    /// The reason, as a word; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The explanation; empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

impl Condition {
    fn new(kind: &'static str, status: bool, reason: impl Into<String>, message: impl Into<String>) -> Self {
        let status = if status { "True" } else { "False" };
        Self { kind, status, reason: reason.into(), message: message.into() }
    }
}

/// Returns a text that differs if another manifest counts, or one has another content.
pub fn fingerprint(payload: &Payload, decisions: &Decisions) -> String {
    let digests = decisions.counting().map(|at| json!(payload.entries[at].manifest.digest()));
    let digest = json!(Digest::of(&Value::Array(digests.collect())));
    digest.as_str().unwrap_or_default().to_owned()
}

impl Facts<'_> {
    /// Returns the conditions. `Upgradeable` is among them only if it is false.
    pub fn conditions(&self) -> Vec<Condition> {
        let deletions = Upgradeable::deletions(self.deleting);
        let overrides = self.has_overrides.then(Upgradeable::overrides);
        let upgradeable = Upgradeable::all(deletions.into_iter().chain(overrides).collect());
        let upgradeable = upgradeable.map(|why| Condition::new(live::UPGRADEABLE, false, why.reason, why.message));
        [self.available(), self.failing(), self.progressing()].into_iter().chain(upgradeable).collect()
    }

    fn version(&self) -> &str {
        self.history.first().map_or("", |last| &last.version)
    }

    /// A version that was applied completely remains available while another one is applied.
    fn available(&self) -> Condition {
        let completed = self.history.iter().find(|entry| entry.state == VersionState::Completed);
        let message = completed.map(|entry| format!("Done applying {}", entry.version)).unwrap_or_default();
        Condition::new("Available", completed.is_some(), "", message)
    }

    fn failing(&self) -> Condition {
        let message = match self.failures {
            [] => String::new(),
            [one] => one.clone(),
            several => format!("Multiple errors are preventing progress:\n* {}", several.join("\n* ")),
        };
        Condition::new("Failing", !self.failures.is_empty(), self.reason(), message)
    }

    fn reason(&self) -> &'static str {
        match self.failures {
            [] => "",
            [_] => UPDATE_FAILED,
            _ => MULTIPLE_ERRORS,
        }
    }

    fn progressing(&self) -> Condition {
        let version = self.version();
        let is_completed = self.history.first().is_some_and(|last| last.state == VersionState::Completed);
        let is_reconciling = is_completed || self.state == State::Reconciling;
        let summary = match self.failures {
            [] => None,
            [_] => Some("the update could not be applied".to_owned()),
            _ => Some(format!("an unknown error has occurred: {MULTIPLE_ERRORS}")),
        };
        let message = match (summary, self.progress) {
            (Some(summary), _) if is_reconciling => format!("Error while reconciling {version}: {summary}"),
            (Some(summary), _) => format!("Unable to apply {version}: {summary}"),
            (None, _) if is_reconciling => format!("Cluster version is {version}"),
            (None, Some(Progress { done, total })) if done > 0 && total > 0 => {
                let percent = done * 100 / total;
                format!("Working towards {version}: {done} of {total} done ({percent}% complete)")
            }
            (None, _) => format!("Working towards {version}"),
        };
        Condition::new("Progressing", !is_reconciling, self.reason(), message)
    }

    /// Returns the history as the kind has it. A payload is a folder, so there is no image, and no signature of one.
    fn entries(&self) -> Vec<Value> {
        let entry = |applied: &AppliedVersion| {
            json!({
                "state": applied.state,
                "startedTime": applied.started_time,
                "completionTime": applied.completion_time,
                "version": applied.version,
                "image": "",
                "verified": false,
            })
        };
        self.history.iter().map(entry).collect()
    }
}

#[cfg(test)]
mod tests;
