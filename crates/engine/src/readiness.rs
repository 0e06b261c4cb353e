//! Decides from an object's own status whether it is ready.
//!
//! The rules follow the status fields in the API reference of each kind, and `kubectl rollout status`. An object of any
//! other kind is ready if its `Ready` or `Available` condition is true, or if it has neither.

use billhook_objects::GroupKind;
use serde::Deserialize;

/// The fields of an object that readiness depends on; the others are not decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct View {
    /// Identity and generation.
    pub metadata: Metadata,
    /// The spec.
    pub spec: Spec,
    /// The status.
    pub status: ObjectStatus,
}

/// See [`View`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the API's own fields")]
pub struct Metadata {
    pub name: String,
    pub namespace: Option<String>,
    pub generation: Option<i64>,
}

/// See [`View`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the API's own fields")]
pub struct Spec {
    #[serde(deserialize_with = "lenient")]
    pub replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub suspend: Option<bool>,
}

/// See [`View`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the API's own fields")]
pub struct ObjectStatus {
    #[serde(deserialize_with = "lenient")]
    pub observed_generation: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub phase: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub ready_replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub updated_replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub available_replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub desired_number_scheduled: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub updated_number_scheduled: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub number_available: Option<i64>,
    #[serde(deserialize_with = "lenient_list")]
    pub conditions: Vec<Condition>,
}

/// A condition of any kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the API's own fields")]
pub struct Condition {
    pub r#type: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// Reads a field that custom resources may use for something else: a value of another type counts as absent.
fn lenient<'de, D: serde::Deserializer<'de>, T: serde::de::DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(from)?).ok())
}

fn lenient_list<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Condition>, D::Error> {
    Ok(lenient(from)?.unwrap_or_default())
}

/// Whether an object is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It is ready.
    Ready,
    /// It is not ready yet, for this reason.
    NotYet(String),
    /// It will not become ready by itself, for this reason.
    Failed(String),
}

/// Returns whether an object is ready.
pub fn readiness(kind: &GroupKind, object: &View) -> Readiness {
    let status = &object.status;
    let stale = || object.metadata.generation > status.observed_generation;
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment") => {
            if let Some(condition) = status.condition("Progressing")
                && condition.reason == "ProgressDeadlineExceeded"
                && !stale()
            {
                return Readiness::Failed(with_cause("progress deadline exceeded", condition));
            }
            replicas(object, stale(), &[("updated", status.updated_replicas), ("available", status.available_replicas)])
        }
        ("apps", "StatefulSet") => {
            replicas(object, stale(), &[("updated", status.updated_replicas), ("ready", status.ready_replicas)])
        }
        ("apps", "ReplicaSet") | ("", "ReplicationController") => {
            replicas(object, stale(), &[("available", status.available_replicas)])
        }
        ("apps", "DaemonSet") => {
            let Some(desired) = status.desired_number_scheduled.filter(|_| !stale()) else {
                return not_observed();
            };
            counts(desired, &[("updated", status.updated_number_scheduled), ("available", status.number_available)])
        }
        ("", "Pod") => match status.phase.as_deref() {
            Some("Succeeded") => Readiness::Ready,
            Some("Failed") => Readiness::Failed("the pod failed".into()),
            _ => by_condition(status, "Ready"),
        },
        ("batch", "Job") => match (status.condition("Complete"), status.condition("Failed")) {
            (Some(condition), _) if condition.is_true() => Readiness::Ready,
            (_, Some(condition)) if condition.is_true() => Readiness::Failed(with_cause("the job failed", condition)),
            _ if object.spec.suspend == Some(true) => Readiness::Ready,
            _ => Readiness::NotYet("the job is not complete".into()),
        },
        ("", "PersistentVolumeClaim") => phase(status, "Bound"),
        ("", "Namespace") => phase(status, "Active"),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => match status.condition("NamesAccepted") {
            Some(condition) if condition.status == "False" => {
                Readiness::Failed(with_cause("another CRD uses its names", condition))
            }
            _ => by_condition(status, "Established"),
        },
        ("apiregistration.k8s.io", "APIService") => by_condition(status, "Available"),
        _ => {
            let Some(condition) = status.condition("Ready").or_else(|| status.condition("Available")) else {
                return Readiness::Ready;
            };
            if stale() && status.observed_generation.is_some() { not_observed() } else { by(condition) }
        }
    }
}

impl ObjectStatus {
    fn condition(&self, r#type: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.r#type == r#type)
    }
}

impl Condition {
    fn is_true(&self) -> bool {
        self.status == "True"
    }
}

fn not_observed() -> Readiness {
    Readiness::NotYet("its controller has not observed the current generation yet".into())
}

fn replicas(object: &View, stale: bool, have: &[(&str, Option<i64>)]) -> Readiness {
    if stale {
        return not_observed();
    }
    let wanted = object.spec.replicas.unwrap_or(1);
    match counts(wanted, have) {
        // While old replicas are running, the rollout has not finished.
        Readiness::Ready if object.status.replicas.unwrap_or(0) > wanted => {
            Readiness::NotYet(format!("old replicas still running: {}", object.status.replicas.unwrap_or(0) - wanted))
        }
        readiness => readiness,
    }
}

