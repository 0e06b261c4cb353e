//! Watches whose rights are missing at first.

use std::time::Duration;

use billhook_cluster::{Known, ObjectChange};
use billhook_plan::Select;
use futures::{Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::{
    fake::{Answer, missing, object, ok, page, query, status},
    watches::{known, next, opened, send, watching},
};

fn forbidden() -> Answer {
    status(403, "Forbidden", "User \"a\" cannot do that")
}

/// Returns the next change within two minutes.
async fn seen(watch: &mut (impl Stream<Item = ObjectChange> + Unpin)) -> String {
    match timeout(Duration::from_secs(120), watch.next()).await {
        Ok(Some(ObjectChange::Present(object))) => object["metadata"]["name"].as_str().unwrap().to_owned(),
        Ok(Some(ObjectChange::Gone(key))) => format!("gone {}", key.name),
        Ok(None) => "end".into(),
        Err(_) => "silence".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn objects_are_listed_once_the_right_is_granted() {
    let start = Instant::now();
    let (cluster, ends, log) = watching(move |req, _| {
        if start.elapsed() < Duration::from_secs(50) {
            return Some(forbidden());
        }
        (!req.is_watch()).then(|| ok(page(20, vec![object("x", "1", 12)])))
    });
    let mut watch = cluster.watch_objects::<Value>(&query(None, Select::All));
    assert_eq!(seen(&mut watch).await, "x");
    assert!(start.elapsed() < Duration::from_secs(80), "{:?}", start.elapsed());
    assert!(log.lines().len() < 10, "too many requests: {:?}", log.lines());
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "ADDED", &object("y", "2", 21));
    };
    assert_eq!(tokio::join!(driver, seen(&mut watch)).1, "y");
}

#[tokio::test(start_paused = true)]
async fn whole_objects_are_not_read_one_by_one_when_listing_becomes_forbidden() {
    let start = Instant::now();
    let (cluster, ends, log) = watching(move |req, opened| {
        let old = start.elapsed() > Duration::from_secs(60);
        match opened {
            0 => (!req.is_watch()).then(|| ok(page(9, vec![object("x", "1", 5)]))),
            _ if !old => Some(forbidden()),
            _ => (!req.is_watch()).then(|| ok(page(30, vec![object("y", "2", 30)]))),
        }
    });
    let mut watch = cluster.watch_objects::<Value>(&query(None, Select::All));
    assert_eq!(seen(&mut watch).await, "x");
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "ERROR", &json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "old"}));
    };
    let (_, first) = tokio::join!(driver, seen(&mut watch));
    let mut both = [first, seen(&mut watch).await];
    both.sort();
    assert_eq!(both, ["gone x", "y"]);
    assert!(log.lines().iter().all(|line| !line.contains("configmaps/x")), "{:?}", log.lines());
    assert!(log.lines().len() < 14, "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn lists_replace_a_watch_only_until_the_right_is_granted() {
    let start = Instant::now();
    let (cluster, ends, log) = watching(move |req, _| {
        if req.is_watch() {
            return (start.elapsed() < Duration::from_secs(20)).then(forbidden);
        }
        Some(ok(page(20, vec![object("x", "1", 12)])))
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[]));
    assert_eq!(next(&mut watch).await, "poll only");
    assert_eq!(next(&mut watch).await, "x 1");
    assert_eq!(next(&mut watch).await, "silence", "it is reported once");
    assert_eq!(next(&mut watch).await, "back");
    assert_eq!(ends.lock().unwrap().len(), 1);
    assert!(log.lines().last().unwrap().contains("resourceVersion=20"), "it continues from the last list");
    send(&ends, "DELETED", &object("x", "1", 21));
    assert_eq!(next(&mut watch).await, "gone x 1");
}

