//! The ReplicaSet controller, which keeps the desired number of Pods.

use serde_json::{Value, json};

use super::{claim, count, is_active, is_ready, pod};
use crate::{
    controllers::objects::{Next, Step, edit_status, id, load, writer},
    kinds::ResourceId,
    object::{is_deleting, meta},
    state::State,
    status::ApiError,
    verbs::{DeleteOptions, create, delete},
};

const CONTROLLER: &str = "replicaset-controller";

pub(in crate::controllers) fn sync(state: &mut State, namespace: &str, name: &str) -> Step {
    let set_id = id("apps", "replicasets", namespace, name);
    let Some(set) = load(state, &set_id) else { return Ok(Next::Done) };
    let pods_resource = ResourceId::new("", "pods");
    let mut pods = claim(state, &set, &pods_resource, CONTROLLER);
    let mut refused = None;
    if !is_deleting(&set) {
        refused = scale(state, &set, &mut pods).err();
    }
    let status = status(&set, &pods);
    edit_status(state, &set_id, CONTROLLER, |object| object["status"] = status)?;
    refused.map_or(Ok(Next::Done), Err)
}

/// Creates missing Pods, or deletes surplus ones, starting with those that are not ready and with new ones.
fn scale(state: &mut State, set: &Value, pods: &mut Vec<Value>) -> Result<(), ApiError> {
    let Some(kind) = state.kinds.find("", "pods") else { return Ok(()) };
    let (writer, namespace) = (writer(kind, CONTROLLER), meta(set, "namespace"));
    let wanted = set["spec"]["replicas"].as_i64().unwrap_or(1);
    let active = count(pods.iter().filter(|pod| is_active(pod)));
    for _ in active..wanted {
        let made = create(state, &writer, namespace, pod(set, &set["spec"]["template"], &[]))?;
        pods.push(made.object);
    }
    let mut surplus: Vec<Value> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    surplus.sort_by_cached_key(|pod| {
        let age = std::cmp::Reverse(meta(pod, "creationTimestamp").to_owned());
        (is_ready(pod), age, meta(pod, "name").to_owned())
    });
    for pod in surplus.iter().take(usize::try_from(active - wanted).unwrap_or(0)) {
        let options = DeleteOptions { uid: Some(meta(pod, "uid").to_owned()), ..DeleteOptions::default() };
        delete(state, &writer, namespace, meta(pod, "name"), &options)?;
        pods.retain(|known| meta(known, "uid") != meta(pod, "uid"));
    }
    Ok(())
}

fn status(set: &Value, pods: &[Value]) -> Value {
    let mut status = set["status"].clone();
    let active = || pods.iter().filter(|pod| is_active(pod));
    let labels = set["spec"]["template"]["metadata"]["labels"].as_object();
    let labelled = |pod: &&Value| {
        labels.into_iter().flatten().all(|(key, value)| pod["metadata"]["labels"][key.as_str()] == *value)
    };
    let ready = count(active().filter(|pod| is_ready(pod)));
    status["replicas"] = count(active()).into();
    status["observedGeneration"] = set["metadata"]["generation"].clone();
    status["terminatingReplicas"] = count(pods.iter().filter(|pod| is_deleting(pod))).into();
    let counts = [
        ("fullyLabeledReplicas", count(active().filter(labelled))),
        ("readyReplicas", ready),
        ("availableReplicas", ready),
    ];
    for (field, number) in counts {
        set_count(&mut status, field, number);
    }
    status
}

/// Sets a count in a status. Zero is omitted.
pub(super) fn set_count(status: &mut Value, field: &str, number: i64) {
    match status.as_object_mut() {
        Some(fields) if number == 0 => drop(fields.remove(field)),
        Some(fields) => drop(fields.insert(field.to_owned(), number.into())),
        None => *status = json!({field: number}),
    }
}
