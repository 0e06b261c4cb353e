//! How a run ended, for its user.

use std::collections::BTreeMap;

use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{AppliedVersion, Failed, ListFailure, Note, Uncovered};
use serde::{Deserialize, Serialize};

use crate::{Blocker, Status};

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// How it ended.
    pub status: Status,
    /// How many objects are gone.
    pub gone: usize,
    /// How many objects were created, configured or adopted.
    pub applied: usize,
    /// How many objects needed no change.
    pub unchanged: usize,
    /// The objects whose deletion the API server has accepted without that the run waited for its end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested: Vec<ObjectKey>,
    /// The nodes that are not done, if others continue after a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete: Option<Box<Incomplete>>,
    /// The objects that remain, each with what blocks it.
    pub left: Vec<Left>,
    /// The objects of the release that no group covers. They remain, unless they are deleted with their Namespace or CRD.
    pub uncovered: Vec<Uncovered>,
    /// The notes of the plan on what the run left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<Note>,
    /// The finalizers removed by force.
    pub finalizers_removed: Vec<FinalizersRemoved>,
    /// The objects that another client recreated; they remain.
    pub recreated: Vec<ObjectKey>,
    /// The objects that were created too late for the stage that was being cleaned; they remain.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ignored: Vec<ObjectKey>,
    /// Of a cleaning that left objects: what Gardener calls that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<CodedError>>,
    /// How many requests were sent to all clusters, by verb.
    pub requests: BTreeMap<String, u64>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Why writing the release record failed at the end. The labels of the objects still show what remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
    /// Whether the run was stopped because another operation took the lock of the release over, or because the lock could
    /// not be renewed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lock_lost: bool,
    /// Whether the record remains with the objects that the policy does not cover.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retained: bool,
    /// How many objects the backup has that the record remains for; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<usize>,
    /// What the sweep at the end found; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
    /// What the record of the release says after an apply.
    #[serde(skip)]
    pub recorded: Option<Recorded>,
}

impl Summary {
    /// Returns the summary of a run that did nothing, and ended like this.
    pub fn new(status: Status) -> Self {
        Self {
            status,
            gone: 0,
            applied: 0,
            unchanged: 0,
            requested: Vec::new(),
            incomplete: None,
            left: Vec::new(),
            uncovered: Vec::new(),
            left_out: Vec::new(),
            finalizers_removed: Vec::new(),
            recreated: Vec::new(),
            ignored: Vec::new(),
            error: None,
            requests: BTreeMap::new(),
            elapsed_ms: 0,
            record_error: None,
            lock_lost: false,
            retained: false,
            backup: None,
            proof: None,
            recorded: None,
        }
    }
}

impl Summary {
    /// Returns the objects that failed, and why, in the order of the plan: a request failed, or an object did not become ready
    /// or is not healthy. One that is not when the user interrupts the run did not fail, nor did one that is not ready when the
    /// time limit is reached.
    pub fn failures(&self) -> impl Iterator<Item = Failed<'_>> {
        let is_interrupted = self.status == Status::Interrupted;
        let is_cut = is_interrupted || self.status == Status::TimedOut;
        self.left.iter().filter_map(move |left| {
            let (error, code) = left.blockers.iter().find_map(|blocker| match blocker {
                Blocker::Refused { message, .. } => Some((message.as_str(), None)),
                Blocker::NotReady { reason } if !is_cut => Some((reason.as_str(), None)),
                Blocker::Unhealthy { code, message } if !is_interrupted => {
                    Some((message.as_str(), Some(code.as_str())))
                }
                _ => None,
            })?;
            Some(Failed { object: &left.object, error, code })
        })
    }

    /// Returns the objects that the run was waiting for when it reached its time limit, in the order of the plan.
    pub fn awaited(&self) -> impl Iterator<Item = &ObjectKey> {
        let is_awaited = |left: &&Left| left.blockers.iter().any(|of| matches!(of, Blocker::NotReady { .. }));
        let left = self.left.iter().filter(|_| self.status == Status::TimedOut);
        left.filter(is_awaited).map(|left| &left.object)
    }

    /// Returns the remaining objects whose group was started.
    pub fn blocked(&self) -> Vec<&Left> {
        self.left.iter().filter(|left| !left.is_not_started()).collect()
    }

    /// Returns the groups that were not started, each with the number of its objects.
    pub fn not_started(&self) -> Vec<(&str, usize)> {
        let mut groups: Vec<(&str, usize)> = Vec::new();
        for left in self.left.iter().filter(|left| left.is_not_started()) {
            match groups.last_mut() {
                Some((group, objects)) if *group == left.group => *objects += 1,
                _ => groups.push((&left.group, 1)),
            }
        }
        groups
    }
}

