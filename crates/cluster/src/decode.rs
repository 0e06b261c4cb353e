//! Decoding of objects and lists: the metadata without managed fields, or whole objects.

use billhook_objects::{GroupKind, Labels, Uid};
use billhook_plan::{Annotations, Observed, Owner};
use serde::{
    Deserialize, Deserializer,
    de::IgnoredAny,
    de::{DeserializeOwned, Error as _},
};
use serde_json::value::RawValue;

use crate::managed::{ManagedEntry, tracked};

/// Requests the metadata of a single object (Kubernetes API concepts, "Metadata-only fetches").
pub(crate) const META: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Requests the metadata of a list of objects.
pub(crate) const META_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";
/// Requests whole objects.
pub(crate) const JSON: &str = "application/json";

/// A type that the objects of a list or watch are decoded into.
pub(crate) trait Shape: DeserializeOwned + Send + 'static {
    /// The `Accept` header of a list.
    const LIST: &'static str;
    /// The `Accept` header of a single read or a watch.
    const ITEM: &'static str;
    /// Whether the caller has to know that an object is gone, and not merely no longer selected.
    const PROVES_GONE: bool;
    /// Returns the metadata.
    fn meta(&self) -> &Observed;

    /// Returns the identity and version of the object.
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

/// The identity and version of an object.
pub(crate) struct Id<'a> {
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a Uid,
    pub(crate) resource_version: &'a str,
}

/// The metadata of an object, as far as it is used.
#[derive(Debug, Deserialize)]
#[serde(from = "Object<IgnoredAny>")]
pub(crate) struct Meta(pub(crate) Observed);

impl Shape for Meta {
    const LIST: &'static str = META_LIST;
    const ITEM: &'static str = META;
    const PROVES_GONE: bool = true;

    fn meta(&self) -> &Observed {
        &self.0
    }
}

impl From<Meta> for Observed {
    fn from(Meta(observed): Meta) -> Self {
        observed
    }
}

/// The metadata of an object, with what an apply compares.
#[derive(Debug, Deserialize)]
#[serde(from = "Object<Vec<ManagedEntry>>")]
pub(crate) struct TrackedMeta(Observed);

impl Shape for TrackedMeta {
    const LIST: &'static str = META_LIST;
    const ITEM: &'static str = META;
    const PROVES_GONE: bool = true;

    fn meta(&self) -> &Observed {
        &self.0
    }
}

impl From<TrackedMeta> for Observed {
    fn from(TrackedMeta(observed): TrackedMeta) -> Self {
        observed
    }
}

/// A whole object, decoded into the caller's type, with what an apply compares.
#[derive(Debug)]
pub(crate) struct TrackedFull<T> {
    pub(crate) meta: Observed,
    pub(crate) value: Result<T, serde_json::Error>,
}

impl<T: DeserializeOwned + Send + 'static> Shape for TrackedFull<T> {
    const LIST: &'static str = JSON;
    const ITEM: &'static str = JSON;
    const PROVES_GONE: bool = false;

    fn meta(&self) -> &Observed {
        &self.meta
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for TrackedFull<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let TrackedMeta(meta) = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self { meta, value: serde_json::from_str(raw.get()) })
    }
}

/// The metadata of an object, with the owners of its fields.
#[derive(Debug, Deserialize)]
#[serde(from = "Object<Vec<ManagedEntry>>")]
pub(crate) struct Managed {
    pub(crate) meta: Observed,
    pub(crate) entries: Vec<ManagedEntry>,
}

impl Shape for Managed {
    const LIST: &'static str = META_LIST;
    const ITEM: &'static str = META;
    const PROVES_GONE: bool = true;

    fn meta(&self) -> &Observed {
        &self.meta
    }
}

/// A whole object or its complete metadata, decoded into the caller's type. If that fails, its metadata still identifies
/// it, and the other objects of a list are decoded.
#[derive(Debug)]
pub(crate) struct Full<T, const WHOLE: bool = true> {
    pub(crate) meta: Observed,
    pub(crate) value: Result<T, serde_json::Error>,
}

