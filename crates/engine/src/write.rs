//! Requests that write objects in parallel: by update strategy, or as a patch.

mod object;

use std::{
    borrow::Cow,
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use billhook_cluster::{Applied, Cluster, Error, ErrorKind, Patch, PatchKind};
use billhook_objects::{Manifest, ObjectKey, Uid};
use billhook_plan::{ApplyAction, ApplyTask, LateOwner, PatchTask, PatchWork, Work};
use billhook_policy::UpdateStrategy;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    ApplyResult, Blocker, Event, RefusedBy, Status,
    node::{AppliedObject, Context, GRACE, NodeResult, WINDOW, Written, pause, until},
};

use object::recreate;
pub(crate) use object::{How, apply};

/// A request in flight. Its answer is empty if a patch found no object, or an object was not recreated.
type Sending<'a> = BoxFuture<'a, (Attempt<'a>, Result<Option<Applied>, Error>)>;

/// A request for one object.
#[derive(Clone, Copy)]
enum Write<'a> {
    Apply(&'a ApplyTask, &'a Manifest),
    /// The object is created again once it is gone: it is being deleted, or it is deleted because its update was rejected as
    /// invalid.
    Recreate(&'a ApplyTask, &'a Manifest),
    /// A patch, and what the run itself has written to the object before.
    Patch(&'a PatchTask, Option<&'a AppliedObject>),
}

impl<'a> Write<'a> {
    fn object(self) -> &'a ObjectKey {
        match self {
            Self::Apply(task, _) | Self::Recreate(task, _) => &task.object,
            Self::Patch(task, _) => &task.object,
        }
    }

    /// Returns what follows a failure, if the plan lets an object be recreated whose update is invalid.
    fn after(self, error: &Error) -> Option<Self> {
        match self {
            Self::Apply(task, manifest) if *error.kind() == ErrorKind::Invalid => {
                task.recreate.map(|_| Self::Recreate(task, manifest))
            }
            _ => None,
        }
    }
}

/// A request and what its earlier attempts came to.
pub(crate) struct Attempt<'a> {
    write: Write<'a>,
    /// How often it failed for now, and how often it was rejected.
    failures: u32,
    rejections: usize,
    /// The failure that was last reported, so that it is reported once.
    reported: String,
}

impl<'a> Attempt<'a> {
    /// Returns whether it failed because another client has created the object, to which the plan leaves it then.
    fn is_left(&self, error: &Error) -> bool {
        matches!(self.write, Write::Apply(task, _) if task.leave_others) && *error.kind() == ErrorKind::NotAsSeen
    }

    fn first(write: Write<'a>) -> Self {
        Self { write, failures: 0, rejections: 0, reported: String::new() }
    }
}

