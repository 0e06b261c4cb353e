//! Removal of fields that a manager applied before and no longer applies.

use serde_json::{Map, Value};

use super::{
    fields::Set,
    typed::{Shape, Typed, to_set},
};

/// Returns the fields to remove: those that were applied `last` and are in none of the sets `kept`.
pub(super) fn outdated(typed: Typed<'_>, merged: &Value, last: &Set, kept: &Set) -> Set {
    let mut last = last.clone();
    name_members(typed, &mut last);
    let mut kept = kept.clone();
    name_members(typed, &mut kept);
    let all = members(typed, merged);
    // All fields except those applied last, plus all that are owned.
    kept.unite(members(typed, &remove(typed, merged.clone(), &last, Emptied::Null)));
    let mut loose = all.clone();
    loose.subtract(&kept);
    // Fields without owner remain unless they were applied.
    let rest = members(typed, &remove(typed, merged.clone(), &loose, Emptied::Null));
    let mut gone = all;
    gone.subtract(&rest);
    gone.intersection(&last)
}

fn members(typed: Typed<'_>, value: &Value) -> Set {
    let mut set = to_set(typed, value).1;
    name_members(typed, &mut set);
    set
}

/// Adds non-empty fields that the type declares, which sets leave out.
fn name_members(typed: Typed<'_>, set: &mut Set) {
    set.visit(&mut |element, node| {
        let inner = match element.strip_prefix("f:") {
            Some(name) => {
                let (inner, named) = typed.field(name);
                node.member |= named && !node.children.is_empty();
                inner
            }
            None => typed.items(),
        };
        name_members(inner, &mut node.children);
    });
}

/// What replaces a map or list from which everything was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emptied {
    /// A null, for the comparison of owners.
    Null,
    /// Nothing: the field is removed as well.
    Gone,
}

/// Removes fields and items.
pub(super) fn remove(typed: Typed<'_>, value: Value, set: &Set, emptied: Emptied) -> Value {
    let shape = typed.shape(&value);
    match (shape, value) {
        (Shape::Scalar, value) => value,
        (Shape::Map, Value::Object(fields)) if !typed.is_atomic(shape) => remove_fields(typed, fields, set, emptied),
        (Shape::List, Value::Array(items)) if !typed.is_atomic(shape) => remove_items(typed, items, set, emptied),
        _ => Value::Null,
    }
}

fn remove_fields(typed: Typed<'_>, mut fields: Map<String, Value>, set: &Set, emptied: Emptied) -> Value {
    let mut nulls = Vec::new();
    for (element, node) in set.nodes() {
        let Some(name) = element.strip_prefix("f:") else { continue };
        if node.member {
            fields.remove(name);
        } else if let Some(value) = fields.get_mut(name) {
            *value = remove(typed.field(name).0, value.take(), &node.children, emptied);
            if value.is_null() && emptied == Emptied::Gone {
                nulls.push(name);
            }
        }
    }
    if fields.is_empty() {
        return Value::Null;
    }
    for name in nulls {
        fields.remove(name);
    }
    fields.into()
}

fn remove_items(typed: Typed<'_>, items: Vec<Value>, set: &Set, emptied: Emptied) -> Value {
    let mut left = Vec::with_capacity(items.len());
    let mut any = false;
    for item in items {
        let node = typed.element(&item).ok().and_then(|element| set.get(&element));
        let item = match node {
            Some(node) if node.member => continue,
            Some(node) => remove(typed.items(), item, &node.children, emptied),
            None => item,
        };
        any = true;
        if !(item.is_null() && node.is_some() && emptied == Emptied::Gone) {
            left.push(item);
        }
    }
    if any { left.into() } else { Value::Null }
}
