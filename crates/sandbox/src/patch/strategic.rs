//! Strategic merge patches, which merge lists by the keys of their types and contain directives.

use serde_json::{Map, Value};

use super::{go, json::without_nulls, rejected};
use crate::{
    schema::{PatchStrategy, Schema, Type},
    status::ApiError,
};

/// The directive of a map or list item: `delete` or `replace`.
const DIRECTIVE: &str = "$patch";
/// The directive that removes all other fields.
const RETAIN_KEYS: &str = "$retainKeys";
/// The directive that removes scalars from a list.
const DELETE_FROM: &str = "$deleteFromPrimitiveList";
/// The directive that sets the order of a list.
const SET_ORDER: &str = "$setElementOrder";

type Fields = Map<String, Value>;
type Result<T> = std::result::Result<T, ApiError>;

/// Applies a strategic merge patch.
pub(crate) fn strategic_merge_patch(current: &Value, patch: &Value, schema: &Schema) -> Result<Value> {
    let (current, patch) = match (current, patch) {
        (current, Value::Null) => return Ok(current.clone()),
        (Value::Object(current), Value::Object(patch)) => (current.clone(), patch.clone()),
        (_, patch) => {
            let found = go::json_type(patch);
            let message = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(ApiError::bad_request(message));
        }
    };
    merge_map(current, patch, Some(schema)).map(Value::Object)
}

fn merge_map(mut original: Fields, mut patch: Fields, schema: Option<&Schema>) -> Result<Fields> {
    match patch.get(DIRECTIVE) {
        Some(Value::String(directive)) if directive == "replace" => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some(Value::String(directive)) if directive == "delete" => return Ok(Fields::new()),
        Some(directive) => return Err(unknown_directive(directive, &patch)),
        None => {}
    }
    retain_keys(&mut original, &mut patch)?;
    order_lists(&mut original, &mut patch, schema)?;
    for (key, value) in patch {
        let deletes = key.starts_with(DELETE_FROM);
        let key = if deletes { list_of(&key, DELETE_FROM, "primitive list")? } else { key };
        match (original.get_mut(&key), value) {
            (_, Value::Null) => drop(original.remove(&key)),
            (Some(Value::Object(fields)), Value::Object(patch)) => {
                let inner = field_of(schema, &key)?;
                let merged = merge_map(std::mem::take(fields), patch, Some(inner))?;
                if merged.is_empty() && inner.properties.is_empty() {
                    // Empty maps and lists are not written.
                    original.remove(&key);
                } else {
                    original.insert(key, merged.into());
                }
            }
            (Some(Value::Array(items)), Value::Array(patch)) => {
                let inner = field_of(schema, &key)?;
                let merged = merge_field(std::mem::take(items), patch, inner, deletes)?;
                if merged.is_empty() {
                    original.remove(&key);
                } else {
                    original.insert(key, merged.into());
                }
            }
            (_, _) if deletes => {}
            (_, value) => match without_directives(without_nulls(&value)) {
                Some(value) => drop(original.insert(key, value)),
                None => drop(original.remove(&key)),
            },
        }
    }
    Ok(original)
}

/// Returns the schema of a field whose value is merged.
fn field_of<'a>(schema: Option<&'a Schema>, key: &str) -> Result<&'a Schema> {
    let unknown = |schema: &Schema| match schema.types {
        Type::Object if schema.properties.is_empty() => {
            "merging an object in json but data type is not struct, instead is: map".to_owned()
        }
        _ => format!("unable to find api field in struct for the json field \"{key}\""),
    };
    let Some(schema) = schema else { return Err(ApiError::unnamed(format!("unable to find api field \"{key}\""))) };
    schema.properties.get(key).map(|field| &**field).ok_or_else(|| ApiError::unnamed(unknown(schema)))
}

/// Returns the field that a list directive refers to: `$setElementOrder/containers`.
fn list_of(key: &str, prefix: &str, what: &str) -> Result<String> {
    let field = key.split_once('/').filter(|(before, _)| *before == prefix).map(|(_, field)| field.to_owned());
    field.ok_or_else(|| ApiError::bad_request(format!("invalid patch format of {what}")))
}

