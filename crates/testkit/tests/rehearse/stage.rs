//! A world on a sandbox or on a control plane: its release is rehearsed, then deleted, and both are compared.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Cursor,
    sync::Arc,
    time::Duration,
};

use billhook::{Cluster, ClusterOptions, Connect};
use billhook_engine::{ExplainOptions, explain};
use billhook_explain::ObjectRef;
use billhook_objects::{ApiVersion, GroupKind, ObjectKey};
use billhook_sandbox::{
    Sandbox, User as SandboxUser,
    actors::{self, Script},
};
use billhook_testkit::{
    control_plane::{ControlPlane, User},
    scenario::{Admin, Shared},
};
use http::Method;
use kube::{Client, api::DynamicObject, client::Body};
use serde_json::{Value, json};
use tokio::{sync::mpsc, task::JoinSet, time::sleep};

use super::world::{self, Finalizer, Life, Node, World};

/// The cluster of a world.
#[derive(Clone)]
pub enum Plane {
    Sandbox(Sandbox),
    Real(Arc<ControlPlane>),
}

/// What became of a release.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Of each group its title, how it ended, and what is gone.
    groups: Vec<(String, String, BTreeSet<String>)>,
    /// How the run ended.
    status: String,
    /// What remains of what it was to delete.
    left: BTreeSet<String>,
    /// What was deleted although the release does not own it.
    others: BTreeSet<String>,
    /// The root cause of each object that is being deleted: its code and object.
    causes: BTreeMap<String, (String, String)>,
}

impl Outcome {
    pub fn is_done(&self) -> bool {
        self.status == "done"
    }

    pub fn causes(&self) -> impl Iterator<Item = &str> {
        self.causes.values().map(|(code, _)| code.as_str())
    }
}

impl Plane {
    async fn admin(&self) -> Client {
        match self {
            Self::Sandbox(sandbox) => sandbox.client(SandboxUser::admin(), ""),
            Self::Real(plane) => Client::try_from(plane.client_config(User::Admin).await.unwrap()).unwrap(),
        }
    }

    /// Returns a client that reads everything and writes as an operator.
    async fn operator(&self, namespace: &str, name: &str) -> Client {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        let groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        let writes = match self {
            Self::Sandbox(sandbox) => sandbox.client(SandboxUser::new(user, groups), ""),
            Self::Real(plane) => {
                let mut config = plane.client_config(User::Admin).await.unwrap();
                config.auth_info.impersonate = Some(user);
                config.auth_info.impersonate_groups = Some(groups);
                Client::try_from(config).unwrap()
            }
        };
        let reads = self.admin().await;
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let client = if request.method() == Method::GET { reads.clone() } else { writes.clone() };
            async move { client.send(request).await }
        });
        Client::new(service, "default")
    }

    /// Returns how billhook connects. If it may only read, other requests fail the test.
    async fn connect(&self, read_only: bool) -> Connect {
        let client = self.admin().await;
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let client = client.clone();
            assert!(!read_only || request.method() == Method::GET, "{} {}", request.method(), request.uri());
            async move {
                client.send(request).await.map_err(|error| match error {
                    kube::Error::Service(error) => error,
                    other => other.into(),
                })
            }
        });
        let client = Client::new(service, "default");
        Arc::new(move |_, options| Ok(Cluster::from_client(client.clone(), options)))
    }
}

