//! Plans: what will be deployed or deleted, in which order, and what is dangerous about it.
//!
//! Everything here is pure: an inventory, a policy, a [`Catalog`](billhook_objects::Catalog) and a [`Snapshot`] of the
//! clusters become a [`Plan`], and the same input gives the same plan, byte for byte.
//!
//! Planning takes two rounds of queries. A [`Deletion`] or [`Deployment`] returns the first, the second once the first is
//! answered, and then the plan.

mod annotations;
mod apply;
mod backup;
mod blast;
mod catalogs;
mod counts;
mod delete;
mod deploy_item;
mod directives;
mod failures;
mod find;
mod graph;
mod groups;
mod history;
mod honoured;
mod inventory;
mod limit;
mod model;
mod note;
mod problem;
mod queries;
mod request;
mod requested;
mod safe;
mod snapshot;
mod sweep;
pub mod text;
mod wanted;

pub use annotations::{Annotation, Annotations, Treatment};
pub use apply::{Deployment, check_policy, is_ready_when_created, prepare};
pub use backup::{
    Backup, BackupNote, Contents as BackupContents, Doomed, OwnerReference, Restoration, SavedObject, Tie, to_save,
};
pub use billhook_objects::Resource;
pub use blast::{add_blast_notes, blast_queries, limit_deletions};
pub use catalogs::Catalogs;
pub use counts::Counts;
pub use delete::{CleanRequest, Deletion, Spared};
pub use directives::{Directives, before_delete};
pub use failures::{Failed, Failure, Failures};
pub use graph::{Health, StepAction, TaskGraph, TaskNode, TaskStep};
pub use history::{AppliedVersion, VersionState, begin_version, complete_version};
pub use inventory::{Entry, INVENTORY_FORMAT, Inventory, Phase};
pub use limit::warn_of_limit;
pub use model::{
    ApplyAction, ApplyTask, ApplyWork, Barrier, Collection, DeleteStep, DeleteTask, DeleteWork, Exclusion, LateOwner,
    Node, Operation, PatchTask, PatchWork, Plan, QueryId, SequenceWork, Step, Unmanaged, UnservedStep, Work,
};
pub use note::{
    AnnotationNote, HookTreatment, ListFailure, NotServedNote, Note, NoteKind, OrderNote, Severity, Uncovered,
    UncoveredCause, UncoveredNote, UnreadableNote, UnservedKind,
};
pub use problem::{Locked, PlanError, PlanErrorKind, Problem};
pub use request::{ApplyRequest, DeleteRequest, MissingNamespaces, Unlabelled, Wait};
pub use requested::{DeletionState, RequestedDeletion};
pub use safe::{Before, safe_policy};
pub use snapshot::{Fingerprint, ListScope, Listed, Listing, Observed, Owner, Query, Select, Snapshot, Tracked};
pub use sweep::{Swept, narrower_sweep, sweep_queries};
pub use wanted::Wanted;

#[cfg(test)]
mod tests;