impl<T: DeserializeOwned + Send + 'static, const WHOLE: bool> Shape for Full<T, WHOLE> {
    const LIST: &'static str = if WHOLE { JSON } else { META_LIST };
    const ITEM: &'static str = if WHOLE { JSON } else { META };
    const PROVES_GONE: bool = false;

    fn meta(&self) -> &Observed {
        &self.meta
    }
}

impl<'de, T: DeserializeOwned, const WHOLE: bool> Deserialize<'de> for Full<T, WHOLE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        let Meta(meta) = serde_json::from_str(raw.get()).map_err(D::Error::custom)?;
        Ok(Self { meta, value: serde_json::from_str(raw.get()) })
    }
}

/// An object as the server sends it; serde skips all fields that are not named here. `M` is how `managedFields` are read.
#[derive(Deserialize)]
pub(crate) struct Object<M> {
    metadata: Metadata<M>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<M> {
    namespace: Option<String>,
    name: String,
    uid: Uid,
    resource_version: Option<String>,
    labels: Option<Labels>,
    creation_timestamp: Option<Time>,
    finalizers: Option<Vec<String>>,
    deletion_timestamp: Option<Time>,
    owner_references: Option<Vec<OwnerReference>>,
    annotations: Option<Annotations>,
    generation: Option<i64>,
    managed_fields: Option<M>,
}

/// A timestamp, in seconds since 1970; none if it cannot be read.
#[derive(Deserialize)]
#[serde(from = "String")]
pub(crate) struct Time {
    pub(crate) seconds: Option<i64>,
}

impl From<String> for Time {
    fn from(text: String) -> Self {
        Self { seconds: text.parse().ok().map(jiff::Timestamp::as_second) }
    }
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

impl<M> Metadata<M> {
    fn observed(self) -> Observed {
        Observed {
            namespace: self.namespace.filter(|namespace| !namespace.is_empty()),
            name: self.name,
            uid: self.uid,
            resource_version: self.resource_version.unwrap_or_default(),
            labels: self.labels.unwrap_or_default(),
            created_at: self.creation_timestamp.and_then(|time| time.seconds),
            finalizers: self.finalizers.unwrap_or_default(),
            deleting: self.deletion_timestamp.is_some(),
            deleted_at: self.deletion_timestamp.and_then(|time| time.seconds),
            owners: self.owner_references.unwrap_or_default().into_iter().map(Owner::from).collect(),
            annotations: self.annotations.unwrap_or_default(),
            tracked: None,
            ready: false,
        }
    }
}

impl From<Object<IgnoredAny>> for Meta {
    fn from(object: Object<IgnoredAny>) -> Self {
        Self(object.metadata.observed())
    }
}

impl From<Object<Vec<ManagedEntry>>> for TrackedMeta {
    fn from(object: Object<Vec<ManagedEntry>>) -> Self {
        let generation = object.metadata.generation;
        let Managed { meta, entries } = object.into();
        Self(Observed { tracked: Some(tracked(generation, &entries)), ..meta })
    }
}

impl From<Object<Vec<ManagedEntry>>> for Managed {
    fn from(mut object: Object<Vec<ManagedEntry>>) -> Self {
        let entries = object.metadata.managed_fields.take().unwrap_or_default();
        Self { meta: object.metadata.observed(), entries }
    }
}

/// The answer to a write or DELETE, as far as it is used. A `Status` has empty metadata.
#[derive(Deserialize)]
pub(crate) struct Written<M = IgnoredAny> {
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) metadata: WrittenMeta<M>,
}

/// The metadata of an object that was written.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WrittenMeta<M> {
    pub(crate) uid: Option<Uid>,
    pub(crate) resource_version: Option<String>,
    pub(crate) finalizers: Option<Vec<String>>,
    pub(crate) annotations: Option<Annotations>,
    pub(crate) deletion_timestamp: Option<Time>,
    pub(crate) generation: Option<i64>,
    pub(crate) managed_fields: Option<M>,
}

/// A page of a list.
#[derive(Deserialize)]
#[serde(bound(deserialize = "S: Deserialize<'de>"))]
pub(crate) struct Page<S> {
    #[serde(default)]
    pub(crate) metadata: PageMeta,
    #[serde(default = "Vec::new", deserialize_with = "null_is_empty")]
    pub(crate) items: Vec<S>,
    /// The size of the answer in bytes.
    #[serde(skip)]
    pub(crate) size: usize,
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
