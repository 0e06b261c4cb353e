//! The garbage collector: what becomes of an object whose owners go, and of an owner that waits for its dependents.
//!
//! It knows objects by UID. The real one keeps a graph for this and looks an owner up by its coordinates before it
//! believes that it is gone; so does this one, on the store, which is its graph.

use tokio::time::Instant;

use serde_json::{Value, json};

use super::{
    objects::{Next, Step, edit, not_served, remove_finalizer, writer},
    work::{Task, Work},
};
use crate::{
    kinds::ResourceId,
    object::{FOREGROUND, ORPHAN, Owner, Stored, metadata_mut},
    state::State,
    status::ApiError,
    store::ObjectId,
    verbs::{DeleteOptions, Propagation, create, delete},
};

const CONTROLLER: &str = "generic-garbage-collector";

/// The object of a UID.
fn find<'a>(state: &'a State, uid: &str) -> Option<(ObjectId, &'a Stored)> {
    let id = state.store.find_uid(uid)?;
    Some((id.clone(), state.store.get_id(id)?))
}

fn soon(state: &mut State, task: Task, uid: &str, now: Instant) {
    state.controllers.queue.add(Work::new(task, "", uid), now);
}

/// An object with new references: where one of them names nothing that is known, it may be garbage.
pub(super) fn check_references(state: &mut State, uid: &str) -> Step {
    let Some((id, stored)) = find(state, uid) else { return Ok(Next::Done) };
    let mut doubtful = false;
    let mut elsewhere = Vec::new();
    for owner in &stored.owners {
        let Some((owner_id, _)) = find(state, &owner.uid) else {
            doubtful = true;
            continue;
        };
        if !owner_id.namespace.is_empty() && owner_id.namespace != id.namespace {
            elsewhere.push(owner.clone());
        }
        let kind = state.kinds.get(&owner_id.resource);
        let same = kind.is_some_and(|kind| kind.kind == *owner.kind && kind.group() == group(&owner.api_version));
        doubtful |= !same || owner_id.name != owner.name;
    }
    doubtful |= !elsewhere.is_empty();
    for owner in elsewhere {
        report_namespace(state, &id, &owner);
    }
    if doubtful { collect_object(state, &id) } else { Ok(Next::Done) }
}

/// Says in an Event that an owner lies in another namespace. An Event that cannot be written is not missed.
fn report_namespace(state: &mut State, id: &ObjectId, owner: &Owner) {
    let (Some(events), Some(kind)) = (state.kinds.find("", "events").cloned(), state.kinds.get(&id.resource)) else {
        return;
    };
    let Some(stored) = state.store.get_id(id) else { return };
    let Owner { api_version, kind: owner_kind, name, uid, .. } = owner;
    let identity = format!("[{api_version}/{owner_kind}, namespace: {}, name: {name}, uid: {uid}]", id.namespace);
    let namespace = if id.namespace.is_empty() { "default" } else { &id.namespace };
    let mut involved = json!({
        "kind": kind.kind, "apiVersion": kind.stored_api_version(), "name": id.name, "uid": stored.uid,
    });
    if !id.namespace.is_empty() {
        involved["namespace"] = (*id.namespace).into();
    }
    let now = state.clock.text();
    let event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": format!("{}.{:016x}", id.name, state.ids.next()), "namespace": namespace},
        "involvedObject": involved, "reason": "OwnerRefInvalidNamespace", "type": "Warning",
        "message": format!("ownerRef {identity} does not exist in namespace \"{}\"", id.namespace),
        "source": {"component": "garbage-collector-controller"}, "reportingComponent": "garbage-collector-controller",
        "reportingInstance": "", "firstTimestamp": now, "lastTimestamp": now, "eventTime": null, "count": 1,
    });
    let _unwritten = create(state, &writer(&events, CONTROLLER), namespace, event);
}

/// Looks at all dependents of an object that is gone, or that waits for them.
pub(super) fn dependents(state: &mut State, uid: &str, now: Instant) -> Step {
    for uid in dependent_uids(state, uid) {
        soon(state, Task::Collect, &uid, now);
    }
    Ok(Next::Done)
}

fn dependent_ids(state: &State, uid: &str) -> Vec<ObjectId> {
    state.store.dependents(uid).cloned().collect()
}

fn dependent_uids(state: &State, uid: &str) -> Vec<Box<str>> {
    state.store.dependents(uid).filter_map(|id| Some(state.store.get_id(id)?.uid.clone())).collect()
}

/// Looks whether an object still waits for its dependents; nothing else about it.
pub(super) fn unblock(state: &mut State, uid: &str, now: Instant) -> Step {
    match find(state, uid) {
        Some((_, stored)) if stored.waits_for(FOREGROUND) => collect(state, uid, now),
        _ => Ok(Next::Done),
    }
}

