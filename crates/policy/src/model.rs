//! The policy that every dialect compiles to.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{GoDuration, ResourceSelector};

/// Which objects are deleted, in which order and how, and optionally the order in which they are deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The groups of a deletion, in order.
    pub deletion: Vec<DeletionGroup>,
    /// The groups in which an update prunes objects that the new version no longer contains, in order.
    pub during_update: Vec<DeletionGroup>,
    /// The groups of a deployment, in order; empty for the default order of classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployment: Vec<DeploymentGroup>,
}

/// Landscaper's default: namespaced objects, then cluster-scoped objects, then CRDs.
impl Default for Policy {
    fn default() -> Self {
        Self { deletion: DeletionGroup::defaults(), during_update: DeletionGroup::defaults(), deployment: Vec::new() }
    }
}

/// Objects that are deleted together; the next group starts only when all of them are gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionGroup {
    /// The name of the group in plans and output, such as `namespaced-resources` or `configmaps, secrets`.
    pub title: String,
    /// The path of the group in the policy, such as `deletionGroups[1]`; empty for a default group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The objects that belong to the group.
    pub members: Members,
    /// The objects that do not belong to the group even if they match `members`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<ResourceSelector>,
    /// The force stage, if declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<Force>,
    /// How dependents are treated; `None` for the choice of the whole operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Propagation>,
    /// The time limit of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// The name of another cluster in which the group is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The indexes of the groups that must be gone before this one starts; `None` for all groups before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<usize>>,
    /// The grace period of the requests, for kinds that have one, such as Pods; `None` for that of each object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<GoDuration>,
    /// How long after its start the group still includes new objects; later ones remain. `None` for as long as it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_objects: Option<GoDuration>,
    /// How long after its `deletionTimestamp` a VolumeSnapshotContent is annotated, so that the CSI sidecar deletes its
    /// snapshot; `None` for never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release_snapshots: Option<GoDuration>,
    /// A JSON merge patch that each object gets before it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_delete: Option<Value>,
    /// The pauses after which a rejected request is repeated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retries: Vec<GoDuration>,
}

impl DeletionGroup {
    /// Creates a group without settings.
    pub fn new(title: impl Into<String>, members: Members) -> Self {
        Self {
            title: title.into(),
            path: String::new(),
            members,
            excluded: Vec::new(),
            force: None,
            propagation: None,
            timeout: None,
            target: None,
            after: None,
            grace_period: None,
            new_objects: None,
            release_snapshots: None,
            before_delete: None,
            retries: Vec::new(),
        }
    }

    /// Returns the three default groups, in the order of deletion.
    pub fn defaults() -> Vec<Self> {
        [ResourceClass::Namespaced, ResourceClass::ClusterScoped, ResourceClass::Crds]
            .map(|class| Self::new(class.as_str(), Members::Class(class)))
            .to_vec()
    }
}

/// The objects that belong to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Members {
    /// The release's objects of a predefined class.
    Class(ResourceClass),
    /// The objects that match any of the selectors.
    Resources(Vec<ResourceSelector>),
}

/// The predefined resource groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceClass {
    /// Objects in a namespace.
    #[serde(rename = "namespaced-resources")]
    Namespaced,
    /// Cluster-scoped objects other than CRDs.
    #[serde(rename = "cluster-scoped-resources")]
    ClusterScoped,
    /// CustomResourceDefinitions.
    #[serde(rename = "crds")]
    Crds,
    /// No objects.
    #[serde(rename = "empty")]
    Empty,
}

impl ResourceClass {
    /// Returns the name in a policy.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespaced => "namespaced-resources",
            Self::ClusterScoped => "cluster-scoped-resources",
            Self::Crds => "crds",
            Self::Empty => "empty",
        }
    }
}

/// The force stage of a group, for objects that already have a `deletionTimestamp`: it removes their finalizers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Force {
    /// How long after the `deletionTimestamp` the stage starts; zero, Landscaper's behaviour, starts it at once.
    #[serde(default)]
    pub after: GoDuration,
    /// The finalizers that may be removed; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Whether the stage also deletes Pods with a grace period of zero, so that nothing waits for their nodes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub end_grace_period: bool,
}

/// The `propagationPolicy` of a DELETE request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Propagation {
    /// The owner is deleted first; the garbage collector then deletes its dependents.
    #[default]
    Background,
    /// Dependents that block their owner are deleted before it.
    Foreground,
    /// Dependents remain.
    Orphan,
}

/// Objects that are deployed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentGroup {
    /// The name of the group in plans and output.
    pub title: String,
    /// The path of the group in the policy; empty for a default group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// The objects that belong to the group.
    pub members: Members,
    /// The objects that do not belong to the group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<ResourceSelector>,
    /// When the next group may start.
    #[serde(default)]
    pub wait_for: WaitFor,
    /// The time limit of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

/// The condition under which a deployment group is done. CRDs must always be Established before the next group starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitFor {
    /// The objects exist.
    #[default]
    Exists,
    /// The objects are ready.
    Ready,
}

/// How an existing object is updated to its manifest.
///
/// All but the first are Landscaper's (`UpdateStrategy` in gardener/landscaper `apis/deployer/manifest/v1alpha2`). An
/// object that does not exist is created with every strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateStrategy {
    /// Server-side apply: sets the fields of the manifest, removes those of its last version, and keeps all others.
    #[default]
    ServerSide,
    /// Replaces the object (GET, then PUT), and keeps immutable fields that the manifest does not set.
    Update,
    /// Sends the difference between the object and the manifest as a JSON merge patch.
    Patch,
    /// Sets only the fields that the object does not have.
    Merge,
    /// Sets the fields that the manifest sets to a value, and keeps all others.
    MergeOverwrite,
}
