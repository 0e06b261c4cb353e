//! References from a copy to what was not copied: the controllers that work on the copy would take it for deleted.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use billhook_objects::GroupKind;
use serde_json::{Value, json};

use super::{scope::Scope, uid};

/// What the objects of a copy may refer to.
pub(super) struct Cleaner<'a> {
    uids: HashSet<String>,
    /// The namespaces and names of Pods.
    pods: BTreeSet<(String, String)>,
    /// The kinds of which not all objects were read.
    missing: BTreeMap<String, BTreeSet<String>>,
    scope: &'a Scope,
}

impl<'a> Cleaner<'a> {
    pub(super) fn new(objects: &[Value], missing: &BTreeSet<&GroupKind>, scope: &'a Scope) -> Self {
        let pods = objects.iter().filter(|object| object["kind"] == "Pod" && object["apiVersion"] == "v1");
        let mut by_group: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for kind in missing {
            by_group.entry(kind.group.clone()).or_default().insert(kind.kind.clone());
        }
        Self {
            uids: objects.iter().map(|object| uid(object).to_owned()).collect(),
            pods: pods.map(|pod| (text(pod, "namespace"), text(pod, "name"))).collect(),
            missing: by_group,
            scope,
        }
    }

    /// Removes the references to owners and Pods that may exist, although they were not copied.
    pub(super) fn clean(&self, objects: &mut [Value]) {
        for object in objects {
            let namespace = text(object, "namespace");
            if let Some(owners) = object.pointer_mut("/metadata/ownerReferences").and_then(Value::as_array_mut) {
                owners.retain(|owner| self.is_known(owner, &namespace));
            }
            if object["kind"] == "EndpointSlice" {
                self.clean_endpoints(object, &namespace);
            }
            if object["kind"] == "Secret" && object["type"].is_null() {
                object["type"] = json!("Opaque");
            }
        }
    }

    /// Returns whether an owner was copied, or certainly does not exist.
    fn is_known(&self, owner: &Value, namespace: &str) -> bool {
        let (version, kind) = (owner["apiVersion"].as_str().unwrap_or_default(), owner["kind"].as_str());
        let group = version.split_once('/').map_or("", |(group, _)| group);
        let is_missing = self.missing.get(group).is_some_and(|kinds| kind.is_some_and(|kind| kinds.contains(kind)));
        let is_read = !is_missing && (namespace.is_empty() || self.scope.touched.contains(namespace));
        is_read || self.uids.contains(owner["uid"].as_str().unwrap_or_default())
    }

    fn clean_endpoints(&self, slice: &mut Value, namespace: &str) {
        if self.scope.touched.contains(namespace) {
            return;
        }
        let endpoints = slice.pointer_mut("/endpoints").and_then(Value::as_array_mut);
        for endpoint in endpoints.into_iter().flatten().filter_map(Value::as_object_mut) {
            let name = endpoint.get("targetRef").and_then(|target| target["name"].as_str()).map(str::to_owned);
            if name.is_some_and(|name| !self.pods.contains(&(namespace.to_owned(), name))) {
                endpoint.remove("targetRef");
            }
        }
    }
}

/// Adds the Namespaces of objects that could not be read: without them, nothing in them can be changed.
pub(super) fn add_namespaces(objects: &mut Vec<Value>) {
    let is_namespace = |object: &&Value| object["kind"] == "Namespace" && object["apiVersion"] == "v1";
    let known: BTreeSet<String> = objects.iter().filter(is_namespace).map(|object| text(object, "name")).collect();
    let needed: BTreeSet<String> = objects.iter().map(|object| text(object, "namespace")).collect();
    for name in needed.difference(&known).filter(|name| !name.is_empty()) {
        objects.push(json!({
            "apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "uid": format!("namespace-{name}"), "labels": {"kubernetes.io/metadata.name": name}},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        }));
    }
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}
