//! A node that applies: server-side apply in parallel, then, where the plan says so, the wait until objects are ready.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
};

use billhook_cluster::{Applied, ApplyOptions, Cluster, Error, ObjectChange};
use billhook_objects::{Manifest, ObjectKey, wellknown};
use billhook_plan::{ApplyAction, ApplyTask, ApplyWork, Query, Resource, Select};
use futures::{Stream, StreamExt as _, stream::SelectAll};
use tokio::time::Instant;

use crate::{
    ApplyResult, Blocker, Event, Status,
    readiness::{Readiness, View, readiness},
    run::{AppliedObject, Context, NodeResult, until},
};

/// Objects of one query, as far as readiness looks at them.
type ReadyWatch = Pin<Box<dyn Stream<Item = (usize, ObjectChange<View>)> + Send>>;

/// How many requests wait for their turn at the cluster's own limiter; more would only hold memory.
const WINDOW: usize = 128;
/// Up to how many namespaces are watched one by one for readiness; more are watched in one go.
const FEW_NAMESPACES: usize = 4;

/// Applies the objects of a node, then waits for those that the plan waits for.
pub(crate) async fn run_apply(context: &Context<'_>, node: usize, work: &ApplyWork) -> NodeResult {
    let deadline = context.deadline(node);
    let mut result = NodeResult::new(Status::Done);
    result.status = send(context, node, work, deadline, &mut result).await;
    if result.status == Status::Done {
        let waited = work.objects.iter().filter(|task| task.wait).map(|task| (task.object.clone(), &task.resource));
        result.status = wait(context, node, waited.collect(), deadline, &mut result).await;
    }
    result
}

async fn send(
    context: &Context<'_>,
    node: usize,
    work: &ApplyWork,
    deadline: Option<Instant>,
    result: &mut NodeResult,
) -> Status {
    let cluster = context.clusters.get(context.plan.nodes[node].cluster.as_deref());
    let stop = &context.options.stop;
    let mut left: BTreeSet<&ObjectKey> = BTreeSet::new();
    let mut tasks = Vec::new();
    for task in &work.objects {
        match task.action {
            ApplyAction::Await => {}
            ApplyAction::Unchanged => {
                result.unchanged += 1;
                context.emit(applied_event(node, task, ApplyResult::Unchanged));
            }
            ApplyAction::Create | ApplyAction::Update | ApplyAction::Adopt => {
                left.insert(&task.object);
                tasks.extend(context.manifests.get(&task.object).map(|manifest| (task, manifest)));
            }
        }
    }
    let mut answers = futures::stream::iter(tasks)
        .take_until(Box::pin(stop.cancelled()))
        .map(|(task, manifest)| async move { (task, apply_one(context, cluster, task, manifest).await) })
        .buffer_unordered(WINDOW);
    let mut status = Status::Done;
    loop {
        tokio::select! {
            answer = answers.next() => match answer {
                Some((task, Ok(applied))) => {
                    left.remove(&task.object);
                    succeeded(context, node, task, applied, result);
                }
                Some((task, Err(error))) => {
                    left.remove(&task.object);
                    status = Status::Failed;
                    let message = error.message();
                    context.emit(Event::Refused { node, object: task.object.clone(), message: message.clone(), retried: false });
                    result.left.push((task.object.clone(), Some(Blocker::Refused { message })));
                }
                None => break,
            },
            () = until(deadline) => {
                status = status.max(Status::TimedOut);
                break;
            }
        }
    }
    if stop.is_cancelled() {
        status = status.max(Status::Interrupted);
    }
    result.left.extend(left.into_iter().map(|object| (object.clone(), Some(Blocker::NotStarted))));
    status
}

async fn apply_one(
    context: &Context<'_>,
    cluster: &Cluster,
    task: &ApplyTask,
    manifest: &Manifest,
) -> Result<Applied, Error> {
    let options = ApplyOptions { force_conflicts: context.options.force_conflicts, dry_run: false };
    cluster.apply(&as_written(task, manifest), &manifest.value, &options).await
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
    node: usize,
    objects: BTreeMap<ObjectKey, &Resource>,
    deadline: Option<Instant>,
    result: &mut NodeResult,
) -> Status {
    let cluster = context.clusters.get(context.plan.nodes[node].cluster.as_deref());
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
                status = Status::Interrupted;
                break;
            }
            () = until(deadline) => {
                status = Status::TimedOut;
                break;
            }
        };
        let (index, ObjectChange::Present(object)) = change else { continue };
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

/// One query a kind, or one a namespace where those are few.
fn ready_queries(objects: &BTreeMap<ObjectKey, &Resource>, label: Option<&str>) -> Vec<Query> {
    let mut spaces: BTreeMap<&Resource, BTreeSet<Option<&str>>> = BTreeMap::new();
    for (key, resource) in objects {
        spaces.entry(resource).or_default().insert(key.namespace.as_deref());
    }
    let select = match label {
        Some(label) => Select::Labels(format!("{}={label}", wellknown::RELEASE_LABEL)),
        None => Select::All,
    };
    let query = |resource: &Resource, namespace: Option<&str>| Query {
        cluster: None,
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        select: select.clone(),
        namespaces: Vec::new(),
    };
    let queries = spaces.into_iter().flat_map(|(resource, namespaces)| {
        let all = namespaces.len() > FEW_NAMESPACES;
        let namespaces = if all { BTreeSet::from([None]) } else { namespaces };
        namespaces.into_iter().map(|namespace| query(resource, namespace)).collect::<Vec<_>>()
    });
    queries.collect()
}
