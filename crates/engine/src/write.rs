//! Requests that write objects, in parallel: by update strategy, or a patch.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    time::Duration,
};

use billhook_cluster::{Applied, Cluster, Error, ErrorKind, Patch, PatchKind, WriteOptions};
use billhook_objects::{Manifest, ObjectKey};
use billhook_plan::{ApplyAction, ApplyTask, ApplyWork, PatchTask, PatchWork, Resource};
use futures::{StreamExt as _, stream::FuturesUnordered};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    ApplyResult, Blocker, Event, RefusedBy, Status,
    node::{AppliedObject, Context, GRACE, NodeResult, WINDOW, pause, until},
};

/// A request under way, and how often its object was tried before; the answer holds no object where there is none.
type Sending<'a> = Pin<Box<dyn Future<Output = (Try<'a>, Result<Option<Applied>, Error>)> + Send + 'a>>;

/// A request for one object.
#[derive(Clone, Copy)]
enum Write<'a> {
    Apply(&'a ApplyTask, &'a Manifest),
    Patch(&'a PatchTask),
}

impl<'a> Write<'a> {
    fn object(self) -> &'a ObjectKey {
        match self {
            Self::Apply(task, _) => &task.object,
            Self::Patch(task) => &task.object,
        }
    }
}

/// One object that is being written.
pub(crate) struct Try<'a> {
    write: Write<'a>,
    attempts: u32,
    /// What the server said last, so that it is not said again.
    said: String,
}

/// Sends requests in parallel, those again that may succeed later, until the time is over or the user interrupts.
pub(crate) async fn send(
    context: &Context<'_>,
    cluster: &Cluster,
    node: usize,
    mut queue: VecDeque<Try<'_>>,
    deadline: Option<Instant>,
    result: &mut NodeResult,
) -> Status {
    let stop = &context.options.stop;
    let mut left: BTreeMap<&ObjectKey, Option<Blocker>> = queue.iter().map(|t| (t.write.object(), None)).collect();
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
                Some((Try { write, .. }, Ok(written))) => {
                    left.remove(write.object());
                    if let Some(written) = written {
                        succeeded(context, node, write, written, result);
                    }
                }
                Some((tried, Err(error))) => {
                    let message = error.message();
                    left.insert(tried.write.object(), Some(Blocker::Refused { message: message.clone(), by: RefusedBy::of(&error) }));
                    let retried = passes(&error) && stop_at.is_none();
                    if tried.said != message {
                        let object = tried.write.object().clone();
                        context.emit(Event::Refused { node, object, message: message.clone(), retried });
                    }
                    if retried {
                        let pause = pause(tried.attempts, &error);
                        let next = Try { attempts: tried.attempts + 1, said: message, ..tried };
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

impl<'a> Try<'a> {
    fn first(write: Write<'a>) -> Self {
        Self { write, attempts: 0, said: String::new() }
    }
}

/// Patches the objects of a node. One that is gone needs no patch.
pub(crate) async fn run_patch(context: &Context<'_>, cluster: &Cluster, node: usize, work: &PatchWork) -> NodeResult {
    let mut result = NodeResult::new(Status::Done);
    let writes = work.objects.iter().map(|task| Try::first(Write::Patch(task))).collect();
    result.status = send(context, cluster, node, writes, context.deadline(node), &mut result).await;
    result
}

/// The objects of a node that a request is sent for; the others are counted.
pub(crate) fn to_apply<'a>(
    context: &Context<'a>,
    node: usize,
    work: &'a ApplyWork,
    result: &mut NodeResult,
) -> VecDeque<Try<'a>> {
    let mut queue = VecDeque::new();
    for task in &work.objects {
        match task.action {
            ApplyAction::Await => {}
            ApplyAction::Unchanged => {
                result.unchanged += 1;
                context.emit(applied_event(node, &task.object, ApplyResult::Unchanged));
            }
            ApplyAction::Create | ApplyAction::Update | ApplyAction::Adopt => {
                let manifest = context.manifests.get(&task.object);
                queue.extend(manifest.map(|manifest| Try::first(Write::Apply(task, manifest))));
            }
        }
    }
    queue
}

fn send_one<'a>(context: &Context<'_>, cluster: &'a Cluster, next: Try<'a>, pause: Duration) -> Sending<'a> {
    let force_conflicts = context.options.force_conflicts;
    Box::pin(async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let answer = match next.write {
            Write::Apply(task, manifest) => apply(cluster, task, manifest, force_conflicts, false).await.map(Some),
            Write::Patch(task) => patch(cluster, task).await,
        };
        (next, answer)
    })
}

