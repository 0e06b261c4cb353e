//! Server-side apply.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Map, Value};

use super::{
    Manager,
    fields::Set,
    go,
    managed::{self, Entry, Operation},
    merge::merge,
    prune::{Emptied, outdated, remove},
    track::{named, unowned},
    typed::{Changes, Typed, changes, same, to_set},
    validate::validate,
};
use crate::{
    object::metadata_mut,
    schema::Schema,
    status::{ApiError, Cause},
};

/// The annotation with the object that client-side `kubectl apply` last applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manager that may take over the fields of client-side `kubectl apply`.
const KUBECTL: &str = "kubectl";

/// The manager of the fields that an object had before its first server-side apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Merges an applied object into the stored one.
///
/// Nothing is converted between versions: entries of other versions keep their fields as they are.
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    schema: &Schema,
    manager: Manager<'_>,
    force: bool,
) -> Result<Value, ApiError> {
    let typed = Typed::root(schema);
    check(live, applied, typed, manager)?;
    let manager = named(manager);
    let mut entries = live.and_then(managed::list).and_then(managed::read).unwrap_or_default();
    if let Some(live) = live.filter(|_| entries.is_empty()) {
        let mut set = changes(typed, None, live).added;
        set.subtract(&unowned());
        let first = Manager { name: BEFORE_FIRST_APPLY, ..manager };
        entries.extend((!set.is_empty()).then(|| Entry::new(first, Operation::Update, set)));
    }
    let own = entries.iter().position(|entry| entry.is_of(manager, Operation::Apply)).map(|at| entries.remove(at));
    let set = to_set(typed, applied).1;
    let mut object = match live {
        Some(live) => merged(typed, live, applied),
        None => applied.clone(),
    };
    let mut changed = true;
    if let Some(live) = live {
        let gone = own.as_ref().map(|own| to_remove(typed, &object, own, &set, &entries)).unwrap_or_default();
        let compared = if gone.is_empty() {
            Cow::Borrowed(&object)
        } else {
            Cow::Owned(remove(typed, object.clone(), &gone, Emptied::Null))
        };
        let changes = changes(typed, Some(live), &compared);
        let allowed = || if manager.name == KUBECTL { applied_by_kubectl(typed, live, manager) } else { None };
        take_over(&mut entries, &changes, force, allowed)?;
        changed = !same_but_managed(live, &compared);
        if !gone.is_empty() {
            // Kubernetes' own kinds have no nulls. In custom resources, a null is rejected later unless the field is
            // nullable.
            let emptied = if typed.builtin { Emptied::Gone } else { Emptied::Null };
            object = remove(typed, object, &gone, emptied);
        }
    }
    entries.extend(owned(own, set, manager, changed));
    managed::write(&mut object, entries);
    if manager.name == KUBECTL {
        renew_last_applied(&mut object, applied);
    }
    Ok(object)
}

/// Rejects invalid applied objects.
fn check(live: Option<&Value>, applied: &Value, typed: Typed<'_>, manager: Manager<'_>) -> Result<(), ApiError> {
    let text = |object: &Value, field: &str| object[field].as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(applied, "apiVersion"), text(applied, "kind"));
    let group_version = if version.contains('/') { version.clone() } else { format!("/{version}") };
    if version != manager.api_version || live.is_some_and(|live| text(live, "kind") != kind) {
        return Err(ApiError::bad_request(format!("invalid object type: {group_version}, Kind={kind}")));
    }
    if managed::list(applied).is_some() {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    validate(typed, applied).map_err(|error| {
        let (namespace, name) = (text(&applied["metadata"], "namespace"), text(&applied["metadata"], "name"));
        let object = format!("{namespace}/{name}; {group_version}, Kind={kind}");
        ApiError::unnamed(format!("failed to create typed patch object ({object}): {error}"))
    })
}

/// Returns the stored object merged with the applied one, without `managedFields`.
fn merged(typed: Typed<'_>, live: &Value, applied: &Value) -> Value {
    let mut object = merge(typed, without_managed(live), applied);
    // Tools write a null if they do not know the time.
    let created = &applied["metadata"]["creationTimestamp"];
    if created.is_null() && applied["metadata"].get("creationTimestamp").is_some() {
        metadata_mut(&mut object).insert("creationTimestamp".to_owned(), live["metadata"]["creationTimestamp"].clone());
    }
    object
}

fn without_managed(object: &Value) -> Value {
    let copy = |fields: &Map<String, Value>, change: &dyn Fn(&str, &Value) -> Option<Value>| {
        fields.iter().filter_map(|(key, value)| Some((key.clone(), change(key, value)?))).collect::<Map<_, _>>()
    };
    let metadata = |key: &str, value: &Value| (key != "managedFields").then(|| value.clone());
    let root = |key: &str, value: &Value| match value {
        Value::Object(fields) if key == "metadata" => Some(copy(fields, &metadata).into()),
        value => Some(value.clone()),
    };
    object.as_object().map(|fields| copy(fields, &root).into()).unwrap_or_default()
}