/// Sends requests in parallel, and ends with the deadline or Ctrl-C. It retries those that may succeed later, unless the
/// caller repeats what fails: then `repeated` says whether it does so once more, which is only reported. Patches that are
/// rejected are repeated as the plan says.
pub(crate) async fn send(
    context: &Context<'_>,
    cluster: &Cluster,
    node: usize,
    mut queue: VecDeque<Attempt<'_>>,
    deadline: Option<Instant>,
    repeated: Option<bool>,
    result: &mut NodeResult,
) -> Status {
    let stop = &context.options.stop;
    let retries = if let Work::Patch(work) = &context.plan.nodes[node].work { work.retries.as_slice() } else { &[] };
    // What is not known to be left is read at the end.
    let mut left: BTreeMap<&ObjectKey, Option<Blocker>> =
        queue.iter().map(|next| (next.write.object(), Some(Blocker::NotRequested))).collect();
    let mut sending: FuturesUnordered<Sending<'_>> = FuturesUnordered::new();
    let mut status = Status::Done;
    let mut stop_at = None;
    loop {
        while sending.len() < WINDOW
            && stop_at.is_none()
            && let Some(next) = queue.pop_front()
        {
            if matches!(next.write, Write::Recreate(..)) {
                left.insert(next.write.object(), None);
            }
            sending.push(send_one(context, cluster, node, next, Duration::ZERO));
        }
        tokio::select! {
            answer = sending.next() => match answer {
                // Its annotations do not let it be recreated any more.
                Some((Attempt { write: Write::Recreate(task, _), reported, .. }, Ok(None))) => {
                    let blocker = Blocker::Refused { message: reported.clone(), by: RefusedBy::Server };
                    left.insert(&task.object, Some(blocker));
                    context.emit(Event::Refused { node, object: task.object.clone(), message: reported, retried: false });
                    status = Status::Failed;
                }
                Some((Attempt { write, .. }, Ok(written))) => {
                    left.remove(write.object());
                    if let Some(written) = written {
                        succeeded(context, node, write, written, result);
                    }
                }
                Some((attempt, Err(error))) if attempt.is_left(&error) => {
                    let object = attempt.write.object();
                    left.remove(object);
                    result.unchanged += 1;
                    result.left_to_others.push(object.clone());
                    context.emit(applied_event(node, object, ApplyResult::Unchanged));
                }
                Some((attempt, Err(error))) => {
                    let message = error.message();
                    let recreation = attempt.write.after(&error).filter(|_| stop_at.is_none());
                    left.insert(attempt.write.object(), Some(Blocker::Refused { message: message.clone(), by: RefusedBy::of(&error) }));
                    let later = may_succeed_later(&error);
                    let repetition = retries.get(attempt.rejections).filter(|_| !later);
                    let retried = repeated.is_none() && (later || repetition.is_some()) && stop_at.is_none();
                    if attempt.reported != message {
                        let object = attempt.write.object().clone();
                        let retried = retried || recreation.is_some() || repeated == Some(true);
                        context.emit(Event::Refused { node, object, message: message.clone(), retried });
                    }
                    if let Some(write) = recreation {
                        let next = Attempt { write, reported: message, ..attempt };
                        left.insert(write.object(), None);
                        sending.push(send_one(context, cluster, node, next, Duration::ZERO));
                    } else if retried {
                        let backoff = || pause(attempt.failures, error.retry_after());
                        let pause = repetition.map_or_else(backoff, |pause| pause.0);
                        let (failures, rejections) = match repetition {
                            Some(_) => (attempt.failures, attempt.rejections + 1),
                            None => (attempt.failures + 1, attempt.rejections),
                        };
                        let next = Attempt { failures, rejections, reported: message, ..attempt };
                        sending.push(send_one(context, cluster, node, next, pause));
                    } else {
                        status = Status::Failed;
                    }
                }
                None => break,
            },
            () = stop.cancelled(), if stop_at.is_none() => {
                status = status.max(Status::Interrupted);
                stop_at = Some(Instant::now() + GRACE);
            }
            () = until(stop_at), if stop_at.is_some() => break,
            () = until(deadline), if stop_at.is_none() => {
                status = status.max(Status::TimedOut);
                break;
            }
        }
    }
    result.left.extend(left.into_iter().map(|(object, blocker)| (object.clone(), blocker)));
    status
}

/// Patches the objects of a node, except those that are gone. `written` is what the nodes before it have written.
pub(crate) async fn run_patch(
    context: &Context<'_>,
    cluster: &Cluster,
    node: usize,
    work: &PatchWork,
    written: &Written,
) -> NodeResult {
    let mut result = NodeResult::new(Status::Done);
    let writes =
        work.objects.iter().map(|task| Attempt::first(Write::Patch(task, written.get(&task.object)))).collect();
    result.status = send(context, cluster, node, writes, context.deadline(node), None, &mut result).await;
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

fn send_one<'a>(
    context: &'a Context<'_>,
    cluster: &'a Cluster,
    node: usize,
    next: Attempt<'a>,
    pause: Duration,
) -> Sending<'a> {
    let how = How {
        field_manager: context.plan.field_manager(),
        force_conflicts: context.options.force_conflicts,
        dry_run: false,
    };
    async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let answer = match next.write {
            Write::Apply(task, manifest) => apply(cluster, task, manifest, &how).await.map(Some),
            Write::Recreate(task, manifest) => {
                let waits = |reason: &str| {
                    let (object, reason) = (task.object.clone(), reason.to_owned());
                    context.emit(Event::Waiting { node, object, reason });
                };
                recreate(cluster, task, manifest, &how, waits).await
            }
            Write::Patch(task, written) => patch(cluster, task, written.map(|written| &written.uid)).await,
        };
        (next, answer)
    }
    .boxed()
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

/// Returns whether the same request may succeed later: the API server is unavailable, a webhook's backend is not
/// running yet (it may be part of the release), or a new namespace has no ServiceAccount yet.
fn may_succeed_later(error: &Error) -> bool {
    error.is_transient()
        || *error.kind() == ErrorKind::Webhook
        || error.message().contains("error looking up service account")
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
