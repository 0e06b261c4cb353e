use billhook_objects::{GroupKind, ObjectKey};
use billhook_plan::{AppliedVersion, VersionState};
use serde_json::{Value, json};

use super::*;
use crate::{read::File, settings::Settings};

const MANAGER: &str = "billhook/ns/payload";
const NOW: &str = "2026-11-23T10:00:00Z";
const BEFORE: &str = "2026-11-22T10:00:00Z";

/// Returns a history such as `4.21.0 partial, 4.20.0`, newest first.
fn history(text: &str) -> Vec<AppliedVersion> {
    let entry = |entry: &str| {
        let (version, state) = match entry.strip_suffix(" partial") {
            Some(version) => (version, VersionState::Partial),
            None => (entry, VersionState::Completed),
        };
        let completion_time = (state == VersionState::Completed).then(|| BEFORE.to_owned());
        AppliedVersion { version: version.to_owned(), state, started_time: BEFORE.to_owned(), completion_time }
    };
    text.split(", ").filter(|text| !text.is_empty()).map(entry).collect()
}

fn facts(history: &[AppliedVersion], state: State) -> Facts<'_> {
    Facts {
        version: history.first().map_or("", |last| &last.version),
        history,
        state,
        failures: &[],
        progress: None,
        awaited: &[],
        deleting: Some(&[]),
        has_overrides: false,
        fingerprint: "f",
    }
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("ns"), name)
}

/// Returns the conditions as `Type=Status reason: message`.
fn lines(facts: &Facts<'_>) -> Vec<String> {
    let line = |of: Condition| {
        let reason = if of.reason.is_empty() { String::new() } else { format!(" {}", of.reason) };
        let message = if of.message.is_empty() { String::new() } else { format!(": {}", of.message) };
        format!("{}={}{reason}{message}", of.kind, of.status)
    };
    facts.conditions().into_iter().map(line).collect()
}

