//! Builds the nodes of a deployment from a graph of tasks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use billhook_objects::{Manifest, ObjectKey, ResourceType, wellknown};

use crate::{
    ApplyAction, Barrier, Counts, DeleteStep, DeletionState, Node, NoteKind, PatchTask, Plan, Problem, SequenceWork,
    Step, StepAction, TaskGraph, TaskStep, Uncovered, UncoveredCause, UncoveredNote, Work,
    groups::{containers_of, is_crd},
    problem::Problems,
};

use super::{deployment::Deployment, existing::Existing, nodes::Resources, prepare::unserved_step};

/// The title of the node with the manifests that no step names.
const UNNAMED: &str = "objects in no node";

/// The place of a step: the index of its node, and its own in the node.
type Place = (usize, usize);

impl Deployment<'_> {
    /// Appends the nodes of a graph. A node without steps is left out: those after it follow those before it.
    pub(super) fn append_graph(&self, graph: &TaskGraph, existing: &Existing<'_>, plan: &mut Plan) {
        plan.workers = graph.workers;
        plan.continue_on_failure = true;
        let requested = existing.deletions.values().map(|found| &found.deletion);
        plan.requested_deletions = requested.chain(&existing.dropped).cloned().collect();
        let mut resources = Resources::new();
        let changes = existing.changes();
        let mut append = |title: &str, after: Vec<usize>, steps: &[TaskStep]| -> Vec<usize> {
            let steps = steps.iter().filter_map(|step| self.step(*step, changes, existing, &mut resources));
            let steps: Vec<_> = steps.collect();
            if steps.is_empty() {
                return after;
            }
            plan.nodes.push(node(title, after, steps, graph));
            vec![plan.nodes.len() - 1]
        };
        let first = append(UNNAMED, Vec::new(), &self.unnamed(graph));
        // The nodes of the plan that are done when a node of the graph is.
        let mut ends: Vec<Vec<usize>> = Vec::with_capacity(graph.nodes.len());
        for task in &graph.nodes {
            let before = task.after.iter().filter_map(|before| ends.get(*before)).flatten();
            let after: BTreeSet<usize> = before.copied().collect();
            let after = if after.is_empty() { first.clone() } else { after.into_iter().collect() };
            ends.push(append(&task.title, after, &task.steps));
        }
        let patches = self.patches(existing, plan);
        plan.append_patches("patches after deployment", patches);
        self.note_contained(plan);
    }

    /// Returns steps that apply the manifests that no step of a graph names, such as namespaces to create.
    fn unnamed(&self, graph: &TaskGraph) -> Vec<TaskStep> {
        let named = graph.named();
        let unnamed = (0..self.request.manifests.len()).filter(|at| !named.contains(at));
        unnamed.map(|manifest| TaskStep { manifest, action: StepAction::Apply { wait: false } }).collect()
    }

    fn patches(&self, existing: &Existing<'_>, plan: &Plan) -> Vec<PatchTask> {
        let directives = self.request.directives;
        let tasks = plan.apply_tasks().filter(|task| directives.contains_key(&task.object));
        let tasks: HashMap<_, _> = tasks.map(|task| (&task.object, task)).collect();
        let manifests = self.request.applied();
        manifests.filter_map(|(at, manifest)| self.patch(at, tasks.get(&manifest.key)?, existing)).collect()
    }

    /// Returns what a step does; none if there is nothing to do. `changes` says whether any step changes anything.
    fn step<'s>(
        &'s self,
        step: TaskStep,
        changes: bool,
        existing: &Existing<'_>,
        resources: &mut Resources<'s>,
    ) -> Option<Step> {
        let (wait, health) = match step.action {
            StepAction::Apply { wait } => (wait, None),
            StepAction::Check { wait, health } => (wait, Some(health)),
            StepAction::Delete => {
                let found = existing.deletions.get(&step.manifest)?;
                let seen = found.seen.filter(|_| found.deletion.state == DeletionState::ToDelete)?;
                return Some(Step::Delete(DeleteStep {
                    object: found.deletion.object.clone(),
                    resource: seen.query.resource.clone(),
                    uid: seen.object.uid.clone(),
                    resource_version: seen.object.resource_version.clone(),
                    propagation: self.request.propagation,
                }));
            }
        };
        let manifest = self.request.manifests.get(step.manifest)?;
        if existing.unserved.contains(&step.manifest) {
            return Some(Step::Unserved(unserved_step(manifest, self.catalog())));
        }
        let mut task = self.task(step.manifest, wait, existing, resources)?;
        // Where no step changes anything, what the list showed is as good as what a watch or another look would show.
        let is_seen = !changes && existing.objects.get(&task.object).is_some_and(|object| object.ready);
        // A CRD that is unchanged since an earlier apply is Established.
        task.wait &= (wait || task.action != ApplyAction::Unchanged) && !is_seen;
        task.health = health.filter(|_| !is_seen && !existing.treatment(step.manifest).skip_health_check);
        Some(Step::Apply(task))
    }

    /// Lists the recorded objects that no manifest contains and that are deleted with a Namespace or CRD.
    fn note_contained(&self, plan: &mut Plan) {
        let is_container = |key: &&ObjectKey| key.kind == wellknown::namespace() || is_crd(&key.kind);
        let containers: HashSet<_> = plan.delete_steps().map(|step| &step.object).filter(is_container).collect();
        let Some(inventory) = self.request.inventory.filter(|_| !containers.is_empty()) else { return };
        let current: HashSet<_> = self.request.manifests.iter().map(|manifest| &manifest.key).collect();
        let mut contained = Vec::new();
        for key in inventory.entries.keys().filter(|key| !current.contains(key)) {
            if let Some(with) = containers_of(key, self.catalog()).find(|container| containers.contains(container)) {
                contained.push(Uncovered { deleted_with: Some(with), ..Uncovered::new(key, UncoveredCause::NoGroup) });
            }
        }
        let counts: Counts = contained.iter().map(|uncovered| &uncovered.object.kind).collect();
        if counts.total() > 0 {
            plan.notes.push(NoteKind::Uncovered(UncoveredNote::DeletedWithContainer { counts }).into());
        }
        plan.uncovered.extend(contained);
    }

    /// Checks that the order of a graph can work: that no object needs a Namespace or CRD that the graph deletes, or that does
    /// not exist and is only applied after the object. Where the graph says nothing about their order, the object's step is
    /// repeated until the other one is done.
    pub(super) fn check_graph(&self, graph: &TaskGraph, existing: &Existing<'_>, problems: &mut Problems) {
        let places = places(graph);
        let deleted = self.request.deleted();
        let deleted: HashSet<_> = deleted.iter().filter_map(|at| Some(&self.request.manifests.get(*at)?.key)).collect();
        let applied: HashMap<_, _> =
            self.request.applied().filter_map(|(at, m)| self.absent(at, m, existing)).collect();
        let mut ancestors: HashMap<usize, HashSet<usize>> = HashMap::new();
        let (mut unfit, mut early) = (BTreeMap::<_, usize>::new(), BTreeMap::<_, usize>::new());
        for (at, manifest) in self.request.applied() {
            for container in containers_of(&manifest.key, self.catalog()) {
                if deleted.contains(&container) {
                    *unfit.entry(container).or_default() += 1;
                    continue;
                }
                let container_at = applied.get(&container).and_then(|container| places.get(container));
                let Some(((node, step), (its, its_step))) = places.get(&at).copied().zip(container_at.copied()) else {
                    continue;
                };
                let is_before = match node == its {
                    true => step < its_step,
                    false => ancestors.entry(its).or_insert_with(|| before(graph, its)).contains(&node),
                };
                if is_before {
                    *early.entry((node, container)).or_default() += 1;
                }
            }
        }
        for (needed, count) in unfit {
            problems.add(Problem::DeletesNeeded { count, needed });
        }
        for ((node, needed), count) in early {
            let group = graph.nodes.get(node).map(|node| node.title.clone()).unwrap_or_default();
            problems.add(Problem::AppliedLater { group, count, needed });
        }
    }

    /// Returns a Namespace or CRD that the deployment creates, with the index of its manifest.
    fn absent(&self, at: usize, manifest: &Manifest, existing: &Existing<'_>) -> Option<(ObjectKey, usize)> {
        let key = &manifest.key;
        let is_absent = if is_crd(&key.kind) {
            let defined = ResourceType::from_crd(&manifest.value())?;
            self.request.not_served.contains(&defined.kind)
        } else {
            key.kind == wellknown::namespace() && !existing.objects.contains_key(key)
        };
        is_absent.then(|| (key.clone(), at))
    }
}

