//! The program, a sandbox and another client, driven step by step under a paused clock.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use billhook::{Cluster, World};
use billhook_sandbox::{
    Options, Sandbox, User,
    actors::{self, Script},
    faults::{Fault, Moment, Requests},
};
use billhook_testkit::scenario::disturb::EXPIRY;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
    discovery::ApiResource,
};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, sync::mpsc};

use super::oracle::{Oracle, Printed};

/// The kinds of the model: group, version, kind, plural, namespaced.
pub const KINDS: [(&str, &str, &str, &str, bool); 5] = [
    ("", "v1", "ConfigMap", "configmaps", true),
    ("", "v1", "Secret", "secrets", true),
    ("model.example", "v1", "Widget", "widgets", true),
    ("rbac.authorization.k8s.io", "v1", "Role", "roles", true),
    ("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", false),
];
pub const NAMESPACES: [&str; 2] = ["one", "two"];
/// The maximum number of objects: each slot has its kind, its namespace and its name.
pub const SLOTS: usize = 15;
const CLIENT: &str = "billhook";

pub fn slot_kind(slot: usize) -> usize {
    slot % KINDS.len()
}

/// Returns the namespace of a slot's object; `None` for a cluster-scoped one.
pub fn slot_namespace(slot: usize) -> Option<usize> {
    KINDS[slot_kind(slot)].4.then_some(slot / KINDS.len() % NAMESPACES.len())
}

/// Returns whether an object can be the owner: it must be in the same namespace, or cluster-scoped.
pub fn may_own(owner: usize, slot: usize) -> bool {
    slot_namespace(owner).is_none() || slot_namespace(owner) == slot_namespace(slot)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    None,
    /// A controller removes it after two seconds.
    Slow,
    /// No controller removes it.
    Stuck,
}

/// A group of a policy.
#[derive(Clone, Debug)]
pub enum Group {
    Kind {
        kind: usize,
        force: bool,
    },
    /// `deleteAllResources`, in one namespace or in all.
    All {
        kind: usize,
        namespace: Option<usize>,
        force: bool,
    },
    Namespaced {
        force: bool,
    },
    ClusterScoped {
        force: bool,
    },
}

impl Group {
    /// Returns whether it selects an object.
    pub fn covers(&self, slot: usize, ours: bool) -> bool {
        match self {
            Self::Kind { kind, .. } => ours && slot_kind(slot) == *kind,
            Self::All { kind, namespace, .. } => {
                slot_kind(slot) == *kind
                    && (namespace.is_none() || slot_namespace(slot).is_none() || slot_namespace(slot) == *namespace)
            }
            Self::Namespaced { .. } => ours && slot_namespace(slot).is_some(),
            Self::ClusterScoped { .. } => ours && slot_namespace(slot).is_none(),
        }
    }

    pub fn forces(&self) -> bool {
        let (Self::Kind { force, .. }
        | Self::All { force, .. }
        | Self::Namespaced { force }
        | Self::ClusterScoped { force }) = self;
        *force
    }

    fn document(&self) -> Value {
        let types = |kind: usize| {
            let (group, version, _, plural, _) = KINDS[kind];
            let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            json!({"apiVersion": version, "kind": plural})
        };
        match self {
            Self::Kind { kind, force } => {
                json!({"customResourceGroup": {"resources": [types(*kind)], "forceDelete": force}})
            }
            Self::All { kind, namespace, force } => {
                let mut types = types(*kind);
                if let Some(namespace) = namespace.filter(|_| KINDS[*kind].4) {
                    types["namespaces"] = json!([NAMESPACES[namespace]]);
                }
                json!({"customResourceGroup": {"resources": [types], "forceDelete": force, "deleteAllResources": true}})
            }
            Self::Namespaced { force } => {
                json!({"predefinedResourceGroup": {"type": "namespaced-resources", "forceDelete": force}})
            }
            Self::ClusterScoped { force } => {
                json!({"predefinedResourceGroup": {"type": "cluster-scoped-resources", "forceDelete": force}})
            }
        }
    }
}

/// A fault at a request of a command.
#[derive(Clone, Copy, Debug)]
pub struct Disturbance {
    pub what: &'static str,
    pub at: usize,
}

impl Disturbance {
    pub const CRASH_BEFORE: &'static str = "crash before";
    pub const CRASH_AFTER: &'static str = "crash after";
    pub const ERROR: &'static str = "500";
    pub const TOO_MANY: &'static str = "429";
    pub const LOST: &'static str = "lost answer";
    pub const EXPIRED: &'static str = "410";
    pub const CUT: &'static str = "cut watch";
    pub const AWAY: &'static str = "away";

    fn fault(self) -> Option<Fault> {
        let fault = match self.what {
            Self::CRASH_BEFORE => Fault::crash(Moment::Before),
            Self::CRASH_AFTER => Fault::crash(Moment::After),
            Self::ERROR => Fault::internal_error(),
            Self::TOO_MANY => Fault::too_many_requests(1),
            Self::LOST => Fault::broken(Moment::After),
            Self::EXPIRED => Fault::expired(),
            Self::CUT => Fault::cut_after_events(1),
            _ => return None,
        };
        Some(fault.on(Requests::of(CLIENT)).nth(self.at))
    }
}

