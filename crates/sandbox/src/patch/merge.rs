//! Merging of applied values.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use super::typed::{Shape, Typed, same};

/// Merges `right` into `left`. Maps and lists are merged unless they are atomic; otherwise `right` replaces `left`.
pub(super) fn merge(typed: Typed<'_>, left: Value, right: &Value) -> Value {
    let shape = typed.shape(right);
    if typed.is_atomic(shape) {
        return if same(&left, right) { left } else { right.clone() };
    }
    match (shape, left, right) {
        (Shape::Map, Value::Object(mut left), Value::Object(right)) if !(left.is_empty() && right.is_empty()) => {
            merge_maps(typed, &mut left, right);
            left.into()
        }
        (Shape::List, Value::Array(left), Value::Array(right)) if !(left.is_empty() && right.is_empty()) => {
            merge_lists(typed, left, right)
        }
        // A null does not clear a map or list.
        (Shape::Map, Value::Object(left), Value::Null) if !left.is_empty() => left.into(),
        (Shape::List, Value::Array(left), Value::Null) if !left.is_empty() => left.into(),
        _ => right.clone(),
    }
}

fn merge_maps(typed: Typed<'_>, left: &mut Map<String, Value>, right: &Map<String, Value>) {
    for (name, value) in right {
        match left.get_mut(name) {
            Some(there) => *there = merge(typed.field(name).0, there.take(), value),
            None => drop(left.insert(name.clone(), value.clone())),
        }
    }
}

/// Merges lists. The items of `left` keep their order unless `right` has them in another.
fn merge_lists(typed: Typed<'_>, left: Vec<Value>, right: &[Value]) -> Value {
    let elements = |items: &[Value]| items.iter().map(|item| typed.element(item)).collect::<Result<Vec<_>, _>>();
    let (Ok(left_elements), Ok(right_elements)) = (elements(&left), elements(right)) else {
        return right.into();
    };
    let at_right: HashSet<_> = right_elements.iter().collect();
    let mut at_left: HashMap<_, usize> = HashMap::new();
    let mut twice = HashSet::new();
    for (at, element) in left_elements.iter().enumerate() {
        if at_left.insert(element, at).is_some() {
            twice.insert(element);
        }
    }
    let mut shared: VecDeque<_> = right_elements.iter().filter(|element| at_left.contains_key(element)).collect();
    let mut next = shared.pop_front();
    let mut left: Vec<_> = left.into_iter().map(Some).collect();
    let (mut merged, mut out) = (HashSet::new(), Vec::with_capacity(left.len().max(right.len())));
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if let Some(element) = left_elements.get(l) {
            let differs = right_elements.get(r).is_some_and(|right| right != element);
            if differs && at_right.contains(element) && next.is_some_and(|next| next != element) {
                // The item follows later, in the order of `right`.
                l += 1;
                continue;
            }
            if !at_right.contains(element) {
                out.extend(left[l].take());
                l += 1;
                continue;
            }
            if merged.contains(element) || right_elements.get(r) == Some(element) {
                l += 1;
            }
        }
        if let Some(element) = right_elements.get(r) {
            merged.insert(element);
            // Duplicate items are replaced.
            let there = at_left.get(element).filter(|_| !twice.contains(element)).and_then(|at| left[*at].take());
            out.push(match there {
                Some(there) => merge(typed.items(), there, &right[r]),
                None => right[r].clone(),
            });
            r += 1;
            if next == Some(element) {
                next = shared.pop_front();
            }
        }
    }
    out.into()
}
