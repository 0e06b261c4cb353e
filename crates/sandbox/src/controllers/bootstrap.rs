//! The initial objects of a cluster.
//!
//! They are stored directly, without admission, because every test starts a sandbox.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

use super::set::ACCOUNTS;
use crate::{
    authorization::DISCOVERY,
    kinds::ResourceId,
    object::{Stored, metadata_mut},
    state::State,
};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The revision of the first object, after that of an empty store.
const FIRST: u64 = 2;
/// The placeholders for the UID and the time in the template objects.
const UID: &str = "00000000-0000-4000-8000-000000000000";
const TIME: &str = "0000-00-00T00:00:00Z";

/// Stores the initial objects of a cluster: namespaces, roles, service accounts.
pub(crate) fn bootstrap(state: &mut State) {
    // Copying the text of templates and replacing UID and time is faster than parsing and serializing. Revisions do not
    // change, because the store is empty.
    static ALL: LazyLock<Vec<(ResourceId, Stored)>> = LazyLock::new(|| {
        let stored = |(revision, (resource, mut object)): (u64, (ResourceId, Value))| {
            let metadata = metadata_mut(&mut object);
            metadata.insert("uid".to_owned(), UID.into());
            metadata.insert("creationTimestamp".to_owned(), TIME.into());
            (resource, Stored::new(object, revision))
        };
        (FIRST..).zip(all()).map(stored).collect()
    });
    let now = state.clock.text();
    for (resource, object) in &*ALL {
        let object = object.again(&state.ids.uid(), (TIME, &now));
        // These objects cause no work for the controllers.
        state.store.keep(resource, Arc::new(object));
    }
    if !state.options.controllers.contains(ACCOUNTS) {
        let accounts = ResourceId::new("", "serviceaccounts");
        let all: Vec<_> = state.store.list(&accounts, None).cloned().collect();
        for account in all {
            state.store.remove(&accounts, &account.namespace, &account.name);
        }
    }
}

fn all() -> Objects {
    let mut all = Objects::new();
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        let namespace = json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        put(&mut all, "", "namespaces", namespace);
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name},
        });
        put(&mut all, "", "serviceaccounts", account);
    }
    put(&mut all, "", "services", service());
    let tracking = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kube-apiserver-legacy-service-account-token-tracking", "namespace": "kube-system"},
        "data": {"since": "2026-01-01"},
    });
    put(&mut all, "", "configmaps", tracking);
    let cluster =
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.";
    let node = "Used for system critical pods that must not be moved from their current node.";
    for (name, value, description) in
        [("system-cluster-critical", 2_000_000_000, cluster), ("system-node-critical", 2_000_001_000, node)]
    {
        let class = json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name, "generation": 1},
            "description": description, "value": value, "preemptionPolicy": "PreemptLowerPriority",
        });
        put(&mut all, "scheduling.k8s.io", "priorityclasses", class);
    }
    roles(&mut all);
    all
}

type Objects = Vec<(ResourceId, Value)>;

fn put(all: &mut Objects, group: &str, plural: &str, object: Value) {
    all.push((ResourceId::new(group, plural), object));
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "kubernetes", "namespace": "default",
            "labels": {"component": "apiserver", "provider": "kubernetes"},
        },
        "spec": {
            "clusterIP": "10.96.0.1", "clusterIPs": ["10.96.0.1"], "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "sessionAffinity": "None", "type": "ClusterIP",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
        },
        "status": {"loadBalancer": {}},
    })
}

