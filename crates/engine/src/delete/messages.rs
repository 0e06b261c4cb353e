//! The inputs and effects of the machine.

use std::time::Duration;

use billhook_cluster::{Change, DeleteAnswer, RemoveAnswer};
use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{Observed, QueryId};
use serde_json::Value;

use crate::{Event, blockers::Looked, retry::Failure};

/// Something that happened outside the machine.
pub(super) enum Input {
    /// The node starts.
    Start,
    /// A request was answered.
    Answer(Answer),
    /// The watch of a query reported a change.
    Change(QueryId, Change),
    /// A timer has expired.
    Due(Timer),
    /// The user pressed Ctrl-C.
    Stop,
    /// The time limit has passed.
    Deadline,
}

/// The answer to a [`Request`].
pub(super) enum Answer {
    Delete(ObjectKey, Uid, Result<DeleteAnswer, Failure>),
    EndGrace(ObjectKey, Uid, Result<DeleteAnswer, Failure>),
    /// To `RemoveFinalizers` and `FinalizeNamespace`.
    Remove(ObjectKey, Uid, Result<RemoveAnswer, Failure>),
    Read(ObjectKey, Uid, Result<Option<Observed>, Failure>),
    ReadNamespace(ObjectKey, Uid, Result<Option<Value>, Failure>),
    List(usize, Result<Vec<Observed>, Failure>),
    Look(ObjectKey, Uid, Result<Option<Looked>, Failure>),
    /// Whether the namespace exists.
    Namespace(String, Result<bool, Failure>),
    /// Whether the object still exists.
    ReleaseSnapshot(ObjectKey, Uid, Result<bool, Failure>),
}

impl Answer {
    /// Returns whether the node waits for such an answer.
    pub fn is_awaited(&self) -> bool {
        !matches!(self, Self::Look(..) | Self::Namespace(..))
    }
}

/// Something for the driver to do.
pub(super) enum Effect {
    Send(Request),
    /// Watches a query: from where the plan's snapshot was read, or beginning with a list of its own.
    Watch {
        query: QueryId,
        from_snapshot: bool,
    },
    /// Returns the timer as an input after this time.
    Timer(Timer, Duration),
    /// Returns the timer this long after the `deletionTimestamp` of an object, by the server's clock; if it is unknown, after
    /// now.
    ForceAfter {
        timer: Timer,
        after: Duration,
        deleted_at: Option<i64>,
    },
    Emit(Event),
}

/// A request. Each is answered by exactly one [`Answer`].
pub(super) enum Request {
    /// Deletes an object that has this version; whatever version it has if it is empty.
    Delete(ObjectKey, Uid, QueryId, String),
    /// Deletes a Pod that is being deleted again, with a grace period of zero.
    EndGrace(ObjectKey, Uid, QueryId),
    /// Removes some of an object's `metadata.finalizers`, which were last seen as `present`.
    RemoveFinalizers {
        key: ObjectKey,
        uid: Uid,
        query: QueryId,
        present: Vec<String>,
        remove: Vec<String>,
    },
    /// Removes these of a Namespace's `spec.finalizers`.
    FinalizeNamespace(ObjectKey, Uid, Vec<String>),
    /// Reads the metadata of the object that has this name now; the one with this UID is replaced, has changed, or is to
    /// be confirmed gone.
    Read(ObjectKey, Uid, QueryId),
    ReadNamespace(ObjectKey, Uid, QueryId),
    /// Lists what a collection (an index into the node's collections) contains.
    List(usize),
    /// Reads an object for what it says about its deletion or its creation. The node does not wait for the answer.
    Look(ObjectKey, Uid, QueryId),
    /// Reads whether a namespace exists. The node does not wait for the answer.
    Namespace(String),
    /// Annotates a VolumeSnapshotContent, so that the CSI sidecar deletes its snapshot.
    ReleaseSnapshot(ObjectKey, Uid, QueryId),
}

/// What a timer is for.
pub(super) enum Timer {
    /// Sends a failed DELETE again.
    Retry(ObjectKey, Uid),
    /// Begins the force stage that the group has for an object.
    Force(ObjectKey, Uid),
    /// Begins the force stage that an annotation of the object asked for, after this time.
    Finalize(ObjectKey, Uid, Duration),
    /// Annotates a VolumeSnapshotContent.
    ReleaseSnapshot(ObjectKey, Uid),
    /// Sends a failed request of a force stage again.
    ForceAgain(ObjectKey, Uid),
    /// Sends the DELETE of an object that was recreated again.
    Again(ObjectKey, Uid),
    /// Reads an object that is being deleted, if no watch has shown it by then.
    Confirm(ObjectKey, Uid),
    /// Gives up on a name that may not be read, unless the watch has shown which object has it.
    Unreadable(ObjectKey),
    /// Looks at objects that are waited for.
    Look,
    /// Reads a name again.
    Read(ObjectKey),
    /// Lists a collection again.
    List(usize),
    /// Stops waiting for the answers that were in flight at Ctrl-C.
    Grace,
}