/// Asserts the conditions for a history, which ends with the version of the pass.
fn check(of: &str, state: State, change: impl Fn(&mut Facts<'_>), expected: [&str; 3]) {
    let history = history(of);
    let mut facts = facts(&history, state);
    change(&mut facts);
    assert_eq!(lines(&facts), expected, "{of} {state:?}");
}

#[test]
fn a_pass_that_starts_works_towards_its_version() {
    let start = |_: &mut Facts<'_>| {};
    check(
        "4.20.0 partial",
        State::Initializing,
        start,
        ["Available=False", "Failing=False", "Progressing=True: Working towards 4.20.0"],
    );
    check(
        "4.20.1 partial, 4.20.0",
        State::Updating,
        start,
        ["Available=True: Done applying 4.20.0", "Failing=False", "Progressing=True: Working towards 4.20.1"],
    );
    check(
        "4.20.1 partial, 4.20.0 partial",
        State::Initializing,
        start,
        ["Available=False", "Failing=False", "Progressing=True: Working towards 4.20.1"],
    );
}

#[test]
fn a_pass_over_a_completed_version_says_the_same_when_it_starts_and_ends() {
    let done =
        ["Available=True: Done applying 4.20.1", "Failing=False", "Progressing=False: Cluster version is 4.20.1"];
    for state in [State::Initializing, State::Updating, State::Reconciling] {
        check("4.20.1, 4.20.0", state, |_| {}, done);
    }
}

#[test]
fn the_last_completed_version_is_reconciled_after_another_one_was_tried() {
    check(
        "4.20.0 partial, 4.20.1 partial, 4.20.0",
        State::Reconciling,
        |_| {},
        ["Available=True: Done applying 4.20.0", "Failing=False", "Progressing=False: Cluster version is 4.20.0"],
    );
}

#[test]
fn a_pass_that_ended_early_tells_how_far_it_came() {
    for (done, total, expected) in [
        (0, 78, "Progressing=True: Working towards 4.20.1"),
        (30, 78, "Progressing=True: Working towards 4.20.1: 30 of 78 done (38% complete)"),
        (77, 78, "Progressing=True: Working towards 4.20.1: 77 of 78 done (98% complete)"),
        (0, 0, "Progressing=True: Working towards 4.20.1"),
    ] {
        check(
            "4.20.1 partial, 4.20.0",
            State::Updating,
            |facts| facts.progress = Some(Progress { done, total }),
            ["Available=True: Done applying 4.20.0", "Failing=False", expected],
        );
    }
    check(
        "4.20.0",
        State::Reconciling,
        |facts| facts.progress = Some(Progress { done: 1, total: 2 }),
        ["Available=True: Done applying 4.20.0", "Failing=False", "Progressing=False: Cluster version is 4.20.0"],
    );
}

#[test]
fn a_failure_is_the_reason_of_two_conditions() {
    let one = [TaskError::new("Could not update configmap \"ns/a\" (1 of 2): no")];
    let failing = "Failing=True UpdatePayloadFailed: Could not update configmap \"ns/a\" (1 of 2): no";
    for (of, state, available, progressing) in [
        (
            "4.20.0 partial",
            State::Initializing,
            "Available=False",
            "Progressing=True UpdatePayloadFailed: Unable to apply 4.20.0: the update could not be applied",
        ),
        (
            "4.20.1 partial, 4.20.0",
            State::Updating,
            "Available=True: Done applying 4.20.0",
            "Progressing=True UpdatePayloadFailed: Unable to apply 4.20.1: the update could not be applied",
        ),
        (
            "4.20.0",
            State::Reconciling,
            "Available=True: Done applying 4.20.0",
            "Progressing=False UpdatePayloadFailed: Error while reconciling 4.20.0: the update could not be applied",
        ),
    ] {
        let history = history(of);
        // A failure is more important than the progress.
        for progress in [None, Some(Progress { done: 1, total: 2 })] {
            let facts = Facts { failures: &one, progress, ..facts(&history, state) };
            assert_eq!(lines(&facts), [available, failing, progressing]);
        }
    }
}

#[test]
fn an_object_that_is_not_healthy_has_a_reason_of_its_own() {
    let history = history("4.20.1 partial, 4.20.0");
    for (reason, name, summary) in [
        ("WorkloadNotAvailable", "ns/a", "the workload ns/a has not yet successfully rolled out"),
        ("WorkloadNotProgressing", "ns/a", "the workload ns/a cannot roll out"),
        ("ClusterOperatorNotAvailable", "dns", "the cluster operator dns is not available"),
        ("ClusterOperatorDegraded", "dns", "the cluster operator dns is degraded"),
        ("ClusterOperatorNoVersions", "dns", "the cluster operator dns does not declare expected versions"),
        ("UpgradePreconditionCheckFailed", "", "it may not be safe to apply this update"),
        ("Other", "dns", "dns has an unknown error: Other"),
    ] {
        let one = [TaskError { reason: reason.to_owned(), name: name.to_owned(), ..TaskError::new("m") }];
        let facts = Facts { failures: &one, ..facts(&history, State::Updating) };
        let progressing = format!("Progressing=True {reason}: Unable to apply 4.20.1: {summary}");
        assert_eq!(lines(&facts)[1..], [format!("Failing=True {reason}: m"), progressing]);
    }
}

/// An error with a reason of its own.
fn error(reason: &str, name: &str, message: &str) -> TaskError {
    TaskError { reason: reason.to_owned(), name: name.to_owned(), ..TaskError::new(message) }
}

#[test]
fn several_failures_are_listed_once_and_sorted() {
    let several = ["b", "a", "b"].map(TaskError::new);
    let history = history("4.20.1 partial, 4.20.0");
    let facts = Facts { failures: &several, ..facts(&history, State::Updating) };
    assert_eq!(
        lines(&facts)[1..],
        [
            "Failing=True MultipleErrors: Multiple errors are preventing progress:\n* a\n* b",
            "Progressing=True MultipleErrors: Unable to apply 4.20.1: an unknown error has occurred: MultipleErrors",
        ]
    );
}

#[test]
fn operators_with_the_same_reason_are_one_failure() {
    let history = history("4.20.1 partial, 4.20.0");
    let operators = |reason: &str| ["dns", "console"].map(|name| error(reason, name, "m"));
    for (reason, plural, message, summary) in [
        (
            "ClusterOperatorNotAvailable",
            "ClusterOperatorsNotAvailable",
            "Cluster operators console, dns are not available",
            "some cluster operators are not available",
        ),
        (
            "ClusterOperatorDegraded",
            "ClusterOperatorsDegraded",
            "Cluster operators console, dns are degraded",
            "console, dns has an unknown error: ClusterOperatorsDegraded",
        ),
        (
            "ClusterOperatorNoVersions",
            "ClusterOperatorsNoVersions",
            "Cluster operators console, dns do not declare expected versions",
            "console, dns has an unknown error: ClusterOperatorsNoVersions",
        ),
    ] {
        let failures = operators(reason);
        let facts = Facts { failures: &failures, ..facts(&history, State::Updating) };
        let progressing = format!("Progressing=True {plural}: Unable to apply 4.20.1: {summary}");
        assert_eq!(lines(&facts)[1..], [format!("Failing=True {plural}: {message}"), progressing]);
    }
    let mut failures = operators("ClusterOperatorNotAvailable").to_vec();
    failures.push(error("WorkloadNotAvailable", "ns/a", "deployment ns/a"));
    let facts = Facts { failures: &failures, ..facts(&history, State::Updating) };
    assert_eq!(
        lines(&facts)[1],
        "Failing=True MultipleErrors: Multiple errors are preventing progress:\n\
         * Cluster operators console, dns are not available\n* deployment ns/a"
    );
}

#[test]
fn an_operator_that_is_updating_is_waited_for() {
    let updating = |name: &str| error("ClusterOperatorUpdating", name, "Cluster operator is updating versions");
    let one = [updating("dns")];
    let several = [updating("dns"), updating("console")];
    let job = [ObjectKey::new(GroupKind::new("batch", "Job"), Some("ns"), "migrate")];
    let progress = Some(Progress { done: 30, total: 78 });
    let history_before = history("4.20.1 partial, 4.20.0");
    let start = facts(&history_before, State::Updating);
    let cut = Facts { progress, ..start };
    for (facts, progressing) in [
        (
            Facts { failures: &one, ..cut },
            "ClusterOperatorUpdating: Working towards 4.20.1: 30 of 78 done (38% complete), waiting on dns",
        ),
        (Facts { failures: &one, ..start }, "ClusterOperatorUpdating: Working towards 4.20.1: waiting on dns"),
        (
            Facts { failures: &several, ..cut },
            "ClusterOperatorsUpdating: Working towards 4.20.1: 30 of 78 done (38% complete), waiting on console, dns",
        ),
        (
            Facts { failures: &one, awaited: &job, ..cut },
            "ClusterOperatorUpdating: Working towards 4.20.1: 30 of 78 done (38% complete), waiting on dns, job \"ns/migrate\"",
        ),
    ] {
        assert_eq!(lines(&facts)[1..], ["Failing=False".to_owned(), format!("Progressing=True {progressing}")]);
    }
    let facts_of_job = Facts { awaited: &job, ..cut };
    assert_eq!(
        lines(&facts_of_job)[1..],
        [
            "Failing=False",
            "Progressing=True: Working towards 4.20.1: 30 of 78 done (38% complete), waiting on job \"ns/migrate\""
        ]
    );
    // It is one of several errors if something else has failed, and it has failed if nothing is to be updated.
    let mixed = [updating("dns"), TaskError::new("no")];
    assert_eq!(
        lines(&Facts { failures: &mixed, ..cut })[1..],
        [
            "Failing=True UpdatePayloadFailed: no",
            "Progressing=True MultipleErrors: Unable to apply 4.20.1: an unknown error has occurred: MultipleErrors",
        ]
    );
    let completed = history("4.20.1");
    assert_eq!(
        lines(&Facts { failures: &one, ..facts(&completed, State::Reconciling) })[1..],
        [
            "Failing=True ClusterOperatorUpdating: Cluster operator is updating versions",
            "Progressing=False ClusterOperatorUpdating: Error while reconciling 4.20.1: waiting on dns",
        ]
    );
}

#[test]
fn a_version_that_was_not_started_is_not_in_the_history() {
    let refused = [error(CHECK_FAILED, "", "no")];
    for (of, available) in [("4.20.0", "Available=True: Done applying 4.20.0"), ("", "Available=False")] {
        let history = history(of);
        let facts = Facts { version: "4.22.0", failures: &refused, ..facts(&history, State::Updating) };
        assert_eq!(
            lines(&facts),
            [
                available,
                "Failing=True UpgradePreconditionCheckFailed: no",
                "Progressing=True UpgradePreconditionCheckFailed: Unable to apply 4.22.0: it may not be safe to apply this \
                 update",
            ]
        );
        let patch = Live::read(&object(Value::Null, &[]), MANAGER).patch(&facts, NOW).unwrap();
        assert_eq!(patch["status"]["desired"]["version"], "4.22.0");
        assert_eq!(patch["status"]["history"].as_array().unwrap().len(), history.len());
    }
}

#[test]
fn upgradeable_is_false_or_absent() {
    let history = history("4.20.1");
    let reason = |deleting: &[ObjectKey], has_overrides: bool| {
        let facts = Facts { deleting: Some(deleting), has_overrides, ..facts(&history, State::Updating) };
        let found = facts.conditions().into_iter().find(|of| of.kind == "Upgradeable");
        found.map(|of| (of.status, of.reason, of.message))
    };
    assert_eq!(reason(&[], false), None);
    let (status, found, message) = reason(&[key("b"), key("a")], false).unwrap();
    assert_eq!((status, found.as_str()), ("False", "ResourceDeletionInProgress"));
    assert!(message.ends_with("; resources=configmap \"ns/a\",configmap \"ns/b\""), "{message}");
    assert_eq!(reason(&[], true).unwrap().1, "ClusterVersionOverridesSet");
    assert_eq!(reason(&[key("a")], true).unwrap().1, "MultipleReasons");
}

/// A `ClusterVersion` with this status, in which the field manager owns conditions of these types.
fn object(status: Value, owned: &[&str]) -> Value {
    let conditions: serde_json::Map<_, _> =
        owned.iter().map(|of| (format!("k:{{\"type\":\"{of}\"}}"), json!({".": {}}))).collect();
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {
            "name": "version", "uid": "u", "generation": 3, "resourceVersion": "9",
            "managedFields": [
                {"manager": "other", "operation": "Apply", "subresource": "status",
                 "fieldsV1": {"f:status": {"f:conditions": {"k:{\"type\":\"RetrievedUpdates\"}": {}}}}},
                {"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:metadata": {}}},
                {"manager": MANAGER, "operation": "Apply", "subresource": "status",
                 "fieldsV1": {"f:status": {"f:conditions": conditions}}},
            ],
        },
        "spec": {"clusterID": "c"},
        "status": status,
    })
}

