use std::sync::{
    atomic::{AtomicI64, Ordering},
    mpsc,
};

use billhook_charts::Helm;
use billhook_cluster::Options;
use billhook_endpoints::{router, serve};
use billhook_sandbox::{Sandbox, User};
use kube::{
    Api, CustomResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Builder,
    task::yield_now,
    time::{advance, sleep},
};

use super::*;
use crate::{
    api::{DeployItem, Target},
    metrics::Metrics,
    mode::Mode,
    shard::Shard,
    target::{Connect, ConnectionRules},
};

fn options(lease: Option<LeaseOptions>) -> ControllerOptions {
    let connect: Connect = Arc::new(|_, _| unreachable!("no item has a Target"));
    // A write that changes nothing has no version.
    let seconds = AtomicI64::new(0);
    let now = move || Timestamp::from_second(seconds.fetch_add(1, Ordering::Relaxed)).unwrap();
    ControllerOptions {
        mode: Mode::Standalone,
        namespaces: Vec::new(),
        namespace_selector: None,
        identity: "own".to_owned(),
        shard: Shard::default(),
        connect,
        now: Arc::new(now),
        helm: Helm::new("helm"),
        target_selectors: Vec::new(),
        connections: ConnectionRules::default(),
        metrics: Metrics::new(),
        leader_election: lease,
        max_items: 100,
        grace: Duration::ZERO,
    }
}

fn cluster(sandbox: &Sandbox, name: &str) -> Cluster {
    Cluster::from_client(sandbox.client(User::admin(), name), Options::default())
}

/// Starts a server with the kinds.
async fn served() -> Sandbox {
    let sandbox = Sandbox::start(billhook_sandbox::Options::default());
    let kinds = Api::all(sandbox.client(User::admin(), "other"));
    for kind in [DeployItem::crd(), Target::crd()] {
        kinds.create(&PostParams::default(), &kind).await.unwrap();
    }
    sleep(Duration::from_secs(5)).await;
    sandbox
}

fn lease(sandbox: &Sandbox) -> Option<Value> {
    sandbox.objects().into_iter().find(|object| object["kind"] == "Lease")
}

/// Returns the version of the Lease, if a process of this identity holds it.
fn held(sandbox: &Sandbox, identity: &str) -> Option<String> {
    let lease = lease(sandbox).filter(|lease| lease["spec"]["holderIdentity"] == identity)?;
    lease["metadata"]["resourceVersion"].as_str().map(str::to_owned)
}

/// Lets a time pass in steps of a second. Other tasks run meanwhile.
async fn pass(seconds: u32) {
    for _ in 0..seconds {
        advance(Duration::from_secs(1)).await;
        for _ in 0..50 {
            yield_now().await;
        }
    }
}

