//! Servers that send more than they should: what is read is limited.

use std::{
    io::Write as _,
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use billhook_cluster::{Change, Cluster, Error, ErrorKind, Known, Options};
use billhook_objects::{GroupKind, ObjectKey};
use billhook_plan::{Listed, Select};
use flate2::{Compression, write::GzEncoder};
use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::fake::{Answer, Req, cluster_with, configmaps, object, ok, query};

const LIMIT: usize = 1 << 20;

fn limited() -> Options {
    Options { page_size: 500, answer_limit: LIMIT, list_limit: 3 * LIMIT, ..Options::foreign(Arc::default()) }
}

fn key() -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "b")
}

fn check(error: &Error, message: &str) {
    assert_eq!((error.kind(), error.message().as_ref()), (&ErrorKind::TooLarge, message));
    assert!(!error.is_transient());
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_end_is_not_read_to_its_end() {
    for code in [200, 404, 500] {
        let sent = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&sent);
        let (cluster, _) = cluster_with(limited(), move |_| Answer::Endless(code, Arc::clone(&counter)));
        let error = cluster.get(&configmaps(), &key()).await.unwrap_err();
        check(&error, "the answer has more than 1 MiB");
        let error = cluster.catalog().await.unwrap_err();
        check(&error, "the answer has more than 1 MiB");
        assert!(sent.load(Ordering::Relaxed) < 4 * LIMIT, "{sent:?} bytes were read");
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_too_large_is_requested_with_fewer_objects() {
    let options = Options { list_limit: usize::MAX, ..limited() };
    let (cluster, log) = cluster_with(options, |req| {
        let (begin, limit): (u32, u32) =
            (req.query("continue").parse().unwrap_or(0), req.query("limit").parse().unwrap());
        let end = (begin + limit).min(300);
        let next = if end < 300 { end.to_string() } else { String::new() };
        // Each has about 9 kB.
        let item = |n: u32| {
            let mut item = object(&format!("{n}"), &format!("u{n}"), 1);
            item["metadata"]["annotations"] = json!({ "x": "x".repeat(9000) });
            item
        };
        ok(
            json!({"metadata": {"resourceVersion": "1", "continue": next}, "items": (begin..end).map(item).collect::<Vec<_>>()}),
        )
    });
    let listings = cluster.snapshot(&[query(Some("a"), Select::All)]).await;
    let Listed::Items { items, .. } = &listings[0].found else { panic!("{listings:?}") };
    assert_eq!(items.len(), 300);
    let limit = |line: &String| line.split("limit=").nth(1).unwrap().split('&').next().unwrap().to_owned();
    assert_eq!(log.lines().iter().take(4).map(limit).collect::<Vec<_>>(), ["500", "125", "32", "32"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_without_end_is_not_read_to_its_end() {
    let page = |_: Req| {
        let items: Vec<Value> = (0..1000).map(|n| object(&format!("{n}"), &format!("u{n}"), 1)).collect();
        ok(json!({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": items}))
    };
    for select in [Select::All, Select::Labels("a=b".to_owned())] {
        let (cluster, log) = cluster_with(limited(), page);
        let listings = cluster.snapshot(&[query(Some("a"), select)]).await;
        let Listed::Failed(reason) = &listings[0].found else { panic!("{listings:?}") };
        assert_eq!(reason, "list ConfigMap in namespace a: the list has more than 3 MiB");
        assert!(log.lines().len() < 50, "{}", log.lines().len());
    }
}

#[tokio::test(start_paused = true)]
async fn small_objects_count_by_their_number() {
    let page = |_: Req| {
        let item = |n: u32| json!({"metadata": {"name": n.to_string(), "uid": "u", "resourceVersion": "1"}});
        let items: Vec<Value> = (0..1000).map(item).collect();
        ok(json!({"metadata": {"resourceVersion": "1", "continue": "more"}, "items": items}))
    };
    let (cluster, log) = cluster_with(limited(), page);
    let listings = cluster.snapshot(&[query(Some("a"), Select::All)]).await;
    assert!(matches!(&listings[0].found, Listed::Failed(_)), "{listings:?}");
    assert_eq!(log.lines().len(), 3 * LIMIT / 256 / 1000 + 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_may_list_a_limited_number_of_kinds() {
    let aggregated = |count: usize| {
        let resource = |n: usize| json!({"resource": n.to_string(), "responseKind": {"kind": n.to_string()}});
        let resources: Vec<_> = (0..count).map(resource).collect();
        let group = json!({"metadata": {"name": "x.example"}, "versions": [{"version": "v1", "resources": resources}]});
        ok(json!({"kind": "APIGroupDiscoveryList", "items": [group]}))
    };
    let groups = |count: usize, path: &str| match path {
        "/api" => ok(json!({"kind": "APIVersions", "versions": []})),
        _ => {
            let version = |n: usize| json!({"version": format!("v{n}")});
            let versions: Vec<_> = (0..count).map(version).collect();
            ok(json!({"kind": "APIGroupList", "groups": [{"name": "x.example", "versions": versions}]}))
        }
    };
    let options = || Options { answer_limit: 64 * LIMIT, ..limited() };
    for (count, error) in [(20_000, None), (20_001, Some("the server lists more than 20000 kinds"))] {
        let (cluster, _) = cluster_with(options(), move |req| match req.path.as_str() {
            "/api" => ok(json!({"kind": "APIGroupDiscoveryList", "items": []})),
            _ => aggregated(count),
        });
        assert_eq!(cluster.catalog().await.err().map(|error| error.message()).as_deref(), error);
    }
    let (cluster, log) = cluster_with(options(), move |req| groups(2001, &req.path));
    check(&cluster.catalog().await.unwrap_err(), "the server lists more than 2000 group versions");
    assert_eq!(log.lines().len(), 2);
    let (cluster, _) = cluster_with(options(), move |req| match req.path.strip_prefix("/apis/") {
        Some(_) => {
            let kind = |n: usize| json!({"name": n.to_string(), "kind": n.to_string(), "namespaced": true});
            ok(json!({"resources": (0..100).map(kind).collect::<Vec<_>>()}))
        }
        None => groups(2000, &req.path),
    });
    check(&cluster.catalog().await.unwrap_err(), "the server lists more than 20000 kinds");
}

#[tokio::test(start_paused = true)]
async fn an_event_without_end_breaks_the_watch() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&sent);
    let (cluster, log) = cluster_with(limited(), move |req| match req.is_watch() {
        true => Answer::Endless(200, Arc::clone(&counter)),
        false => ok(json!({"metadata": {"resourceVersion": "1"}, "items": []})),
    });
    let known = Known { resource_version: Some("1".to_owned()), objects: Vec::new() };
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known);
    let ended = tokio::time::timeout(Duration::from_secs(60), async {
        while log.lines().iter().filter(|line| line.contains("watch=true")).count() < 3 {
            watch.next().await;
        }
    });
    // It reports an outage and tries again, each time after a pause.
    let _reported = ended.await;
    let watches = log.lines().iter().filter(|line| line.contains("watch=true")).count();
    assert!((2..100).contains(&watches), "{watches}");
    assert!(sent.load(Ordering::Relaxed) < 2 * watches * LIMIT);
}

#[tokio::test(start_paused = true)]
async fn a_watch_knows_a_limited_number_of_objects() {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    for n in 0..20_000 {
        let object = object(&format!("{n}"), &format!("u{n}"), n);
        sender.send(json!({"type": "ADDED", "object": object})).unwrap();
    }
    let mut receiver = Some(receiver);
    let (cluster, _) = cluster_with(limited(), move |_| receiver.take().map_or(Answer::Hang, Answer::Lines));
    let known = Known { resource_version: Some("1".to_owned()), objects: Vec::new() };
    let mut watch = cluster.watch(&query(Some("a"), Select::All), known);
    let mut count = 0;
    while let Ok(Some(change)) = tokio::time::timeout(Duration::from_secs(1), watch.next()).await {
        assert!(matches!(change, Change::Present(_)), "{change:?}");
        count += 1;
    }
    assert_eq!(count, 3 * LIMIT / 256);
    drop(sender);
}

/// A small answer may become a large one when it is unpacked.
#[tokio::test]
async fn the_limit_counts_unpacked_bytes() {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&vec![b' '; 20 * LIMIT]).unwrap();
    let packed = packed.finish().unwrap();
    assert!(packed.len() < LIMIT);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _read = std::io::Read::read(&mut stream, &mut request).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", packed.len());
        stream.write_all(head.as_bytes()).unwrap();
        // The client may close the connection before it has read all.
        let _closed = stream.write_all(&packed);
    });
    let config = kube::Config::new(format!("http://127.0.0.1:{port}").parse().unwrap());
    let cluster = Cluster::connect(config, limited()).unwrap();
    check(&cluster.version().await.unwrap_err(), "the answer has more than 1 MiB");
    server.join().unwrap();
}
