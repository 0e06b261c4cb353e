//! The plan as data. `docs/plan.md` describes its JSON.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroUsize,
    sync::Arc,
};

use billhook_objects::{ApiVersion, ObjectKey, ReleaseName, Uid, wellknown::FIELD_MANAGER};
use billhook_policy::{Force, GoDuration, LabelSelector, Propagation, UpdateStrategy};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Annotations, Health, Note, Observed, Query, RequestedDeletion, Resource, Uncovered, UnservedKind};

/// The format version of a serialized plan.
pub const PLAN_FORMAT: u32 = 1;

/// A plan: a small graph of nodes, and notes on what is dangerous.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The format version, [`PLAN_FORMAT`].
    pub format: u32,
    /// What the plan is for.
    pub operation: Operation,
    /// The release as `namespace/name`; none if manifests alone name the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// Namespaces of the release's own cluster to create before the first node starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// The nodes. A node comes after all nodes in its `after`.
    pub nodes: Vec<Node>,
    /// Up to how many nodes run at a time; none for all that can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers: Option<NonZeroUsize>,
    /// Whether nodes that do not depend on a failed one are still started.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continue_on_failure: bool,
    /// The objects whose manifests request their deletion, in the order of the manifests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requested_deletions: Vec<RequestedDeletion>,
    /// The lists and watches that the nodes rely on; tasks name them by index.
    pub queries: Vec<Query>,
    /// Objects of the release that the plan does not delete.
    pub uncovered: Vec<Uncovered>,
    /// Objects that the release gives up, because they are annotated as no longer managed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmanaged: Vec<Unmanaged>,
    /// Facts worth knowing before it is carried out, the most severe first.
    pub notes: Vec<Note>,
}

impl Plan {
    /// Returns a plan without nodes.
    pub(crate) fn new(operation: Operation, release: Option<&ReleaseName>) -> Self {
        Self {
            format: PLAN_FORMAT,
            operation,
            release: release.map(ToString::to_string),
            namespaces: Vec::new(),
            nodes: Vec::new(),
            workers: None,
            continue_on_failure: false,
            requested_deletions: Vec::new(),
            queries: Vec::new(),
            uncovered: Vec::new(),
            unmanaged: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Adds notes, and sorts all of them by severity, code and parameters.
    pub fn add_notes(&mut self, notes: impl IntoIterator<Item = Note>) {
        self.notes.extend(notes);
        self.notes.sort_unstable();
    }

    /// Returns the field manager of the objects that it applies.
    pub fn field_manager(&self) -> String {
        self.release.as_deref().map_or_else(|| FIELD_MANAGER.to_owned(), ReleaseName::field_manager_of)
    }

    /// Appends a node that starts when all others are done.
    pub(crate) fn append(&mut self, node: Node) {
        self.append_after(self.last(), node);
    }

    /// Appends a node that starts when certain ones are done, and returns its index.
    pub(crate) fn append_after(&mut self, after: Vec<usize>, node: Node) -> usize {
        self.nodes.push(Node { after, ..node });
        self.nodes.len() - 1
    }

    /// Returns the nodes that no other one comes after.
    pub(crate) fn last(&self) -> Vec<usize> {
        let mut last = vec![true; self.nodes.len()];
        for before in self.nodes.iter().flat_map(|node| &node.after) {
            last[*before] = false;
        }
        (0..last.len()).filter(|at| last[*at]).collect()
    }

    /// Appends a node that patches objects, if there are any.
    pub(crate) fn append_patches(&mut self, title: &str, objects: Vec<PatchTask>) {
        if !objects.is_empty() {
            self.append(Node::of_patches(title, PatchWork { objects, ..PatchWork::default() }));
        }
    }

    /// Returns the nodes that delete objects, with their work.
    pub fn delete_nodes(&self) -> impl Iterator<Item = (&Node, &DeleteWork)> {
        self.nodes.iter().filter_map(|node| if let Work::Delete(work) = &node.work { Some((node, work)) } else { None })
    }

    /// Returns the tasks of all nodes that apply objects. One that only waits for an object is among them.
    pub fn apply_tasks(&self) -> impl Iterator<Item = &ApplyTask> {
        self.nodes.iter().flat_map(|node| node.work.apply_tasks())
    }

    /// Returns the steps of all sequences that delete objects. All are in the release's own cluster.
    pub fn delete_steps(&self) -> impl Iterator<Item = &DeleteStep> {
        self.nodes.iter().flat_map(|node| node.work.steps()).filter_map(Step::delete)
    }

    /// Returns the known objects that the plan deletes, each with its cluster, its UID, and whether it was being deleted when
    /// the plan was made.
    pub fn deleted(&self) -> impl Iterator<Item = (Option<&str>, &ObjectKey, &Uid, bool)> {
        let nodes = self.delete_nodes().flat_map(|(node, work)| {
            work.objects.iter().map(|task| (node.cluster.as_deref(), &task.object, &task.uid, task.deleting))
        });
        nodes.chain(self.delete_steps().map(|step| (None, &step.object, &step.uid, false)))
    }

    /// Returns the tasks of all nodes that patch objects.
    pub fn patch_tasks(&self) -> impl Iterator<Item = &PatchTask> {
        let works =
            self.nodes.iter().filter_map(|node| if let Work::Patch(work) = &node.work { Some(work) } else { None });
        works.flat_map(|work| &work.objects)
    }

    /// Returns the number of known objects that the plan deletes.
    pub fn deletions(&self) -> usize {
        self.deleted().count()
    }
}

/// An object that a release gives up: its label is removed, and the record forgets it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Unmanaged {
    /// The object.
    pub object: ObjectKey,
    /// Its UID.
    pub uid: Uid,
}

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Deploy, then prune.
    Apply,
    /// Delete.
    Delete,
    /// Delete all objects of certain kinds, whoever created them.
    Clean,
}

