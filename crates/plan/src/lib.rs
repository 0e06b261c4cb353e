//! Plans: what will be deployed or deleted, in which order, and what is dangerous about it.
//!
//! Everything here is pure: an inventory, a policy, a [`Catalog`](billhook_objects::Catalog) and a [`Snapshot`] of the
//! clusters go in, a [`Plan`] comes out, and the same input gives the same plan, byte for byte. Nothing is decided
//! after it except what the cluster answers.

mod apply;
mod blast;
mod counts;
mod delete;
mod directives;
mod error;
mod find;
mod groups;
mod inventory;
mod model;
mod queries;
mod request;
mod snapshot;

pub use apply::{apply_queries, missing_apply_queries, plan_apply, prepare};
pub use blast::{add_blast_notes, blast_queries, limit_deletions};
pub use delete::{delete_queries, missing_queries, plan_delete};
pub use directives::Directives;
pub use error::{PlanError, PlanErrorKind};
pub use inventory::{Entry, INVENTORY_FORMAT, INVENTORY_LABEL, Inventory, Phase};
pub use model::{
    ApplyAction, ApplyTask, ApplyWork, Barrier, Collection, DeleteTask, DeleteWork, Exclusion, Node, Note, NoteCode,
    Operation, PLAN_FORMAT, PatchTask, PatchWork, Plan, QueryId, Severity, Uncovered, Work,
};
pub use request::{ApplyRequest, Catalogs, DeleteRequest, Wait, Wanted};
pub use snapshot::{Listed, Listing, Observed, Owner, Query, Resource, Select, Snapshot};

#[cfg(test)]
mod tests;
