//! Executes a plan's graph: a node starts when all nodes before it are done. [`Schedule`] decides when.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::Duration,
};

use billhook_cluster::{Cluster, Fence, Holder, InventoryStore};
use billhook_objects::{Manifest, ObjectKey, wellknown};
use billhook_plan::{ApplyAction, ApplyTask, Note, Operation, Plan, Resource, Snapshot, Step, Uncovered, Work};
use futures::{StreamExt as _, stream::FuturesUnordered};
use tokio::{sync::Semaphore, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    Blocker, EVENT_FORMAT, Event, Goal, Incomplete, Left, RefusedBy, Sink, Status, Summary,
    apply::{ready_queries, run_apply},
    awaited::Awaited,
    blockers,
    delete::run_delete,
    explain::{Blocked, Waiting, add_root_causes},
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

/// How a run ended: the summary for the user, and what the record of the release needs.
pub(crate) struct Outcome {
    pub summary: Summary,
    pub gone: Vec<ObjectKey>,
    pub applied: Vec<AppliedObject>,
    /// The patched objects, with their version after the patch.
    pub patched: Vec<AppliedObject>,
    /// The objects that were to be created, and that another client has created meanwhile, to which they are left.
    pub left_to_others: Vec<ObjectKey>,
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

/// Returns the notes about what the run leaves out.
fn left_out(plan: &Plan) -> Vec<Note> {
    let cleans = plan.operation == Operation::Clean;
    plan.notes.iter().filter(|note| note.is_omission() || (cleans && note.is_kept())).cloned().collect()
}

async fn summarize(context: &Context<'_>, results: Vec<Option<NodeResult>>, begun: Instant) -> Outcome {
    let mut outcome = Outcome {
        summary: Summary {
            uncovered: context.plan.uncovered.clone(),
            left_out: left_out(context.plan),
            ..Summary::new(Status::Done)
        },
        gone: Vec::new(),
        applied: Vec::new(),
        patched: Vec::new(),
        left_to_others: Vec::new(),
    };
    // Objects whose patch failed are not listed again with the group that was not started because of it.
    let mut unpatched: BTreeSet<ObjectKey> = BTreeSet::new();
    let until = Instant::now() + blockers::PATIENCE;
    let mut overdue: BTreeSet<usize> = BTreeSet::new();
    for (node, result) in context.plan.nodes.iter().zip(results) {
        let is_done = result.as_ref().is_some_and(|result| result.status == Status::Done);
        if let Some(first) = objects(&node.work).next().filter(|_| context.plan.continue_on_failure && !is_done) {
            let first = || Box::new(Incomplete { nodes: 0, title: node.title.clone(), object: first.clone() });
            outcome.summary.incomplete.get_or_insert_with(first).nodes += 1;
        }
        let result = result.unwrap_or_else(|| {
            let is_listed = |object: &ObjectKey| node.cluster.is_none() && unpatched.contains(object);
            let left = objects(&node.work).filter(|object| !is_listed(object));
            let left = left.map(|object| (object.clone(), Some(Blocker::NotStarted))).collect();
            NodeResult { left, ..NodeResult::new(Status::NotStarted) }
        });
        if matches!(node.work, Work::Patch(_)) {
            unpatched.extend(result.left.iter().map(|(object, _)| object.clone()));
        }
        let summary = &mut outcome.summary;
        if result.status != Status::NotStarted {
            summary.status = summary.status.max(result.status);
        } else if context.options.stop.is_cancelled() {
            summary.status = summary.status.max(Status::Interrupted);
        }
        let listed = summary.left.len();
        summary.left.extend(blockers::explain(context, node, result.left, &result.seen, until).await);
        // What another cluster holds is explained by its own objects, which this run may not read.
        if result.status == Status::TimedOut && node.cluster.is_none() && matches!(node.work, Work::Delete(_)) {
            overdue.extend(listed..summary.left.len());
        }
        summary.unchanged += result.unchanged;
        summary.finalizers_removed.extend(result.finalizers_removed);
        summary.recreated.extend(result.recreated);
        summary.ignored.extend(result.ignored);
        // The record lists objects of the release's own cluster only.
        summary.uncovered.extend(result.kept.into_iter().filter(|_| node.cluster.is_none()));
        summary.gone += result.gone.len();
        summary.requested.extend(result.requested);
        // The record lists objects of the release's own cluster only. What a sequence deletes is verified by a later apply.
        if node.cluster.is_none() && node.work.steps().is_empty() {
            outcome.gone.extend(result.gone);
        }
        outcome.left_to_others.extend(result.left_to_others);
        match node.work {
            Work::Patch(_) => outcome.patched.extend(result.applied),
            Work::Apply(_) | Work::Delete(_) | Work::Sequence(_) => outcome.applied.extend(result.applied),
        }
    }
    let is_overdue = |(index, left): (usize, _)| overdue.contains(&index).then_some(left);
    let left = outcome.summary.left.iter_mut().enumerate().filter_map(is_overdue);
    let left: Vec<Blocked<'_>> = left.map(|left: &mut Left| (&left.object, &mut left.blockers)).collect();
    add_root_causes(&context.clusters.own, left, until).await;
    let gone = outcome.gone.iter().collect();
    let summary = &mut outcome.summary;
    mark_contained(context.plan, &gone, &mut summary.uncovered);
    summary.applied = changed(&outcome.applied);
    summary.requests = context.clusters.requests();
    summary.elapsed_ms = millis(begun);
    outcome
}

/// Marks the objects that were kept in this run, and deleted with their Namespace or CRD later.
fn mark_contained(plan: &Plan, gone: &BTreeSet<&ObjectKey>, uncovered: &mut [Uncovered]) {
    for Uncovered { object, deleted_with, .. } in uncovered.iter_mut().skip(plan.uncovered.len()) {
        let namespace = object.namespace.as_deref().map(|name| ObjectKey::new(wellknown::namespace(), None, name));
        let resource = plan.queries.iter().map(|query| &query.resource).find(|resource| resource.kind == object.kind);
        *deleted_with =
            namespace.into_iter().chain(resource.map(Resource::crd)).find(|container| gone.contains(container));
    }
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
