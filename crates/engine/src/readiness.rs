//! Decides from an object's own status whether it is ready.
//!
//! `docs/concepts.md` lists the rules. An object of a kind without its own rule is ready if its `Ready` or `Available`
//! condition is true, or if it has neither.

mod health;
mod verdict;
mod view;
mod workloads;

use billhook_objects::{GroupKind, wellknown};

pub use health::health;
pub use verdict::{Readiness, Verdict};
pub(crate) use view::Metadata;
use view::{Condition, ObjectStatus};
pub use view::{OperandVersion, View};

/// Returns whether an object is ready, or is annotated so that nothing waits for it.
pub fn readiness(kind: &GroupKind, object: &View) -> Readiness {
    let status = &object.status;
    // Instances of a CRD can only be created once it is Established.
    if object.skips_health_check() && *kind != wellknown::crd() {
        return Readiness::Ready;
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment") => workloads::deployment(object),
        ("apps", "StatefulSet") => workloads::stateful_set(object),
        ("apps", "DaemonSet") => workloads::daemon_set(object),
        ("apps", "ReplicaSet") | ("", "ReplicationController") => workloads::replica_set(object),
        ("", "Pod") => match status.phase.as_deref() {
            Some("Succeeded") => Readiness::Ready,
            Some("Failed") => Readiness::Failed("the pod failed".into()),
            _ => by_condition(status, "Ready"),
        },
        ("batch", "Job") => match (status.condition("Complete"), status.condition("Failed")) {
            (Some(condition), _) if condition.is_true() => Readiness::Ready,
            (_, Some(condition)) if condition.is_true() => Readiness::Failed(condition.explain("the job failed")),
            _ if object.spec.suspend == Some(true) => Readiness::Ready,
            _ => Readiness::NotYet("the job is not complete".into()),
        },
        ("", "PersistentVolumeClaim") => phase(status, "Bound"),
        ("", "Namespace") => phase(status, "Active"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => match status.condition("NamesAccepted") {
            Some(condition) if condition.status == "False" => {
                Readiness::Failed(condition.explain("another CRD uses its names"))
            }
            _ => by_condition(status, "Established"),
        },
        ("apiregistration.k8s.io", "APIService") => by_condition(status, "Available"),
        _ => {
            let Some(condition) = status.condition("Ready").or_else(|| status.condition("Available")) else {
                return Readiness::Ready;
            };
            if object.is_stale() && status.observed_generation.is_some() {
                Readiness::not_observed()
            } else {
                by(condition)
            }
        }
    }
}

fn phase(status: &ObjectStatus, wanted: &str) -> Readiness {
    match status.phase.as_deref() {
        Some(phase) if phase == wanted => Readiness::Ready,
        Some("Lost") => Readiness::Failed("phase Lost".into()),
        phase => Readiness::NotYet(format!("phase {}", phase.unwrap_or("not set"))),
    }
}

fn by_condition(status: &ObjectStatus, r#type: &str) -> Readiness {
    match status.condition(r#type) {
        Some(condition) => by(condition),
        None => Readiness::NotYet(format!("no condition {type} yet")),
    }
}

fn by(condition: &Condition) -> Readiness {
    if condition.is_true() {
        Readiness::Ready
    } else {
        Readiness::NotYet(condition.explain(&format!("{} is {}", condition.r#type, condition.status)))
    }
}

#[cfg(test)]
mod health_tests;
#[cfg(test)]
mod tests;