fn node(title: &str, after: Vec<usize>, steps: Vec<Step>, graph: &TaskGraph) -> Node {
    let waits = steps.iter().filter_map(Step::apply).any(|task| task.wait);
    Node {
        title: title.to_owned(),
        path: String::new(),
        after,
        cluster: None,
        work: Work::Sequence(SequenceWork { steps, retries: graph.retries.clone() }),
        barrier: if waits { Barrier::Ready } else { Barrier::Requested },
        timeout: None,
    }
}

/// Returns the place of each manifest.
fn places(graph: &TaskGraph) -> HashMap<usize, Place> {
    let nodes = graph.nodes.iter().enumerate();
    let steps = nodes.flat_map(|(node, task)| task.steps.iter().enumerate().map(move |(at, step)| (node, at, step)));
    steps.map(|(node, at, step)| (step.manifest, (node, at))).collect()
}

/// Returns the nodes that are done before a node starts.
fn before(graph: &TaskGraph, node: usize) -> HashSet<usize> {
    let mut found = HashSet::new();
    let mut open = vec![node];
    while let Some(node) = open.pop() {
        let after = graph.nodes.get(node).map(|task| task.after.as_slice()).unwrap_or_default();
        open.extend(after.iter().copied().filter(|before| found.insert(*before)));
    }
    found
}
