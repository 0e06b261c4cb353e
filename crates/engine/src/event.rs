//! The events of a run: one closed enum that every front end consumes.

mod blocker;

use std::sync::Arc;

use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{Note, Operation, UncoveredCause};
use serde::{Deserialize, Serialize};

pub use self::blocker::{Blocker, RefusedBy};
use crate::Summary;

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
        /// What the objects of each node are to become; empty if all are to be applied, or all to be gone, as the operation
        /// says.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        goals: Vec<Goal>,
        /// The notes of the plan, which is about to be carried out.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notes: Vec<Note>,
    },
    /// A namespace that was missing was created. It is not an object of the release, or it would be applied by a node.
    NamespaceCreated { object: ObjectKey },
    /// A node started.
    NodeStarted { node: usize, title: String, objects: usize },
    /// An object was applied.
    Applied { node: usize, object: ObjectKey, result: ApplyResult },
    /// An object that its node waits for is ready.
    Ready { node: usize, object: ObjectKey },
    /// An object that its node waits for is not ready; sent again when the reason changes.
    Waiting { node: usize, object: ObjectKey, reason: String },
    /// The API server accepted a deletion; the object may still exist.
    Deleting { node: usize, object: ObjectKey, finalizers: Vec<String> },
    /// The API server confirmed that an object is gone.
    Gone {
        node: usize,
        object: ObjectKey,
        /// Its UID: another object may exist under its name.
        uid: Uid,
    },
    /// What keeps an object from being gone: sent when it changes after `Deleting`, and with an empty list if nothing does
    /// any more.
    Blocked { node: usize, object: ObjectKey, blockers: Vec<Blocker> },
    /// The engine ended the grace period of a Pod, which the API server then removed without waiting for its node.
    GracePeriodEnded { node: usize, object: ObjectKey },
    /// An object was created while its group is being deleted; the engine deletes it too.
    Appeared { node: usize, object: ObjectKey },
    /// Another client recreated a deleted object; it does not belong to the release and is not deleted.
    Recreated { node: usize, object: ObjectKey },
    /// An object was created too late for the stage that is being cleaned; it is not deleted.
    Ignored { node: usize, object: ObjectKey },
    /// An object is not waited for: its annotations keep it, although they did not when the plan was made, or its namespace does
    /// not exist any more.
    Kept {
        node: usize,
        object: ObjectKey,
        #[serde(flatten)]
        cause: UncoveredCause,
    },
    /// A VolumeSnapshotContent was annotated, so that the CSI sidecar deletes its snapshot.
    SnapshotReleased { node: usize, object: ObjectKey },
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
    /// The list that is to confirm that a collection is empty failed. Sent once for each reason.
    ListFailed {
        node: usize,
        /// Which kind, and why.
        reason: String,
        /// Whether the engine retries it. Where listing is forbidden, only the watch or single reads tell what is left.
        #[serde(default = "retried")]
        retried: bool,
    },
    /// A node ended.
    NodeFinished {
        node: usize,
        title: String,
        status: Status,
        /// How many objects were applied, unchanged ones included, or are ready, or gone.
        objects: usize,
        elapsed_ms: u64,
    },
    /// The run ended.
    Finished(Box<Summary>),
}

impl Event {
    /// Returns the node that the event is about; none if it is about the run.
    pub(crate) fn node(&self) -> Option<usize> {
        match self {
            Self::Started { .. }
            | Self::NamespaceCreated { .. }
            | Self::ServerAway { .. }
            | Self::ServerBack { .. }
            | Self::Finished(_) => None,
            Self::NodeStarted { node, .. }
            | Self::Applied { node, .. }
            | Self::Ready { node, .. }
            | Self::Waiting { node, .. }
            | Self::Deleting { node, .. }
            | Self::Gone { node, .. }
            | Self::Blocked { node, .. }
            | Self::GracePeriodEnded { node, .. }
            | Self::Appeared { node, .. }
            | Self::Recreated { node, .. }
            | Self::Ignored { node, .. }
            | Self::Kept { node, .. }
            | Self::SnapshotReleased { node, .. }
            | Self::FinalizersRemoved { node, .. }
            | Self::Failed { node, .. }
            | Self::Refused { node, .. }
            | Self::PollOnly { node, .. }
            | Self::ListFailed { node, .. }
            | Self::NodeFinished { node, .. } => Some(*node),
        }
    }
}

fn retried() -> bool {
    true
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
    /// It deleted the object, whose update the API server had rejected as invalid, and created it again.
    Recreated,
    /// It patched the object, after the deployment or before the deletion.
    Patched,
    /// It changed nothing, or was not needed.
    Unchanged,
}

/// What the objects of a node are to become: the state that its progress counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Goal {
    /// Created, or updated to match the manifest.
    Applied,
    /// Patched.
    Patched,
    /// Ready: the node applies nothing and waits for objects that earlier nodes have applied.
    Ready,
    /// Gone.
    Gone,
    /// Applied, or their deletion requested, one after another.
    Done,
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

impl Goal {
    /// Returns what an operation as a whole is about.
    pub(crate) fn of(operation: Operation) -> Self {
        match operation {
            Operation::Apply | Operation::Restore => Self::Applied,
            Operation::Delete | Operation::Clean => Self::Gone,
        }
    }
}

impl std::fmt::Display for Goal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Applied => "applied",
            Self::Patched => "patched",
            Self::Ready => "ready",
            Self::Gone => "gone",
            Self::Done => "done",
        })
    }
}
