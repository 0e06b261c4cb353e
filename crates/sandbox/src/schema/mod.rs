//! Structural schemas: what an object may hold, how its lists merge, and what is dropped.
//!
//! One type serves both the kinds of Kubernetes itself and those of CustomResourceDefinitions.

pub(crate) mod builtin;
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

pub(crate) use builtin::builtin;
pub(crate) use crd::of_crd;

/// What a value may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// Anything: nothing is checked and nothing is dropped.
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
    /// The type that an OpenAPI schema says.
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

/// How two versions of a list are merged: `x-kubernetes-list-type`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// As a whole.
    #[default]
    Atomic,
    /// Scalars, each of which has its own owner.
    Set,
    /// Objects that these fields tell apart: `x-kubernetes-list-map-keys`.
    Map(Vec<String>),
}

/// How a strategic merge patch treats a list: `x-kubernetes-patch-strategy` and `-merge-key`.
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
    /// What is more special than the type, `int32`, `byte`, `date-time`; `quantity` for the type of that name.
    pub(crate) format: Option<Cow<'static, str>>,
    /// Of an object of a kind of Kubernetes, how its Go type is called: `v1.PodSpec`. Such objects, with all in them,
    /// are decoded into their types, which is another thing than holding a value against a schema.
    pub(crate) go: Option<Arc<str>>,
    /// It stands for a type of Kubernetes that holds itself: its definition, which is looked up where it is met.
    pub(crate) recursive: Option<Arc<str>>,
    pub(crate) nullable: bool,
    /// Known fields of an object.
    pub(crate) properties: BTreeMap<String, Arc<Schema>>,
    /// The schema of all other fields: `additionalProperties`.
    pub(crate) additional: Option<Arc<Schema>>,
    /// Other fields than the known are refused: `additionalProperties: false`.
    pub(crate) closed: bool,
    /// Fields that are not known are kept: `x-kubernetes-preserve-unknown-fields`.
    pub(crate) preserve_unknown: bool,
    /// It holds an object with `apiVersion`, `kind` and `metadata`: `x-kubernetes-embedded-resource`.
    pub(crate) embedded: bool,
    pub(crate) required: Vec<String>,
    /// The schema of a list's items.
    pub(crate) items: Option<Arc<Schema>>,
    pub(crate) list: ListType,
    /// A map or object that is owned as a whole: `x-kubernetes-map-type: atomic`.
    pub(crate) atomic: bool,
    pub(crate) patch: Option<PatchStrategy>,
    pub(crate) default: Option<Value>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) limits: Limits,
    /// `allOf`, `anyOf`, `oneOf` and `not`.
    pub(crate) junctors: Option<Box<Junctors>>,
    /// As it was written, for OpenAPI; none for kinds of Kubernetes itself.
    pub(crate) source: Option<Value>,
}

/// What other schemas have to say of a value; these only check, and know no fields of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Junctors {
    pub(crate) all: Vec<Schema>,
    pub(crate) any: Vec<Schema>,
    pub(crate) one: Vec<Schema>,
    pub(crate) not: Option<Schema>,
}

/// Limits of numbers, texts and lists.
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
    /// Anything.
    pub(crate) fn any() -> Arc<Self> {
        Arc::new(Self { preserve_unknown: true, ..Self::default() })
    }

    /// The schema of a field of an object; none where nothing is known of it.
    pub(crate) fn field(&self, name: &str) -> Option<&Arc<Schema>> {
        self.properties.get(name).or(self.additional.as_ref())
    }
}
