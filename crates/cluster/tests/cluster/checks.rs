//! Checks of objects that a watch could not prove to be gone.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use billhook_cluster::{Change, Cluster, DeleteOptions, Error};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::Select;
use futures::Stream;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    fake::{Answer, Req, configmaps, discovery, object, ok, page, query, status},
    watches::{Ends, known, next, opened, send, watching},
};

fn by_label() -> billhook_plan::Query {
    query(None, Select::Labels("a=b".into()))
}

fn forbidden() -> Answer {
    status(403, "Forbidden", "User \"a\" cannot do that")
}

/// Returns the name in the field selector of a request.
fn asked_for(req: &Req) -> Option<&str> {
    req.query("fieldSelector").strip_prefix("metadata.name=").filter(|_| !req.is_watch())
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_is_not_reported_gone() {
    let there = Arc::new(AtomicBool::new(true));
    let seen = Arc::clone(&there);
    let mut looks = 0;
    let (cluster, ends, _) = watching(move |req, _| {
        if asked_for(&req).is_some() {
            looks += 1;
            if looks < 4 {
                return Some(status(500, "InternalError", "it broke"));
            }
            let items = if seen.load(Ordering::Relaxed) { vec![object("x", "1", 12)] } else { Vec::new() };
            return Some(ok(page(20, items)));
        }
        (!req.is_watch()).then(|| ok(page(20, Vec::new())))
    });
    let mut watch = cluster.watch(&by_label(), known("10", &[("x", "1")]));
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "DELETED", &object("x", "1", 12));
    };
    let (_, first) = tokio::join!(driver, next(&mut watch));
    assert_eq!(first, "x 1", "it is checked again after another list");
    assert_eq!(next(&mut watch).await, "silence");
    there.store(false, Ordering::Relaxed);
    let driver = async {
        opened(&ends, 2).await;
        send(&ends, "DELETED", &object("x", "1", 30));
    };
    let (_, second) = tokio::join!(driver, next(&mut watch));
    assert_eq!(second, "gone x 1");
}

#[tokio::test(start_paused = true)]
async fn a_check_needs_no_right_to_get_objects() {
    let (cluster, ends, _) = watching(|req, _| {
        if req.path.ends_with("/x") {
            return Some(forbidden());
        }
        (!req.is_watch()).then(|| {
            assert_eq!((req.path.as_str(), asked_for(&req)), ("/api/v1/namespaces/a/configmaps", Some("x")));
            ok(page(20, vec![object("x", "1", 12)]))
        })
    });
    let mut watch = cluster.watch(&by_label(), known("10", &[("x", "1")]));
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "DELETED", &object("x", "1", 12));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "x 1");
}

async fn delete(cluster: &Cluster) -> Result<billhook_cluster::DeleteAnswer, Error> {
    let key = ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "x");
    let options = DeleteOptions { uid: Some(Uid::new("1")), ..DeleteOptions::default() };
    cluster.delete(&configmaps(), &key, &options).await
}

/// Sends a DELETE whose event arrives before its answer. Returns what the watch reports, and how many checks it took.
async fn deleted_as(answer: fn() -> Answer) -> (String, u64) {
    let (cluster, ends, _) = watching(move |req, _| match req.method.as_str() {
        "DELETE" => Some(answer()),
        _ if asked_for(&req).is_some() => Some(ok(page(20, vec![object("x", "1", 12)]))),
        _ => None,
    });
    let mut watch = cluster.watch(&by_label(), known("10", &[("x", "1")]));
    let driver = async {
        opened(&ends, 1).await;
        let (_, answer) = tokio::join!(async { send(&ends, "DELETED", &object("x", "1", 12)) }, delete(&cluster));
        drop(answer);
    };
    let (_, seen) = tokio::join!(driver, next(&mut watch));
    (seen, cluster.requests().list)
}