/// Plays a world, and returns what the rehearsal and the deletion have shown. The slug is the name of everything in it.
pub async fn play(plane: Plane, world: &World, slug: &str, limit: Duration) -> (Outcome, Outcome) {
    let admin = Admin::new(plane.admin().await, &world::home(slug));
    let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": world::home(slug)}});
    admin.create(&home.to_string()).await.unwrap();
    let all = world.manifests(slug);
    for object in &all.before {
        admin.create(&object.to_string()).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let base = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "base"}});
    let release: Vec<String> = all.release.iter().chain([&base]).map(Value::to_string).collect();
    std::fs::write(folder.path().join("release.yaml"), release.join("\n---\n")).unwrap();
    std::fs::write(folder.path().join("policy.yaml"), world.policy(slug).to_string()).unwrap();
    let kubeconfig = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: 'http://c.invalid'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u, namespace: {}}}}}], users: [{{name: u, user: {{}}}}]}}",
        world::home(slug)
    );
    std::fs::write(folder.path().join("kubeconfig"), kubeconfig).unwrap();
    let call = async |line: &str, read_only: bool| run(folder.path(), line, plane.connect(read_only).await).await;
    let (exit, _, err) = call("apply web -f release.yaml --policy policy.yaml --wait=false", false).await;
    assert_eq!(exit, 0, "{err}");
    for object in &all.after {
        let mut object = object.clone();
        if let Some(owner) = owner(world, &object) {
            let key = key_of(&world_thing(world, slug, owner));
            if let Some(owner) = admin.get(&key).await.unwrap() {
                let types = owner.types.clone().unwrap();
                object["metadata"]["ownerReferences"] = json!([{"apiVersion": types.api_version, "kind": types.kind,
                    "name": owner.metadata.name, "uid": owner.metadata.uid}]);
            }
        }
        admin.create(&object.to_string()).await.unwrap();
    }
    let mut acting = JoinSet::new();
    if world.has_nodes() {
        for node in world::nodes(slug) {
            admin.create(&node.to_string()).await.unwrap();
        }
        let stop = Script::StopPods { node: world::node(slug, Node::Ready), after: Duration::from_millis(500) };
        acting.spawn(actors::run(plane.admin().await, stop, |_| true));
    }
    if world.unmanaged {
        let spec =
            json!({"holderIdentity": "a_1", "leaseDurationSeconds": 15, "renewTime": "2020-01-01T00:00:00.000000Z"});
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
            "metadata": {"name": "kube-controller-manager", "namespace": "kube-system"}});
        admin.create(&lease.to_string()).await.unwrap();
    }
    for (at, operator) in world.operators.iter().enumerate() {
        if operator.life != Life::Absent {
            lease(&admin, slug, at).await;
        }
        if operator.life == Life::Alive {
            acting.spawn(renew(Admin::new(plane.admin().await, &world::home(slug)), slug.to_owned(), at));
            for script in scripts(world, slug, at) {
                let client = plane.operator(&world::home(slug), &world::name(at)).await;
                let slug = slug.to_owned();
                let is_mine = move |object: &DynamicObject| {
                    object.metadata.namespace.as_ref().is_some_and(|namespace| namespace.starts_with(&slug))
                };
                acting.spawn(actors::run(client, script, is_mine));
            }
        }
    }
    for key in world.early(slug).iter().map(key_of) {
        // A webhook may reject it.
        let _rejected = admin.request_deletion(&key, "Background").await;
    }
    // Deployments and Services have their final status by then.
    sleep(Duration::from_secs(3)).await;
    let order = if world.safe { " --order safe" } else { "" };
    let flags = format!("web -o json --timeout {}s{order}", limit.as_secs());
    let created: Vec<&Value> = all.before.iter().chain(&all.after).chain(&all.release).collect();
    let keys: Vec<ObjectKey> = created.iter().map(|object| key_of(object)).collect();
    let own: BTreeSet<String> = all.release.iter().map(|object| key_of(object).to_string()).collect();
    let before = uids(&admin, &keys).await;
    let early = deleting(&admin, &keys).await;

    let (exit, out, err) = call(&format!("rehearse delete {flags}"), true).await;
    assert!([0, 3].contains(&exit), "exit {exit}\n{out}\n{err}");
    let rehearsed = rehearsed(&out, &keys);
    assert_eq!(exit == 0, rehearsed.is_done() && rehearsed.causes.is_empty(), "{out}");
    assert_eq!(uids(&admin, &keys).await, before, "the rehearsal has changed something");

    let (_, out, err) = call(&format!("delete {flags} --yes"), false).await;
    assert!(!out.is_empty(), "{err}");
    let mut real = of_run(&lines(&out));
    let after = uids(&admin, &keys).await;
    let gone = before.iter().filter(|(key, uid)| after.get(*key) != Some(uid)).map(|(key, _)| key.clone());
    // Nor is what is being deleted anyway deleted because of the release.
    let planned: BTreeSet<&String> = real.groups.iter().flat_map(|(_, _, gone)| gone).collect();
    let early_keys: BTreeSet<String> = early.iter().map(ToString::to_string).collect();
    let is_of_run = |key: &String| !own.contains(key) && (!early_keys.contains(key) || planned.contains(key));
    let others = gone.filter(is_of_run).collect();
    real.others = others;
    // What is being deleted anyway is explained only if the plan deletes it, too.
    let is_explained = |key: &&ObjectKey| !early.contains(key) || real.left.contains(&key.to_string());
    let explained: Vec<ObjectKey> = keys.iter().filter(is_explained).cloned().collect();
    real.causes = causes(&admin, &explained).await;
    (rehearsed, real)
}

