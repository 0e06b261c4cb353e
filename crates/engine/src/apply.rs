//! A node that applies: server-side apply in parallel, then, where the plan says so, the wait until objects are ready.

use std::{
    collections::{BTreeMap, VecDeque},
    pin::Pin,
    time::Duration,
};

use billhook_cluster::{Applied, ApplyOptions, Cluster, Error, ErrorKind, ObjectChange};
use billhook_objects::{Manifest, ObjectKey, wellknown};
use billhook_plan::{ApplyAction, ApplyTask, ApplyWork, Query, Resource, Select};
use futures::{
    Stream, StreamExt as _,
    stream::{FuturesUnordered, SelectAll},
};
use tokio::time::Instant;

use crate::{
    ApplyResult, Blocker, Event, Status,
    node::{AppliedObject, Context, GRACE, NodeResult, WINDOW, pause, until},
    readiness::{Readiness, View, readiness},
};

/// Objects of one query, as far as readiness looks at them.
type ReadyWatch = Pin<Box<dyn Stream<Item = (usize, ObjectChange<View>)> + Send>>;
/// A request under way, and how often its object was tried before.
type Sending<'a> = Pin<Box<dyn Future<Output = (Try<'a>, Result<Applied, Error>)> + Send + 'a>>;

/// Up to how many objects of a kind are watched by name for readiness, which works without the right to list.
const FEW_NAMES: usize = 8;
/// Up to how many namespaces are watched one by one for readiness; more are watched in one go.
const FEW_NAMESPACES: usize = 16;

/// Applies the objects of a node, then waits for those that the plan waits for.
pub(crate) async fn run_apply(context: &Context<'_>, cluster: &Cluster, node: usize, work: &ApplyWork) -> NodeResult {
    let deadline = context.deadline(node);
    let mut result = NodeResult::new(Status::Done);
    result.status = send(context, cluster, node, work, deadline, &mut result).await;
    if result.status == Status::Done {
        let waited = work.objects.iter().filter(|task| task.wait).map(|task| (task.object.clone(), &task.resource));
        result.status = wait(context, cluster, node, waited.collect(), deadline, &mut result).await;
    }
    result
}

/// One object that is being applied.
struct Try<'a> {
    task: &'a ApplyTask,
    manifest: &'a Manifest,
    attempts: u32,
    /// What the server said last, so that it is not said again.
    said: String,
}