fn times(patch: &Value) -> Vec<(&str, &str)> {
    let conditions = patch["status"]["conditions"].as_array().unwrap().iter();
    conditions.map(|of| (of["type"].as_str().unwrap(), of["lastTransitionTime"].as_str().unwrap())).collect()
}

#[test]
fn everything_that_the_kind_requires_is_published() {
    let history = history("4.20.1 partial, 4.20.0");
    let live = Live::read(&object(Value::Null, &[]), MANAGER);
    let patch = live.patch(&facts(&history, State::Updating), NOW).unwrap();
    assert_eq!(
        patch,
        json!({
            "apiVersion": "config.openshift.io/v1",
            "kind": "ClusterVersion",
            "metadata": {"name": "version", "resourceVersion": "9"},
            "status": {
                "availableUpdates": null,
                "conditions": [
                    {"type": "Available", "status": "True", "message": "Done applying 4.20.0", "lastTransitionTime": NOW},
                    {"type": "Failing", "status": "False", "lastTransitionTime": NOW},
                    {"type": "Progressing", "status": "True", "message": "Working towards 4.20.1",
                     "lastTransitionTime": NOW},
                ],
                "desired": {"version": "4.20.1", "image": ""},
                "history": [
                    {"state": "Partial", "startedTime": BEFORE, "completionTime": null, "version": "4.20.1", "image": "",
                     "verified": false},
                    {"state": "Completed", "startedTime": BEFORE, "completionTime": BEFORE, "version": "4.20.0",
                     "image": "", "verified": false},
                ],
                "observedGeneration": 3,
                "versionHash": "f",
            },
        })
    );
}