impl Operation {
    /// Returns the name of the operation, which is also the command that carries it out.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::Clean => "clean",
        }
    }
}

/// An index into [`Plan::queries`].
pub type QueryId = usize;

/// Work on one cluster, and when it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// The title of its group.
    pub title: String,
    /// Where its group is in the policy; empty for a default group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The indexes of the nodes that must be done before.
    pub after: Vec<usize>,
    /// The name of another cluster (a `targetName`); none for the release's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The work.
    pub work: Work,
    /// When the node is done.
    pub barrier: Barrier,
    /// The time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

impl Node {
    /// Returns a node that patches objects of the release's own cluster.
    pub(crate) fn of_patches(title: &str, work: PatchWork) -> Self {
        Self {
            title: title.to_owned(),
            path: String::new(),
            after: Vec::new(),
            cluster: None,
            work: Work::Patch(work),
            barrier: Barrier::Requested,
            timeout: None,
        }
    }
}

/// The work of a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Apply manifests.
    Apply(ApplyWork),
    /// Delete objects.
    Delete(DeleteWork),
    /// Patch objects: after their deployment, or before their deletion.
    Patch(PatchWork),
    /// Apply objects and request deletions, one after another.
    Sequence(SequenceWork),
}

impl Work {
    /// Returns the tasks that apply objects, in order.
    pub fn apply_tasks(&self) -> impl Iterator<Item = &ApplyTask> {
        let objects = if let Self::Apply(work) = self { work.objects.as_slice() } else { &[] };
        objects.iter().chain(self.steps().iter().filter_map(Step::apply))
    }

    /// Returns the tasks that apply objects, to change them.
    pub fn apply_tasks_mut(&mut self) -> impl Iterator<Item = &mut ApplyTask> {
        let (objects, steps): (&mut [_], &mut [_]) = match self {
            Self::Apply(work) => (&mut work.objects, &mut []),
            Self::Sequence(work) => (&mut [], &mut work.steps),
            Self::Delete(_) | Self::Patch(_) => (&mut [], &mut []),
        };
        let steps = steps.iter_mut().filter_map(|step| if let Step::Apply(task) = step { Some(task) } else { None });
        objects.iter_mut().chain(steps)
    }

    /// Returns the steps of a sequence.
    pub fn steps(&self) -> &[Step] {
        if let Self::Sequence(work) = self { &work.steps } else { &[] }
    }
}

/// When a node is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Barrier {
    /// The API server has accepted every request.
    Requested,
    /// All awaited objects are ready.
    Ready,
    /// The API server has confirmed that every object is gone.
    Gone,
}

/// Objects to apply, in parallel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplyWork {
    /// The objects.
    pub objects: Vec<ApplyTask>,
}

/// An object to apply, or to wait for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyTask {
    /// The object.
    pub object: ObjectKey,
    /// How to address it.
    pub resource: Resource,
    /// What to do with it.
    pub action: ApplyAction,
    /// Whether the node's barrier waits until it is ready (for a CRD: Established).
    pub wait: bool,
    /// The rules by which its health is judged instead of its readiness. If the barrier does not wait for it, it is looked at
    /// once, and must be healthy then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Of an update: the version in the snapshot. If the write returns the same one, nothing has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// How an existing object is updated.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strategy: UpdateStrategy,
    /// Annotations that it gets if the request creates it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotate_before_create: BTreeMap<String, String>,
    /// The UID of an existing object: of one to write, the precondition of the write; of an other one, only if it remains
    /// unchanged because its policy is `immutable`, or because it is annotated with `ignore`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// Of a creation: whether an object without a release that another client creates in the meantime is taken over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub adopt: bool,
    /// Of a creation: whether an object that another client creates in the meantime is left to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub leave_others: bool,
    /// Other field managers of billhook whose fields move to the release's own manager first: that of earlier versions, and
    /// those of releases that no longer exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub takes_over: Vec<String>,
    /// Of an update: how the dependents of the object are treated if it is deleted and recreated, because the API server rejects
    /// the update as invalid. None if it must not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recreate: Option<Propagation>,
}

