//! A seed in memory with the CRDs of extensions, an actuator that records its calls, and controllers that run on it.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use billhook_extension::{Actuator, ActuatorError, Cluster, Context, Controller, ControllerError, Outcome, SeedObject};
use billhook_sandbox::{Options, Sandbox, User};
use k8s_openapi::{
    api::core::v1::{ConfigMap, Namespace},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, CustomResource,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    core::{ApiResource, DynamicObject},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

pub use crate::rows::FINALIZER;
use crate::rows::last_operation;

pub const GROUP: &str = "extensions.gardener.cloud";
pub const NAMESPACE: &str = "shoot--a";
const FORCE: &str = "confirmation.gardener.cloud/force-deletion";
/// How long a test waits for what must happen; under the paused clock that is no time.
const LIMIT: Duration = Duration::from_secs(3600);

/// The objects of the tests.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "extensions.gardener.cloud",
    version = "v1alpha1",
    kind = "DNSRecord",
    plural = "dnsrecords",
    namespaced
)]
pub struct DnsRecordSpec {
    #[serde(rename = "type")]
    pub kind_type: String,
    pub name: Option<String>,
}

pub fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A seed, with a client for its administrator.
pub struct Lab {
    pub sandbox: Sandbox,
    pub admin: kube::Client,
}

impl Lab {
    /// Starts a seed with the CRDs, a namespace of a Shoot, and its Cluster.
    pub async fn start() -> Self {
        let sandbox = Sandbox::start(Options::default());
        let admin = sandbox.client(User::admin(), "admin");
        let lab = Self { sandbox, admin };
        lab.define("DNSRecord", "dnsrecords", "Namespaced").await;
        lab.define("Cluster", "clusters", "Cluster").await;
        lab.namespace(NAMESPACE).await;
        lab.cluster(NAMESPACE, json!({})).await;
        lab
    }

    async fn define(&self, kind: &str, plural: &str, scope: &str) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.admin.clone());
        create(&definitions, definition(kind, plural, scope)).await;
        let name = format!("{plural}.{GROUP}");
        self.until("the CRD is established", || {
            let object = self.sandbox.object("apiextensions.k8s.io", "customresourcedefinitions", "", &name);
            let conditions = object.map(|object| object["status"]["conditions"].clone()).unwrap_or_default();
            let mut conditions = conditions.as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == "Established" && condition["status"] == "True")
        })
        .await;
    }

    pub async fn namespace(&self, name: &str) {
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        create(&namespaces, json!({"metadata": {"name": name}})).await;
    }

    fn clusters(&self) -> Api<DynamicObject> {
        Api::all_with(self.admin.clone(), &resource("Cluster", "clusters"))
    }

    pub fn records(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), NAMESPACE, &resource("DNSRecord", "dnsrecords"))
    }

    pub fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    /// Creates the Cluster of a namespace with this Shoot.
    pub async fn cluster(&self, namespace: &str, shoot: Value) {
        let object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Cluster",
            "metadata": {"name": namespace}, "spec": {"shoot": shoot},
        });
        create(&self.clusters(), object).await;
    }

    /// Patches the Shoot in the Cluster.
    pub async fn shoot(&self, patch: Value) {
        let patch = Patch::Merge(json!({"spec": {"shoot": patch}}));
        self.clusters().patch(NAMESPACE, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Sets the force-deletion annotation of the Shoot.
    pub async fn force(&self) {
        self.shoot(json!({"metadata": {"annotations": {FORCE: "true"}}})).await;
    }

    /// Creates a DNSRecord, changed by a merge patch, and its status.
    pub async fn record(&self, name: &str, changes: &Value, status: &Value) {
        let mut object = json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "DNSRecord",
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"type": "local"},
        });
        for (part, fields) in changes.as_object().into_iter().flatten() {
            for (field, value) in fields.as_object().unwrap() {
                object[part][field] = value.clone();
            }
        }
        create(&self.records(), object).await;
        if !status.is_null() {
            let patch = Patch::Merge(json!({ "status": status }));
            self.records().patch_status(name, &PatchParams::default(), &patch).await.unwrap();
        }
    }

    pub async fn patch(&self, name: &str, patch: Value) {
        self.records().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.records().delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Returns a DNSRecord as it is stored.
    pub fn stored(&self, name: &str) -> Option<Value> {
        self.sandbox.object(GROUP, "dnsrecords", NAMESPACE, name)
    }

    pub fn is_gone(&self, name: &str) -> bool {
        self.stored(name).is_none()
    }

    /// Returns type, state and progress of the last operation.
    pub fn last(&self, name: &str) -> String {
        self.stored(name).as_ref().map(last_operation).unwrap_or_default()
    }

    /// Returns the names of all objects outside the namespace of the Shoot that people create.
    pub fn others(&self) -> Vec<String> {
        let objects = self.sandbox.objects().into_iter();
        let others = objects.filter(|object| object["metadata"]["namespace"] != NAMESPACE && object["kind"] != "Lease");
        others.map(|object| format!("{}/{}", object["kind"], object["metadata"])).collect()
    }

    /// Waits until something holds.
    pub async fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < LIMIT, "{what}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Makes a controller with its own client.
    pub fn controller<A>(&self, client: &str, actuator: A) -> Controller<A>
    where
        A: Actuator<Object = DNSRecord>,
    {
        Controller::new(self.sandbox.client(User::admin(), client), actuator).kind_type("local")
    }
}