fn retain_keys(original: &mut Fields, patch: &mut Fields) -> Result<()> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let malformed = || ApiError::bad_request("invalid patch format of retainKeys");
    let retained = retained.as_array().ok_or_else(malformed)?;
    let is_retained = |key: &str| retained.iter().any(|name| name == key);
    let is_list_directive = |key: &str| key.starts_with(DELETE_FROM) || key.starts_with(SET_ORDER);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_list_directive(key) && !is_retained(key)) {
        return Err(malformed());
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// Merges the lists whose order the patch sets.
fn order_lists(original: &mut Fields, patch: &mut Fields, schema: Option<&Schema>) -> Result<()> {
    let directives: Vec<_> = patch.keys().filter(|key| key.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = list(patch.remove(&directive).unwrap_or_default())?;
        let key = list_of(&directive, SET_ORDER, "setElementOrder list")?;
        let before = original.get(&key).cloned().map(list).transpose()?;
        let patched = patch.get(&key).cloned().map(list).transpose()?;
        let field = field_of(schema, &key)?;
        let merge_key = merge_key(field);
        check_order(patched.as_deref().unwrap_or_default(), &order, merge_key)?;
        let merged = match (before.clone(), patched.clone()) {
            (None, None) => continue,
            (Some(before), None) => before,
            (None, Some(patched)) => match without_directives(patched.into()) {
                Some(Value::Array(items)) => items,
                _ => continue,
            },
            (Some(before), Some(patched)) => merge_field(before, patched, field, false)?,
        };
        let (before, patched) = (before.unwrap_or_default(), patched.unwrap_or_default());
        one_type(&before, &patched)?;
        let (ordered, others) = partition(merged, &order, merge_key)?;
        original.insert(key.clone(), arrange(ordered, others, &order, &before, merge_key).into());
        patch.remove(&key);
    }
    Ok(())
}

fn list(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(items) => Ok(items),
        other => Err(bad_type("[]interface {}", &other)),
    }
}

/// Checks that the items of the patch are in the order that it sets.
fn check_order(patch: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<()> {
    if patch.is_empty() || order.is_empty() {
        return Ok(());
    }
    let directive = |item: &Value| item.get(DIRECTIVE).is_some();
    let deleted = |item: &Value| merge_key.is_some() && item[DIRECTIVE] == "delete";
    let mut left = patch.iter().filter(|item| !deleted(item)).peekable();
    let mut at = 0;
    while let (Some(item), Some(next)) = (left.peek(), order.get(at)) {
        if directive(item) {
            left.next();
            continue;
        }
        if key_of(item, merge_key)? == key_of(next, merge_key)? {
            left.next();
        }
        at += 1;
    }
    if left.peek().is_none() {
        return Ok(());
    }
    let (patch, order) = (go::plain(&patch.into()), go::plain(&order.into()));
    Err(ApiError::unnamed(format!("The order in patch list:\n{patch}\n doesn't match {SET_ORDER} list:\n{order}\n")))
}

/// Returns the identity of an item: its merge key, or the item itself.
fn key_of<'a>(item: &'a Value, merge_key: Option<&str>) -> Result<&'a Value> {
    let Some(key) = merge_key else { return Ok(item) };
    match item {
        Value::Object(fields) => fields.get(key).ok_or_else(|| no_merge_key(fields, key)),
        other => Err(bad_type("map[string]interface {}", other)),
    }
}

fn merge_key(field: &Schema) -> Option<&str> {
    match &field.patch {
        Some(PatchStrategy::MergeKey(key)) => Some(key),
        _ => None,
    }
}

fn merge_field(original: Vec<Value>, patch: Vec<Value>, field: &Schema, deletes: bool) -> Result<Vec<Value>> {
    if field.patch.is_none() && !deletes {
        return Ok(patch);
    }
    merge_list(original, patch, merge_key(field), field.items.as_deref(), deletes)
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: Option<&str>,
    items: Option<&Schema>,
    deletes: bool,
) -> Result<Vec<Value>> {
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    if !one_type(&original, &patch)?.is_object() {
        if deletes {
            return Ok(original.into_iter().filter(|item| !patch.contains(item)).collect());
        }
        let mut merged = Vec::with_capacity(original.len() + patch.len());
        for item in original.iter().chain(&patch) {
            if !merged.contains(item) {
                merged.push(item.clone());
            }
        }
        let (patched, others) = partition(merged, &patch, None)?;
        return Ok(arrange(patched, others, &patch, &original, None));
    }
    let Some(key) = merge_key else {
        return Err(ApiError::unnamed("cannot merge lists without merge key for struct"));
    };
    let (original, patch) = special_items(original, patch, key)?;
    let mut merged = original.clone();
    for item in &patch {
        let Value::Object(fields) = item else { continue };
        let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
        match merged.iter_mut().find(|there| there.get(key) == Some(value)) {
            Some(Value::Object(there)) => *there = merge_map(std::mem::take(there), fields.clone(), items)?,
            _ => merged.push(item.clone()),
        }
    }
    let (patched, others) = partition(merged, &patch, merge_key)?;
    Ok(arrange(patched, others, &patch, &original, merge_key))
}

