//! What a backup keeps of a live object.

use billhook_objects::{
    ObjectKey, Uid,
    wellknown::{RELEASE_LABEL, is_built_in},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{groups::own_of_every_namespace, inventory::INVENTORY_LABEL};

use super::{
    compile::{key_of, uid_of},
    strip::{kind_of, strip},
};

/// An object of a backup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedObject {
    /// Whether it belongs to the release. Others were deleted with a collection, a Namespace or a CRD.
    pub own: bool,
    /// The object as it was, without what [`to_save`] removes.
    pub object: Value,
}

impl SavedObject {
    /// Returns the identity of the object.
    pub fn key(&self) -> ObjectKey {
        key_of(&self.object)
    }

    /// Returns the UID of the object.
    pub fn uid(&self) -> Option<Uid> {
        uid_of(&self.object["metadata"])
    }

    /// Returns the object as a manifest that creates it again.
    pub fn into_manifest(mut self) -> Value {
        strip(&mut self.object);
        self.object
    }

    /// Whether the object was being deleted when it was read.
    pub fn is_deleting(&self) -> bool {
        self.object["metadata"].get("deletionTimestamp").is_some()
    }
}

/// Kinds whose controllers create their dependents again.
const CREATORS: [&str; 9] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "Node",
    "ReplicaSet",
    "ReplicationController",
    "Service",
    "StatefulSet",
];

/// Removes from a live object what no restoration needs. Returns nothing for an object that is not saved: one that Kubernetes
/// creates again by itself, the records of releases, and Events.
pub fn to_save(mut object: Value) -> Option<Value> {
    if is_recreated(&object) {
        return None;
    }
    if kind_of(&object).is("", "Service") {
        remove_allocated(&mut object);
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    Some(object)
}

fn is_recreated(object: &Value) -> bool {
    let kind = kind_of(object);
    let metadata = &object["metadata"];
    let label = |name: &str| metadata["labels"].get(name).and_then(Value::as_str);
    let has = |map: &str, name: &str| metadata[map].get(name).is_some();
    let of_namespace = own_of_every_namespace(&kind).is_some_and(|name| metadata["name"] == name);
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("" | "events.k8s.io", "Event") => true,
        ("", "Secret") if has("labels", INVENTORY_LABEL) => true,
        ("", "Endpoints") => {
            has("annotations", "endpoints.kubernetes.io/last-change-trigger-time")
                || label("endpoints.kubernetes.io/managed-by") == Some("endpoint-controller")
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            label("endpointslice.kubernetes.io/managed-by") == Some("endpointslice-controller.k8s.io")
        }
        _ => (of_namespace && label(RELEASE_LABEL).is_none()) || is_controlled(metadata),
    }
}

/// Whether a controller of Kubernetes has created an object for its owner.
fn is_controlled(metadata: &Value) -> bool {
    let owners = metadata["ownerReferences"].as_array();
    owners.into_iter().flatten().filter(|owner| owner["controller"] == true).any(|owner| {
        let group = owner["apiVersion"].as_str().and_then(|text| text.split_once('/')).map_or("", |(group, _)| group);
        is_built_in(group) && owner["kind"].as_str().is_some_and(|kind| CREATORS.contains(&kind))
    })
}

/// Removes the addresses and ports that the API server has allocated for a Service, and keeps those that a client has set.
fn remove_allocated(service: &mut Value) {
    let managed = service["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let specs: Vec<&Value> = managed.iter().map(|entry| &entry["fieldsV1"]["f:spec"]).collect();
    let is_set = |field: &str| specs.iter().any(|spec| names(spec, field));
    let headless = service["spec"]["clusterIP"] == "None";
    let (address, node_port, health) =
        (is_set("f:clusterIP") || headless, is_set("f:nodePort"), is_set("f:healthCheckNodePort"));
    let Some(spec) = service.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if !address {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
    }
    if !health {
        spec.remove("healthCheckNodePort");
    }
    if !node_port {
        let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
        ports.into_iter().flatten().filter_map(Value::as_object_mut).for_each(|port| drop(port.remove("nodePort")));
    }
}

/// Whether a tree of managed fields names a field at any depth.
fn names(fields: &Value, field: &str) -> bool {
    fields.as_object().is_some_and(|map| map.iter().any(|(key, value)| key == field || names(value, field)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(api_version: &str, kind: &str, metadata: Value) -> Value {
        json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
    }

    #[test]
    fn what_kubernetes_creates_again_is_not_saved() {
        let controlled = |api: &str, kind: &str, controller: bool| {
            let owner = json!({"apiVersion": api, "kind": kind, "name": "a", "uid": "1", "controller": controller});
            json!({"name": "a", "ownerReferences": [owner]})
        };
        for (object, saved) in [
            (object("v1", "Event", json!({"name": "a"})), false),
            (object("events.k8s.io/v1", "Event", json!({"name": "a"})), false),
            (object("v1", "Pod", controlled("apps/v1", "ReplicaSet", true)), false),
            (object("apps/v1", "ReplicaSet", controlled("apps/v1", "Deployment", true)), false),
            (object("batch/v1", "Job", controlled("batch/v1", "CronJob", true)), false),
            // An operator may have created it once.
            (object("apps/v1", "StatefulSet", controlled("shop.example/v1", "Database", true)), true),
            (object("v1", "ConfigMap", controlled("apps/v1", "Deployment", false)), true),
            (object("shop.example/v1", "Node", controlled("shop.example/v1", "Job", true)), true),
            (object("v1", "Secret", json!({"name": "a", "labels": {"billhook.dev/inventory": "web"}})), false),
            (object("v1", "ConfigMap", json!({"name": "kube-root-ca.crt"})), false),
            (object("v1", "ServiceAccount", json!({"name": "default"})), false),
            (
                object("v1", "ServiceAccount", json!({"name": "default", "labels": {"billhook.dev/release": "a.b"}})),
                true,
            ),
            (object("v1", "ServiceAccount", json!({"name": "other"})), true),
            (
                object(
                    "v1",
                    "Endpoints",
                    json!({"name": "a", "annotations": {"endpoints.kubernetes.io/last-change-trigger-time": "x"}}),
                ),
                false,
            ),
            (object("v1", "Endpoints", json!({"name": "a"})), true),
        ] {
            assert_eq!(to_save(object.clone()).is_some(), saved, "{object}");
        }
    }

    #[test]
    fn a_service_keeps_the_addresses_that_a_client_has_set() {
        let service = |fields: Value| {
            let mut service =
                object("v1", "Service", json!({"name": "a", "managedFields": [{"fieldsV1": {"f:spec": fields}}]}));
            service["spec"] = json!({"clusterIP": "10.0.0.7", "clusterIPs": ["10.0.0.7"], "ports": [{"port": 80, "nodePort": 30080}]});
            to_save(service).unwrap()
        };
        let allocated = service(json!({"f:ports": {"k:{\"port\":80}": {"f:port": {}}}}));
        assert_eq!(allocated["spec"], json!({"ports": [{"port": 80}]}));
        assert!(allocated["metadata"].get("managedFields").is_none());
        let set = service(json!({"f:clusterIP": {}, "f:ports": {"k:{\"port\":80}": {"f:nodePort": {}}}}));
        assert_eq!(set["spec"]["clusterIP"], "10.0.0.7");
        assert_eq!(set["spec"]["ports"][0]["nodePort"], 30080);
    }
}
