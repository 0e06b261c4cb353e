//! The endpoints of copied Services, as far as Pods are deleted: the slices lose them. New Pods do not run, so none is added.

use serde_json::Value;

use super::objects::{Next, Step, edit, id, objects};
use crate::{object::text, state::State, store::ObjectId};

/// Removes the endpoints of Pods that are deleted from the slices of a namespace.
pub(super) fn sync(state: &mut State, namespace: &str) -> Step {
    let slices = objects(state, "discovery.k8s.io", "endpointslices", namespace);
    for slice in slices {
        let value = slice.value();
        let endpoints = || value["endpoints"].as_array().into_iter().flatten();
        let kept: Vec<Value> = endpoints().filter(|endpoint| is_left(state, namespace, endpoint)).cloned().collect();
        if kept.len() < endpoints().count() {
            let slice = id("discovery.k8s.io", "endpointslices", namespace, &slice.name);
            edit(state, &slice, "endpointslice-controller", |object| object["endpoints"] = kept.into())?;
        }
    }
    Ok(Next::Done)
}

fn is_left(state: &State, namespace: &str, endpoint: &Value) -> bool {
    let target = &endpoint["targetRef"];
    let pod: ObjectId = id("", "pods", namespace, text(target, "name"));
    target["kind"] != "Pod" || state.store.get_id(&pod).is_some_and(|pod| !pod.deleting)
}
