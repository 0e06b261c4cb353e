//! Executes a plan's graph: a node starts when all nodes before it are done. [`Schedule`] decides when.

mod outcome;
mod summary;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use billhook_cluster::{Cluster, Fence, Holder, InventoryStore};
use billhook_objects::{Manifest, ObjectKey};
use billhook_plan::{ApplyAction, ApplyTask, Plan, Snapshot, Step, Work};
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

pub(crate) use self::outcome::Outcome;
use self::outcome::summarize;
pub use self::summary::{CodedError, FinalizersRemoved, Incomplete, Left, Proof, Recorded, Summary};
use crate::{
    Blocker, EVENT_FORMAT, Event, Goal, RefusedBy, Sink, Status,
    apply::{ready_queries, run_apply},
    awaited::Awaited,
    delete::run_delete,
    explain::Waiting,
    node::{AppliedObject, Context, NodeResult, WINDOW, Written, millis},
    schedule::{Input, Schedule},
    sequence::run_sequence,
    write::run_patch,
};

/// The clusters that a plan acts on.
#[derive(Clone)]
pub struct Clusters {
    /// The release's own cluster, which holds its objects.
    pub own: Cluster,
    /// The cluster that holds its record, if that is not its own.
    pub records: Option<Cluster>,
    /// Other clusters, by the `targetName` that policies use for them.
    pub targets: BTreeMap<String, Cluster>,
    /// The time of the call in RFC 3339 format, which is stored with the record of a release.
    pub now: String,
    /// Who locks the releases that are changed.
    pub holder: Holder,
}

impl Clusters {
    /// Returns the cluster of a node or query: the release's own, or the target of that name.
    pub(crate) fn get(&self, name: Option<&str>) -> Option<&Cluster> {
        name.map_or(Some(&self.own), |name| self.targets.get(name))
    }

    /// Returns the same clusters, with a fence for all requests except those for records.
    pub(crate) fn fenced(&self, fence: &Fence) -> Self {
        let mut fenced = self.clone();
        fenced.own = self.own.fenced(fence.clone());
        for target in fenced.targets.values_mut() {
            *target = target.fenced(fence.clone());
        }
        fenced
    }

    /// Returns the store of the records of releases.
    pub(crate) fn inventory(&self) -> InventoryStore {
        self.records.as_ref().unwrap_or(&self.own).inventory().stamped(self.now.as_str())
    }

    /// Returns whether the cluster of a release's objects also holds its record, in the namespace of the release.
    pub(crate) fn record_here(&self) -> bool {
        self.records.is_none()
    }

    /// Counts the requests sent so far by verb, to all clusters together.
    pub fn requests(&self) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for cluster in std::iter::once(&self.own).chain(&self.records).chain(self.targets.values()) {
            for (verb, count) in cluster.requests().by_verb() {
                *sum.entry(verb.to_owned()).or_insert(0) += count;
            }
        }
        sum
    }
}

/// How a plan is executed.
#[derive(Clone)]
pub struct RunOptions {
    /// The time limit for the whole operation.
    pub timeout: Option<Duration>,
    /// Cancelled by the user: no new requests are sent, and the summary lists what is left.
    pub stop: CancellationToken,
    /// Receives the events.
    pub sink: Sink,
    /// Takes over fields that another manager owns.
    pub force_conflicts: bool,
}

/// Emits the first event of a run. It comes before the first write, that of the record, so that the notes precede
/// everything they are about.
pub(crate) fn announce(plan: &Plan, options: &RunOptions) {
    (options.sink)(started(plan));
}

fn started(plan: &Plan) -> Event {
    Event::Started {
        format: EVENT_FORMAT,
        operation: plan.operation,
        release: plan.release.clone(),
        nodes: plan.nodes.iter().map(|node| (node.title.clone(), size(&node.work))).collect(),
        goals: goals(plan),
        notes: plan.notes.clone(),
    }
}

/// Executes a plan, after it was announced.
pub(crate) async fn run(
    plan: &Plan,
    snapshot: &Snapshot,
    clusters: &Clusters,
    manifests: &BTreeMap<ObjectKey, Manifest>,
    label: Option<String>,
    options: &RunOptions,
) -> Outcome {
    let begun = Instant::now();
    let by_query: HashMap<_, _> = snapshot.listings.iter().map(|listing| (&listing.query, listing)).collect();
    let listings =
        plan.queries.iter().enumerate().filter_map(|(id, q)| by_query.get(q).map(|listing| (id, *listing))).collect();
    let deadline = options.timeout.and_then(|limit| begun.checked_add(limit));
    let steps = plan.nodes.iter().flat_map(|node| node.work.steps()).filter_map(Step::apply);
    let tasks: Vec<&ApplyTask> = steps.filter(|task| task.wait).collect();
    let awaited = Awaited::new(&tasks, ready_queries(&tasks, label.as_deref()), manifests);
    let turns = Semaphore::new(WINDOW);
    let (waiting, followed) = Waiting::new(&started(plan), options);
    let options = &followed;
    let context = Context { plan, clusters, manifests, label, options, deadline, listings, awaited, turns };
    let results = run_nodes(&context, &waiting).await;
    summarize(&context, results, begun).await
}

