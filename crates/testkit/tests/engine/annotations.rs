//! Annotations of objects whose effect depends on time, on a failure, or on what another client does in between.

use std::pin::pin;

use billhook_plan::UncoveredCause;
use tokio::time::{Instant, sleep_until, timeout};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

fn annotated(annotations: Value) -> Value {
    json!({"metadata": {"annotations": annotations}})
}

impl World {
    /// Deletes the release within a time limit.
    async fn delete_within(&self, limit: Option<Duration>) -> Summary {
        let prepared = billhook_engine::prepare_delete(&self.clusters, delete_input(|_| {})).await.unwrap();
        let options = RunOptions { timeout: limit, ..self.options() };
        billhook_engine::delete(&self.clusters, prepared, &options).await.unwrap()
    }

    /// Applies a ConfigMap that nothing but its annotation frees from its finalizer, an hour after its deletion.
    async fn held_for_an_hour(&self) {
        self.apply(&[("a {k: v}", nothing()), ("b {k: v}", nothing())]).await;
        self.patch("a", json!({"metadata": {"finalizers": ["x.example/nobody"]}})).await;
        self.patch("a", annotated(json!({"resources.gardener.cloud/finalize-deletion-after": "1h"}))).await;
    }

    fn is_recreated(&self) -> bool {
        let recreated =
            |event: &Event| matches!(event, Event::Applied { result: billhook_engine::ApplyResult::Recreated, .. });
        self.events.lock().unwrap().iter().any(recreated)
    }
}

#[tokio::test(start_paused = true)]
async fn finalizers_remain_for_an_hour_after_the_deletion() {
    let world = World::new();
    world.held_for_an_hour().await;
    let begun = Instant::now();
    let mut deletion = pin!(world.delete_within(None));
    tokio::select! {
        summary = &mut deletion => panic!("the deletion ended after {:?}: {summary:?}", begun.elapsed()),
        () = sleep_until(begun + HOUR - SECOND) => {}
    }
    let object = world.config_map("a").unwrap();
    assert_eq!(object["metadata"]["finalizers"], json!(["x.example/nobody"]));
    assert!(world.config_map("b").is_none());
    let summary = timeout(2 * SECOND, deletion).await.expect("the finalizers are removed");
    assert_eq!((summary.status, summary.gone, summary.finalizers_removed.len()), (Status::Done, 2, 1));
    assert!(world.config_map("a").is_none());
}

