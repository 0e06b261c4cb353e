//! Changes to the status of an item, and the patch that makes them. Sends no requests.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Map, Value};

use crate::{
    api::{DeployItemStatus, DeployerInformation, ItemError, Phase, TransitionTimes},
    error::ItemFailure,
    progress::Report,
    text::clip,
};

/// The number of errors that a status keeps.
const MAX_ERRORS: usize = 10;
/// The maximum length of the message of an error or condition, in bytes.
const MAX_MESSAGE: usize = 16 * 1024;

impl DeployItemStatus {
    /// Begins the work, and clears the results of the last one.
    pub(crate) fn begin(&mut self, phase: Phase, generation: i64, deployer: &DeployerInformation, now: Timestamp) {
        self.phase = Some(phase);
        if self.observed_generation != generation {
            self.forget_warnings();
            self.forget_foresight();
        }
        self.observed_generation = generation;
        self.last_reconcile_time = Some(Time(now));
        self.deployer = Some(deployer.clone());
        (self.last_error, self.last_errors, self.first_error) = (None, Vec::new(), None);
        let trigger_time = self.transition_times.take().and_then(|times| times.trigger_time);
        self.transition_times =
            Some(TransitionTimes { trigger_time, init_time: Some(Time(now)), ..TransitionTimes::default() });
    }

    /// Records that all objects are deployed, and that custom readiness checks and exports begin.
    pub(crate) fn begin_checks(&mut self, now: Timestamp) {
        self.transition_times.get_or_insert_default().wait_time = Some(Time(now));
    }

    /// Ends the work.
    pub(crate) fn finish(&mut self, phase: Phase, now: Timestamp) {
        self.phase = Some(phase);
        self.job_id_finished.clone_from(&self.job_id);
        self.transition_times.get_or_insert_default().finished_time = Some(Time(now));
    }

    /// Adds an error; if it is the same as the last one, only updates its time.
    pub(crate) fn fail(&mut self, operation: &str, failure: &ItemFailure, now: Timestamp) {
        let message = clip(&failure.message, MAX_MESSAGE);
        let same = |error: &ItemError| error.message == message && error.reason == failure.reason;
        let since =
            self.last_error.as_ref().filter(|error| same(error)).map(|error| error.last_transition_time.clone());
        let error = ItemError {
            operation: operation.to_owned(),
            last_transition_time: since.unwrap_or(Time(now)),
            last_update_time: Time(now),
            reason: failure.reason.to_owned(),
            message: message.clone(),
            codes: failure.codes.clone(),
        };
        match self.last_errors.last_mut().filter(|last| same(last)) {
            Some(last) => *last = error.clone(),
            None => self.last_errors.push(error.clone()),
        }
        let surplus = self.last_errors.len().saturating_sub(MAX_ERRORS);
        self.last_errors.drain(..surplus);
        self.first_error.get_or_insert_with(|| error.clone());
        self.last_error = Some(error);
    }

    /// Writes the progress or the result of the work to our condition.
    pub(crate) fn report(&mut self, report: &Report, now: Timestamp) {
        let mut condition = report.condition(&self.conditions, now);
        condition.message = clip(&condition.message, MAX_MESSAGE);
        match self.conditions.iter_mut().find(|known| known.r#type == condition.r#type) {
            Some(known) => *known = condition,
            None => self.conditions.push(condition),
        }
    }
}

/// Returns the JSON merge patch (RFC 7386) from one status to another, or `None` if they are equal. Fields that this version
/// does not know remain unchanged.
///
/// Without a previous status the patch holds the whole status, because the CRD requires some of its fields.
pub(crate) fn status_patch(from: Option<&DeployItemStatus>, to: &DeployItemStatus) -> Option<Value> {
    let value = |status: &DeployItemStatus| serde_json::to_value(status).unwrap_or_default();
    let from = from.map_or_else(|| Value::Object(Map::new()), value);
    let status = difference(&from, &value(to))?;
    Some(Value::Object(Map::from_iter([("status".to_owned(), status)])))
}

