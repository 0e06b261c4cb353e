//! Decides what is due for an item from its object and the time. Sends no requests and reads no clock.

use billhook_plan::Operation;
use jiff::Timestamp;

use crate::{
    api::{
        CONTINUOUS_RECONCILE_ACTIVE, Condition, DELETE_WITHOUT_UNINSTALL, DeployItem, DeployItemStatus, OPERATION,
        Phase, has_finalizer,
    },
    crashes,
    progress::CONDITION,
    schedule::Schedule,
};

/// What triggers the work on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Landscaper's execution controller, by `status.jobID`.
    Jobs,
    /// The item itself: a new generation, an operation annotation, a schedule, its deletion.
    Generations,
}

/// What is due for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// Nothing, until the item changes.
    Nothing,
    /// Nothing until this time.
    At(Timestamp),
    /// The deployment.
    Reconcile(Cause),
    /// The deletion of its objects.
    Delete(Cause),
    /// The operation `interrupt` while no task works on the item.
    Interrupt,
    /// Another client has finished the job, but our condition still says that the item is being worked on.
    EndCondition,
}

impl Due {
    /// Returns the operation on an item that it belongs to, for logs and metrics.
    pub(crate) fn operation(self, item: &DeployItem) -> Operation {
        match self {
            Self::Delete(_) => Operation::Delete,
            Self::Interrupt if is_deleted(item) => Operation::Delete,
            _ => Operation::Apply,
        }
    }
}

/// Why something is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Earlier work is not finished; its time limit keeps counting.
    Unfinished,
    /// There is a new job or generation, or a scheduled time has passed.
    Triggered,
    /// The operation annotation requests it; the annotation is to be removed.
    Operation,
}

/// The value of an operation annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationAnnotation {
    /// Deploy the item again, or continue its deletion.
    Reconcile,
    /// The same in all modes; with `Trigger::Jobs`, a job is created for it. Landscaper's own tests use it.
    TestReconcile,
    /// Stop the current work.
    Interrupt,
}

/// Returns the value of an item's operation annotation, if it is one that deployers handle.
pub fn operation(item: &DeployItem) -> Option<OperationAnnotation> {
    match annotation(item, OPERATION)? {
        "reconcile" => Some(OperationAnnotation::Reconcile),
        "test-reconcile" => Some(OperationAnnotation::TestReconcile),
        "interrupt" => Some(OperationAnnotation::Interrupt),
        _ => None,
    }
}

/// Returns the value of an annotation.
fn annotation<'a>(item: &'a DeployItem, name: &str) -> Option<&'a str> {
    item.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Returns what is due for an item. `schedule` is that of its `continuousReconcile`.
pub fn due(item: &DeployItem, trigger: Trigger, schedule: Option<&Schedule>, now: Timestamp) -> Due {
    let none = DeployItemStatus::default();
    let status = item.status.as_ref().unwrap_or(&none);
    let finished = status.phase.is_none_or(Phase::is_final);
    let operation = operation(item);
    if operation == Some(OperationAnnotation::Interrupt) {
        return Due::Interrupt;
    }
    let work = |cause| if is_deleted(item) { Due::Delete(cause) } else { Due::Reconcile(cause) };
    // Without our finalizer the deletion does not wait for this controller.
    if is_deleted(item) && !has_finalizer(item) {
        return Due::Nothing;
    }
    match (trigger, operation) {
        (_, Some(OperationAnnotation::TestReconcile)) => return work(Cause::Operation),
        (Trigger::Generations, Some(OperationAnnotation::Reconcile)) => return work(Cause::Operation),
        _ => {}
    }
    match trigger {
        Trigger::Jobs => {
            let job = status.job_id.as_deref();
            match job.is_some() && job != status.job_id_finished.as_deref() {
                true if finished => work(Cause::Triggered),
                true => work(Cause::Unfinished),
                false if job.is_some() && finished && status.conditions.iter().any(runs) => Due::EndCondition,
                false => Due::Nothing,
            }
        }
        Trigger::Generations => {
            let observed = item.metadata.generation == Some(status.observed_generation);
            match (observed && status.phase.is_some(), finished) {
                (false, _) => work(Cause::Triggered),
                (true, false) => work(Cause::Unfinished),
                (true, true) if is_deleted_without_uninstall(item) => Due::Delete(Cause::Triggered),
                (true, true) if is_deleted(item) || crashes::is_set_aside(item) => Due::Nothing,
                (true, true) => scheduled(item, &status.last_reconcile_time, schedule, now),
            }
        }
    }
}

/// Returns whether our condition says that the item is being worked on.
pub fn runs(condition: &Condition) -> bool {
    condition.r#type == CONDITION && condition.status == "True"
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

/// Returns whether the item is being deleted.
pub fn is_deleted(item: &DeployItem) -> bool {
    item.metadata.deletion_timestamp.is_some()
}

/// Returns whether the item is being deleted without its objects.
pub fn is_deleted_without_uninstall(item: &DeployItem) -> bool {
    is_deleted(item) && annotation(item, DELETE_WITHOUT_UNINSTALL) == Some("true")
}