fn world_thing(world: &World, slug: &str, at: usize) -> Value {
    let all = world.manifests(slug);
    let name = format!("t{at}");
    let objects = all.release.into_iter().chain(all.after);
    objects.into_iter().find(|object| object["metadata"]["name"] == *name).unwrap()
}

/// Returns the owner of an object of a world, if it has one.
fn owner(world: &World, object: &Value) -> Option<usize> {
    let at: usize = object["metadata"]["name"].as_str()?.strip_prefix('t')?.parse().ok()?;
    world.owner(at)
}

/// Returns what an operator does as long as its Deployment and its ServiceAccount exist.
fn scripts(world: &World, slug: &str, at: usize) -> Vec<Script> {
    let (home, name) = (world::home(slug), world::name(at));
    let script = |kind: String| Script::RemoveFinalizer {
        kind,
        finalizer: world::finalizer(slug, at),
        after: Duration::from_millis(500),
        while_exists: vec![format!("Deployment.apps/{home}/{name}"), format!("ServiceAccount/{home}/{name}")],
    };
    let on_maps = world.things.iter().any(|thing| thing.operator.is_none() && thing.finalizer == Finalizer::Operator);
    let own = script(format!("{}.{}", world::kind(at), world::group(slug, at)));
    std::iter::once(own).chain((on_maps && at == 0).then(|| script("ConfigMap".to_owned()))).collect()
}

async fn lease(admin: &Admin, slug: &str, at: usize) {
    let name = world::name(at);
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": format!("{name}-lock"), "namespace": world::home(slug)},
        "spec": {"holderIdentity": format!("{name}-7d4b9f6c5-x2v8k_1"), "leaseDurationSeconds": 15,
            "renewTime": "2020-01-01T00:00:00.000000Z"},
    });
    admin.create(&lease.to_string()).await.unwrap();
}

/// Renews the Lease of an operator as long as its Deployment exists.
async fn renew(admin: Admin, slug: String, at: usize) {
    let (home, name) = (world::home(&slug), world::name(at));
    let key = |kind: GroupKind, name: String| ObjectKey::new(kind, Some(&home), name);
    let deployment = key(GroupKind::new("apps", "Deployment"), name.clone());
    let lease = key(GroupKind::new("coordination.k8s.io", "Lease"), format!("{name}-lock"));
    let cluster = Cluster::from_client(admin.client().clone(), ClusterOptions::default());
    while let Ok(Some(_)) = admin.get(&deployment).await {
        // The server tells its time with every answer.
        let _known = cluster.catalog().await;
        let now = cluster.server_time().and_then(|now| jiff::Timestamp::from_second(now).ok()).unwrap_or_default();
        let patch = json!({"spec": {"renewTime": now.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()}});
        if admin.patch(&lease, &patch).await.is_err() {
            return;
        }
        sleep(Duration::from_secs(10)).await;
    }
}

/// Returns the UIDs of the objects that exist.
async fn uids(admin: &Admin, keys: &[ObjectKey]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for key in keys {
        if let Ok(Some(object)) = admin.get(key).await {
            found.insert(key.to_string(), object.metadata.uid.unwrap_or_default());
        }
    }
    found
}

/// Returns the objects that are being deleted.
async fn deleting(admin: &Admin, keys: &[ObjectKey]) -> BTreeSet<ObjectKey> {
    let mut found = BTreeSet::new();
    for key in keys {
        if let Ok(Some(object)) = admin.get(key).await
            && object.metadata.deletion_timestamp.is_some()
        {
            found.insert(key.clone());
        }
    }
    found
}

/// Returns the root causes of those of these objects that are being deleted.
async fn causes(admin: &Admin, keys: &[ObjectKey]) -> BTreeMap<String, (String, String)> {
    let cluster = Cluster::from_client(admin.client().clone(), ClusterOptions::default());
    let catalog = cluster.catalog().await.unwrap();
    let subject = |key: &ObjectKey| {
        let version = catalog.get(&key.kind).unwrap().api_version(None);
        ObjectRef::new(version, &key.kind.kind, key.namespace.as_deref(), key.name.clone())
    };
    let subjects: Vec<ObjectRef> = deleting(admin, keys).await.iter().map(subject).collect();
    let document = explain(&cluster, &catalog, subjects, ExplainOptions::default()).await;
    found_causes(&serde_json::to_value(document).unwrap(), keys)
}

