//! Type checks with the error texts of Go's decoder.

use std::fmt;

use serde_json::Value;

use super::{Schema, Type, format, path::Path};

impl Schema {
    /// Returns the decoder's error for the first value of a wrong type, if there is one.
    ///
    /// In custom resources, only metadata is decoded, including that of embedded objects. The schemas do not contain
    /// the names of Go's string types (`v1.PullPolicy`), which appear as `string`.
    pub(crate) fn wrong_types(&self, object: &Value) -> Option<String> {
        match &self.go {
            Some(_) => decode(self, object, Place::ROOT),
            None => self.metadata_error(object, &Path::Root, true),
        }
    }

    /// Decodes the metadata in a custom resource.
    fn metadata_error(&self, value: &Value, path: &Path<'_>, is_root: bool) -> Option<String> {
        let below = |schema: &Schema, value: &Value, path: Path<'_>| schema.metadata_error(value, &path, false);
        match value {
            Value::Object(fields) => fields.iter().find_map(|(name, value)| match name.as_str() {
                "apiVersion" | "kind" if self.embedded && !value.is_string() => {
                    Some(format!("{}: Invalid value: {value}: must be a string", Path::Field(path, name)))
                }
                "apiVersion" | "kind" if self.embedded => None,
                "metadata" if self.embedded => {
                    let error = decode(self.properties.get(name)?, value, Place::ROOT)?;
                    let place = format!("{}: Invalid value: {value}: ", Path::Field(path, name));
                    Some(if is_root { error } else { place + &error })
                }
                _ => below(self.field(name)?, value, Path::Field(path, name)),
            }),
            Value::Array(items) => {
                let schema = self.items.as_ref()?;
                items.iter().enumerate().find_map(|(index, item)| below(schema, item, Path::Index(path, index)))
            }
            _ => None,
        }
    }
}

/// The position of the decoder in its errors: the innermost struct and the path of JSON names.
#[derive(Clone, Copy)]
struct Place<'a> {
    structure: &'a str,
    path: Path<'a>,
}

impl Place<'_> {
    const ROOT: Self = Place { structure: "", path: Path::Root };
}

/// `DeploymentSpec.spec.replicas`
impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.structure, self.path)
    }
}

fn decode(schema: &Schema, value: &Value, place: Place<'_>) -> Option<String> {
    if let Some(definition) = schema.resolved(value) {
        return decode(&definition, value, place);
    }
    let refuse = |what: &str| {
        let name = go_name(schema);
        Some(if place.path.is_root() {
            format!("json: cannot unmarshal {what} into Go value of type {name}")
        } else {
            format!("json: cannot unmarshal {what} into Go struct field {place} of type {name}")
        })
    };
    match (schema.types, value) {
        (_, Value::Null) | (Type::Any, _) => None,
        (Type::Object, Value::Object(fields)) => {
            let structure =
                schema.go.as_deref().map_or(place.structure, |name| name.rsplit('.').next().unwrap_or(name));
            fields.iter().find_map(|(name, value)| match schema.properties.get(name) {
                Some(field) => decode(field, value, Place { structure, path: Path::Field(&place.path, name) }),
                None => decode(schema.additional.as_ref()?, value, place),
            })
        }
        (Type::Array, Value::Array(items)) => {
            let schema = schema.items.as_ref()?;
            items.iter().find_map(|item| decode(schema, item, place))
        }
        (Type::IntOrString, _) if schema.format.as_deref() == Some("quantity") => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format::quantity_error(&text).map(str::to_owned)
        }
        (Type::String, Value::String(text)) => match schema.format.as_deref() {
            Some("byte") => format::base64_error(text),
            Some("date-time") => format::time_error(text),
            _ => None,
        },
        (Type::IntOrString, Value::String(_)) | (Type::Boolean, Value::Bool(_)) | (Type::Number, Value::Number(_)) => {
            None
        }
        (Type::Integer | Type::IntOrString, Value::Number(number)) => {
            let small = schema.types == Type::IntOrString || schema.format.as_deref() == Some("int32");
            let fits = number.as_i64().is_some_and(|number| !small || i32::try_from(number).is_ok());
            if fits { None } else { refuse(&format!("number {number}")) }
        }
        (_, Value::Bool(_)) => refuse("bool"),
        (_, Value::Number(_)) => refuse("number"),
        (_, Value::String(_)) => refuse("string"),
        (_, Value::Array(_)) => refuse("array"),
        (_, Value::Object(_)) => refuse("object"),
    }
}

/// Returns the name of the Go type.
fn go_name(schema: &Schema) -> String {
    let of = |schema: Option<&Schema>| schema.map_or_else(|| "interface {}".to_owned(), go_name);
    match schema.types {
        Type::Array => format!("[]{}", of(schema.items.as_deref())),
        Type::Object => match &schema.go {
            Some(name) => name.to_string(),
            None => format!("map[string]{}", of(schema.additional.as_deref())),
        },
        Type::IntOrString if schema.format.as_deref() == Some("quantity") => "resource.Quantity".to_owned(),
        Type::IntOrString => "int32".to_owned(),
        Type::Integer => schema.format.as_deref().unwrap_or("int64").to_owned(),
        Type::Number => "float64".to_owned(),
        Type::Boolean => "bool".to_owned(),
        Type::String if schema.format.as_deref() == Some("byte") => "[]uint8".to_owned(),
        Type::String => "string".to_owned(),
        Type::Any => "interface {}".to_owned(),
    }
}
