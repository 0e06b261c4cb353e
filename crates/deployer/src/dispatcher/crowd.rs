//! Many items, and tenants that do their worst, under a paused clock with a scripted helm.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Output},
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use billhook_charts::Helm;
use billhook_cluster::{Cluster, Fence, Options};
use billhook_hosts::Dialer;
use billhook_sandbox::{Sandbox, User};
use http::{Request, Response};
use http_body_util::StreamBody;
use hyper::body::{Bytes, Frame};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, PostParams},
    client::Body,
};
use serde_json::{Value, json};
use tower::BoxError;

use super::*;
use crate::{
    api::KUBERNETES_CLUSTER,
    crashes::Places,
    events::Recorder,
    fair::FairSlots,
    helms::Helms,
    metrics::Metrics,
    mode::Mode,
    shard::Shard,
    shared::ControllerOptions,
    target::{Connect, ConnectionRules, Targets},
};

/// How long each request to the cluster of a well-behaved tenant takes.
const LATENCY: Duration = Duration::from_millis(20);

/// What a cluster does, by the host of its kubeconfig.
const GOOD: &str = "10.0.0.1";
/// It never answers.
const DEAD: &str = "10.0.0.2";
/// Its answers never end.
const ENDLESS: &str = "10.0.0.3";
/// Its lists never end.
const LISTS: &str = "10.0.0.4";

/// Runs a controller without its Lease on a sandbox.
struct Crowd {
    home: Client,
    _sandbox: Sandbox,
    _controller: tokio::task::JoinHandle<()>,
}

impl Crowd {
    async fn start() -> Self {
        Self::with(Helms::new(helm(), Dialer::default())).await
    }

    async fn with(helms: Helms) -> Self {
        let sandbox = Sandbox::start(billhook_sandbox::Options::default());
        let target = Sandbox::start(billhook_sandbox::Options::default().seed(1));
        let home = sandbox.client(User::admin(), "");
        for crd in crate::crds::definitions().unwrap() {
            create(&home, crd).await;
        }
        // Until they are served.
        tokio::time::sleep(Duration::from_secs(5)).await;
        for namespace in ["good", "bad"] {
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
            create(&home, object.clone()).await;
            create(&target.client(User::admin(), ""), object).await;
        }
        for (namespace, name, host) in [
            ("good", "good", GOOD),
            ("bad", "dead", DEAD),
            ("bad", "endless", ENDLESS),
            ("bad", "lists", LISTS),
            ("bad", "works", GOOD),
        ] {
            create(&home, target_at(namespace, name, host)).await;
        }
        let mut dispatcher = Dispatcher::new(Arc::new(shared(&sandbox, target, helms)));
        let controller = tokio::spawn(async move { dispatcher.run().await });
        Self { home, _sandbox: sandbox, _controller: controller }
    }

    /// Adds a namespace with a Target that works.
    async fn add_namespace(&self, name: &str) {
        create(&self.home, json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } })).await;
        create(&self.home, target_at(name, "works", GOOD)).await;
    }

    async fn deploy(&self, items: Vec<Value>) {
        for item in items {
            create(&self.home, item).await;
        }
    }

    async fn phases(&self, namespace: &str) -> Vec<Option<Phase>> {
        self.phases_by_name(namespace).await.into_values().collect()
    }

    async fn phases_by_name(&self, namespace: &str) -> BTreeMap<String, Option<Phase>> {
        let items: Api<DeployItem> = Api::namespaced(self.home.clone(), namespace);
        let items = items.list(&Default::default()).await.unwrap();
        let phase = |item: DeployItem| (item.metadata.name.unwrap(), item.status.and_then(|status| status.phase));
        items.items.into_iter().map(phase).collect()
    }

    /// Returns how long it takes until all items in a namespace have succeeded.
    async fn until_succeeded(&self, namespace: &str, check: Duration, limit: Duration) -> Duration {
        let begun = Instant::now();
        loop {
            let phases = self.phases(namespace).await;
            assert!(!phases.contains(&Some(Phase::Failed)), "{phases:?}");
            if phases.iter().all(|phase| *phase == Some(Phase::Succeeded)) {
                return begun.elapsed();
            }
            assert!(begun.elapsed() < limit, "{phases:?}");
            tokio::time::sleep(check).await;
        }
    }
}

