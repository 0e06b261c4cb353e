use std::path::{Path, PathBuf};

use billhook_cluster::{Cluster, Fence, Options};
use billhook_sandbox::{Sandbox, User};
use jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::{
    events::Recorder,
    helms::Helms,
    metrics::Metrics,
    mode::Mode,
    shard::Shard,
    shared::ControllerOptions,
    target::{Connect, ConnectionRules, Targets},
    trigger::Cause,
};

fn dispatcher() -> Dispatcher {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let home = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
    let (metrics, now) = (Metrics::new(), Arc::new(|| Timestamp::UNIX_EPOCH));
    let connect: Connect = Arc::new(|_, _| unreachable!("no item has a Target"));
    let options = ControllerOptions {
        mode: Mode::Standalone,
        namespaces: Vec::new(),
        identity: "i".to_owned(),
        shard: Shard::default(),
        connect: Arc::clone(&connect),
        now: now.clone(),
        helm: PathBuf::new(),
        connections: ConnectionRules::default(),
        metrics: metrics.clone(),
        leader_election: None,
    };
    let (events, _writer) = Recorder::new(home.clone(), "i", now, metrics.events_dropped());
    let targets = Targets::new(home.clone(), connect, ConnectionRules::default(), Fence::open(), metrics.clone());
    Dispatcher::new(Arc::new(Shared { home, targets, options, metrics, events, helms: Helms::new(Path::new("")) }))
}

fn item(uid: &str) -> DeployItem {
    let item = json!({
        "apiVersion": "landscaper.gardener.cloud/v1alpha1",
        "kind": "DeployItem",
        "metadata": { "namespace": "a", "name": "b", "uid": uid, "generation": 1 },
        "spec": { "type": TYPES[0] },
    });
    serde_json::from_value(item).unwrap()
}

fn key() -> Key {
    ("a".to_owned(), "b".to_owned())
}

/// Returns a dispatcher with a task that deletes the item.
fn deleting() -> Dispatcher {
    let mut dispatcher = dispatcher();
    dispatcher.items.entry(key()).or_default().object = Some(Arc::new(item("1")));
    dispatcher.start(&key(), Arc::new(item("1")), Due::Delete(Cause::Triggered), None);
    dispatcher
}

#[tokio::test]
async fn an_item_without_our_finalizer_is_not_handled_again() {
    let mut dispatcher = deleting();
    dispatcher.finish(&key(), Outcome::FinalizerRemoved);
    dispatcher.handle(Change::Item(Box::new(item("1"))));
    assert!(!dispatcher.items[&key()].queued);
    dispatcher.handle(Change::Item(Box::new(item("2"))));
    assert!(dispatcher.items[&key()].queued);
}

#[tokio::test]
async fn an_item_that_is_recreated_before_the_deletion_returns_is_handled() {
    let mut dispatcher = deleting();
    dispatcher.handle(Change::ItemDeleted(key()));
    dispatcher.handle(Change::Item(Box::new(item("2"))));
    dispatcher.finish(&key(), Outcome::FinalizerRemoved);
    assert!(dispatcher.items[&key()].queued);
}

#[tokio::test]
async fn a_replica_on_standby_has_no_queue() {
    let dispatcher = deleting();
    let metrics = dispatcher.shared.metrics.clone();
    metrics.set_queue_depth(3);
    dispatcher.shut_down().await;
    assert!(metrics.encode().unwrap().contains("billhook_queue_depth 0"));
}

#[tokio::test]
async fn a_target_that_is_recreated_with_another_cluster_stops_the_tasks_of_the_old_one() {
    let target = |server: &str| {
        let metadata = json!({ "namespace": "a", "name": "t" });
        let spec = json!({ "type": crate::api::KUBERNETES_CLUSTER, "config": { "kubeconfig": server } });
        let target = serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap();
        Change::Target(Box::new(target))
    };
    for (server, named, stops) in [
        ("https://old", false, false),
        ("https://new", false, true),
        ("https://old", true, false),
        ("https://new", true, true),
    ] {
        let mut dispatcher = deleting();
        let state = dispatcher.items.get_mut(&key()).unwrap();
        if named {
            // Only the policy of the item names it.
            state.running.as_ref().unwrap().halt.note_target("t");
        } else {
            let mut object = serde_json::to_value(item("1")).unwrap();
            object["spec"]["target"] = json!({ "name": "t" });
            state.object = Some(Arc::new(serde_json::from_value::<DeployItem>(object).unwrap()));
        }
        let stopped =
            |dispatcher: &Dispatcher| dispatcher.items[&key()].running.as_ref().unwrap().halt.token.is_cancelled();
        dispatcher.handle(target("https://old"));
        dispatcher.handle(Change::TargetDeleted(("a".to_owned(), "t".to_owned())));
        assert!(!stopped(&dispatcher));
        dispatcher.handle(target(server));
        assert_eq!(stopped(&dispatcher), stops, "{server} {named}");
        assert!(dispatcher.former_targets.is_empty());
    }
}
