//! The plan as data. `docs/plan.md` describes its JSON.

mod collection;
mod work;

use std::num::NonZeroUsize;

use billhook_objects::{ObjectKey, ReleaseName, Uid, wellknown::FIELD_MANAGER};
use billhook_policy::GoDuration;
use serde::{Deserialize, Serialize};

pub use self::{
    collection::{Collection, Exclusion, QueryId},
    work::{
        ApplyAction, ApplyTask, ApplyWork, DeleteStep, DeleteTask, DeleteWork, LateOwner, PatchTask, PatchWork,
        SequenceWork, Step, UnservedStep,
    },
};
use crate::{Note, Query, RequestedDeletion, Uncovered};

/// The format version of a serialized plan.
const PLAN_FORMAT: u32 = 1;

/// A plan: a small graph of nodes, and notes on what is dangerous.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The format version.
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
    /// Deploy what a deletion has saved.
    Restore,
}

impl Operation {
    /// Returns the name of the operation, which is also the command that carries it out.
    pub fn name(self) -> &'static str {
        match self {
            Self::Apply => "apply",
            Self::Delete => "delete",
            Self::Clean => "clean",
            Self::Restore => "restore",
        }
    }
}

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
