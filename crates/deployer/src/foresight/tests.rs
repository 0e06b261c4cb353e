use std::sync::Arc;

use billhook_charts::Helm;
use billhook_cluster::{Cluster, Options};
use billhook_objects::{GroupKind, ObjectKey, yaml};
use billhook_plan::Counts;
use billhook_sandbox::{Sandbox, User};
use kube::{
    Api, CustomResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    Controller, ControllerOptions,
    api::{DeployItem, Target},
    metrics::Metrics,
    mode::Mode,
    shard::Shard,
    target::ConnectionRules,
};

fn manifests(text: &str) -> Vec<Manifest> {
    let documents = yaml::parse(text).unwrap();
    documents.into_iter().flat_map(|document| Manifest::from_document(document, &"f".into()).unwrap()).collect()
}

#[test]
fn only_objects_that_can_hang_are_looked_at() {
    const AGE: Duration = Duration::from_secs(9);
    for (object, expected) in [
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", None),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: []}}", None),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {finalizers: x}}", None),
        ("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, finalizers: [x.example/a]}}", Some(AGE)),
        ("{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", None),
        ("{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}}", None),
        ("{apiVersion: v1, kind: Namespace, metadata: {name: a}}", Some(AGE)),
        ("{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}}", Some(AGE)),
        (
            "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a.b.c}}",
            Some(Duration::ZERO),
        ),
        ("{apiVersion: shop.example/v1, kind: Database, metadata: {name: a}}", Some(AGE)),
    ] {
        assert_eq!(can_hang(&manifests(object), AGE), expected, "{object}");
    }
}

