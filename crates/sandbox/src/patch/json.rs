//! JSON patches and merge patches.
//!
//! They deviate from the RFCs where the API server's library does: `replace` adds a missing field, `test` and `copy`
//! treat a missing field as null, and negative indices count from the end.

use serde_json::{Map, Value};

use super::{go, rejected};
use crate::status::ApiError;

/// The API server's limit of operations per patch.
const MAX_OPERATIONS: usize = 10_000;

/// Applies a JSON patch (RFC 6902).
pub(crate) fn json_patch(current: &Value, patch: &Value) -> Result<Value, ApiError> {
    let operations = match patch {
        Value::Array(operations) => operations.as_slice(),
        Value::Null => &[],
        other => {
            let found = go::json_type(other);
            let message = format!("json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp");
            return Err(ApiError::bad_request(format!("error decoding patch: {message}")));
        }
    };
    if let Some(bad) = operations.iter().find(|operation| !operation.is_object()) {
        let found = go::json_type(bad);
        let message = format!("json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp");
        return Err(ApiError::bad_request(format!("error decoding patch: {message}")));
    }
    if operations.len() > MAX_OPERATIONS {
        let count = operations.len();
        return Err(ApiError::too_large(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {count}"
        )));
    }
    let mut document = current.clone();
    for operation in operations {
        operate(&mut document, operation).ok_or_else(rejected)?;
    }
    Ok(document)
}

/// Performs an operation; returns none if it fails.
fn operate(document: &mut Value, operation: &Value) -> Option<()> {
    let text = |field: &str| operation[field].as_str();
    let value = || operation["value"].clone();
    match text("op")? {
        "add" => add(document, text("path")?, value()),
        "remove" => remove(document, text("path")?).map(drop),
        "replace" if text("path")?.is_empty() => {
            let value = value();
            (value.is_object() || value.is_array()).then(|| *document = value)
        }
        "replace" => match parent(document, text("path")?)? {
            (Value::Object(fields), key) => {
                fields.insert(key, value());
                Some(())
            }
            (Value::Array(items), key) => {
                let index = index(&key, items.len())?;
                *items.get_mut(index)? = value();
                Some(())
            }
            _ => None,
        },
        "move" => {
            let moved = remove(document, text("from")?)?;
            add(document, text("path")?, moved)
        }
        "copy" => {
            let copied = get(document, text("from")?)?.cloned().unwrap_or_default();
            add(document, text("path")?, copied)
        }
        "test" if text("path")?.is_empty() => (*document == operation["value"]).then_some(()),
        "test" => {
            let found = get(document, text("path")?)?.unwrap_or(&Value::Null);
            (*found == operation["value"]).then_some(())
        }
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    match parent(document, path)? {
        (Value::Object(fields), key) => {
            fields.insert(key, value);
        }
        (Value::Array(items), key) if key == "-" => items.push(value),
        (Value::Array(items), key) => {
            let index = index(&key, items.len() + 1).filter(|index| *index <= items.len())?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    match parent(document, path)? {
        (Value::Object(fields), key) => fields.remove(&key),
        (Value::Array(items), key) => {
            let index = index(&key, items.len()).filter(|index| *index < items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

/// Returns the value at a path. The inner option is empty if an object lacks the field, the outer if the path is
/// invalid.
fn get<'a>(document: &'a mut Value, path: &str) -> Option<Option<&'a Value>> {
    match parent(document, path)? {
        (Value::Object(fields), key) => Some(fields.get(&key)),
        (Value::Array(items), key) => items.get(index(&key, items.len())?).map(Some),
        _ => None,
    }
}

/// Returns the container of the value at a path, and its key there.
fn parent<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut parts = path.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~"));
    let mut key = parts.next()?;
    let mut container = document;
    for next in parts {
        container = match container {
            Value::Object(fields) => fields.get_mut(&key)?,
            Value::Array(items) => {
                let index = index(&key, items.len())?;
                items.get_mut(index)?
            }
            _ => return None,
        };
        key = next;
    }
    Some((container, key))
}

fn index(key: &str, length: usize) -> Option<usize> {
    match key.strip_prefix('-') {
        Some(back) => length.checked_sub(back.parse().ok()?),
        None => key.parse().ok(),
    }
}

/// Applies a merge patch (RFC 7386).
pub(crate) fn merge_patch(current: &Value, patch: &Value) -> Result<Value, ApiError> {
    match patch {
        Value::Object(patch) => {
            let mut document = current.clone();
            if let Value::Object(fields) = &mut document {
                merge_fields(fields, patch);
            }
            Ok(document)
        }
        Value::Null => Err(ApiError::bad_request("Invalid JSON Patch")),
        other => {
            let message = "into Go value of type map[string]interface {}";
            let found = go::json_type(other);
            Err(ApiError::bad_request(format!("error decoding patch: json: cannot unmarshal {found} {message}")))
        }
    }
}

fn merge_fields(fields: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (key, value) in patch {
        match (value, fields.get_mut(key)) {
            (Value::Null, _) => drop(fields.remove(key)),
            (Value::Object(patch), Some(Value::Object(fields))) => merge_fields(fields, patch),
            // A list that replaces an object keeps its nulls; other values lose them.
            (Value::Array(_), Some(field @ Value::Object(_))) => *field = value.clone(),
            (_, Some(field)) => *field = without_nulls(value),
            (_, None) => drop(fields.insert(key.clone(), without_nulls(value))),
        }
    }
}

pub(super) fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        scalar => scalar.clone(),
    }
}
