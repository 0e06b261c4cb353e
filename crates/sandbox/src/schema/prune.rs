//! Pruning and defaults.

use serde_json::{Map, Value};

use super::{Schema, Type, path::Path};

impl Schema {
    /// Drops unknown fields and returns their paths.
    ///
    /// In Kubernetes' own kinds, this also drops nulls and optional empty lists and maps, as decoding and encoding by
    /// Go would.
    pub(crate) fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut unknown = Vec::new();
        prune(self, object, &Path::Root, self.go.is_some(), &mut unknown);
        unknown
    }

    /// Sets defaults and drops nulls from fields that are not nullable.
    pub(crate) fn set_defaults(&self, object: &mut Value) {
        drop_nulls(self, object);
        fill(self, object);
    }

    /// Returns whether a value is a null that the schema does not allow.
    fn refuses(&self, value: &Value) -> bool {
        value.is_null() && !self.nullable
    }
}

fn prune(schema: &Schema, value: &mut Value, path: &Path<'_>, typed: bool, unknown: &mut Vec<String>) {
    if let Some(definition) = schema.resolved(value) {
        return prune(&definition, value, path, typed, unknown);
    }
    let typed = typed || schema.go.is_some();
    match value {
        Value::Object(fields) => {
            prune_fields(schema, fields, path, typed, unknown);
            if typed {
                fields.retain(|name, value| is_written(schema, name, value));
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                match &schema.items {
                    Some(schema) if typed && item.is_null() => *item = zero(schema),
                    Some(schema) => prune(schema, item, &Path::Index(path, index), typed, unknown),
                    None if schema.preserve_unknown => {}
                    None => prune(&Schema::default(), item, &Path::Index(path, index), typed, unknown),
                }
            }
        }
        _ => {}
    }
}

fn prune_fields(
    schema: &Schema,
    fields: &mut Map<String, Value>,
    path: &Path<'_>,
    typed: bool,
    unknown: &mut Vec<String>,
) {
    fields.retain(|name, value| {
        let path = Path::Field(path, name);
        match schema.field(name) {
            Some(field) if typed && value.is_null() && !schema.properties.contains_key(name) => *value = zero(field),
            Some(field) => prune(field, value, &path, typed, unknown),
            None if schema.preserve_unknown => {}
            None => {
                unknown.push(path.to_string());
                return false;
            }
        }
        true
    });
}

/// Returns whether Go writes a field with this value. It omits nulls, and optional empty lists and maps.
fn is_written(schema: &Schema, name: &String, value: &Value) -> bool {
    let Some(field) = schema.properties.get(name) else { return true };
    let optional = || !schema.required.contains(name);
    match value {
        Value::Null => field.types == Type::Any,
        Value::Array(items) => !(items.is_empty() && field.types == Type::Array && optional()),
        Value::Object(fields) => !(fields.is_empty() && field.additional.is_some() && optional()),
        _ => true,
    }
}

/// Returns the value that Go decodes from a null in a list or map.
fn zero(schema: &Schema) -> Value {
    match schema.types {
        Type::String => "".into(),
        Type::Integer | Type::Number => 0.into(),
        Type::Boolean => false.into(),
        Type::IntOrString if schema.format.is_some() => "0".into(),
        Type::IntOrString => 0.into(),
        Type::Object if schema.go.is_some() => Value::Object(Map::new()),
        Type::Object | Type::Array | Type::Any => Value::Null,
    }
}

/// Drops nulls from fields that are not nullable and have no default. Kubernetes' own kinds are left to the decoder.
fn drop_nulls(schema: &Schema, value: &mut Value) {
    match value {
        _ if schema.go.is_some() => {}
        Value::Object(fields) => fields.retain(|name, value| {
            let Some(field) = schema.field(name) else { return true };
            let dropped = field.refuses(value) && field.default.is_none();
            if !dropped {
                drop_nulls(field, value);
            }
            !dropped
        }),
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            items.iter_mut().for_each(|item| drop_nulls(schema, item));
        }
        _ => {}
    }
}

fn fill(schema: &Schema, value: &mut Value) {
    let fill_one = |schema: &Schema, value: &mut Value| {
        if schema.refuses(value) {
            *value = schema.default.clone().unwrap_or_default();
        }
        fill(schema, value);
    };
    match value {
        Value::Object(fields) => {
            for (name, field) in &schema.properties {
                let Some(default) = &field.default else { continue };
                if fields.get(name).is_none_or(|value| field.refuses(value)) {
                    fields.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in fields {
                match schema.properties.get(name) {
                    Some(field) => fill(field, value),
                    None => {
                        if let Some(schema) = &schema.additional {
                            fill_one(schema, value);
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            items.iter_mut().for_each(|item| fill_one(schema, item));
        }
        _ => {}
    }
}
