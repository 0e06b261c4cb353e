//! Requests that write objects in parallel: by update strategy, or as a patch.

mod object;
mod sending;

use std::{borrow::Cow, collections::VecDeque};

use billhook_cluster::{Applied, Cluster, Error, ErrorKind, Patch, PatchKind};
use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{ApplyAction, ApplyTask, LateOwner, PatchTask, PatchWork};
use billhook_policy::UpdateStrategy;
use serde_json::{Value, json};

use self::sending::{Attempt, Write};
pub(crate) use self::{
    object::{How, apply},
    sending::send,
};
use crate::{
    ApplyResult, Event, Status,
    node::{AppliedObject, Context, NodeResult, Written},
    retry::Policy,
};

/// Patches the objects of a node, except those that are gone. `written` is what the nodes before it have written.
pub(crate) async fn run_patch<'a>(
    context: &'a Context<'a>,
    cluster: &'a Cluster,
    node: usize,
    work: &'a PatchWork,
    written: &'a Written,
) -> NodeResult {
    let mut result = NodeResult::new(Status::Done);
    let writes =
        work.objects.iter().map(|task| Attempt::first(Write::Patch(task, written.get(&task.object)))).collect();
    let (deadline, policy) = (context.deadline(node), Policy::writes(&work.retries));
    result.status = send(context, cluster, node, writes, deadline, policy, &mut result).await;
    result
}

/// Returns the requests that tasks of a node need, and counts the objects that need none.
pub(crate) fn to_apply<'a>(
    context: &Context<'a>,
    node: usize,
    tasks: impl IntoIterator<Item = &'a ApplyTask>,
    result: &mut NodeResult,
) -> VecDeque<Attempt<'a>> {
    let mut queue = VecDeque::new();
    for task in tasks {
        match task.action {
            ApplyAction::Await => {}
            ApplyAction::Unchanged => {
                result.unchanged += 1;
                context.emit(applied_event(node, &task.object, ApplyResult::Unchanged));
            }
            ApplyAction::Create | ApplyAction::Update | ApplyAction::Adopt | ApplyAction::Recreate => {
                let write = |manifest| match task.action {
                    ApplyAction::Recreate => Write::Recreate(task, manifest),
                    _ => Write::Apply(task, manifest),
                };
                let manifest = context.manifests.get(&task.object);
                queue.extend(manifest.map(|manifest| Attempt::first(write(manifest))));
            }
        }
    }
    queue
}

/// Patches an object; returns nothing if it is gone. One that the run itself has written must still be that one; any other
/// one is patched for its deletion, which reports it if it was replaced.
async fn patch(cluster: &Cluster, task: &PatchTask, written: Option<&Uid>) -> Result<Option<Applied>, Error> {
    let PatchTask { object, resource, uid, patch, owners, status } = task;
    let uid = written.or(uid.as_ref());
    if let Some(status) = status {
        let metadata = uid.map_or_else(|| json!({}), |uid| json!({ "uid": uid }));
        let body = json!({ "metadata": metadata, "status": status });
        let patch = Patch { subresource: Some("status"), kind: PatchKind::Merge, body: &body };
        return cluster.patch(resource, object, &patch).await;
    }
    let patch = &with_owners(cluster, patch, owners).await?;
    let Some(uid) = uid else {
        let patch = Patch { subresource: None, kind: PatchKind::Merge, body: patch };
        return cluster.patch(resource, object, &patch).await;
    };
    match cluster.merge(resource, object, uid, patch).await {
        Err(error) if written.is_none() && *error.kind() == ErrorKind::NotAsSeen => Ok(None),
        answer => answer,
    }
}

/// Sets the UIDs of the owners that did not exist when the plan was made. One that was deleted meanwhile is left out.
async fn with_owners<'a>(cluster: &Cluster, patch: &'a Value, owners: &[LateOwner]) -> Result<Cow<'a, Value>, Error> {
    if owners.is_empty() {
        return Ok(Cow::Borrowed(patch));
    }
    let mut patch = patch.clone();
    let references = &mut patch["metadata"]["ownerReferences"];
    for LateOwner { index, object, resource } in owners {
        let owner = cluster.get_meta(resource, object).await?;
        if let Some(reference) = references.get_mut(index) {
            match owner {
                Some(owner) => reference["uid"] = json!(owner.uid),
                None => *reference = Value::Null,
            }
        }
    }
    references.as_array_mut().into_iter().for_each(|all| all.retain(|reference| !reference.is_null()));
    Ok(Cow::Owned(patch))
}

fn succeeded(context: &Context<'_>, node: usize, write: Write<'_>, applied: Applied, result: &mut NodeResult) {
    let object = write.object();
    let what = match write {
        Write::Apply(ApplyTask { action: ApplyAction::Adopt, .. }, _) => ApplyResult::Adopted,
        Write::Apply(..) if applied.adopted => ApplyResult::Adopted,
        Write::Apply(task, _) if task.resource_version.as_ref() == Some(&applied.resource_version) => {
            ApplyResult::Unchanged
        }
        Write::Apply(..) if applied.created => ApplyResult::Created,
        // The namespace of the record is created before the run.
        Write::Apply(ApplyTask { action: ApplyAction::Create, uid: Some(_), .. }, _) => ApplyResult::Created,
        Write::Apply(..) => ApplyResult::Configured,
        Write::Recreate(..) => ApplyResult::Recreated,
        Write::Patch(..) => ApplyResult::Patched,
    };
    context.emit(applied_event(node, object, what));
    result.unchanged += usize::from(what == ApplyResult::Unchanged);
    let server_side = match write {
        Write::Apply(task, _) | Write::Recreate(task, _) => task.strategy == UpdateStrategy::ServerSide,
        Write::Patch(_, written) => written.is_some_and(|written| written.fingerprint.is_some()),
    };
    result.applied.push(AppliedObject {
        object: object.clone(),
        uid: applied.uid,
        resource_version: applied.resource_version,
        annotations: applied.annotations,
        fingerprint: applied.fingerprint.filter(|_| server_side),
        changed: what != ApplyResult::Unchanged,
    });
}

fn applied_event(node: usize, object: &ObjectKey, result: ApplyResult) -> Event {
    Event::Applied { node, object: object.clone(), result }
}
