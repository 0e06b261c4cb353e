//! Random worlds: a release, operators inside and outside of it, objects with finalizers and owners, webhooks, and policies.

use proptest::{prelude::*, sample::subsequence};
use serde_json::{Value, json};

/// What a controller is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It works.
    Alive,
    /// It is scaled to 0.
    Stopped,
    /// There is none.
    Absent,
}

/// An operator with its kind.
#[derive(Clone, Debug)]
pub struct Operator {
    pub life: Life,
    /// Whether its Deployment and ServiceAccount belong to the release.
    pub ours: bool,
    /// Whether its roles do.
    pub rights_ours: bool,
    /// Whether the CRD of its kind does.
    pub crd_ours: bool,
}

/// The finalizer of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finalizer {
    None,
    /// That of the operator of its kind, or of the first one.
    Operator,
    /// One that nobody removes.
    Nobodys,
}

/// An object: of the kind of an operator, or a ConfigMap.
#[derive(Clone, Debug)]
pub struct Thing {
    pub operator: Option<usize>,
    pub namespace: usize,
    pub finalizer: Finalizer,
    pub ours: bool,
    /// An earlier object that owns it, if both are in one namespace and it exists before.
    pub owner: Option<usize>,
    /// Whether its deletion is requested before the rehearsal.
    pub early: bool,
}

/// The node of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    Ready,
    /// It does not respond.
    Silent,
    /// It does not exist any more.
    Gone,
}

/// A Pod that runs on a node.
#[derive(Clone, Debug)]
pub struct Pod {
    pub namespace: usize,
    pub node: Node,
    pub ours: bool,
    pub early: bool,
}

/// A group of the policy.
#[derive(Clone, Debug)]
pub enum Group {
    /// The kind of an operator.
    Kind {
        operator: usize,
        all: bool,
        force: bool,
    },
    ConfigMaps,
    Deployments,
    Predefined {
        kind: usize,
        force: bool,
    },
}

/// A webhook that must answer.
#[derive(Clone, Debug)]
pub struct Webhook {
    pub operator: usize,
    pub operation: &'static str,
    pub ours: bool,
    /// What answers; if there is none, its Service does not exist.
    pub backend: Option<Backend>,
}

/// A Service with an endpoint, and whether it and the Pod behind it belong to the release.
#[derive(Clone, Debug)]
pub struct Backend {
    pub service_ours: bool,
    pub pod_ours: bool,
}

#[derive(Clone, Debug)]
pub struct World {
    pub operators: Vec<Operator>,
    pub things: Vec<Thing>,
    /// Whether each of the two namespaces belongs to the release.
    pub namespaces: [bool; 2],
    pub groups: Vec<Group>,
    pub webhook: Option<Webhook>,
    /// Whether an APIService has no Service, which stops every Namespace.
    pub dead_api: bool,
    pub pods: Vec<Pod>,
    /// Whether the controller manager does not run.
    pub unmanaged: bool,
    pub safe: bool,
}

/// The namespaces: the first ones may belong to the release, the last one never does.
pub const NAMESPACES: usize = 2;
const PREDEFINED: [&str; 3] = ["namespaced-resources", "cluster-scoped-resources", "crds"];

fn operator() -> impl Strategy<Value = Operator> {
    let life = prop_oneof![6 => Just(Life::Alive), 2 => Just(Life::Stopped), 2 => Just(Life::Absent)];
    let parts = (life, any::<bool>(), any::<bool>(), any::<bool>());
    parts.prop_map(|(life, ours, rights_ours, crd_ours)| Operator { life, ours, rights_ours, crd_ours })
}

fn thing(operators: usize) -> impl Strategy<Value = Thing> {
    let finalizer =
        prop_oneof![3 => Just(Finalizer::None), 5 => Just(Finalizer::Operator), 1 => Just(Finalizer::Nobodys)];
    let kind = prop_oneof![3 => (0..operators).prop_map(Some), 1 => Just(None)];
    let owner = prop::option::weighted(0.3, 0..8_usize);
    let parts = (kind, 0..NAMESPACES, finalizer, prop::bool::weighted(0.7), owner, prop::bool::weighted(0.15));
    parts.prop_map(|(operator, namespace, finalizer, ours, owner, early)| Thing {
        operator,
        namespace,
        finalizer,
        ours,
        owner,
        early,
    })
}

