//! What an object and the Events about it report about a failure.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Fact, ObjectRef,
    case::{Case, happened_at},
    object::{self, Condition},
};

/// For how many seconds after a deletion what an object says from before it is no reason: its controller has not got to it. Nor is
/// it one that what it refers to is gone: in a cascade, both are deleted at once.
pub(crate) const CASCADE: i64 = 120;

/// Words, in lower case, of reports that are reasons even if they are older than the deletion. A cleanup fails as well without access;
/// and a condition that was false before has the time of then, although its words are new.
const OF_CLEANUPS: [&str; 13] = [
    "delet",
    "clean",
    "drain",
    "terminat",
    "finalizer",
    "remov",
    "uninstall",
    "destroy",
    "auth",
    "credential",
    "denied",
    "forbidden",
    "permission",
];

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
    let since = deleted.filter(|_| case.age_of_deletion(value) < CASCADE);
    in_status(reference, value, since).or_else(|| {
        let (event, message) = (event?, object::text(event?, "/message")?);
        let reason = object::text(event, "/reason").unwrap_or("Warning");
        Some(Fact::new(reference, format!("Event {reason}"), message))
    })
}

/// Returns what the status reports; what it says is from before some time does not count.
fn in_status(reference: &ObjectRef, value: &Value, since: Option<Timestamp>) -> Option<Fact> {
    let is_new =
        |object: &Value, pointer: &str| since.zip(object::time(object, pointer)).is_none_or(|(since, at)| at >= since);
    let quote = |path: &str| {
        let text = object::text(value, &format!("/{}", path.replace('.', "/"))).filter(|text| !text.is_empty())?;
        Some(Fact::new(reference, path, text))
    };
    let failed = |path: &str, states: &[&str]| {
        object::text(value, path).is_some_and(|state| states.contains(&state.to_lowercase().as_str()))
    };
    let of_any = ["error", "failed", "failure"];
    let of_deletion = ["deletefailed", "deletionfailed"];
    let error = quote("status.lastError.description").or_else(|| quote("status.lastError.message"));
    if let Some(fact) = error.filter(|_| is_new(value, "/status/lastError/lastUpdateTime")) {
        return Some(fact);
    }
    let is_failed =
        failed("/status/lastOperation/state", &of_any) || failed("/status/lastOperation/state", &of_deletion);
    if is_failed && is_new(value, "/status/lastOperation/lastUpdateTime") {
        return quote("status.lastOperation.description");
    }
    let is_reason = |condition: &Condition<'_>| {
        let text = condition.shown().to_lowercase();
        is_new(condition.value(), "/lastTransitionTime") || OF_CLEANUPS.iter().any(|word| text.contains(word))
    };
    let reported = object::conditions(value).filter(|condition| reports_failure(*condition)).filter(is_reason);
    let condition = reported.max_by_key(|condition| condition.is_false());
    if let Some(condition) = condition {
        return Some(Fact::new(reference, condition.path(), condition.shown()));
    }
    // A phase has no time.
    if failed("/status/phase", &of_deletion) || (since.is_none() && failed("/status/phase", &of_any)) {
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
            let found = in_status(&ObjectRef::of(&value).unwrap(), &value, None).map(|fact| fact.path);
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

    #[test]
    fn what_is_older_than_the_deletion_counts_only_if_a_cleanup_fails_as_well() {
        let check = |status: Value, is_reason: bool| {
            let value = json!({"apiVersion": "shop.example/v1", "kind": "Database", "metadata": {"name": "a"}, "status": status});
            let since = "2026-01-01T00:00:00Z".parse().unwrap();
            let found = in_status(&ObjectRef::of(&value).unwrap(), &value, Some(since));
            assert_eq!(found.is_some(), is_reason, "{value}");
        };
        let condition = |reason: &str, at: &str| json!({"conditions": [{"type": "Ready", "status": "False", "reason": reason, "lastTransitionTime": at}]});
        check(condition("ImageNotFound: not found", "2025-12-01T00:00:00Z"), false);
        check(condition("ImageNotFound: not found", "2026-01-01T00:00:00Z"), true);
        check(condition("AccessDenied", "2025-12-01T00:00:00Z"), true);
        check(condition("CleanupFailed", "2025-12-01T00:00:00Z"), true);
        check(json!({"lastError": {"message": "x", "lastUpdateTime": "2025-12-01T00:00:00Z"}}), false);
        check(json!({"lastError": {"message": "x", "lastUpdateTime": "2026-01-02T00:00:00Z"}}), true);
        check(json!({"phase": "Failed"}), false);
        check(json!({"phase": "DeleteFailed"}), true);
    }
}