fn target_at(namespace: &str, name: &str, host: &str) -> Value {
    // No two share a connection.
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": name,
        "contexts": [{ "name": name, "context": { "cluster": name, "user": name } }],
        "clusters": [{ "name": name, "cluster": { "server": format!("http://{host}") } }],
        "users": [{ "name": name, "user": {} }],
    });
    json!({
        "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "Target",
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "type": KUBERNETES_CLUSTER, "config": { "kubeconfig": kubeconfig } },
    })
}

fn shared(home: &Sandbox, target: Sandbox, helms: Helms) -> Shared {
    let home = Cluster::from_client(home.client(User::admin(), "billhook"), Options::default());
    let begun = Instant::now();
    let now: Arc<dyn Fn() -> Timestamp + Send + Sync> =
        Arc::new(move || Timestamp::UNIX_EPOCH + jiff::SignedDuration::try_from(begun.elapsed()).unwrap());
    let connect: Connect = Arc::new(move |config, options| {
        let host = config.cluster_url.host().unwrap().to_owned();
        Ok(Cluster::from_client(cluster(&host, target.client(User::admin(), "billhook")), options))
    });
    let metrics = Metrics::new();
    let options = ControllerOptions {
        mode: Mode::Standalone,
        namespaces: Vec::new(),
        namespace_selector: None,
        identity: "i".to_owned(),
        shard: Shard::default(),
        connect: Arc::clone(&connect),
        now: Arc::clone(&now),
        helm: Helm::new("helm"),
        target_selectors: Vec::new(),
        connections: ConnectionRules::default(),
        metrics: metrics.clone(),
        leader_election: None,
        max_items: 1000,
        grace: Duration::ZERO,
    };
    let (events, writer) = Recorder::new(home.clone(), "i", now, metrics.events_dropped());
    tokio::spawn(writer.run());
    let targets = Targets::new(home.clone(), connect, ConnectionRules::default(), Fence::open(), metrics.clone());
    Shared { home, targets, options, metrics, events, helms, term: None, crash: None, places: Places::default() }
}

/// Returns a client of the cluster at a host.
fn cluster(host: &str, sandbox: Client) -> Client {
    let host = host.to_owned();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (host, sandbox) = (host.clone(), sandbox.clone());
        async move {
            let endless = |text: &'static str| {
                let frames = futures::stream::repeat_with(move || {
                    Ok::<_, BoxError>(Frame::data(Bytes::from(text.repeat(4096))))
                });
                Ok::<_, BoxError>(Response::new(StreamBody::new(frames.boxed())))
            };
            let is_list = request.method() == http::Method::GET && request.uri().path().ends_with("/configmaps");
            match host.as_str() {
                DEAD => std::future::pending().await,
                ENDLESS => endless("    "),
                LISTS if is_list => {
                    let item = |n: u32| {
                        json!({ "metadata": { "name": format!("{n}"), "namespace": "bad", "uid": format!("{n}"),
                        "resourceVersion": "1", "annotations": { "x": "x".repeat(1000) } } })
                    };
                    let page = json!({ "metadata": { "resourceVersion": "1", "continue": "more" },
                        "items": (0..500).map(item).collect::<Vec<_>>() });
                    let frames = futures::stream::iter([Ok(Frame::data(Bytes::from(page.to_string())))]);
                    Ok(Response::new(StreamBody::new(frames.boxed())))
                }
                _ => {
                    tokio::time::sleep(LATENCY).await;
                    let (parts, body) = sandbox.send(request).await?.into_parts();
                    let frames = http_body_util::BodyStream::new(body).map(|frame| frame.map_err(BoxError::from));
                    Ok(Response::from_parts(parts, StreamBody::new(frames.boxed())))
                }
            }
        }
    });
    Client::new(service, "default")
}

