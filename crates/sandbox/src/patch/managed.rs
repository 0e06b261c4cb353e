//! The entries of `managedFields`.

use std::{borrow::Cow, collections::HashMap};

use serde_json::{Map, Value, json};

use super::{Manager, fields::Set};
use crate::object::metadata_mut;

/// The limit of managers of updates, beyond which the oldest are combined.
const MAX_UPDATERS: usize = 10;

/// The manager under which the oldest are combined.
const ANCIENT: &str = "ancient-changes";

/// The operation of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Operation {
    Apply,
    Update,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Apply => "Apply",
            Self::Update => "Update",
        }
    }
}

/// The fields of an entry, parsed when they are needed.
#[derive(Clone, Debug)]
pub(super) enum Fields<'a> {
    Written(&'a Value),
    Read(Set),
}

/// The fields that a manager owns.
#[derive(Clone, Debug)]
pub(super) struct Entry<'a> {
    pub(super) manager: String,
    pub(super) operation: Operation,
    pub(super) api_version: String,
    pub(super) subresource: String,
    pub(super) time: Option<String>,
    pub(super) fields: Fields<'a>,
}

impl<'a> Entry<'a> {
    pub(super) fn new(manager: Manager<'_>, operation: Operation, set: Set) -> Self {
        Self {
            manager: manager.name.to_owned(),
            operation,
            api_version: manager.api_version.to_owned(),
            subresource: manager.subresource.unwrap_or_default().to_owned(),
            time: Some(manager.time.to_owned()),
            fields: Fields::Read(set),
        }
    }

    fn read(json: &'a Value) -> Option<Self> {
        let text = |field: &str| json[field].as_str().unwrap_or_default();
        let operation = match text("operation") {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let fields = match json.get("fieldsV1").filter(|fields| !fields.is_null()) {
            Some(fields) => Fields::Written(fields),
            None => Fields::Read(Set::default()),
        };
        (text("fieldsType") == "FieldsV1" && !text("apiVersion").is_empty()).then(|| Self {
            manager: text("manager").to_owned(),
            operation,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
            time: json["time"].as_str().map(str::to_owned),
            fields,
        })
    }

    fn write(&self) -> Value {
        let fields = match &self.fields {
            Fields::Written(json) => (*json).clone(),
            Fields::Read(set) => set.write(),
        };
        let mut entry = Map::new();
        for (key, text) in [("manager", &self.manager), ("subresource", &self.subresource)] {
            if !text.is_empty() {
                entry.insert(key.to_owned(), text.as_str().into());
            }
        }
        entry.insert("operation".to_owned(), self.operation.name().into());
        entry.insert("apiVersion".to_owned(), self.api_version.as_str().into());
        if let Some(time) = &self.time {
            entry.insert("time".to_owned(), time.as_str().into());
        }
        entry.insert("fieldsType".to_owned(), "FieldsV1".into());
        entry.insert("fieldsV1".to_owned(), fields);
        entry.into()
    }

    pub(super) fn set(&self) -> Cow<'_, Set> {
        match &self.fields {
            Fields::Written(json) => Cow::Owned(Set::read(json).unwrap_or_default()),
            Fields::Read(set) => Cow::Borrowed(set),
        }
    }

    /// Changes the fields.
    pub(super) fn change(&mut self, change: impl FnOnce(&mut Set)) {
        let mut set = match &mut self.fields {
            Fields::Written(json) => Set::read(json).unwrap_or_default(),
            Fields::Read(set) => std::mem::take(set),
        };
        change(&mut set);
        self.fields = Fields::Read(set);
    }

    pub(super) fn owns_nothing(&self) -> bool {
        match &self.fields {
            Fields::Written(json) => json.as_object().is_none_or(Map::is_empty),
            Fields::Read(set) => set.is_empty(),
        }
    }

    /// Returns whether this is the entry of a manager. Applies have one entry for all versions.
    pub(super) fn is_of(&self, manager: Manager<'_>, operation: Operation) -> bool {
        self.operation == operation
            && self.manager == manager.name
            && self.subresource == manager.subresource.unwrap_or_default()
            && (operation == Operation::Apply || self.api_version == manager.api_version)
    }

    /// Returns the identity of the entry, by which managers are also sorted.
    pub(super) fn identifier(&self) -> String {
        let version = if self.operation == Operation::Update { self.api_version.as_str() } else { "" };
        let parts = [
            ("manager", self.manager.as_str()),
            ("operation", self.operation.name()),
            ("apiVersion", version),
            ("subresource", self.subresource.as_str()),
        ];
        let parts: Vec<_> = parts.iter().filter(|(_, text)| !text.is_empty()).collect();
        parts.iter().map(|(key, text)| format!("\"{key}\":{}", json!(text))).collect::<Vec<_>>().join(",")
    }