#[tokio::test(start_paused = true)]
async fn known_objects_are_read_one_by_one_until_listing_is_allowed_again() {
    let start = Instant::now();
    let labelled = |name: &str, uid: &str| {
        let mut object = object(name, uid, 12);
        object["metadata"]["labels"] = json!({"a": "b"});
        object
    };
    let (cluster, ends, _) = watching(move |req, _| {
        if req.path.ends_with("/x") {
            return Some(ok(labelled("x", "1")));
        }
        if start.elapsed() < Duration::from_secs(10) {
            return Some(forbidden());
        }
        (!req.is_watch()).then(|| ok(page(20, vec![labelled("x", "1"), labelled("y", "2")])))
    });
    let known = Known { resource_version: None, ..known("", &[("x", "1")]) };
    let mut watch = cluster.watch(&query(Some("a"), Select::Labels("a=b".into())), known);
    assert_eq!(next(&mut watch).await, "poll only");
    assert_eq!(next(&mut watch).await, "x 1");
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(next(&mut watch).await, "y 2");
    assert_eq!(next(&mut watch).await, "back");
    assert_eq!(ends.lock().unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn it_is_reported_once_that_lists_are_forbidden_too() {
    let start = Instant::now();
    let (cluster, _, _) = watching(move |req, _| {
        if req.path.ends_with("/x") {
            return Some(ok(object("x", "1", 12)));
        }
        let is_forbidden = req.is_watch() || start.elapsed() > Duration::from_secs(5);
        Some(if is_forbidden { forbidden() } else { ok(page(20, vec![object("x", "1", 12)])) })
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1")]));
    assert_eq!(next(&mut watch).await, "poll only");
    assert_eq!(next(&mut watch).await, "x 1");
    assert_eq!(next(&mut watch).await, "poll only");
    for _ in 0..5 {
        assert_eq!(next(&mut watch).await, "silence");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_may_not_be_read_does_not_hide_others() {
    let start = Instant::now();
    let (cluster, _, _) = watching(move |req, _| {
        let is_gone = start.elapsed() > Duration::from_secs(5);
        Some(match req.path.rsplit('/').next() {
            Some("x") if is_gone => missing("configmaps", "x"),
            Some("x") => ok(object("x", "1", 12)),
            _ => forbidden(),
        })
    });
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known("10", &[("x", "1"), ("y", "2")]));
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(next(&mut watch).await);
    }
    assert_eq!(seen, ["poll only", "poll only", "poll only", "x 1"], "for the watch, the list and the read of y");
    assert_eq!(next(&mut watch).await, "gone x 1");
    assert_eq!(next(&mut watch).await, "silence");
}

#[tokio::test(start_paused = true)]
async fn an_unsupported_watch_is_retried_rarely() {
    let (cluster, _, log) = watching(|req, _| {
        let refused = || status(405, "MethodNotAllowed", "the server does not allow this method");
        Some(if req.is_watch() { refused() } else { ok(page(20, Vec::new())) })
    });
    let mut watch = cluster.watch_objects::<Value>(&query(None, Select::All));
    assert_eq!(seen(&mut watch).await, "silence");
    let watches = log.lines().iter().filter(|line| line.contains("watch=true")).count();
    assert!((5..9).contains(&watches), "{watches}");
}

#[derive(Debug, serde::Deserialize, PartialEq)]
struct Counted {
    count: u8,
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_decoded_does_not_hide_others() {
    let counted = |name: &str, version: u64, count: Value| {
        let mut object = object(name, name, version);
        object["count"] = count;
        object
    };
    let list = page(9, vec![counted("bad", 5, json!("secret")), counted("x", 6, json!(1))]);
    let (cluster, ends, log) = watching(move |req, _| (!req.is_watch()).then(|| ok(list.clone())));
    let mut watch = cluster.watch_objects::<Counted>(&query(None, Select::All));
    assert_eq!(watch.next().await, Some(ObjectChange::Present(Counted { count: 1 })));
    let driver = async {
        opened(&ends, 1).await;
        send(&ends, "ADDED", &counted("worse", 10, json!(-1)));
        send(&ends, "MODIFIED", &counted("bad", 11, json!(2)));
    };
    let (_, corrected) = tokio::join!(driver, watch.next());
    assert_eq!(corrected, Some(ObjectChange::Present(Counted { count: 2 })));
    assert_eq!(log.lines().len(), 2, "one list, one watch: {:?}", log.lines());
}
