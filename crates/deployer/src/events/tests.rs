use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use billhook_cluster::{Cluster, Options};
use billhook_engine::{ApplyResult, EVENT_FORMAT, Event, Status};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::Operation;
use billhook_sandbox::{Sandbox, User};
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use serde_json::Value;

use super::{CAPACITY, Item, Recorder, Severity, Writer};
use crate::progress::ItemProgress;

fn item(name: &str) -> Arc<Item> {
    Arc::new(Item { namespace: "default".to_owned(), name: name.to_owned(), uid: "u1".to_owned() })
}

fn recorder(sandbox: &Sandbox, dropped: Counter) -> (Recorder, Writer) {
    let home = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
    let clock = AtomicI64::new(1_767_225_600);
    let now = move || Timestamp::from_second(clock.fetch_add(1, Ordering::Relaxed)).unwrap();
    Recorder::new(home, "controller-0", Arc::new(now), dropped)
}

/// The Events in the sandbox, by name.
fn events(sandbox: &Sandbox) -> Vec<Value> {
    let mut found: Vec<_> = sandbox.objects().into_iter().filter(|object| object["kind"] == "Event").collect();
    found.sort_by_key(|event| event["metadata"]["name"].as_str().map(str::to_owned));
    found
}

/// Checks that these events of the engine result in these Kubernetes Events.
async fn check(engine: &[Event], expected: &[(&str, &str, &str)]) {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let (recorder, writer) = recorder(&sandbox, Counter::default());
    let mut progress = ItemProgress::default();
    let mut run = recorder.run(item("shop"));
    for event in engine {
        progress.fold(event);
        run.event(event, &progress);
    }
    drop((run, recorder));
    writer.run().await;
    let found = events(&sandbox);
    let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
    let found: Vec<_> = found.iter().map(|e| (text(e, "type"), text(e, "reason"), text(e, "message"))).collect();
    let found: Vec<_> = found.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(found, expected);
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), name)
}

fn started(operation: Operation) -> Event {
    let nodes = vec![("crds".to_owned(), 0), ("namespaced-resources".to_owned(), 2)];
    Event::Started { format: EVENT_FORMAT, operation, release: None, nodes, goals: Vec::new(), notes: Vec::new() }
}

fn node_started(node: usize, objects: usize) -> Event {
    Event::NodeStarted { node, title: String::new(), objects }
}

fn node_finished(node: usize, status: Status, objects: usize) -> Event {
    Event::NodeFinished { node, title: String::new(), status, objects, elapsed_ms: 0 }
}

fn deleting(name: &str) -> Event {
    Event::Deleting { node: 1, object: key(name), finalizers: Vec::new() }
}

fn gone(name: &str) -> Event {
    Event::Gone { node: 1, object: key(name), uid: Uid::new("u") }
}

fn refused(name: &str) -> Event {
    Event::Refused { node: 1, object: key(name), message: "no".to_owned(), retried: false }
}

/// The last event of a run, in its serialized format.
fn finished(status: &str) -> Event {
    let summary = serde_json::json!({
        "event": "finished", "status": status, "gone": 0, "applied": 0, "unchanged": 0, "uncovered": [],
        "left": [{ "object": key("b"), "group": "g", "blockers": [{ "type": "finalizer", "finalizer": "f" }] }],
        "finalizersRemoved": [], "recreated": [], "requests": {}, "elapsedMs": 0,
    });
    serde_json::from_value(summary).unwrap()
}

const STARTED: (&str, &str, &str) =
    ("Normal", "DeletionGroupStarted", "group 2 of 2, namespaced-resources: 2 objects to delete");
const FINISHED: (&str, &str, &str) =
    ("Normal", "DeletionGroupFinished", "group 2 of 2, namespaced-resources: 2 objects gone");

#[tokio::test(start_paused = true)]
async fn a_deletion_records_the_start_and_end_of_each_group_with_objects() {
    let empty = [started(Operation::Delete), node_started(0, 0), node_finished(0, Status::Done, 0)];
    let second = [node_started(1, 2), deleting("b"), gone("b"), gone("c"), node_finished(1, Status::Done, 2)];
    check(&[&empty[..], &second[..]].concat(), &[STARTED, FINISHED]).await;
}

#[tokio::test(start_paused = true)]
async fn a_deployment_records_nothing_unless_it_prunes() {
    let applied = |node| Event::Applied { node, object: key("x"), result: ApplyResult::Created };
    let first = [started(Operation::Apply), node_started(0, 1), applied(0), node_finished(0, Status::Done, 1)];
    let ended = [node_finished(1, Status::Done, 2), finished("done")];
    check(&[&first[..], &[node_started(1, 2), applied(1)], &ended].concat(), &[]).await;
    check(&[&first[..], &[node_started(1, 2), gone("b"), gone("c")], &ended].concat(), &[STARTED, FINISHED]).await;
}