fn counts(wanted: i64, have: &[(&str, Option<i64>)]) -> Readiness {
    match have.iter().find(|(_, count)| count.unwrap_or(0) < wanted) {
        Some((what, count)) => Readiness::NotYet(format!("{} of {wanted} {what}", count.unwrap_or(0))),
        None => Readiness::Ready,
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
        Readiness::NotYet(with_cause(&format!("{} is {}", condition.r#type, condition.status), condition))
    }
}

/// Appends the reason and message of a condition.
fn with_cause(what: &str, condition: &Condition) -> String {
    match (condition.reason.as_str(), condition.message.as_str()) {
        ("", "") => what.to_owned(),
        (reason, "") => format!("{what}: {reason}"),
        ("", message) => format!("{what}: {message}"),
        (reason, message) => format!("{what}: {reason}: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(group: &str, kind: &str, object: Value, expected: &str) {
        let view: View = serde_json::from_value(object).unwrap();
        let found = match readiness(&GroupKind::new(group, kind), &view) {
            Readiness::Ready => "ready".to_owned(),
            Readiness::NotYet(reason) => format!("not yet: {reason}"),
            Readiness::Failed(reason) => format!("failed: {reason}"),
        };
        assert_eq!(found, expected, "{group} {kind}");
    }

    #[test]
    fn workloads_are_ready_by_their_replicas_of_this_generation() {
        let deployment = |generation: i64, updated: i64, available: i64, replicas: i64| {
            json!({"metadata": {"generation": generation}, "spec": {"replicas": 2},
                   "status": {"observedGeneration": 2, "replicas": replicas, "updatedReplicas": updated, "availableReplicas": available}})
        };
        check("apps", "Deployment", deployment(2, 2, 2, 2), "ready");
        check(
            "apps",
            "Deployment",
            deployment(3, 2, 2, 2),
            "not yet: its controller has not observed the current generation yet",
        );
        check("apps", "Deployment", deployment(2, 1, 2, 2), "not yet: 1 of 2 updated");
        check("apps", "Deployment", deployment(2, 2, 0, 2), "not yet: 0 of 2 available");
        check("apps", "Deployment", deployment(2, 2, 2, 3), "not yet: old replicas still running: 1");
        check(
            "apps",
            "Deployment",
            json!({"metadata": {"generation": 1}}),
            "not yet: its controller has not observed the current generation yet",
        );
        let stuck = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "conditions":
            [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "too slow"}]}});
        check("apps", "Deployment", stuck, "failed: progress deadline exceeded: ProgressDeadlineExceeded: too slow");
        let set = json!({"metadata": {"generation": 1}, "spec": {"replicas": 3}, "status": {"observedGeneration": 1, "updatedReplicas": 3, "readyReplicas": 2}});
        check("apps", "StatefulSet", set, "not yet: 2 of 3 ready");
        check("apps", "ReplicaSet", json!({"spec": {"replicas": 0}}), "ready");
        let daemons =
            json!({"metadata": {"generation": 1}, "status": {"observedGeneration": 1, "desiredNumberScheduled": 0}});
        check("apps", "DaemonSet", daemons, "ready");
        check(
            "apps",
            "DaemonSet",
            json!({"metadata": {"generation": 1}}),
            "not yet: its controller has not observed the current generation yet",
        );
    }

    #[test]
    fn pods_jobs_claims_and_namespaces_are_ready_by_phase_and_condition() {
        check("", "Pod", json!({"status": {"phase": "Succeeded"}}), "ready");
        check("", "Pod", json!({"status": {"phase": "Failed"}}), "failed: the pod failed");
        check("", "Pod", json!({"status": {"phase": "Pending"}}), "not yet: no condition Ready yet");
        check(
            "",
            "Pod",
            json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
            "ready",
        );
        check("batch", "Job", json!({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}), "ready");
        check("batch", "Job", json!({"status": {}}), "not yet: the job is not complete");
        check(
            "batch",
            "Job",
            json!({"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}]}}),
            "failed: the job failed: BackoffLimitExceeded",
        );
        check("", "PersistentVolumeClaim", json!({"status": {"phase": "Pending"}}), "not yet: phase Pending");
        check("", "PersistentVolumeClaim", json!({"status": {"phase": "Lost"}}), "failed: phase Lost");
        check("", "Namespace", json!({"status": {"phase": "Active"}}), "ready");
        check("", "ConfigMap", json!({}), "ready");
    }

    #[test]
    fn definitions_and_api_services_are_ready_by_their_own_conditions() {
        let crd = ("apiextensions.k8s.io", "CustomResourceDefinition");
        check(crd.0, crd.1, json!({"status": {"conditions": [{"type": "Established", "status": "True"}]}}), "ready");
        check(crd.0, crd.1, json!({}), "not yet: no condition Established yet");
        check(
            crd.0,
            crd.1,
            json!({"status": {"conditions": [{"type": "NamesAccepted", "status": "False", "reason": "ListKindConflict"}]}}),
            "failed: another CRD uses its names: ListKindConflict",
        );
        check(
            "apiregistration.k8s.io",
            "APIService",
            json!({"status": {"conditions": [{"type": "Available", "status": "False", "reason": "ServiceNotFound", "message": "service is not present"}]}}),
            "not yet: Available is False: ServiceNotFound: service is not present",
        );
    }

    #[test]
    fn other_kinds_are_ready_by_a_condition_where_they_have_one() {
        check("example.com", "Widget", json!({}), "ready");
        check(
            "example.com",
            "Widget",
            json!({"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Starting"}]}}),
            "not yet: Ready is False: Starting",
        );
        check(
            "example.com",
            "Widget",
            json!({"status": {"conditions": [{"type": "Available", "status": "True"}]}}),
            "ready",
        );
        check(
            "example.com",
            "Widget",
            json!({"spec": {"replicas": "many"}, "status": {"conditions": "none", "phase": 3}}),
            "ready",
        );
        let old = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}});
        check("example.com", "Widget", old, "not yet: its controller has not observed the current generation yet");
    }
}
