//! The health of objects after they were applied, as OpenShift's cluster-version operator judges it, with its words:
//! `lib/resourcebuilder` (`apps.go`, `batch.go`, `apiext.go`) and `pkg/cvo/internal/operatorstatus.go` of
//! `openshift/cluster-version-operator`.

use billhook_objects::GroupKind;
use billhook_plan::Health;

use super::{
    readiness,
    verdict::{Readiness, Verdict},
    view::{OperandVersion, View},
};

const NOT_PROGRESSING: &str = "WorkloadNotProgressing";
const NOT_AVAILABLE: &str = "WorkloadNotAvailable";

/// Returns whether an object is healthy; `expected` are the versions that a ClusterOperator must report. An object of a kind
/// without a rule of its own is healthy if it is ready.
pub fn health(kind: &GroupKind, object: &View, rules: Health, expected: &[OperandVersion]) -> Verdict {
    match (kind.group.as_str(), kind.kind.as_str()) {
        (_, kind) if object.skips_health_check() && kind != "CustomResourceDefinition" => Verdict::READY,
        ("apps", "Deployment" | "DaemonSet") if rules == Health::Installing => Verdict::READY,
        ("apps", "Deployment") => deployment(object),
        // DaemonSets have no conditions.
        ("apps", "DaemonSet") => being_deleted("daemonset", object).unwrap_or(Verdict::READY),
        ("batch", "Job") => job(kind, object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(kind, object),
        ("config.openshift.io", "ClusterOperator") => operator(object, rules, expected),
        _ => readiness(kind, object).into(),
    }
}

/// Returns `namespace/name`.
fn place(object: &View) -> String {
    let metadata = &object.metadata;
    format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name)
}

fn being_deleted(kind: &str, object: &View) -> Option<Verdict> {
    object.metadata.deletion_timestamp.as_ref()?;
    Some(Readiness::Failed(format!("{kind} {} is being deleted", place(object))).into())
}

/// A Deployment that is rolled out slowly is healthy: nothing waits for it. One that is broken fails its manifest.
fn deployment(object: &View) -> Verdict {
    if let Some(deleted) = being_deleted("deployment", object) {
        return deleted;
    }
    let condition = |r#type: &str, status: &str| object.status.condition(r#type).filter(|found| found.status == status);
    let failed = |code, message: String| Verdict::of(Readiness::Failed(message), code);
    let name = place(object);
    if let Some(failure) = condition("ReplicaFailure", "True") {
        let (reason, message) = (&failure.reason, &failure.message);
        return failed(NOT_PROGRESSING, format!("deployment {name} has a replica failure {reason}: {message}"));
    }
    let (available, progressing) = (condition("Available", "False"), condition("Progressing", "False"));
    if let (Some(available), Some(progressing)) = (available, progressing) {
        let message = format!(
            "deployment {name} is not available {} ({}) or progressing {} ({})",
            available.reason, available.message, progressing.reason, progressing.message
        );
        return failed(NOT_AVAILABLE, message);
    }
    match progressing.filter(|progressing| progressing.reason == "ProgressDeadlineExceeded") {
        Some(stuck) => {
            let (reason, message) = (&stuck.reason, &stuck.message);
            failed(NOT_PROGRESSING, format!("deployment {name} is Progressing=False: {reason}: {message}"))
        }
        None => Verdict::READY,
    }
}

/// The reference looks at a Job once. Here it is awaited, so one without a final condition may still succeed. A suspended one
/// keeps what follows it waiting, too.
fn job(kind: &GroupKind, object: &View) -> Verdict {
    let readiness = readiness(kind, object);
    let is_complete = object.status.condition("Complete").is_some_and(|found| found.is_true());
    if readiness == Readiness::Ready && !is_complete {
        return Readiness::NotYet("the job is suspended".to_owned()).into();
    }
    let failed = object.status.condition("Failed").filter(|_| matches!(readiness, Readiness::Failed(_)));
    match failed {
        Some(failed) if object.status.failed.unwrap_or(0) > 0 || failed.reason == "DeadlineExceeded" => {
            let (reason, message) = (&failed.reason, &failed.message);
            Readiness::Failed(format!("deadline exceeded, reason: {reason:?}, message: {message:?}")).into()
        }
        _ => readiness.into(),
    }
}

fn definition(kind: &GroupKind, object: &View) -> Verdict {
    let readiness = readiness(kind, object);
    if !matches!(readiness, Readiness::NotYet(_)) {
        return readiness.into();
    }
    let name = &object.metadata.name;
    let message = match object.status.condition("Established") {
        Some(found) => {
            format!("CustomResourceDefinition {name} Established={}, {}: {}", found.status, found.reason, found.message)
        }
        None => {
            let others = object.status.conditions.iter().map(|found| format!("{}={}", found.r#type, found.status));
            let others = others.collect::<Vec<_>>().join(" ");
            format!("CustomResourceDefinition {name} does not declare an Established status condition: [{others}]")
        }
    };
    Readiness::NotYet(message).into()
}

/// An operator reports its own health, and the versions of its operands once these are updated.
fn operator(object: &View, rules: Health, expected: &[OperandVersion]) -> Verdict {
    let (name, status) = (&object.metadata.name, &object.status);
    let not_yet = |code, state: &str, detail: String| {
        Verdict::of(Readiness::NotYet(format!("Cluster operator {name} is {state}")), code).because(detail)
    };
    if expected.is_empty() {
        let message = format!("Cluster operator {name} does not declare expected versions");
        return Verdict::of(Readiness::Failed(message), "ClusterOperatorNoVersions");
    }
    let (available, degraded) = (status.condition("Available"), status.condition("Degraded"));
    let is_available = available.is_some_and(|found| found.is_true());
    let is_degraded = degraded.is_none_or(|found| found.status != "False");
    let is_progressing = status.condition("Progressing").is_none_or(|found| found.status != "False");
    let undone = undone(expected, &status.versions);
    let said = |condition: Option<&super::view::Condition>, joint: &str| match condition {
        Some(found) if !found.message.is_empty() => {
            let (r#type, status) = (&found.r#type, &found.status);
            format!("cluster operator {name} is {type}={status}: {}{joint} {}", found.reason, found.message)
        }
        _ => format!(
            "cluster operator {name}: available={is_available}, progressing={is_progressing}, degraded={is_degraded}, \
             undone={}",
            undone.join(", ")
        ),
    };
    if !is_available {
        return not_yet("ClusterOperatorNotAvailable", "not available", said(available, ":"));
    }
    if rules == Health::Installing {
        return Verdict::READY;
    }
    if is_degraded {
        return not_yet("ClusterOperatorDegraded", "degraded", said(degraded, ","));
    }
    if !undone.is_empty() {
        let detail = "is available and not degraded but has not finished updating to target version";
        return not_yet(
            "ClusterOperatorUpdating",
            "updating versions",
            format!("cluster operator {name} {detail}: {}", undone.join(", ")),
        );
    }
    Verdict::READY
}

/// Returns what the operator has not updated yet, sorted.
fn undone(expected: &[OperandVersion], found: &[OperandVersion]) -> Vec<String> {
    let current = |name: &str| found.iter().find(|found| found.name == name).map(|found| found.version.as_str());
    let mut undone = Vec::new();
    for OperandVersion { name, version } in expected {
        match current(name).unwrap_or_default() {
            current if current == version => {}
            "" => undone.push(format!("{name} to {version}")),
            current => undone.push(format!("{name} from {current} to {version}")),
        }
    }
    undone.sort();
    undone
}
