use std::{cell::RefCell, collections::BTreeMap};

use billhook_policy::{LabelledKind, Operator::Equals};
use serde_json::json;
use tokio::time::sleep;

use super::{
    lab::{Lab, assert_send, config, reference, requirement, widget, widgets},
    *,
};

/// Returns a check that ConfigMaps have `phase: Ready` in their data.
fn phase_of(names: &[&str]) -> ReadinessCheck {
    ReadinessCheck {
        name: "phase".to_owned(),
        disabled: false,
        resources: names.iter().map(|name| reference("cm", name)).collect(),
        labels: None,
        requirements: vec![requirement(".data.phase", Equals, json!(["Ready"]))],
        target_name: None,
    }
}

/// Returns the same check for all ConfigMaps with the label `app: a`.
fn phase_of_app() -> ReadinessCheck {
    let labels = BTreeMap::from([("app".to_owned(), "a".to_owned())]);
    let kind = reference("configmaps", "");
    let labels = LabelledKind { api_version: kind.api_version, kind: kind.kind, labels };
    ReadinessCheck { labels: Some(labels), ..phase_of(&[]) }
}

fn phase(name: &str, phase: &str) -> serde_json::Value {
    config(name, json!({"phase": phase}))
}

/// Runs checks and `meanwhile` concurrently; returns the reports, each with the second in which it came.
async fn wait(
    lab: &Lab,
    checks: impl AsRef<[ReadinessCheck]>,
    limit: u64,
    meanwhile: impl Future<Output = ()>,
) -> Vec<String> {
    let begun = Instant::now();
    let reports = RefCell::new(Vec::new());
    let report = |text: String| reports.borrow_mut().push(format!("{}s {text}", begun.elapsed().as_secs()));
    let (deadline, stop) = (Some(begun + Duration::from_secs(limit)), CancellationToken::new());
    let ready = async {
        match wait_ready(&lab.clusters, checks.as_ref(), &lab.catalogs, deadline, &stop, report).await {
            Ok(()) => report("ready".to_owned()),
            Err(Stop::Failed(failure)) => report(failure.message),
            Err(Stop::Halted) => report("halted".to_owned()),
        }
    };
    tokio::join!(ready, meanwhile);
    reports.into_inner()
}

