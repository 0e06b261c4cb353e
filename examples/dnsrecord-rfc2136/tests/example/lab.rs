//! A seed with the CRDs, a Secret and a Cluster; a DNS server; and the program as a process.

use std::{
    net::SocketAddr,
    ops::Deref,
    process::Stdio,
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use billhook_sandbox::{Options, Sandbox, Served};
use billhook_testkit::control_plane::{self, ControlPlane};
use kube::{
    Api, Client, Error,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::{Config, KubeConfigOptions, Kubeconfig},
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::{Child, Command},
    time::{Instant, sleep},
};

use crate::server::{DnsServer, KEY, SECRET, ZONE};

const GROUP: &str = "extensions.gardener.cloud";
const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const LIMIT: Duration = Duration::from_secs(60);

/// The control plane of all tests, each of which has a namespace of its own.
static CONTROL_PLANE: LazyLock<ControlPlane> =
    LazyLock::new(|| ControlPlane::start(&control_plane::Options::default()).unwrap());

/// The namespace of a Shoot in a seed, and a DNS server.
pub struct Seed {
    pub namespace: String,
    pub dns: DnsServer,
    client: Client,
}

/// The program, with its seed on some API server.
pub struct Lab {
    /// Which API server it is.
    pub server: &'static str,
    seed: Seed,
    program: Child,
    listen: SocketAddr,
    _sandbox: Option<(Sandbox, Served)>,
    _kubeconfig: tempfile::NamedTempFile,
}

impl Deref for Lab {
    type Target = Seed;

    fn deref(&self) -> &Seed {
        &self.seed
    }
}

fn kind(group: &str, version: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
}

/// Runs a test on the sandbox, and then on a real control plane.
pub async fn on_both(test: impl AsyncFn(Lab)) {
    let sandbox = Sandbox::start(Options::default());
    let served = sandbox.serve().await.unwrap();
    let kubeconfig = served.kubeconfig();
    test(Lab::start("sandbox", &kubeconfig, Some((sandbox, served))).await).await;
    let kubeconfig = tokio::task::spawn_blocking(|| CONTROL_PLANE.kubeconfig().to_owned()).await.unwrap();
    test(Lab::start("control plane", &kubeconfig, None).await).await;
}

impl Lab {
    async fn start(server: &'static str, kubeconfig: &str, sandbox: Option<(Sandbox, Served)>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let namespace = format!("shoot--{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let seed = Seed::start(client(kubeconfig).await, &namespace, DnsServer::start().await).await;
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), kubeconfig).unwrap();
        let listen = free_address().await;
        let program = Command::new(env!("CARGO_BIN_EXE_dnsrecord-rfc2136"))
            .arg("--kubeconfig")
            .arg(file.path())
            .args(["--namespace", &namespace, "--leader-election-namespace", &namespace])
            .args(["--listen", &listen.to_string()])
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { server, seed, program, listen, _sandbox: sandbox, _kubeconfig: file }
    }

    pub async fn http(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.listen).await.unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    /// Ends the program and returns its log.
    pub async fn stop(mut self) -> String {
        self.program.start_kill().unwrap();
        let mut log = String::new();
        self.program.stderr.take().unwrap().read_to_string(&mut log).await.unwrap();
        log
    }
}

impl Seed {
    /// Creates the CRDs, a namespace, a Secret for the DNS server and a Cluster.
    pub async fn start(client: Client, namespace: &str, dns: DnsServer) -> Self {
        serve_kinds(&client).await;
        let (namespaces, secrets) = (kind("", "v1", "Namespace"), kind("", "v1", "Secret"));
        create(&Api::all_with(client.clone(), &namespaces), &namespaces, json!({"metadata": {"name": namespace}}))
            .await;
        let data = json!({
            "Server": dns.address.to_string(), "Zone": ZONE, "TSIGKeyName": KEY, "TSIGSecret": BASE64_STANDARD.encode(SECRET),
        });
        let secret = json!({"metadata": {"name": "dns"}, "stringData": data});
        create(&Api::namespaced_with(client.clone(), namespace, &secrets), &secrets, secret).await;
        let clusters = kind(GROUP, "v1alpha1", "Cluster");
        // Gardener's Clusters have the name of the namespace.
        let cluster = json!({"metadata": {"name": namespace}, "spec": {"shoot": {}}});
        create(&Api::all_with(client.clone(), &clusters), &clusters, cluster).await;
        Self { namespace: namespace.to_owned(), dns, client }
    }

    fn records(&self) -> Api<DynamicObject> {
        self.api(&kind(GROUP, "v1alpha1", "DNSRecord"))
    }

