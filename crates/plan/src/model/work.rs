//! The work of the nodes of a plan: what they apply, delete and patch, object by object.

use std::collections::BTreeMap;

use billhook_objects::{ApiVersion, ObjectKey, Uid};
use billhook_policy::{Force, GoDuration, Propagation, UpdateStrategy};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::collection::{Collection, QueryId};
use crate::{Annotations, Health, Resource, UnservedKind};

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