#[tokio::test(start_paused = true)]
async fn the_hour_counts_from_the_deletion_timestamp() {
    let world = World::new();
    world.held_for_an_hour().await;
    let begun = Instant::now();
    assert_eq!(world.delete_within(Some(HOUR / 2)).await.status, Status::TimedOut);
    // Nothing deletes it for a while.
    sleep_until(begun + HOUR - 10 * SECOND).await;
    let summary = world.delete_within(Some(20 * SECOND)).await;
    assert_eq!((summary.status, summary.gone), (Status::Done, 1));
    assert!(begun.elapsed() >= HOUR - SECOND, "{:?}", begun.elapsed());
    assert!(begun.elapsed() <= HOUR + 2 * SECOND, "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn removing_the_annotation_leaves_the_finalizers() {
    let world = World::new();
    world.held_for_an_hour().await;
    let begun = Instant::now();
    let mut deletion = pin!(world.delete_within(Some(2 * HOUR)));
    tokio::select! {
        summary = &mut deletion => panic!("the deletion ended: {summary:?}"),
        () = sleep_until(begun + HOUR / 2) => {}
    }
    world.patch("a", annotated(Value::Null)).await;
    let summary = deletion.await;
    assert_eq!((summary.status, summary.left.len()), (Status::TimedOut, 1));
    assert_eq!(world.config_map("a").unwrap()["metadata"]["finalizers"], json!(["x.example/nobody"]));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_annotated_just_before_its_deletion_is_kept() {
    let world = World::new();
    world.apply(&[("a {k: v}", nothing()), ("b {k: v}", nothing()), ("c {k: v}", nothing())]).await;
    let prepared = billhook_engine::prepare_delete(&world.clusters, delete_input(|_| {})).await.unwrap();
    world.patch("a", annotated(json!({"billhook.dev/keep-object": "true"}))).await;
    world.patch("b", annotated(json!({"example.org/other": "true"}))).await;
    let summary = billhook_engine::delete(&world.clusters, prepared, &world.options()).await.unwrap();
    assert_eq!((summary.status, summary.gone), (Status::Done, 2));
    let causes: Vec<_> = summary.uncovered.iter().map(|left| (left.object.clone(), left.cause.clone())).collect();
    assert_eq!(causes, [(key("a"), UncoveredCause::KeepObject)]);
    let kept = world.config_map("a").unwrap();
    // Without a record, it must not look as if it belonged to the release.
    assert!(kept["metadata"]["deletionTimestamp"].is_null() && kept["metadata"]["labels"].is_null(), "{kept}");
    assert!(!world.has_record());
}

#[tokio::test(start_paused = true)]
async fn an_object_remains_in_the_record_until_its_label_is_removed() {
    let world = World::new();
    world.apply(&[("a {k: v}", nothing()), ("b {k: v}", nothing())]).await;
    world.patch("a", annotated(json!({"resources.gardener.cloud/mode": "Ignore"}))).await;
    let refusal = Fault::refuse(http::StatusCode::FORBIDDEN, "Forbidden", "no");
    world.target.faults().inject(refusal.on(Requests::of(CLIENT).verb(Verb::Patch).name("a")));
    let manifests = [("a {k: w}", nothing()), ("b {k: v}", nothing())];
    let summary = world.apply(&manifests).await;
    let remaining: Vec<_> = summary.uncovered.iter().map(|left| left.object.clone()).collect();
    assert_eq!((summary.status, remaining), (Status::Failed, vec![key("a")]));
    let failures: Vec<_> = summary.failures().map(|failed| failed.error.to_owned()).collect();
    assert!(failures.len() == 1 && failures[0].contains("no"), "{failures:?}");
    assert!(world.entry("a").await.is_some());
    world.target.faults().clear();
    let summary = world.apply(&manifests).await;
    assert_eq!((summary.status, summary.uncovered.len()), (Status::Done, 0));
    assert!(world.entry("a").await.is_none());
    let given_up = world.config_map("a").unwrap();
    assert_eq!((&given_up["data"], &given_up["metadata"]["labels"]), (&json!({"k": "v"}), &Value::Null));
    let writes = world.writes().len();
    world.apply(&manifests).await;
    assert_eq!(world.writes().len(), writes);
}

#[tokio::test(start_paused = true)]
async fn after_an_interruption_no_label_is_removed() {
    let world = World::new();
    world.apply(&[("a {k: v}", nothing())]).await;
    world.patch("a", annotated(json!({"billhook.dev/mode": "Ignore"}))).await;
    let prepared = billhook_engine::prepare_delete(&world.clusters, delete_input(|_| {})).await.unwrap();
    let (options, writes) = (world.options(), world.writes().len());
    options.stop.cancel();
    let summary = billhook_engine::delete(&world.clusters, prepared, &options).await.unwrap();
    assert_eq!((summary.status, world.writes().len()), (Status::Interrupted, writes));
    assert!(world.entry("a").await.is_some());
}

/// The ConfigMap is immutable, and its annotation lets it be recreated.
async fn immutable(world: &World) -> Value {
    world.apply(&[("a {k: v}", nothing())]).await;
    world.patch("a", json!({"immutable": true})).await;
    world.patch("a", annotated(json!({"resources.gardener.cloud/delete-on-invalid-update": "true"}))).await;
    world.config_map("a").unwrap()["metadata"]["uid"].clone()
}

#[tokio::test(start_paused = true)]
async fn an_object_is_recreated_by_every_strategy() {
    use UpdateStrategy::{Merge, MergeOverwrite, Patch, ServerSide, Update};
    for strategy in [ServerSide, Update, Patch, MergeOverwrite] {
        let world = World::new();
        let old = immutable(&world).await;
        let summary = world.apply_with(&[("a {k: w}", nothing())], |input| input.strategy = strategy).await.unwrap();
        assert_eq!((summary.status, summary.applied, world.is_recreated()), (Status::Done, 1, true), "{strategy:?}");
        let new = world.config_map("a").unwrap();
        assert!(new["metadata"]["uid"] != old && new["data"] == json!({"k": "w"}), "{strategy:?}: {new}");
        assert_eq!(world.entry("a").await.unwrap().uid.unwrap().as_str(), new["metadata"]["uid"]);
    }
    // Nothing is to be changed.
    let world = World::new();
    let old = immutable(&world).await;
    let summary = world.apply_with(&[("a {k: w}", nothing())], |input| input.strategy = Merge).await.unwrap();
    assert_eq!((summary.status, &world.config_map("a").unwrap()["metadata"]["uid"]), (Status::Done, &old));
}

#[tokio::test(start_paused = true)]
async fn a_recreation_that_hangs_is_reported_as_such() {
    let world = World::new();
    immutable(&world).await;
    world.patch("a", json!({"metadata": {"finalizers": ["x.example/nobody"]}})).await;
    let waits = || {
        let events = world.events.lock().unwrap();
        let reasons = events.iter().filter_map(|event| match event {
            Event::Waiting { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        reasons.collect::<Vec<_>>()
    };
    let blockers = |summary: &Summary| summary.left.iter().flat_map(|left| left.blockers.clone()).collect::<Vec<_>>();
    let is_finalizer =
        |blocker: &Blocker| matches!(blocker, Blocker::Finalizer { finalizer, .. } if finalizer == "x.example/nobody");
    let summary = world.apply(&[("a {k: w}", nothing())]).await;
    assert_eq!(summary.status, Status::TimedOut);
    assert!(blockers(&summary).iter().all(is_finalizer) && summary.left.len() == 1, "{:?}", summary.left);
    assert!(waits().last().unwrap().starts_with("it was deleted because its update is invalid"), "{:?}", waits());
    // The next run waits for it again, and creates it once it is gone.
    let summary = world.apply(&[("a {k: w}", nothing())]).await;
    assert!(blockers(&summary).iter().all(is_finalizer) && summary.left.len() == 1, "{:?}", summary.left);
    assert!(waits().last().unwrap().starts_with("it is being deleted"), "{:?}", waits());
    world.patch("a", json!({"metadata": {"finalizers": null}})).await;
    let summary = world.apply(&[("a {k: w}", nothing())]).await;
    assert_eq!((summary.status, world.data("a")), (Status::Done, json!({"k": "w"})));
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_annotation_was_removed_is_not_recreated() {
    for annotation in ["delete-on-invalid-update", "keep-object"] {
        let world = World::new();
        let old = immutable(&world).await;
        let manifests = [("a {k: w}", nothing())];
        // The plan is made while the annotation is there, and the request is answered after its removal.
        world.target.faults().inject(Fault::delay(5 * SECOND).on(Requests::of(CLIENT).verb(Verb::Patch)).first(1));
        let mut apply = pin!(world.apply(&manifests));
        tokio::select! {
            summary = &mut apply => panic!("the apply ended: {summary:?}"),
            () = tokio::time::sleep(SECOND) => {}
        }
        let value = if annotation == "keep-object" { json!("true") } else { Value::Null };
        world.patch("a", annotated(json!({format!("resources.gardener.cloud/{annotation}"): value}))).await;
        let summary = apply.await;
        assert_eq!((summary.status, summary.left.len()), (Status::Failed, 1));
        let live = world.config_map("a").unwrap();
        assert_eq!((&live["metadata"]["uid"], &live["data"]), (&old, &json!({"k": "v"})));
    }
}
