//! Workloads in a cluster without scheduler and kubelet: Deployments create ReplicaSets, ReplicaSets and Jobs create
//! Pods, and the Pods remain pending.

pub(super) mod deployments;
pub(super) mod jobs;
pub(super) mod replica_sets;

use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    objects::{Next, Step, edit, objects},
    work::Task,
};
use crate::{
    conditions,
    kinds::ResourceId,
    object::{is_deleting, meta, metadata_mut},
    selector::label_selector_matches,
    state::State,
    store::ObjectId,
};

/// Adds work on all workloads of a namespace, which may adopt an object.
pub(super) fn adopt(state: &mut State, namespace: &str, now: Instant) -> Step {
    for (group, plural, task) in [
        ("apps", "deployments", Task::Deployment),
        ("apps", "replicasets", Task::ReplicaSet),
        ("batch", "jobs", Task::Job),
    ] {
        for object in objects(state, group, plural, namespace) {
            state.controllers.add_named(task, namespace, &object.name, now);
        }
    }
    Ok(Next::Done)
}

/// Returns the objects that an owner controls, and adopts those that its selector matches and that have no controller.
fn claim(state: &mut State, owner: &Value, resource: &ResourceId, controller: &str) -> Vec<Value> {
    let (namespace, uid) = (meta(owner, "namespace"), meta(owner, "uid"));
    let selector = owner["spec"]["selector"].clone();
    let objects: Vec<Value> = state.store.list(resource, Some(namespace)).map(|stored| stored.value()).collect();
    let mut claimed = Vec::new();
    for object in objects {
        let controllers = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let by = controllers.filter(|owner| owner["controller"] == true).find_map(|owner| owner["uid"].as_str());
        match by {
            Some(by) if by == uid => claimed.push(object),
            None if !is_deleting(owner) && !is_deleting(&object) && selects(&selector, &object) => {
                let id = ObjectId::new(resource, namespace, meta(&object, "name"));
                let taken = edit(state, &id, controller, |object| add_owner(object, owner));
                if taken.is_ok()
                    && let Some(stored) = state.store.get_id(&id)
                {
                    claimed.push(stored.value());
                }
            }
            _ => {}
        }
    }
    claimed
}

fn add_owner(object: &mut Value, owner: &Value) {
    let reference = reference(owner);
    let references = metadata_mut(object).entry("ownerReferences").or_insert_with(|| json!([]));
    if let Some(references) = references.as_array_mut() {
        references.push(reference);
    }
}

/// Returns a reference to the controlling owner.
fn reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": meta(owner, "name"), "uid": meta(owner, "uid"),
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// Returns whether a label selector matches an object. An empty one matches nothing.
fn selects(selector: &Value, object: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    let labels_empty = selector["matchLabels"].as_object().is_none_or(Map::is_empty);
    let is_empty = labels_empty && selector["matchExpressions"].as_array().is_none_or(Vec::is_empty);
    !is_empty && label_selector_matches(selector, &|key| labels[key].as_str())
}

/// Returns the Pod that a template describes.
fn pod(owner: &Value, template: &Value, finalizers: &[&str]) -> Value {
    let mut metadata = json!({
        "generateName": format!("{}-", meta(owner, "name")), "namespace": meta(owner, "namespace"),
        "ownerReferences": [reference(owner)],
    });
    for field in ["labels", "annotations"] {
        if template["metadata"][field].is_object() {
            metadata[field] = template["metadata"][field].clone();
        }
    }
    let of_template = template["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let finalizers: Vec<Value> = of_template.into_iter().chain(finalizers.iter().map(|&name| name.into())).collect();
    if !finalizers.is_empty() {
        metadata["finalizers"] = finalizers.into();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

/// Returns whether a Pod is running or pending.
fn is_active(pod: &Value) -> bool {
    !is_deleting(pod) && !matches!(phase(pod), "Succeeded" | "Failed")
}

fn is_ready(pod: &Value) -> bool {
    conditions::is_true(pod, "Ready")
}

/// Returns the number of objects in the type of status fields.
fn count<'a>(pods: impl Iterator<Item = &'a Value>) -> i64 {
    i64::try_from(pods.count()).unwrap_or(i64::MAX)
}
