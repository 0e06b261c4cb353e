//! The fields that only the server sets.

use serde_json::{Map, Value, json};

use super::{
    Kind, certificates,
    defaults::set,
    fields::{is_unset, items, items_mut, put, slot, text},
};
use crate::{call::User, object::meta};

pub(super) fn create(kind: &Kind, object: &mut Value, user: &User) {
    both(kind, object);
    if let Some(status) = first_status(kind, object) {
        object["status"] = status;
    }
    match (kind.group(), &*kind.id.plural) {
        ("", "namespaces") => add_text(slot(object, &["spec", "finalizers"]), "kubernetes"),
        ("", "persistentvolumeclaims") => add_finalizer(object, "kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => add_finalizer(object, "kubernetes.io/pv-protection"),
        ("", "pods") => pod(object),
        ("", "services") => service(object, None),
        ("apps", "daemonsets") => put(object, &TEMPLATE_GENERATION, "1"),
        ("batch", "jobs") => job(object),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::prepare_create(object, user),
        _ => {}
    }
}

pub(super) fn update(kind: &Kind, object: &mut Value, old: &Value) {
    both(kind, object);
    match (kind.group(), &*kind.id.plural) {
        // `spec.finalizers`, the only field, changes through `finalize` alone.
        ("", "namespaces") => object["spec"] = old["spec"].clone(),
        ("", "services") => service(object, Some(old)),
        // Only the subresources can be changed.
        ("certificates.k8s.io", "certificatesigningrequests") => object["spec"] = old["spec"].clone(),
        ("apps", "daemonsets") => {
            let annotation = TEMPLATE_GENERATION.iter().fold(old, |value, step| &value[*step]);
            let mut generation = annotation.as_str().and_then(|text| text.parse().ok()).unwrap_or(1_u64);
            generation += u64::from(object["spec"]["template"] != old["spec"]["template"]);
            put(object, &TEMPLATE_GENERATION, generation.to_string());
        }
        _ => {}
    }
}

const TEMPLATE_GENERATION: [&str; 3] = ["metadata", "annotations", "deprecated.daemonset.template.generation"];

/// Prepares an object for creation as well as for an update.
fn both(kind: &Kind, object: &mut Value) {
    match (kind.group(), &*kind.id.plural) {
        ("", "namespaces") => {
            let name = meta(object, "name").to_owned();
            put(object, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
        }
        ("", "replicationcontrollers") => {
            let labels = object["spec"]["template"]["metadata"]["labels"].clone();
            for target in [["spec", "selector"], ["metadata", "labels"]] {
                default_labels(object, &target, &labels);
            }
        }
        ("", "secrets") => secret(object),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition(object),
        ("batch", "jobs") => job_defaults(object),
        // Kubernetes writes the field even if it is empty.
        ("rbac.authorization.k8s.io", "roles" | "clusterroles") if is_unset(&object["rules"]) => {
            put(object, &["rules"], Value::Null);
        }
        ("networking.k8s.io", "networkpolicies") if is_unset(&object["spec"]["policyTypes"]) => {
            let egress = !is_unset(&object["spec"]["egress"]);
            let types = if egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
            put(object, &["spec", "policyTypes"], types);
        }
        _ => {}
    }
}

/// Returns the status of a new object; none for kinds that keep the status that was sent, such as Nodes.
fn first_status(kind: &Kind, object: &Value) -> Option<Value> {
    let created = || object["metadata"]["creationTimestamp"].clone();
    let status = match (kind.group(), &*kind.id.plural) {
        ("", "nodes") => return None,
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "persistentvolumeclaims") => json!({"phase": "Pending"}),
        ("", "persistentvolumes") => json!({"phase": "Pending", "lastPhaseTransitionTime": created()}),
        ("", "replicationcontrollers") | ("apps", "replicasets") => json!({"replicas": 0}),
        ("", "services") | ("networking.k8s.io", "ingresses") => json!({"loadBalancer": {}}),
        ("apps", "daemonsets") => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        }),
        ("apps", "statefulsets") => json!({"availableReplicas": 0, "replicas": 0}),
        ("autoscaling", "horizontalpodautoscalers") => json!({"desiredReplicas": 0}),
        ("policy", "poddisruptionbudgets") => json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }),
        ("storage.k8s.io", "volumeattachments") => json!({"attached": false}),
        ("apiregistration.k8s.io", "apiservices") if is_unset(&object["spec"]["service"]) => json!({"conditions": [{
            "type": "Available", "status": "True", "reason": "Local", "lastTransitionTime": created(),
            "message": "Local APIServices are always available",
        }]}),
        ("apiextensions.k8s.io", "customresourcedefinitions") => {
            let stored = items(&object["spec"]["versions"]).filter(|version| version["storage"] == true);
            let stored: Vec<&str> = stored.map(|version| text(version, "name")).collect();
            json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored})
        }
        _ if kind.versions.iter().any(|version| version.status) => json!({}),
        _ => return None,
    };
    Some(status)
}