/// Returns the CRD of a kind of extensions.
pub fn definition(kind: &str, plural: &str, scope: &str) -> Value {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

pub fn resource(kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: GROUP.to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: format!("{GROUP}/v1alpha1"),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

pub async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + fmt::Debug + DeserializeOwned + Serialize,
{
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
}

/// A controller that runs.
pub struct Running {
    stop: CancellationToken,
    task: JoinHandle<Result<(), ControllerError>>,
}

impl Running {
    pub fn start<A: Actuator>(controller: Controller<A>) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(controller.run(stop.clone().cancelled_owned()));
        Self { stop, task }
    }

    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Waits until it ends by itself.
    pub async fn ended(self) -> Result<(), ControllerError> {
        self.task.await.unwrap()
    }

    /// Ends it without giving it a chance to clean up.
    pub fn kill(self) {
        self.task.abort();
    }
}

/// What a method of the actuator does.
#[derive(Clone, Debug, Default)]
pub enum Behaviour {
    #[default]
    Succeed,
    Fail(&'static str),
    Panic,
    /// Never ends.
    Hang,
    /// Never ends, and panics when it is dropped.
    HangAndPanic,
    /// Fails as long as the ConfigMap that notes what was written exists.
    FailIfNoted(&'static str),
    /// Removes the finalizers of the object, as another client may, and names an orphan.
    Vanish,
    /// Waits a second and reads from the seed, this many times.
    Steps(usize),
    /// Writes to the seed once a second.
    Write,
}

/// An actuator that records its calls.
#[derive(Clone, Default)]
pub struct Recorder {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    log: Vec<(Instant, String)>,
    behaviours: HashMap<&'static str, Behaviour>,
    /// Whether `force_delete` is the default.
    default_force: bool,
    running: usize,
    most: usize,
}

impl Recorder {
    pub fn new(behaviours: &[(&'static str, Behaviour)]) -> Self {
        let recorder = Self::default();
        for (method, behaviour) in behaviours {
            recorder.set(method, behaviour.clone());
        }
        recorder
    }

    /// Lets `force_delete` do what it does by default.
    pub fn with_default_force(self) -> Self {
        self.lock().default_force = true;
        self
    }

    pub fn set(&self, method: &'static str, behaviour: Behaviour) {
        self.lock().behaviours.insert(method, behaviour);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Returns the calls so far: `delete a`, and `delete a: cancelled` for one that was dropped.
    pub fn log(&self) -> Vec<String> {
        self.lock().log.iter().map(|(_, line)| line.clone()).collect()
    }

    pub fn has(&self, line: &str) -> bool {
        self.lock().log.iter().any(|(_, logged)| logged == line)
    }

    /// Returns when a line was logged first.
    pub fn time(&self, line: &str) -> Instant {
        self.lock().log.iter().find(|(_, logged)| logged == line).expect(line).0
    }

    /// Returns how many calls ran at once at most.
    pub fn most(&self) -> usize {
        self.lock().most
    }

    fn note(&self, line: String) {
        self.lock().log.push((Instant::now(), line));
    }

    async fn call(
        &self,
        method: &'static str,
        context: &Context,
        record: &DNSRecord,
    ) -> Result<Outcome, ActuatorError> {
        let name = record.metadata.name.clone().unwrap();
        self.note(format!("{method} {name}"));
        let behaviour = {
            let mut state = self.lock();
            state.running += 1;
            state.most = state.most.max(state.running);
            state.behaviours.get(method).cloned().unwrap_or_default()
        };
        let mut call = Call { recorder: self, line: format!("{method} {name}"), ended: false };
        let result = behave(behaviour, context, &name).await;
        call.ended = true;
        result
    }
}

async fn behave(behaviour: Behaviour, context: &Context, name: &str) -> Result<Outcome, ActuatorError> {
    let config_maps: Api<ConfigMap> = Api::namespaced(context.client(), NAMESPACE);
    match behaviour {
        Behaviour::Succeed => {}
        Behaviour::Fail(text) => return Err(ActuatorError::new(text)),
        Behaviour::Panic => panic!("as asked"),
        Behaviour::Hang => std::future::pending().await,
        Behaviour::HangAndPanic => {
            let _panics = PanicsOnDrop;
            std::future::pending().await
        }
        Behaviour::FailIfNoted(text) => {
            if config_maps.get_opt(&format!("dns-{name}")).await?.is_some() {
                return Err(ActuatorError::new(text));
            }
        }
        Behaviour::Vanish => {
            let records: Api<DNSRecord> = Api::namespaced(context.client(), NAMESPACE);
            let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            records.patch(name, &PatchParams::default(), &patch).await?;
            return Ok(Outcome::done().orphaned("DNS record"));
        }
        Behaviour::Steps(steps) => {
            for _ in 0..steps {
                sleep(seconds(1)).await;
                config_maps.get_opt("kube-root-ca.crt").await?;
            }
        }
        Behaviour::Write => loop {
            let patch = Patch::Merge(json!({"data": {"at": format!("{:?}", Instant::now())}}));
            drop(config_maps.patch("written", &PatchParams::default(), &patch).await);
            sleep(seconds(1)).await;
        },
    }
    Ok(Outcome::done())
}

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("as asked");
    }
}

/// Notes whether a call was dropped before its end.
struct Call<'a> {
    recorder: &'a Recorder,
    line: String,
    ended: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.recorder.lock().running -= 1;
        if !self.ended && !std::thread::panicking() {
            self.recorder.note(format!("{}: cancelled", self.line));
        }
    }
}

impl Actuator for Recorder {
    type Object = DNSRecord;

    async fn reconcile(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("reconcile", context, record).await
    }

    async fn delete(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("delete", context, record).await
    }

    async fn force_delete(
        &self,
        context: &Context,
        record: &DNSRecord,
        cluster: &Cluster,
    ) -> Result<Outcome, ActuatorError> {
        if self.lock().default_force {
            return WithDefault(self.clone()).force_delete(context, record, cluster).await;
        }
        self.call("force_delete", context, record).await
    }

    async fn migrate(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("migrate", context, record).await
    }

    async fn restore(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.call("restore", context, record).await
    }
}

/// The same actuator with the default `force_delete`, for the declared ConfigMap of each record.
struct WithDefault(Recorder);

impl Actuator for WithDefault {
    type Object = DNSRecord;

    async fn reconcile(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.0.call("reconcile", context, record).await
    }

    async fn delete(&self, context: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
        self.0.call("delete", context, record).await
    }

    fn seed_objects(&self, record: &DNSRecord, _: &Cluster) -> Vec<SeedObject> {
        let name = record.metadata.name.clone().unwrap();
        let namespace = record.metadata.namespace.clone().unwrap();
        vec![
            SeedObject::new::<ConfigMap>(&namespace, format!("dns-{name}")),
            SeedObject::new::<ConfigMap>(namespace, "none"),
        ]
    }

    fn external(&self, record: &DNSRecord, _: &Cluster) -> Vec<String> {
        vec![format!("DNS record {}", record.spec.name.as_deref().unwrap_or("?"))]
    }
}