/// Writes an object as its task says.
pub(crate) async fn apply(
    cluster: &Cluster,
    task: &ApplyTask,
    manifest: &Manifest,
    force_conflicts: bool,
    dry_run: bool,
) -> Result<Applied, Error> {
    // The version its manifest was written in; the plan's resource says where it lives.
    let resource = Resource { version: manifest.api_version.version().to_owned(), ..task.resource.clone() };
    let options = WriteOptions {
        strategy: task.strategy,
        exists: task.action != ApplyAction::Create,
        annotate_before_create: &task.annotate_before_create,
        force_conflicts,
        dry_run,
    };
    cluster.write(&resource, &task.object, manifest.json(), &options).await
}

/// Patches an object; none where it, or the object of that name that the plan is about, is gone.
async fn patch(cluster: &Cluster, task: &PatchTask) -> Result<Option<Applied>, Error> {
    let PatchTask { object, resource, uid, patch } = task;
    let mut body = patch.clone();
    if let (Some(uid), Some(body)) = (uid, body.as_object_mut()) {
        // The server refuses to change a UID, and so to patch another object of that name.
        let metadata = body.entry("metadata").or_insert_with(|| json!({})).as_object_mut();
        metadata.map(|metadata| metadata.insert("uid".to_owned(), json!(uid)));
    }
    let patch = Patch { subresource: None, kind: PatchKind::Merge, body: &body };
    let answer = cluster.patch(resource, object, &patch).await;
    match (&answer, uid) {
        (Err(error), Some(uid)) if matches!(error.code(), Some(409 | 422)) => {
            let there = cluster.get_meta(resource, object).await?;
            if there.is_some_and(|there| there.uid == *uid) { answer } else { Ok(None) }
        }
        _ => answer,
    }
}

/// Whether the same request may succeed later: the server is away, a webhook's backend is not up yet (perhaps it is part
/// of the release), or a new namespace has no ServiceAccount yet.
fn passes(error: &Error) -> bool {
    error.is_transient()
        || *error.kind() == ErrorKind::Webhook
        || error.message().contains("error looking up service account")
}

fn succeeded(context: &Context<'_>, node: usize, write: Write<'_>, applied: Applied, result: &mut NodeResult) {
    let object = write.object();
    let what = match write {
        Write::Apply(ApplyTask { action: ApplyAction::Adopt, .. }, _) => ApplyResult::Adopted,
        Write::Apply(task, _) if task.resource_version.as_ref() == Some(&applied.resource_version) => {
            ApplyResult::Unchanged
        }
        Write::Apply(..) if applied.created => ApplyResult::Created,
        Write::Apply(..) => ApplyResult::Configured,
        Write::Patch(_) => ApplyResult::Patched,
    };
    context.emit(applied_event(node, object, what));
    result.unchanged += usize::from(what == ApplyResult::Unchanged);
    result.applied.push(AppliedObject {
        object: object.clone(),
        uid: applied.uid,
        resource_version: applied.resource_version,
        changed: what != ApplyResult::Unchanged,
    });
}

fn applied_event(node: usize, object: &ObjectKey, result: ApplyResult) -> Event {
    Event::Applied { node, object: object.clone(), result }
}
