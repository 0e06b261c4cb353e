//! The garbage collector, which deletes dependents with their owners, and keeps owners until their dependents are
//! deleted.
//!
//! It identifies objects by UID. Before it treats an owner as deleted, it looks the owner up by kind and name, like the
//! real one. The store serves as its graph.

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

/// Returns the object with a UID.
fn find<'a>(state: &'a State, uid: &str) -> Option<(ObjectId, &'a Stored)> {
    let id = state.store.find_uid(uid)?;
    Some((id.clone(), state.store.get_id(id)?))
}

fn soon(state: &mut State, task: Task, uid: &str, now: Instant) {
    state.controllers.queue.add(Work::new(task, "", uid), now);
}

/// Collects an object with new owner references if one of them does not match a known object.
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

/// Reports in an Event that an owner is in another namespace. If the Event cannot be written, it is dropped.
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

/// Adds work on all dependents of an object that was deleted or waits for them.
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

/// Checks whether an object still waits for its dependents.
pub(super) fn unblock(state: &mut State, uid: &str, now: Instant) -> Step {
    match find(state, uid) {
        Some((_, stored)) if stored.waits_for(FOREGROUND) => collect(state, uid, now),
        _ => Ok(Next::Done),
    }
}

/// Deletes an object without owners, or continues a deletion in the foreground.
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

/// The owners of an object by state.
#[derive(Default)]
struct Owners {
    /// Existing and not waiting for dependents.
    solid: Vec<Box<str>>,
    /// Missing.
    dangling: Vec<Box<str>>,
    /// Waiting for their dependents to be deleted.
    waiting: Vec<Box<str>>,
}

/// Looks up the owners of an object by kind and name. Returns none for a cluster-scoped object with a namespaced owner,
/// which is invalid.
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

/// Removes an object from the references of all its dependents, then removes its finalizer.
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

/// Removes the blocks, because objects that own each other would wait forever.
fn unblock_references(object: &mut Value) {
    let Some(Value::Array(references)) = metadata_mut(object).get_mut("ownerReferences") else { return };
    for reference in references.iter_mut().filter(|reference| reference["blockOwnerDeletion"] == true) {
        reference["blockOwnerDeletion"] = false.into();
    }
}

/// Returns the group of an `apiVersion`.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}