async fn after(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_for_an_object_and_reports_each_reason_once() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Ready")).await;
    let reports = wait(&lab, [phase_of(&["a", "b"])], 600, async {
        after(10).await;
        lab.put(config("b", json!({}))).await;
        after(10).await;
        lab.put(phase("b", "Starting")).await;
        after(10).await;
        lab.put(config("b", json!({"phase": "Starting", "other": "x"}))).await;
        after(10).await;
        lab.put(phase("b", "Ready")).await;
    });
    let check = "readiness check \"phase\":";
    assert_eq!(
        reports.await,
        [
            format!("1s {check} cm/default/b: not found yet"),
            format!("11s {check} ConfigMap/default/b: .data.phase does not exist, expected \"Ready\""),
            format!("21s {check} ConfigMap/default/b: .data.phase is \"Starting\", expected \"Ready\""),
            "40s ready".to_owned(),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn objects_that_are_ready_at_once_are_not_reported() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Ready")).await;
    let off = ReadinessCheck { disabled: true, ..phase_of(&["none"]) };
    assert_eq!(wait(&lab, [phase_of(&["a"]), off, phase_of_app()], 600, async {}).await, ["0s ready"]);
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_error_names_all_unready_objects() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Failed")).await;
    lab.put(phase("b", "Ready")).await;
    let named = |name: &str| ReadinessCheck { name: name.to_owned(), ..phase_of(&["a", "b", "c"]) };
    let reports = wait(&lab, [named("one"), phase_of(&["b"]), named("two")], 30, async {}).await;
    let unready = ["one", "two"].map(|name| {
        format!(
            "readiness check {name:?}: ConfigMap/default/a: .data.phase is \"Failed\", expected \"Ready\"; \
             readiness check {name:?}: cm/default/c: not found yet"
        )
    });
    let last = format!("30s failed to wait for custom readiness checks: time limit reached: {}", unready.join("; "));
    assert_eq!(reports.last(), Some(&last));
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_again_for_a_deleted_object() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Ready")).await;
    lab.put(phase("b", "Starting")).await;
    let reports = wait(&lab, [phase_of(&["a", "b"])], 600, async {
        after(10).await;
        lab.delete(&phase("a", "")).await;
        after(10).await;
        lab.put(phase("b", "Ready")).await;
        after(10).await;
        lab.put(phase("a", "Ready")).await;
    });
    assert_eq!(
        reports.await,
        [
            "1s readiness check \"phase\": ConfigMap/default/b: .data.phase is \"Starting\", expected \"Ready\"",
            "11s readiness check \"phase\": cm/default/a: deleted",
            "30s ready",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_label_selector_needs_an_object_and_all_its_objects_must_be_ready() {
    let lab = Lab::new().await;
    let reports = wait(&lab, [phase_of_app()], 600, async {
        after(10).await;
        lab.put(phase("b", "Starting")).await;
        lab.put(phase("a", "Ready")).await;
        after(10).await;
        let mut other = phase("b", "Starting");
        other["metadata"]["labels"]["app"] = json!("b");
        lab.put(other).await;
    });
    assert_eq!(
        reports.await,
        [
            "1s readiness check \"phase\": configmaps with labels app=a: not found yet",
            "11s readiness check \"phase\": ConfigMap/default/b: .data.phase is \"Starting\", expected \"Ready\"",
            "20s ready",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_of_many_objects_with_a_label_counts() {
    let lab = Lab::new().await;
    for index in 0..40 {
        lab.put(phase(&format!("a{index}"), "Ready")).await;
    }
    lab.put(phase("z", "Starting")).await;
    let reports = wait(&lab, [phase_of_app()], 600, async {
        after(10).await;
        lab.delete(&phase("z", "")).await;
    });
    assert_eq!(reports.await.last().map(String::as_str), Some("10s ready"));
}

#[tokio::test(start_paused = true)]
async fn a_target_name_selects_another_cluster() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Ready")).await;
    let at = |name: &str| ReadinessCheck { target_name: Some(name.to_owned()), ..phase_of(&["a"]) };
    let reports = wait(&lab, [at("edge")], 600, async {
        after(10).await;
        lab.put_at_edge(phase("a", "Ready")).await;
    });
    assert_eq!(reports.await.last().map(String::as_str), Some("10s ready"));
    let reports = wait(&lab, [phase_of(&["b"]), at("nowhere")], 600, async {}).await;
    let expected =
        "failed to find the objects of readiness check \"phase\": find target \"nowhere\": its cluster is unknown";
    assert_eq!(reports, [format!("0s {expected}")]);
}

/// Returns a check that a Widget has size 3.
fn size_of(name: &str) -> ReadinessCheck {
    let requirements = vec![requirement("spec.size", Equals, json!([3]))];
    ReadinessCheck {
        name: "size".to_owned(),
        resources: vec![reference("widgets", name)],
        requirements,
        ..phase_of(&[])
    }
}

#[tokio::test(start_paused = true)]
async fn a_check_waits_until_the_kind_is_served() {
    let lab = Lab::new().await;
    let reports = wait(&lab, [size_of("w")], 600, async {
        after(20).await;
        lab.put(widgets()).await;
        after(1).await;
        lab.put(widget("w", 2)).await;
        after(20).await;
        lab.put(widget("w", 3)).await;
    });
    assert_eq!(
        reports.await,
        [
            "1s readiness check \"size\": widgets.a.example/w: the cluster does not serve its kind yet",
            "32s readiness check \"size\": Widget.a.example/w: spec.size is 2, expected 3",
            "41s ready",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_check_survives_the_removal_of_the_kind() {
    let lab = Lab::new().await;
    lab.put(widgets()).await;
    after(1).await;
    lab.put(widget("w", 2)).await;
    let reports = wait(&lab, [size_of("w")], 600, async {
        after(10).await;
        lab.delete(&widgets()).await;
        after(10).await;
        lab.put(widgets()).await;
        after(1).await;
        lab.put(widget("w", 3)).await;
    });
    let reports = reports.await;
    assert_eq!(
        reports[1],
        "11s readiness check \"size\": widgets.a.example/w: the cluster does not serve its kind yet"
    );
    assert!(reports[2].ends_with("s ready"), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_never_served_is_an_error_after_a_minute() {
    let lab = Lab::new().await;
    let reports = wait(&lab, [phase_of(&["a"]), size_of("w")], 600, async {}).await;
    let expected = "failed to find the objects of readiness check \"size\": find kind widgets.a.example: the cluster does not serve it";
    assert_eq!(reports.last(), Some(&format!("63s {expected}")));
    let mut misplaced = size_of("w");
    misplaced.resources[0].kind = "configmaps".to_owned();
    let reports = wait(&lab, [misplaced], 600, async {}).await;
    let last = reports.last().unwrap();
    assert!(last.ends_with("find kind configmaps.a.example: the cluster does not serve it, but ConfigMap"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_reference_needs_a_namespace_only_for_a_namespaced_kind() {
    let lab = Lab::new().await;
    let mut check = phase_of(&["a"]);
    check.resources[0].namespace = None;
    let reports = wait(&lab, [check], 600, async {}).await;
    let expected = "find cm/a: its kind is namespaced, so the reference needs a namespace";
    assert_eq!(reports, [format!("0s failed to find the objects of readiness check \"phase\": {expected}")]);

    lab.put(widgets()).await;
    after(1).await;
    lab.put(widget("w", 3)).await;
    let mut check = size_of("w");
    check.resources[0].namespace = Some("default".to_owned());
    assert_eq!(wait(&lab, [check], 600, async {}).await, ["0s ready"]);
}

#[tokio::test(start_paused = true)]
async fn checks_can_be_stopped() {
    let lab = Lab::new().await;
    let (checks, stop) = ([phase_of(&["a"])], CancellationToken::new());
    let waiting = assert_send(wait_ready(&lab.clusters, &checks, &lab.catalogs, None, &stop, |_| {}));
    let (waiting, ()) = tokio::join!(waiting, async {
        after(7200).await;
        stop.cancel();
    });
    assert!(matches!(waiting, Err(Stop::Halted)), "{waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_hour_lists_once_and_does_not_poll() {
    let lab = Lab::new().await;
    let before = lab.clusters.own.requests();
    wait(&lab, [phase_of(&["a"]), phase_of_app()], 3600, async {}).await;
    let after = lab.clusters.own.requests();
    assert_eq!((after.get - before.get, after.list - before.list), (0, 2));
    // The server ends each watch after about five minutes.
    let watches = after.watch - before.watch;
    assert!((24..=28).contains(&watches), "{watches}");
}

#[tokio::test(start_paused = true)]
async fn a_check_survives_an_outage_of_the_target() {
    let lab = Lab::new().await;
    let reports = wait(&lab, [phase_of(&["a"]), size_of("w")], 3600, async {
        after(10).await;
        lab.take_away(Duration::from_secs(300));
        after(301).await;
        lab.put(phase("a", "Ready")).await;
        lab.put(widgets()).await;
        after(1).await;
        lab.put(widget("w", 3)).await;
    });
    let reports = reports.await;
    assert!(reports.last().is_some_and(|last| last.ends_with("s ready")), "{reports:?}");
}

#[test]
fn a_daemon_set_may_lack_as_many_pods_as_an_update_takes_away() {
    let unmet = |strategy: Value, updated: i64, available: i64| {
        let object = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "a", "generation": 1},
            "spec": {"updateStrategy": strategy},
            "status": {
                "observedGeneration": 1, "desiredNumberScheduled": 5, "updatedNumberScheduled": updated, "numberAvailable": available,
            },
        });
        Rule::Workload.unmet(&GroupKind::new("apps", "DaemonSet"), &object)
    };
    let rolling = |max: Value| json!({"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": max}});
    for (strategy, updated, available, expected) in [
        (rolling(1.into()), 5, 4, None),
        (rolling(1.into()), 5, 3, Some("3 of 5 available")),
        (rolling(1.into()), 4, 4, Some("4 of 5 updated")),
        (rolling("50%".into()), 5, 3, None),
        (rolling("50%".into()), 5, 2, Some("2 of 5 available")),
        (rolling("x".into()), 5, 4, Some("4 of 5 available")),
        (rolling(9.into()), 5, 0, None),
        (json!({"type": "RollingUpdate"}), 5, 4, Some("4 of 5 available")),
        (json!({"type": "OnDelete"}), 0, 4, Some("4 of 5 available")),
    ] {
        assert_eq!(
            unmet(strategy.clone(), updated, available).as_deref(),
            expected,
            "{strategy} {updated} {available}"
        );
    }
}