fn add_text(list: Option<&mut Value>, text: &str) {
    match list {
        Some(Value::Array(items)) if items.iter().any(|item| item == text) => {}
        Some(Value::Array(items)) => items.push(text.into()),
        Some(list) => *list = json!([text]),
        None => {}
    }
}

fn add_finalizer(object: &mut Value, name: &str) {
    add_text(slot(object, &["metadata", "finalizers"]), name);
}

fn default_labels(object: &mut Value, target: &[&str], labels: &Value) {
    let empty = |value: &Value| value.as_object().is_none_or(Map::is_empty);
    if empty(labels) {
        return;
    }
    if let Some(target) = slot(object, target).filter(|target| empty(target)) {
        *target = labels.clone();
    }
}

/// Moves `stringData` to `data`.
fn secret(object: &mut Value) {
    let Some(texts) = object.as_object_mut().and_then(|fields| fields.remove("stringData")) else { return };
    for (key, value) in texts.as_object().into_iter().flatten() {
        let bytes = value.as_str().unwrap_or_default().as_bytes().to_vec();
        put(object, &["data", key], serde_json::to_value(k8s_openapi::ByteString(bytes)).unwrap_or_default());
    }
}

fn definition(object: &mut Value) {
    let kind = text(&object["spec"]["names"], "kind").to_owned();
    if !kind.is_empty() {
        for (field, name) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
            set(object, &format!("spec.names.{field}"), &Value::from(name).to_string());
        }
    }
    let stored = items(&object["spec"]["versions"]).find(|version| version["storage"] == true);
    let stored = stored.map(|version| text(version, "name").to_owned());
    if let Some(stored) = stored.filter(|_| object["status"]["storedVersions"].is_array()) {
        add_text(slot(object, &["status", "storedVersions"]), &stored);
    }
}

/// Sets the defaults that depend on other fields; the others are in the table.
fn job_defaults(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if spec["completions"].is_null() && spec["parallelism"].is_null() {
        spec["completions"] = 1.into();
    }
    if spec["backoffLimit"].is_null() && !spec["backoffLimitPerIndex"].is_null() {
        spec["backoffLimit"] = i32::MAX.into();
    }
    if spec["podReplacementPolicy"].is_null() {
        let policy = if spec["podFailurePolicy"].is_null() { "TerminatingOrFailed" } else { "Failed" };
        spec["podReplacementPolicy"] = policy.into();
    }
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    default_labels(object, &["metadata", "labels"], &labels);
}

const CONTROLLER_UID: &str = "batch.kubernetes.io/controller-uid";

/// Adds the labels and the selector by which a Job finds its Pods.
fn job(object: &mut Value) {
    if object["spec"]["manualSelector"] == true || !object["spec"]["template"].is_object() {
        return;
    }
    let (uid, name) = (meta(object, "uid").to_owned(), meta(object, "name").to_owned());
    let mut unset = |path: &[&str], value: &str| {
        if let Some(slot) = slot(object, path).filter(|slot| slot.is_null()) {
            *slot = value.into();
        }
    };
    for (label, value) in
        [("job-name", &name), ("batch.kubernetes.io/job-name", &name), ("controller-uid", &uid), (CONTROLLER_UID, &uid)]
    {
        unset(&["spec", "template", "metadata", "labels", label], value);
    }
    unset(&["spec", "selector", "matchLabels", CONTROLLER_UID], &uid);
    let labels = object["spec"]["template"]["metadata"]["labels"].clone();
    default_labels(object, &["metadata", "labels"], &labels);
}

