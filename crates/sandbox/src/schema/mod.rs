//! Structural schemas: validation, defaults, pruning, and how lists merge.
//!
//! One type serves both Kubernetes' own kinds and those of CustomResourceDefinitions.

mod builtin;
mod crd;
mod decode;
mod format;
mod path;
mod pattern;
mod prune;
mod structural;
mod validate;

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde_json::Value;

use crate::object::texts;

pub(crate) use builtin::builtin;
pub(crate) use crd::of_crd;

/// The type of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// Any value, which is neither checked nor pruned.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
    /// `x-kubernetes-int-or-string`.
    IntOrString,
}

impl Type {
    /// Returns the type in an OpenAPI schema.
    fn of(source: &Value) -> Self {
        match source["type"].as_str() {
            _ if source["x-kubernetes-int-or-string"] == true => Self::IntOrString,
            Some("object") => Self::Object,
            Some("array") => Self::Array,
            Some("string") => Self::String,
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("boolean") => Self::Boolean,
            _ => Self::Any,
        }
    }
}

/// How lists are merged: `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is replaced as a whole.
    #[default]
    Atomic,
    /// The list contains scalars with separate owners.
    Set,
    /// The list contains objects that these fields identify: `x-kubernetes-list-map-keys`.
    Map(Vec<String>),
}

impl ListType {
    /// Returns the type in an OpenAPI schema.
    fn of(source: &Value) -> Self {
        match source["x-kubernetes-list-type"].as_str() {
            Some("set") => Self::Set,
            Some("map") => Self::Map(texts(&source["x-kubernetes-list-map-keys"])),
            _ => Self::Atomic,
        }
    }
}

/// How strategic merge patches treat a list: `x-kubernetes-patch-strategy` and `-merge-key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatchStrategy {
    /// Scalars are added.
    Merge,
    /// Objects are merged by this field.
    MergeKey(String),
}

/// The schema of a value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    pub(crate) types: Type,
    /// The format, like `int32`, `byte` or `date-time`; `quantity` for the type of that name.
    pub(crate) format: Option<Cow<'static, str>>,
    /// The Go type of an object of a Kubernetes kind: `v1.PodSpec`. Such objects are decoded rather than validated
    /// against a schema.
    pub(crate) go: Option<Arc<str>>,
    /// The name of the definition to look up, for a type within itself.
    pub(crate) recursive: Option<Arc<str>>,
    pub(crate) nullable: bool,
    /// The fields of an object.
    pub(crate) properties: BTreeMap<String, Arc<Schema>>,
    /// The schema of other fields: `additionalProperties`.
    pub(crate) additional: Option<Arc<Schema>>,
    /// Whether other fields are rejected: `additionalProperties: false`.
    pub(crate) closed: bool,
    /// Whether unknown fields are kept: `x-kubernetes-preserve-unknown-fields`.
    pub(crate) preserve_unknown: bool,
    /// Whether the value is an object with `apiVersion`, `kind` and `metadata`: `x-kubernetes-embedded-resource`.
    pub(crate) embedded: bool,
    pub(crate) required: Vec<String>,
    /// The schema of the items of a list.
    pub(crate) items: Option<Arc<Schema>>,
    pub(crate) list: ListType,
    /// Whether a map or object is owned as a whole: `x-kubernetes-map-type: atomic`.
    pub(crate) atomic: bool,
    pub(crate) patch: Option<PatchStrategy>,
    pub(crate) default: Option<Value>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) limits: Limits,
    /// `allOf`, `anyOf`, `oneOf` and `not`.
    pub(crate) junctors: Option<Box<Junctors>>,
    /// The original schema, for OpenAPI; none for Kubernetes' own kinds.
    pub(crate) source: Option<Value>,
}

/// Schemas that only validate and declare no fields.
#[derive(Clone, Debug, Default)]
pub(crate) struct Junctors {
    pub(crate) all: Vec<Schema>,
    pub(crate) any: Vec<Schema>,
    pub(crate) one: Vec<Schema>,
    pub(crate) not: Option<Schema>,
}

/// The limits of numbers, strings, lists and objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits {
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) pattern: Option<String>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
}

impl Schema {
    /// Returns a schema that accepts anything.
    pub(crate) fn any() -> Arc<Self> {
        Arc::new(Self { preserve_unknown: true, ..Self::default() })
    }

    /// Returns the schema of a field of an object, if it is known.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(self.additional.as_ref())
    }
}