/// Returns whether two objects are the same apart from `managedFields` in the old one.
fn same_but_managed(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return false };
    old.len() == new.len()
        && old.iter().all(|(key, before)| match (before, new.get(key)) {
            (Value::Object(before), Some(Value::Object(after))) if key == "metadata" => {
                let known = before.iter().filter(|(key, _)| *key != "managedFields");
                let equal = |(key, before)| after.get(key).is_some_and(|after: &Value| same(before, after));
                known.clone().count() == after.len() && { known }.all(equal)
            }
            (before, after) => after.is_some_and(|after| same(before, after)),
        })
}

/// Returns the fields that the manager applied before and that no manager owns now.
fn to_remove(typed: Typed<'_>, object: &Value, own: &Entry<'_>, set: &Set, others: &[Entry<'_>]) -> Set {
    let last = own.set();
    if set.contains(&last) {
        return Set::default();
    }
    let mut kept = set.clone();
    for other in others {
        kept.unite(other.set().into_owned());
    }
    outdated(typed, object, &last, &kept)
}

/// Takes changed fields away from all other managers. Unless forced, fields that another manager owns must be
/// `allowed`.
fn take_over(
    others: &mut Vec<Entry<'_>>,
    changes: &Changes,
    force: bool,
    allowed: impl FnOnce() -> Option<Set>,
) -> Result<(), ApiError> {
    if changes.is_empty() {
        return Ok(());
    }
    let mut changed = changes.modified.clone();
    changed.unite(changes.added.clone());
    let mut conflicts: Vec<_> = others.iter().map(|other| (other, other.set().intersection(&changed))).collect();
    conflicts.retain(|(_, set)| !set.is_empty());
    if !force && !conflicts.is_empty() {
        let allowed = allowed().unwrap_or_default();
        conflicts.iter_mut().for_each(|(_, set)| set.subtract(&allowed));
        conflicts.retain(|(_, set)| !set.is_empty());
        if !conflicts.is_empty() {
            return Err(conflict(conflicts));
        }
    }
    for other in &mut *others {
        other.change(|set| {
            set.subtract(&changed);
            set.subtract(&changes.removed);
        });
    }
    others.retain(|other| !other.owns_nothing());
    Ok(())
}

/// Returns the error that lists all conflicts.
fn conflict(mut conflicts: Vec<(&Entry<'_>, Set)>) -> ApiError {
    conflicts.sort_by_cached_key(|(entry, _)| entry.identifier());
    let found: Vec<_> = conflicts.iter().map(|(entry, set)| (entry.shown(), set.paths())).collect();
    let cause = |who: &str, path: &str| Cause {
        reason: "FieldManagerConflict",
        field: path.to_owned(),
        message: format!("conflict with {who}"),
    };
    let causes: Vec<_> = found.iter().flat_map(|(who, paths)| paths.iter().map(|path| cause(who, path))).collect();
    let message = match causes.as_slice() {
        [one] => format!("Apply failed with 1 conflict: {}: {}", one.message, one.field),
        _ => {
            let lines = found.iter().flat_map(|(who, paths)| {
                let paths = paths.iter().map(|path| format!("- {path}"));
                std::iter::once(format!("conflicts with {who}:")).chain(paths)
            });
            format!("Apply failed with {} conflicts: {}", causes.len(), lines.collect::<Vec<_>>().join("\n"))
        }
    };
    ApiError::new(StatusCode::CONFLICT, "Conflict", message).causes(causes)
}

/// Returns the entry of the manager after the apply.
fn owned<'a>(before: Option<Entry<'a>>, mut set: Set, manager: Manager<'_>, changed: bool) -> Option<Entry<'a>> {
    set.subtract(&unowned());
    let mut entry = Entry::new(manager, Operation::Apply, set);
    if !changed {
        // An apply without effect does not change the time.
        entry.time = before.and_then(|before| before.time);
    }
    (!entry.owns_nothing()).then_some(entry)
}

/// Returns the fields that client-side `kubectl apply` set and that have not changed since. `kubectl apply
/// --server-side` may take them over.
fn applied_by_kubectl(typed: Typed<'_>, live: &Value, manager: Manager<'_>) -> Option<Set> {
    let text = live["metadata"]["annotations"][LAST_APPLIED].as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    if last["apiVersion"] != manager.api_version || validate(typed, &last).is_err() {
        return None;
    }
    let mut set = to_set(typed, &last).1;
    let changes = changes(typed, Some(&last), live);
    for changed in [changes.modified, changes.added, changes.removed] {
        set.subtract(&changed);
    }
    Some(set)
}

/// Updates the annotation of client-side `kubectl apply`, if it exists.
fn renew_last_applied(object: &mut Value, applied: &Value) {
    if object["metadata"]["annotations"][LAST_APPLIED].as_str().is_none_or(str::is_empty) {
        return;
    }
    let mut applied = applied.clone();
    if let Value::Object(annotations) = &mut applied["metadata"]["annotations"] {
        annotations.remove(LAST_APPLIED);
    } else if let Value::Object(metadata) = &mut applied["metadata"] {
        metadata.remove("annotations");
    }
    object["metadata"]["annotations"][LAST_APPLIED] = format!("{}\n", go::escape_html(&applied.to_string())).into();
}
