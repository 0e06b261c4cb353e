//! Taking away what a manager applied before and no longer applies.

use serde_json::{Map, Value};

use super::{
    fields::Set,
    typed::{Shape, Typed, to_set},
};

/// What is to go: what was applied `last` and now is in none of the sets that are `kept`.
pub(super) fn outdated(typed: Typed<'_>, merged: &Value, last: &Set, kept: &Set) -> Set {
    let mut last = last.clone();
    name_members(typed, &mut last);
    let mut kept = kept.clone();
    name_members(typed, &mut kept);
    let all = members(typed, merged);
    // Without what was applied last, but with all that someone owns.
    kept.unite(members(typed, &remove(typed, merged.clone(), &last, Emptied::Null)));
    let mut loose = all.clone();
    loose.subtract(&kept);
    // What nobody owns stays unless it was applied.
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

/// Adds the named fields in which something is: sets leave them out.
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

/// What becomes of a map or list from which everything was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Emptied {
    /// It is null, as it is when owners are compared.
    Null,
    /// It goes.
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
