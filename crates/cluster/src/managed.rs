//! `metadata.managedFields`: which manager owns which fields.

use billhook_objects::wellknown::FIELD_MANAGER;
use billhook_plan::{Fingerprint, Tracked};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, ErrorKind};

/// An entry of `managedFields`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ManagedEntry {
    #[serde(skip_serializing_if = "Option::is_none")]
    manager: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subresource: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields_v1: Option<Box<RawValue>>,
}

fn text(field: Option<&String>) -> &str {
    field.map_or("", String::as_str)
}

impl ManagedEntry {
    /// Whether it has what this manager has applied.
    fn is_applied_by(&self, manager: &str) -> bool {
        text(self.manager.as_ref()) == manager
            && text(self.operation.as_ref()) == "Apply"
            && text(self.subresource.as_ref()).is_empty()
    }

    /// Whether it has what a manager of billhook has applied: that of a release, or the common one of earlier versions.
    fn is_applied_by_billhook(&self) -> bool {
        let manager = text(self.manager.as_ref());
        is_of_billhook(manager) && self.is_applied_by(manager)
    }

    /// Returns what counts for the fingerprint. The time of others does not: they may write their fields again and again.
    fn counted(&self) -> [&str; 6] {
        let ours = is_of_billhook(text(self.manager.as_ref()));
        [
            text(self.manager.as_ref()),
            text(self.operation.as_ref()),
            text(self.api_version.as_ref()),
            text(self.subresource.as_ref()),
            if ours { text(self.time.as_ref()) } else { "" },
            self.fields_v1.as_ref().map_or("", |fields| fields.get()),
        ]
    }
}

