use std::{
    io,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use billhook_sandbox::{Sandbox, User};
use futures::future::join_all;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    api::{Api, PostParams},
    client::Body,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    time::Instant,
};

use super::*;

/// A cluster that answers each request after a second, unless it is unavailable.
#[derive(Clone, Default)]
struct Slow {
    unavailable: Arc<AtomicBool>,
    requests: Arc<AtomicUsize>,
}

impl Slow {
    fn cluster(&self) -> Cluster {
        let slow = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let slow = slow.clone();
            async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let number = slow.requests.fetch_add(1, Ordering::Relaxed);
                if slow.unavailable.load(Ordering::Relaxed) {
                    return Err(io::Error::from(io::ErrorKind::ConnectionRefused));
                }
                let answer = match request.uri().path() {
                    "/version" => json!({ "gitVersion": format!("v1.{number}") }),
                    "/api" | "/apis" => json!({ "kind": "APIGroupDiscoveryList", "items": [] }),
                    _ => json!({ "kind": "Status", "code": 404, "reason": "NotFound", "details": { "name": "x" } }),
                };
                let code = if answer["code"] == 404 { 404 } else { 200 };
                Ok(Response::builder().status(code).body(Body::from(answer.to_string().into_bytes())).unwrap())
            }
        });
        Cluster::from_client(kube::Client::new(service, "default"), Options::default())
    }

    fn targets(&self) -> Targets {
        let slow = self.clone();
        let connect: Connect = Arc::new(move |_, _| Ok(slow.cluster()));
        Targets::new(self.cluster(), connect, ConnectionRules::default(), Fence::open(), Metrics::new())
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn kubeconfig(token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "contexts": [{ "name": "a", "context": { "cluster": "a", "user": "a" } }],
        "clusters": [{ "name": "a", "cluster": { "server": "http://a.example" } }],
        "users": [{ "name": "a", "user": { "token": token } }],
    })
}

/// Returns a Target with this configuration.
fn target(name: &str, config: Value) -> Target {
    let spec = json!({ "type": KUBERNETES_CLUSTER, "config": config });
    let value = json!({ "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "Target",
        "metadata": { "name": name, "namespace": "ns" }, "spec": spec });
    serde_json::from_value(value).unwrap()
}

fn with_token(name: &str, token: &str) -> Target {
    target(name, json!({ "kubeconfig": kubeconfig(token).to_string() }))
}