pub struct System {
    runtime: Runtime,
    sandbox: Sandbox,
    admin: Client,
    oracle: Arc<Mutex<Oracle>>,
    folder: tempfile::TempDir,
    /// The objects that the release contains, or contained and must not forget.
    ours: Vec<usize>,
    policy: Vec<Group>,
}

impl System {
    pub fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime");
        let sandbox = runtime.block_on(async { Sandbox::start(Options::default()) });
        let admin = runtime.block_on(async { sandbox.client(User::admin(), "") });
        let oracle = Arc::new(Mutex::new(Oracle::new(sandbox.clone())));
        let folder = tempfile::tempdir().expect("a folder");
        let system = Self { runtime, sandbox, admin, oracle, folder, ours: Vec::new(), policy: Vec::new() };
        system.given();
        system
    }

    fn given(&self) {
        self.runtime.block_on(async {
            let crd = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "widgets.model.example"},
                "spec": {
                    "group": "model.example", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema":
                        {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
                },
            });
            let crds = resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
            create(&Api::all_with(self.admin.clone(), &crds), crd).await;
            for name in NAMESPACES {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                let namespaces = resource("", "v1", "Namespace", "namespaces");
                create(&Api::all_with(self.admin.clone(), &namespaces), namespace).await;
            }
            // The kind is served once the controller has processed its CRD.
            tokio::time::sleep(Duration::from_secs(1)).await;
            for (group, _, kind, _, _) in KINDS {
                let script = Script::RemoveFinalizer {
                    kind: if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") },
                    finalizer: "model.example/slow".to_owned(),
                    after: Duration::from_secs(2),
                    while_exists: Vec::new(),
                };
                tokio::spawn(actors::run(self.admin.clone(), script, |_| true));
            }
        });
    }

    /// Deploys a new version of the release.
    pub fn apply(&mut self, objects: &[(usize, Finalizer)], policy: Vec<Group>, fault: Option<Disturbance>) {
        let documents: Vec<_> =
            objects.iter().map(|(slot, finalizer)| manifest(*slot, *finalizer).to_string()).collect();
        self.write("release.yaml", &documents.join("\n---\n"));
        let groups: Vec<_> = policy.iter().map(Group::document).collect();
        self.write("policy.yaml", &json!({"deletionGroups": groups}).to_string());
        let new: Vec<usize> = objects.iter().map(|(slot, _)| *slot).collect();
        self.oracle().begin_apply(self.ours.clone(), new.clone());
        let line = "apply release -n one -f release.yaml --policy policy.yaml --wait=false --timeout 60s --yes";
        let exit = if objects.is_empty() { None } else { self.call(line, fault) };
        match exit {
            // The old version is gone, except for objects that hang.
            Some(0) => {
                self.ours.clone_from(&new);
                self.policy = policy;
            }
            // Rejected: nothing was changed.
            Some(2 | 4) => {}
            _ if objects.is_empty() => {}
            // Both versions may exist in part, and either policy may be recorded.
            _ => {
                let again = self.call(line, None);
                self.ours.extend(new.iter().filter(|slot| !self.ours.contains(slot)).copied().collect::<Vec<_>>());
                if matches!(again, Some(0 | 1 | 3)) {
                    self.policy = policy;
                }
            }
        }
        self.oracle().end();
    }

    /// Deletes the release; returns the exit code, or `None` if the program was killed.
    pub fn delete(&mut self, fault: Option<Disturbance>) -> Option<u8> {
        self.oracle().begin_delete(self.ours.clone(), self.policy.clone());
        let exit = self.call("delete release -n one --ignore-not-found --yes --timeout 60s", fault);
        self.oracle().end();
        if exit == Some(0) {
            // Without a record there is no policy either: objects that another client has created since have no owner.
            if self.oracle().printed().contains("not found in namespace") {
                self.policy.retain(|group| !matches!(group, Group::All { .. }));
            }
            self.oracle().check_gone(&self.ours, &self.policy);
            let covered = |slot: &usize| self.policy.iter().any(|group| group.covers(*slot, true));
            // The record remains with these. The policy has done its work: its collections do not run again.
            self.ours.retain(|slot| !covered(slot));
            self.policy.retain(|group| !matches!(group, Group::All { .. }));
        }
        exit
    }

    pub fn foreign(&self, slot: usize, finalizer: Finalizer, owner: Option<usize>) {
        let mut object = manifest(slot, finalizer);
        let owner = owner.and_then(|owner| self.oracle().find(owner).map(|found| (owner, found)));
        if let Some((owner, found)) = owner {
            let (group, version, kind, ..) = KINDS[slot_kind(owner)];
            let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
            object["metadata"]["ownerReferences"] = json!([{
                "apiVersion": version, "kind": kind, "name": found["metadata"]["name"], "uid": found["metadata"]["uid"],
            }]);
        }
        self.runtime.block_on(create(&self.api(slot), object));
    }

    pub fn remove(&self, slot: usize) {
        self.runtime.block_on(async {
            let _ = self.api(slot).delete(&name(slot), &DeleteParams::background()).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        });
    }

    /// Removes the finalizers that no controller removes.
    pub fn free(&self) {
        self.runtime.block_on(async {
            for slot in 0..SLOTS {
                let patch = json!({"metadata": {"finalizers": null}});
                let _ = self.api(slot).patch(&name(slot), &PatchParams::default(), &Patch::Merge(patch)).await;
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        });
    }

    /// Checks that no object of the policy remains, and that no object of the release is forgotten.
    pub fn check_end(&self, exit: Option<u8>) {
        assert_eq!(exit, Some(0), "without obstacles, the deletion did not succeed:\n{}", self.oracle().printed());
        let oracle = self.oracle();
        oracle.check_gone(&self.ours, &self.policy);
        oracle.check_labels(&self.policy);
    }

    fn call(&self, line: &str, fault: Option<Disturbance>) -> Option<u8> {
        let faults = self.sandbox.faults();
        if let Some(fault) = fault.and_then(Disturbance::fault) {
            faults.inject(fault);
        }
        let (interrupt, interrupts) = mpsc::channel(1);
        let client = self.runtime.block_on(async { audited(&self.sandbox, &self.oracle) });
        let printed = Printed(Arc::clone(&self.oracle));
        let config = "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: 'http://sandbox.invalid'}}], \
                      contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {}}]}";
        self.write("kubeconfig", config);
        let world = World {
            args: std::iter::once("billhook").chain(line.split_whitespace()).map(Into::into).collect(),
            env: BTreeMap::from([("KUBECONFIG".to_owned(), "kubeconfig".to_owned())]),
            directory: self.folder.path().to_owned(),
            stdin: Box::new(std::io::empty()),
            stdin_terminal: false,
            stdout: Box::new(printed.clone()),
            stdout_terminal: false,
            stderr: Box::new(printed),
            stderr_terminal: false,
            interrupts,
            connect: Arc::new(move |_, options| Ok(Cluster::from_client(client.clone(), options))),
        };
        let exit = self.runtime.block_on(async {
            if let Some(Disturbance { what: Disturbance::AWAY, at }) = fault {
                let (sandbox, after) =
                    (self.sandbox.clone(), Duration::from_millis(u64::try_from(at).unwrap_or(1) * 7));
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    sandbox.take_away(Duration::from_secs(4));
                });
            }
            tokio::select! {
                exit = billhook::run(world) => Some(exit),
                () = faults.crashed(CLIENT) => None,
            }
        });
        drop(interrupt);
        faults.clear();
        faults.revive(CLIENT);
        // Lets all work complete, and the lock of a killed command expire.
        let pause = if exit.is_none() { EXPIRY } else { Duration::from_secs(10) };
        self.runtime.block_on(async { tokio::time::sleep(pause).await });
        exit
    }

    fn api(&self, slot: usize) -> Api<DynamicObject> {
        let (group, version, kind, plural, _) = KINDS[slot_kind(slot)];
        let resource = resource(group, version, kind, plural);
        match slot_namespace(slot) {
            Some(namespace) => Api::namespaced_with(self.admin.clone(), NAMESPACES[namespace], &resource),
            None => Api::all_with(self.admin.clone(), &resource),
        }
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).expect("write a file");
    }

    fn oracle(&self) -> std::sync::MutexGuard<'_, Oracle> {
        self.oracle.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A client that passes every request to the oracle before it takes effect.
