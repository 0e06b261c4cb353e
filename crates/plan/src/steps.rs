//! Steps that run one after another, and what was found of the objects that manifests request to delete.

use billhook_objects::{ObjectKey, Uid};
use billhook_policy::{GoDuration, Propagation};
use serde::{Deserialize, Serialize};

use crate::{ApplyTask, Resource};

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
    /// How dependents are treated.
    pub propagation: Propagation,
}

impl Step {
    /// Returns the object.
    pub fn object(&self) -> &ObjectKey {
        match self {
            Self::Apply(task) => &task.object,
            Self::Delete(step) => &step.object,
        }
    }

    /// Returns how to address the object.
    pub fn resource(&self) -> &Resource {
        match self {
            Self::Apply(task) => &task.resource,
            Self::Delete(step) => &step.resource,
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

/// An object whose manifest requests its deletion.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestedDeletion {
    /// The object.
    pub object: ObjectKey,
    /// What was found of it.
    #[serde(flatten)]
    pub state: DeletionState,
    /// Whether it is in the record of the release. If not, it was never applied, or its deletion is verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recorded: bool,
    /// When an earlier operation verified its deletion, in RFC 3339 format. If it exists, it has reappeared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_before: Option<String>,
}

/// What was found of an object to delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case", rename_all_fields = "camelCase")]
pub enum DeletionState {
    /// It does not exist, or the cluster does not serve its kind.
    NotFound,
    /// It is being deleted already: no request is sent.
    Deleting {
        /// Its `deletionTimestamp`, in seconds since 1970 by the server's clock.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deleted_at: Option<i64>,
    },
    /// A step of the plan requests its deletion.
    ToDelete,
    /// It exists, and the plan does not delete it, because the graph of tasks deletes nothing.
    Left,
}