/// Publishes facts, and returns the live object after that.
fn published(facts: &Facts<'_>) -> Live {
    let mut live = Live::read(&object(Value::Null, &[]), MANAGER);
    let patch = live.patch(facts, BEFORE).unwrap();
    live.patched(&patch, "10".to_owned());
    live
}

#[test]
fn a_status_with_fields_of_other_managers_is_shared() {
    let mut object = object(Value::Null, &["Available"]);
    assert!(Live::read(&object, MANAGER).is_shared());
    let entries = object["metadata"]["managedFields"].as_array_mut().unwrap();
    entries.remove(0);
    assert!(!Live::read(&object, MANAGER).is_shared());
    assert!(Live::read(&object, "billhook/ns/other").is_shared());
}

#[test]
fn a_patch_is_for_the_version_that_was_read_or_last_written() {
    let history = history("4.20.1 partial, 4.20.0");
    let start = facts(&history, State::Updating);
    let live = published(&start);
    let patch = live.patch(&Facts { has_overrides: true, ..start }, NOW).unwrap();
    assert_eq!(patch["metadata"], json!({"name": "version", "resourceVersion": "10"}));
}

#[test]
fn nothing_is_written_if_nothing_changed() {
    let history = history("4.20.0");
    let deleting = [key("a")];
    let facts = Facts { deleting: Some(&deleting), ..facts(&history, State::Updating) };
    let live = published(&facts);
    assert_eq!(live.patch(&facts, NOW), None);
    // As another process reads it, with fields and conditions of other managers.
    let mut status = live.status;
    status["conditions"].as_array_mut().unwrap().insert(0, json!({"type": "RetrievedUpdates", "status": "False"}));
    status["desired"]["channels"] = json!(["stable"]);
    status["capabilities"] = json!({});
    status["availableUpdates"] = json!([{"version": "4.20.1"}]);
    let live = Live::read(&object(status, &["Available", "Upgradeable"]), MANAGER);
    assert_eq!(live.patch(&facts, NOW), None);
}

