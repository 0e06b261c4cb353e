//! The status that a pass over a payload publishes to a `ClusterVersion` (config.openshift.io/v1).
//!
//! Conditions, reasons and messages are those of the cluster-version operator (`pkg/cvo/status.go`). What is published follows
//! from the record of the release and from live objects, so that a new process publishes the same. The conditions that it says
//! nothing about, such as `RetrievedUpdates`, belong to other managers.

mod live;

use std::collections::{BTreeMap, BTreeSet};

use billhook_objects::{Digest, ObjectKey};
use billhook_plan::{AppliedVersion, VersionState};
use serde::Serialize;
use serde_json::{Value, json};

use crate::{
    history::State,
    messages::{UPDATE_FAILED, Upgradeable, resource},
    preconditions::CHECK_FAILED,
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

/// How the reasons of ClusterOperators start.
const OPERATOR: &str = "ClusterOperator";

/// The reasons of one and of several ClusterOperators that have not finished an update. That is no failure while it runs.
const OPERATOR_UPDATING: [&str; 2] = ["ClusterOperatorUpdating", "ClusterOperatorsUpdating"];

/// What is known when a pass starts or has ended.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The version of the pass.
    pub version: &'a str,
    /// The versions that were applied, the newest first: that of the pass, unless the pass did not start.
    pub history: &'a [AppliedVersion],
    /// What the pass is for.
    pub state: State,
    /// The manifests that failed in this pass or, when it starts, in the last pass of the same version.
    pub failures: &'a [TaskError],
    /// How far the pass came, if it ended before it was complete.
    pub progress: Option<Progress>,
    /// The objects that the pass was waiting for when it reached its time limit.
    pub awaited: &'a [ObjectKey],
    /// The objects that are being deleted because a manifest requests it. If that is not known, the condition `Upgradeable`
    /// remains as it is.
    pub deleting: Option<&'a [ObjectKey]>,
    /// Whether objects are left to other managers by overrides.
    pub has_overrides: bool,
    /// A text that differs if the content of the payload does, [`fingerprint`].
    pub fingerprint: &'a str,
}

/// The error of a manifest that failed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TaskError {
    /// The whole error.
    pub message: String,
    /// The reason as a word: that of an object which is not healthy, else [`UPDATE_FAILED`].
    pub reason: String,
    /// The object, `namespace/name` or its name, if the reason is about one.
    pub name: String,
}

