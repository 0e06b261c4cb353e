//! The dispatch: which method of the actuator an object needs now. A pure function of the object and its Cluster.
//!
//! The rules are those of Gardener's generic reconcilers (gardener/gardener, extensions/pkg/controller/*/reconciler.go, with
//! `ComputeOperationType` and `OperationAnnotationWrapper`). The tests name them row by row.

use std::fmt;

use crate::{
    gardener::Cluster,
    object::{ExtensionObject, OperationType, WAIT_FOR_STATE},
};

/// The kind whose condition `Created` matters.
pub(crate) const DNS_RECORD: &str = "DNSRecord";

/// A method of the actuator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Reconcile,
    Delete,
    ForceDelete,
    Migrate,
    Restore,
}

impl Action {
    /// Returns the name in texts and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reconcile => "reconcile",
            Self::Delete => "delete",
            Self::ForceDelete => "force-delete",
            Self::Migrate => "migrate",
            Self::Restore => "restore",
        }
    }
}

/// What to do with an object now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    /// Whether the operation annotation is removed first.
    pub(crate) strip: bool,
    pub(crate) step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Skip(Skip),
    Run(Run),
    /// The object is being deleted, but nothing was ever created for it outside of the seed: our finalizer is removed without a
    /// call of the actuator.
    Release,
}

/// A call of the actuator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) action: Action,
    /// The type of the operation in the status.
    pub(crate) operation: OperationType,
    /// Whether our finalizer is added first.
    pub(crate) add_finalizer: bool,
}

/// Why an object is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip {
    /// The annotation asks to wait: gardenlet has not written the state yet.
    WaitForState,
    /// The Shoot has failed finally.
    ShootFailed,
    /// The object was migrated away.
    Migrated,
    /// The object is being deleted, and our part of it is done.
    NoFinalizer,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::WaitForState => "the annotation asks to wait for the state",
            Self::ShootFailed => "the Shoot has failed",
            Self::Migrated => "the object was migrated",
            Self::NoFinalizer => "the object is being deleted and does not have our finalizer",
        })
    }
}

impl Decision {
    /// Returns the method of the actuator to call, if any.
    pub(crate) fn action(&self) -> Option<Action> {
        match self.step {
            Step::Run(run) => Some(run.action),
            Step::Skip(_) | Step::Release => None,
        }
    }
}

/// Decides what to do with an object of a kind.
pub(crate) fn decide(object: &ExtensionObject, cluster: &Cluster, kind: &str, finalizer: &str) -> Decision {
    let annotation = object.operation.as_deref();
    if annotation == Some(WAIT_FOR_STATE) {
        return Decision { strip: false, step: Step::Skip(Skip::WaitForState) };
    }
    // The annotation remains, so that the request is carried out once the Shoot is no longer failed.
    if cluster.has_failed() {
        return Decision { strip: false, step: Step::Skip(Skip::ShootFailed) };
    }
    Decision { strip: annotation == Some("reconcile"), step: step(object, cluster, kind, finalizer) }
}

fn step(object: &ExtensionObject, cluster: &Cluster, kind: &str, finalizer: &str) -> Step {
    let operation = operation_type(object);
    let run = |action, add_finalizer| Step::Run(Run { action, operation, add_finalizer });
    let is_migrated = object
        .last_operation
        .as_ref()
        .is_some_and(|last| last.succeeded && last.operation == Some(OperationType::Migrate));
    let has_finalizer = object.has(finalizer);
    match operation {
        OperationType::Migrate => run(Action::Migrate, false),
        OperationType::Restore => run(Action::Restore, !has_finalizer),
        _ if is_migrated => Step::Skip(Skip::Migrated),
        OperationType::Delete if !has_finalizer => Step::Skip(Skip::NoFinalizer),
        OperationType::Delete if kind == DNS_RECORD && object.never_created => Step::Release,
        OperationType::Delete if cluster.needs_force_deletion() => run(Action::ForceDelete, false),
        OperationType::Delete => run(Action::Delete, false),
        OperationType::Create | OperationType::Reconcile => run(Action::Reconcile, !has_finalizer),
    }
}

/// Returns the type of the operation: migrate beats delete, delete beats restore, restore beats reconcile, and an operation
/// that has not finished is continued.
fn operation_type(object: &ExtensionObject) -> OperationType {
    let annotation = object.operation.as_deref();
    if annotation == Some("migrate") {
        return OperationType::Migrate;
    }
    if object.deleting {
        return OperationType::Delete;
    }
    if annotation == Some("restore") {
        return OperationType::Restore;
    }
    let Some(last) = &object.last_operation else { return OperationType::Create };
    match last.operation {
        Some(unfinished @ (OperationType::Create | OperationType::Migrate | OperationType::Restore))
            if !last.succeeded =>
        {
            unfinished
        }
        _ => OperationType::Reconcile,
    }
}

#[cfg(test)]
mod tests;
