use std::{cell::RefCell, collections::BTreeMap};

use billhook_policy::{LabelledKind, Operator::Equals};
use serde_json::json;
use tokio::time::sleep;

use super::{
    lab::{Lab, config, reference, requirement, sent, widget, widgets},
    *,
};

/// A check that the data of ConfigMaps say `phase: Ready`.
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

/// The same of all that carry the label `app: a`.
fn phase_of_app() -> ReadinessCheck {
    let labels = BTreeMap::from([("app".to_owned(), "a".to_owned())]);
    let kind = reference("configmaps", "");
    let labels = LabelledKind { api_version: kind.api_version, kind: kind.kind, labels };
    ReadinessCheck { labels: Some(labels), ..phase_of(&[]) }
}

fn phase(name: &str, phase: &str) -> serde_json::Value {
    config(name, json!({"phase": phase}))
}

/// What is said, each with the second in which it is, while checks are waited for and `meanwhile` something happens.
async fn wait(
    lab: &Lab,
    checks: impl AsRef<[ReadinessCheck]>,
    limit: u64,
    meanwhile: impl Future<Output = ()>,
) -> Vec<String> {
    let begun = Instant::now();
    let said = RefCell::new(Vec::new());
    let say = |text: String| said.borrow_mut().push(format!("{}s {text}", begun.elapsed().as_secs()));
    let (deadline, stop) = (Some(begun + Duration::from_secs(limit)), CancellationToken::new());
    let ready = async {
        match wait_ready(&lab.clusters, checks.as_ref(), &lab.catalogs, deadline, &stop, say).await {
            Ok(()) => say("ready".to_owned()),
            Err(error) => {
                let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
                say(format!("failed to {error}{}", source.unwrap_or_default()));
            }
        }
    };
    tokio::join!(ready, meanwhile);
    said.into_inner()
}