#[test]
fn every_change_is_written() {
    let history_before = history("4.20.0");
    let live = published(&facts(&history_before, State::Reconciling));
    let check = |name: &str, live: &Live, facts: &Facts<'_>| assert!(live.patch(facts, NOW).is_some(), "{name}");
    let same = facts(&history_before, State::Reconciling);
    check("history", &live, &facts(&history("4.20.1, 4.20.0"), State::Reconciling));
    check("fingerprint", &live, &Facts { fingerprint: "g", ..same });
    check("overrides", &live, &Facts { has_overrides: true, ..same });
    check("failures", &live, &Facts { failures: &[TaskError::new("a")], ..same });
    let mut newer = live.clone();
    newer.generation = json!(4);
    check("generation", &newer, &same);
    for field in ["availableUpdates", "conditions", "desired", "history", "observedGeneration", "versionHash"] {
        let mut changed = live.clone();
        changed.status.as_object_mut().unwrap().remove(field);
        check(field, &changed, &same);
    }
}

#[test]
fn the_time_of_a_transition_changes_with_the_status_only() {
    let history = history("4.20.1 partial, 4.20.0");
    let start = facts(&history, State::Updating);
    let live = published(&start);
    let failures = [TaskError::new("a")];
    let patch = live.patch(&Facts { failures: &failures, ..start }, NOW).unwrap();
    // Progressing keeps its status, with another message.
    assert_eq!(times(&patch), [("Available", BEFORE), ("Failing", NOW), ("Progressing", BEFORE)]);
}