/// Returns the status code of an answer.
async fn get(address: std::net::SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

/// The loop of a controller blocks its thread. Another thread, whose clock the test moves, holds the Lease and serves the endpoints.
#[test]
fn a_blocked_loop_fails_its_liveness_and_gives_its_lease_up() {
    let apart = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let sandbox = apart.block_on(served());
    let own = LeaseOptions::new("default", "billhook-controller", "own");
    let home = apart.block_on(async { cluster(&sandbox, "lease") });
    let options = options(Some(own.clone()));
    let metrics = options.metrics.clone();
    let main = Builder::new_current_thread().enable_all().build().unwrap();
    let controller = {
        let _inside = main.enter();
        Controller::new(cluster(&sandbox, "controller"), options)
    };
    let controller = controller.with_lease_apart(Apart { runtime: apart.handle().clone(), home });
    let probes = controller.probes();
    assert_eq!((probes.live)(), Ok(()));
    assert!((probes.ready)().is_err());
    let (blocked, is_blocked) = tokio::sync::oneshot::channel();
    let (unblock, until) = mpsc::channel::<()>();
    let (held_by, watched) = (sandbox.clone(), sandbox.clone());
    let blocking = std::thread::spawn(move || {
        main.block_on(async {
            let block = async {
                while held(&held_by, "own").is_none() {
                    yield_now().await;
                }
                blocked.send(()).unwrap();
                // Nothing else runs in this thread any more.
                until.recv().ok();
            };
            tokio::select! {
                ended = controller.run(CancellationToken::new()) => panic!("{ended:?}"),
                () = block => {}
            }
        });
    });
    apart.block_on(async {
        // A blocking task stops the clock, which otherwise moves on by itself.
        let (done, running) = mpsc::channel::<()>();
        let clock = tokio::task::spawn_blocking(move || running.recv());
        is_blocked.await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let scrape = Arc::new(move || metrics.encode());
        let server = tokio::spawn(serve(listener, router(scrape, probes), std::future::pending()));
        assert_eq!(get(address, "/healthz").await, "200");
        let mut versions = std::collections::BTreeSet::new();
        for _ in 0..25 {
            pass(1).await;
            versions.insert(held(&watched, "own").unwrap());
        }
        assert!(versions.len() > 10, "it was renewed {} times", versions.len());
        assert_eq!(get(address, "/healthz").await, "200");
        pass(20).await;
        let last = held(&watched, "own");
        let other = LeaseOptions { identity: "other".to_owned(), ..own };
        let other_home = cluster(&watched, "other");
        let taken = tokio::spawn(async move { other_home.acquire(&other).await });
        pass(8).await;
        assert_eq!(held(&watched, "own"), last);
        pass(16).await;
        assert!(held(&watched, "other").is_some(), "{:?}", lease(&watched));
        assert_eq!(taken.await.unwrap().predecessor().map(|before| before.identity.as_str()), Some("own"));
        assert_eq!(get(address, "/healthz").await, "503");
        assert_eq!(get(address, "/metrics").await, "200");
        server.abort();
        drop(done);
        clock.await.unwrap().unwrap_err();
    });
    unblock.send(()).unwrap();
    blocking.join().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_controller_is_ready_while_it_knows_the_items() {
    let sandbox = served().await;
    let controller = Controller::new(cluster(&sandbox, "controller"), options(None));
    let probes = controller.probes();
    let check = async {
        assert!((probes.ready)().is_err());
        sleep(Duration::from_secs(5)).await;
        assert_eq!((probes.ready)(), Ok(()));
        sandbox.take_away(Duration::from_secs(300));
        sleep(Duration::from_secs(200)).await;
        assert!((probes.ready)().is_err());
        assert_eq!((probes.live)(), Ok(()));
        sleep(Duration::from_secs(200)).await;
        assert_eq!((probes.ready)(), Ok(()));
    };
    tokio::select! {
        ended = controller.run(CancellationToken::new()) => panic!("{ended:?}"),
        () = check => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_served_while_it_has_the_label() {
    let sandbox = served().await;
    let client = sandbox.client(User::admin(), "other");
    let selector = "billhook.dev/deployitems=enabled".parse().unwrap();
    let options = ControllerOptions { namespace_selector: Some(selector), ..options(None) };
    let controller = Controller::new(cluster(&sandbox, "controller"), options);
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    for name in ["shop", "store"] {
        let namespace = serde_json::from_value(json!({ "metadata": { "name": name } })).unwrap();
        namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    }
    let items = |namespace: &str| Api::<DeployItem>::namespaced(client.clone(), namespace);
    let create = async |namespace: &str, name: &str| {
        let item = json!({
            "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem", "metadata": { "name": name },
            // It fails, because it has no configuration.
            "spec": { "type": crate::dispatcher::TYPES[0] },
        });
        items(namespace).create(&PostParams::default(), &serde_json::from_value(item).unwrap()).await.unwrap();
        sleep(Duration::from_secs(10)).await;
    };
    let handled = async |namespace: &str, name: &str| items(namespace).get(name).await.unwrap().status.is_some();
    let label = async |value: Option<&str>| {
        let patch = json!({ "metadata": { "labels": { "billhook.dev/deployitems": value } } });
        namespaces.patch("shop", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        sleep(Duration::from_secs(10)).await;
    };
    let check = async {
        create("shop", "a").await;
        create("store", "a").await;
        assert!(!handled("shop", "a").await);
        label(Some("enabled")).await;
        assert!(handled("shop", "a").await && !handled("store", "a").await);
        create("shop", "b").await;
        assert!(handled("shop", "b").await);
        label(None).await;
        create("shop", "c").await;
        assert!(!handled("shop", "c").await);
        label(Some("enabled")).await;
        assert!(handled("shop", "c").await && !handled("store", "a").await);
    };
    tokio::select! {
        ended = controller.run(CancellationToken::new()) => panic!("{ended:?}"),
        () = check => {}
    }
}
