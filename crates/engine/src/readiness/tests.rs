//! The readiness of each kind, by its status.

use serde_json::{Value, json};

use super::*;

fn check_result(group: &str, kind: &str, object: Value) -> String {
    let view: View = serde_json::from_value(object).unwrap();
    match readiness(&GroupKind::new(group, kind), &view) {
        Readiness::Ready => "ready".to_owned(),
        Readiness::NotYet(reason) => format!("not yet: {reason}"),
        Readiness::Failed(reason) => format!("failed: {reason}"),
    }
}

fn check(group: &str, kind: &str, object: Value, expected: &str) {
    assert_eq!(check_result(group, kind, object), expected, "{group} {kind}");
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
    let failure =
        json!([{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota"}]);
    let starved = json!({"status": {"conditions": failure}});
    check("apps", "Deployment", starved.clone(), "not yet: 0 of 1 updated: FailedCreate: exceeded quota");
    check("apps", "ReplicaSet", starved, "not yet: 0 of 1 available: FailedCreate: exceeded quota");
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
    // Its instances cannot be created earlier, whatever the annotation says.
    let skipped = json!({"metadata": {"annotations": {"resources.gardener.cloud/skip-health-check": "true"}}});
    check(crd.0, crd.1, skipped.clone(), "not yet: no condition Established yet");
    check("", "Pod", skipped, "ready");
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
        json!({"spec": {"replicas": "many", "updateStrategy": "none"}, "status": {"conditions": "none", "phase": 3}}),
        "ready",
    );
    let old = json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True"}]}});
    check("example.com", "Widget", old, "not yet: its controller has not observed the current generation yet");
}

const STALE: &str = "not yet: its controller has not observed the current generation yet";

/// Checks the rules for a workload: the case, its spec and its status at generation 2, and the expected result.
fn check_rollouts(kind: &str, cases: &[(&str, Value, Value, &str)]) {
    for (case, spec, status, expected) in cases {
        let mut status = status.clone();
        if status["observedGeneration"].is_null() {
            status["observedGeneration"] = 2.into();
        }
        let object = json!({"metadata": {"generation": 2}, "spec": spec, "status": status});
        assert_eq!(check_result("apps", kind, object), *expected, "{kind}: {case}");
    }
}

#[test]
fn deployments_follow_kubectl_rollout_status() {
    let status = |replicas: i64, updated: i64, ready: i64, available: i64| json!({"replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready, "availableReplicas": available});
    let deadline =
        json!({"replicas": 2, "conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}]});
    let failed = "failed: progress deadline exceeded: ProgressDeadlineExceeded";
    let with = |mut object: Value, field: &str, value: Value| {
        object[field] = value;
        object
    };
    let two = || json!({"replicas": 2});
    let paused = || json!({"replicas": 2, "paused": true});
    check_rollouts(
        "Deployment",
        &[
            ("complete", two(), status(2, 2, 2, 2), "ready"),
            ("one replica by default", json!({}), status(1, 1, 1, 1), "ready"),
            ("observedGeneration behind", two(), with(status(2, 2, 2, 2), "observedGeneration", 1.into()), STALE),
            ("observedGeneration ahead", two(), with(status(2, 2, 2, 2), "observedGeneration", 3.into()), "ready"),
            ("some updated", two(), status(3, 1, 3, 3), "not yet: 1 of 2 updated"),
            ("old replicas", two(), status(3, 2, 3, 3), "not yet: old replicas still running: 1"),
            (
                "minReadySeconds not over",
                json!({"replicas": 2, "minReadySeconds": 9}),
                status(2, 2, 2, 1),
                "not yet: 1 of 2 available",
            ),
            (
                "maxUnavailable",
                json!({"replicas": 2, "strategy": {"rollingUpdate": {"maxUnavailable": 1}}}),
                status(2, 2, 1, 1),
                "not yet: 1 of 2 available",
            ),
            ("scaled to 0", json!({"replicas": 0}), status(0, 0, 0, 0), "ready"),
            ("being scaled to 0", json!({"replicas": 0}), status(2, 2, 2, 2), "not yet: old replicas still running: 2"),
            ("deadline exceeded", two(), deadline.clone(), failed),
            ("deadline of the last generation", two(), with(deadline, "observedGeneration", 1.into()), STALE),
            ("paused before the first Pod", paused(), json!({}), "not yet: paused: 0 of 2 updated"),
            ("paused half-way", paused(), status(3, 1, 3, 3), "not yet: paused: 1 of 2 updated"),
            ("paused when complete", paused(), status(2, 2, 2, 2), "ready"),
        ],
    );
}

#[test]
fn stateful_sets_follow_kubectl_rollout_status() {
    let status = |replicas: i64, updated: i64, ready: i64| json!({"replicas": replicas, "updatedReplicas": updated, "readyReplicas": ready});
    let partition = |partition: i64| json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
    let on_delete = || json!({"replicas": 3, "updateStrategy": {"type": "OnDelete"}});
    let max_unavailable =
        json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}});
    check_rollouts(
        "StatefulSet",
        &[
            ("complete", json!({"replicas": 3}), status(3, 3, 3), "ready"),
            (
                "observedGeneration behind",
                partition(0),
                json!({"observedGeneration": 1, "updatedReplicas": 3, "readyReplicas": 3}),
                STALE,
            ),
            ("partition 0, some updated", partition(0), status(3, 2, 3), "not yet: 2 of 3 updated"),
            ("partition 0, all updated", partition(0), status(3, 3, 3), "ready"),
            ("partition 2, none updated", partition(2), status(3, 0, 3), "not yet: 0 of 1 updated"),
            ("partition 2, one updated", partition(2), status(3, 1, 3), "ready"),
            ("partition 2, one not ready", partition(2), status(3, 1, 2), "not yet: 2 of 3 ready"),
            ("partition of all", partition(3), status(3, 0, 3), "ready"),
            ("partition beyond all", partition(9), status(3, 0, 3), "ready"),
            ("OnDelete, none updated", on_delete(), status(3, 0, 3), "ready"),
            ("OnDelete, Pods missing", on_delete(), status(2, 0, 2), "not yet: 2 of 3 ready"),
            (
                "OnDelete, observedGeneration behind",
                on_delete(),
                json!({"observedGeneration": 1, "readyReplicas": 3}),
                STALE,
            ),
            ("maxUnavailable", max_unavailable, status(3, 3, 2), "not yet: 2 of 3 ready"),
            // kubectl counts ready Pods here, not available ones.
            ("minReadySeconds not over", json!({"replicas": 3, "minReadySeconds": 9}), status(3, 3, 3), "ready"),
            ("scaled to 0", json!({"replicas": 0}), status(0, 0, 0), "ready"),
            ("being scaled to 0", json!({"replicas": 0}), status(2, 2, 2), "not yet: old replicas still running: 2"),
        ],
    );
}

#[test]
fn daemon_sets_follow_kubectl_rollout_status() {
    let status = |desired: i64, updated: i64, available: i64| json!({"desiredNumberScheduled": desired, "updatedNumberScheduled": updated, "numberAvailable": available});
    let on_delete = || json!({"updateStrategy": {"type": "OnDelete"}});
    let max_unavailable =
        || json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "50%"}}});
    check_rollouts(
        "DaemonSet",
        &[
            ("complete", json!({}), status(3, 3, 3), "ready"),
            ("observedGeneration behind", json!({}), json!({"observedGeneration": 1}), STALE),
            ("some updated", json!({}), status(3, 1, 3), "not yet: 1 of 3 updated"),
            ("minReadySeconds not over", json!({"minReadySeconds": 9}), status(3, 3, 1), "not yet: 1 of 3 available"),
            ("maxUnavailable, some available", max_unavailable(), status(3, 3, 2), "not yet: 2 of 3 available"),
            ("maxUnavailable, all available", max_unavailable(), status(3, 3, 3), "ready"),
            ("OnDelete, none updated", on_delete(), status(3, 0, 3), "ready"),
            ("OnDelete, some available", on_delete(), status(3, 0, 2), "not yet: 2 of 3 available"),
            ("OnDelete, observedGeneration behind", on_delete(), json!({"observedGeneration": 1}), STALE),
            ("no node matches", json!({}), status(0, 0, 0), "ready"),
        ],
    );
}