impl ApplyTask {
    /// Returns the UID of an object that remains unchanged because its policy is `immutable`, or because it is annotated with
    /// `ignore`.
    pub fn left(&self) -> Option<&Uid> {
        self.uid.as_ref().filter(|_| matches!(self.action, ApplyAction::Unchanged | ApplyAction::Await))
    }

    /// Returns the task to create an object of another client, which nothing waits for.
    pub fn creation(object: ObjectKey, resource: Resource) -> Self {
        Self {
            object,
            resource,
            action: ApplyAction::Create,
            wait: false,
            health: None,
            resource_version: None,
            strategy: UpdateStrategy::default(),
            annotate_before_create: BTreeMap::new(),
            uid: None,
            adopt: false,
            leave_others: false,
            takes_over: Vec::new(),
            recreate: None,
        }
    }

    /// Returns the task to create the object, which must not exist any more.
    #[must_use]
    pub fn to_create(&self) -> Self {
        Self { action: ApplyAction::Create, uid: None, takes_over: Vec::new(), ..self.clone() }
    }
}

fn is_empty(uids: &BTreeSet<Uid>) -> bool {
    uids.is_empty()
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplyAction {
    /// It does not exist yet.
    Create,
    /// It exists and belongs to the release.
    Update,
    /// It exists and belongs to no release: the release takes it over.
    Adopt,
    /// It is unchanged since the last apply: no request is sent.
    Unchanged,
    /// An earlier node applies it, and this node only waits for it.
    Await,
    /// It is being deleted: it is created again once it is gone. A step of a sequence fails until then.
    Recreate,
}

/// Objects to delete, in parallel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteWork {
    /// The known objects.
    pub objects: Vec<DeleteTask>,
    /// Collections: their objects are deleted, including those that are created before the node ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<Collection>,
    /// The force stage, if the group declares one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<Force>,
    /// How dependents are treated.
    pub propagation: Propagation,
    /// The grace period of the requests, for kinds that have one; none for that of each object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<GoDuration>,
    /// How long after the start of the node its collections still include new objects; later ones remain. None for as long as
    /// the node runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_objects: Option<GoDuration>,
    /// How long after its `deletionTimestamp` a VolumeSnapshotContent is annotated, so that the CSI sidecar deletes its
    /// snapshot; none for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_snapshots: Option<GoDuration>,
    /// The pauses after which a rejected request is repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<GoDuration>,
}

/// An object to delete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteTask {
    /// The object.
    pub object: ObjectKey,
    /// Its UID, the precondition of the DELETE.
    pub uid: Uid,
    /// Its version when the plan was made. If it has changed since, its annotations are read before it is deleted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The query that shows the object, and its watch shows when it is gone.
    pub query: QueryId,
    /// Its finalizers when the plan was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Whether it was being deleted when the plan was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// Its annotations when the plan was made. `finalize-deletion-after` gives it a force stage of its own.
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
    /// Of a CRD under a force stage: the query for its instances, whose finalizers are removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<QueryId>,
}

/// Objects to patch, in parallel. An object that is gone needs no patch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PatchWork {
    /// The objects.
    pub objects: Vec<PatchTask>,
    /// The pauses after which a rejected request is repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<GoDuration>,
}

/// An object to patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchTask {
    /// The object.
    pub object: ObjectKey,
    /// How to address it.
    pub resource: Resource,
    /// Its UID when the plan was made; none if the plan itself creates it. What the run has written goes before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The JSON merge patch.
    pub patch: Value,
    /// The owner references in the patch that get the UID that their owner has when the patch is sent, because the plan itself
    /// creates it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<LateOwner>,
    /// The status to set instead of the patch. It may be confidential, so that it is in no serialized plan.
    #[serde(default, skip_serializing)]
    pub status: Option<Box<Value>>,
}

impl PatchTask {
    /// Returns a task that sends a merge patch.
    pub fn new(object: ObjectKey, resource: Resource, uid: Option<Uid>, patch: Value) -> Self {
        Self { object, resource, uid, patch, owners: Vec::new(), status: None }
    }
}

/// An owner whose UID is read before a patch refers to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LateOwner {
    /// The index of the reference in the patch.
    pub index: usize,
    /// The owner.
    pub object: ObjectKey,
    /// How to address it.
    pub resource: Resource,
}

/// Steps, one after another: each starts when the one before it is done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SequenceWork {
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// The pauses after which a failed step is repeated, one for each further attempt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<GoDuration>,
}