/// Returns a helm that installs a release in the time that its name begins with, in seconds, and otherwise never.
fn helm() -> Helm {
    let installed = Arc::new(Mutex::new(BTreeSet::new()));
    Helm::scripted(move |arguments| {
        let installed = Arc::clone(&installed);
        async move {
            let output = |code: i32, stdout: &str, stderr: &str| Output {
                status: ExitStatus::from_raw(code << 8),
                stdout: stdout.into(),
                stderr: stderr.into(),
            };
            let end = arguments.len();
            match arguments[0].as_str() {
                "version" => output(0, "v4.0.0", ""),
                "upgrade" => {
                    let name = arguments[end - 2].clone();
                    let Some(seconds) = name.split('-').next().and_then(|first| first.parse().ok()) else {
                        return std::future::pending().await;
                    };
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    installed.lock().unwrap_or_else(PoisonError::into_inner).insert(name);
                    output(0, "", "")
                }
                "get" => match installed.lock().unwrap_or_else(PoisonError::into_inner).contains(&arguments[end - 1]) {
                    true => output(0, "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", ""),
                    false => output(1, "", "Error: release: not found"),
                },
                _ => match arguments[end - 2].split('-').next().and_then(|first| first.parse().ok()) {
                    Some(seconds) => {
                        tokio::time::sleep(Duration::from_secs(seconds)).await;
                        output(0, &never_ready(&arguments[end - 2]), "")
                    }
                    // A template without end.
                    None => std::future::pending().await,
                },
            }
        }
        .boxed()
    })
}