fn pod() -> impl Strategy<Value = Pod> {
    let node = prop::sample::select(vec![Node::Ready, Node::Ready, Node::Silent, Node::Gone]);
    let parts = (0..NAMESPACES, node, any::<bool>(), prop::bool::weighted(0.3));
    parts.prop_map(|(namespace, node, ours, early)| Pod { namespace, node, ours, early })
}

fn webhook_of(operators: usize, may_answer: bool) -> impl Strategy<Value = Webhook> {
    let backend = any::<[bool; 2]>().prop_map(|[service_ours, pod_ours]| Backend { service_ours, pod_ours });
    let backend = prop::option::weighted(0.6, backend).prop_map(move |backend| backend.filter(|_| may_answer));
    let parts = (0..operators, prop::sample::select(vec!["DELETE", "UPDATE"]), any::<bool>(), backend);
    parts.prop_map(|(operator, operation, ours, backend)| Webhook { operator, operation, ours, backend })
}

fn groups(operators: usize) -> impl Strategy<Value = Vec<Group>> {
    let kind = (0..operators, prop::bool::weighted(0.3), prop::bool::weighted(0.15))
        .prop_map(|(operator, all, force)| Group::Kind { operator, all, force });
    let one = prop_oneof![4 => kind, 1 => Just(Group::ConfigMaps), 1 => Just(Group::Deployments)];
    let predefined = subsequence(vec![0, 1, 2], 1..=3).prop_shuffle();
    let predefined = predefined.prop_flat_map(|kinds| {
        let force = prop::bool::weighted(0.1);
        kinds.into_iter().map(|kind| (Just(kind), force)).collect::<Vec<_>>()
    });
    (prop::collection::vec(one, 0..3), predefined).prop_map(|(special, predefined)| {
        let predefined = predefined.into_iter().map(|(kind, force)| Group::Predefined { kind, force });
        special.into_iter().chain(predefined).collect()
    })
}

/// Returns random worlds. In those for a control plane that others use, no API is broken, all controllers of Kubernetes run, and
/// nothing depends on kubelets.
pub fn worlds(is_sandbox: bool) -> impl Strategy<Value = World> {
    let weight = move |weight: f64| if is_sandbox { weight } else { 0.0 };
    prop::collection::vec(operator(), 1..3).prop_flat_map(move |operators| {
        let count = operators.len();
        let things = prop::collection::vec(thing(count), 1..7);
        let webhook = prop::option::weighted(0.2, webhook_of(count, is_sandbox));
        let broken = (prop::bool::weighted(weight(0.08)), prop::bool::weighted(weight(0.06)));
        let pods = prop::option::weighted(0.2, prop::collection::vec(pod(), 1..3));
        let pods = pods.prop_map(move |pods| pods.filter(|_| is_sandbox));
        let rest = (things, any::<[bool; 2]>(), groups(count), webhook, broken, pods, prop::bool::weighted(0.2));
        (Just(operators), rest).prop_map(|(operators, (things, namespaces, groups, webhook, broken, pods, safe))| {
            let (dead_api, unmanaged) = broken;
            World {
                operators,
                things,
                namespaces,
                groups,
                webhook,
                dead_api,
                pods: pods.unwrap_or_default(),
                unmanaged,
                safe,
            }
        })
    })
}

/// The manifests of a world: what others create before the release, the release, and what others create after it.
#[derive(Default)]
pub struct Manifests {
    pub before: Vec<Value>,
    pub release: Vec<Value>,
    pub after: Vec<Value>,
}

