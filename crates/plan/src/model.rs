//! The plan as data. `plan -o json` prints it as it is here; `docs/plan.md` describes it.

use std::collections::BTreeMap;

use billhook_objects::{GroupKind, ObjectKey, ReleaseName, Uid};
use billhook_policy::{Force, GoDuration, LabelSelector, Propagation, UpdateStrategy};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Observed, Query, Resource};

/// The format version of a serialized plan.
pub const PLAN_FORMAT: u32 = 1;

/// What will be done: a small graph of nodes, and notes on what is dangerous.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The format version, [`PLAN_FORMAT`].
    pub format: u32,
    /// What the plan is for.
    pub operation: Operation,
    /// The release as `namespace/name`; none where manifests alone name the objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The nodes. One comes after all it names in `after`.
    pub nodes: Vec<Node>,
    /// The lists and watches that the nodes rely on; tasks name them by index.
    pub queries: Vec<Query>,
    /// Objects of the release that no group covers: they stay.
    pub uncovered: Vec<Uncovered>,
    /// What is worth knowing before it is carried out, the most severe first.
    pub notes: Vec<Note>,
}

impl Plan {
    /// A plan that does nothing yet.
    pub(crate) fn new(operation: Operation, release: Option<&ReleaseName>) -> Self {
        Self {
            format: PLAN_FORMAT,
            operation,
            release: release.map(ToString::to_string),
            nodes: Vec::new(),
            queries: Vec::new(),
            uncovered: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Brings the notes into their order: the most severe first.
    pub(crate) fn sort_notes(&mut self) {
        self.notes.sort_by(|a, b| {
            (a.severity, a.code, &a.object, &a.message).cmp(&(b.severity, b.code, &b.object, &b.message))
        });
    }

    /// Whether any note is dangerous, so that carrying the plan out needs `--yes`.
    pub fn is_dangerous(&self) -> bool {
        self.notes.iter().any(|note| note.severity == Severity::Dangerous)
    }

    /// How many objects the plan deletes, as far as they are known by now.
    pub fn deletions(&self) -> usize {
        self.nodes.iter().map(|node| if let Work::Delete(work) = &node.work { work.objects.len() } else { 0 }).sum()
    }
}

/// What a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Deploy, then prune.
    Apply,
    /// Delete.
    Delete,
}

/// An index into [`Plan::queries`].
pub type QueryId = usize;

/// Some work on one cluster, and when it is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// How the node is called in output: the title of its group.
    pub title: String,
    /// Where its group stands in the policy; empty for a default group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The nodes (by index) that must be done before.
    pub after: Vec<usize>,
    /// The name of another cluster (a `targetName`); none for the release's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// What is done.
    pub work: Work,
    /// When it is done.
    pub barrier: Barrier,
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

/// What a node does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Work {
    /// Apply manifests.
    Apply(ApplyWork),
    /// Delete objects.
    Delete(DeleteWork),
    /// Patch objects: those that were deployed, or those that are to be deleted.
    Patch(PatchWork),
}

/// When a node is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Barrier {
    /// The API server has accepted every request.
    Requested,
    /// All objects that are waited for are ready.
    Ready,
    /// The API server has said of every object that it is gone.
    Gone,
}

/// Objects to apply, in parallel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ApplyWork {
    /// The objects.
    pub objects: Vec<ApplyTask>,
}

/// One object to apply, or to wait for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApplyTask {
    /// Which object.
    pub object: ObjectKey,
    /// How to talk to it.
    pub resource: Resource,
    /// What is done with it.
    pub action: ApplyAction,
    /// Whether the node's barrier waits until it is ready (for a CRD: Established).
    pub wait: bool,
    /// Of an update: the version that was seen. Where the write returns the same one, nothing has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// How an object that exists is brought to what its manifest says.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strategy: UpdateStrategy,
    /// Annotations that it gets where the request creates it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotate_before_create: BTreeMap<String, String>,
    /// Of an object that exists and that its policy `immutable` leaves as it is: which object it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// What is done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ApplyAction {
    /// It does not exist yet.
    Create,
    /// It exists and is ours.
    Update,
    /// It exists and belonged to nobody: it is taken up by `--adopt`.
    Adopt,
    /// It is as we left it: no request is sent.
    Unchanged,
    /// An earlier node applies it: this node only waits for it.
    Await,
}

/// Objects to delete, in parallel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteWork {
    /// The objects that are known by now.
    pub objects: Vec<DeleteTask>,
    /// What is deleted beside them as long as the node runs: objects that appear meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collections: Vec<Collection>,
    /// The force stage, if the group declares one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<Force>,
    /// How dependents are treated.
    pub propagation: Propagation,
}

/// One object to delete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteTask {
    /// Which object.
    pub object: ObjectKey,
    /// Which object of that name; the DELETE carries it as a precondition.
    pub uid: Uid,
    /// The query that shows it, and shows it gone.
    pub query: QueryId,
    /// Its finalizers when the plan was made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Whether its deletion was under way already when the plan was made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleting: bool,
    /// For a CRD under a force stage: the query that shows its instances, whose finalizers are removed in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instances: Option<QueryId>,
}

