//! What the clusters answered: the queries a plan needs, and what they found.

use std::collections::BTreeMap;

use billhook_objects::{ApiVersion, GroupKind, ObjectKey, ResourceType, Scope, Uid, wellknown};
use serde::{Deserialize, Serialize};

/// How to talk to objects of one kind.
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
    /// How to talk to a kind in a given version, or in its preferred one where that is not served.
    pub fn of(resource: &ResourceType, version: Option<&str>) -> Self {
        Self {
            kind: resource.kind.clone(),
            version: resource.api_version(version).version().to_owned(),
            plural: resource.plural.clone(),
            namespaced: resource.scope == Scope::Namespaced,
        }
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

    /// The `apiVersion`.
    pub fn api_version(&self) -> ApiVersion {
        ApiVersion::new(&self.kind.group, &self.version)
    }
}

/// One list and, later, one watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// The name of another cluster (a `targetName`); none for the release's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The kind.
    pub resource: Resource,
    /// The namespace; none for a cluster-scoped kind and for all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Which objects.
    pub select: Select,
    /// The namespaces that matter where `namespace` is none: asked one by one where listing across all is forbidden.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
}

/// Which objects of a kind a query is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Select {
    /// All of them.
    All,
    /// Those that this `labelSelector` selects.
    Labels(String),
    /// Those of these names (sorted), in the query's namespace: single reads where the others are many.
    Names(Vec<String>),
}

/// One object as a metadata-only list or watch shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The namespace; none for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// Which object of that name.
    pub uid: Uid,
    /// Its `resourceVersion`.
    pub resource_version: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Its finalizers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Whether it carries a `deletionTimestamp`.
    #[serde(default)]
    pub deleting: bool,
    /// Its owners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
}

/// An owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Its kind.
    pub kind: GroupKind,
    /// Which object.
    pub uid: Uid,
}

impl Observed {
    /// Its identity, given its kind.
    pub fn key(&self, kind: &GroupKind) -> ObjectKey {
        ObjectKey { kind: kind.clone(), namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// The answer to one query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// What was asked.
    pub query: Query,
    /// What was answered.
    pub found: Listed,
}

/// What a query found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// These objects, sorted by namespace and name.
    Items {
        /// Where a watch goes on from; none where watching is forbidden, so that single reads take its place.
        resource_version: Option<String>,
        /// The objects.
        items: Vec<Observed>,
    },
    /// The cluster serves no such kind (any more).
    NotServed,
    /// The cluster did not answer this: a missing right, a conversion webhook without a backend.
    Failed(String),
}

/// All answers, of all clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// One listing a query, in the order of the queries.
    pub listings: Vec<Listing>,
}
