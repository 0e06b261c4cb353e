//! A node that applies: it writes all objects, then waits until those that the plan marks are ready.

use std::collections::{BTreeMap, BTreeSet};

use billhook_cluster::{Cluster, ObjectChange};
use billhook_objects::ObjectKey;
use billhook_plan::{ApplyTask, ApplyWork, Query};
use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use tokio::time::Instant;

use crate::{
    Blocker, Event, Status,
    node::{Context, NodeResult, Written, until},
    queries::by_name,
    readiness::{Readiness, View, readiness},
    retry::Policy,
    write,
};

/// The changes of a query's objects, reduced to the fields that readiness needs.
type ReadyWatch = BoxStream<'static, (usize, ObjectChange<View>)>;

/// Applies the objects of a node, then waits until those that the plan marks are ready. `written` is what the nodes before it
/// have written of these.
pub(crate) async fn run_apply(
    context: &Context<'_>,
    cluster: &Cluster,
    node: usize,
    work: &ApplyWork,
    mut written: Written,
) -> NodeResult {
    let deadline = context.deadline(node);
    let mut result = NodeResult::new(Status::Done);
    let writes = write::to_apply(context, node, &work.objects, &mut result);
    let policy = Policy::writes(&[]);
    result.status = write::send(context, cluster, node, writes, deadline, policy, &mut result).await;
    if result.status == Status::Done {
        let waited: Vec<_> = work.objects.iter().filter(|task| task.wait).collect();
        let objects: BTreeSet<_> = waited.iter().map(|task| &task.object).collect();
        let own = result.applied.iter().filter(|applied| objects.contains(&applied.object));
        written.extend(own.map(|applied| (applied.object.clone(), applied.clone())));
        result.status = wait(context, cluster, node, waited, &written, deadline, &mut result).await;
    }
    result
}

/// Waits until all of these objects are ready, with one list and watch for each query.
async fn wait(
    context: &Context<'_>,
    cluster: &Cluster,
    node: usize,
    tasks: Vec<&ApplyTask>,
    written: &Written,
    deadline: Option<Instant>,
    result: &mut NodeResult,
) -> Status {
    let mut watches: SelectAll<ReadyWatch> = SelectAll::new();
    let queries = ready_queries(&tasks, context.label.as_deref());
    let kinds: Vec<_> = queries.iter().map(|query| query.resource.kind.clone()).collect();
    for (index, query) in queries.iter().enumerate() {
        watches.push(cluster.watch_objects::<View>(query).map(move |change| (index, change)).boxed());
    }
    let mut waiting: BTreeMap<ObjectKey, String> =
        tasks.iter().map(|task| (task.object.clone(), "not seen yet".to_owned())).collect();
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
        let ours = written.get(&key).map(|written| &written.uid);
        let readiness = match (&metadata.uid, ours) {
            (Some(uid), Some(ours)) if uid != ours => {
                Readiness::Failed("it was recreated by another client".to_owned())
            }
            _ => readiness(&kinds[index], &object),
        };
        match readiness {
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
                context.emit(Event::Failed { node, object: key.clone(), reason: why.clone() });
                result.left.push((key, Some(Blocker::NotReady { reason: why })));
            }
        }
    }
    let unready = |(object, reason)| (object, Some(Blocker::NotReady { reason }));
    result.left.extend(waiting.into_iter().map(unready));
    status
}

/// Returns the queries that show whether objects are ready. If the policy leaves any of them unchanged, they are selected by
/// their names, because that object may not carry the label of the release.
pub(crate) fn ready_queries(tasks: &[&ApplyTask], label: Option<&str>) -> Vec<Query> {
    let label = label.filter(|_| tasks.iter().all(|task| task.left().is_none()));
    by_name(tasks.iter().map(|task| (&task.object, &task.resource)), label)
}
