//! The events of a run: one closed enum that every front end consumes.

use std::{collections::BTreeMap, sync::Arc};

use billhook_cluster::{Error, ErrorKind};
use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{ListFailure, Operation, Uncovered};
use serde::{Deserialize, Serialize};

/// The format version of the events; the first event of a run carries it.
pub const EVENT_FORMAT: u32 = 1;

/// Receives the events of a run, in order, from one task at a time.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// Something that happened during a run. `-o json` prints one event per line. A `node` is an index into the plan's nodes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names of the other fields describe them")]
pub enum Event {
    /// The run of a plan started.
    Started {
        /// [`EVENT_FORMAT`].
        format: u32,
        operation: Operation,
        /// The release, as `namespace/name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        release: Option<String>,
        /// The title of each node, and how many objects it has.
        nodes: Vec<(String, usize)>,
    },
    /// A node started.
    NodeStarted { node: usize, title: String, objects: usize },
    /// An object was applied.
    Applied { node: usize, object: ObjectKey, result: ApplyResult },
    /// An object that its node waits for is ready.
    Ready { node: usize, object: ObjectKey },
    /// An object that its node waits for is not ready; sent again when the reason changes.
    Waiting { node: usize, object: ObjectKey, reason: String },
    /// The API server accepted a deletion; the object still exists.
    Deleting { node: usize, object: ObjectKey, finalizers: Vec<String> },
    /// The API server confirmed that an object is gone.
    Gone {
        node: usize,
        object: ObjectKey,
        /// Its UID: another object may exist under its name.
        uid: Uid,
    },
    /// An object was created while its group is being deleted; the engine deletes it too.
    Appeared { node: usize, object: ObjectKey },
    /// Another client recreated a deleted object; it does not belong to the release and is not deleted.
    Recreated { node: usize, object: ObjectKey },
    /// The engine removed finalizers by force.
    FinalizersRemoved { node: usize, object: ObjectKey, finalizers: Vec<String> },
    /// An object that its node waits for failed and will not become ready by itself, such as a Job without retries left.
    Failed { node: usize, object: ObjectKey, reason: String },
    /// A request for an object failed.
    Refused {
        node: usize,
        object: ObjectKey,
        message: String,
        /// Whether the engine retries the request.
        retried: bool,
    },
    /// The API server of a cluster became unavailable; the engine waits for it to recover.
    ServerAway {
        /// The name of the target; `None` for the release's own cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
        reason: String,
    },
    /// The API server of a cluster is available again.
    ServerBack {
        /// The name of the target; `None` for the release's own cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
    },
    /// Watching a kind is forbidden; the engine lists or reads its objects repeatedly instead.
    PollOnly {
        node: usize,
        /// Which kind, and the API server's answer.
        reason: String,
    },
    /// A node ended.
    NodeFinished {
        node: usize,
        title: String,
        status: Status,
        /// How many objects were applied, unchanged ones included, or are gone.
        objects: usize,
        elapsed_ms: u64,
    },
    /// The run ended.
    Finished(Summary),
}

/// What a request to apply an object did, in the order in which summaries list the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplyResult {
    /// It created the object.
    Created,
    /// It changed the existing object, or took ownership of its fields.
    Configured,
    /// It added an existing object that belonged to no release.
    Adopted,
    /// It patched the object, after the deployment or before the deletion.
    Patched,
    /// It changed nothing, or was not needed.
    Unchanged,
}

/// How a node, or the run, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// Everything was done and verified.
    Done,
    /// It was not started.
    NotStarted,
    /// It was interrupted.
    Interrupted,
    /// It reached its time limit.
    TimedOut,
    /// A request, or an object, failed for good.
    Failed,
}

/// What a sweep for the label of a release found after its deletion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// The objects that still carry the label, except those that the policy left.
    pub left: Vec<ObjectKey>,
    /// What could not be listed, so that it is unknown whether objects are left there.
    pub unlisted: Vec<ListFailure>,
}

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
    /// The objects that remain, each with what blocks it.
    pub left: Vec<Left>,
    /// The objects of the release that no group covers; they remain.
    pub uncovered: Vec<Uncovered>,
    /// The finalizers removed by force.
    pub finalizers_removed: Vec<FinalizersRemoved>,
    /// The objects that another client recreated; they remain.
    pub recreated: Vec<ObjectKey>,
    /// How many requests were sent to all clusters, by verb.
    pub requests: BTreeMap<String, u64>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Why writing the release record failed at the end. The labels of the objects still show what remains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
    /// Whether the record remains with the objects that the policy does not cover.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retained: bool,
    /// What the sweep at the end found; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

impl Proof {
    /// Whether nothing is left, and everything could be listed.
    pub fn is_complete(&self) -> bool {
        self.left.is_empty() && self.unlisted.is_empty()
    }
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

/// Which part of the API server rejected a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedBy {
    /// None of the parts below: validation, a conflict, or a server that is overloaded or unavailable.
    #[default]
    Server,
    /// Authorization: a permission is missing.
    Rights,
    /// An admission webhook, or the failure to call it.
    Webhook,
}

impl RefusedBy {
    pub(crate) fn of(error: &Error) -> Self {
        match error.kind() {
            ErrorKind::Forbidden => Self::Rights,
            ErrorKind::Webhook => Self::Webhook,
            _ => Self::Server,
        }
    }

    fn is_server(&self) -> bool {
        *self == Self::Server
    }
}

/// What keeps an object from being gone, applied or ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names of the other fields describe them")]
pub enum Blocker {
    /// A finalizer, and the field manager that set it.
    Finalizer {
        finalizer: String,
        /// The field manager, where `managedFields` names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        manager: Option<String>,
    },
    /// A condition of a Namespace or CRD that explains why it is not gone.
    Condition {
        /// The condition's type, such as `NamespaceContentRemaining`.
        condition: String,
        message: String,
    },
    /// The request failed.
    Refused {
        message: String,
        /// Which part of the API server rejected it.
        #[serde(default, skip_serializing_if = "RefusedBy::is_server")]
        by: RefusedBy,
    },
    /// Its group was not started.
    NotStarted,
    /// Its group was started, but no request for the object was sent, or its answer did not arrive in time.
    NotRequested,
    /// The deletion was requested; the API server has not confirmed that the object is gone.
    Unconfirmed,
    /// It is not ready.
    NotReady { reason: String },
}

impl Summary {
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

impl Left {
    fn is_not_started(&self) -> bool {
        self.blockers == [Blocker::NotStarted]
    }
}

impl std::fmt::Display for Blocker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Finalizer { finalizer, manager: Some(manager) } => {
                write!(f, "finalizer {finalizer} (set by {manager})")
            }
            Self::Finalizer { finalizer, manager: None } => write!(f, "finalizer {finalizer}"),
            Self::Condition { condition, message } => write!(f, "{condition}: {message}"),
            Self::Refused { message, .. } => write!(f, "request failed: {message}"),
            Self::NotStarted => f.write_str("its group was not started"),
            Self::NotRequested => f.write_str("request not sent, or not answered in time"),
            Self::Unconfirmed => f.write_str("deletion requested, not yet confirmed by the API server"),
            Self::NotReady { reason } => write!(f, "not ready: {reason}"),
        }
    }
}
