//! Decides what is due for an item from its object and the time. Sends no requests and reads no clock.

use billhook_plan::Operation;
use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{
        CONTINUOUS_RECONCILE_ACTIVE, Condition, DELETE_WITHOUT_UNINSTALL, DeployItem, DeployItemStatus, OPERATION,
        Phase, has_finalizer,
    },
    crashes,
    progress::CONDITION,
    schedule::Schedule,
};

/// By how much the clocks of two replicas may differ.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(5);

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
    let last = last.as_ref().map_or(now, |last| last.0);
    // A clock that was wrong has written it. Clocks of replicas may differ a little.
    if last.duration_since(now) > CLOCK_SKEW {
        return Due::Reconcile(Cause::Triggered);
    }
    match schedule.next(last) {
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

#[cfg(test)]
mod tests {
    use billhook_policy::GoDuration;
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_000_000;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Returns an item of generation 2 with our finalizer, this metadata besides, and this status.
    fn item(metadata: Value, status: Value) -> DeployItem {
        let mut item = json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem",
            "metadata": { "name": "a", "generation": 2, "finalizers": ["finalizer.landscaper.gardener.cloud"] },
            "spec": { "type": "t" }, "status": status,
        });
        let Value::Object(metadata) = metadata else { panic!("{metadata}") };
        metadata.into_iter().for_each(|(key, value)| item["metadata"][key] = value);
        serde_json::from_value(item).unwrap()
    }

    fn deleted() -> Value {
        json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" })
    }

    fn annotated(name: &str, value: &str) -> Value {
        json!({ "annotations": { name: value } })
    }

    #[test]
    fn generations_and_annotations_trigger_items_without_jobs() {
        let check = |metadata: Value, status: Value, expected: Due| {
            let found = due(&item(metadata.clone(), status.clone()), Trigger::Generations, None, at(NOW));
            assert_eq!(found, expected, "{metadata} {status}");
        };
        let status = |phase: &str, generation: i64| json!({ "phase": phase, "observedGeneration": generation });
        check(json!({}), json!({}), Due::Reconcile(Cause::Triggered));
        check(json!({}), status("Succeeded", 1), Due::Reconcile(Cause::Triggered));
        check(json!({}), status("Progressing", 1), Due::Reconcile(Cause::Triggered));
        check(json!({}), status("Progressing", 2), Due::Reconcile(Cause::Unfinished));
        check(json!({}), status("Succeeded", 2), Due::Nothing);
        check(json!({}), status("Failed", 2), Due::Nothing);
        check(annotated(OPERATION, "reconcile"), status("Failed", 2), Due::Reconcile(Cause::Operation));
        check(annotated(OPERATION, "test-reconcile"), status("Failed", 2), Due::Reconcile(Cause::Operation));
        check(annotated(OPERATION, "interrupt"), status("Progressing", 2), Due::Interrupt);
        check(annotated(OPERATION, "other"), status("Succeeded", 2), Due::Nothing);
        check(deleted(), status("Succeeded", 1), Due::Delete(Cause::Triggered));
        check(deleted(), status("Deleting", 2), Due::Delete(Cause::Unfinished));
        check(deleted(), status("DeleteFailed", 2), Due::Nothing);
        let mut without_finalizer = deleted();
        without_finalizer["finalizers"] = json!(["other"]);
        check(without_finalizer, status("Succeeded", 1), Due::Nothing);
        let mut without_objects = deleted();
        without_objects["annotations"] = json!({ DELETE_WITHOUT_UNINSTALL: "true" });
        check(without_objects, status("DeleteFailed", 2), Due::Delete(Cause::Triggered));
    }

    #[test]
    fn jobs_trigger_items_of_landscaper() {
        let check = |metadata: Value, status: Value, expected: Due| {
            let found = due(&item(metadata.clone(), status.clone()), Trigger::Jobs, None, at(NOW));
            assert_eq!(found, expected, "{metadata} {status}");
        };
        let status = |phase: &str, job: &str, finished: &str| json!({ "phase": phase, "observedGeneration": 1, "jobID": job, "jobIDFinished": finished });
        check(json!({}), json!({}), Due::Nothing);
        check(json!({}), status("", "a", ""), Due::Reconcile(Cause::Triggered));
        check(json!({}), status("Succeeded", "a", "a"), Due::Nothing);
        check(json!({}), status("Succeeded", "b", "a"), Due::Reconcile(Cause::Triggered));
        check(json!({}), status("Progressing", "b", "a"), Due::Reconcile(Cause::Unfinished));
        check(deleted(), status("Succeeded", "a", "a"), Due::Nothing);
        check(deleted(), status("Succeeded", "b", "a"), Due::Delete(Cause::Triggered));
        check(annotated(OPERATION, "reconcile"), status("Failed", "a", "a"), Due::Nothing);
        check(annotated(OPERATION, "test-reconcile"), status("Failed", "a", "a"), Due::Reconcile(Cause::Operation));
        check(annotated(OPERATION, "interrupt"), status("Progressing", "b", "a"), Due::Interrupt);
        let mut interrupted = status("Failed", "a", "a");
        let condition = json!({ "type": CONDITION, "status": "True", "reason": "Applying", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z" });
        interrupted["conditions"] = json!([condition]);
        check(json!({}), interrupted.clone(), Due::EndCondition);
        interrupted["phase"] = json!("Progressing");
        check(json!({}), interrupted, Due::Nothing);
    }

    #[test]
    fn a_schedule_counts_from_the_last_reconcile_if_that_was_not_in_the_future() {
        let schedule = Schedule::every(GoDuration(std::time::Duration::from_secs(600)));
        let check = |metadata: Value, last: i64, expected: Due| {
            let status =
                json!({ "phase": "Succeeded", "observedGeneration": 2, "lastReconcileTime": at(last).to_string() });
            let found = due(&item(metadata.clone(), status), Trigger::Generations, Some(&schedule), at(NOW));
            assert_eq!(found, expected, "{metadata} {last}");
        };
        check(json!({}), NOW - 600, Due::Reconcile(Cause::Triggered));
        check(json!({}), NOW - 599, Due::At(at(NOW + 1)));
        check(json!({}), NOW + 60, Due::At(at(NOW + 660)));
        // The clock of another replica was wrong by a year.
        check(json!({}), NOW + 31_536_000, Due::Reconcile(Cause::Triggered));
        check(annotated(CONTINUOUS_RECONCILE_ACTIVE, "false"), NOW - 600, Due::Nothing);
        let aside = json!({ "count": 3, "lastCrash": at(NOW).to_string(), "attempt": at(NOW).to_string() }).to_string();
        check(annotated("billhook.dev/crashes", &aside), NOW - 600, Due::Nothing);
    }
}
