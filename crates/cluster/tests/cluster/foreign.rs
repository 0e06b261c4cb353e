//! Servers that others choose.

use std::{
    io::{self, BufRead as _, Write as _},
    net,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use billhook_cluster::{Cluster, ErrorKind, Options};
use billhook_hosts::{Dialer, HostRules};
use billhook_plan::Select;
use futures::StreamExt as _;
use serde_json::json;
use tokio::net::TcpListener;

use crate::fake::{Answer, cluster_with, ok, query, status};

/// Returns rules that deny loopback by its addresses, so that its name is resolved.
fn rules() -> Arc<HostRules> {
    let deny = ["127.0.0.0/8", "::1"].map(|pattern| pattern.parse().unwrap()).to_vec();
    Arc::new(HostRules { deny, ..HostRules::default() })
}

fn connect(url: &str, foreign: Option<Arc<HostRules>>) -> Result<Cluster, billhook_cluster::Error> {
    let config = kube::Config::new(url.parse().unwrap());
    Cluster::connect(config, foreign.map_or_else(Options::default, Options::foreign))
}

#[tokio::test]
async fn a_name_is_checked_again_when_it_is_resolved() {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let cluster = connect(&format!("http://localhost:{port}"), Some(rules())).unwrap();
    let error = cluster.version().await.unwrap_err();
    let text = "read the server's version: connections to localhost are not allowed: it is denied by the configuration";
    assert_eq!((error.to_string().as_str(), error.kind()), (text, &ErrorKind::Other));
    assert!(!error.is_transient());
    assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "no connection was opened");

    let listener = TcpListener::from_std(listener).unwrap();
    let cluster = connect(&format!("http://localhost:{port}"), Some(Arc::default())).unwrap();
    let (_, accepted) = tokio::select! {
        answer = cluster.version() => panic!("{answer:?}"),
        accepted = listener.accept() => accepted.unwrap(),
    };
    assert!(accepted.ip().is_loopback());
}

#[tokio::test]
async fn an_address_is_checked_without_a_request() {
    for (url, allowed) in [
        ("http://127.0.0.1:1", false),
        ("http://[::1]:1", false),
        ("http://169.254.169.254", false),
        ("http://2130706433", false),
        ("http://10.0.0.1", true),
        ("http://a.example", true),
    ] {
        assert_eq!(connect(url, Some(rules())).is_ok(), allowed, "{url}");
        assert!(connect(url, None).is_ok(), "{url}");
    }
    assert!(Dialer::new(rules()).check("localhost").await.is_err());
    assert!(Dialer::new(rules()).check("[::1]").await.is_err());
    assert!(Dialer::default().check("localhost").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn errors_quote_only_answers_of_an_api_server() {
    for (foreign, quoted) in [
        (None, "read the server's version: password"),
        (Some(rules()), "read the server's version: the server answered 404"),
    ] {
        let options = Options { foreign, ..Options::default() };
        let (cluster, _) = cluster_with(options, |_| Answer::Text(404, "password"));
        assert_eq!(cluster.version().await.unwrap_err().to_string(), quoted);
    }
}

/// Starts a server that answers each request with a body that never ends: this head, then spaces. Returns its address, and the
/// most bytes that a connection took.
fn endless(head: &'static str) -> (String, Arc<AtomicUsize>) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicUsize::new(0));
    let most = Arc::clone(&sent);
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let most = Arc::clone(&most);
            std::thread::spawn(move || {
                // To a client, an answer before its request was sent is a broken connection.
                let lines = io::BufReader::new(&stream).lines().map_while(Result::ok);
                lines.take_while(|line| !line.is_empty()).for_each(drop);
                let mut bytes = 0;
                let mut send = |data: &[u8]| {
                    bytes += data.len();
                    most.fetch_max(bytes, Ordering::Relaxed);
                    stream.write_all(data).is_ok()
                };
                let start = format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{head}");
                let mut more = send(start.as_bytes());
                while more {
                    more = send(&[b' '; 1 << 16]);
                }
            });
        }
    });
    (url, sent)
}

#[tokio::test]
async fn an_answer_that_never_ends_is_an_error() {
    let (url, sent) = endless("{");
    let cluster = connect(&url, Some(Arc::default())).unwrap();
    let error = cluster.version().await.unwrap_err();
    assert_eq!(error.to_string(), "read the server's version: the answer has more than 16 MiB");
    assert!(!error.is_transient());
    // What the kernel has buffered was not read.
    assert!(sent.load(Ordering::Relaxed) < 48 << 20, "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_never_ends_is_an_error() {
    let options = Options::foreign(rules());
    let padding = "x".repeat(8 << 20);
    let (cluster, log) = cluster_with(options, move |_| {
        ok(json!({"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [], "padding": padding}))
    });
    let error = cluster.find(&query(Some("a"), Select::All), &|_| true).await.unwrap_err();
    assert_eq!(error.to_string(), "list ConfigMap in namespace a: the list has more than 64 MiB");
    assert!(!error.is_transient());
    assert_eq!(log.lines().len(), 8);
}

/// Counts the events that a log with the level `info` contains.
#[derive(Clone, Default)]
struct Logged(Arc<AtomicUsize>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn the_log_contains_nothing_that_a_server_says_which_others_choose() {
    for (foreign, logs) in [(None, true), (Some(rules()), false)] {
        let logged = Logged::default();
        let _log = tracing::subscriber::set_default(logged.clone());
        let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let list = format!(
            r#"{{"metadata": {{"resourceVersion": "1"}}, "items": [{{"metadata": {{"name": "a", "uid": "u", "resourceVersion": "1"}}, "data": {deep}}}]}}"#
        );
        let list: &'static str = list.leak();
        let options = Options { foreign, ..Options::default() };
        let mut watches = 0;
        let (cluster, _) = cluster_with(options, move |req| match req.is_watch() {
            false => Answer::Text(200, list),
            true => {
                watches += 1;
                status(if watches % 2 == 1 { 503 } else { 410 }, "ServiceUnavailable", "much text")
            }
        });
        let mut watch = cluster.watch_objects::<serde_json::Value>(&query(Some("a"), Select::All));
        let _silent = tokio::time::timeout(std::time::Duration::from_secs(60), watch.next()).await;
        assert_eq!(logged.0.load(Ordering::Relaxed) > 0, logs);
    }
}
