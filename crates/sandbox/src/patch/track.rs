//! Who owns what after a write that is not applied.

use serde_json::Value;

use super::{
    Manager,
    fields::Set,
    managed::{self, Entry, Operation},
    typed::{Changes, Typed, changes},
};
use crate::schema::Schema;

/// Notes in `managedFields` of `new` who changed what, for writes that are not applied.
///
/// `new` is as it will be stored. Fields of entries that name another version are taken as they are: nothing is
/// converted between versions.
pub(crate) fn track(old: Option<&Value>, new: &mut Value, schema: &Schema, manager: Manager<'_>) {
    let manager = named(manager);
    let sent = managed::take(new);
    let live = old.and_then(managed::list);
    let mut entries = known(live, sent.as_ref(), manager.subresource.is_some());
    if entries.is_empty() && old.is_some() {
        // Who owned what is not known, and so nobody is noted before something is applied.
        return;
    }
    let changes = changes(Typed::root(schema), old, new);
    if !changes.is_empty() {
        take_over(&mut entries, changes, manager);
        managed::cap(&mut entries);
    }
    managed::write(new, entries);
}

/// A manager always has a name.
pub(super) fn named(manager: Manager<'_>) -> Manager<'_> {
    Manager { name: if manager.name.is_empty() { "unknown" } else { manager.name }, ..manager }
}

/// The entries before the write; none if there are none, or the client resets them.
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

/// What changed is the manager's now, and nobody else's.
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

/// Fields that nobody owns.
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