/// Adds what admission adds to a Pod, and its initial status. No token is mounted, and priority classes are not looked
/// up.
fn pod(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if is_unset(&spec["serviceAccountName"]) && is_unset(&spec["serviceAccount"]) {
        spec["serviceAccountName"] = "default".into();
    }
    if is_unset(&spec["priorityClassName"]) {
        set(spec, "priority", "0");
        set(spec, "preemptionPolicy", r#""PreemptLowerPriority""#);
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerates = |toleration: &Value| {
            let (named, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (named.is_empty() || named == key) && matches!(effect, "" | "NoExecute")
        };
        if !items(&spec["tolerations"]).any(tolerates) {
            let mut tolerations: Vec<Value> = items(&spec["tolerations"]).cloned().collect();
            tolerations
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            spec["tolerations"] = tolerations.into();
        }
    }
    let class = quality_of_service(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": class});
}

/// Returns the quality of service class that follows from the CPU and memory requests and limits of the containers.
fn quality_of_service(spec: &Value) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for container in items(&spec["containers"]).chain(items(&spec["initContainers"])) {
        for resource in ["cpu", "memory"] {
            let get = |side: &str| Some(&container["resources"][side][resource]).filter(|value| !is_zero(value));
            let (request, limit) = (get("requests").or(get("limits")), get("limits"));
            any |= request.is_some();
            guaranteed &= limit.is_some() && request == limit;
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn is_zero(quantity: &Value) -> bool {
    is_unset(quantity) || *quantity == 0 || quantity == "0"
}

/// Sets defaults, addresses and node ports of a Service. Addresses (of 10.0.0.0/24) and ports are derived from the
/// name, so two Services may share them.
fn service(object: &mut Value, old: Option<&Value>) {
    let id = hash(&format!("{}/{}", meta(object, "namespace"), meta(object, "name")));
    let old = old.map_or(&Value::Null, |old| &old["spec"]);
    let Some(spec) = object.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    set(spec, "type", r#""ClusterIP""#);
    set(spec, "sessionAffinity", r#""None""#);
    match text(spec, "sessionAffinity") {
        "ClientIP" => set(spec, "sessionAffinityConfig.clientIP.timeoutSeconds", "10800"),
        _ => remove(spec, "sessionAffinityConfig"),
    }
    for port in items_mut(spec.get_mut("ports")).filter(|port| port.is_object()) {
        set(port, "protocol", r#""TCP""#);
        if is_unset(&port["targetPort"]) || port["targetPort"] == 0 {
            port["targetPort"] = port["port"].clone();
        }
    }
    let kind = text(spec, "type").to_owned();
    if kind == "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if spec[field] == old[field] || is_unset(&spec[field]) {
                remove(spec, field);
            }
        }
        return;
    }
    if text(old, "type") == "ExternalName" || is_unset(&old["clusterIP"]) {
        cluster_ip(spec, &format!("10.0.0.{}", 1 + id % 254));
    } else {
        cluster_ip(spec, text(old, "clusterIP"));
    }
    set(spec, "ipFamilies", r#"["IPv4"]"#);
    set(spec, "ipFamilyPolicy", r#""SingleStack""#);
    set(spec, "internalTrafficPolicy", r#""Cluster""#);
    if matches!(&*kind, "LoadBalancer" | "NodePort") {
        set(spec, "externalTrafficPolicy", r#""Cluster""#);
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", "true");
    }
    node_ports(spec, old, id);
}

/// Keeps `clusterIP` equal to the first of `clusterIPs`.
fn cluster_ip(spec: &mut Value, otherwise: &str) {
    let (one, first) = (text(spec, "clusterIP"), spec["clusterIPs"][0].as_str().unwrap_or_default());
    let chosen = [one, first, otherwise].into_iter().find(|address| !address.is_empty()).unwrap_or_default().to_owned();
    if first != chosen {
        spec["clusterIPs"] = json!([chosen]);
    }
    spec["clusterIP"] = chosen.into();
}

fn node_ports(spec: &mut Value, old: &Value, id: u64) {
    let wanted = match text(spec, "type") {
        "NodePort" => true,
        "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    };
    for (index, port) in items_mut(spec.get_mut("ports")).filter(|port| port.is_object()).enumerate() {
        let same = |other: &&Value| other["port"] == port["port"] && other["protocol"] == port["protocol"];
        let before = items(&old["ports"]).find(same).map_or(&Value::Null, |port| &port["nodePort"]);
        let unset = port["nodePort"].as_i64().unwrap_or_default() == 0;
        if wanted && unset {
            let free = 30_000 + id.wrapping_add(index as u64) % 2_768;
            port["nodePort"] = if before.is_null() { free.into() } else { before.clone() };
        } else if !wanted && (unset || port["nodePort"] == *before) {
            remove(port, "nodePort");
        }
    }
}

fn remove(value: &mut Value, field: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
}

/// Returns the FNV-1a hash of a text.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
