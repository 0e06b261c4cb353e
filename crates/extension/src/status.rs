//! The status of extension objects, as patches (gardener/gardener, extensions/pkg/controller/status.go).
//!
//! | state | progress | `lastError` | `observedGeneration` |
//! |---|---|---|---|
//! | Processing | 1 | unchanged | unchanged |
//! | Error | 50 | the error and its codes | set |
//! | Succeeded | 100 | removed | set |

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    dispatch::{Action, Run},
    error::ActuatorError,
};

/// The longest description, in bytes. The text of an error may be a whole page of an infrastructure's answer.
const DESCRIPTION: usize = 8 * 1024;

/// Makes the patches of one run on an object of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatusOf<'a> {
    pub(crate) kind: &'a str,
    pub(crate) run: Run,
}

impl StatusOf<'_> {
    /// Returns the status at the start.
    pub(crate) fn processing(&self, now: Timestamp) -> Value {
        let text = match self.run.action {
            Action::Reconcile => "Reconciling",
            Action::Delete => "Deleting",
            Action::ForceDelete => "Force-deleting",
            Action::Migrate => "Migrating",
            Action::Restore => "Restoring",
        };
        json!({ "lastOperation": self.operation("Processing", 1, &format!("{text} the {}", self.kind), now) })
    }

    /// Returns the status after a failure.
    pub(crate) fn failed(&self, error: &ActuatorError, generation: i64, now: Timestamp) -> Value {
        let verb = self.run.action.name();
        let text = clip(&format!("Failed to {verb} the {}: {error}", self.kind), DESCRIPTION);
        // A merge patch keeps old codes unless they are removed.
        let codes = if error.codes().is_empty() { Value::Null } else { json!(error.codes()) };
        json!({
            "observedGeneration": generation,
            "lastOperation": self.operation("Error", 50, &text, now),
            "lastError": { "description": text, "codes": codes, "lastUpdateTime": time(now) },
        })
    }

    /// Returns the status after a success. The actuator's own fields of the status come with it; its description, if it gave
    /// one, follows ours.
    pub(crate) fn succeeded(&self, fields: &Value, description: &str, generation: i64, now: Timestamp) -> Value {
        let done = match self.run.action {
            Action::Reconcile => "reconciled",
            Action::Delete => "deleted",
            Action::ForceDelete => "force-deleted",
            Action::Migrate => "migrated",
            Action::Restore => "restored",
        };
        let separator = if description.is_empty() { "" } else { ": " };
        let text = clip(&format!("Successfully {done} the {}{separator}{description}", self.kind), DESCRIPTION);
        let mut status = if fields.is_object() { fields.clone() } else { json!({}) };
        status["observedGeneration"] = json!(generation);
        status["lastOperation"] = self.operation("Succeeded", 100, &text, now);
        status["lastError"] = Value::Null;
        status
    }

    fn operation(&self, state: &str, progress: u8, description: &str, now: Timestamp) -> Value {
        json!({
            "type": self.run.operation, "state": state, "progress": progress, "description": description,
            "lastUpdateTime": time(now),
        })
    }
}

/// Returns at most this many bytes of a text.
pub(crate) fn clip(text: &str, bytes: usize) -> String {
    text[..text.floor_char_boundary(bytes)].to_owned()
}

/// Formats a time as Kubernetes does, in seconds.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::ErrorCode, object::OperationType};

    const KIND: &str = "DNSRecord";

    fn status(action: Action, operation: OperationType) -> StatusOf<'static> {
        StatusOf { kind: KIND, run: Run { action, operation, add_finalizer: false } }
    }

    fn now() -> Timestamp {
        "2026-01-02T03:04:05.678Z".parse().unwrap()
    }

    #[test]
    fn processing_sets_nothing_but_the_operation() {
        let patch = status(Action::ForceDelete, OperationType::Delete).processing(now());
        let operation = json!({
            "type": "Delete", "state": "Processing", "progress": 1, "description": "Force-deleting the DNSRecord",
            "lastUpdateTime": "2026-01-02T03:04:05Z",
        });
        assert_eq!(patch, json!({ "lastOperation": operation }));
    }

    #[test]
    fn a_failure_sets_the_error_with_its_codes() {
        let error = ActuatorError::new("key revoked").code(ErrorCode::InfraUnauthenticated);
        let patch = status(Action::Delete, OperationType::Delete).failed(&error, 7, now());
        let text = "Failed to delete the DNSRecord: key revoked";
        assert_eq!(patch["observedGeneration"], 7);
        assert_eq!(patch["lastOperation"]["state"], "Error");
        assert_eq!(patch["lastOperation"]["progress"], 50);
        assert_eq!(patch["lastOperation"]["description"], text);
        let last = json!({
            "description": text, "codes": ["ERR_INFRA_UNAUTHENTICATED"], "lastUpdateTime": "2026-01-02T03:04:05Z",
        });
        assert_eq!(patch["lastError"], last);
        let without = status(Action::Delete, OperationType::Delete).failed(&ActuatorError::new("x"), 7, now());
        assert!(without["lastError"]["codes"].is_null());
        let long =
            status(Action::Delete, OperationType::Delete).failed(&ActuatorError::new("ä".repeat(9000)), 7, now());
        assert!(long["lastError"]["description"].as_str().is_some_and(|text| (8190..=8192).contains(&text.len())));
    }

    #[test]
    fn a_success_removes_the_error_and_keeps_the_fields_of_the_actuator() {
        let fields = json!({"zone": "example.org", "lastError": {"description": "no"}, "observedGeneration": 1});
        let patch = status(Action::Reconcile, OperationType::Create).succeeded(&fields, "1 record", 7, now());
        assert_eq!(patch["zone"], "example.org");
        assert_eq!(patch["lastError"], Value::Null);
        assert_eq!(patch["observedGeneration"], 7);
        let operation = json!({
            "type": "Create", "state": "Succeeded", "progress": 100,
            "description": "Successfully reconciled the DNSRecord: 1 record", "lastUpdateTime": "2026-01-02T03:04:05Z",
        });
        assert_eq!(patch["lastOperation"], operation);
        let plain = status(Action::Migrate, OperationType::Migrate).succeeded(&Value::Null, "", 1, now());
        assert_eq!(plain["lastOperation"]["description"], "Successfully migrated the DNSRecord");
    }
}
