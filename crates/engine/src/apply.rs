//! A node that applies: it writes all objects, then waits until those that the plan marks are ready.

use std::collections::{BTreeMap, BTreeSet};

use billhook_cluster::{Cluster, ObjectChange};
use billhook_objects::{GroupKind, ObjectKey};
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
    for (index, query) in queries.iter().enumerate() {
        watches.push(cluster.watch_objects::<View>(query).map(move |change| (index, change)).boxed());
    }
    let unready = tasks.iter().map(|task| (task.object.clone(), "not seen yet".to_owned())).collect();
    let mut waiting = Waiting { context, node, written, unready, failed: Vec::new() };
    let mut cut = Status::Done;
    while !waiting.unready.is_empty() && cut == Status::Done {
        tokio::select! {
            Some((index, change)) = watches.next() => waiting.saw(&queries[index].resource.kind, change),
            () = context.options.stop.cancelled() => cut = Status::Interrupted,
            () = until(deadline) => cut = Status::TimedOut,
        }
    }
    let Waiting { unready, failed, .. } = waiting;
    let status = if failed.is_empty() { cut } else { Status::Failed };
    let not_ready = |(object, reason)| (object, Some(Blocker::NotReady { reason }));
    result.left.extend(failed.into_iter().chain(unready).map(not_ready));
    status
}

/// The objects that a node waits for.
struct Waiting<'a> {
    context: &'a Context<'a>,
    node: usize,
    /// What the run has written of them.
    written: &'a Written,
    /// Those that are not ready, and why.
    unready: BTreeMap<ObjectKey, String>,
    /// Those that will not become ready by themselves, and why.
    failed: Vec<(ObjectKey, String)>,
}

impl Waiting<'_> {
    fn saw(&mut self, kind: &GroupKind, change: ObjectChange<View>) {
        match change {
            ObjectChange::Present(view) => {
                let object = ObjectKey::new(kind.clone(), view.metadata.namespace.as_deref(), &view.metadata.name);
                if self.unready.contains_key(&object) {
                    let readiness = self.judge(&object, &view);
                    self.judged(object, readiness);
                }
            }
            ObjectChange::Gone(object) => self.judged(object, Readiness::NotYet("it was deleted".to_owned())),
        }
    }

    fn judged(&mut self, object: ObjectKey, readiness: Readiness) {
        let node = self.node;
        let Some(reason) = self.unready.get_mut(&object) else { return };
        match readiness {
            Readiness::Ready => {
                self.unready.remove(&object);
                self.context.emit(Event::Ready { node, object });
            }
            Readiness::NotYet(why) => {
                if *reason != why {
                    reason.clone_from(&why);
                    self.context.emit(Event::Waiting { node, object, reason: why });
                }
            }
            Readiness::Failed(why) => {
                self.unready.remove(&object);
                self.context.emit(Event::Failed { node, object: object.clone(), reason: why.clone() });
                self.failed.push((object, why));
            }
        }
    }

    fn judge(&self, object: &ObjectKey, view: &View) -> Readiness {
        let ours = self.written.get(object).map(|written| &written.uid);
        match (&view.metadata.uid, ours) {
            (Some(uid), Some(ours)) if uid != ours => {
                Readiness::Failed("it was recreated by another client".to_owned())
            }
            _ => readiness(&object.kind, view),
        }
    }
}

/// Returns the queries that show whether objects are ready. If the policy leaves any of them unchanged, they are selected by
/// their names, because that object may not carry the label of the release.
pub(crate) fn ready_queries(tasks: &[&ApplyTask], label: Option<&str>) -> Vec<Query> {
    let label = label.filter(|_| tasks.iter().all(|task| task.left().is_none()));
    by_name(tasks.iter().map(|task| (&task.object, &task.resource)), label)
}