#[tokio::test(start_paused = true)]
async fn only_a_delete_response_without_deletion_timestamp_saves_the_check() {
    let done = || ok(json!({"kind": "Status", "status": "Success"}));
    assert_eq!(deleted_as(done).await, ("gone x 1".into(), 0));
    let refused = || status(422, "Invalid", "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no");
    assert_eq!(deleted_as(refused).await, ("x 1".into(), 1));
    // A Pod in its grace period has no finalizers but still exists.
    let graceful = || {
        let mut pod = object("x", "1", 11);
        pod["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        ok(pod)
    };
    assert_eq!(deleted_as(graceful).await, ("x 1".into(), 1));
}

#[tokio::test(start_paused = true)]
async fn the_watch_continues_during_checks() {
    let (cluster, ends, _) = watching(|req, _| {
        let nothing = || ok(page(20, Vec::new())).into();
        asked_for(&req).map(|_| Answer::Late(Duration::from_secs(1), nothing()))
    });
    let names: Vec<String> = (0..40).map(|n| format!("x{n}")).collect();
    let objects: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), name.as_str())).collect();
    let mut watch = cluster.watch(&by_label(), known("10", &objects));
    let start = Instant::now();
    let driver = async {
        opened(&ends, 1).await;
        for name in &names {
            send(&ends, "DELETED", &object(name, name, 12));
        }
        send(&ends, "ADDED", &object("new", "9", 13));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "new 9");
    assert!(start.elapsed() < Duration::from_millis(100), "{:?}", start.elapsed());
    for _ in &names {
        assert!(next(&mut watch).await.starts_with("gone x"));
    }
    assert!(start.elapsed() < Duration::from_secs(4), "sixteen at a time: {:?}", start.elapsed());
    assert_eq!(next(&mut watch).await, "silence");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_served_in_another_version_is_watched_in_that_one() {
    let (cluster, ends, log) = watching(|req, _| match req.path.as_str() {
        "/api" => Some(discovery(&["v2"])),
        path if path.starts_with("/api/v1/") => Some(Answer::Text(404, "404 page not found\n")),
        _ => (!req.is_watch()).then(|| ok(page(20, vec![object("x", "1", 12)]))),
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1"), ("y", "2")]));
    assert_eq!(next(&mut watch).await, "x 1");
    assert_eq!(next(&mut watch).await, "gone y 2");
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "DELETED", &object("x", "1", 21));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "gone x 1");
    assert!(log.lines().last().unwrap().starts_with("GET /api/v2/namespaces/a/configmaps?watch=true"));
}

#[tokio::test(start_paused = true)]
async fn a_gateways_404_is_an_outage() {
    let start = Instant::now();
    let (cluster, ends, log) = watching(move |req, _| match req.path.as_str() {
        "/api" => Some(discovery(&["v1"])),
        _ => (start.elapsed() < Duration::from_secs(10)).then_some(Answer::Text(404, "no such backend")),
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1")]));
    assert_eq!(next(&mut watch).await, "away");
    assert_eq!(next(&mut watch).await, "back");
    assert!(log.lines().len() < 60, "{}", log.lines().len());
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "DELETED", &object("x", "1", 21));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "gone x 1");
}

