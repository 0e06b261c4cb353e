//! Access to single fields of objects.

use serde_json::{Map, Value};

pub(super) use crate::object::text;

/// Returns whether a field is unset: missing, null, or empty in a way that Go omits.
pub(super) fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

/// Returns the field at a path and creates what is missing; none if a value on the way is not an object.
pub(super) fn slot<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Value> {
    path.iter().try_fold(value, |value, step| {
        if value.is_null() {
            *value = Value::Object(Map::new());
        }
        Some(value.as_object_mut()?.entry(*step).or_insert(Value::Null))
    })
}

/// Sets the field at a path, unless a value on the way is not an object.
pub(super) fn put(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    if let Some(slot) = slot(value, path) {
        *slot = new.into();
    }
}

pub(super) fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

pub(super) fn items_mut(value: Option<&mut Value>) -> impl Iterator<Item = &mut Value> {
    value.and_then(Value::as_array_mut).into_iter().flatten()
}
