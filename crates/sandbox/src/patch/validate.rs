//! Whether what is applied is of its type: with the messages of the API.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{
    fields::shown,
    go,
    typed::{Shape, Typed},
};
use crate::schema::Type;

/// All that is wrong, as one message.
pub(super) fn validate(typed: Typed<'_>, value: &Value) -> Result<(), String> {
    let mut errors = Vec::new();
    visit(typed, value, "", &mut errors);
    match errors.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        several => Err(several.iter().fold("errors:".to_owned(), |all, error| format!("{all}\n  {error}"))),
    }
}

fn visit(typed: Typed<'_>, value: &Value, path: &str, errors: &mut Vec<String>) {
    let shape = typed.shape(value);
    match (shape, value) {
        (_, Value::Null) => {}
        (Shape::Scalar, value) => errors.extend(scalar(typed.types(), value).map(|error| at(path, &error))),
        (Shape::Map, Value::Object(fields)) => visit_map(typed, fields, path, errors),
        (Shape::List, Value::Array(items)) => visit_list(typed, items, path, errors),
        (shape, value) => {
            let what = if shape == Shape::Map { "map" } else { "list" };
            errors.push(at(path, &format!("expected {what}, got &{{{}}}", go::plain(value))));
        }
    }
}

fn visit_map(typed: Typed<'_>, fields: &Map<String, Value>, path: &str, errors: &mut Vec<String>) {
    for (name, value) in fields {
        let (inner, named) = typed.field(name);
        let path = format!("{path}.{name}");
        if named || typed.is_open() {
            visit(inner, value, &path, errors);
        } else {
            errors.push(at(&path, "field not declared in schema"));
            return;
        }
    }
}

fn visit_list(typed: Typed<'_>, items: &[Value], path: &str, errors: &mut Vec<String>) {
    let mut seen = HashSet::new();
    for (index, item) in items.iter().enumerate() {
        let element = if typed.is_atomic(Shape::List) {
            format!("i:{index}").into()
        } else {
            match typed.element(item) {
                Ok(element) => element,
                Err(error) => return errors.push(at(path, &format!("element {index}: {error}"))),
            }
        };
        let inner = shown(&element);
        if seen.contains(&element) {
            errors.push(at(path, &format!("duplicate entries for key {inner}")));
        }
        seen.insert(element);
        visit(typed.items(), item, &format!("{path}{inner}"), errors);
    }
}

fn scalar(types: Type, value: &Value) -> Option<String> {
    let shown = format!("&value.valueUnstructured{{Value:{}}}", go::syntax(value));
    match (types, value) {
        (Type::Integer | Type::Number, Value::Number(_)) | (Type::String, Value::String(_)) => None,
        (Type::Boolean, Value::Bool(_)) => None,
        (Type::Any | Type::IntOrString, Value::Number(_) | Value::String(_) | Value::Bool(_)) => None,
        (Type::Integer | Type::Number, _) => {
            Some(format!("expected numeric (int or float), got {}", go::type_name(value)))
        }
        (Type::String, _) => Some(format!("expected string, got {shown}")),
        (Type::Boolean, _) => Some(format!("expected boolean, got &{{{}}}", go::plain(value))),
        _ => Some(format!("expected any scalar, got &{{{}}}", go::plain(value))),
    }
}

fn at(path: &str, error: &str) -> String {
    if path.is_empty() { error.to_owned() } else { format!("{path}: {error}") }
}