async fn after(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn an_object_that_becomes_ready_later_is_waited_for_and_its_reasons_are_said_once() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Ready")).await;
    let said = wait(&lab, [phase_of(&["a", "b"])], 600, async {
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
        said.await,
        [
            format!("1s {check} cm/default/b: it was not seen yet"),
            format!("11s {check} ConfigMap/default/b: .data.phase does not exist, expected \"Ready\""),
            format!("21s {check} ConfigMap/default/b: .data.phase is \"Starting\", expected \"Ready\""),
            "40s ready".to_owned(),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_ready_at_once_is_not_spoken_of() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Ready")).await;
    let off = ReadinessCheck { disabled: true, ..phase_of(&["none"]) };
    assert_eq!(wait(&lab, [phase_of(&["a"]), off, phase_of_app()], 600, async {}).await, ["0s ready"]);
}

#[tokio::test(start_paused = true)]
async fn objects_that_never_become_ready_are_all_named_at_the_deadline() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Failed")).await;
    lab.put(phase("b", "Ready")).await;
    let named = |name: &str| ReadinessCheck { name: name.to_owned(), ..phase_of(&["a", "b", "c"]) };
    let said = wait(&lab, [named("one"), phase_of(&["b"]), named("two")], 30, async {}).await;
    let unready = ["one", "two"].map(|name| {
        format!(
            "readiness check {name:?}: ConfigMap/default/a: .data.phase is \"Failed\", expected \"Ready\"; \
             readiness check {name:?}: cm/default/c: it was not seen yet"
        )
    });
    let last = format!("30s failed to see custom readiness checks hold in time: {}", unready.join("; "));
    assert_eq!(said.last(), Some(&last));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_was_ready_and_is_deleted_is_waited_for_again() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Ready")).await;
    lab.put(phase("b", "Starting")).await;
    let said = wait(&lab, [phase_of(&["a", "b"])], 600, async {
        after(10).await;
        lab.delete(&phase("a", "")).await;
        after(10).await;
        lab.put(phase("b", "Ready")).await;
        after(10).await;
        lab.put(phase("a", "Ready")).await;
    });
    assert_eq!(
        said.await,
        [
            "1s readiness check \"phase\": ConfigMap/default/b: .data.phase is \"Starting\", expected \"Ready\"",
            "11s readiness check \"phase\": cm/default/a: it was deleted",
            "30s ready",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn labels_that_show_nothing_are_not_ready_and_all_that_they_show_has_to_be() {
    let lab = Lab::new().await;
    let said = wait(&lab, [phase_of_app()], 600, async {
        after(10).await;
        lab.put(phase("b", "Starting")).await;
        lab.put(phase("a", "Ready")).await;
        after(10).await;
        let mut other = phase("b", "Starting");
        other["metadata"]["labels"]["app"] = json!("b");
        lab.put(other).await;
    });
    assert_eq!(
        said.await,
        [
            "1s readiness check \"phase\": configmaps with labels app=a: it was not seen yet",
            "11s readiness check \"phase\": ConfigMap/default/b: .data.phase is \"Starting\", expected \"Ready\"",
            "20s ready",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn of_many_objects_with_a_label_the_last_one_counts_too() {
    let lab = Lab::new().await;
    for index in 0..40 {
        lab.put(phase(&format!("a{index}"), "Ready")).await;
    }
    lab.put(phase("z", "Starting")).await;
    let said = wait(&lab, [phase_of_app()], 600, async {
        after(10).await;
        lab.delete(&phase("z", "")).await;
    });
    assert_eq!(said.await.last().map(String::as_str), Some("10s ready"));
}

#[tokio::test(start_paused = true)]
async fn a_target_name_leads_to_another_cluster() {
    let lab = Lab::new().await;
    lab.put(phase("a", "Ready")).await;
    let at = |name: &str| ReadinessCheck { target_name: Some(name.to_owned()), ..phase_of(&["a"]) };
    let said = wait(&lab, [at("edge")], 600, async {
        after(10).await;
        lab.put_at_edge(phase("a", "Ready")).await;
    });
    assert_eq!(said.await.last().map(String::as_str), Some("10s ready"));
    let said = wait(&lab, [phase_of(&["b"]), at("nowhere")], 600, async {}).await;
    let expected =
        "failed to look at the objects of readiness check \"phase\": find target \"nowhere\": its cluster is not known";
    assert_eq!(said, [format!("0s {expected}")]);
}

/// A check that a Widget is large.
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
async fn a_kind_that_is_served_later_is_waited_for() {
    let lab = Lab::new().await;
    let said = wait(&lab, [size_of("w")], 600, async {
        after(20).await;
        lab.put(widgets()).await;
        after(1).await;
        lab.put(widget("w", 2)).await;
        after(20).await;
        lab.put(widget("w", 3)).await;
    });
    assert_eq!(
        said.await,
        [
            "1s readiness check \"size\": widgets.a.example/w: the cluster does not serve its kind yet",
            "32s readiness check \"size\": Widget.a.example/w: spec.size is 2, expected 3",
            "41s ready",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_goes_and_comes_back_is_looked_for_again() {
    let lab = Lab::new().await;
    lab.put(widgets()).await;
    after(1).await;
    lab.put(widget("w", 2)).await;
    let said = wait(&lab, [size_of("w")], 600, async {
        after(10).await;
        lab.delete(&widgets()).await;
        after(10).await;
        lab.put(widgets()).await;
        after(1).await;
        lab.put(widget("w", 3)).await;
    });
    let said = said.await;
    assert_eq!(said[1], "11s readiness check \"size\": widgets.a.example/w: the cluster does not serve its kind yet");
    assert!(said[2].ends_with("s ready"), "{said:?}");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_never_served_is_named_after_a_minute() {
    let lab = Lab::new().await;
    let said = wait(&lab, [phase_of(&["a"]), size_of("w")], 600, async {}).await;
    let expected = "failed to look at the objects of readiness check \"size\": find kind widgets.a.example: the cluster does not serve it";
    assert_eq!(said.last(), Some(&format!("63s {expected}")));
    let mut misplaced = size_of("w");
    misplaced.resources[0].kind = "configmaps".to_owned();
    let said = wait(&lab, [misplaced], 600, async {}).await;
    let last = said.last().unwrap();
    assert!(last.ends_with("find kind configmaps.a.example: the cluster does not serve it, but ConfigMap"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_namespaced_object_without_a_namespace_is_a_mistake_and_a_namespace_too_many_is_none() {
    let lab = Lab::new().await;
    let mut check = phase_of(&["a"]);
    check.resources[0].namespace = None;
    let said = wait(&lab, [check], 600, async {}).await;
    let expected = "find cm/a: its kind is namespaced, so the reference needs a namespace";
    assert_eq!(said, [format!("0s failed to look at the objects of readiness check \"phase\": {expected}")]);

    lab.put(widgets()).await;
    after(1).await;
    lab.put(widget("w", 3)).await;
    let mut check = size_of("w");
    check.resources[0].namespace = Some("default".to_owned());
    assert_eq!(wait(&lab, [check], 600, async {}).await, ["0s ready"]);
}

#[tokio::test(start_paused = true)]
async fn it_can_be_stopped() {
    let lab = Lab::new().await;
    let (checks, stop) = ([phase_of(&["a"])], CancellationToken::new());
    let waiting = sent(wait_ready(&lab.clusters, &checks, &lab.catalogs, None, &stop, |_| {}));
    let (waiting, ()) = tokio::join!(waiting, async {
        after(7200).await;
        stop.cancel();
    });
    assert!(matches!(waiting, Err(CheckError::Interrupted)), "{waiting:?}");
}

#[tokio::test(start_paused = true)]
async fn waiting_for_an_hour_lists_once_and_never_polls() {
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
async fn an_outage_of_the_target_is_waited_out() {
    let lab = Lab::new().await;
    let said = wait(&lab, [phase_of(&["a"]), size_of("w")], 3600, async {
        after(10).await;
        lab.take_away(Duration::from_secs(300));
        after(301).await;
        lab.put(phase("a", "Ready")).await;
        lab.put(widgets()).await;
        after(1).await;
        lab.put(widget("w", 3)).await;
    });
    let said = said.await;
    assert!(said.last().is_some_and(|last| last.ends_with("s ready")), "{said:?}");
}
