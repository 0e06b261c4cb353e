//! Protection of storage in use: finalizers hold a claim that a Pod uses and a volume that is bound.

use serde_json::Value;
use tokio::time::Instant;

use super::{
    objects::{Next, Step, add_finalizer, edit, has_finalizer, id, load, objects, remove_finalizer},
    work::Task,
};
use crate::{
    object::{is_deleting, meta},
    state::State,
};

const CLAIM: &str = "kubernetes.io/pvc-protection";
const VOLUME: &str = "kubernetes.io/pv-protection";

/// Adds work on all claims of a namespace that are being deleted.
pub(super) fn sync_claims(state: &mut State, namespace: &str, now: Instant) -> Step {
    let claims = objects(state, "", "persistentvolumeclaims", namespace);
    for claim in claims.iter().filter(|claim| claim.deleting) {
        state.controllers.add_named(Task::Claim, namespace, &claim.name, now);
    }
    Ok(Next::Done)
}

pub(super) fn sync_claim(state: &mut State, namespace: &str, name: &str) -> Step {
    let claim_id = id("", "persistentvolumeclaims", namespace, name);
    let Some(claim) = load(state, &claim_id) else { return Ok(Next::Done) };
    if !is_deleting(&claim) {
        edit(state, &claim_id, "pvc-protection-controller", |claim| add_finalizer(claim, CLAIM))?;
    } else if has_finalizer(&claim, CLAIM)
        && !objects(state, "", "pods", namespace).iter().any(|pod| uses(&pod.value(), &claim))
    {
        edit(state, &claim_id, "pvc-protection-controller", |claim| remove_finalizer(claim, CLAIM))?;
    }
    Ok(Next::Done)
}

/// Returns whether a Pod uses a claim. Only a Pod that is assigned to a node does.
fn uses(pod: &Value, claim: &Value) -> bool {
    let name = meta(claim, "name");
    if pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        return false;
    }
    let shut_down = is_deleting(pod) && pod["metadata"]["deletionGracePeriodSeconds"] == 0;
    let owners = claim["metadata"]["ownerReferences"].as_array();
    let owned = owners.into_iter().flatten().any(|owner| owner["uid"] == meta(pod, "uid"));
    let ephemeral = |volume: &Value| {
        let own = format!("{}-{}", meta(pod, "name"), volume["name"].as_str().unwrap_or_default());
        !volume["ephemeral"].is_null() && own == name && owned && !shut_down
    };
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.any(|volume| volume["persistentVolumeClaim"]["claimName"] == name || ephemeral(volume))
}

pub(super) fn sync_volume(state: &mut State, name: &str) -> Step {
    let volume_id = id("", "persistentvolumes", "", name);
    let Some(volume) = load(state, &volume_id) else { return Ok(Next::Done) };
    if !is_deleting(&volume) {
        edit(state, &volume_id, "pv-protection-controller", |volume| add_finalizer(volume, VOLUME))?;
    } else if has_finalizer(&volume, VOLUME) && volume["status"]["phase"] != "Bound" {
        edit(state, &volume_id, "pv-protection-controller", |volume| remove_finalizer(volume, VOLUME))?;
    }
    Ok(Next::Done)
}
