//! Watches through reconnects, gaps, outages and missing rights.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use billhook_cluster::{Change, Cluster, Known, ObjectChange};
use billhook_objects::Uid;
use billhook_plan::Select;
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{self, UnboundedSender},
    time::{Instant, timeout},
};

use crate::fake::{Answer, Req, cluster, discovery, event, missing, object, ok, page, query, status};

/// The senders of all watches, in order. Dropping one ends its watch.
pub(crate) type Ends = Arc<Mutex<Vec<Option<UnboundedSender<Value>>>>>;

pub(crate) fn watching(
    mut other: impl FnMut(Req, usize) -> Option<Answer> + Send + 'static,
) -> (Cluster, Ends, crate::fake::Log) {
    let ends: Ends = Arc::default();
    let shared = Arc::clone(&ends);
    let (cluster, log) = cluster(move |req| {
        let is_watch = req.is_watch();
        let opened = shared.lock().unwrap().len();
        if let Some(answer) = other(req, opened) {
            return answer;
        }
        assert!(is_watch);
        let (sender, receiver) = mpsc::unbounded_channel();
        shared.lock().unwrap().push(Some(sender));
        Answer::Lines(receiver)
    });
    (cluster, ends, log)
}

pub(crate) fn send(ends: &Ends, kind: &str, object: &Value) {
    let ends = ends.lock().unwrap();
    ends.last().unwrap().as_ref().unwrap().send(event(kind, object)).unwrap();
}

fn end(ends: &Ends) {
    *ends.lock().unwrap().last_mut().unwrap() = None;
}

pub(crate) fn known(version: &str, objects: &[(&str, &str)]) -> Known {
    let objects = objects.iter().map(|(name, uid)| (Some("a".to_owned()), (*name).to_owned(), Uid::new(*uid)));
    Known { resource_version: Some(version.to_owned()), objects: objects.collect() }
}

pub(crate) async fn next(stream: &mut (impl Stream<Item = Change> + Unpin)) -> String {
    match timeout(Duration::from_secs(20), stream.next()).await {
        Err(_) => "silence".into(),
        Ok(None) => "end".into(),
        Ok(Some(Change::Present(o))) => format!("{} {}", o.name, o.uid),
        Ok(Some(Change::Gone { name, uid, .. })) => format!("gone {name} {uid}"),
        Ok(Some(Change::Away(_))) => "away".into(),
        Ok(Some(Change::PollOnly(_))) => "poll only".into(),
        Ok(Some(other)) => format!("{other:?}").to_lowercase(),
    }
}

pub(crate) async fn opened(ends: &Ends, count: usize) {
    while ends.lock().unwrap().len() < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn events_become_changes_at_once_and_a_watch_continues_where_it_ended() {
    let (cluster, ends, log) = watching(|_, _| None);
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1")]));
    let start = Instant::now();
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "MODIFIED", &object("x", "1", 11));
        send(&ends, "BOOKMARK", &json!({"metadata": {"resourceVersion": "15"}}));
        end(&ends);
        opened(&ends, 2).await;
        send(&ends, "DELETED", &object("x", "1", 16));
    };
    let expected = async {
        assert_eq!(next(&mut watch).await, "x 1");
        assert_eq!(next(&mut watch).await, "gone x 1");
    };
    tokio::join!(driver, expected);
    assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
    let path = "GET /api/v1/namespaces/a/configmaps?watch=true&allowWatchBookmarks=true&timeoutSeconds=290";
    assert_eq!(log.lines(), [format!("{path}&resourceVersion=10"), format!("{path}&resourceVersion=15")]);
    assert_eq!(cluster.requests().watch, 2);
    let sender = ends.lock().unwrap().last().unwrap().clone().unwrap();
    drop(watch);
    tokio::task::yield_now().await;
    assert!(sender.is_closed(), "dropping the stream ends the request");
}

#[tokio::test(start_paused = true)]
async fn a_recreated_object_means_that_the_old_one_is_gone() {
    let (cluster, ends, _) = watching(|req, _| (!req.is_watch()).then(|| ok(page(12, vec![object("x", "2", 12)]))));
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1")]));
    tokio::join!(opened(&ends, 1), async {
        let waiting = timeout(Duration::from_millis(5), watch.next()).await;
        assert!(waiting.is_err());
    });
    send(&ends, "ADDED", &object("x", "2", 12));
    assert_eq!(next(&mut watch).await, "gone x 1");
    assert_eq!(next(&mut watch).await, "x 2");
}

