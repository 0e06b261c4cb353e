//! The address of a kind in requests.

use serde::{Deserialize, Serialize};

use crate::{ApiVersion, GroupKind, ObjectKey, ResourceType, Scope, wellknown};

/// How to address objects of one kind.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Group and kind.
    #[serde(flatten)]
    pub kind: GroupKind,
    /// The version in the URL.
    pub version: String,
    /// The plural in the URL.
    pub plural: String,
    /// Whether the URL has a namespace.
    pub namespaced: bool,
}

impl Resource {
    /// Returns the resource of a kind in a given version, or in the preferred one if that version is not served.
    pub fn of(resource: &ResourceType, version: Option<&str>) -> Self {
        Self {
            kind: resource.kind.clone(),
            version: resource.api_version(version).version().to_owned(),
            plural: resource.plural.clone(),
            namespaced: resource.scope == Scope::Namespaced,
        }
    }

    /// Returns the CRD that defines the kind, if it is a custom one.
    pub fn crd(&self) -> ObjectKey {
        wellknown::crd_of(&self.plural, &self.kind)
    }

    /// Returns the resource of Namespaces.
    pub fn namespaces() -> Self {
        Self { kind: wellknown::namespace(), version: "v1".into(), plural: "namespaces".into(), namespaced: false }
    }

    /// Returns the resource of Secrets.
    pub fn secrets() -> Self {
        let kind = GroupKind::new("", "Secret");
        Self { kind, version: "v1".into(), plural: "secrets".into(), namespaced: true }
    }

    /// Returns the `apiVersion`.
    pub fn api_version(&self) -> ApiVersion {
        ApiVersion::new(&self.kind.group, &self.version)
    }
}
