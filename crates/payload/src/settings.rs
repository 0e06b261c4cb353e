//! What a cluster chooses of a payload.

use std::collections::BTreeSet;

use billhook_objects::ObjectKey;

use crate::annotations::INCLUDE_PREFIX;

/// The choices by which the manifests of a payload count or are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The profile of the cluster.
    pub profile: String,
    /// The feature set of the cluster.
    pub feature_set: String,
    /// The feature gates that are on.
    pub feature_gates: BTreeSet<String>,
    /// The enabled capabilities; `None` for all that the payload names.
    pub capabilities: Option<BTreeSet<String>>,
    /// The identifier of clusters that some manifests exclude.
    pub exclude: Option<String>,
    /// The objects that another manager is responsible for.
    pub overrides: Vec<Override>,
}

/// The profile of a cluster unless another is chosen, as in the reference.
pub const DEFAULT_PROFILE: &str = "self-managed-high-availability";

/// The feature set of a cluster unless another is chosen. The API of OpenShift calls it the empty text.
pub const DEFAULT_FEATURE_SET: &str = "Default";

/// The feature sets that exist: `AllFixedFeatureSets` and `CustomNoUpgrade` of openshift/api.
pub const FEATURE_SETS: [&str; 5] =
    ["CustomNoUpgrade", DEFAULT_FEATURE_SET, "DevPreviewNoUpgrade", "OKD", "TechPreviewNoUpgrade"];

impl Default for Settings {
    fn default() -> Self {
        Self {
            profile: DEFAULT_PROFILE.to_owned(),
            feature_set: DEFAULT_FEATURE_SET.to_owned(),
            feature_gates: BTreeSet::new(),
            capabilities: None,
            exclude: None,
            overrides: Vec::new(),
        }
    }
}

impl Settings {
    /// Returns the annotation that includes a manifest in the profile.
    pub fn include_annotation(&self) -> String {
        format!("{INCLUDE_PREFIX}{}", self.profile)
    }

    /// Returns the feature set as annotations spell it.
    pub fn feature_set(&self) -> &str {
        if self.feature_set.is_empty() { DEFAULT_FEATURE_SET } else { &self.feature_set }
    }
}

/// An object that is left to another manager, `KIND/NAMESPACE/NAME` or `KIND/NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// The kind as discovery spells it.
    pub kind: String,
    /// The API group; `None` for every group.
    pub group: Option<String>,
    /// The namespace; it is ignored for objects without one, as in the reference.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Override {
    /// Parses `KIND/NAMESPACE/NAME`, or `KIND/NAME` for a cluster-scoped object. `KIND` may be `Kind.group`.
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, place) = text.split_once('/')?;
        let (namespace, name) = place.split_once('/').unwrap_or(("", place));
        let (kind, group) = kind.split_once('.').map_or((kind, None), |(kind, group)| (kind, Some(group.to_owned())));
        let is_complete = !kind.is_empty() && !name.is_empty() && !name.contains('/');
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        is_complete.then_some(Self { kind, group, namespace, name })
    }

    /// Returns whether this is the object.
    pub fn is(&self, object: &ObjectKey) -> bool {
        self.kind == object.kind.kind
            && self.group.as_ref().is_none_or(|group| *group == object.kind.group)
            && self.name == object.name
            && object.namespace.as_ref().is_none_or(|namespace| *namespace == self.namespace)
    }
}
