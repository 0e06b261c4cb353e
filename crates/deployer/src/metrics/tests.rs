use std::time::Duration;

use billhook_cluster::{Cluster, Options};
use billhook_engine::{EVENT_FORMAT, Event, Status};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::Operation;
use billhook_sandbox::{Sandbox, User};
use tokio::sync::watch;

use super::Metrics;
use crate::{api::Phase, progress::ItemProgress};

/// Returns the lines of a metric, without its name.
fn values(metrics: &Metrics, name: &str) -> Vec<String> {
    let text = metrics.encode().unwrap();
    text.lines().filter_map(|line| line.strip_prefix(name)).map(|line| line.trim().to_owned()).collect()
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), name)
}

#[test]
fn reconciles_are_counted_and_timed() {
    let metrics = Metrics::new();
    metrics.reconciled(Operation::Apply, Status::Done);
    metrics.reconciled(Operation::Apply, Status::Done);
    metrics.clone().reconciled(Operation::Delete, Status::TimedOut);
    metrics.took(Operation::Apply, "run", Duration::from_millis(500));
    let mut counted = values(&metrics, "billhook_reconciles_total");
    counted.sort();
    let expected = ["{operation=\"apply\",result=\"done\"} 2", "{operation=\"delete\",result=\"timed-out\"} 1"];
    assert_eq!(counted, expected);
    let sum = values(&metrics, "billhook_reconcile_duration_seconds_sum");
    assert_eq!(sum, ["{operation=\"apply\",phase=\"run\"} 0.5"]);
}

#[test]
fn metrics_are_openmetrics_text() {
    let text = Metrics::new().encode().unwrap();
    assert!(text.contains("# TYPE billhook_queue_depth gauge\nbillhook_queue_depth 0\n"), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn gauges_show_the_phases_and_the_leader() {
    let metrics = Metrics::new();
    metrics.set_leader(true);
    metrics.set_shards(3);
    metrics.phase_changed(None, Some(Phase::Init));
    metrics.phase_changed(None, Some(Phase::Succeeded));
    metrics.phase_changed(Some(Phase::Init), Some(Phase::Succeeded));
    metrics.phase_changed(Some(Phase::Succeeded), None);
    assert_eq!(values(&metrics, "billhook_leader"), ["1"]);
    assert_eq!(values(&metrics, "billhook_shards"), ["3"]);
    let mut items = values(&metrics, "billhook_items");
    items.sort();
    assert_eq!(items, ["{phase=\"Init\"} 0", "{phase=\"Succeeded\"} 1"]);
}

#[test]
fn objects_wait_only_while_their_run_goes_on() {
    let metrics = Metrics::new();
    let run = || {
        let (sender, receiver) = watch::channel(ItemProgress::default());
        metrics.follow(receiver);
        sender
    };
    let (one, two) = (run(), run());
    let nodes = vec![("g".to_owned(), 3)];
    let begun = [
        Event::Started {
            format: EVENT_FORMAT,
            operation: Operation::Delete,
            release: None,
            nodes,
            goals: Vec::new(),
            notes: Vec::new(),
        },
        Event::NodeStarted { node: 0, title: "g".to_owned(), objects: 3 },
        Event::Deleting { node: 0, object: key("b"), finalizers: vec!["f".to_owned()] },
        Event::Refused { node: 0, object: key("c"), message: "no".to_owned(), retried: true },
        Event::Gone { node: 0, object: key("d"), uid: Uid::new("u") },
        Event::FinalizersRemoved { node: 0, object: key("e"), finalizers: vec!["f".to_owned(), "g".to_owned()] },
    ];
    for event in &begun {
        metrics.event(event);
        one.send_modify(|progress| progress.fold(event));
        two.send_modify(|progress| progress.fold(event));
    }
    assert_eq!(values(&metrics, "billhook_objects_deleted_total"), ["1"]);
    assert_eq!(values(&metrics, "billhook_finalizers_removed_total"), ["2"]);
    let waiting = |finalizer: u8, refused: u8| {
        let line = |blocker: &str, number: u8| format!("{{blocker=\"{blocker}\"}} {number}");
        vec![line("finalizer", finalizer), line("readiness", 0), line("refused", refused)]
    };
    assert_eq!(values(&metrics, "billhook_objects_waiting"), waiting(2, 2));
    drop(two);
    assert_eq!(values(&metrics, "billhook_objects_waiting"), waiting(1, 1));
}

#[tokio::test(start_paused = true)]
async fn requests_remain_counted_when_their_cluster_is_dropped() {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let metrics = Metrics::new();
    let requests = |number: u8| vec![format!("{{verb=\"get\",code=\"200\"}} {number}")];
    for expected in [1, 2] {
        let cluster = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
        let _counted = metrics.count_requests(cluster.clone());
        cluster.version().await.unwrap();
        assert_eq!(values(&metrics, "billhook_api_requests_total"), requests(expected));
    }
    assert_eq!(values(&metrics, "billhook_api_requests_total"), requests(2));
}