#[test]
fn upgradeable_is_removed_if_it_is_ours() {
    let history = history("4.20.0");
    let same = facts(&history, State::Reconciling);
    let deleting = [key("a")];
    let mut live = published(&Facts { deleting: Some(&deleting), ..same });
    let unknown = live.patch(&Facts { deleting: None, failures: &[TaskError::new("a")], ..same }, NOW).unwrap();
    let kept = unknown["status"]["conditions"].as_array().unwrap().last().unwrap();
    assert_eq!((kept["type"].as_str(), kept["lastTransitionTime"].as_str()), (Some("Upgradeable"), Some(BEFORE)));
    let patch = live.patch(&same, NOW).unwrap();
    assert_eq!(
        times(&patch).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>(),
        ["Available", "Failing", "Progressing"]
    );
    live.patched(&patch, "10".to_owned());
    assert_eq!(live.patch(&same, NOW), None);
    assert!(!live.status.to_string().contains("Upgradeable"));
    // The condition of another manager remains.
    let mut status = live.status;
    status["conditions"].as_array_mut().unwrap().push(json!({"type": "Upgradeable", "status": "False"}));
    let of_others = Live::read(&object(status.clone(), &["Available"]), MANAGER);
    assert_eq!(of_others.patch(&same, NOW), None);
    let ours = Live::read(&object(status.clone(), &["Available", "Upgradeable"]), MANAGER);
    assert!(ours.patch(&same, NOW).is_some());
    let of_another_release = Live::read(&object(status, &["Upgradeable"]), "billhook/ns/other");
    assert_eq!(of_another_release.patch(&same, NOW), None);
}

#[test]
fn upgradeable_is_removed_if_the_list_of_conditions_is_one_value() {
    let history = history("4.20.0");
    let same = facts(&history, State::Reconciling);
    let status = published(&Facts { deleting: Some(&[key("a")]), ..same }).status;
    // Without conditions of its own, the field manager owns the list as a whole.
    let mut cluster_version = object(status, &[]);
    cluster_version["metadata"]["managedFields"].as_array_mut().unwrap().remove(0);
    let mut live = Live::read(&cluster_version, MANAGER);
    let patch = live.patch(&same, NOW).unwrap();
    assert!(!patch.to_string().contains("Upgradeable"));
    live.patched(&patch, "10".to_owned());
    assert_eq!(live.patch(&same, NOW), None);
    cluster_version["status"] = live.status;
    assert_eq!(Live::read(&cluster_version, MANAGER).patch(&same, NOW), None);
}

#[test]
fn the_updates_of_another_manager_remain() {
    let history = history("4.20.0");
    let same = facts(&history, State::Reconciling);
    let updates = |found: Value| {
        let live = Live::read(&object(json!({"availableUpdates": found}), &[]), MANAGER);
        live.patch(&same, NOW).unwrap()["status"].get("availableUpdates").cloned()
    };
    assert_eq!(updates(Value::Null), Some(Value::Null));
    assert_eq!(updates(json!([])), None);
    assert_eq!(updates(json!([{"version": "4.20.1", "image": "i"}])), None);
}

#[test]
fn the_fingerprint_is_that_of_the_manifests_that_count() {
    let manifest = |name: &str, value: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, annotations: \
             {{include.release.openshift.io/self-managed-high-availability: \"true\"}}}}, data: {{v: {value}}}}}\n"
        )
    };
    let of = |texts: &[(&str, String)]| {
        let files: Vec<_> = texts.iter().map(|(path, text)| File { path, text }).collect();
        let (payload, problems) = Payload::read(&files);
        assert_eq!(problems, []);
        fingerprint(&payload, &Decisions::new(&payload, &Settings::default()))
    };
    let (a, b) = (manifest("a", "x"), manifest("b", "x"));
    let left_out = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}".to_owned();
    let found = of(&[("1.yaml", a.clone()), ("2.yaml", b.clone())]);
    assert_eq!(found.len(), 64);
    assert_eq!(found, of(&[("3.yaml", left_out), ("2.yaml", b.clone()), ("1.yaml", a.clone())]));
    assert_ne!(found, of(&[("1.yaml", a.clone())]));
    assert_ne!(found, of(&[("1.yaml", a), ("2.yaml", manifest("b", "y"))]));
    assert_ne!(found, of(&[("1.yaml", b), ("2.yaml", manifest("a", "x"))]));
}
