//! The one policy that every dialect compiles to.

use serde::{Deserialize, Serialize};

use crate::{GoDuration, ResourceSelector};

/// What is deleted, in which order and how; and, where the user says so, in which order it is deployed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The groups of a deletion, in order.
    pub deletion: Vec<DeletionGroup>,
    /// The groups by which an update prunes what the new version lacks, in order.
    pub during_update: Vec<DeletionGroup>,
    /// The groups of a deployment, in order; empty for the default order of classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deployment: Vec<DeploymentGroup>,
}

/// The default of the Landscaper documents: namespaced objects, then cluster-scoped ones, then CRDs.
impl Default for Policy {
    fn default() -> Self {
        Self { deletion: DeletionGroup::defaults(), during_update: DeletionGroup::defaults(), deployment: Vec::new() }
    }
}

/// Objects that are deleted together; the next group starts only when this one is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeletionGroup {
    /// How the group is called in plans and output, such as `namespaced-resources` or `configmaps, secrets`.
    pub title: String,
    /// Where it stands in the policy, such as `deletionGroups[1]`; empty for a group that a default added.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Which objects belong to it.
    pub members: Members,
    /// Objects of these selectors are not members, whatever `members` says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<ResourceSelector>,
    /// The declared removal of finalizers, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<Force>,
    /// How dependents are treated; the call's own choice where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub propagation: Option<Propagation>,
    /// How long this group may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
    /// Another cluster in which the group is deleted, by the name the caller gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
}

impl DeletionGroup {
    /// A group of these members with no settings of its own.
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
        }
    }

    /// The three default groups, in the order of deletion.
    pub fn defaults() -> Vec<Self> {
        [ResourceClass::Namespaced, ResourceClass::ClusterScoped, ResourceClass::Crds]
            .map(|class| Self::new(class.as_str(), Members::Class(class)))
            .to_vec()
    }
}

/// Which objects belong to a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Members {
    /// A predefined class of the release's objects.
    Class(ResourceClass),
    /// The objects that any of the selectors matches.
    Resources(Vec<ResourceSelector>),
}

/// The predefined resource groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ResourceClass {
    /// Objects in a namespace.
    #[serde(rename = "namespaced-resources")]
    Namespaced,
    /// Objects outside namespaces, CRDs excepted.
    #[serde(rename = "cluster-scoped-resources")]
    ClusterScoped,
    /// CustomResourceDefinitions.
    #[serde(rename = "crds")]
    Crds,
    /// Nothing.
    #[serde(rename = "empty")]
    Empty,
}

impl ResourceClass {
    /// The name in the documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespaced => "namespaced-resources",
            Self::ClusterScoped => "cluster-scoped-resources",
            Self::Crds => "crds",
            Self::Empty => "empty",
        }
    }
}

/// The force stage of a group: finalizers are removed from objects that already carry a `deletionTimestamp`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Force {
    /// How long the deletion is graceful before the stage begins; at once, as the documents have it, when zero.
    #[serde(default)]
    pub after: GoDuration,
    /// The finalizers that may be removed; all of them when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
}

/// The `propagationPolicy` of a DELETE request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Propagation {
    /// The owner goes first, the garbage collector deletes its dependents.
    #[default]
    Background,
    /// Dependents that block their owner go first.
    Foreground,
    /// Dependents stay.
    Orphan,
}

/// Objects that are deployed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentGroup {
    /// How the group is called in plans and output.
    pub title: String,
    /// Where it stands in the policy; empty for a default group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Which objects belong to it.
    pub members: Members,
    /// Objects of these selectors are not members.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<ResourceSelector>,
    /// When the next group may start.
    #[serde(default)]
    pub wait_for: WaitFor,
    /// How long this group may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<GoDuration>,
}

/// When a deployment group is done. CRDs are always Established before anything follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WaitFor {
    /// The objects exist.
    #[default]
    Exists,
    /// The objects are ready.
    Ready,
}

/// How an object that exists is brought to what its manifest says.
///
/// All but the first are Landscaper's (`UpdateStrategy` in gardener/landscaper `apis/deployer/manifest/v1alpha2`); an
/// object that does not exist is created whatever the strategy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateStrategy {
    /// Server-side apply: what the manifest says is set, what it said before is removed, all else stays.
    #[default]
    ServerSide,
    /// The object is replaced (GET, then PUT), immutable fields that the manifest leaves open carried over.
    Update,
    /// The difference between the object and the manifest is sent as a JSON merge patch.
    Patch,
    /// Only fields that the object lacks are set.
    Merge,
    /// Fields that the manifest sets to something are set; all else stays.
    MergeOverwrite,
}