impl TaskError {
    /// Returns an error without a reason of its own.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: UPDATE_FAILED.to_owned(), name: String::new() }
    }

    /// Returns what the condition `Progressing` says of it: `SummaryForReason` in `pkg/payload/task.go`, and for an operator that
    /// is still updating `convertErrorToProgressing` in `pkg/cvo/status.go`.
    fn summary(&self) -> String {
        let Self { reason, name, .. } = self;
        match reason.as_str() {
            UPDATE_FAILED => "the update could not be applied".to_owned(),
            CHECK_FAILED => "it may not be safe to apply this update".to_owned(),
            "ClusterOperatorDegraded" => format!("the cluster operator {name} is degraded"),
            "ClusterOperatorNotAvailable" => format!("the cluster operator {name} is not available"),
            "ClusterOperatorsNotAvailable" => "some cluster operators are not available".to_owned(),
            _ if self.is_updating() => format!("waiting on {name}"),
            "ClusterOperatorNoVersions" => format!("the cluster operator {name} does not declare expected versions"),
            "WorkloadNotAvailable" => format!("the workload {name} has not yet successfully rolled out"),
            "WorkloadNotProgressing" => format!("the workload {name} cannot roll out"),
            _ if name.is_empty() => format!("an unknown error has occurred: {reason}"),
            _ => format!("{name} has an unknown error: {reason}"),
        }
    }

    fn is_updating(&self) -> bool {
        OPERATOR_UPDATING.contains(&self.reason.as_str())
    }

    /// Returns the error of several ClusterOperators with the same reason: `condenseClusterOperators` in
    /// `pkg/cvo/sync_worker.go`.
    fn of_operators(reason: &str, mut names: Vec<&str>) -> Self {
        names.sort_unstable();
        let name = names.join(", ");
        let state = reason.strip_prefix(OPERATOR).unwrap_or(reason);
        let are = match state {
            "NotAvailable" => "are not available",
            "Degraded" => "are degraded",
            "Updating" => "are updating versions",
            _ => "do not declare expected versions",
        };
        Self { message: format!("Cluster operators {name} {are}"), reason: format!("{OPERATOR}s{state}"), name }
    }

    /// Returns errors in which ClusterOperators with the same reason are one.
    fn condensed(all: &[Self]) -> Vec<Self> {
        let mut by_reason: BTreeMap<&str, Vec<&Self>> = BTreeMap::new();
        let mut condensed = Vec::new();
        for error in all {
            match error.reason.starts_with(OPERATOR) {
                true => by_reason.entry(&error.reason).or_default().push(error),
                false => condensed.push(error.clone()),
            }
        }
        condensed.extend(by_reason.into_iter().map(|(reason, errors)| match errors.as_slice() {
            [one] => (*one).clone(),
            several => Self::of_operators(reason, several.iter().map(|error| error.name.as_str()).collect()),
        }));
        condensed
    }

    /// Returns the one error that stands for all: `newMultipleError` in `pkg/cvo/sync_worker.go`.
    fn combined(mut all: Vec<Self>) -> Option<Self> {
        if all.len() < 2 {
            return all.pop();
        }
        let messages: BTreeSet<&str> = all.iter().map(|error| error.message.as_str()).collect();
        let listed = messages.into_iter().collect::<Vec<_>>().join("\n* ");
        let message = format!("Multiple errors are preventing progress:\n* {listed}");
        Some(Self { message, reason: MULTIPLE_ERRORS.to_owned(), name: String::new() })
    }
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
    /// Returns the conditions. `Upgradeable` is among them only if it is known to be false.
    pub fn conditions(&self) -> Vec<Condition> {
        let [failing, progressing] = self.course();
        [self.available(), failing, progressing].into_iter().chain(self.upgradeable()).collect()
    }

    fn upgradeable(&self) -> Option<Condition> {
        let deletions = Upgradeable::deletions(self.deleting?);
        let overrides = self.has_overrides.then(Upgradeable::overrides);
        let why = Upgradeable::all(deletions.into_iter().chain(overrides).collect())?;
        Some(Condition::new(live::UPGRADEABLE, false, why.reason, why.message))
    }

    /// A version that was applied completely remains available while another one is applied.
    fn available(&self) -> Condition {
        let completed = self.history.iter().find(|entry| entry.state == VersionState::Completed);
        let message = completed.map(|entry| format!("Done applying {}", entry.version)).unwrap_or_default();
        Condition::new("Available", completed.is_some(), "", message)
    }

    /// Returns the conditions `Failing` and `Progressing`.
    fn course(&self) -> [Condition; 2] {
        let last = self.history.first().filter(|last| last.version == self.version);
        let is_completed = last.is_some_and(|last| last.state == VersionState::Completed);
        let is_reconciling = is_completed || self.state == State::Reconciling;
        let errors = TaskError::condensed(self.failures);
        let counts = |error: &&TaskError| is_reconciling || !error.is_updating();
        let failure = TaskError::combined(errors.iter().filter(counts).cloned().collect());
        let (reason, message) = failure.map(|error| (error.reason, error.message)).unzip();
        let failing = Condition::new(
            "Failing",
            reason.is_some(),
            reason.clone().unwrap_or_default(),
            message.unwrap_or_default(),
        );
        // An operator that is updating is no failure, but one of several errors.
        let updating = errors.iter().find(|error| error.is_updating()).cloned();
        let error = TaskError::combined(errors).filter(|_| reason.is_some());
        let version = self.version;
        let message = match &error {
            Some(error) if is_reconciling => format!("Error while reconciling {version}: {}", error.summary()),
            Some(error) => format!("Unable to apply {version}: {}", error.summary()),
            None if is_reconciling => format!("Cluster version is {version}"),
            None => self.towards(updating.as_ref()),
        };
        let reason = error.or(updating).map(|error| error.reason).unwrap_or_default();
        [failing, Condition::new("Progressing", !is_reconciling, reason, message)]
    }

    /// Returns how far the version is applied, and what it waits for.
    fn towards(&self, updating: Option<&TaskError>) -> String {
        let done = self.progress.filter(|progress| progress.done > 0 && progress.total > 0).map(|progress| {
            let Progress { done, total } = progress;
            format!("{done} of {total} done ({}% complete)", done * 100 / total)
        });
        let awaited = updating.map(|error| error.name.clone()).into_iter().chain(self.awaited.iter().map(resource));
        let awaited = awaited.collect::<Vec<_>>().join(", ");
        let waiting = (!awaited.is_empty()).then(|| format!("waiting on {awaited}"));
        let all: Vec<String> = done.into_iter().chain(waiting).collect();
        let colon = if all.is_empty() { "" } else { ": " };
        format!("Working towards {}{colon}{}", self.version, all.join(", "))
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
