use billhook_charts::Helm;
use billhook_cluster::{Cluster, Fence, Options};
use billhook_hosts::Dialer;
use billhook_sandbox::{Sandbox, User};
use jiff::Timestamp;
use kube::{
    Api, CustomResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;

use super::*;
use crate::{
    crashes::Places,
    events::Recorder,
    helms::Helms,
    item::Item,
    metrics::Metrics,
    mode::Mode,
    progress::Report,
    shard::Shard,
    shared::ControllerOptions,
    target::{Connect, ConnectionRules, Targets},
    trigger::Cause,
};

fn dispatcher() -> Dispatcher {
    Dispatcher::new(Arc::new(shared(&Sandbox::start(billhook_sandbox::Options::default()), Mode::Standalone)))
}

fn shared(sandbox: &Sandbox, mode: Mode) -> Shared {
    let home = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
    let (metrics, now) = (Metrics::new(), Arc::new(|| Timestamp::UNIX_EPOCH));
    let connect: Connect = Arc::new(|_, _| unreachable!("no item has a Target"));
    let options = ControllerOptions {
        mode,
        namespaces: Vec::new(),
        namespace_selector: None,
        identity: "i".to_owned(),
        shard: Shard::default(),
        connect: Arc::clone(&connect),
        now: now.clone(),
        helm: Helm::new("helm"),
        target_selectors: Vec::new(),
        connections: ConnectionRules::default(),
        metrics: metrics.clone(),
        leader_election: None,
        max_items: 100,
        grace: Duration::ZERO,
    };
    let (events, _writer) = Recorder::new(home.clone(), "i", now, metrics.events_dropped());
    let targets = Targets::new(home.clone(), connect, ConnectionRules::default(), Fence::open(), metrics.clone());
    let (helms, places) = (Helms::new(Helm::new("helm"), Dialer::default()), Places::default());
    Shared { home, targets, options, metrics, events, helms, term: None, crash: None, places }
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
    dispatcher.items.entry(key()).or_default().object = Some(Arc::new(item("1").into()));
    dispatcher.start(&key(), Arc::new(item("1").into()), Due::Delete(Cause::Triggered), None);
    dispatcher
}

#[tokio::test]
async fn an_item_without_our_finalizer_is_not_handled_again() {
    let mut dispatcher = deleting();
    dispatcher.finish(&key(), Outcome::FinalizerRemoved);
    dispatcher.handle(Change::Item(Box::new(item("1").into())));
    assert!(!dispatcher.items[&key()].queued);
    dispatcher.handle(Change::Item(Box::new(item("2").into())));
    assert!(dispatcher.items[&key()].queued);
}

#[tokio::test]
async fn an_item_that_is_recreated_before_the_deletion_returns_is_handled() {
    let mut dispatcher = deleting();
    dispatcher.handle(Change::ItemDeleted(key()));
    dispatcher.handle(Change::Item(Box::new(item("2").into())));
    dispatcher.finish(&key(), Outcome::FinalizerRemoved);
    assert!(dispatcher.items[&key()].queued);
}

/// Returns the values of a metric, each after its labels.
fn values(metrics: &Metrics, name: &str) -> Vec<String> {
    let text = metrics.encode().unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix(name)).filter(|rest| rest.starts_with(['{', ' ']));
    lines.map(|rest| rest.trim().to_owned()).collect()
}

fn in_phase(phase: &str, generation: i64) -> Change {
    let mut object = serde_json::to_value(item("1")).unwrap();
    object["spec"]["target"] = json!({ "name": "t" });
    object["metadata"]["generation"] = generation.into();
    object["status"] = json!({ "phase": phase, "observedGeneration": 1, "lastReconcileTime": "1969-12-31T23:59:00Z" });
    Change::Item(Box::new(serde_json::from_value(object).unwrap()))
}