/// An error with the code that Gardener has for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodedError {
    /// The code, such as `ERR_CLEANUP_CLUSTER_RESOURCES`.
    pub code: String,
    /// The error.
    pub message: String,
}

/// The nodes of a run that are not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Incomplete {
    /// How many nodes.
    pub nodes: usize,
    /// The title of the first of them.
    pub title: String,
    /// The first object of that node.
    pub object: ObjectKey,
}

/// Finalizers removed from an object by force.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinalizersRemoved {
    /// The object.
    pub object: ObjectKey,
    /// Which finalizers.
    pub finalizers: Vec<String>,
}

/// An object that remains, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// The object.
    pub object: ObjectKey,
    /// The title of its group.
    pub group: String,
    /// What keeps it from being gone, applied or ready.
    pub blockers: Vec<Blocker>,
}

impl Left {
    fn is_not_started(&self) -> bool {
        self.blockers == [Blocker::NotStarted]
    }
}

/// What a sweep for the label of a release found after its deletion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The objects that still carry the label, except those that the policy left.
    pub left: Vec<ObjectKey>,
    /// What could not be listed, so that it is unknown whether objects are left there.
    pub unlisted: Vec<ListFailure>,
}

impl Proof {
    /// Whether nothing is left, and everything could be listed.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.unlisted.is_empty()
    }
}

/// What the record of a release says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recorded {
    /// The versions that were applied, the newest first.
    pub history: Vec<AppliedVersion>,
    /// The number of the write that made the record; 0 if there is none.
    pub revision: u64,
    /// After an apply: the UIDs of the objects that the version contains, as far as it was applied.
    pub uids: BTreeMap<ObjectKey, Uid>,
}

#[cfg(test)]
mod tests {
    use billhook_objects::GroupKind;

    use super::*;
    use crate::RefusedBy;

    #[test]
    fn failures_are_requests_that_failed_and_objects_that_did_not_become_ready() {
        let left = |name: &str, blockers: Vec<Blocker>| Left {
            object: ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), name),
            group: String::new(),
            blockers,
        };
        let refused = |message: &str| Blocker::Refused { message: message.to_owned(), by: RefusedBy::Server };
        let not_ready = || Blocker::NotReady { reason: "not yet".to_owned() };
        let all = vec![
            left("refused", vec![Blocker::Unconfirmed, refused("no")]),
            left("not-ready", vec![not_ready()]),
            left("not-started", vec![Blocker::NotStarted]),
            left("not-requested", vec![Blocker::NotRequested]),
        ];
        for (status, expected) in [
            (Status::Failed, vec![("refused", "no"), ("not-ready", "not yet")]),
            (Status::TimedOut, vec![("refused", "no")]),
            (Status::Interrupted, vec![("refused", "no")]),
        ] {
            let summary = Summary { left: all.clone(), ..Summary::new(status) };
            let found: Vec<_> = summary.failures().map(|failed| (failed.object.name.as_str(), failed.error)).collect();
            assert_eq!(found, expected, "{status:?}");
            let awaited: Vec<_> = summary.awaited().map(|object| object.name.as_str()).collect();
            assert_eq!(awaited, if status == Status::TimedOut { vec!["not-ready"] } else { vec![] }, "{status:?}");
        }
    }
}