fn found_causes(document: &Value, keys: &[ObjectKey]) -> BTreeMap<String, (String, String)> {
    let findings = document["findings"].as_array().into_iter().flatten();
    let cause = |finding: &Value| {
        let object = named(&finding["object"]);
        let root = &finding["rootCause"];
        let code = root["code"].as_str().unwrap_or("unknown").to_owned();
        let of = if root.is_null() { String::new() } else { named(&root["object"]) };
        keys.iter().any(|key| key.to_string() == object).then_some((object, (code, of)))
    };
    findings.filter_map(cause).collect()
}

/// Returns the name of an object of a document of causes.
fn named(object: &Value) -> String {
    key_of(&json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": object})).to_string()
}

fn key_of(object: &Value) -> ObjectKey {
    let version = ApiVersion::parse(object["apiVersion"].as_str().unwrap()).unwrap();
    let kind = GroupKind::new(version.group(), object["kind"].as_str().unwrap());
    let metadata = &object["metadata"];
    ObjectKey::new(kind, metadata["namespace"].as_str(), metadata["name"].as_str().unwrap())
}

/// Returns the name of an object in an event.
fn event_key(object: &Value) -> String {
    serde_json::from_value::<ObjectKey>(object.clone()).unwrap().to_string()
}

fn lines(out: &str) -> Vec<Value> {
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns what the events of a run tell.
fn of_run(events: &[Value]) -> Outcome {
    let mut groups: Vec<(String, String, BTreeSet<String>)> = Vec::new();
    let mut outcome = Outcome {
        groups: Vec::new(),
        status: String::new(),
        left: BTreeSet::new(),
        others: BTreeSet::new(),
        causes: BTreeMap::new(),
    };
    for event in events {
        let node = || usize::try_from(event["node"].as_u64().unwrap()).unwrap();
        match event["event"].as_str().unwrap() {
            "started" => {
                let nodes = event["nodes"].as_array().unwrap().iter();
                let title = |node: &Value| node[0].as_str().unwrap().to_owned();
                groups = nodes.map(|node| (title(node), String::new(), BTreeSet::new())).collect();
            }
            "gone" => {
                groups[node()].2.insert(event_key(&event["object"]));
            }
            "node-finished" => event["status"].as_str().unwrap().clone_into(&mut groups[node()].1),
            "finished" => {
                event["status"].as_str().unwrap().clone_into(&mut outcome.status);
                let left = event["left"].as_array().unwrap().iter();
                outcome.left = left.map(|left| event_key(&left["object"])).collect();
            }
            _ => {}
        }
    }
    Outcome { groups, ..outcome }
}

fn rehearsed(out: &str, keys: &[ObjectKey]) -> Outcome {
    let events = lines(out);
    let report = events.iter().find(|event| event["event"] == "rehearsed").unwrap();
    assert_eq!(report["missing"], json!([]), "all could be copied");
    assert_eq!(events.last().unwrap()["event"], "finished", "the summary comes last");
    let others = report["others"].as_array().unwrap().iter().map(|other| event_key(&other["object"]));
    let others = others.filter(|other| keys.iter().any(|key| key.to_string() == *other)).collect();
    Outcome { others, causes: found_causes(&report["why"], keys), ..of_run(&events) }
}

/// Runs billhook, and returns its exit code and what it prints.
async fn run(folder: &std::path::Path, line: &str, connect: Connect) -> (u8, String, String) {
    let (out, err) = (Shared::default(), Shared::default());
    let (_interrupt, interrupts) = mpsc::channel(1);
    let world = billhook::World {
        args: std::iter::once("billhook").chain(line.split_whitespace()).map(Into::into).collect(),
        env: BTreeMap::from([("KUBECONFIG".to_owned(), "kubeconfig".to_owned())]),
        directory: folder.to_owned(),
        stdin: Box::new(Cursor::new("")),
        stdin_terminal: false,
        stdout: Box::new(out.clone()),
        stdout_terminal: false,
        stderr: Box::new(err.clone()),
        stderr_terminal: false,
        interrupts,
        connect,
    };
    let exit = Box::pin(billhook::run(world)).await;
    (exit, out.text(), err.text())
}