fn roles(all: &mut Objects) {
    let system = ["system:authenticated"];
    let everybody = ["system:authenticated", "system:unauthenticated"];
    let everything = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let discovery = json!([{"verbs": ["get"], "nonResourceURLs": DISCOVERY}]);
    let reviews = json!([
        {
            "apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        },
        {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
    ]);
    let info =
        json!([{"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]}]);
    for (name, rules, groups) in [
        ("cluster-admin", everything, &["system:masters"][..]),
        ("system:basic-user", reviews, &system),
        ("system:discovery", discovery, &system),
        ("system:public-info-viewer", info, &everybody),
    ] {
        role(all, name, rules, None, None);
        binding(all, name, groups);
    }
    let (read, write, own) = (reading(), writing(), owning());
    let with =
        |parts: &[&Vec<Value>]| Value::from(parts.iter().flat_map(|part| part.iter().cloned()).collect::<Vec<_>>());
    role(all, "view", with(&[&read]), Some("view"), Some("edit"));
    role(all, "edit", with(&[&write, &read]), Some("edit"), Some("admin"));
    role(all, "admin", with(&[&write, &read, &own]), Some("admin"), None);
}

/// Adds a ClusterRole, which may aggregate others (`collects`) and be aggregated itself (`part_of`).
fn role(all: &mut Objects, name: &str, rules: Value, collects: Option<&str>, part_of: Option<&str>) {
    let label = |role: &str| format!("{RBAC}/aggregate-to-{role}");
    let mut role = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole",
        "metadata": {
            "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
        "rules": rules,
    });
    if let Some(part_of) = part_of {
        role["metadata"]["labels"][label(part_of)] = "true".into();
    }
    if let Some(collects) = collects {
        let selector = json!({"matchLabels": {label(collects): "true"}});
        role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
    }
    put(all, RBAC, "clusterroles", role);
}

fn binding(all: &mut Objects, name: &str, groups: &[&str]) {
    let subject = |group: &&str| json!({"apiGroup": RBAC, "kind": "Group", "name": group});
    let binding = json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {
            "name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
            "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
        },
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": groups.iter().map(subject).collect::<Vec<_>>(),
    });
    put(all, RBAC, "clusterrolebindings", binding);
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    json!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

const READ: [&str; 3] = ["get", "list", "watch"];
const WRITE: [&str; 5] = ["create", "delete", "deletecollection", "patch", "update"];

/// Returns the rules of `view`: read access to everything in a namespace except secrets and access rights.
fn reading() -> Vec<Value> {
    let core = [
        "bindings",
        "configmaps",
        "endpoints",
        "events",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "replicationcontrollers/status",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services",
        "services/status",
    ];
    let apps = [
        "controllerrevisions",
        "daemonsets",
        "daemonsets/status",
        "deployments",
        "deployments/scale",
        "deployments/status",
        "replicasets",
        "replicasets/scale",
        "replicasets/status",
        "statefulsets",
        "statefulsets/scale",
        "statefulsets/status",
    ];
    let scalers = ["horizontalpodautoscalers", "horizontalpodautoscalers/status"];
    let batch = ["cronjobs", "cronjobs/status", "jobs", "jobs/status"];
    let budgets = ["poddisruptionbudgets", "poddisruptionbudgets/status"];
    let claims = ["resourceclaims", "resourceclaims/status", "resourceclaimtemplates"];
    vec![
        rule(&[""], &core, &READ),
        rule(&["events.k8s.io"], &["events"], &READ),
        rule(&["discovery.k8s.io"], &["endpointslices"], &READ),
        rule(&["apps"], &apps, &READ),
        rule(&["autoscaling"], &scalers, &READ),
        rule(&["batch"], &batch, &READ),
        rule(&["policy"], &budgets, &READ),
        rule(&["networking.k8s.io"], &["ingresses", "ingresses/status", "networkpolicies"], &READ),
        rule(&["resource.k8s.io"], &claims, &READ),
    ]
}

/// Returns the rules that `edit` adds.
fn writing() -> Vec<Value> {
    let secret = ["pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"];
    let core = [
        "configmaps",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ];
    let apps = [
        "daemonsets",
        "deployments",
        "deployments/rollback",
        "deployments/scale",
        "replicasets",
        "replicasets/scale",
        "statefulsets",
        "statefulsets/scale",
    ];
    let both = [&WRITE[..], &READ[..]].concat();
    vec![
        rule(&[""], &secret, &READ),
        rule(&[""], &["serviceaccounts"], &["impersonate"]),
        rule(&[""], &["pods/eviction", "serviceaccounts/token"], &["create"]),
        rule(&[""], &core, &WRITE),
        rule(&["events.k8s.io"], &["events"], &WRITE),
        rule(&["apps"], &apps, &WRITE),
        rule(&["autoscaling"], &["horizontalpodautoscalers"], &WRITE),
        rule(&["batch"], &["cronjobs", "jobs"], &WRITE),
        rule(&["policy"], &["poddisruptionbudgets"], &WRITE),
        rule(&["networking.k8s.io"], &["ingresses", "networkpolicies"], &WRITE),
        rule(&["coordination.k8s.io"], &["leases"], &both),
        rule(&["resource.k8s.io"], &["resourceclaims", "resourceclaimtemplates"], &WRITE),
    ]
}

/// Returns the rules that `admin` adds.
fn owning() -> Vec<Value> {
    let both = [&WRITE[..], &READ[..]].concat();
    vec![
        rule(&["authorization.k8s.io"], &["localsubjectaccessreviews"], &["create"]),
        rule(&[RBAC], &["rolebindings", "roles"], &both),
    ]
}