async fn send(
    context: &Context<'_>,
    cluster: &Cluster,
    node: usize,
    work: &ApplyWork,
    deadline: Option<Instant>,
    result: &mut NodeResult,
) -> Status {
    let stop = &context.options.stop;
    let mut queue = to_send(context, node, work, result);
    let mut left: BTreeMap<&ObjectKey, Option<Blocker>> = queue.iter().map(|t| (&t.task.object, None)).collect();
    let mut sending: FuturesUnordered<Sending<'_>> = FuturesUnordered::new();
    let mut status = Status::Done;
    let mut stop_at = None;
    loop {
        while sending.len() < WINDOW
            && stop_at.is_none()
            && let Some(next) = queue.pop_front()
        {
            sending.push(apply_one(context, cluster, next, Duration::ZERO));
        }
        tokio::select! {
            answer = sending.next() => match answer {
                Some((Try { task, .. }, Ok(applied))) => {
                    left.remove(&task.object);
                    succeeded(context, node, task, applied, result);
                }
                Some((tried, Err(error))) => {
                    let message = error.message();
                    left.insert(&tried.task.object, Some(Blocker::Refused { message: message.clone() }));
                    let retried = passes(&error) && stop_at.is_none();
                    if tried.said != message {
                        let object = tried.task.object.clone();
                        context.emit(Event::Refused { node, object, message: message.clone(), retried });
                    }
                    if retried {
                        let pause = pause(tried.attempts, &error);
                        let next = Try { attempts: tried.attempts + 1, said: message, ..tried };
                        sending.push(apply_one(context, cluster, next, pause));
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

/// The objects of a node that a request is sent for; the others are counted.
fn to_send<'a>(context: &Context<'a>, node: usize, work: &'a ApplyWork, result: &mut NodeResult) -> VecDeque<Try<'a>> {
    let mut queue = VecDeque::new();
    for task in &work.objects {
        match task.action {
            ApplyAction::Await => {}
            ApplyAction::Unchanged => {
                result.unchanged += 1;
                context.emit(applied_event(node, task, ApplyResult::Unchanged));
            }
            ApplyAction::Create | ApplyAction::Update | ApplyAction::Adopt => {
                let manifest = context.manifests.get(&task.object);
                queue.extend(manifest.map(|manifest| Try { task, manifest, attempts: 0, said: String::new() }));
            }
        }
    }
    queue
}

fn apply_one<'a>(context: &Context<'_>, cluster: &'a Cluster, next: Try<'a>, pause: Duration) -> Sending<'a> {
    let options = ApplyOptions { force_conflicts: context.options.force_conflicts, dry_run: false };
    Box::pin(async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        let Try { task, manifest, .. } = &next;
        let answer = cluster.apply(&as_written(task, manifest), &task.object, manifest.json(), &options).await;
        (next, answer)
    })
}

/// Whether the same request may succeed later: the server is away, a webhook's backend is not up yet (perhaps it is part
/// of the release), or a new namespace has no ServiceAccount yet.
fn passes(error: &Error) -> bool {
    error.is_transient()
        || *error.kind() == ErrorKind::Webhook
        || error.message().contains("error looking up service account")
}

/// How to talk to an object in the version its manifest was written in; the plan's resource says where it lives.
pub(crate) fn as_written(task: &ApplyTask, manifest: &Manifest) -> Resource {
    Resource { version: manifest.api_version.version().to_owned(), ..task.resource.clone() }
}

fn succeeded(context: &Context<'_>, node: usize, task: &ApplyTask, applied: Applied, result: &mut NodeResult) {
    let what = match task.action {
        ApplyAction::Adopt => ApplyResult::Adopted,
        _ if task.resource_version.as_ref() == Some(&applied.resource_version) => ApplyResult::Unchanged,
        _ if applied.created => ApplyResult::Created,
        _ => ApplyResult::Configured,
    };
    context.emit(applied_event(node, task, what));
    result.unchanged += usize::from(what == ApplyResult::Unchanged);
    result.applied.push(AppliedObject {
        object: task.object.clone(),
        uid: applied.uid,
        resource_version: applied.resource_version,
        changed: what != ApplyResult::Unchanged,
    });
}

fn applied_event(node: usize, task: &ApplyTask, result: ApplyResult) -> Event {
    Event::Applied { node, object: task.object.clone(), result }
}

/// Waits until all of these objects are ready, by one list and watch a kind.
async fn wait(
    context: &Context<'_>,
    cluster: &Cluster,
    node: usize,
    objects: BTreeMap<ObjectKey, &Resource>,
    deadline: Option<Instant>,
    result: &mut NodeResult,
) -> Status {
    let mut watches: SelectAll<ReadyWatch> = SelectAll::new();
    let queries = ready_queries(&objects, context.label.as_deref());
    let kinds: Vec<_> = queries.iter().map(|query| query.resource.kind.clone()).collect();
    for (index, query) in queries.iter().enumerate() {
        watches.push(Box::pin(cluster.watch_objects::<View>(query).map(move |change| (index, change))));
    }
    let mut waiting: BTreeMap<ObjectKey, String> =
        objects.into_keys().map(|key| (key, "not seen yet".to_owned())).collect();
    let mut status = Status::Done;
    while !waiting.is_empty() {
        let change = tokio::select! {
            Some(change) = watches.next() => change,
            () = context.options.stop.cancelled() => {
                status = status.max(Status::Interrupted);
                break;
            }
            () = until(deadline) => {
                status = status.max(Status::TimedOut);
                break;
            }
        };
        let (index, object) = match change {
            (index, ObjectChange::Present(object)) => (index, object),
            (_, ObjectChange::Gone(key)) => {
                if let Some(reason) = waiting.get_mut(&key) {
                    "it was deleted".clone_into(reason);
                    context.emit(Event::Waiting { node, object: key, reason: reason.clone() });
                }
                continue;
            }
        };
        let metadata = &object.metadata;
        let key = ObjectKey::new(kinds[index].clone(), metadata.namespace.as_deref(), &metadata.name);
        let Some(reason) = waiting.get_mut(&key) else { continue };
        match readiness(&kinds[index], &object) {
            Readiness::Ready => {
                waiting.remove(&key);
                context.emit(Event::Ready { node, object: key });
            }
            Readiness::NotYet(why) => {
                if *reason != why {
                    reason.clone_from(&why);
                    context.emit(Event::Waiting { node, object: key, reason: why });
                }
            }
            Readiness::Failed(why) => {
                waiting.remove(&key);
                status = Status::Failed;
                let message = why.clone();
                context.emit(Event::Refused { node, object: key.clone(), message, retried: false });
                result.left.push((key, Some(Blocker::NotReady { reason: why })));
            }
        }
    }
    let unready = |(object, reason)| (object, Some(Blocker::NotReady { reason }));
    result.left.extend(waiting.into_iter().map(unready));
    status
}

/// Queries by name where a kind's objects are few; else by the release's label, in each namespace where those are few.
fn ready_queries(objects: &BTreeMap<ObjectKey, &Resource>, label: Option<&str>) -> Vec<Query> {
    let mut spaces: BTreeMap<&Resource, BTreeMap<Option<&str>, Vec<String>>> = BTreeMap::new();
    for (key, resource) in objects {
        let names = spaces.entry(resource).or_default().entry(key.namespace.as_deref()).or_default();
        names.push(key.name.clone());
    }
    let labels = label.map(|label| Select::Labels(format!("{}={label}", wellknown::RELEASE_LABEL)));
    let query = |resource: &Resource, namespace: Option<&str>, select: Select| Query {
        cluster: None,
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        select,
        namespaces: Vec::new(),
    };
    let mut queries = Vec::new();
    for (resource, namespaces) in spaces {
        let everywhere = labels.as_ref().filter(|_| namespaces.len() > FEW_NAMESPACES);
        if let Some(labels) = everywhere {
            queries.push(query(resource, None, labels.clone()));
            continue;
        }
        for (namespace, names) in namespaces {
            let by_label = labels.clone().filter(|_| names.len() > FEW_NAMES);
            queries.push(query(resource, namespace, by_label.unwrap_or(Select::Names(names))));
        }
    }
    queries
}
