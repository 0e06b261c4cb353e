//! Plans that deploy: CRDs, then cluster-scoped objects, then namespaced ones, or as the policy or a graph of tasks orders
//! them; then the objects that only the old version contained are pruned.

mod deployment;
mod existing;
mod graph;
mod guards;
mod namespaces;
mod nodes;
mod order;
mod prepare;
mod pruning;
mod requested;
mod stages;
mod versions;
mod wait;

use crate::{
    Note, NoteKind, Operation, Plan, PlanError, Snapshot,
    find::{Finder, Index},
    problem::Problems,
    queries::QuerySet,
};
use billhook_objects::{ObjectKey, wellknown};
use versions::check_versions;

pub use deployment::{Deployment, check_policy};
pub use prepare::prepare;
pub use wait::is_ready_when_created;

impl Deployment<'_> {
    /// Returns the second round of queries: objects without the release's label that a list by label did not show, single
    /// objects where a list is forbidden, and namespaces that may not exist.
    pub fn missing(&self, snapshot: &Snapshot) -> Vec<crate::Query> {
        let index = Index::of(snapshot);
        let mut queries = QuerySet::default();
        queries.extend(self.objects.missing(&Finder::new(self.own_queries(), &index)));
        queries.extend(self.pruning.missing(snapshot));
        queries.extend(self.namespace_query(&index));
        queries.into_vec().into_iter().filter(|query| !self.own_queries().contains(query)).collect()
    }

    /// Plans the deployment and, after it, the pruning, from the answers to [`Deployment::queries`] and
    /// [`Deployment::missing`].
    ///
    /// # Errors
    ///
    /// When the order of the policy is wrong, the snapshot leaves open whether an object exists, objects belong to another
    /// release, or namespaces do not exist: all problems at once.
    pub fn plan(&self, snapshot: &Snapshot) -> Result<Plan, PlanError> {
        let index = Index::of(snapshot);
        let missing = self.objects.missing(&Finder::new(self.own_queries(), &index));
        let finder = Finder::new(self.own_queries().iter().chain(&missing), &index);
        let mut problems = Problems::default();
        let mut existing = self.existing(&finder, &mut problems);
        let mut plan = Plan::new(Operation::Apply, Some(self.request.release));
        plan.notes.append(&mut existing.notes);
        plan.notes.extend(std::mem::take(&mut existing.honoured).into_notes().map(Note::from));
        plan.unmanaged = std::mem::take(&mut existing.unmanaged);
        plan.namespaces = self.missing_namespaces(&index, &mut problems);
        if let Some(graph) = self.request.graph {
            self.check_graph(graph, &existing, &mut problems);
            self.append_graph(graph, &existing, &mut plan);
        } else {
            let stages = self.stages(&mut plan.notes, &mut problems);
            self.check_order(&stages, &existing, &mut problems);
            self.append_nodes(stages, &existing, &mut plan);
        }
        match self.pruning.plan(snapshot) {
            Ok(mut pruning) => {
                existing.remove_from(&mut pruning);
                check_versions(&self.request, &pruning, &mut problems);
                self.append_pruning(pruning, &mut plan);
            }
            Err(error) => problems.extend(error),
        }
        problems.check()?;
        let guarded = self.note_pruning(&plan, &existing, snapshot);
        plan.add_notes(guarded.into_iter().chain(self.unserved.iter().cloned()).map(Note::from));
        let namespace = |name: &String| ObjectKey::new(wellknown::namespace(), None, name.as_str());
        let created: Vec<Note> =
            plan.namespaces.iter().map(|name| NoteKind::NamespaceCreated { object: namespace(name) }.into()).collect();
        plan.add_notes(created);
        Ok(plan)
    }
}
