//! The condition `Created` of DNSRecords: whether the record was created at least once. One that never was is deleted without a call
//! of the actuator, since its credentials may never have worked.
//!
//! Gardener's library has this for DNSRecords only (gardener/gardener, extensions/pkg/controller/dnsrecord/reconciler.go).

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    dispatch::{Action, DNS_RECORD},
    object::CREATED,
    status::{StatusOf, time},
};

/// Adds the condition to the patch of a status that reports the result of a call. A failure says something only as long as
/// nothing is known. `object` is the object as it is.
pub(crate) fn add(patch: &mut Value, of: &StatusOf<'_>, object: &Value, succeeded: bool, now: Timestamp) {
    // What is to be restored was created on another seed.
    if of.kind != DNS_RECORD || !matches!((of.run.action, succeeded), (Action::Reconcile, _) | (Action::Restore, true))
    {
        return;
    }
    // A merge patch replaces the whole list. The actuator may have set conditions, too.
    let conditions = patch.get("conditions").or_else(|| object.pointer("/status/conditions"));
    let mut conditions = conditions.and_then(Value::as_array).cloned().unwrap_or_default();
    let at = conditions.iter().position(|condition| condition["type"] == CREATED);
    if at.is_some_and(|at| !succeeded || conditions[at]["status"] == "True") {
        return;
    }
    let (status, reason, message) = match succeeded {
        true => ("True", "Success", "The record has been created at least once"),
        false => ("False", "Error", "The record could not be created"),
    };
    let condition = json!({
        "type": CREATED, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": time(now), "lastUpdateTime": time(now),
    });
    match at {
        Some(at) => conditions[at] = condition,
        None => conditions.push(condition),
    }
    patch["conditions"] = Value::Array(conditions);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dispatch::Run, object::OperationType};

    fn now() -> Timestamp {
        "2026-01-02T03:04:05Z".parse().unwrap()
    }

    /// Returns type, status and time of each condition in the patch that follows these conditions of the object.
    fn patched(kind: &str, action: Action, conditions: &Value, succeeded: bool, mut patch: Value) -> Vec<String> {
        let of = StatusOf { kind, run: Run { action, operation: OperationType::Reconcile, add_finalizer: false } };
        add(&mut patch, &of, &json!({"status": {"conditions": conditions}}), succeeded, now());
        let all = patch["conditions"].as_array().cloned().unwrap_or_default();
        let text = |condition: &Value, field: &str| condition[field].as_str().unwrap_or("-").to_owned();
        all.iter().map(|c| ["type", "status", "lastTransitionTime"].map(|field| text(c, field)).join(" ")).collect()
    }

    #[test]
    fn it_becomes_true_and_remains_so() {
        const NOW: &str = "2026-01-02T03:04:05Z";
        let old = |status: &str| json!([{"type": "Other", "status": "True"}, {"type": CREATED, "status": status}]);
        let check = |conditions: &Value, succeeded: bool, expected: &[String]| {
            let found = patched(DNS_RECORD, Action::Reconcile, conditions, succeeded, json!({}));
            assert_eq!(found, expected, "{conditions} {succeeded}");
        };
        check(&Value::Null, true, &[format!("Created True {NOW}")]);
        check(&Value::Null, false, &[format!("Created False {NOW}")]);
        check(&old("False"), true, &["Other True -".to_owned(), format!("Created True {NOW}")]);
        check(&old("Unknown"), true, &["Other True -".to_owned(), format!("Created True {NOW}")]);
        // Nothing changes.
        check(&old("False"), false, &[]);
        check(&old("True"), false, &[]);
        check(&old("True"), true, &[]);
    }

    #[test]
    fn conditions_of_the_actuator_are_kept() {
        let own = || json!({"conditions": [{"type": "Own", "status": "False"}]});
        let found = patched(DNS_RECORD, Action::Restore, &Value::Null, true, own());
        assert_eq!(found, ["Own False -", "Created True 2026-01-02T03:04:05Z"]);
    }

    #[test]
    fn other_kinds_and_other_calls_do_not_set_it() {
        assert!(patched("Infrastructure", Action::Reconcile, &Value::Null, true, json!({})).is_empty());
        for action in [Action::Delete, Action::ForceDelete, Action::Migrate] {
            assert!(patched(DNS_RECORD, action, &Value::Null, true, json!({})).is_empty(), "{action:?}");
        }
    }
}
