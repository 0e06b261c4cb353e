//! The order of a deployment as a graph of tasks, which a front end gives in place of the policy's deployment groups.

use std::{collections::BTreeSet, num::NonZeroUsize};

use billhook_policy::GoDuration;

/// A graph of tasks. A node starts when all nodes in its `after` are done; if one of them fails, it does not start, and
/// branches that do not depend on the failure continue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TaskGraph {
    /// The nodes; each comes after all nodes in its `after`.
    pub nodes: Vec<TaskNode>,
    /// Up to how many nodes run at a time; none for all that can.
    pub workers: Option<NonZeroUsize>,
    /// The pauses after which a failed step is repeated, one for each further attempt.
    pub retries: Vec<GoDuration>,
    /// Whether the steps that delete send requests. If not, they only look up what exists.
    pub deletes: bool,
}

impl TaskGraph {
    /// Returns the indexes of the manifests whose objects are to be deleted.
    pub fn deleted(&self) -> BTreeSet<usize> {
        self.steps(StepAction::is_delete).collect()
    }

    /// Returns the indexes of the manifests whose steps wait until their objects are ready.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = usize> {
        self.steps(|action| action == StepAction::Apply { wait: true })
    }

    /// Returns the indexes of all manifests that a step names.
    pub(crate) fn named(&self) -> BTreeSet<usize> {
        self.steps(|_| true).collect()
    }

    fn steps(&self, wanted: impl Fn(StepAction) -> bool) -> impl Iterator<Item = usize> {
        let steps = self.nodes.iter().flat_map(|node| &node.steps);
        steps.filter(move |step| wanted(step.action)).map(|step| step.manifest)
    }
}

/// Steps that run one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskNode {
    /// The title, such as the level and the component that its manifests belong to.
    pub title: String,
    /// The indexes of the nodes that must be done before.
    pub after: Vec<usize>,
    /// The steps, in order.
    pub steps: Vec<TaskStep>,
}

/// A step: what happens with one manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStep {
    /// The index of the manifest in [`crate::ApplyRequest::manifests`].
    pub manifest: usize,
    /// What to do with its object.
    pub action: StepAction,
}

/// What a step does with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepAction {
    /// It is applied, and the next step starts when it is ready or, if it is not awaited, written.
    Apply {
        /// Whether the step waits until the object is ready (a Job: complete).
        wait: bool,
    },
    /// Its deletion is requested, and the next step starts once the API server has accepted the request.
    Delete,
}

impl StepAction {
    fn is_delete(self) -> bool {
        self == Self::Delete
    }
}
