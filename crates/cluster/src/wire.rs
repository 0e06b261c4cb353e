//! What is decoded of an object: its metadata without annotations and managed fields, or the whole.

use std::collections::BTreeMap;

use billhook_objects::{GroupKind, Uid};
use billhook_plan::{Observed, Owner};
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, Error as _, IgnoredAny},
};
use serde_json::value::RawValue;

/// The metadata of a single object (Kubernetes API concepts, "metadata-only fetches").
pub(crate) const META: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// The metadata of a list of objects.
pub(crate) const META_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// Whole objects.
pub(crate) const JSON: &str = "application/json";

/// What a list or watch is decoded into.
pub(crate) trait Shape: DeserializeOwned + Send + 'static {
    /// What is asked for in a list.
    const LIST: &'static str;
    /// What is asked for in a single read and in a watch.
    const ITEM: &'static str;
    /// Whether the caller relies on being told that an object is gone, and not merely out of a selector's sight.
    const TELLS_GONE: bool;
    /// The metadata.
    fn meta(&self) -> &Observed;

    /// Who the object is, and in which version.
    fn id(&self) -> Id<'_> {
        let meta = self.meta();
        Id {
            namespace: meta.namespace.as_deref(),
            name: &meta.name,
            uid: &meta.uid,
            resource_version: &meta.resource_version,
        }
    }
}

/// Who an object is, and in which version.
pub(crate) struct Id<'a> {
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a Uid,
    pub(crate) resource_version: &'a str,
}

/// The metadata that the engine needs.
#[derive(Debug, Deserialize)]
#[serde(from = "Object")]
pub(crate) struct Meta(pub(crate) Observed);

impl Shape for Meta {
    const LIST: &'static str = META_LIST;
    const ITEM: &'static str = META;
    const TELLS_GONE: bool = true;

    fn meta(&self) -> &Observed {
        &self.0
    }
}

/// A whole object, decoded into what the caller needs of it. Where that fails its metadata still says which one it is,
/// and the other objects of a list are read.
#[derive(Debug)]
pub(crate) struct Full<T> {
    pub(crate) meta: Observed,
    pub(crate) value: Result<T, serde_json::Error>,
}

impl<T: DeserializeOwned + Send + 'static> Shape for Full<T> {
    const LIST: &'static str = JSON;
    const ITEM: &'static str = JSON;
    const TELLS_GONE: bool = false;

    fn meta(&self) -> &Observed {
        &self.meta
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for Full<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let Meta(meta) = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self { meta, value: serde_json::from_str(raw.get()) })
    }
}

/// An object as it comes; serde skips all that is not named here.
#[derive(Deserialize)]
pub(crate) struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: String,
    uid: Uid,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<IgnoredAny>,
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    api_version: String,
    kind: String,
    uid: Uid,
}

impl From<OwnerReference> for Owner {
    fn from(reference: OwnerReference) -> Self {
        let group = reference.api_version.split_once('/').map_or("", |(group, _)| group);
        Self { kind: GroupKind::new(group, reference.kind), uid: reference.uid }
    }
}

impl From<Object> for Meta {
    fn from(object: Object) -> Self {
        let meta = object.metadata;
        Self(Observed {
            namespace: meta.namespace.filter(|namespace| !namespace.is_empty()),
            name: meta.name,
            uid: meta.uid,
            resource_version: meta.resource_version.unwrap_or_default(),
            labels: meta.labels.unwrap_or_default(),
            finalizers: meta.finalizers.unwrap_or_default(),
            deleting: meta.deletion_timestamp.is_some(),
            owners: meta.owner_references.unwrap_or_default().into_iter().map(Owner::from).collect(),
        })
    }
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de>"))]
pub(crate) struct Page<S> {
    #[serde(default)]
    pub(crate) metadata: PageMeta,
    #[serde(default = "Vec::new", deserialize_with = "null_is_empty")]
    pub(crate) items: Vec<S>,
}

/// The metadata of a page.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageMeta {
    pub(crate) resource_version: Option<String>,
    #[serde(rename = "continue")]
    pub(crate) next: Option<String>,
    pub(crate) remaining_item_count: Option<u64>,
}

fn null_is_empty<'de, S: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<S>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
