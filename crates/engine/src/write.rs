//! Requests that write objects in parallel: by update strategy, or as a patch.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use billhook_cluster::{Applied, Cluster, Error, ErrorKind, Patch, PatchKind, WriteOptions};
use billhook_objects::{Manifest, ObjectKey, Uid};
use billhook_plan::{ApplyAction, ApplyTask, PatchTask, PatchWork, Resource};
use billhook_policy::UpdateStrategy;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::Instant;

use crate::{
    ApplyResult, Blocker, Event, RefusedBy, Status,
    node::{AppliedObject, Context, GRACE, NodeResult, WINDOW, Written, pause, until},
};

/// A request in flight. Its answer is empty if a patch found no object.
type Sending<'a> = BoxFuture<'a, (Attempt<'a>, Result<Option<Applied>, Error>)>;

/// A request for one object.
#[derive(Clone, Copy)]
enum Write<'a> {
    Apply(&'a ApplyTask, &'a Manifest),
    /// A patch, and what the run itself has written to the object before.
    Patch(&'a PatchTask, Option<&'a AppliedObject>),
}

impl<'a> Write<'a> {
    fn object(self) -> &'a ObjectKey {
        match self {
            Self::Apply(task, _) => &task.object,
            Self::Patch(task, _) => &task.object,
        }
    }
}

/// A request and what its earlier attempts came to.
pub(crate) struct Attempt<'a> {
    write: Write<'a>,
    failures: u32,
    /// The failure that was last reported, so that it is reported once.
    reported: String,
}

impl<'a> Attempt<'a> {
    fn first(write: Write<'a>) -> Self {
        Self { write, failures: 0, reported: String::new() }
    }
}

/// Sends requests in parallel, and ends with the deadline or Ctrl-C. It retries those that may succeed later, unless the
/// caller repeats what fails: then `repeated` says whether it does so once more, which is only reported.
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
    let mut left: BTreeMap<&ObjectKey, Option<Blocker>> =
        queue.iter().map(|next| (next.write.object(), None)).collect();
    let mut sending: FuturesUnordered<Sending<'_>> = FuturesUnordered::new();
    let mut status = Status::Done;
    let mut stop_at = None;
    loop {
        while sending.len() < WINDOW
            && stop_at.is_none()
            && let Some(next) = queue.pop_front()
        {
            sending.push(send_one(context, cluster, next, Duration::ZERO));
        }
        tokio::select! {
            answer = sending.next() => match answer {
                Some((Attempt { write, .. }, Ok(written))) => {
                    left.remove(write.object());
                    if let Some(written) = written {
                        succeeded(context, node, write, written, result);
                    }
                }
                Some((attempt, Err(error))) => {
                    let message = error.message();
                    left.insert(attempt.write.object(), Some(Blocker::Refused { message: message.clone(), by: RefusedBy::of(&error) }));
                    let retried = repeated.is_none() && may_succeed_later(&error) && stop_at.is_none();
                    if attempt.reported != message {
                        let object = attempt.write.object().clone();
                        context.emit(Event::Refused { node, object, message: message.clone(), retried: retried || repeated == Some(true) });
                    }
                    if retried {
                        let pause = pause(attempt.failures, error.retry_after());
                        let next = Attempt { failures: attempt.failures + 1, reported: message, ..attempt };
                        sending.push(send_one(context, cluster, next, pause));
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
    let blocked = |(object, blocker): (&ObjectKey, Option<Blocker>)| {
        (object.clone(), Some(blocker.unwrap_or(Blocker::NotRequested)))
    };
    result.left.extend(left.into_iter().map(blocked));
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
            ApplyAction::Create | ApplyAction::Update | ApplyAction::Adopt => {
                let manifest = context.manifests.get(&task.object);
                queue.extend(manifest.map(|manifest| Attempt::first(Write::Apply(task, manifest))));
            }
        }
    }
    queue
}

fn send_one<'a>(context: &Context<'_>, cluster: &'a Cluster, next: Attempt<'a>, pause: Duration) -> Sending<'a> {
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
            Write::Patch(task, written) => patch(cluster, task, written.map(|written| &written.uid)).await,
        };
        (next, answer)
    }
    .boxed()
}

/// How the objects of a plan are written.
#[derive(Clone, Debug)]
pub(crate) struct How {
    /// The manager that owns the written fields.
    pub field_manager: String,
    pub force_conflicts: bool,
    pub dry_run: bool,
}

/// Writes an object by the update strategy of its task, if it is as the plan saw it.
pub(crate) async fn apply(
    cluster: &Cluster,
    task: &ApplyTask,
    manifest: &Manifest,
    how: &How,
) -> Result<Applied, Error> {
    // An object is written in the version of its manifest; the plan's resource may have another one.
    let resource = Resource { version: manifest.api_version.version().to_owned(), ..task.resource.clone() };
    let options = WriteOptions {
        strategy: task.strategy,
        expected: task.uid.as_ref(),
        field_manager: &how.field_manager,
        adopt: task.adopt,
        takes_over: &task.takes_over,
        annotate_before_create: &task.annotate_before_create,
        force_conflicts: how.force_conflicts,
        dry_run: how.dry_run,
    };
    cluster.write(&resource, &task.object, manifest.json(), &options).await
}

/// Patches an object; returns nothing if it is gone. One that the run itself has written must still be that one; any other
/// one is patched for its deletion, which reports it if it was replaced.
async fn patch(cluster: &Cluster, task: &PatchTask, written: Option<&Uid>) -> Result<Option<Applied>, Error> {
    let PatchTask { object, resource, uid, patch } = task;
    let Some(uid) = written.or(uid.as_ref()) else {
        let patch = Patch { subresource: None, kind: PatchKind::Merge, body: patch };
        return cluster.patch(resource, object, &patch).await;
    };
    match cluster.merge(resource, object, uid, patch).await {
        Err(error) if written.is_none() && *error.kind() == ErrorKind::NotAsSeen => Ok(None),
        answer => answer,
    }
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
        Write::Patch(..) => ApplyResult::Patched,
    };
    context.emit(applied_event(node, object, what));
    result.unchanged += usize::from(what == ApplyResult::Unchanged);
    let server_side = match write {
        Write::Apply(task, _) => task.strategy == UpdateStrategy::ServerSide,
        Write::Patch(_, written) => written.is_some_and(|written| written.fingerprint.is_some()),
    };
    result.applied.push(AppliedObject {
        object: object.clone(),
        uid: applied.uid,
        resource_version: applied.resource_version,
        fingerprint: applied.fingerprint.filter(|_| server_side),
        changed: what != ApplyResult::Unchanged,
    });
}

fn applied_event(node: usize, object: &ObjectKey, result: ApplyResult) -> Event {
    Event::Applied { node, object: object.clone(), result }
}