    /// Returns the manager as in messages.
    pub(super) fn shown(&self) -> String {
        let mut shown = json!(self.manager).to_string();
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {}", json!(self.subresource));
        }
        match self.operation {
            Operation::Update => format!("{shown} using {}", self.api_version),
            Operation::Apply => shown,
        }
    }
}

/// Returns the `managedFields` of an object.
pub(super) fn list(object: &Value) -> Option<&Value> {
    object["metadata"].get("managedFields").filter(|list| !list.is_null())
}

/// Parses `managedFields`; none if an entry is malformed.
pub(super) fn read(list: &Value) -> Option<Vec<Entry<'_>>> {
    list.as_array()?.iter().map(Entry::read).collect()
}

/// Parses `managedFields` from a client, including all fields.
pub(super) fn read_all(list: &Value) -> Option<Vec<Entry<'_>>> {
    let mut entries = read(list)?;
    for entry in &mut entries {
        if let Fields::Written(json) = entry.fields {
            entry.fields = Fields::Read(Set::read(json)?);
        }
    }
    Some(entries)
}

/// Writes the entries in the API server's order.
pub(super) fn write(object: &mut Value, mut entries: Vec<Entry<'_>>) {
    let metadata = metadata_mut(object);
    if entries.is_empty() {
        metadata.remove("managedFields");
        return;
    }
    fn order<'e>(entry: &'e Entry<'_>) -> (Operation, Option<&'e str>, &'e str, &'e str, &'e str) {
        (entry.operation, entry.time.as_deref(), &entry.manager, &entry.api_version, &entry.subresource)
    }
    entries.sort_by(|one, other| order(one).cmp(&order(other)));
    metadata.insert("managedFields".to_owned(), entries.iter().map(Entry::write).collect());
}

/// Removes and returns the `managedFields` of an object.
pub(super) fn take(object: &mut Value) -> Option<Value> {
    metadata_mut(object).remove("managedFields").filter(|list| !list.is_null())
}

/// Combines the oldest managers of updates if there are too many.
pub(super) fn cap(entries: &mut Vec<Entry<'_>>) {
    let is_update = |entry: &Entry<'_>| entry.operation == Operation::Update;
    let mut count = entries.iter().filter(|entry| is_update(entry)).count();
    if count <= MAX_UPDATERS {
        return;
    }
    let mut oldest: Vec<_> = entries.iter().filter(|entry| is_update(entry)).collect();
    oldest.sort_by_cached_key(|entry| (entry.time.clone(), entry.identifier()));
    let oldest: Vec<_> = oldest.into_iter().map(Entry::identifier).collect();
    // The identity of the entry into which the others of a version are combined.
    let mut firsts: HashMap<String, String> = HashMap::new();
    for identifier in oldest {
        if count <= MAX_UPDATERS {
            return;
        }
        let Some(at) = entries.iter().position(|entry| entry.identifier() == identifier) else { continue };
        let version = entries[at].api_version.clone();
        let Some(bucket) = firsts.get(&version).cloned() else {
            firsts.insert(version, identifier);
            continue;
        };
        let old = entries.remove(at);
        if let Some(bucket) = entries.iter_mut().find(|entry| entry.identifier() == bucket) {
            let set = old.set().into_owned();
            bucket.change(|fields| fields.unite(set));
            (bucket.manager, bucket.subresource, bucket.time) = (ANCIENT.to_owned(), String::new(), old.time);
            firsts.insert(version, bucket.identifier());
        }
        count -= 1;
    }
}

/// Restores the times in `managedFields` if only these have changed, so that the write has no effect.
pub(crate) fn keep_times(old: &Value, new: &mut Value) {
    let (Some(Value::Array(before)), Some(Value::Array(after))) = (list(old), list(new)) else { return };
    if before == after || before.len() != after.len() {
        return;
    }
    let untimed = |entry: &Value| Entry::read(entry).map(|entry| Entry { time: None, ..entry }.write());
    if !before.iter().zip(after).all(|(before, after)| untimed(before) == untimed(after)) {
        return;
    }
    let before = Value::Array(before.clone());
    let Some(after) = take(new) else { return };
    metadata_mut(new).insert("managedFields".to_owned(), before);
    if new != old {
        metadata_mut(new).insert("managedFields".to_owned(), after);
    }
}