#[test]
fn the_condition_says_what_hangs_and_what_helps() {
    let object = |name: &str| ObjectKey::new(GroupKind::new("shop.example", "Database"), Some("shop"), name);
    let first = Note::from(NoteKind::ControllerFirst {
        finalizer: "shop.example/a".to_owned(),
        counts: Counts::from((GroupKind::new("shop.example", "Database"), 1)),
        objects: vec![object("a")],
        controller: "Deployment shop/operator\n".to_owned(),
        parts: Vec::new(),
    });
    let unread = Note::from(NoteKind::NotForeseen { unread: vec!["roles (forbidden)".to_owned()], unexamined: 0 });
    let mut status = DeployItemStatus::default();
    let mut check = |notes: &[Note], expected: &str, says: &[&str]| {
        status.foresee(notes, Timestamp::UNIX_EPOCH);
        let [condition] = &status.conditions[..] else { panic!("{:?}", status.conditions) };
        assert_eq!((&*condition.r#type, &*condition.status), (CONDITION, expected), "{condition:?}");
        for text in says {
            assert!(condition.message.contains(text), "{text}: {condition:?}");
        }
        assert_eq!(condition.message.lines().count(), usize::from(!says.is_empty()));
    };
    check(&[first.clone(), unread.clone()], "True", &["Deployment shop/operator", "; set deletionGroups"]);
    check(&[unread], "Unknown", &["roles (forbidden)"]);
    check(&[Note::from(NoteKind::PolicyLost)], "False", &[]);
    status.forget_foresight();
    assert_eq!(status.conditions, []);
}

/// The controller, a home cluster with one item, and another cluster with its objects.
struct World {
    home: Sandbox,
    target: Sandbox,
}

impl World {
    async fn new() -> Self {
        let world = Self { home: Sandbox::start(Default::default()), target: Sandbox::start(Default::default()) };
        let kinds = Api::all(world.home.client(User::admin(), ""));
        for kind in [DeployItem::crd(), Target::crd()] {
            kinds.create(&PostParams::default(), &kind).await.unwrap();
        }
        sleep(Duration::from_secs(5)).await;
        let kubeconfig = json!({"apiVersion": "v1", "kind": "Config", "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "https://a.example"}}], "users": [{"name": "a", "user": {"token": "t"}}]});
        let target = json!({"apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "Target", "metadata": {"name": "target"},
            "spec": {"type": "landscaper.gardener.cloud/kubernetes-cluster", "config": {"kubeconfig": kubeconfig.to_string()}}});
        let targets = Api::<Target>::namespaced(world.home.client(User::admin(), ""), "default");
        targets.create(&PostParams::default(), &serde_json::from_value(target).unwrap()).await.unwrap();
        world
    }

    fn controller(&self) -> Controller {
        let target = self.target.clone();
        let options = ControllerOptions {
            mode: Mode::Standalone,
            namespaces: Vec::new(),
            namespace_selector: None,
            identity: "own".to_owned(),
            shard: Shard::default(),
            connect: Arc::new(move |_, options| Ok(Cluster::from_client(target.client(User::admin(), "own"), options))),
            now: Arc::new(Timestamp::now),
            helm: Helm::new("helm"),
            target_selectors: Vec::new(),
            connections: ConnectionRules::default(),
            metrics: Metrics::new(),
            leader_election: None,
            max_items: 100,
            grace: Duration::ZERO,
        };
        Controller::new(Cluster::from_client(self.home.client(User::admin(), "own"), Options::default()), options)
    }

    fn items(&self) -> Api<DeployItem> {
        Api::namespaced(self.home.client(User::admin(), ""), "default")
    }

    /// Changes the item, and returns how many requests the target cluster got, and the status of the condition.
    async fn after(&self, patch: Value) -> (usize, Option<String>) {
        let sent = self.target.faults().count("own");
        self.items().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        let status = self.items().get("web").await.unwrap().status.unwrap();
        assert_eq!(status.phase, Some(crate::api::Phase::Succeeded), "{status:?}");
        let ours = status.conditions.into_iter().find(|condition| condition.r#type == CONDITION);
        (self.target.faults().count("own") - sent, ours.map(|condition| condition.status))
    }

    async fn create(&self, objects: &[Value]) {
        let item = json!({"apiVersion": "landscaper.gardener.cloud/v1alpha1", "kind": "DeployItem", "metadata": {"name": "web"},
            "spec": with(objects)["spec"]});
        self.items().create(&PostParams::default(), &serde_json::from_value(item).unwrap()).await.unwrap();
        sleep(Duration::from_secs(60)).await;
    }
}

fn with(objects: &[Value]) -> Value {
    let manifests: Vec<Value> = objects.iter().map(|object| json!({"policy": "manage", "manifest": object})).collect();
    json!({"spec": {"type": "landscaper.gardener.cloud/kubernetes-manifest", "target": {"name": "target"}, "config": {
        "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2", "kind": "ProviderConfiguration",
        "readinessChecks": {"disableDefault": true}, "manifests": manifests}}})
}

fn config_map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"k": value}})
}

fn reconcile() -> Value {
    json!({"metadata": {"annotations": {"landscaper.gardener.cloud/operation": "reconcile"}}})
}

#[tokio::test(start_paused = true)]
async fn requests_are_sent_once_for_a_generation_and_only_if_needed() {
    let world = World::new().await;
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let check = async {
        world.create(&[config_map("1")]).await;
        let (plain, condition) = world.after(with(&[config_map("2")])).await;
        assert!(plain <= 3 && condition.is_none(), "{plain} requests for one list and one write");
        let (unchanged, condition) = world.after(reconcile()).await;
        assert!(unchanged <= 2 && condition.is_none(), "{unchanged} requests");
        let (with_claim, condition) = world.after(with(&[config_map("2"), claim.clone()])).await;
        assert_eq!(condition.as_deref(), Some("False"));
        let (again, condition) = world.after(reconcile()).await;
        assert_eq!(condition.as_deref(), Some("False"));
        assert!(again <= unchanged + 1, "{again} requests: the condition remains, and nothing is read for it again");
        assert!(with_claim > again + 2, "{with_claim} requests when it is found");
        let (changed, condition) = world.after(with(&[config_map("3"), claim.clone()])).await;
        assert!(changed > again + 1, "{changed} requests of another generation");
        assert_eq!(condition.as_deref(), Some("False"));
        // What it was about is pruned.
        assert_eq!(world.after(with(&[config_map("3")])).await.1, None);
    };
    tokio::select! {
        ended = world.controller().run(CancellationToken::new()) => panic!("{ended:?}"),
        () = check => {}
    }
}
