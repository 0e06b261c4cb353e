//! Whether an item is to be worked on, from what its object says. Nothing is asked and no clock is read.

use jiff::Timestamp;

use crate::{
    api::{
        CONTINUOUS_RECONCILE_ACTIVE, DELETE_WITHOUT_UNINSTALL, DeployItem, DeployItemStatus, FINALIZER, OPERATION,
        Phase,
    },
    schedule::Schedule,
};

/// Who says when there is work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Landscaper's execution controller, by `status.jobID`.
    Jobs,
    /// The item itself: a new generation, an operation, a schedule, its deletion.
    Generations,
}

/// What is to be done with an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing, until the item changes.
    Nothing,
    /// Nothing, until then.
    At(Timestamp),
    /// It is deployed.
    Reconcile(Cause),
    /// What it deployed is deleted.
    Delete(Cause),
    /// The operation `interrupt` found nothing under way: an unfinished phase ends.
    Interrupt,
}

/// Why something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// It was begun before and is not finished: its time goes on counting.
    Unfinished,
    /// A new job, generation or time has come.
    Triggered,
    /// The operation annotation asks for it, and is removed.
    Operation,
}

/// What an operation annotation asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Do it once more.
    Reconcile,
    /// Landscaper's form of the same for its own tests: a job is made for it.
    TestReconcile,
    /// Stop what is under way.
    Interrupt,
}

/// The operation that an item's annotation names, if it is one of a deployer's.
pub fn operation(item: &DeployItem) -> Option<Operation> {
    match annotation(item, OPERATION)? {
        "reconcile" => Some(Operation::Reconcile),
        "test-reconcile" => Some(Operation::TestReconcile),
        "interrupt" => Some(Operation::Interrupt),
        _ => None,
    }
}

/// The value of an annotation.
pub fn annotation<'a>(item: &'a DeployItem, name: &str) -> Option<&'a str> {
    item.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Decides. `schedule` is that of `continuousReconcile`.
pub fn due(item: &DeployItem, trigger: Trigger, schedule: Option<&Schedule>, now: Timestamp) -> Due {
    let none = DeployItemStatus::default();
    let status = item.status.as_ref().unwrap_or(&none);
    let finished = status.phase.is_none_or(Phase::is_final);
    let operation = operation(item);
    if operation == Some(Operation::Interrupt) {
        return Due::Interrupt;
    }
    let work = |cause| if deleting(item) { Due::Delete(cause) } else { Due::Reconcile(cause) };
    // Without our finalizer a deletion needs nobody.
    if deleting(item) && !has_finalizer(item) {
        return Due::Nothing;
    }
    match (trigger, operation) {
        (_, Some(Operation::TestReconcile)) => return work(Cause::Operation),
        (Trigger::Generations, Some(Operation::Reconcile)) => return work(Cause::Operation),
        _ => {}
    }
    match trigger {
        Trigger::Jobs => {
            let job = status.job_id.as_deref().filter(|job| !job.is_empty());
            match job.is_some() && job != status.job_id_finished.as_deref() {
                true if finished => work(Cause::Triggered),
                true => work(Cause::Unfinished),
                false => Due::Nothing,
            }
        }
        Trigger::Generations => {
            let observed = item.metadata.generation == Some(status.observed_generation);
            match (observed && status.phase.is_some(), finished) {
                (false, _) => work(Cause::Triggered),
                (true, false) => work(Cause::Unfinished),
                (true, true) if is_to_forget(item) => Due::Delete(Cause::Triggered),
                (true, true) if deleting(item) => Due::Nothing,
                (true, true) => scheduled(item, &status.last_reconcile_time, schedule, now),
            }
        }
    }
}

fn scheduled(
    item: &DeployItem,
    last: &Option<k8s_openapi::apimachinery::pkg::apis::meta::v1::Time>,
    schedule: Option<&Schedule>,
    now: Timestamp,
) -> Due {
    let Some(schedule) = schedule.filter(|_| annotation(item, CONTINUOUS_RECONCILE_ACTIVE) != Some("false")) else {
        return Due::Nothing;
    };
    match schedule.next(last.as_ref().map_or(now, |last| last.0)) {
        Some(next) if next <= now => Due::Reconcile(Cause::Triggered),
        Some(next) => Due::At(next),
        None => Due::Nothing,
    }
}

/// Whether the item is being deleted.
pub fn deleting(item: &DeployItem) -> bool {
    item.metadata.deletion_timestamp.is_some()
}

/// Whether the item is being deleted and what it deployed is to stay.
pub fn is_to_forget(item: &DeployItem) -> bool {
    deleting(item) && annotation(item, DELETE_WITHOUT_UNINSTALL) == Some("true")
}

/// Whether our finalizer keeps the item.
pub fn has_finalizer(item: &DeployItem) -> bool {
    item.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}