impl World {
    /// Returns the manifests, whose names contain the slug.
    pub fn manifests(&self, slug: &str) -> Manifests {
        let mut all = Manifests::default();
        for (at, ours) in self.namespaces.iter().enumerate() {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace(slug, at)}});
            all.add(*ours, namespace);
        }
        for (at, operator) in self.operators.iter().enumerate() {
            all.add(operator.crd_ours, definition(slug, at));
            let [account, deployment] = workload(slug, at, operator.life);
            if operator.life != Life::Absent {
                all.add(operator.ours, account);
                all.add(operator.ours, deployment);
            }
            rights(slug, at).into_iter().for_each(|object| all.add(operator.rights_ours, object));
        }
        for (at, thing) in self.things.iter().enumerate() {
            let object = self.thing(slug, at, thing);
            if thing.ours { all.release.push(object) } else { all.after.push(object) }
        }
        for (at, pod) in self.pods.iter().enumerate() {
            let object = self::pod_of(&format!("p{at}"), &namespace(slug, pod.namespace), &node(slug, pod.node));
            if pod.ours { all.release.push(object) } else { all.after.push(object) }
        }
        if let Some(hook) = &self.webhook {
            let object = webhook(slug, hook);
            if hook.ours {
                all.release.push(object)
            } else {
                all.after.push(object)
            }
            if let Some(backend) = &hook.backend {
                all.add(backend.pod_ours, pod_of("hook-0", &home(slug), &node(slug, Node::Ready)));
                let [service, slice] = service(slug);
                all.add(backend.service_ours, service);
                all.before.push(slice);
            }
        }
        if self.dead_api {
            all.after.push(json!({
                "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
                "metadata": {"name": format!("v1.dead.{slug}.example")},
                "spec": {"group": format!("dead.{slug}.example"), "version": "v1", "groupPriorityMinimum": 100,
                    "versionPriority": 100, "service": {"namespace": "default", "name": "nothing"},
                    "insecureSkipTLSVerify": true},
            }));
        }
        all
    }

    fn thing(&self, slug: &str, at: usize, thing: &Thing) -> Value {
        let mut object = match thing.operator {
            Some(operator) => json!({"apiVersion": format!("{}/v1", group(slug, operator)), "kind": kind(operator)}),
            None => json!({"apiVersion": "v1", "kind": "ConfigMap"}),
        };
        object["metadata"] = json!({"name": format!("t{at}"), "namespace": namespace(slug, thing.namespace)});
        let finalizer = match thing.finalizer {
            Finalizer::None => None,
            Finalizer::Operator => Some(finalizer(slug, thing.operator.unwrap_or(0))),
            // A finalizer of another system on an object of a living operator looks like the operator's own: nothing in the cluster
            // shows that it never removes it.
            Finalizer::Nobodys if thing.operator.is_some_and(|at| self.operators[at].life == Life::Alive) => None,
            Finalizer::Nobodys => Some(format!("nobody.{slug}.example/x")),
        };
        if let Some(finalizer) = finalizer {
            object["metadata"]["finalizers"] = json!([finalizer]);
        }
        object
    }

    /// Returns the owner of an object that others create: an earlier object in the same namespace that exists by then.
    pub fn owner(&self, at: usize) -> Option<usize> {
        let thing = &self.things[at];
        let owner = thing.owner.filter(|owner| *owner < at && !thing.ours)?;
        let candidate = &self.things[owner];
        (candidate.namespace == thing.namespace).then_some(owner)
    }

    /// Returns the objects whose deletion is requested before the rehearsal.
    pub fn early(&self, slug: &str) -> Vec<Value> {
        let things = self.things.iter().enumerate().filter(|(_, thing)| thing.early);
        let things = things.map(|(at, thing)| self.thing(slug, at, thing));
        let pods = self.pods.iter().enumerate().filter(|(_, pod)| pod.early);
        let pods =
            pods.map(|(at, pod)| pod_of(&format!("p{at}"), &namespace(slug, pod.namespace), &node(slug, pod.node)));
        things.chain(pods).collect()
    }

    /// Returns whether there are nodes, on which Pods run.
    pub fn has_nodes(&self) -> bool {
        !self.pods.is_empty() || self.webhook.as_ref().is_some_and(|hook| hook.backend.is_some())
    }

    /// Returns the policy.
    pub fn policy(&self, slug: &str) -> Value {
        let groups = self.groups.iter().map(|one| match one {
            Group::Kind { operator, all, force } => {
                let kind = json!({"apiVersion": format!("{}/v1", group(slug, *operator)), "kind": kind(*operator)});
                json!({"customResourceGroup": {"resources": [kind], "deleteAllResources": all, "forceDelete": force}})
            }
            Group::ConfigMaps => {
                json!({"customResourceGroup": {"resources": [{"apiVersion": "v1", "kind": "configmaps"}]}})
            }
            Group::Deployments => {
                json!({"customResourceGroup": {"resources": [{"apiVersion": "apps/v1", "kind": "deployments"}]}})
            }
            Group::Predefined { kind, force } => {
                json!({"predefinedResourceGroup": {"type": PREDEFINED[*kind], "forceDelete": force}})
            }
        });
        json!({"deletionGroups": groups.collect::<Vec<_>>()})
    }
}