fn difference(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return (from != to).then(|| to.clone()) };
    let mut patch = Map::new();
    for (key, value) in to {
        let changed = match from.get(key) {
            Some(before) => difference(before, value),
            None => Some(value.clone()),
        };
        patch.extend(changed.map(|changed| (key.clone(), changed)));
    }
    patch.extend(from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null)));
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{Condition, ErrorCode};

    fn time(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap_or_default()
    }

    fn failure(message: &str) -> ItemFailure {
        ItemFailure::new("Reason", message, ErrorCode::Timeout)
    }

    #[test]
    fn the_patch_holds_only_changed_fields() {
        let mut from = DeployItemStatus { phase: Some(Phase::Succeeded), observed_generation: 1, ..Default::default() };
        from.provider_status = Some(json!({"kind": "ProviderStatus", "managedResources": [1], "old": {"a": 1}}));
        assert_eq!(status_patch(Some(&from), &from), None);
        let mut to = from.clone();
        to.phase = Some(Phase::Progressing);
        to.provider_status = Some(json!({"kind": "ProviderStatus", "managedResources": [1, 2]}));
        let patch =
            json!({"status": {"phase": "Progressing", "providerStatus": {"managedResources": [1, 2], "old": null}}});
        assert_eq!(status_patch(Some(&from), &to), Some(patch));
        to.phase = None;
        to.provider_status = None;
        assert_eq!(status_patch(Some(&from), &to), Some(json!({"status": {"phase": null, "providerStatus": null}})));
    }

    #[test]
    fn the_first_patch_holds_the_fields_that_the_crd_requires() {
        let to = DeployItemStatus { job_id: Some("a".to_owned()), ..Default::default() };
        let patch = status_patch(None, &to).unwrap_or_default();
        assert_eq!(patch.pointer("/status/observedGeneration"), Some(&json!(0)));
    }

    #[test]
    fn errors_are_kept_in_order_without_repetition() {
        let mut status = DeployItemStatus::default();
        status.fail("Reconcile", &failure("a"), time(1));
        status.fail("Reconcile", &failure("a"), time(2));
        status.fail("Reconcile", &failure("b"), time(3));
        let messages: Vec<_> = status.last_errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(messages, ["a", "b"]);
        assert_eq!(status.first_error.as_ref().map(|error| error.message.as_str()), Some("a"));
        assert_eq!(status.last_errors[0].last_transition_time.0, time(1));
        assert_eq!(status.last_errors[0].last_update_time.0, time(2));
        for n in 0..20 {
            status.fail("Reconcile", &failure(&n.to_string()), time(4));
        }
        assert_eq!(status.last_errors.len(), MAX_ERRORS);
        assert_eq!(status.last_error.as_ref().map(|error| error.message.as_str()), Some("19"));
    }

    #[test]
    fn a_repeated_error_that_is_cut_is_kept_once() {
        let mut status = DeployItemStatus::default();
        status.fail("Reconcile", &failure(&"a".repeat(MAX_MESSAGE + 1)), time(1));
        status.fail("Reconcile", &failure(&"a".repeat(MAX_MESSAGE + 1)), time(2));
        assert_eq!(status.last_errors.len(), 1);
        assert_eq!(status.last_errors[0].last_transition_time.0, time(1));
    }

    #[test]
    fn a_new_reconcile_clears_errors_and_keeps_the_trigger_time() {
        let mut status = DeployItemStatus { job_id: Some("2".to_owned()), ..Default::default() };
        status.transition_times = Some(TransitionTimes {
            trigger_time: Some(Time(time(1))),
            finished_time: Some(Time(time(2))),
            ..Default::default()
        });
        status.fail("Reconcile", &failure("a"), time(2));
        status.begin(Phase::Progressing, 3, &DeployerInformation::default(), time(5));
        assert_eq!((status.last_error.is_none(), status.observed_generation), (true, 3));
        let times = status.transition_times.clone().unwrap_or_default();
        assert_eq!(
            (times.trigger_time, times.init_time, times.finished_time),
            (Some(Time(time(1))), Some(Time(time(5))), None)
        );
        status.finish(Phase::Succeeded, time(6));
        assert_eq!(status.job_id_finished.as_deref(), Some("2"));
    }

    #[test]
    fn our_condition_is_unique_and_others_are_unchanged() {
        let mut status = DeployItemStatus::default();
        let other = |r#type: &str| Condition {
            r#type: r#type.to_owned(),
            status: "True".to_owned(),
            last_transition_time: Time(time(1)),
            last_update_time: Time(time(1)),
            reason: "R".to_owned(),
            message: "m".to_owned(),
            codes: Vec::new(),
        };
        status.conditions.push(other("Other"));
        let report = |running| Report { running, reason: "Applying", message: "group 1 of 2".to_owned() };
        status.report(&report(true), time(2));
        status.report(&report(true), time(3));
        assert_eq!(status.conditions.len(), 2);
        assert_eq!(status.conditions[1].last_transition_time.0, time(2));
        status.report(&report(false), time(4));
        assert_eq!(
            (status.conditions[0].clone(), status.conditions[1].last_transition_time.0),
            (other("Other"), time(4))
        );
    }
}
