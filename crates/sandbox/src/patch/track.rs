//! Ownership of fields after writes other than server-side apply.

use serde_json::Value;

use super::{
    Manager,
    fields::Set,
    managed::{self, Entry, Operation},
    typed::{Changes, Typed, changes},
};
use crate::schema::Schema;

/// Records in the `managedFields` of `new` what the manager changed.
///
/// `new` must be complete. Nothing is converted between versions: entries of other versions keep their fields as they
/// are.
pub(crate) fn track(old: Option<&Value>, new: &mut Value, schema: &Schema, manager: Manager<'_>) {
    let manager = named(manager);
    let sent = managed::take(new);
    let live = old.and_then(managed::list);
    let mut entries = known(live, sent.as_ref(), manager.subresource.is_some());
    if entries.is_empty() && old.is_some() {
        // Without earlier records, ownership starts with the first server-side apply.
        return;
    }
    let changes = changes(Typed::root(schema), old, new);
    if !changes.is_empty() {
        take_over(&mut entries, changes, manager);
        managed::cap(&mut entries);
    }
    managed::write(new, entries);
}

/// Returns the manager with a name, `unknown` if it has none.
pub(super) fn named(manager: Manager<'_>) -> Manager<'_> {
    Manager { name: if manager.name.is_empty() { "unknown" } else { manager.name }, ..manager }
}

/// Returns the entries before the write; none if the client resets them.
fn known<'a>(live: Option<&'a Value>, sent: Option<&'a Value>, subresource: bool) -> Vec<Entry<'a>> {
    let live = || live.and_then(managed::read).unwrap_or_default();
    let Some(sent) = sent.filter(|_| !subresource) else { return live() };
    match sent.as_array().map(Vec::as_slice) {
        Some([]) => Vec::new(),
        Some([Value::Object(entry)]) if entry.values().all(is_nothing) => Vec::new(),
        _ => managed::read_all(sent).unwrap_or_else(live),
    }
}

fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty)
}

/// Assigns the changed fields to the manager and takes them away from all others.
fn take_over(entries: &mut Vec<Entry<'_>>, changes: Changes, manager: Manager<'_>) {
    let mut own = changes.modified;
    own.unite(changes.added);
    for entry in &mut *entries {
        entry.change(|set| {
            set.subtract(&own);
            set.subtract(&changes.removed);
        });
    }
    entries.retain(|entry| !entry.owns_nothing());
    own.subtract(&unowned());
    if own.is_empty() {
        return;
    }
    match entries.iter_mut().find(|entry| entry.is_of(manager, Operation::Update)) {
        Some(entry) => {
            entry.change(|set| set.unite(own));
            entry.time = Some(manager.time.to_owned());
        }
        None => entries.push(Entry::new(manager, Operation::Update, own)),
    }
}

/// Returns the fields that nobody owns.
pub(super) fn unowned() -> Set {
    Set::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}