async fn run_nodes(context: &Context<'_>, waiting: &Waiting) -> Vec<Option<NodeResult>> {
    let nodes = &context.plan.nodes;
    let mut results: Vec<Option<NodeResult>> = nodes.iter().map(|_| None).collect();
    let Plan { workers, continue_on_failure, .. } = *context.plan;
    let after = nodes.iter().map(|node| node.after.as_slice());
    let mut schedule = Schedule::new(after, workers, continue_on_failure);
    let mut running = FuturesUnordered::new();
    let mut watching = std::pin::pin!(context.awaited.watch(&context.clusters.own));
    let mut explaining = std::pin::pin!(waiting.name_causes(context.plan, &context.clusters.own));
    let (mut input, mut is_over) = (Input::Start, false);
    loop {
        if is_over || context.options.stop.is_cancelled() {
            schedule.on(Input::Stop);
        }
        for index in schedule.on(input) {
            let written = written_before(&nodes[index].work, &results);
            running.push(async move { (index, run_node(context, index, written).await) });
        }
        let (index, result) = tokio::select! {
            ended = running.next() => match ended {
                Some(ended) => ended,
                None => return results,
            },
            never = &mut watching => match never {},
            never = &mut explaining => match never {},
        };
        is_over |= result.status == Status::TimedOut && context.deadline.is_some_and(|at| at <= Instant::now());
        input = if result.status == Status::Done { Input::Done(index) } else { Input::Failed(index) };
        results[index] = Some(result);
    }
}

/// Returns what the nodes that are done have written of the objects that a node patches, deletes or only waits for.
fn written_before(work: &Work, results: &[Option<NodeResult>]) -> Written {
    let concerned: BTreeSet<&ObjectKey> = match work {
        Work::Patch(work) => work.objects.iter().map(|task| &task.object).collect(),
        Work::Apply(work) => {
            let awaited = work.objects.iter().filter(|task| task.action == ApplyAction::Await);
            awaited.map(|task| &task.object).collect()
        }
        Work::Delete(work) if results.iter().flatten().any(|result| !result.applied.is_empty()) => {
            work.objects.iter().map(|task| &task.object).collect()
        }
        Work::Delete(_) | Work::Sequence(_) => BTreeSet::new(),
    };
    if concerned.is_empty() {
        return Written::new();
    }
    let applied = results.iter().flatten().flat_map(|result| &result.applied);
    applied.filter(|a| concerned.contains(&a.object)).map(|a| (a.object.clone(), a.clone())).collect()
}

async fn run_node(context: &Context<'_>, index: usize, written: Written) -> NodeResult {
    let begun = Instant::now();
    let node = &context.plan.nodes[index];
    context.emit(Event::NodeStarted { node: index, title: node.title.clone(), objects: size(&node.work) });
    // Boxed, because thousands of nodes may be started and wait for their turn.
    let result = match (context.clusters.get(node.cluster.as_deref()), &node.work) {
        (Some(cluster), Work::Apply(work)) => Box::pin(run_apply(context, cluster, index, work, written)).await,
        (Some(cluster), Work::Delete(work)) => Box::pin(run_delete(context, cluster, index, work, written)).await,
        (Some(cluster), Work::Patch(work)) => Box::pin(run_patch(context, cluster, index, work, &written)).await,
        (Some(cluster), Work::Sequence(work)) => run_sequence(context, cluster, index, work).await,
        (None, work) => {
            let message = format!("no cluster is given for target {}", node.cluster.as_deref().unwrap_or_default());
            let refused = |object: &ObjectKey| {
                (object.clone(), Some(Blocker::Refused { message: message.clone(), by: RefusedBy::default() }))
            };
            NodeResult { left: objects(work).map(refused).collect(), ..NodeResult::new(Status::Failed) }
        }
    };
    context.emit(Event::NodeFinished {
        node: index,
        title: node.title.clone(),
        status: result.status,
        objects: reached(&node.work, &result),
        elapsed_ms: millis(begun),
    });
    result
}

/// Returns what the objects of each node are to become; nothing if it is the same for all, as the operation says.
fn goals(plan: &Plan) -> Vec<Goal> {
    let goals: Vec<_> = plan.nodes.iter().map(|node| goal(&node.work)).collect();
    if goals.iter().all(|goal| *goal == Goal::of(plan.operation)) { Vec::new() } else { goals }
}

fn goal(work: &Work) -> Goal {
    match work {
        Work::Apply(work) if work.objects.iter().all(|task| task.action == ApplyAction::Await) => Goal::Ready,
        Work::Apply(_) => Goal::Applied,
        Work::Delete(_) => Goal::Gone,
        Work::Patch(_) => Goal::Patched,
        Work::Sequence(_) => Goal::Done,
    }
}

/// Counts the objects of a node that have reached its goal. What is gone needs no patch.
fn reached(work: &Work, result: &NodeResult) -> usize {
    match goal(work) {
        Goal::Applied => changed(&result.applied) + result.unchanged,
        Goal::Gone => result.gone.len(),
        Goal::Done => result.gone.len() + result.requested.len() + changed(&result.applied) + result.unchanged,
        Goal::Patched | Goal::Ready => size(work).saturating_sub(result.left.len()),
    }
}

fn changed(applied: &[AppliedObject]) -> usize {
    applied.iter().filter(|object| object.changed).count()
}

fn size(work: &Work) -> usize {
    objects(work).count()
}

fn objects(work: &Work) -> Box<dyn Iterator<Item = &ObjectKey> + Send + '_> {
    match work {
        Work::Apply(work) => Box::new(work.objects.iter().map(|task| &task.object)),
        Work::Delete(work) => Box::new(work.objects.iter().map(|task| &task.object)),
        Work::Patch(work) => Box::new(work.objects.iter().map(|task| &task.object)),
        Work::Sequence(work) => Box::new(work.steps.iter().map(Step::object)),
    }
}