#[tokio::test(start_paused = true)]
async fn metrics_show_what_waits_and_fails() {
    let mut dispatcher = dispatcher();
    let metrics = dispatcher.shared.metrics.clone();
    let labels = "{target_namespace=\"a\",target=\"t\",type=\"kubernetes-manifest\"}";
    let check = |queue: u8, failing: u8, oldest: &str| {
        assert_eq!(values(&metrics, "billhook_queue_depth"), [queue.to_string()]);
        assert_eq!(values(&metrics, "billhook_items_failing"), [format!("{labels} {failing}")]);
        assert_eq!(values(&metrics, "billhook_items_oldest_waiting_seconds"), [format!("{labels} {oldest}")]);
    };
    dispatcher.handle(in_phase("Failed", 1));
    check(0, 1, "0.0");
    dispatcher.handle(in_phase("Failed", 2));
    tokio::time::advance(Duration::from_secs(7)).await;
    check(1, 1, "7.0");
    // An earlier leader began this work a minute ago.
    dispatcher.handle(Change::ItemDeleted(key()));
    assert_eq!(values(&metrics, "billhook_items_failing"), [""; 0]);
    dispatcher.handle(in_phase("Progressing", 1));
    check(1, 0, "60.0");
    // Work in progress does not wait for a slot, but it is not finished.
    let slot = dispatcher.slots.acquire(&item("1"), 0).await;
    dispatcher.consider(&key(), slot);
    check(0, 0, "60.0");
    dispatcher.finish(&key(), Outcome::Retry { version: None, pause: Duration::from_secs(1) });
    check(1, 0, "60.0");
    dispatcher.handle(in_phase("Succeeded", 1));
    check(0, 0, "0.0");
    dispatcher.handle(in_phase("Failed", 1));
    dispatcher.shut_down().await;
    assert_eq!(values(&metrics, "billhook_items_failing"), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_waits_for_its_schedule_is_not_in_the_queue() {
    let mut dispatcher = dispatcher();
    let Change::Item(known) = in_phase("Succeeded", 1) else { unreachable!("it is an item") };
    let mut scheduled = known.to_object();
    scheduled.spec.config = Some(json!({
        "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2", "kind": "ProviderConfiguration",
        "continuousReconcile": { "every": "1h" },
    }));
    dispatcher.handle(Change::Item(Box::new(scheduled.into())));
    assert!(dispatcher.items[&key()].delay.is_some());
    assert_eq!(values(&dispatcher.shared.metrics, "billhook_queue_depth"), ["0"]);
}

#[tokio::test]
async fn the_metrics_of_a_target_end_with_it() {
    let mut dispatcher = dispatcher();
    let metrics = dispatcher.shared.metrics.clone();
    let target = ("a".to_owned(), "t".to_owned());
    // A name that an item made up has no series.
    metrics.opened_target(&target, None);
    assert_eq!(values(&metrics, "billhook_target_up"), [""; 0]);
    let spec = json!({ "type": crate::api::KUBERNETES_CLUSTER, "config": {} });
    let object = json!({ "metadata": { "namespace": "a", "name": "t" }, "spec": spec });
    dispatcher.handle(Change::Target(serde_json::from_value(object).unwrap()));
    assert_eq!(values(&metrics, "billhook_target_up"), [""; 0]);
    metrics.opened_target(&target, None);
    assert_eq!(values(&metrics, "billhook_target_up"), ["{target_namespace=\"a\",target=\"t\"} 0"]);
    dispatcher.handle(Change::TargetDeleted(target));
    assert_eq!(values(&metrics, "billhook_target_up"), [""; 0]);
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
            state.object = Some(Arc::new(serde_json::from_value(object).unwrap()));
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

/// Lets a dispatcher drain while an item is worked on that ends by itself after some time; returns how long it took, and whether
/// the work was asked to stop.
async fn drained(grace: Duration, takes: Duration) -> (Duration, bool) {
    let mut dispatcher = dispatcher();
    let halt = Halt::default();
    let running = Running {
        halt: halt.clone(),
        uid: None,
        generation: Some(1),
        job: None,
        deletion: false,
        without_uninstall: false,
    };
    dispatcher.items.entry(key()).or_default().running = Some(running);
    let stop = halt.token.clone();
    dispatcher.tasks.spawn(async move {
        tokio::select! {
            () = tokio::time::sleep(takes) => {}
            // It takes its time.
            () = async { stop.cancelled().await; tokio::time::sleep(Duration::from_secs(3)).await } => {}
        }
        (key(), Outcome::Done(None))
    });
    let begun = tokio::time::Instant::now();
    dispatcher.drain(grace).await;
    // The work that has become due meanwhile does not start.
    dispatcher.handle(Change::Item(Box::new(item("1").into())));
    assert!(!dispatcher.items[&key()].queued && dispatcher.tasks.is_empty());
    (begun.elapsed(), halt.token.is_cancelled())
}

#[tokio::test(start_paused = true)]
async fn running_work_gets_a_grace_period_and_then_time_to_stop() {
    let seconds = Duration::from_secs;
    for (grace, takes, took, stopped) in [(20, 5, 5, false), (20, 500, 23, true), (0, 5, 3, true)] {
        assert_eq!(drained(seconds(grace), seconds(takes)).await, (seconds(took), stopped), "{grace} {takes}");
    }
}

/// Returns an item that is being deployed for a job, on a new server.
async fn working() -> (Sandbox, Api<DeployItem>, Item) {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let client = sandbox.client(User::admin(), "other");
    let (create, apply) = (PostParams::default(), PatchParams::default());
    Api::all(client.clone()).create(&create, &DeployItem::crd()).await.unwrap();
    // Until it is served.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let items: Api<DeployItem> = Api::namespaced(client, "default");
    let mut object = item("");
    (object.metadata.namespace, object.metadata.uid) = (Some("default".to_owned()), None);
    items.create(&create, &object).await.unwrap();
    let job = Patch::Merge(json!({ "status": { "jobID": "one", "observedGeneration": 1, "phase": "Progressing" } }));
    let object = items.patch_status("b", &apply, &job).await.unwrap();
    let working = Item::new(Arc::new(shared(&sandbox, Mode::Landscaper)), Arc::new(object), 0, Halt::default());
    (sandbox, items, working)
}

/// Writes progress and the result of a job after another client has patched the item; returns the phase and the finished job on
/// the server, and whether the work was stopped.
async fn written_after(patch: serde_json::Value) -> (Option<Phase>, Option<String>, bool) {
    let (_sandbox, items, mut working) = working().await;
    let apply = PatchParams::default();
    match patch.get("status") {
        Some(_) => items.patch_status("b", &apply, &Patch::Merge(&patch)).await.unwrap(),
        None => items.patch("b", &apply, &Patch::Merge(&patch)).await.unwrap(),
    };
    working.report(Report { running: true, reason: "Running", message: "1 of 2".to_owned() }).await.unwrap();
    working.update(|status| status.finish(Phase::Succeeded, Timestamp::UNIX_EPOCH)).await.unwrap();
    let live = items.get("b").await.unwrap();
    // The dispatcher ignores what the watch reports of the time before.
    assert_eq!(working.version, live.metadata.resource_version);
    let status = live.status.unwrap();
    (status.phase, status.job_id_finished, working.halt.token.is_cancelled())
}

#[tokio::test(start_paused = true)]
async fn the_first_status_is_written_after_a_second_unless_the_work_ends_sooner() {
    for (takes, writes) in [(0, 1), (5, 2)] {
        let (_sandbox, items, mut working) = working().await;
        let before = working.shared.home.requests().patch;
        let deployer = crate::api::DeployerInformation::default();
        working.update_later(|status| status.begin(Phase::Progressing, 7, &deployer, Timestamp::UNIX_EPOCH));
        tokio::time::sleep(Duration::from_secs(takes)).await;
        let begun = items.get("b").await.unwrap().status.unwrap();
        assert_eq!(begun.observed_generation == 7, takes > 1);
        working.update(|status| status.finish(Phase::Succeeded, Timestamp::UNIX_EPOCH)).await.unwrap();
        let live = items.get("b").await.unwrap();
        assert_eq!(working.version, live.metadata.resource_version);
        let ended = live.status.unwrap();
        assert_eq!((ended.phase, ended.observed_generation), (Some(Phase::Succeeded), 7));
        assert_eq!(working.shared.home.requests().patch - before, writes, "{takes}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_to_another_item_of_the_same_name() {
    let (_sandbox, items, mut working) = working().await;
    items.delete("b", &DeleteParams::default()).await.unwrap();
    let mut other = item("");
    (other.metadata.namespace, other.metadata.uid) = (Some("default".to_owned()), None);
    let other = items.create(&PostParams::default(), &other).await.unwrap();
    working.update(|status| status.finish(Phase::Succeeded, Timestamp::UNIX_EPOCH)).await.unwrap();
    working.update_metadata(true, false).await.unwrap();
    working.remove_finalizer().await.unwrap();
    assert_eq!(items.get("b").await.unwrap().metadata, other.metadata);
    assert!(working.is_over() && working.halt.token.is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_job_that_landscaper_has_finished_is_not_written() {
    let interrupt = json!({ "status": { "phase": "Failed", "jobIDFinished": "one" } });
    assert_eq!(written_after(interrupt).await, (Some(Phase::Failed), Some("one".to_owned()), true));
    let other_change = json!({ "metadata": { "annotations": { "a": "b" } } });
    assert_eq!(written_after(other_change).await, (Some(Phase::Succeeded), Some("one".to_owned()), false));
}
