//! Schemas of Kubernetes' own kinds, from the types of its OpenAPI document.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError},
};

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    schemars::{JsonSchema, SchemaGenerator},
};
use serde_json::Value;

use super::{ListType, PatchStrategy, Schema, Type};

/// How the fields of Kubernetes' types are merged, and the defaults of merge keys, which the OpenAPI document contains
/// and the Rust types do not.
///
/// A line names a type (without `io.k8s.`), and the lines below it its fields: `set` and `map=<keys>` are list types,
/// `atomic` is the type of a map or object, `merge` and `merge=<key>` are patch strategies.
const MERGING: &str = include_str!("merging.txt");

/// Returns the schema of a type.
pub(crate) fn builtin<T: JsonSchema>() -> Arc<Schema> {
    let mut types = TYPES.lock().unwrap_or_else(PoisonError::into_inner);
    let reference = types.generator.subschema_for::<T>();
    types.convert(reference.as_value())
}

/// Returns the schema of the metadata of every object.
pub(super) fn object_meta() -> Arc<Schema> {
    static META: OnceLock<Arc<Schema>> = OnceLock::new();
    Arc::clone(META.get_or_init(builtin::<ObjectMeta>))
}

impl Schema {
    /// Returns the schema behind a recursive reference; none if this schema is not one.
    pub(super) fn resolved(&self, value: &Value) -> Option<Arc<Self>> {
        let name = self.recursive.as_deref().filter(|_| value.is_object() || self.types == Type::Object)?;
        TYPES.lock().unwrap_or_else(PoisonError::into_inner).converted.get(name).cloned()
    }
}

static TYPES: LazyLock<Mutex<Types>> = LazyLock::new(|| Mutex::new(Types::new()));

/// The types that have been converted, once per process.
struct Types {
    generator: SchemaGenerator,
    converted: HashMap<String, Arc<Schema>>,
    /// The types whose conversion has started.
    begun: HashSet<String>,
    merging: HashMap<&'static str, Merging>,
}

/// How a type and its fields are merged.
#[derive(Default)]
struct Merging {
    atomic: bool,
    fields: BTreeMap<&'static str, Vec<&'static str>>,
}

impl Types {
    fn new() -> Self {
        let mut merging: HashMap<&str, Merging> = HashMap::new();
        let mut current = "";
        for line in MERGING.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().unwrap_or_default();
            if line.starts_with(' ') {
                merging.entry(current).or_default().fields.insert(name, words.collect());
            } else {
                current = name;
                merging.entry(current).or_default().atomic = words.next() == Some("atomic");
            }
        }
        let generator = SchemaGenerator::default();
        Self { generator, converted: HashMap::new(), begun: HashSet::new(), merging }
    }

    fn convert(&mut self, schema: &Value) -> Arc<Schema> {
        match schema["$ref"].as_str() {
            Some(reference) => self.convert_definition(reference.rsplit('/').next().unwrap_or_default()),
            None => Arc::new(self.convert_inline(schema)),
        }
    }

    fn convert_definition(&mut self, name: &str) -> Arc<Schema> {
        if let Some(known) = self.converted.get(name) {
            return Arc::clone(known);
        }
        if !self.begun.insert(name.to_owned()) {
            return recursion(name, Type::Object);
        }
        // The generator only has to remember that it generated the definition, so this can be moved out.
        let source = self.generator.definitions_mut().get_mut(name).map(Value::take).unwrap_or_default();
        let schema = Arc::new(self.convert_type(name, &source));
        self.begun.remove(name);
        self.converted.insert(name.to_owned(), Arc::clone(&schema));
        schema
    }

    /// Converts a definition. The names of some types imply more than their schemas.
    fn convert_type(&mut self, name: &str, source: &Value) -> Schema {
        let mut parts = name.rsplit('.');
        let (last, version) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        match last {
            "Quantity" => {
                return Schema {
                    types: Type::IntOrString,
                    format: Some(Cow::Borrowed("quantity")),
                    ..Schema::default()
                };
            }
            "JSON" => return Schema { preserve_unknown: true, ..Schema::default() },
            _ => {}
        }
        if let Some(first) = source["oneOf"].get(0) {
            // For types like `JSONSchemaPropsOrBool`, only the fields of the object matter.
            let object = first["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
            return (*recursion(object, Type::Any)).clone();
        }
        let mut schema = self.convert_inline(source);
        if schema.types == Type::Object {
            schema.go = Some(format!("{version}.{last}").into());
            schema.preserve_unknown = matches!(last, "FieldsV1" | "RawExtension");
        }
        let Some(merging) = self.merging.get(name.trim_start_matches("io.k8s.")) else { return schema };
        schema.atomic |= merging.atomic;
        for (field, words) in &merging.fields {
            if let Some(property) = schema.properties.get_mut(*field) {
                merge(Arc::make_mut(property), words);
            }
        }
        schema
    }

    fn convert_inline(&mut self, source: &Value) -> Schema {
        let types = Type::of(source);
        let fields = source["properties"].as_object().into_iter().flatten();
        let properties = fields.map(|(name, field)| (name.clone(), self.convert(field))).collect();
        let mut below = |key: &str| source[key].is_object().then(|| self.convert(&source[key]));
        let (items, additional) = (below("items"), below("additionalProperties"));
        let required = source["required"].as_array().into_iter().flatten();
        Schema {
            types,
            format: source["format"].as_str().map(|format| Cow::Owned(format.to_owned())),
            properties,
            additional,
            items,
            required: required.filter_map(Value::as_str).map(str::to_owned).collect(),
            ..Schema::default()
        }
    }
}

/// Returns a reference to a type within itself.
fn recursion(name: &str, types: Type) -> Arc<Schema> {
    Arc::new(Schema { types, preserve_unknown: true, recursive: Some(name.into()), ..Schema::default() })
}

/// Adds the entries of a line of the table to a field.
fn merge(schema: &mut Schema, words: &[&'static str]) {
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("set", _) => schema.list = ListType::Set,
            ("map", keys) => schema.list = ListType::Map(keys.split(',').map(str::to_owned).collect()),
            ("atomic", _) => schema.atomic = true,
            ("merge", "") => schema.patch = Some(PatchStrategy::Merge),
            ("merge", key) => schema.patch = Some(PatchStrategy::MergeKey(key.to_owned())),
            ("default", json) => schema.default = serde_json::from_str(json).ok(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
