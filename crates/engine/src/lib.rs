//! Runs a [`Plan`](billhook_plan::Plan) against its clusters and reports its progress in one [`Event`] enum.
//!
//! The engine knows the plan's graph and nothing about dialects. It makes no choice that the plan could have made. At run
//! time it only reacts to the clusters' answers:
//!
//! - an object appears in a collection that is being deleted: it is deleted too;
//! - an object is recreated under its name with another UID: it is deleted again if it carries the release's label, else
//!   it remains; if this repeats, the pauses before its deletion grow;
//! - an object appears in a stage later than the stage includes new ones: it is reported, and remains;
//! - a request fails: it is retried until the time limit if the failure may pass, and rejections are final, except that the
//!   plan may have pauses after which they are retried;
//! - a step of a sequence fails: it is repeated after the pauses of the plan;
//! - an object is annotated after the plan was made: it is kept, its finalizers are removed later, or it is not awaited;
//! - an update is rejected as invalid: the object is recreated if the plan and its annotations let it;
//! - a force stage is due: the declared finalizers that remain are removed, those of a Namespace once it is empty, and
//!   the grace period of Pods is ended.

mod apply;
mod awaited;
mod blockers;
mod copy;
mod delete;
mod dependents;
mod diff;
mod dry_run;
mod event;
mod explain;
mod gone;
mod node;
mod operation;
mod outlook;
mod progress;
mod publish;
mod queries;
pub mod readiness;
mod retry;
mod run;
mod schedule;
mod sequence;
mod status;
mod write;

pub use billhook_plan::MissingNamespaces;
pub use copy::{Copy, NotRead, copy_for, custodians};
pub use diff::{DiffAction, DiffChange, ObjectDiff, diff};
pub use dry_run::{DryRunAnswer, NotChecked, dry_run};
pub use event::{ApplyResult, Blocker, EVENT_FORMAT, Event, Goal, RefusedBy, Sink, Status};
pub use explain::{ExplainOptions, blocker_texts, explain, explain_all, name_root_causes, of_release};
pub use gone::{Waited, until_gone};
pub use operation::{
    ApplyInput, BackupMode, CleanSubject, DeleteInput, DeletionOrder, DeploymentOrder, Forgotten, GraphOf, Inherited,
    OperationError, PreparedApply, PreparedClean, PreparedDelete, PreparedForget, RestoreInput, Starting, Subject,
    Unowned, Unrecorded, apply, apply_announced, clean, delete, forget, forget_record, give_back, prepare_apply,
    prepare_clean, prepare_delete, prepare_delete_foreseen, prepare_forget, prepare_restore, save_objects, take_over,
};
pub use outlook::{Expected, Outlook, Prospect};
pub use progress::{Hold, NodeProgress, NodeState, Progress};
pub use publish::{PublishError, StatusTarget, recorded};
pub use run::{Clusters, CodedError, FinalizersRemoved, Incomplete, Left, Proof, Recorded, RunOptions, Summary};
pub use status::{
    KindStatus, ObjectState, ObjectStatus, ReleaseStatus, TargetGroup, TargetState, TargetStatus, release_history,
    release_status,
};
