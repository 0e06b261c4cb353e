//! Failures of items, as their status reports them.

use billhook_cluster::{Error, ErrorKind};
use billhook_engine::OperationError;
use billhook_hosts::Denied;
use billhook_plan::{PlanError, PlanErrorKind, Problem};

use crate::{api::ErrorCode, text};

/// The reason of a failure because the item's time limit was reached.
pub const TIMED_OUT: &str = "TimedOut";
/// The reason of a failure because a manifest is wrong, or does not fit the kinds of the cluster.
pub const INVALID_MANIFESTS: &str = "InvalidManifests";

/// A failed deployment or deletion of an item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ItemFailure {
    /// The `operation` of the item's error, if it is not that of the whole work.
    pub operation: Option<&'static str>,
    /// The cause as one word: the `reason` of the item's error.
    pub reason: &'static str,
    /// The cause as text.
    pub message: String,
    /// The category of the problem.
    pub codes: Vec<ErrorCode>,
    /// Whether the problem may resolve itself: the work is retried until the item's time limit is reached.
    pub transient: bool,
    /// Whether a Kubernetes Event has already reported it.
    pub reported: bool,
}

impl ItemFailure {
    /// Creates a failure that is not retried.
    pub fn new(reason: &'static str, message: impl Into<String>, code: ErrorCode) -> Self {
        let (operation, transient, reported) = (None, false, false);
        Self { operation, reason, message: message.into(), codes: vec![code], transient, reported }
    }

    /// Creates a failure because of a wrong configuration.
    pub fn configuration(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(reason, message, ErrorCode::ConfigurationProblem)
    }

    /// Creates a failure because an object is missing. It is transient: objects that are applied together are not created
    /// at the same time.
    pub fn missing(reason: &'static str, message: impl Into<String>) -> Self {
        Self::configuration(reason, message).transient()
    }

    /// Returns the failure with the words that Landscaper's deployers use for it.
    #[must_use]
    pub fn of(self, operation: &'static str, reason: &'static str) -> Self {
        Self { operation: Some(operation), reason, ..self }
    }

    /// Returns the failure as one that is retried.
    #[must_use]
    pub fn transient(self) -> Self {
        Self { transient: true, ..self }
    }
}

impl From<Error> for ItemFailure {
    fn from(error: Error) -> Self {
        let code = match error.kind() {
            ErrorKind::Forbidden => ErrorCode::Unauthorized,
            _ if error.code() == Some(401) => ErrorCode::Unauthorized,
            ErrorKind::Webhook => ErrorCode::Webhook,
            _ => ErrorCode::InternalProblem,
        };
        let mut failure = Self::new("RequestFailed", format!("failed to {error}"), code);
        // Another writer was faster, perhaps a request that a killed controller had sent.
        let raced = matches!(error.kind(), ErrorKind::Conflict(fields) if fields.is_empty());
        failure.transient = error.is_transient() || raced;
        failure
    }
}

impl From<Denied> for ItemFailure {
    fn from(denied: Denied) -> Self {
        Self::configuration("HostDenied", denied.to_string())
    }
}

impl From<PlanError> for ItemFailure {
    fn from(error: PlanError) -> Self {
        let message = text::problems(&error);
        let retried = |reason| Self::new(reason, &*message, ErrorCode::InternalProblem).transient();
        match error.kind {
            PlanErrorKind::Input => {
                Self { transient: lacks_kinds(&error), ..Self::configuration(INVALID_MANIFESTS, message) }
            }
            PlanErrorKind::Refused => Self::new("Refused", message, ErrorCode::ConfigurationProblem),
            PlanErrorKind::Busy => retried("Busy"),
            PlanErrorKind::Unreadable => retried("Unreadable"),
        }
    }
}

/// Whether a plan needs nothing but kinds or versions that the cluster does not serve yet.
fn lacks_kinds(error: &PlanError) -> bool {
    error.problems.iter().all(|problem| matches!(problem, Problem::NotServed { .. } | Problem::VersionNotServed { .. }))
}

impl From<OperationError> for ItemFailure {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Plan(error) => error.into(),
            OperationError::NoRelease(..)
            | OperationError::PolicyLost(..)
            | OperationError::LockLost(_)
            | OperationError::NoBackup(_)
            | OperationError::NotSaved { .. } => Self::new("NoRelease", error.to_string(), ErrorCode::InternalProblem),
            OperationError::Cluster(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::readiness::lab::Lab;

    #[tokio::test(start_paused = true)]
    async fn a_failed_request_names_its_cause_once() {
        let lab = Lab::new().await;
        lab.take_away(Duration::from_secs(300));
        let error = lab.clusters.own.catalog().await.unwrap_err();
        let cause = error.message();
        let failure = ItemFailure::from(error);
        assert_eq!(failure.message.matches(&cause).count(), 1, "{failure}");
    }
}