#[tokio::test(start_paused = true)]
async fn concurrent_callers_share_an_answer() {
    let slow = Slow::default();
    let targets = slow.targets();
    targets.insert(with_token("a", "1"));
    let open = targets.open("ns", "a").await.unwrap();
    let found = join_all((0..50).map(|_| open.catalog(Duration::from_secs(600)))).await;
    assert!(found.iter().all(Result::is_ok));
    assert_eq!(slow.requests(), 2, "/api and /apis");
    let begun = Instant::now();
    let found = join_all((0..50).map(|_| open.catalog(Duration::ZERO))).await;
    assert!(found.iter().all(Result::is_ok));
    assert!(begun.elapsed() < Duration::from_secs(3), "concurrent callers do not wait for each other");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_shared_by_concurrent_callers_and_soon_retried() {
    let slow = Slow::default();
    slow.unavailable.store(true, Ordering::Relaxed);
    let targets = slow.targets();
    targets.insert(with_token("a", "1"));
    let open = targets.open("ns", "a").await.unwrap();
    let begun = Instant::now();
    let kinds = join_all((0..200).map(|_| open.catalog(Duration::ZERO)));
    let versions = join_all((0..200).map(|_| open.version(Duration::ZERO)));
    let (kinds, versions) = tokio::join!(kinds, versions);
    assert!(kinds.iter().all(Result::is_err) && versions.iter().all(Result::is_err));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    slow.unavailable.store(false, Ordering::Relaxed);
    open.version(Duration::ZERO).await.unwrap_err();
    tokio::time::advance(FAILURE_AGE).await;
    open.version(Duration::ZERO).await.unwrap();
    open.catalog(Duration::ZERO).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_old_version_is_read_again() {
    let targets = Slow::default().targets();
    targets.insert(with_token("a", "1"));
    let open = targets.open("ns", "a").await.unwrap();
    let first = open.version(RENDER_AGE).await.unwrap();
    assert_eq!(open.version(RENDER_AGE).await.unwrap(), first);
    tokio::time::advance(RENDER_AGE).await;
    assert_ne!(open.version(RENDER_AGE).await.unwrap(), first);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_closed_when_no_target_uses_it() {
    let targets = Slow::default().targets();
    targets.insert(with_token("a", "1"));
    targets.insert(with_token("b", "1"));
    let open = targets.open("ns", "a").await.unwrap();
    assert!(Arc::ptr_eq(&open, &targets.open("ns", "b").await.unwrap()), "one kubeconfig, one connection");
    let held = Arc::downgrade(&open);
    drop(open);
    targets.insert(with_token("a", "2"));
    let other = Arc::downgrade(&targets.open("ns", "a").await.unwrap());
    assert!(held.upgrade().is_some(), "the other Target still uses it");
    targets.insert(with_token("b", "2"));
    targets.open("ns", "b").await.unwrap();
    assert!(held.upgrade().is_none());
    targets.remove("ns", "a");
    assert!(other.upgrade().is_some());
    targets.remove("ns", "b");
    assert!(other.upgrade().is_none());
}

#[tokio::test(start_paused = true)]
async fn metrics_show_whether_the_server_of_a_target_answers() {
    let slow = Slow::default();
    let targets = slow.targets();
    targets.insert(with_token("a", "1"));
    let key = ("ns".to_owned(), "a".to_owned());
    targets.metrics.add_target(&key);
    let open = targets.open("ns", "a").await.unwrap();
    targets.metrics.opened_target(&key, Some(&open));
    let shown = || {
        let text = targets.metrics.encode().unwrap();
        text.lines().find_map(|line| {
            line.strip_prefix("billhook_target_up{target_namespace=\"ns\",target=\"a\"} ")?.parse().ok()
        })
    };
    assert_eq!(shown(), None::<u8>);
    open.version(Duration::ZERO).await.unwrap();
    assert_eq!(shown(), Some(1));
    slow.unavailable.store(true, Ordering::Relaxed);
    open.version(Duration::ZERO).await.unwrap_err();
    assert_eq!(shown(), Some(0));
}

/// All Targets are kept, and whoever may write them could use up the memory otherwise.
#[tokio::test(start_paused = true)]
async fn a_configuration_that_is_too_large_is_not_kept() {
    let targets = Slow::default().targets();
    let large = target("a", json!({ "kubeconfig": "x".repeat(257 << 10) }));
    assert!(large.spec.config.as_ref().is_some_and(Value::is_string));
    targets.insert(large);
    let failure = targets.open("ns", "a").await.err().unwrap();
    assert!(failure.message.ends_with("more than 256 KiB, which is too large for a kubeconfig"), "{failure}");
    assert!(!failure.transient);
    assert_eq!(
        target("b", json!({ "kubeconfig": "x".repeat(255 << 10) })).spec.config.unwrap()["kubeconfig"]
            .as_str()
            .unwrap()
            .len(),
        255 << 10
    );
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_may_be_an_object() {
    let targets = Slow::default().targets();
    targets.insert(target("a", json!({ "kubeconfig": kubeconfig("1") })));
    assert_eq!(targets.open("ns", "a").await.unwrap().door.host, "a.example");
    targets.insert(target("a", json!({ "kubeconfig": 1 })));
    let failure = targets.open("ns", "a").await.err().unwrap();
    assert!(!failure.transient && failure.message.contains("must be a string or an object"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_target_or_secret_is_a_transient_failure() {
    let targets = Slow::default().targets();
    let failure = targets.open("ns", "a").await.err().unwrap();
    assert_eq!((failure.reason, failure.transient), ("NoTargetFound", true));
    let mut target = target("a", Value::Null);
    target.spec.config = None;
    target.spec.secret_ref = Some(serde_json::from_value(json!({ "name": "later" })).unwrap());
    targets.insert(target);
    let failure = targets.open("ns", "a").await.err().unwrap();
    assert_eq!((failure.reason, failure.transient), ("ReadSecret", true));
    assert!(failure.message.contains("ns/later"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn an_empty_key_of_a_secret_is_the_same_as_none() {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let home = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
    let connect: Connect = Arc::new(|_, _| Ok(Slow::default().cluster()));
    let targets = Targets::new(home, connect, ConnectionRules::default(), Fence::open(), Metrics::new());
    let secret = json!({ "metadata": { "name": "s" }, "stringData": { "kubeconfig": kubeconfig("1").to_string() } });
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets = Api::namespaced(sandbox.client(User::admin(), ""), "default");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    for reference in [json!({ "name": "s", "key": "" }), json!({ "name": "s" }), json!({ "name": "s", "key": null })] {
        let mut target = target("a", json!({}));
        target.metadata.namespace = Some("default".to_owned());
        target.spec =
            serde_json::from_value(json!({ "type": KUBERNETES_CLUSTER, "secretRef": reference.clone() })).unwrap();
        targets.insert(target);
        let open = targets.open("default", "a").await;
        assert!(open.is_ok_and(|open| open.door.host == "a.example"), "{reference}");
    }
}

/// A helm is a process of its own: it may still send when its leader was frozen and another one leads.
#[tokio::test]
async fn a_program_sends_nothing_once_the_fence_is_down() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = listener.local_addr().unwrap();
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let cluster = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
    let (own, leads) = (cluster.clone(), Arc::new(AtomicBool::new(true)));
    let fence = Fence::new("this process is no longer the leader", {
        let leads = Arc::clone(&leads);
        move || leads.load(Ordering::Relaxed)
    });
    let connect: Connect = Arc::new(move |_, _| Ok(own.clone()));
    let targets = Targets::new(cluster, connect, ConnectionRules::default(), fence, Metrics::new());
    let mut config = kubeconfig("x");
    config["clusters"][0]["cluster"]["server"] = json!(format!("http://{server}"));
    targets.insert(target("a", json!({ "kubeconfig": config })));
    let access = targets.open("ns", "a").await.unwrap().program_access(None).await.unwrap();
    let given: Value = serde_json::from_str(access.kubeconfig()).unwrap();
    let proxy = given["clusters"][0]["cluster"]["proxy-url"].as_str().unwrap().strip_prefix("http://").unwrap();
    let mut program = TcpStream::connect(proxy).await.unwrap();
    let request = format!("POST http://{server}/x HTTP/1.1\r\nContent-Length: 4\r\n\r\n");
    program.write_all(request.as_bytes()).await.unwrap();
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut head = vec![0; request.len()];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&head), request);
    assert_eq!(program.try_write(b"body").unwrap(), 4);
    leads.store(false, Ordering::Relaxed);
    let mut rest = Vec::new();
    let _ended = stream.read_to_end(&mut rest).await;
    assert_eq!(rest, b"");
}