/// Objects to patch, in parallel. One that is gone needs no patch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PatchWork {
    /// The objects.
    pub objects: Vec<PatchTask>,
}

/// One object to patch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PatchTask {
    /// Which object.
    pub object: ObjectKey,
    /// How to talk to it.
    pub resource: Resource,
    /// Which object of that name; none where the plan itself creates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The JSON merge patch.
    pub patch: Value,
}

/// `deleteAllResources`: whatever a query shows while the node runs, as far as the filters let it through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collection {
    /// The query that shows the objects.
    pub query: QueryId,
    /// Only these names; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Only these namespaces; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Only these labels.
    #[serde(default, skip_serializing_if = "LabelSelector::is_empty")]
    pub label_selector: LabelSelector,
    /// What is left out, `excludedResources` of the same kind among it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Exclusion>,
}

/// Objects of a collection's kind that are left out of it. Empty lists mean any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exclusion {
    /// These names; any when `name_prefixes` is empty too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Names that begin with one of these: `kube-` covers namespaces of the system that do not exist yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub name_prefixes: Vec<String>,
    /// In these namespaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// With these labels.
    #[serde(default, skip_serializing_if = "LabelSelector::is_empty")]
    pub label_selector: LabelSelector,
}

impl Collection {
    /// Whether an object that the query shows belongs to the collection.
    pub fn contains(&self, object: &Observed) -> bool {
        (self.names.is_empty() || self.names.contains(&object.name))
            && within(&self.namespaces, object)
            && self.label_selector.matches(&object.labels)
            && !self.excluded.iter().any(|exclusion| exclusion.covers(object))
    }
}

impl Exclusion {
    /// Whether it leaves out an object of its collection's kind.
    pub fn covers(&self, object: &Observed) -> bool {
        let any_name = self.names.is_empty() && self.name_prefixes.is_empty();
        (any_name || self.names.contains(&object.name) || self.name_prefixes.iter().any(|p| object.name.starts_with(p)))
            && within(&self.namespaces, object)
            && self.label_selector.matches(&object.labels)
    }
}

fn within(namespaces: &[String], object: &Observed) -> bool {
    namespaces.is_empty() || object.namespace.as_ref().is_some_and(|namespace| namespaces.contains(namespace))
}

/// An object of the release that stays.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Uncovered {
    /// Which object.
    pub object: ObjectKey,
    /// Why it stays.
    pub reason: String,
}

/// Something worth knowing before a plan is carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// How severe it is.
    pub severity: Severity,
    /// What it is about, for programs.
    pub code: NoteCode,
    /// What it says, for people.
    pub message: String,
    /// The object it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectKey>,
    /// What would go along, counted by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counts: Vec<(GroupKind, usize)>,
}

impl Note {
    /// A note of this severity about nothing in particular.
    pub(crate) fn new(severity: Severity, code: NoteCode, message: impl Into<String>) -> Self {
        Self { severity, code, message: message.into(), object: None, counts: Vec::new() }
    }

    /// The object it is about.
    pub(crate) fn about(mut self, object: ObjectKey) -> Self {
        self.object = Some(object);
        self
    }

    /// What it counts.
    pub(crate) fn counting(mut self, counts: Vec<(GroupKind, usize)>) -> Self {
        self.counts = counts;
        self
    }
}

/// How severe a note is, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Objects that the release did not create would go along, or more than was allowed: needs `--yes`.
    Dangerous,
    /// It may not go as one would expect.
    Warning,
    /// Good to know.
    Info,
}

/// What a note is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NoteCode {
    /// A Namespace or CRD takes objects along that the release did not create.
    ForeignObjects,
    /// More objects than `--max-deletions` allows.
    TooManyDeletions,
    /// A namespace that is never deleted.
    ProtectedNamespace,
    /// A collection reaches into a namespace of the system.
    SystemNamespace,
    /// Objects that another release holds.
    OtherRelease,
    /// Objects that no group covers.
    Uncovered,
    /// An object was made anew under its name by somebody else: it stays.
    Recreated,
    /// Finalizers that are there already.
    Finalizers,
    /// A kind that the cluster does not serve.
    NotServed,
    /// A group removes finalizers by force.
    ForceStage,
    /// Something could not be looked at.
    Unreadable,
    /// Single reads take the place of a list and watch.
    SingleReads,
    /// An aggregated API does not answer, so that namespaces cannot be emptied.
    DeadApiService,
    /// The Namespace that holds the inventory goes last.
    InventoryLast,
    /// A namespace that does not exist and is created because the call says so.
    NamespaceCreated,
    /// An object's group was chosen otherwise than written, or a group matches nothing.
    Order,
    /// A chart's hook.
    Hook,
    /// An object that somebody else manages, and whose manifest has the policy `fallback`: it is left as it is.
    Fallback,
}
