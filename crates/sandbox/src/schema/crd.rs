//! Schemas of CustomResourceDefinitions.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use super::{Junctors, Limits, ListType, Schema, Type, builtin, format, path::Path, structural};
use crate::{object::texts, status::Cause};

/// Converts the `openAPIV3Schema` of a version. The fields of the causes are relative to it.
///
/// CEL rules (`x-kubernetes-validations`) are not modelled: they are neither compiled nor evaluated.
pub(crate) fn of_crd(source: &Value) -> Result<Arc<Schema>, Vec<Cause>> {
    let mut schema = convert(source);
    let mut causes = structural::invariants(source);
    if causes.is_empty() {
        for (name, field) in schema.properties.iter().filter(|(name, _)| !structural::is_meta(name)) {
            check_defaults(field, &Path::Key(&Path::Field(&Path::Root, "properties"), name), &mut causes);
        }
    }
    causes.extend(structural::rules(source));
    if !causes.is_empty() {
        return Err(causes);
    }
    embed(&mut schema);
    schema.source = Some(source.clone());
    Ok(Arc::new(schema))
}

/// Checks that defaults are valid for their schemas.
fn check_defaults(schema: &Schema, path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some(default) = &schema.default {
        let path = Path::Field(path, "default");
        let mut pruned = default.clone();
        if !schema.prune(&mut pruned).is_empty() {
            causes.push(Cause::invalid(path.to_string(), default, "must not have unknown fields"));
        }
        causes.extend(schema.validate(default).into_iter().map(|cause| match cause.field.as_str() {
            "<nil>" => cause,
            "" => Cause { field: path.to_string(), ..cause },
            field => Cause { field: format!("{path}.{field}"), ..cause },
        }));
    }
    if let Some(items) = &schema.items {
        check_defaults(items, &Path::Field(path, "items"), causes);
    }
    let properties = Path::Field(path, "properties");
    for (name, field) in schema.properties.iter().filter(|(_, field)| field.go.is_none()) {
        check_defaults(field, &Path::Key(&properties, name), causes);
    }
}

/// Adds `apiVersion`, `kind` and `metadata` to the schema of an object.
fn embed(schema: &mut Schema) {
    schema.embedded = true;
    for name in ["apiVersion", "kind"] {
        let text = || Arc::new(Schema { types: Type::String, ..Schema::default() });
        schema.properties.entry(name.to_owned()).or_insert_with(text);
    }
    let mut meta = builtin::object_meta();
    // A definition may only restrict the names.
    if let Some(restricted) = schema.properties.get("metadata") {
        for name in ["name", "generateName"] {
            if let Some(field) = restricted.properties.get(name) {
                Arc::make_mut(&mut meta).properties.insert(name.to_owned(), Arc::clone(field));
            }
        }
    }
    schema.properties.insert("metadata".to_owned(), meta);
}

fn convert(source: &Value) -> Schema {
    let types = Type::of(source);
    let one = |value: &Value| value.is_object().then(|| Arc::new(convert(value)));
    let additional = &source["additionalProperties"];
    let properties = source["properties"].as_object().into_iter().flatten();
    let mut schema = Schema {
        types,
        format: format_of(types, &source["format"]),
        nullable: source["nullable"] == true,
        properties: properties.map(|(name, field)| (name.clone(), Arc::new(convert(field)))).collect(),
        // Even where a definition allows anything, the API server drops the fields of objects in it.
        additional: if additional.is_boolean() { Some(Arc::default()) } else { one(additional) },
        closed: *additional == false,
        preserve_unknown: source["x-kubernetes-preserve-unknown-fields"] == true,
        required: texts(&source["required"]),
        items: one(&source["items"]),
        list: ListType::of(source),
        atomic: source["x-kubernetes-map-type"] == "atomic",
        default: source.get("default").filter(|default| !default.is_null()).cloned(),
        enumeration: source["enum"].as_array().cloned().unwrap_or_default(),
        limits: limits(source),
        junctors: junctors(source),
        ..Schema::default()
    };
    if source["x-kubernetes-embedded-resource"] == true {
        embed(&mut schema);
    }
    schema
}

/// Returns the format, unless it is unknown or belongs to another type.
fn format_of(types: Type, format: &Value) -> Option<Cow<'static, str>> {
    let format = format.as_str()?;
    let known = match types {
        Type::Any | Type::String => format::is_known(format),
        Type::Integer => matches!(format, "int32" | "int64"),
        Type::Number => matches!(format, "float" | "double"),
        _ => false,
    };
    known.then(|| Cow::Owned(format.to_owned()))
}

fn limits(source: &Value) -> Limits {
    let (float, whole) = (|name: &str| source[name].as_f64(), |name: &str| source[name].as_u64());
    Limits {
        minimum: float("minimum"),
        maximum: float("maximum"),
        exclusive_minimum: source["exclusiveMinimum"] == true,
        exclusive_maximum: source["exclusiveMaximum"] == true,
        multiple_of: float("multipleOf"),
        min_length: whole("minLength"),
        max_length: whole("maxLength"),
        pattern: source["pattern"].as_str().filter(|pattern| !pattern.is_empty()).map(str::to_owned),
        min_items: whole("minItems"),
        max_items: whole("maxItems"),
        min_properties: whole("minProperties"),
        max_properties: whole("maxProperties"),
    }
}

fn junctors(source: &Value) -> Option<Box<Junctors>> {
    let all = |name: &str| source[name].as_array().into_iter().flatten().map(convert).collect::<Vec<_>>();
    let not = source["not"].is_object().then(|| convert(&source["not"]));
    let junctors = Junctors { all: all("allOf"), any: all("anyOf"), one: all("oneOf"), not };
    let some = !(junctors.all.is_empty() && junctors.any.is_empty() && junctors.one.is_empty());
    (some || junctors.not.is_some()).then(|| Box::new(junctors))
}

#[cfg(test)]
mod tests;