#[tokio::test(start_paused = true)]
async fn remaining_objects_are_a_warning() {
    let over = "time limit reached: 1 object left: ConfigMap/a/b: finalizer f";
    let begun = [started(Operation::Delete), node_started(1, 2)];
    let timed_out = [deleting("b"), node_finished(1, Status::TimedOut, 0), finished("timed-out")];
    check(&[&begun[..], &timed_out].concat(), &[STARTED, ("Warning", "TimedOut", over)]).await;
    let failed = [refused("b"), node_finished(1, Status::Failed, 0), finished("failed")];
    let message = "failed: 1 object left: ConfigMap/a/b: finalizer f";
    check(&[&begun[..], &failed].concat(), &[STARTED, ("Warning", "Failed", message)]).await;
    let unprepared = [started(Operation::Apply), node_started(1, 2), refused("b"), finished("failed")];
    let message = "failed: 1 object not done: ConfigMap/a/b: finalizer f";
    check(&unprepared, &[("Warning", "Failed", message)]).await;
}

#[tokio::test(start_paused = true)]
async fn removals_by_force_name_the_first_objects_and_count_the_others() {
    let removed = |name: String| Event::FinalizersRemoved {
        node: 1,
        object: key(&name),
        finalizers: vec!["f".to_owned(), "g".to_owned()],
    };
    let mut engine = vec![started(Operation::Delete), node_started(1, 12)];
    engine.extend((0..12).map(|n| removed(format!("o{n}"))));
    engine.push(finished("done"));
    let messages: Vec<_> = (0..10).map(|n| format!("finalizers f, g removed by force from ConfigMap/a/o{n}")).collect();
    let mut expected: Vec<_> = messages.iter().map(|m| ("Warning", "FinalizersRemoved", m.as_str())).collect();
    expected.push(("Warning", "FinalizersRemoved", "removed by force from 2 more objects"));
    check(&engine, &expected).await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_is_counted_for_ten_minutes() {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let (recorder, writer) = recorder(&sandbox, Counter::default());
    let writing = tokio::spawn(writer.run());
    let again = |name: &str, message: &str| recorder.record(&item(name), Severity::Warning, "Failed", message);
    again("shop", "no");
    again("shop", "no");
    again("shop", "other");
    again("till", "no");
    tokio::time::sleep(Duration::from_secs(599)).await;
    again("shop", "no");
    tokio::time::sleep(Duration::from_secs(601)).await;
    again("shop", "no");
    drop(recorder);
    writing.await.unwrap();
    let found = events(&sandbox);
    let counts: Vec<_> = found
        .iter()
        .map(|e| (e["involvedObject"]["name"].as_str().unwrap(), e["message"].as_str().unwrap(), e["count"].clone()))
        .collect();
    let expected = [("shop", "no", 3), ("shop", "other", 1), ("shop", "no", 1), ("till", "no", 1)];
    let expected = expected.map(|(name, message, count)| (name, message, Value::from(count)));
    assert_eq!(counts, expected);
    let first = &found[0];
    assert_eq!(first["metadata"]["name"], "shop.18867251edfa0000");
    assert_eq!(first["firstTimestamp"], "2026-01-01T00:00:00Z");
    assert_eq!(first["lastTimestamp"], "2026-01-01T00:00:04Z");
    assert_eq!(first["involvedObject"]["kind"], "DeployItem");
    assert_eq!(first["involvedObject"]["uid"], "u1");
    assert_eq!(
        (&first["source"]["component"], &first["reportingInstance"]),
        (&"billhook".into(), &"controller-0".into())
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_no_longer_exists_is_created_again() {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let (recorder, writer) = recorder(&sandbox, Counter::default());
    let writing = tokio::spawn(writer.run());
    let home = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
    let record = || recorder.record(&item("shop"), Severity::Normal, "Reason", "text");
    record();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let first = events(&sandbox)[0]["metadata"]["name"].as_str().unwrap().to_owned();
    let resource = super::resource();
    let key = ObjectKey::new(resource.kind.clone(), Some("default"), &first);
    home.delete(&resource, &key, &billhook_cluster::DeleteOptions::default()).await.unwrap();
    record();
    drop(recorder);
    writing.await.unwrap();
    let found = events(&sandbox);
    assert_eq!((found.len(), &found[0]["count"]), (1, &Value::from(1)));
    assert_ne!(found[0]["metadata"]["name"], first.as_str());
}

#[tokio::test(start_paused = true)]
async fn events_that_find_the_channel_full_are_dropped_and_counted() {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let dropped = Counter::default();
    let (recorder, _writer) = recorder(&sandbox, dropped.clone());
    for _ in 0..CAPACITY + 3 {
        recorder.record(&item("shop"), Severity::Normal, "Reason", "text");
    }
    assert_eq!(dropped.get(), 3);
}

#[tokio::test(start_paused = true)]
async fn names_are_unique_and_not_too_long() {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let (_recorder, mut writer) = recorder(&sandbox, Counter::default());
    let now = Timestamp::from_second(1).unwrap();
    assert_eq!(writer.name("shop", now), "shop.000000003b9aca00");
    assert_eq!(writer.name("shop", now), "shop.000000003b9aca01");
    let long = format!("{}.{}", "a".repeat(235), "b".repeat(17));
    assert_eq!(writer.name(&long, now), format!("{}.000000003b9aca02", "a".repeat(235)));
}