    fn api(&self, kind: &ApiResource) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, kind)
    }

    /// Creates a DNSRecord.
    pub async fn record(&self, name: &str, spec: Value) {
        let mut all = json!({"type": "rfc2136", "secretRef": {"name": "dns", "namespace": self.namespace}});
        for (field, value) in spec.as_object().unwrap() {
            all[field] = value.clone();
        }
        let record = json!({"metadata": {"name": name}, "spec": all});
        create(&self.records(), &kind(GROUP, "v1alpha1", "DNSRecord"), record).await;
    }

    pub async fn patch(&self, name: &str, patch: Value) {
        self.records().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.records().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Asks for a reconciliation with these changes of the `spec`.
    pub async fn change(&self, name: &str, spec: Value) {
        let annotations = json!({"gardener.cloud/operation": "reconcile"});
        self.patch(name, json!({"metadata": {"annotations": annotations}, "spec": spec})).await;
    }

    /// Sets `status.state`.
    pub async fn set_state(&self, name: &str, state: Value) {
        let patch = Patch::Merge(json!({"status": {"state": state}}));
        self.records().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Removes the note, although it has a finalizer.
    pub async fn lose_note(&self, name: &str) {
        let (notes, name) = (self.api(&kind("", "v1", "ConfigMap")), format!("dnsrecord-rfc2136-{name}"));
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        notes.patch(&name, &PatchParams::default(), &patch).await.unwrap();
        notes.delete(&name, &DeleteParams::default()).await.unwrap();
    }

    /// Sets the zone in the Secret.
    pub async fn set_zone(&self, zone: &str) {
        let patch = Patch::Merge(json!({"stringData": {"Zone": zone}}));
        self.api(&kind("", "v1", "Secret")).patch("dns", &PatchParams::default(), &patch).await.unwrap();
    }

    /// Sets the force-deletion annotation of the Shoot.
    pub async fn force(&self) {
        let clusters: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind(GROUP, "v1alpha1", "Cluster"));
        let annotations = json!({"confirmation.gardener.cloud/force-deletion": "true"});
        let patch = Patch::Merge(json!({"spec": {"shoot": {"metadata": {"annotations": annotations}}}}));
        clusters.patch(&self.namespace, &PatchParams::default(), &patch).await.unwrap();
    }

    pub async fn stored(&self, name: &str) -> Option<Value> {
        get(&self.records(), name).await
    }

    pub async fn note(&self, name: &str) -> Option<Value> {
        get(&self.api(&kind("", "v1", "ConfigMap")), &format!("dnsrecord-rfc2136-{name}")).await
    }

    pub async fn lease(&self) -> Option<Value> {
        get(&self.api(&kind("coordination.k8s.io", "v1", "Lease")), "dnsrecord-rfc2136").await
    }

    /// Returns the messages of the Events with a reason.
    pub async fn events(&self, reason: &str) -> Vec<String> {
        let events = self.api(&kind("", "v1", "Event")).list(&ListParams::default()).await.unwrap();
        let events = events.into_iter().map(|event| event.data).filter(|event| event["reason"] == reason);
        events.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Waits until the last operation has this type and state.
    pub async fn reaches(&self, name: &str, expected: &str) {
        let state = async || {
            let status = self.stored(name).await.map(|object| object["status"].clone()).unwrap_or_default();
            let text = |field: &str| status["lastOperation"][field].as_str().unwrap_or_default().to_owned();
            format!("{} {}", text("type"), text("state"))
        };
        until(&format!("{name} reaches {expected}"), async || state().await == expected).await;
    }

    /// Waits until everything that was asked for has been done.
    pub async fn settles(&self, name: &str) {
        let has_settled = async || {
            let record = self.stored(name).await.unwrap_or_default();
            let (metadata, status) = (&record["metadata"], &record["status"]);
            status["lastOperation"]["state"] == "Succeeded"
                && status["observedGeneration"] == metadata["generation"]
                && metadata["annotations"]["gardener.cloud/operation"].is_null()
        };
        until(&format!("{name} settles"), has_settled).await;
    }

    /// Waits until a DNSRecord and its note are gone.
    pub async fn loses(&self, name: &str) {
        let is_gone = async || self.stored(name).await.is_none() && self.note(name).await.is_none();
        until(&format!("{name} is gone"), is_gone).await;
    }

    pub async fn has_failed(&self, name: &str, code: &str, text: &str) {
        let error = self.stored(name).await.unwrap()["status"]["lastError"].clone();
        assert_eq!(error["codes"], json!([code]), "{name}: {error}");
        assert!(error["description"].as_str().unwrap().contains(text), "{name}: {error}");
    }
}

pub async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn free_address() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn get(api: &Api<DynamicObject>, name: &str) -> Option<Value> {
    api.get_opt(name).await.unwrap().map(|object| serde_json::to_value(object).unwrap())
}

async fn create(api: &Api<DynamicObject>, kind: &ApiResource, object: Value) {
    try_create(api, kind, object).await.unwrap();
}

async fn try_create(api: &Api<DynamicObject>, kind: &ApiResource, mut object: Value) -> Result<(), Error> {
    object["apiVersion"] = json!(kind.api_version);
    object["kind"] = json!(kind.kind);
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.map(drop)
}

/// Creates the CRDs, unless another test has, and waits until they are served and discovered.
async fn serve_kinds(client: &Client) {
    let crds = kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions = Api::all_with(client.clone(), &crds);
    for (kind, plural, scope) in [("DNSRecord", "dnsrecords", "Namespaced"), ("Cluster", "clusters", "Cluster")] {
        match try_create(&definitions, &crds, definition(kind, plural, scope)).await {
            Err(Error::Api(status)) if status.code == 409 => {}
            created => created.unwrap(),
        }
    }
    let are_served = async || {
        let request = http::Request::get("/apis").header(http::header::ACCEPT, DISCOVERY).body(Vec::new()).unwrap();
        let groups = client.request::<Value>(request).await.unwrap();
        let mut groups = groups["items"].as_array().into_iter().flatten();
        let group = groups.find(|group| group["metadata"]["name"] == GROUP);
        group.is_some_and(|group| group["versions"][0]["resources"].as_array().is_some_and(|kinds| kinds.len() == 2))
    };
    until("the kinds are served", are_served).await;
}

fn definition(kind: &str, plural: &str, scope: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({
        "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    });
    json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {"group": GROUP, "scope": scope, "names": {"kind": kind, "plural": plural}, "versions": [version]},
    })
}