fn audited(sandbox: &Sandbox, oracle: &Arc<Mutex<Oracle>>) -> Client {
    let (client, oracle) = (sandbox.client(User::admin(), CLIENT), Arc::clone(oracle));
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let (client, oracle) = (client.clone(), Arc::clone(&oracle));
        async move {
            oracle
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .look(request.method(), request.uri().path());
            client.send(request).await.map_err(unwrapped)
        }
    });
    Client::new(service, "default")
}

/// Removes the error of the outer client, which would hide that of the connection.
fn unwrapped(error: kube::Error) -> Box<dyn std::error::Error + Send + Sync> {
    match error {
        kube::Error::Service(error) => error,
        other => other.into(),
    }
}

pub fn name(slot: usize) -> String {
    format!("o{slot}")
}

fn manifest(slot: usize, finalizer: Finalizer) -> Value {
    let (group, version, kind, ..) = KINDS[slot_kind(slot)];
    let version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": {"name": name(slot)}});
    if let Some(namespace) = slot_namespace(slot) {
        object["metadata"]["namespace"] = NAMESPACES[namespace].into();
    }
    match finalizer {
        Finalizer::None => {}
        Finalizer::Slow => object["metadata"]["finalizers"] = json!(["model.example/slow"]),
        Finalizer::Stuck => object["metadata"]["finalizers"] = json!(["model.example/stuck"]),
    }
    object
}

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version,
        kind: kind.to_owned(),
        plural: plural.to_owned(),
    }
}

async fn create(api: &Api<DynamicObject>, object: Value) {
    let object: DynamicObject = serde_json::from_value(object).expect("an object");
    // It may still exist because of a finalizer.
    let _ = api.create(&PostParams::default(), &object).await;
}
