//! Queries to the clusters, and their answers.

use std::collections::BTreeMap;

use billhook_objects::{GroupKind, Labels, ObjectKey, Resource, Uid, wellknown};
use serde::{Deserialize, Serialize};

use crate::Annotations;

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
    /// The namespaces that matter if `namespace` is none, sorted: listed one by one where listing across all is forbidden,
    /// or would return many objects of others. Empty if all matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
}

/// What a query lists, whichever of the objects there it selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListScope {
    /// The name of another cluster; none for the release's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural of the kind.
    pub plural: String,
    /// The namespace; none for a cluster-scoped kind and for all namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

impl Query {
    /// Returns what the query lists.
    pub fn scope(&self) -> ListScope {
        let Resource { kind, plural, .. } = &self.resource;
        ListScope {
            cluster: self.cluster.clone(),
            group: kind.group.clone(),
            plural: plural.clone(),
            namespace: self.namespace.clone(),
        }
    }

    /// Returns whether the query is about a namespace; none is the place of cluster-scoped objects.
    pub fn covers(&self, namespace: Option<&str>) -> bool {
        match (&self.namespace, namespace) {
            (Some(own), _) => namespace == Some(own),
            (None, _) if self.namespaces.is_empty() => true,
            (None, Some(namespace)) => self.namespaces.binary_search_by(|own| own.as_str().cmp(namespace)).is_ok(),
            (None, None) => false,
        }
    }

    /// Returns the same query for one of its [`namespaces`](Self::namespaces) alone.
    #[must_use]
    pub fn within(&self, namespace: &str) -> Self {
        let select = match &self.select {
            Select::Objects(objects) => Select::Names(objects.get(namespace).cloned().unwrap_or_default()),
            select => select.clone(),
        };
        let namespace = Some(namespace.to_owned());
        Self {
            cluster: self.cluster.clone(),
            resource: self.resource.clone(),
            namespace,
            select,
            namespaces: Vec::new(),
        }
    }

    /// Returns the same query for some of its [`namespaces`](Self::namespaces).
    #[must_use]
    pub fn among(&self, namespaces: Vec<String>) -> Self {
        let named = |objects: &BTreeMap<String, Vec<String>>| {
            namespaces.iter().filter_map(|ns| Some((ns.clone(), objects.get(ns)?.clone()))).collect()
        };
        let select = match &self.select {
            Select::Objects(objects) => Select::Objects(named(objects)),
            select => select.clone(),
        };
        Self { cluster: self.cluster.clone(), resource: self.resource.clone(), namespace: None, select, namespaces }
    }
}

/// Which objects of a kind a query selects.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Select {
    /// All of them.
    All,
    /// Those that this `labelSelector` matches.
    Labels(String),
    /// Those of these names (sorted), in the query's namespace. They are read one by one if the others are many.
    Names(Vec<String>),
    /// Those of these names (sorted), in the query's namespace, each by a single read, from which no watch can start.
    Reads(Vec<String>),
    /// Those of these names (sorted) in each of the query's `namespaces`.
    Objects(BTreeMap<String, Vec<String>>),
}

impl Select {
    /// Returns whether it selects an object by its name, if it selects by name.
    pub fn names(&self, namespace: Option<&str>, name: &str) -> Option<bool> {
        let names = match self {
            Self::All | Self::Labels(_) => return None,
            Self::Names(names) | Self::Reads(names) => Some(names),
            Self::Objects(objects) => namespace.and_then(|namespace| objects.get(namespace)),
        };
        Some(names.is_some_and(|names| names.binary_search_by(|known| known.as_str().cmp(name)).is_ok()))
    }

    /// Returns the name of all objects that it selects, if it selects by one name.
    pub fn only_name(&self) -> Option<&str> {
        let mut names: Box<dyn Iterator<Item = &String> + '_> = match self {
            Self::All | Self::Labels(_) => return None,
            Self::Names(names) | Self::Reads(names) => Box::new(names.iter()),
            Self::Objects(objects) => Box::new(objects.values().flatten()),
        };
        let first = names.next()?;
        names.all(|name| name == first).then_some(first.as_str())
    }
}

/// An object as a metadata-only list or watch returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Observed {
    /// The namespace; none for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// Its UID.
    pub uid: Uid,
    /// Its `resourceVersion`.
    pub resource_version: String,
    /// Its labels.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// When it was created, in seconds since 1970 by the server's clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<i64>,
    /// Its finalizers, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Whether it carries a `deletionTimestamp`.
    #[serde(default)]
    pub deleting: bool,
    /// The `deletionTimestamp`, in seconds since 1970 by the server's clock. That of a Pod may be in the future.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<i64>,
    /// Its owners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<Owner>,
    /// Those of its annotations that matter to a plan.
    #[serde(default, skip_serializing_if = "Annotations::is_empty")]
    pub annotations: Annotations,
    /// What an apply compares; none in the lists of other operations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracked: Option<Tracked>,
    /// Whether its status shows that it is ready; false where only metadata was read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ready: bool,
}

/// What an apply compares of an object that it may leave unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tracked {
    /// Its state apart from its status.
    pub fingerprint: Fingerprint,
    /// The field managers of billhook that have applied fields of it: those of releases, and the common one of earlier
    /// versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managers: Vec<String>,
}

/// A digest of an object's state apart from its status: its `generation` and the fields that each manager owns outside the
/// subresource `status`, with the time of billhook's own writes.
///
/// After a server-side apply, the object still matches its manifest as long as this digest is the same: another client
/// that changes a field of ours takes it away from our entry in `managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Wraps a digest.
    pub fn new(digest: [u8; 16]) -> Self {
        Self(digest)
    }
}

/// In hexadecimal.
impl From<Fingerprint> for String {
    fn from(Fingerprint(digest): Fingerprint) -> Self {
        format!("{:032x}", u128::from_be_bytes(digest))
    }
}

impl TryFrom<String> for Fingerprint {
    type Error = std::num::ParseIntError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        u128::from_str_radix(&text, 16).map(|digest| Self(digest.to_be_bytes()))
    }
}

/// An owner of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Owner {
    /// Its kind.
    pub kind: GroupKind,
    /// Its UID.
    pub uid: Uid,
}

impl Observed {
    /// Returns whether it carries the label of the release with this label value.
    pub fn carries(&self, label: &str) -> bool {
        self.labels.get(wellknown::RELEASE_LABEL).is_some_and(|value| value == label)
    }

    /// Returns the identity of the object, which is of this kind.
    pub fn key(&self, kind: &GroupKind) -> ObjectKey {
        ObjectKey { kind: kind.clone(), namespace: self.namespace.clone(), name: self.name.clone() }
    }
}

/// A query and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The query.
    pub query: Query,
    /// The answer.
    pub found: Listed,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listed {
    /// These objects, sorted by namespace and name.
    Items {
        /// Where a watch starts; none if watching is forbidden, so that objects are read one by one.
        resource_version: Option<String>,
        /// The objects.
        items: Vec<Observed>,
    },
    /// The cluster does not serve the kind.
    NotServed,
    /// The cluster rejected or failed the request, for example because of a missing right.
    Failed(String),
}

/// All answers of all clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// One listing for each query, in the order of the queries.
    pub listings: Vec<Listing>,
}