/// Returns a large StatefulSet that never becomes ready; nothing for releases with other names than `…-large-…`.
fn never_ready(name: &str) -> String {
    if !name.contains("-large-") {
        return String::new();
    }
    let (note, labels) = ("x".repeat(200 << 10), json!({ "app": name }));
    let template =
        json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "a", "image": "a" }] } });
    let spec =
        json!({ "replicas": 1, "serviceName": "a", "selector": { "matchLabels": labels }, "template": template });
    let metadata = json!({ "name": name, "annotations": { "note": note } });
    json!({ "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "spec": spec }).to_string()
}

pub(crate) async fn create(client: &Client, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let types = object.types.clone().unwrap();
    let resource = ApiResource::from_gvk(&kube::api::GroupVersionKind::try_from(&types).unwrap());
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap();
}

pub(crate) fn item(namespace: &str, target: &str, name: &str, of: &str, config: Value) -> Value {
    json!({
        "apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem",
        "metadata": { "namespace": namespace, "name": name },
        "spec": { "type": format!("landscaper.gardener.cloud/{of}"), "target": { "name": target }, "config": config },
    })
}

/// Returns items with three ConfigMaps each.
fn manifests(namespace: &str, target: &str, count: usize) -> Vec<Value> {
    let one = |index: usize| {
        let name = format!("{target}-{index}");
        let manifest = |n: usize| {
            json!({ "policy": "manage", "manifest": {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": format!("{name}-{n}"), "namespace": namespace },
            }})
        };
        let config = json!({
            "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2", "kind": "ProviderConfiguration",
            "manifests": (0..3).map(manifest).collect::<Vec<_>>(),
        });
        item(namespace, target, &name, "kubernetes-manifest", config)
    };
    (0..count).map(one).collect()
}

/// Returns items that helm deploys, or only renders.
pub(crate) fn charts(
    namespace: &str,
    target: &str,
    prefix: &str,
    chart: &Value,
    deployed: bool,
    count: usize,
) -> Vec<Value> {
    let one = |index: usize| {
        let name = format!("{prefix}-{index}");
        let config = json!({
            "apiVersion": "helm.deployer.landscaper.gardener.cloud/v1alpha1", "kind": "ProviderConfiguration",
            "name": name, "namespace": namespace, "chart": chart, "helmDeployment": deployed,
        });
        item(namespace, target, &format!("helm-{name}"), "helm", config)
    };
    (0..count).map(one).collect()
}

/// Returns a packed chart.
pub(crate) fn packed() -> Value {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut archive = tar::Builder::new(Vec::new());
    let chart = b"{apiVersion: v2, name: shop, version: 0.1.0}";
    let mut header = tar::Header::new_gnu();
    header.set_size(chart.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "shop/Chart.yaml", chart.as_slice()).unwrap();
    packed.write_all(&archive.into_inner().unwrap()).unwrap();
    json!({ "archive": { "raw": STANDARD.encode(packed.finish().unwrap()) } })
}

#[tokio::test(start_paused = true)]
async fn five_hundred_releases_that_take_two_minutes_each_succeed() {
    let crowd = Crowd::start().await;
    crowd.deploy(charts("good", "good", "120", &packed(), true, 500)).await;
    let took = crowd.until_succeeded("good", Duration::from_secs(600), Duration::from_secs(24 * 3600)).await;
    // Three at a time: the time limit of ten minutes does not count while an item waits for its turn.
    assert!(took > Duration::from_secs(500 / 3 * 120), "{took:?}");
}

/// Deploys the items of the well-behaved tenant, and returns how long it takes.
async fn good(crowd: &Crowd) -> Duration {
    let items = [manifests("good", "good", 60), charts("good", "good", "30", &packed(), true, 6)].concat();
    crowd.deploy(items).await;
    crowd.until_succeeded("good", Duration::from_millis(250), Duration::from_secs(3600)).await
}

#[tokio::test(start_paused = true)]
async fn a_hostile_tenant_does_not_slow_others_down() {
    let undisturbed = good(&Crowd::start().await).await;

    let crowd = Crowd::start().await;
    // It accepts connections and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/charts", listener.local_addr().unwrap());
    let tarpit =
        json!({ "helmChartRepo": { "helmChartRepoUrl": url, "helmChartName": "shop", "helmChartVersion": "0.1.0" } });
    let bad = [
        manifests("bad", "dead", 200),
        manifests("bad", "endless", 20),
        manifests("bad", "lists", 3),
        charts("bad", "works", "tarpit", &tarpit, true, 50),
        charts("bad", "works", "poison", &packed(), false, 50),
        charts("bad", "works", "slow", &packed(), true, 50),
        charts("bad", "dead", "dead", &packed(), true, 50),
    ];
    crowd.deploy(bad.concat()).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let disturbed = good(&crowd).await;
    assert!(disturbed <= undisturbed * 2, "{disturbed:?} instead of {undisturbed:?}");
    assert!(undisturbed > Duration::from_secs(30), "{undisturbed:?}");
    // Of the tenant's own items, those succeed whose Target sends endless lists only: their objects are looked up by name instead.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let phases = crowd.phases_by_name("bad").await;
    let with = |phase| {
        let names = phases.iter().filter(move |(_, found)| **found == Some(phase)).map(|(name, _)| name.as_str());
        names.collect::<BTreeSet<_>>()
    };
    assert_eq!(with(Phase::Succeeded), ["lists-0", "lists-1", "lists-2"].into());
    let failed = with(Phase::Failed);
    let ended = |kind: &str, count: usize| (0..count).all(|index| failed.contains(&*format!("{kind}-{index}")));
    assert!(ended("dead", 200) && ended("endless", 20), "{phases:?}");
    drop(listener);
}

#[tokio::test(start_paused = true)]
async fn namespaces_that_render_without_end_leave_turns_to_others() {
    let crowd = Crowd::start().await;
    for namespace in ["bad-1", "bad-2", "bad-3", "bad-4", "bad-5", "bad-6"] {
        crowd.add_namespace(namespace).await;
        let mut items = charts(namespace, "works", "poison", &packed(), false, 20);
        items.iter_mut().for_each(|item| item["spec"]["timeout"] = "none".into());
        crowd.deploy(items).await;
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    crowd.deploy(charts("good", "good", "1", &packed(), false, 3)).await;
    let took = crowd.until_succeeded("good", Duration::from_secs(10), Duration::from_secs(3600)).await;
    // Each of its turns comes after one of each other namespace at most, four at a time.
    assert!(took < Duration::from_secs(3 * 2 * 180), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_rendered_counts_until_the_work_ends() {
    let helms = Helms { rendered: FairSlots::new(16), ..Helms::new(helm(), Dialer::default()) };
    let rendered = helms.rendered.clone();
    let crowd = Crowd::with(helms).await;
    crowd.deploy(charts("bad", "works", "1-large", &packed(), false, 20)).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    // Each takes four, and a namespace gets more only while it has fewer than are free.
    assert_eq!(rendered.counts().used, 8);
    let items: Api<DeployItem> = Api::namespaced(crowd.home.clone(), "bad");
    let reason = |item: DeployItem| item.status?.last_error.map(|error| error.reason);
    let reasons: Vec<_> = items.list(&Default::default()).await.unwrap().items.into_iter().filter_map(reason).collect();
    assert_eq!(reasons, ["Busy"; 18]);
    crowd.deploy(charts("good", "good", "1", &packed(), false, 3)).await;
    crowd.until_succeeded("good", Duration::from_secs(10), Duration::from_secs(60)).await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(rendered.counts().used, 0);
}