fn is_of_billhook(manager: &str) -> bool {
    manager.strip_prefix(FIELD_MANAGER).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns what an apply compares of an object with this generation and these entries.
pub(crate) fn tracked(generation: Option<i64>, entries: &[ManagedEntry]) -> Tracked {
    let outside_status = entries.iter().filter(|entry| text(entry.subresource.as_ref()) != "status");
    let mut counted: Vec<_> = outside_status.map(ManagedEntry::counted).collect();
    // The server sorts the entries by their times.
    counted.sort_unstable();
    let mut digest = Sha256::new();
    digest.update(generation.unwrap_or_default().to_be_bytes());
    for part in counted.iter().flatten() {
        digest.update(part.as_bytes());
        digest.update([0]);
    }
    let mut fingerprint = [0; 16];
    fingerprint.copy_from_slice(&digest.finalize()[..16]);
    let ours = entries.iter().filter(|entry| entry.is_applied_by_billhook());
    let managers = ours.map(|entry| text(entry.manager.as_ref()).to_owned()).collect();
    Tracked { fingerprint: Fingerprint::new(fingerprint), managers }
}

/// Whether a manager owns fields.
pub(crate) fn owns_fields(manager: &str, entries: &[ManagedEntry]) -> bool {
    entries.iter().any(|entry| text(entry.manager.as_ref()) == manager)
}

/// Returns the manager that wrote first; none if it is not known.
fn creator(entries: &[ManagedEntry]) -> Option<&str> {
    let first = entries.iter().min_by_key(|entry| entry.time.as_ref())?;
    first.manager.as_deref().filter(|manager| !manager.is_empty())
}

/// Returns the error for an object that another client has created or recreated.
pub(crate) fn not_as_seen(what: &str, recreated: bool, entries: &[ManagedEntry]) -> Error {
    let how = if recreated { "recreated" } else { "created" };
    let by = creator(entries).unwrap_or("another client");
    Error::new(what, ErrorKind::NotAsSeen).because(format!("it was {how} by {by} in the meantime"))
}

/// Returns the entries after `manager` has taken over what the `former` managers have applied; none if that is nothing.
pub(crate) fn taken_over(
    mut entries: Vec<ManagedEntry>,
    manager: &str,
    former: &[String],
) -> Option<Vec<ManagedEntry>> {
    let is_former = |entry: &ManagedEntry| former.iter().any(|former| entry.is_applied_by(former));
    let mut any = false;
    while let Some(at) = entries.iter().position(is_former) {
        any = true;
        let mut taken = entries.remove(at);
        match entries.iter_mut().find(|entry| entry.is_applied_by(manager)) {
            // The fields of both, so that an apply removes those that its manifest does not have.
            Some(own) => own.fields_v1 = union(own.fields_v1.as_deref(), taken.fields_v1.as_deref()),
            None => {
                taken.manager = Some(manager.to_owned());
                entries.insert(at, taken);
            }
        }
    }
    any.then_some(entries)
}

fn union(one: Option<&RawValue>, other: Option<&RawValue>) -> Option<Box<RawValue>> {
    let read = |fields: Option<&RawValue>| {
        fields.and_then(|fields| serde_json::from_str::<Value>(fields.get()).ok()).unwrap_or_default()
    };
    let mut both = read(one);
    unite(&mut both, read(other));
    serde_json::value::to_raw_value(&both).ok()
}

fn unite(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                unite(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) if into.is_null() => *into = from,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(manager: &str, operation: &str, subresource: &str, time: u32, fields: Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "v1", "subresource": subresource,
            "time": format!("2026-01-01T00:00:{time:02}Z"), "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn read(entries: &[Value]) -> Vec<ManagedEntry> {
        // As from an answer: raw text.
        serde_json::from_str(&json!(entries).to_string()).unwrap()
    }

    fn own(time: u32, fields: Value) -> Value {
        entry("billhook/a/web", "Apply", "", time, fields)
    }

    #[test]
    fn the_fingerprint_ignores_the_status_and_the_times_of_others() {
        let fingerprint = |generation, entries: &[Value]| tracked(Some(generation), &read(entries)).fingerprint;
        let ours = own(1, json!({"f:data": {"f:a": {}}}));
        let status = |time| entry("controller", "Update", "status", time, json!({"f:status": {}}));
        let other = |time| entry("kubectl-edit", "Update", "", time, json!({"f:data": {"f:b": {}}}));
        let before = fingerprint(1, &[ours.clone(), other(2)]);
        assert_eq!(before, fingerprint(1, &[ours.clone(), other(2), status(3)]));
        assert_eq!(before, fingerprint(1, &[ours.clone(), status(3), other(9)]));
        assert_eq!(before, fingerprint(1, &[other(0), ours.clone()]));
        for (generation, entries) in [
            (2, vec![ours.clone(), other(2)]),
            (1, vec![ours.clone()]),
            (1, vec![own(2, json!({"f:data": {"f:a": {}}})), other(2)]),
            (1, vec![own(1, json!({"f:data": {}})), other(2)]),
            (1, vec![ours.clone(), other(2), entry("hpa", "Update", "scale", 2, json!({"f:spec": {}}))]),
        ] {
            assert_ne!(before, fingerprint(generation, &entries), "{generation} {entries:?}");
        }
    }

    #[test]
    fn the_fields_of_former_managers_are_taken_over() {
        let former = ["billhook".to_owned(), "billhook/a/gone".to_owned()];
        let check = |entries: &[Value], expected: Option<Vec<Value>>| {
            let taken = taken_over(read(entries), "billhook/a/web", &former).map(|entries| json!(entries));
            assert_eq!(taken, expected.map(Value::from), "{entries:?}");
        };
        let by = |manager: &str, fields: Value| entry(manager, "Apply", "", 1, fields);
        let fields = json!({"f:data": {"f:a": {}}});
        let other = entry("billhook", "Update", "", 2, json!({"f:data": {"f:b": {}}}));
        check(&[by("billhook", fields.clone()), other.clone()], Some(vec![own(1, fields.clone()), other.clone()]));
        check(std::slice::from_ref(&other), None);
        check(&[own(1, fields.clone()), other, by("billhook/a/there", fields.clone())], None);
        let both = json!({"f:data": {".": {}, "f:a": {}, "f:c": {}}});
        let newer = own(3, json!({"f:data": {".": {}, "f:c": {}}}));
        check(&[by("billhook", fields.clone()), newer.clone()], Some(vec![own(3, both.clone())]));
        let gone = by("billhook/a/gone", fields.clone());
        check(&[by("billhook", fields.clone()), gone.clone(), newer], Some(vec![own(3, both)]));
        let managers = |entries: &[Value]| tracked(None, &read(entries)).managers;
        let updated = entry("billhook/a/web", "Update", "", 1, fields.clone());
        assert_eq!(managers(&[by("billhook", fields.clone()), gone, updated]), ["billhook", "billhook/a/gone"]);
        assert_eq!(managers(&[by("billhooks", fields)]), [""; 0]);
    }

    #[test]
    fn the_first_writer_is_the_creator() {
        let entries = read(&[own(3, json!({})), entry("kubectl-create", "Update", "", 1, json!({}))]);
        assert_eq!(creator(&entries), Some("kubectl-create"));
        assert_eq!(creator(&[]), None);
        assert!(owns_fields("billhook/a/web", &entries) && !owns_fields("billhook/a", &entries));
    }
}
