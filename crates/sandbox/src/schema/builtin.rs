//! Schemas of Kubernetes' own kinds, from its OpenAPI documents.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use k8s_openapi::Resource;
use serde_json::{Value, json};

use super::{ListType, PatchStrategy, Schema, Type};
use crate::object::{text, texts};

/// The definitions of the kinds that are served, and of all that these refer to, reduced to what is used here.
///
/// `cargo xtask schemas` writes this file from the OpenAPI documents of Kubernetes 1.36; a test compares the two.
const DEFINITIONS: &str = include_str!("kubernetes.json");

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

const JSON_SCHEMA_PROPS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";

/// The types whose `name` the API server requires, although the documents call it optional. Kubernetes' sources explain:
/// "This field is effectively required, but due to backwards compatibility is allowed to be empty."
const NAMED: [&str; 7] = [
    "ConfigMapEnvSource",
    "ConfigMapKeySelector",
    "ConfigMapProjection",
    "ConfigMapVolumeSource",
    "SecretEnvSource",
    "SecretKeySelector",
    "SecretProjection",
];

/// Returns the schema of a kind.
pub(crate) fn builtin<T: Resource>() -> Arc<Schema> {
    let mut types = TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    let kind = json!([{"group": T::GROUP, "version": T::VERSION, "kind": T::KIND}]);
    let name = types.kinds.iter().find(|(known, _)| *known == kind).map(|(_, name)| name.clone());
    types.convert_definition(&name.unwrap_or_default())
}

/// Returns the schema of the metadata of every object.
pub(super) fn object_meta() -> Arc<Schema> {
    static META: OnceLock<Arc<Schema>> = OnceLock::new();
    let convert = || TYPES.lock().unwrap_or_else(PoisonError::into_inner).convert_definition(OBJECT_META);
    Arc::clone(META.get_or_init(convert))
}

impl Schema {
    /// Returns the schema behind a recursive reference; none if this schema is not one.
    pub(super) fn resolved(&self, value: &Value) -> Option<Arc<Self>> {
        let name = self.recursive.as_deref().filter(|_| value.is_object() || self.types == Type::Object)?;
        TYPES.lock().unwrap_or_else(PoisonError::into_inner).converted.get(name).cloned()
    }
}

static TYPES: LazyLock<Mutex<Types>> = LazyLock::new(|| Mutex::new(Types::parse()));

/// The types that have been converted, once per process.
struct Types {
    /// The names of the definitions of kinds, by `x-kubernetes-group-version-kind`.
    kinds: Vec<(Value, String)>,
    /// The definitions whose conversion has not started.
    definitions: HashMap<String, Value>,
    converted: HashMap<String, Arc<Schema>>,
}

impl Types {
    fn parse() -> Self {
        let definitions: HashMap<String, Value> = serde_json::from_str(DEFINITIONS).unwrap_or_default();
        let kind = |(name, definition): (&String, &Value)| {
            Some((definition.get("x-kubernetes-group-version-kind")?.clone(), name.clone()))
        };
        Self { kinds: definitions.iter().filter_map(kind).collect(), definitions, converted: HashMap::new() }
    }

    fn convert(&mut self, source: &Value) -> Arc<Schema> {
        match source["$ref"].as_str() {
            Some(reference) => self.convert_definition(reference.rsplit('/').next().unwrap_or_default()),
            None => Arc::new(self.convert_inline(source)),
        }
    }

    fn convert_definition(&mut self, name: &str) -> Arc<Schema> {
        if let Some(known) = self.converted.get(name) {
            return Arc::clone(known);
        }
        let Some(source) = self.definitions.remove(name) else { return Arc::new(recursion(name, Type::Object)) };
        let schema = Arc::new(self.convert_type(name, &source));
        self.converted.insert(name.to_owned(), Arc::clone(&schema));
        schema
    }

    /// Converts a definition. The names of some types imply more than their schemas.
    fn convert_type(&mut self, name: &str, source: &Value) -> Schema {
        let mut parts = name.rsplit('.');
        let (last, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let int_or_string = Schema { types: Type::IntOrString, ..Schema::default() };
        match last {
            "IntOrString" => return int_or_string,
            "Quantity" => return Schema { format: Some(Cow::Borrowed("quantity")), ..int_or_string },
            "JSON" => return Schema { preserve_unknown: true, ..Schema::default() },
            // Of the alternatives, only the fields of the object matter.
            "JSONSchemaPropsOrArray" | "JSONSchemaPropsOrBool" | "JSONSchemaPropsOrStringArray" => {
                return recursion(JSON_SCHEMA_PROPS, Type::Any);
            }
            _ => {}
        }
        let mut schema = self.convert_inline(source);
        if schema.types == Type::Object {
            schema.go = Some(format!("{version}.{last}").into());
            schema.preserve_unknown = matches!(last, "FieldsV1" | "RawExtension");
        }
        if NAMED.contains(&last) {
            schema.required.insert(0, "name".to_owned());
        }
        schema
    }

    fn convert_inline(&mut self, source: &Value) -> Schema {
        let fields = source["properties"].as_object().into_iter().flatten();
        let properties = fields.map(|(name, field)| (name.clone(), self.convert(field))).collect();
        let mut below = |key: &str| source.get(key).map(|source| self.convert(source));
        let (items, additional) = (below("items"), below("additionalProperties"));
        Schema {
            types: Type::of(source),
            format: source["format"].as_str().map(|format| Cow::Owned(format.to_owned())),
            properties,
            additional,
            items,
            required: texts(&source["required"]),
            list: ListType::of(source),
            atomic: source["x-kubernetes-map-type"] == "atomic",
            patch: patch_strategy(source),
            default: source.get("default").cloned(),
            ..Schema::default()
        }
    }
}

/// Returns a reference to a type within itself.
fn recursion(name: &str, types: Type) -> Schema {
    Schema { types, preserve_unknown: true, recursive: Some(name.into()), ..Schema::default() }
}

/// Returns how patches merge a list. The strategies `replace` and `retainKeys` of objects are left to clients.
fn patch_strategy(source: &Value) -> Option<PatchStrategy> {
    let merges = text(source, "x-kubernetes-patch-strategy").split(',').any(|strategy| strategy == "merge");
    merges.then(|| match source["x-kubernetes-patch-merge-key"].as_str() {
        Some(key) => PatchStrategy::MergeKey(key.to_owned()),
        None => PatchStrategy::Merge,
    })
}

#[cfg(test)]
mod tests;