/// Applies the directives of items. Returns the list and the items to merge.
fn special_items(mut original: Vec<Value>, patch: Vec<Value>, key: &str) -> Result<(Vec<Value>, Vec<Value>)> {
    let (mut rest, mut replace) = (Vec::with_capacity(patch.len()), false);
    for item in patch {
        let Value::Object(fields) = &item else { continue };
        match fields.get(DIRECTIVE) {
            None => rest.push(item),
            Some(directive) if directive == "delete" => {
                let value = fields.get(key).ok_or_else(|| no_merge_key(fields, key))?;
                original.retain(|there| there.get(key) != Some(value));
            }
            Some(directive) if directive == "replace" => replace = true,
            Some(directive) if directive == "merge" => {
                return Err(ApiError::unnamed("merging lists cannot yet be specified in the patch"));
            }
            Some(directive) => return Err(unknown_directive(directive, fields)),
        }
    }
    Ok(if replace { (rest, Vec::new()) } else { (original, rest) })
}

/// Splits items into those that are in a list and those that are not.
fn partition(items: Vec<Value>, by: &[Value], merge_key: Option<&str>) -> Result<(Vec<Value>, Vec<Value>)> {
    let (mut inside, mut outside) = (Vec::new(), Vec::new());
    for item in items {
        let key = key_of(&item, merge_key)?;
        let found = by.iter().any(|other| key_of(other, merge_key).is_ok_and(|other| other == key));
        if found { inside.push(item) } else { outside.push(item) }
    }
    Ok((inside, outside))
}

/// Arranges the items of the patch in its order, and the others between them in the order of the server.
fn arrange(
    mut patched: Vec<Value>,
    mut others: Vec<Value>,
    order: &[Value],
    server: &[Value],
    merge_key: Option<&str>,
) -> Vec<Value> {
    let place = |item: &Value, order: &[Value]| {
        let key = key_of(item, merge_key).ok();
        order.iter().position(|other| key_of(other, merge_key).ok() == key)
    };
    patched.sort_by_key(|item| place(item, order));
    others.sort_by_key(|item| place(item, server));
    let mut all = Vec::with_capacity(patched.len() + others.len());
    let (mut patched, mut others) = (patched.into_iter().peekable(), others.into_iter().peekable());
    loop {
        let before = match (others.peek(), patched.peek()) {
            (Some(other), Some(item)) => {
                matches!((place(other, server), place(item, server)), (Some(one), Some(two)) if one < two)
            }
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (None, None) => return all,
        };
        all.extend(if before { others.next() } else { patched.next() });
    }
}

/// Returns an item after checking that all have the same type.
fn one_type<'a>(original: &'a [Value], patch: &'a [Value]) -> Result<&'a Value> {
    let mut all = original.iter().chain(patch);
    let first = all.next().ok_or_else(|| ApiError::unnamed("no elements in any of the given slices"))?;
    if first.is_array() {
        return Err(rejected());
    }
    if all.any(|item| go::type_name(item) != go::type_name(first)) {
        let lists = go::plain(&Value::from(vec![Value::from(original), Value::from(patch)]));
        return Err(ApiError::unnamed(format!("list element types are not identical: {lists}")));
    }
    Ok(first)
}

/// Removes directives; returns none if the value is one.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept = fields.into_iter().filter_map(|(key, value)| Some((key, without_directives(value)?)));
            Some(kept.collect::<Fields>().into())
        }
        Value::Array(items) => Some(items.into_iter().filter_map(without_directives).collect()),
        scalar => Some(scalar),
    }
}

fn no_merge_key(item: &Fields, key: &str) -> ApiError {
    let item = go::plain(&item.clone().into());
    ApiError::unnamed(format!("map: {item} does not contain declared merge key: {key}"))
}

fn unknown_directive(directive: &Value, item: &Fields) -> ApiError {
    let item = go::plain(&item.clone().into());
    ApiError::unnamed(format!("unknown patch type: {} in map: {item}", go::plain(directive)))
}

fn bad_type(expected: &str, found: &Value) -> ApiError {
    ApiError::unnamed(format!("expected a {expected}, but received a {}", go::type_name(found)))
}
