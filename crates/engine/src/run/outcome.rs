//! What the nodes of a run have come to, together.

use std::collections::BTreeSet;

use billhook_objects::{ObjectKey, wellknown};
use billhook_plan::{Node, Note, Operation, Plan, Resource, Uncovered, Work};
use tokio::time::Instant;

use super::{changed, objects};
use crate::{
    Blocker, Incomplete, Left, Status, Summary, blockers,
    explain::{Blocked, add_root_causes},
    node::{AppliedObject, Context, NodeResult, millis},
};

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

impl Outcome {
    fn new(plan: &Plan) -> Self {
        let (uncovered, left_out) = (plan.uncovered.clone(), left_out(plan));
        Self {
            summary: Summary { uncovered, left_out, ..Summary::new(Status::Done) },
            gone: Vec::new(),
            applied: Vec::new(),
            patched: Vec::new(),
            left_to_others: Vec::new(),
        }
    }

    /// Adds what a node has done. What it has left is added by its caller.
    fn add(&mut self, node: &Node, result: NodeResult) {
        let summary = &mut self.summary;
        summary.unchanged += result.unchanged;
        summary.finalizers_removed.extend(result.finalizers_removed);
        summary.recreated.extend(result.recreated);
        summary.ignored.extend(result.ignored);
        // The record lists objects of the release's own cluster only.
        summary.uncovered.extend(result.kept.into_iter().filter(|_| node.cluster.is_none()));
        summary.gone += result.gone.len();
        summary.requested.extend(result.requested);
        // What a sequence deletes is verified by a later apply.
        if node.cluster.is_none() && node.work.steps().is_empty() {
            self.gone.extend(result.gone);
        }
        self.left_to_others.extend(result.left_to_others);
        match node.work {
            Work::Patch(_) => self.patched.extend(result.applied),
            Work::Apply(_) | Work::Delete(_) | Work::Sequence(_) => self.applied.extend(result.applied),
        }
    }
}

/// Returns the outcome of a run whose nodes have ended like this; none for those that were not started.
pub(super) async fn summarize(context: &Context<'_>, results: Vec<Option<NodeResult>>, begun: Instant) -> Outcome {
    let mut outcome = Outcome::new(context.plan);
    // Objects whose patch failed are not listed again with the group that was not started because of it.
    let mut unpatched: BTreeSet<ObjectKey> = BTreeSet::new();
    let until = Instant::now() + blockers::PATIENCE;
    let mut overdue: BTreeSet<usize> = BTreeSet::new();
    for (node, result) in context.plan.nodes.iter().zip(results) {
        let is_done = result.as_ref().is_some_and(|result| result.status == Status::Done);
        let summary = &mut outcome.summary;
        if let Some(first) = objects(&node.work).next().filter(|_| context.plan.continue_on_failure && !is_done) {
            let first = || Box::new(Incomplete { nodes: 0, title: node.title.clone(), object: first.clone() });
            summary.incomplete.get_or_insert_with(first).nodes += 1;
        }
        let mut result = result.unwrap_or_else(|| not_started(node, &unpatched));
        if matches!(node.work, Work::Patch(_)) {
            unpatched.extend(result.left.iter().map(|(object, _)| object.clone()));
        }
        if result.status != Status::NotStarted {
            summary.status = summary.status.max(result.status);
        } else if context.options.stop.is_cancelled() {
            summary.status = summary.status.max(Status::Interrupted);
        }
        let (listed, left) = (summary.left.len(), std::mem::take(&mut result.left));
        summary.left.extend(blockers::explain(context, node, left, &result.seen, until).await);
        // What another cluster holds is explained by its own objects, which this run may not read.
        if result.status == Status::TimedOut && node.cluster.is_none() && matches!(node.work, Work::Delete(_)) {
            overdue.extend(listed..summary.left.len());
        }
        outcome.add(node, result);
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

/// Returns the result of a node that was not started. Of the release's own cluster, it does not list the objects whose patch
/// failed.
fn not_started(node: &Node, unpatched: &BTreeSet<ObjectKey>) -> NodeResult {
    let is_listed = |object: &ObjectKey| node.cluster.is_none() && unpatched.contains(object);
    let left = objects(&node.work).filter(|object| !is_listed(object));
    let left = left.map(|object| (object.clone(), Some(Blocker::NotStarted))).collect();
    NodeResult { left, ..NodeResult::new(Status::NotStarted) }
}

/// Returns the notes about what the run leaves out.
fn left_out(plan: &Plan) -> Vec<Note> {
    let cleans = plan.operation == Operation::Clean;
    plan.notes.iter().filter(|note| note.is_omission() || (cleans && note.is_kept())).cloned().collect()
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