#[tokio::test(start_paused = true)]
async fn after_a_gap_a_list_shows_which_objects_are_gone_or_new() {
    for as_event in [true, false] {
        let mut refused = as_event;
        let (cluster, ends, _) = watching(move |req, opened| {
            if !req.is_watch() {
                let items = vec![object("same", "1", 5), object("new", "9", 40), object("again", "8", 41)];
                return Some(ok(page(50, items)));
            }
            let refuse = opened == 1 && !std::mem::replace(&mut refused, true);
            refuse.then(|| status(410, "Expired", "too old resource version"))
        });
        let objects = [("same", "1"), ("went", "2"), ("again", "3")];
        let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &objects));
        let driver = async {
            opened(&ends, 1).await;
            send(&ends, "MODIFIED", &object("same", "1", 5));
            if as_event {
                send(&ends, "ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}));
            } else {
                end(&ends);
            }
        };
        let expected = async {
            let mut seen = Vec::new();
            for _ in 0..5 {
                seen.push(next(&mut watch).await);
            }
            seen.sort();
            assert_eq!(seen, ["again 8", "gone again 3", "gone went 2", "new 9", "same 1"]);
            assert_eq!(next(&mut watch).await, "silence", "the same version is not reported again");
        };
        tokio::join!(driver, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_always_too_old_is_retried_with_backoff() {
    let (cluster, _, log) = watching(|req, _| {
        Some(if req.is_watch() { status(410, "Expired", "too old") } else { ok(page(50, Vec::new())) })
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[]));
    assert_eq!(next(&mut watch).await, "silence");
    assert!((20..60).contains(&log.lines().len()), "{}", log.lines().len());
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_once_and_no_change_is_missed() {
    let start = Instant::now();
    let (cluster, ends, _) = watching(move |_, _| {
        (Duration::from_secs(1)..Duration::from_secs(11)).contains(&start.elapsed()).then_some(Answer::Refused)
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[]));
    let driver = async {
        opened(&ends, 1).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        ends.lock().unwrap()[0].as_ref().unwrap().send(Value::Null).unwrap();
        opened(&ends, 2).await;
        send(&ends, "ADDED", &object("x", "1", 11));
    };
    let expected = async {
        assert_eq!(next(&mut watch).await, "away");
        assert_eq!(next(&mut watch).await, "back");
        assert_eq!(next(&mut watch).await, "x 1");
    };
    tokio::join!(driver, expected);
    assert!(start.elapsed() < Duration::from_secs(14), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_reported_before_the_pause_that_the_server_asked_for() {
    let start = Instant::now();
    let (cluster, _, _) = watching(move |_, _| (start.elapsed() < Duration::from_secs(5)).then_some(Answer::Busy(8)));
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[]));
    assert_eq!(next(&mut watch).await, "away");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(next(&mut watch).await, "back");
    assert!(start.elapsed() >= Duration::from_secs(8), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn when_a_kind_is_gone_its_objects_are_gone() {
    let (cluster, _, log) = watching(|req, _| {
        Some(if req.path == "/api" { discovery(&[]) } else { Answer::Text(404, "404 page not found\n") })
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1")]));
    assert_eq!(next(&mut watch).await, "gone x 1");
    assert_eq!(next(&mut watch).await, "kindgone");
    assert_eq!(next(&mut watch).await, "end");
    assert_eq!(log.lines().len(), 3, "two requests, and then discovery");
}

#[tokio::test(start_paused = true)]
async fn single_reads_replace_a_forbidden_watch() {
    let start = Instant::now();
    let (cluster, _, _) = watching(move |req, _| {
        if let Some(name) = req.path.strip_prefix("/api/v1/namespaces/a/configmaps/") {
            let gone = start.elapsed() > Duration::from_secs(3);
            return Some(if gone { missing("configmaps", name) } else { ok(object(name, "1", 5)) });
        }
        Some(status(403, "Forbidden", "User \"a\" cannot watch resource"))
    });
    let select = Select::Names(vec!["x".into()]);
    let mut watch = cluster.watch(&query(Some("a"), select), known("10", &[("x", "1")]));
    assert_eq!(next(&mut watch).await, "poll only");
    assert_eq!(next(&mut watch).await, "x 1");
    assert_eq!(next(&mut watch).await, "gone x 1");
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn only_named_objects_are_reported() {
    let (cluster, ends, log) = watching(|_, _| None);
    let select = Select::Names(vec!["x".into(), "y".into()]);
    let mut watch = cluster.watch(&query(Some("a"), select), known("10", &[]));
    let one = cluster.watch(&query(Some("a"), Select::Names(vec!["x".into()])), known("10", &[]));
    tokio::join!(
        opened(&ends, 1),
        async {
            assert_eq!(next(&mut watch).await, "y 2");
        },
        async {
            opened(&ends, 1).await;
            send(&ends, "ADDED", &object("z", "1", 11));
            send(&ends, "ADDED", &object("y", "2", 12));
        }
    );
    let mut one = one;
    assert_eq!(next(&mut one).await, "silence");
    assert!(log.lines().last().unwrap().ends_with("&fieldSelector=metadata.name%3Dx"));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_only_lost_its_labels_is_not_gone() {
    let (cluster, ends, _) = watching(|req, _| match req.query("fieldSelector") {
        "metadata.name=kept" => Some(ok(page(20, vec![object("kept", "1", 20)]))),
        "metadata.name=went" => Some(ok(page(21, Vec::new()))),
        _ => None,
    });
    let select = Select::Labels("a=b".into());
    let mut watch = cluster.watch(&query(None, select), known("10", &[("kept", "1"), ("went", "2")]));
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "DELETED", &object("kept", "1", 20));
        send(&ends, "DELETED", &object("went", "2", 21));
    };
    let expected = async {
        assert_eq!(next(&mut watch).await, "kept 1");
        assert_eq!(next(&mut watch).await, "gone went 2");
    };
    tokio::join!(driver, expected);
}

#[tokio::test(start_paused = true)]
async fn a_watch_by_label_shows_only_the_wanted_namespaces() {
    let place = |namespace: &str, name: &str, uid: &str| {
        let mut object = object(name, uid, 12);
        object["metadata"]["namespace"] = json!(namespace);
        object
    };
    let (cluster, ends, log) = watching(move |req, _| (!req.is_watch()).then(|| ok(page(20, Vec::new()))));
    let query = billhook_plan::Query {
        namespaces: vec!["a".to_owned(), "c".to_owned()],
        ..query(None, Select::Labels("a=b".into()))
    };
    let mut watch = cluster.watch(&query, known("10", &[]));
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "ADDED", &place("b", "x", "1"));
        send(&ends, "DELETED", &place("b", "x", "1"));
        send(&ends, "ADDED", &place("c", "y", "2"));
    };
    assert_eq!(tokio::join!(driver, next(&mut watch)).1, "y 2");
    assert_eq!(next(&mut watch).await, "silence");
    assert_eq!(log.lines().len(), 1, "nothing is checked: {:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn within_one_namespace_the_client_evaluates_labels_so_that_deleted_means_gone() {
    let (cluster, ends, log) = watching(|_, _| None);
    let select = Select::Labels("a=b".into());
    let mut watch = cluster.watch(&query(Some("a"), select), known("10", &[("ours", "1")]));
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "MODIFIED", &object("foreign", "9", 11));
        send(&ends, "DELETED", &object("foreign", "9", 12));
        // An object that lost its label is still watched.
        send(&ends, "MODIFIED", &object("ours", "1", 13));
        send(&ends, "DELETED", &object("ours", "1", 14));
        // Another client recreates it without the label.
        send(&ends, "ADDED", &object("ours", "2", 15));
    };
    let expected = async {
        assert_eq!(next(&mut watch).await, "ours 1");
        assert_eq!(next(&mut watch).await, "gone ours 1");
        assert_eq!(next(&mut watch).await, "ours 2");
    };
    tokio::join!(driver, expected);
    assert!(!log.lines().last().unwrap().contains("labelSelector"));
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_always_ends_at_once_is_reopened_with_backoff() {
    let (cluster, _, log) = watching(|_, _| {
        let (_, receiver) = mpsc::unbounded_channel();
        Some(Answer::Lines(receiver))
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[]));
    assert_eq!(next(&mut watch).await, "silence");
    assert!((10..40).contains(&log.lines().len()), "{}", log.lines().len());
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_reopened() {
    let (cluster, ends, log) = watching(|_, _| None);
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[]));
    let waited = timeout(Duration::from_secs(400), watch.next()).await;
    assert!(waited.is_err());
    assert_eq!((log.lines().len(), ends.lock().unwrap().len()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn whole_objects_come_from_a_list_and_then_from_its_watch() {
    let (cluster, ends, _) = watching(|req, _| {
        let mut item = object("x", "1", 5);
        item["status"] = json!({"phase": "Pending"});
        (!req.is_watch()).then(|| ok(page(9, vec![item])))
    });
    let mut watch = cluster.watch_objects::<Value>(&query(Some("a"), Select::All));
    let first = watch.next().await.unwrap();
    assert!(matches!(&first, ObjectChange::Present(value) if value["status"]["phase"] == "Pending"));
    tokio::join!(opened(&ends, 1), timeout(Duration::from_millis(5), watch.next())).1.unwrap_err();
    send(&ends, "DELETED", &object("x", "1", 10));
    let ObjectChange::Gone(key) = watch.next().await.unwrap() else { panic!() };
    assert_eq!(key.to_string(), "ConfigMap/a/x");
}