/// What happens with one object of a sequence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// It is applied. The step is done when it is written or, if it is awaited, ready.
    Apply(ApplyTask),
    /// Its deletion is requested. The step is done when the API server has accepted the request.
    Delete(DeleteStep),
    /// It cannot be applied, because the cluster does not serve its kind or version. The step fails.
    Unserved(UnservedStep),
}

/// An object whose deletion is requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteStep {
    /// The object.
    pub object: ObjectKey,
    /// How to address it.
    pub resource: Resource,
    /// Its UID, the precondition of the DELETE.
    pub uid: Uid,
    /// Its version when the plan was made. If it has changed since, its annotations are read before it is deleted.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// How dependents are treated.
    pub propagation: Propagation,
}

/// An object whose kind, or the version of its manifest, the cluster did not serve when the plan was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UnservedStep {
    /// The object as it was written: nothing tells whether it needs a namespace.
    pub object: ObjectKey,
    /// The `apiVersion` of its manifest.
    pub api_version: ApiVersion,
    /// What may be meant instead.
    pub kind: UnservedKind,
}

impl Step {
    /// Returns the object.
    pub fn object(&self) -> &ObjectKey {
        match self {
            Self::Apply(task) => &task.object,
            Self::Delete(step) => &step.object,
            Self::Unserved(step) => &step.object,
        }
    }

    /// Returns how to address the object; none if its kind is not known.
    pub fn resource(&self) -> Option<&Resource> {
        match self {
            Self::Apply(task) => Some(&task.resource),
            Self::Delete(step) => Some(&step.resource),
            Self::Unserved(_) => None,
        }
    }

    /// Returns the task of a step that applies.
    pub fn apply(&self) -> Option<&ApplyTask> {
        if let Self::Apply(task) = self { Some(task) } else { None }
    }

    /// Returns a step that deletes.
    pub fn delete(&self) -> Option<&DeleteStep> {
        if let Self::Delete(step) = self { Some(step) } else { None }
    }
}

/// `deleteAllResources`: all objects that a query shows while the node runs and that match the filters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collection {
    /// The query that shows the objects.
    pub query: QueryId,
    /// Only these names; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Only these namespaces; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Only these labels.
    #[serde(default, skip_serializing_if = "LabelSelector::is_empty")]
    pub label_selector: LabelSelector,
    /// What is left out, such as `excludedResources` of the same kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Exclusion>,
}

/// Objects of a collection's kind that are left out of it. Empty lists mean any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exclusion {
    /// These names; any if `name_prefixes` is empty too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Names with one of these prefixes: `kube-` also covers system namespaces that do not exist yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub name_prefixes: Vec<String>,
    /// In these namespaces; any if `namespace_prefixes` is empty too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// In namespaces with one of these prefixes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace_prefixes: Vec<String>,
    /// With one of these owners. All collections of a plan share them.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub owners: Arc<BTreeSet<Uid>>,
    /// With these labels.
    #[serde(default, skip_serializing_if = "LabelSelector::is_empty")]
    pub label_selector: LabelSelector,
}

impl Collection {
    /// Whether an object that the query shows belongs to the collection, and is not kept by its annotations.
    pub fn contains(&self, object: &Observed) -> bool {
        self.selects(object) && !object.annotations.treatment().is_kept()
    }

    /// Whether an object that the query shows matches the filters.
    pub(crate) fn selects(&self, object: &Observed) -> bool {
        (self.names.is_empty() || self.names.contains(&object.name))
            && within(&self.namespaces, object)
            && self.label_selector.matches(&object.labels)
            && !self.excluded.iter().any(|exclusion| exclusion.covers(object))
    }
}

impl Exclusion {
    /// Whether it leaves out an object of its collection's kind.
    pub fn covers(&self, object: &Observed) -> bool {
        let covers = |texts: &Vec<String>, prefixes: &Vec<String>, text: &String| {
            texts.contains(text) || prefixes.iter().any(|prefix| text.starts_with(prefix))
        };
        let any_name = self.names.is_empty() && self.name_prefixes.is_empty();
        let any_namespace = self.namespaces.is_empty() && self.namespace_prefixes.is_empty();
        let is_within = |namespace| covers(&self.namespaces, &self.namespace_prefixes, namespace);
        (any_name || covers(&self.names, &self.name_prefixes, &object.name))
            && (any_namespace || object.namespace.as_ref().is_some_and(is_within))
            && (self.owners.is_empty() || object.owners.iter().any(|owner| self.owners.contains(&owner.uid)))
            && self.label_selector.matches(&object.labels)
    }
}

fn within(namespaces: &[String], object: &Observed) -> bool {
    namespaces.is_empty() || object.namespace.as_ref().is_some_and(|namespace| namespaces.contains(namespace))
}