/// Deletes an object if nothing owns it any more, or takes it a step further on its way.
pub(super) fn collect(state: &mut State, uid: &str, now: Instant) -> Step {
    let Some((id, stored)) = find(state, uid) else { return Ok(Next::Done) };
    if !stored.waits_for(FOREGROUND) {
        return collect_object(state, &id);
    }
    let blocks = |stored: &Stored| stored.owners.iter().any(|owner| *owner.uid == *uid && owner.blocks);
    let blocking: Vec<_> = dependent_ids(state, uid)
        .iter()
        .filter_map(|id| state.store.get_id(id))
        .filter(|stored| blocks(stored))
        .map(|stored| (stored.uid.clone(), stored.waits_for(FOREGROUND)))
        .collect();
    if blocking.is_empty() {
        edit(state, &id, CONTROLLER, |object| remove_finalizer(object, FOREGROUND))?;
    }
    for (uid, _) in blocking.iter().filter(|(_, waits)| !waits) {
        soon(state, Task::Collect, uid, now);
    }
    Ok(Next::Done)
}

/// The owners of an object.
#[derive(Default)]
struct Owners {
    /// There, and to stay.
    solid: Vec<Box<str>>,
    /// Not there.
    dangling: Vec<Box<str>>,
    /// There, and waiting for their dependents to go.
    waiting: Vec<Box<str>>,
}

/// Looks the owners of an object up by their coordinates. None where this leads nowhere: a cluster-scoped object cannot
/// have an owner in a namespace.
fn classify(state: &State, id: &ObjectId, stored: &Stored) -> Result<Option<Owners>, ApiError> {
    let mut owners = Owners::default();
    for owner in &stored.owners {
        let kind = state.kinds.by_kind(group(&owner.api_version), &owner.kind);
        let kind = kind.ok_or_else(|| not_served(&ResourceId::new(group(&owner.api_version), &owner.kind)))?;
        if kind.namespaced && id.namespace.is_empty() {
            return Ok(None);
        }
        let namespace = if kind.namespaced { &*id.namespace } else { "" };
        let found = state.store.get(&kind.id, namespace, &owner.name).filter(|found| found.uid == owner.uid);
        let list = match found {
            None => &mut owners.dangling,
            Some(found) if found.waits_for(FOREGROUND) => &mut owners.waiting,
            Some(_) => &mut owners.solid,
        };
        list.push(owner.uid.clone());
    }
    Ok(Some(owners))
}

fn collect_object(state: &mut State, id: &ObjectId) -> Step {
    let Some(stored) = state.store.get_id(id).cloned() else { return Ok(Next::Done) };
    if stored.deleting || stored.owners.is_empty() {
        return Ok(Next::Done);
    }
    let Some(owners) = classify(state, id, &stored)? else { return Ok(Next::Done) };
    if !owners.solid.is_empty() {
        let gone = [owners.dangling, owners.waiting].concat();
        edit(state, id, CONTROLLER, |object| drop_references(object, &gone))?;
        return Ok(Next::Done);
    }
    let dependents = dependent_ids(state, &stored.uid);
    let has = |finalizer: &str| stored.finalizers.iter().any(|known| **known == *finalizer);
    let propagation = if !owners.waiting.is_empty() && !dependents.is_empty() {
        let cycle = |id: &ObjectId| state.store.get_id(id).is_some_and(|dependent| dependent.waits_for(FOREGROUND));
        if dependents.iter().any(cycle) {
            edit(state, id, CONTROLLER, unblock_references)?;
        }
        Propagation::Foreground
    } else if has(ORPHAN) {
        Propagation::Orphan
    } else if has(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let kind = state.kinds.get(&id.resource).ok_or_else(|| not_served(&id.resource))?;
    let writer = writer(kind, CONTROLLER);
    let uid = Some(stored.uid.to_string());
    let options = DeleteOptions { propagation: Some(propagation), uid, ..DeleteOptions::default() };
    delete(state, &writer, &id.namespace, &id.name, &options)?;
    Ok(Next::Done)
}

/// Takes an object from the references of all its dependents, and lets it go.
pub(super) fn orphan(state: &mut State, uid: &str) -> Step {
    let Some((id, stored)) = find(state, uid) else { return Ok(Next::Done) };
    if !stored.waits_for(ORPHAN) {
        return Ok(Next::Done);
    }
    let mut refused = false;
    for dependent in dependent_ids(state, uid) {
        let edited = edit(state, &dependent, CONTROLLER, |object| drop_references(object, &[uid.into()]));
        refused |= edited.is_err();
    }
    if refused {
        return Ok(Next::Retry);
    }
    edit(state, &id, CONTROLLER, |object| remove_finalizer(object, ORPHAN))?;
    Ok(Next::Done)
}

fn drop_references(object: &mut Value, uids: &[Box<str>]) {
    let Some(Value::Array(references)) = metadata_mut(object).get_mut("ownerReferences") else { return };
    references.retain(|reference| !uids.iter().any(|uid| reference["uid"] == **uid));
    if references.is_empty() {
        metadata_mut(object).remove("ownerReferences");
    }
}

/// Objects that own each other in a circle would wait for ever.
fn unblock_references(object: &mut Value) {
    let Some(Value::Array(references)) = metadata_mut(object).get_mut("ownerReferences") else { return };
    for reference in references.iter_mut().filter(|reference| reference["blockOwnerDeletion"] == true) {
        reference["blockOwnerDeletion"] = false.into();
    }
}

/// The group of `apps/v1`.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