#[tokio::test(start_paused = true)]
async fn discovery_that_lags_behind_is_no_outage() {
    let start = Instant::now();
    let (cluster, _, _) = watching(move |req, _| {
        let lags = start.elapsed() < Duration::from_millis(600);
        Some(match req.path.as_str() {
            "/api" => discovery(if lags { &["v1"] } else { &[] }),
            _ => Answer::Text(404, "404 page not found\n"),
        })
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1")]));
    assert_eq!(next(&mut watch).await, "gone x 1");
    assert_eq!(next(&mut watch).await, "kindgone");
}

#[tokio::test(start_paused = true)]
async fn a_404_of_a_poll_is_verified() {
    let start = Instant::now();
    let (cluster, _, _) = watching(move |req, _| {
        let late = start.elapsed() > Duration::from_secs(10);
        Some(match req.path.as_str() {
            "/api" => discovery(if late { &[] } else { &["v1"] }),
            _ if req.is_watch() => forbidden(),
            _ => Answer::Text(404, "404 page not found\n"),
        })
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1")]));
    assert_eq!(next(&mut watch).await, "poll only");
    assert_eq!(next(&mut watch).await, "away");
    assert_eq!(next(&mut watch).await, "back");
    assert_eq!(next(&mut watch).await, "gone x 1");
    assert_eq!(next(&mut watch).await, "kindgone");
    assert!(start.elapsed() > Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn repeated_events_of_a_former_object_are_verified() {
    let (cluster, ends, _) =
        watching(|req, _| asked_for(&req).is_some().then(|| ok(page(30, vec![object("x", "2", 20)]))));
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "2")]));
    let driver = async {
        opened(&ends, 1).await;
        // The former object of this name, while the version of the known one is still unknown.
        send(&ends, "MODIFIED", &object("x", "1", 12));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "x 2");
    // Now it is known.
    send(&ends, "MODIFIED", &object("x", "1", 13));
    send(&ends, "DELETED", &object("x", "2", 21));
    assert_eq!(next(&mut watch).await, "gone x 2");
    assert_eq!(next(&mut watch).await, "silence");
}

#[tokio::test(start_paused = true)]
async fn a_check_does_not_override_a_newer_event() {
    let (cluster, ends, _) = watching(|req, _| {
        let seen = ok(page(30, vec![object("x", "1", 12)])).into();
        asked_for(&req).is_some().then(|| Answer::Late(Duration::from_secs(1), seen))
    });
    let mut watch = cluster.watch(&by_label(), known("10", &[("x", "1")]));
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "DELETED", &object("x", "1", 12));
        sleep(Duration::from_millis(100)).await;
        send(&ends, "ADDED", &object("x", "1", 15));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "x 1");
    assert_eq!(next(&mut watch).await, "silence");
}

/// Watches `x` by its label within one namespace through a gap, after which the name belongs to `found`.
async fn after_a_gap(found: fn() -> Vec<Value>) -> (impl Stream<Item = Change> + Unpin, Ends) {
    let (cluster, ends, _) = watching(move |req, opened| {
        if req.is_watch() {
            return (opened == 0 && req.query("resourceVersion") == "10").then(|| status(410, "Expired", "too old"));
        }
        Some(ok(page(20, if asked_for(&req).is_some() { found() } else { Vec::new() })))
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::Labels("a=b".into())), known("10", &[("x", "1")]));
    assert_eq!(next(&mut watch).await, "gone x 1");
    (watch, ends)
}

#[tokio::test(start_paused = true)]
async fn an_object_recreated_without_labels_during_a_gap_is_reported() {
    let (mut watch, ends) = after_a_gap(|| vec![object("x", "2", 12)]).await;
    assert_eq!(next(&mut watch).await, "x 2");
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "DELETED", &object("x", "2", 21));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "gone x 2");
}

#[tokio::test(start_paused = true)]
async fn an_object_recreated_without_labels_after_a_gap_is_reported() {
    let (mut watch, ends) = after_a_gap(Vec::new).await;
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "ADDED", &object("x", "2", 21));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "x 2");
}

#[tokio::test(start_paused = true)]
async fn an_object_recreated_twice_during_a_check_is_reported() {
    let (cluster, ends, _) = watching(|req, _| {
        let last = ok(page(30, vec![object("x", "3", 13)])).into();
        asked_for(&req).is_some().then(|| Answer::Late(Duration::from_secs(1), last))
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1")]));
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "ADDED", &object("x", "2", 11));
        send(&ends, "DELETED", &object("x", "2", 12));
        send(&ends, "ADDED", &object("x", "3", 13));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "gone x 2");
    assert_eq!(next(&mut watch).await, "gone x 1");
    assert_eq!(next(&mut watch).await, "x 3");
}