impl Manifests {
    fn add(&mut self, ours: bool, object: Value) {
        if ours { self.release.push(object) } else { self.before.push(object) }
    }
}

/// Returns the nodes that exist.
pub fn nodes(slug: &str) -> [Value; 2] {
    [(Node::Ready, "True"), (Node::Silent, "Unknown")].map(|(which, ready)| {
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node(slug, which)},
            "status": {"conditions": [{"type": "Ready", "status": ready}]}})
    })
}

pub fn node(slug: &str, node: Node) -> String {
    format!("{slug}-{}", format!("{node:?}").to_lowercase())
}

fn pod_of(name: &str, namespace: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "registry.example/c"}]}})
}

/// Returns the Service of the webhook, and its endpoint.
fn service(slug: &str) -> [Value; 2] {
    let namespace = home(slug);
    let target = json!({"kind": "Pod", "name": "hook-0", "namespace": namespace});
    [
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "hook", "namespace": namespace},
            "spec": {"ports": [{"port": 443}]}}),
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": {"name": "hook-x", "namespace": namespace, "labels": {"kubernetes.io/service-name": "hook"}},
            "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": true}, "targetRef": target}],
            "ports": [{"name": "", "port": 443, "protocol": "TCP"}]}),
    ]
}

/// Returns the namespace of objects; the third one has the operators.
pub fn namespace(slug: &str, at: usize) -> String {
    format!("{slug}-{at}")
}

/// The namespace of operators, and of the release's record.
pub fn home(slug: &str) -> String {
    format!("{slug}-home")
}

pub fn group(slug: &str, operator: usize) -> String {
    format!("o{operator}.{slug}.example")
}

pub fn kind(operator: usize) -> String {
    format!("Thing{operator}")
}

pub fn finalizer(slug: &str, operator: usize) -> String {
    format!("{}/clean-up", group(slug, operator))
}

pub fn name(operator: usize) -> String {
    format!("operator-{operator}")
}

fn definition(slug: &str, operator: usize) -> Value {
    let (group, plural) = (group(slug, operator), format!("thing{operator}s"));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced", "names": {"kind": kind(operator), "plural": plural,
            "singular": format!("thing{operator}"), "listKind": format!("{}List", kind(operator))},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}]},
    })
}

fn workload(slug: &str, operator: usize, life: Life) -> [Value; 2] {
    let (name, namespace) = (name(operator), home(slug));
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": if life == Life::Stopped { 0 } else { 1 }, "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"serviceAccountName": name,
                "containers": [{"name": "c", "image": "registry.example/o"}]}}},
    });
    [account, deployment]
}

fn rights(slug: &str, operator: usize) -> [Value; 2] {
    let name = format!("{slug}-{}", name(operator));
    // The finalizer of its own kind, and that on ConfigMaps.
    let rules = json!([
        {"apiGroups": [group(slug, operator)], "resources": [format!("thing{operator}s")], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list", "watch", "patch"]},
    ]);
    let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": self::name(operator), "namespace": home(slug)}],
    });
    [role, binding]
}

fn webhook(slug: &str, hook: &Webhook) -> Value {
    let service = if hook.backend.is_some() { "hook" } else { "nothing" };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": format!("{slug}-hook")},
        "webhooks": [{"name": format!("hook.{slug}.example"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": "Fail", "timeoutSeconds": 1,
            "clientConfig": {"service": {"namespace": home(slug), "name": service}},
            "rules": [{"apiGroups": [group(slug, hook.operator)], "apiVersions": ["v1"], "operations": [hook.operation],
                "resources": [format!("thing{}s", hook.operator)]}]}],
    })
}
