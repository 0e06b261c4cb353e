//! Why an item could not be reconciled, as its status says it.

use billhook_cluster::{Error, ErrorKind};
use billhook_engine::OperationError;

use crate::{api::ErrorCode, exports::ExportError, readiness::CheckError};

/// A reconcile or a deletion that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ItemFailure {
    /// Why, in one word: the `reason` of the item's error.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
    /// What kind of problem it is.
    pub codes: Vec<ErrorCode>,
    /// Whether it passes by itself: the same is tried again until the time of the item is over.
    pub passes: bool,
    /// Whether a Kubernetes Event has said it already.
    pub told: bool,
}

impl ItemFailure {
    /// A failure of this reason and code.
    pub fn new(reason: &'static str, message: impl Into<String>, code: ErrorCode) -> Self {
        Self { reason, message: message.into(), codes: vec![code], passes: false, told: false }
    }

    /// The configuration is wrong; nothing was touched.
    pub fn configuration(reason: &'static str, message: impl Into<String>) -> Self {
        Self::new(reason, message, ErrorCode::ConfigurationProblem)
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
        let mut failure = Self::new("RequestFailed", format!("failed to {error}: {}", error.message()), code);
        // Somebody else has written at the same time, perhaps a request of ours that a killed controller had sent.
        let raced = matches!(error.kind(), ErrorKind::Conflict(fields) if fields.is_empty());
        failure.passes = error.is_transient() || raced;
        failure
    }
}

impl From<CheckError> for ItemFailure {
    fn from(error: CheckError) -> Self {
        let message = format!("failed to {error}");
        match &error {
            CheckError::TimedOut(_) => Self::new("NotReady", message, ErrorCode::Timeout),
            CheckError::Interrupted => Self::new("Interrupted", message, ErrorCode::InternalProblem),
            CheckError::Find { error, .. } => Self::configuration("NotReady", format!("{message}: {error}")),
        }
    }
}

impl From<ExportError> for ItemFailure {
    fn from(error: ExportError) -> Self {
        let message = format!("failed to {error}");
        match &error {
            ExportError::TimedOut(_) => Self::new("NotExported", message, ErrorCode::Timeout),
            ExportError::Interrupted => Self::new("Interrupted", message, ErrorCode::InternalProblem),
            ExportError::Find { error, .. } => Self::configuration("NotExported", format!("{message}: {error}")),
            _ => Self::configuration("NotExported", error.to_string()),
        }
    }
}

impl From<OperationError> for ItemFailure {
    fn from(error: OperationError) -> Self {
        match error {
            OperationError::Input(_) => Self::configuration("InvalidManifests", error.to_string()),
            OperationError::Refused(_) => Self::new("Refused", error.to_string(), ErrorCode::ConfigurationProblem),
            OperationError::Busy(_) => {
                Self { passes: true, ..Self::new("Busy", error.to_string(), ErrorCode::InternalProblem) }
            }
            OperationError::Unreadable(_) => {
                Self { passes: true, ..Self::new("Unreadable", error.to_string(), ErrorCode::InternalProblem) }
            }
            OperationError::NoRelease(_) => Self::new("NoRelease", error.to_string(), ErrorCode::InternalProblem),
            OperationError::Cluster(error) => error.into(),
        }
    }
}
