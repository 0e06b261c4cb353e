//! The order of a deployment as a graph of tasks, which a front end gives in place of the policy's deployment groups.

use std::{collections::BTreeSet, num::NonZeroUsize};

use billhook_policy::GoDuration;
use serde::{Deserialize, Serialize};

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

    /// Returns the indexes of the manifests whose objects must be ready or healthy, with the rules of their health.
    pub fn judged(&self) -> impl Iterator<Item = (usize, Option<Health>)> {
        let steps = self.nodes.iter().flat_map(|node| &node.steps);
        steps.filter_map(|step| match step.action {
            StepAction::Apply { wait: true } => Some((step.manifest, None)),
            StepAction::Check { health, .. } => Some((step.manifest, Some(health))),
            StepAction::Apply { wait: false } | StepAction::Delete => None,
        })
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
    /// It is applied and must be healthy.
    Check {
        /// Whether the step waits until the object is healthy. If not, it looks once at the applied object, and fails if that
        /// is not healthy.
        wait: bool,
        /// The rules.
        health: Health,
    },
    /// Its deletion is requested, and the next step starts once the API server has accepted the request.
    Delete,
}

/// The rules by which the health of an applied object is judged: those of OpenShift's cluster-version operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// The release is being installed: workloads are always healthy, and operators are once they are available.
    Installing,
    /// The release was installed before.
    Installed,
}

impl StepAction {
    fn is_delete(self) -> bool {
        self == Self::Delete
    }
}
