//! What the engine says: one closed enum that every front end consumes.

use std::{collections::BTreeMap, sync::Arc};

use billhook_cluster::{Error, ErrorKind};
use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{Operation, Uncovered};
use serde::{Deserialize, Serialize};

/// The format version of the events, printed with the first of them.
pub const EVENT_FORMAT: u32 = 1;

/// Where events go. It is called in order, from one task at a time.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// Something that happened. `-o json` prints one of these a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum Event {
    /// A plan is carried out from now on.
    Started {
        /// [`EVENT_FORMAT`].
        format: u32,
        /// What for.
        operation: Operation,
        /// The release, as `namespace/name`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        release: Option<String>,
        /// The titles of the nodes and how many objects each holds.
        nodes: Vec<(String, usize)>,
    },
    /// A node is begun.
    NodeStarted {
        /// Its index in the plan.
        node: usize,
        /// Its title.
        title: String,
        /// The objects it holds by now.
        objects: usize,
    },
    /// An object was applied.
    Applied {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
        /// What the request did.
        result: ApplyResult,
    },
    /// An object that is waited for is ready.
    Ready {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
    },
    /// An object that is waited for is not ready; said again when the reason changes.
    Waiting {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
        /// Why.
        reason: String,
    },
    /// The API server has accepted a deletion; the object is still there.
    Deleting {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
        /// The finalizers that hold it.
        finalizers: Vec<String>,
    },
    /// The API server has said that an object is gone.
    Gone {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
        /// Which object of that name.
        uid: Uid,
    },
    /// An object appeared while its group is deleted, and is deleted too.
    Appeared {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
    },
    /// An object was made anew under its name by somebody else: it stays.
    Recreated {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
    },
    /// Finalizers were removed by force.
    FinalizersRemoved {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
        /// Which finalizers.
        finalizers: Vec<String>,
    },
    /// The API server refused a request.
    Refused {
        /// The node.
        node: usize,
        /// The object.
        object: ObjectKey,
        /// What it said.
        message: String,
        /// Whether it is tried again.
        retried: bool,
    },
    /// A cluster does not answer; what is under way is waited for.
    ServerAway {
        /// The name of the target; none for the release's own cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
        /// What happened.
        reason: String,
    },
    /// The cluster answers again.
    ServerBack {
        /// The name of the target; none for the release's own cluster.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cluster: Option<String>,
    },
    /// A kind cannot be watched: its objects are read one by one instead.
    PollOnly {
        /// The node.
        node: usize,
        /// Which kind, and why.
        reason: String,
    },
    /// A node has ended.
    NodeFinished {
        /// Its index in the plan.
        node: usize,
        /// Its title.
        title: String,
        /// How it ended.
        status: Status,
        /// How many objects were applied or are gone.
        objects: usize,
        /// How long it took, in milliseconds.
        elapsed_ms: u64,
    },
    /// All is over.
    Finished(Summary),
}

/// What a request to apply an object did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplyResult {
    /// It was created.
    Created,
    /// It existed and was changed, or its fields were claimed.
    Configured,
    /// It is as it was: no request was needed, or the request changed nothing.
    Unchanged,
    /// It existed, belonged to nobody, and was taken up.
    Adopted,
    /// It was patched: after the deployment of all, or before its deletion.
    Patched,
}

/// How a node, or the whole, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// All was done, and verified.
    Done,
    /// It was not begun.
    NotStarted,
    /// It was interrupted.
    Interrupted,
    /// It took longer than it may.
    TimedOut,
    /// The cluster refused something.
    Failed,
}

/// How all ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Summary {
    /// How it ended.
    pub status: Status,
    /// How many objects are gone.
    pub gone: usize,
    /// How many objects were created, configured or adopted.
    pub applied: usize,
    /// How many objects were as we left them.
    pub unchanged: usize,
    /// The objects that are left, each with what blocks it.
    pub left: Vec<Left>,
    /// Objects of the release that no group covers: they stay.
    pub uncovered: Vec<Uncovered>,
    /// Every removal of finalizers by force.
    pub finalizers_removed: Vec<FinalizersRemoved>,
    /// Objects that were made anew by somebody else and stay.
    pub recreated: Vec<ObjectKey>,
    /// The requests sent, by verb, all clusters together.
    pub requests: BTreeMap<String, u64>,
    /// How long it took, in milliseconds.
    pub elapsed_ms: u64,
    /// Why the record of the release could not be written at the end. The labels of the objects say what is left.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_error: Option<String>,
}

/// A removal of finalizers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FinalizersRemoved {
    /// The object.
    pub object: ObjectKey,
    /// Which finalizers.
    pub finalizers: Vec<String>,
}

/// An object that is left, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Left {
    /// The object.
    pub object: ObjectKey,
    /// The title of its group.
    pub group: String,
    /// What keeps it from being gone, or from being ready.
    pub blockers: Vec<Blocker>,
}

/// Who refuses a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusedBy {
    /// The API server itself: its rules, or what it says of its state.
    #[default]
    Server,
    /// Its authorization: a right is missing.
    Rights,
    /// An admission webhook, or its absence.
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

/// What keeps an object from being gone, or from being ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Blocker {
    /// A finalizer, and the field manager that set it.
    Finalizer {
        /// The finalizer.
        finalizer: String,
        /// The field manager, where `managedFields` names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        manager: Option<String>,
    },
    /// A condition of a Namespace or CRD that says why its deletion does not end.
    Condition {
        /// The condition's type, such as `NamespaceContentRemaining`.
        condition: String,
        /// Its message.
        message: String,
    },
    /// The API server refuses the request.
    Refused {
        /// What it said.
        message: String,
        /// Who refuses it.
        #[serde(default, skip_serializing_if = "RefusedBy::is_server")]
        by: RefusedBy,
    },
    /// Its group was never begun.
    NotStarted,
    /// Its group was begun, but nothing was requested of it, or the answer was not awaited.
    NotRequested,
    /// The deletion was requested; the API server has not said that it is gone.
    Unconfirmed,
    /// It is not ready.
    NotReady {
        /// Why.
        reason: String,
    },
}

impl std::fmt::Display for Blocker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Finalizer { finalizer, manager: Some(manager) } => {
                write!(f, "finalizer {finalizer} (set by {manager})")
            }
            Self::Finalizer { finalizer, manager: None } => write!(f, "finalizer {finalizer}"),
            Self::Condition { condition, message } => write!(f, "{condition}: {message}"),
            Self::Refused { message, .. } => write!(f, "refused: {message}"),
            Self::NotStarted => f.write_str("its group was not started"),
            Self::NotRequested => f.write_str("not requested yet"),
            Self::Unconfirmed => f.write_str("deletion requested, not confirmed"),
            Self::NotReady { reason } => write!(f, "not ready: {reason}"),
        }
    }
}
