//! Retries of requests.

use std::time::Duration;

use billhook_cluster::{ErrorKind, Known, Options};
use billhook_plan::Select;
use futures::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::fake::{Answer, cluster, cluster_with, ok, query, status};

fn version() -> Answer {
    ok(json!({"gitVersion": "v1.36.3"}))
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honored() {
    let mut n = 0;
    let (cluster, log) = cluster(move |_| {
        n += 1;
        if n == 1 { Answer::Busy(3) } else { version() }
    });
    assert_eq!(cluster.version().await.unwrap(), "v1.36.3");
    let gap = log.times()[1] - log.times()[0];
    assert!(gap >= Duration::from_secs(3) && gap < Duration::from_secs(4), "{gap:?}");
    assert_eq!(cluster.requests().total(), 2);
    assert_eq!(cluster.requests().get, 2);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_beyond_the_patience_is_returned() {
    let (server, log) = cluster(|_| Answer::Busy(90));
    let error = server.version().await.unwrap_err();
    assert_eq!((error.retry_after(), log.lines().len()), (Some(Duration::from_secs(90)), 1));
    let (server, _) = cluster(|_| status(500, "InternalError", "it broke"));
    assert_eq!(server.version().await.unwrap_err().retry_after(), None);
}

/// Whoever writes a Target chooses the server, which may send any number.
#[tokio::test(start_paused = true)]
async fn a_retry_after_that_no_clock_can_add_is_an_hour() {
    let body = json!({"kind": "Status", "status": "Failure", "code": 503, "details": {"retryAfterSeconds": u64::MAX}});
    let answers: [fn(&Value) -> Answer; 2] = [|_| Answer::Busy(u64::MAX), |body| Answer::Json(503, body.clone())];
    for huge in answers {
        let body = body.clone();
        let (server, _) = cluster(move |_| huge(&body));
        assert_eq!(server.version().await.unwrap_err().retry_after(), Some(Duration::from_secs(3600)));
    }
    let (server, log) = cluster(|_| Answer::Busy(u64::MAX));
    let known = Known { resource_version: Some("1".to_owned()), objects: Vec::new() };
    let mut watch = server.watch(&query(Some("a"), Select::All), known);
    let forever = async { while watch.next().await.is_some() {} };
    let _silent = tokio::time::timeout(Duration::from_secs(5 * 3600), forever).await;
    assert!((2..20).contains(&log.lines().len()), "{:?}", log.lines());
}

#[tokio::test(start_paused = true)]
async fn requests_are_retried_through_an_outage_of_ten_seconds() {
    let start = Instant::now();
    let mut n = 0;
    let (cluster, _) = cluster(move |_| {
        n += 1;
        match start.elapsed().as_secs() {
            5..15 if n % 3 == 0 => Answer::Reset,
            5..15 => Answer::Refused,
            // It is starting and has not loaded its rights yet.
            15..16 => status(403, "Forbidden", "User \"a\" cannot get path \"/version\""),
            _ => version(),
        }
    });
    cluster.version().await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    futures::future::try_join_all((0..100).map(|_| cluster.version())).await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(19), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn retries_end_sooner_if_the_server_has_never_answered() {
    let start = Instant::now();
    let mut answered = false;
    let (cluster, _) = cluster(move |_| {
        if start.elapsed() < Duration::from_secs(10) {
            return Answer::Refused;
        }
        if !std::mem::replace(&mut answered, true) { version() } else { Answer::Refused }
    });
    let error = cluster.version().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Unreachable);
    assert!(error.is_transient() && start.elapsed() < Duration::from_secs(6));
    assert_eq!(cluster.requests().total(), 0, "requests that were not sent do not count");
    assert_eq!(error.to_string(), "read the server's version: the server cannot be reached (connection refused)");
    tokio::time::sleep(Duration::from_secs(10)).await;
    cluster.version().await.unwrap();
    let before = Instant::now();
    cluster.version().await.unwrap_err();
    assert!(before.elapsed() > Duration::from_secs(55) && before.elapsed() <= Duration::from_secs(60));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_times_out_is_retried() {
    let mut n = 0;
    let options = Options { request_timeout: Duration::from_secs(7), ..Options::default() };
    let (cluster, log) = cluster_with(options, move |_| {
        n += 1;
        if n == 1 { Answer::Hang } else { version() }
    });
    cluster.version().await.unwrap();
    assert_eq!(log.times()[1].as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_permanent_failure_is_not_retried() {
    for (answer, kind) in [(status as fn(u16, &str, &str) -> Answer, ErrorKind::Forbidden), (status, ErrorKind::Other)]
    {
        let code = if kind == ErrorKind::Forbidden { 403 } else { 401 };
        let (cluster, log) = cluster(move |_| answer(code, "x", "User \"a\" cannot get path"));
        assert_eq!(*cluster.version().await.unwrap_err().kind(), kind);
        assert_eq!(log.lines().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_backend_is_a_blocker_and_not_an_outage() {
    let (cluster, log) = cluster(|_| Answer::Text(503, "service unavailable\n"));
    let error = cluster.version().await.unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::Webhook);
    assert!(*log.times().last().unwrap() < Duration::from_secs(3));
}
