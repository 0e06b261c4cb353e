//! What an object and the Events about it report about a failure.

use serde_json::Value;

use crate::{
    Fact, ObjectRef,
    case::{Case, happened_at},
    object::{self, Condition},
};

/// Words of messages about failures, in lower case.
const FAILURES: [&str; 22] = [
    "error",
    "fail",
    "cannot",
    "could not",
    "can't",
    "unable",
    "denied",
    "forbidden",
    "not found",
    "invalid",
    "refused",
    "timed out",
    "timeout",
    "unauthorized",
    "not authorized",
    "missing",
    "violate",
    "being terminated",
    "throttl",
    "blocked",
    "does not exist",
    "no such",
];

/// Returns what reports why the deletion of an object cannot be completed: the status first, then the newest Event that warns.
pub(crate) fn of(case: &Case<'_>, reference: &ObjectRef, value: &Value) -> Option<Fact> {
    let deleted = object::deleted_at(value);
    let events = case.warnings(value);
    let event = events.into_iter().find(|event| happened_at(event) >= deleted);
    in_status(reference, value).or_else(|| {
        let (event, message) = (event?, object::text(event?, "/message")?);
        let reason = object::text(event, "/reason").unwrap_or("Warning");
        Some(Fact::new(reference, format!("Event {reason}"), message))
    })
}

fn in_status(reference: &ObjectRef, value: &Value) -> Option<Fact> {
    let quote = |path: &str| {
        let text = object::text(value, &format!("/{}", path.replace('.', "/"))).filter(|text| !text.is_empty())?;
        Some(Fact::new(reference, path, text))
    };
    let failed = |path: &str| {
        let state = object::text(value, path)?.to_lowercase();
        ["error", "failed", "failure", "deletefailed", "deletionfailed"].contains(&state.as_str()).then_some(())
    };
    if let Some(fact) = quote("status.lastError.description").or_else(|| quote("status.lastError.message")) {
        return Some(fact);
    }
    if failed("/status/lastOperation/state").is_some() {
        return quote("status.lastOperation.description");
    }
    let condition =
        object::conditions(value).filter(|condition| reports_failure(*condition)).max_by_key(|c| c.is_false());
    if let Some(condition) = condition {
        return Some(Fact::new(reference, condition.path(), condition.shown()));
    }
    if failed("/status/phase").is_some() {
        return quote("status.message").or_else(|| quote("status.reason")).or_else(|| quote("status.phase"));
    }
    [
        "status.detachError.message",
        "status.error.message",
        "status.error",
        "status.errorMessage",
        "status.failureMessage",
        "status.message",
    ]
    .into_iter()
    .filter_map(quote)
    .find(|fact| is_failure(&fact.value))
}

/// Returns whether a condition says that something failed: it is false, or its type is that of a failure, and its words are those
/// of a failure. `Ready=False (Deleting)` is none.
fn reports_failure(condition: Condition<'_>) -> bool {
    let of_failure = ["Failed", "Failure", "Error", "Errored", "Stalled", "Degraded", "Blocked"];
    let is_negative = of_failure.iter().any(|end| condition.kind().ends_with(end));
    let applies = if is_negative { condition.is_true() } else { condition.is_false() };
    applies && (is_failure(condition.message()) || is_failure(condition.reason()))
}

/// Returns whether a text reads like the report of a failure.
pub(crate) fn is_failure(text: &str) -> bool {
    let text = text.to_lowercase();
    // What a finished part reports about a failure that is none.
    let text = text.replace("no errors", "").replace("without error", "");
    FAILURES.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_reports_a_failure_only_in_its_words() {
        let check = |status: Value, expected: Option<&str>| {
            let value = json!({"apiVersion": "shop.example/v1", "kind": "Database", "metadata": {"name": "a"}, "status": status});
            let found = in_status(&ObjectRef::of(&value).unwrap(), &value).map(|fact| fact.path);
            assert_eq!(found.as_deref(), expected, "{value}");
        };
        let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"conditions": [{"type": kind, "status": status, "reason": reason, "message": message}]});
        check(json!({}), None);
        check(condition("Ready", "False", "Deleting", "deleting 3 of 5 volumes"), None);
        check(condition("Ready", "False", "Deleting", "waiting for 2 machines"), None);
        check(condition("Ready", "True", "Error", "recovered"), None);
        check(condition("Ready", "False", "DeleteFailed", "access denied"), Some("status.conditions[type=Ready]"));
        check(condition("CleanupFailed", "True", "CloudError", ""), Some("status.conditions[type=CleanupFailed]"));
        check(condition("CleanupFailed", "False", "CloudError", ""), None);
        check(json!({"lastError": {"description": "no access"}}), Some("status.lastError.description"));
        check(json!({"lastOperation": {"state": "Processing", "description": "waits"}}), None);
        check(json!({"phase": "Failed", "message": "blueprint not found"}), Some("status.message"));
    }
}
