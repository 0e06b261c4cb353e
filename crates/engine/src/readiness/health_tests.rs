//! The health of each kind, by its status, with the words of the reference.

use billhook_plan::Health;
use serde_json::{Value, json};

use super::*;

/// Checks the verdict on a Deployment with these conditions, each `TYPE=STATUS REASON MESSAGE`.
#[track_caller]
fn check_deployment(conditions: &[&str], expected: &str) {
    let condition = |text: &&str| {
        let (r#type, rest) = text.split_once('=').unwrap();
        let [status, reason, message] = rest.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{text}") };
        json!({"type": r#type, "status": status, "reason": reason, "message": message})
    };
    let conditions: Vec<_> = conditions.iter().map(condition).collect();
    let object = json!({"metadata": {"name": "op", "namespace": "ns"}, "status": {"conditions": conditions}});
    assert_eq!(verdict("apps", "Deployment", &object, Health::Installed, &[]), expected);
    assert_eq!(verdict("apps", "Deployment", &object, Health::Installing, &[]), "ready");
}

fn verdict(group: &str, kind: &str, object: &Value, rules: Health, expected: &[(&str, &str)]) -> String {
    let view: View = serde_json::from_value(object.clone()).unwrap();
    let expected = expected
        .iter()
        .map(|(name, version)| OperandVersion { name: (*name).to_owned(), version: (*version).to_owned() });
    let Verdict { readiness, code, detail } =
        health(&GroupKind::new(group, kind), &view, rules, &expected.collect::<Vec<_>>());
    let text = match readiness {
        Readiness::Ready => "ready".to_owned(),
        Readiness::NotYet(reason) => format!("not yet: {reason}"),
        Readiness::Failed(reason) => format!("failed: {reason}"),
    };
    let code = code.map(|code| format!(" [{code}]")).unwrap_or_default();
    format!("{text}{code}{}", detail.map(|detail| format!(" ({detail})")).unwrap_or_default())
}

/// `checkDeploymentHealth` of `lib/resourcebuilder/apps.go`.
#[test]
fn a_deployment_is_unhealthy_if_it_cannot_roll_out() {
    check_deployment(&[], "ready");
    check_deployment(&["Available=True a b", "Progressing=True c d"], "ready");
    // It is rolled out slowly, or for the first time.
    check_deployment(&["Available=False MinimumReplicasUnavailable few", "Progressing=True c d"], "ready");
    check_deployment(&["Available=False MinimumReplicasUnavailable few"], "ready");
    check_deployment(&["Available=True a b", "Progressing=False Paused d"], "ready");
    check_deployment(&["Available=Unknown a b", "Progressing=False c d"], "ready");
    check_deployment(&["ReplicaFailure=False a b"], "ready");
    let quota = "ReplicaFailure=True FailedCreate exceeded quota";
    let failure =
        "failed: deployment ns/op has a replica failure FailedCreate: exceeded quota [WorkloadNotProgressing]";
    check_deployment(&[quota], failure);
    check_deployment(&["Available=False a b", "Progressing=False c d", quota], failure);
    check_deployment(
        &["Available=False MinimumReplicasUnavailable has few", "Progressing=False ProgressDeadlineExceeded too slow"],
        "failed: deployment ns/op is not available MinimumReplicasUnavailable (has few) or progressing \
         ProgressDeadlineExceeded (too slow) [WorkloadNotAvailable]",
    );
    check_deployment(
        &["Available=True a b", "Progressing=False ProgressDeadlineExceeded too slow"],
        "failed: deployment ns/op is Progressing=False: ProgressDeadlineExceeded: too slow [WorkloadNotProgressing]",
    );
}

#[test]
fn a_workload_that_is_being_deleted_is_unhealthy() {
    let object = json!({"metadata": {"name": "op", "namespace": "ns", "deletionTimestamp": "2026-11-22T10:00:00Z"}});
    for (kind, name) in [("Deployment", "deployment"), ("DaemonSet", "daemonset")] {
        let expected = format!("failed: {name} ns/op is being deleted");
        assert_eq!(verdict("apps", kind, &object, Health::Installed, &[]), expected);
        assert_eq!(verdict("apps", kind, &object, Health::Installing, &[]), "ready");
    }
    let daemons = json!({"metadata": {"name": "op", "namespace": "ns"}, "status": {"desiredNumberScheduled": 3}});
    assert_eq!(verdict("apps", "DaemonSet", &daemons, Health::Installed, &[]), "ready");
}

/// `checkJobHealth` of `lib/resourcebuilder/batch.go`, but a Job that may still succeed is awaited.
#[test]
fn a_job_is_unhealthy_if_it_failed() {
    let check = |status: Value, expected: &str| {
        let object = json!({"metadata": {"name": "j", "namespace": "ns"}, "status": status});
        assert_eq!(verdict("batch", "Job", &object, Health::Installed, &[]), expected);
    };
    let suspended = json!({"metadata": {"name": "j", "namespace": "ns"}, "spec": {"suspend": true}});
    assert_eq!(verdict("batch", "Job", &suspended, Health::Installed, &[]), "not yet: the job is suspended");
    let failed =
        |reason: &str| json!([{"type": "Failed", "status": "True", "reason": reason, "message": "it \"broke\""}]);
    check(json!({"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1}), "ready");
    check(json!({"failed": 1}), "not yet: the job is not complete");
    check(json!({}), "not yet: the job is not complete");
    let text = |reason: &str| format!("failed: deadline exceeded, reason: \"{reason}\", message: \"it \\\"broke\\\"\"");
    check(json!({"failed": 2, "conditions": failed("BackoffLimitExceeded")}), &text("BackoffLimitExceeded"));
    check(json!({"conditions": failed("DeadlineExceeded")}), &text("DeadlineExceeded"));
    // The reference ignores this one, but nothing that follows it may start.
    check(json!({"conditions": failed("Other")}), "failed: the job failed: Other: it \"broke\"");
}

/// `checkCustomResourceDefinitionHealth` of `lib/resourcebuilder/apiext.go`.
#[test]
fn a_definition_is_awaited_until_it_is_established() {
    let check = |conditions: Value, expected: &str| {
        // Its instances cannot be created earlier, whatever the annotation says.
        for annotations in [json!({}), json!({"resources.gardener.cloud/skip-health-check": "true"})] {
            let metadata = json!({"name": "as.example", "annotations": annotations});
            let object = json!({"metadata": metadata, "status": {"conditions": conditions}});
            let found = verdict("apiextensions.k8s.io", "CustomResourceDefinition", &object, Health::Installed, &[]);
            assert_eq!(found, expected);
        }
    };
    let none = "not yet: CustomResourceDefinition as.example does not declare an Established status condition: []";
    check(json!([]), none);
    check(json!([{"type": "Established", "status": "True"}]), "ready");
    check(
        json!([{"type": "Established", "status": "False", "reason": "Installing", "message": "soon"}]),
        "not yet: CustomResourceDefinition as.example Established=False, Installing: soon",
    );
    check(
        json!([{"type": "NamesAccepted", "status": "False", "reason": "ListKindConflict"}]),
        "failed: another CRD uses its names: ListKindConflict",
    );
}

/// Checks the verdicts on a ClusterOperator that is to have the version 2, while updating and while installing.
#[track_caller]
fn check_operator(conditions: &[(&str, &str)], version: &str, updating: &str, installing: &str) {
    let condition = |(r#type, status): &(&str, &str)| {
        let (status, message) = status.split_once(' ').unwrap_or((status, ""));
        json!({"type": r#type, "status": status, "reason": "Why", "message": message})
    };
    let conditions: Vec<_> = conditions.iter().map(condition).collect();
    let versions = json!([{"name": "operator", "version": version}, {"name": "other", "version": "9"}]);
    let object = json!({"metadata": {"name": "co"}, "status": {"conditions": conditions, "versions": versions}});
    let judged = |rules| verdict("config.openshift.io", "ClusterOperator", &object, rules, &[("operator", "2")]);
    assert_eq!((judged(Health::Installed).as_str(), judged(Health::Installing).as_str()), (updating, installing));
}

/// `checkOperatorHealth` of `pkg/cvo/internal/operatorstatus.go`.
#[test]
fn an_operator_is_healthy_if_it_says_so_for_the_wanted_versions() {
    let well = [("Available", "True"), ("Progressing", "False"), ("Degraded", "False")];
    check_operator(&well, "2", "ready", "ready");
    let updating = "not yet: Cluster operator co is updating versions [ClusterOperatorUpdating] (cluster operator co is \
                    available and not degraded but has not finished updating to target version: operator from 1 to 2)";
    check_operator(&well, "1", updating, "ready");
    let degraded = [("Available", "True"), ("Degraded", "True it broke")];
    let expected = "not yet: Cluster operator co is degraded [ClusterOperatorDegraded] (cluster operator co is \
                    Degraded=True: Why, it broke)";
    check_operator(&degraded, "2", expected, "ready");
    let unknown = "not yet: Cluster operator co is degraded [ClusterOperatorDegraded] (cluster operator co: \
                   available=true, progressing=true, degraded=true, undone=operator to 2)";
    check_operator(&[("Available", "True")], "", unknown, "ready");
    let unavailable = "not yet: Cluster operator co is not available [ClusterOperatorNotAvailable] (cluster operator co \
                       is Available=False: Why: no pods)";
    check_operator(&[("Available", "False no pods"), ("Degraded", "False")], "2", unavailable, unavailable);
    let silent = "not yet: Cluster operator co is not available [ClusterOperatorNotAvailable] (cluster operator co: \
                  available=false, progressing=true, degraded=true, undone=)";
    check_operator(&[], "2", silent, silent);
}

#[test]
fn an_operator_without_expected_versions_fails() {
    let object =
        json!({"metadata": {"name": "co"}, "status": {"conditions": [{"type": "Available", "status": "True"}]}});
    let expected = "failed: Cluster operator co does not declare expected versions [ClusterOperatorNoVersions]";
    for rules in [Health::Installing, Health::Installed] {
        assert_eq!(verdict("config.openshift.io", "ClusterOperator", &object, rules, &[]), expected);
    }
}
