//! Runs a [`Plan`](billhook_plan::Plan) against its clusters and says all it does in one [`Event`] enum.
//!
//! The engine knows the plan's graph and nothing of dialects. It makes no choice that the plan could have made; what it
//! decides at run time is what the cluster's answers ask for:
//!
//! - an object appeared in a collection that is being deleted: it is deleted too;
//! - an object came back under its name with another UID: ours again if it carries the release's label, else it stays;
//! - a request failed: transient failures are sent again, refusals are final, a webhook that does not answer is asked
//!   again until the time limit;
//! - a force stage is due: which of the declared finalizers are still there, and whether a Namespace is empty.

mod apply;
mod blockers;
mod delete;
mod dry_run;
mod event;
mod node;
mod operation;
mod progress;
pub mod readiness;
mod run;
mod status;
mod write;

pub use dry_run::dry_run;
pub use event::{ApplyResult, Blocker, EVENT_FORMAT, Event, FinalizersRemoved, Left, RefusedBy, Sink, Status, Summary};
pub use operation::{
    ApplyInput, DeleteInput, Inherited, MissingNamespaces, OperationError, Prepared, Subject, apply, delete, forget,
    load_record, prepare_apply, prepare_delete,
};
pub use progress::{Goal, Hold, NodeProgress, NodeState, Progress};
pub use run::{Clusters, RunOptions};
pub use status::{KindStatus, ObjectState, ObjectStatus, ReleaseStatus, release_status};
