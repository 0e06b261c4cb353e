//! Why an actuator failed, with the codes by which Gardener decides what happens next.

use std::{error::Error as StdError, fmt, time::Duration};

use serde::{Serialize, Serializer};

/// A code of a `lastError` (gardener/gardener, pkg/apis/core/v1beta1/types_common.go).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorCode {
    /// The credentials are invalid or expired.
    InfraUnauthenticated,
    /// The credentials lack rights.
    InfraUnauthorized,
    /// A quota of the infrastructure is used up.
    InfraQuotaExceeded,
    /// The infrastructure limits the rate of requests.
    InfraRateLimitsExceeded,
    /// Resources of the infrastructure depend on others that the owner of the Shoot has to handle.
    InfraDependencies,
    /// As [`InfraDependencies`](Self::InfraDependencies), and a retry may help.
    RetryableInfraDependencies,
    /// The infrastructure has no capacity left.
    InfraResourcesDepleted,
    /// Resources in the Shoot cannot be deleted.
    CleanupClusterResources,
    /// The configuration is wrong.
    ConfigurationProblem,
    /// As [`ConfigurationProblem`](Self::ConfigurationProblem), and a retry may help.
    RetryableConfigurationProblem,
    /// A webhook in the Shoot prevents operations.
    ProblematicWebhook,
}

impl Serialize for ErrorCode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The texts, in lower case, from which codes are derived: those of Gardener's tests of its classification
/// (gardener/gardener, extensions/pkg/util/errors_test.go). Quotas have a rule of their own.
const TEXTS: [(&str, ErrorCode); 12] = [
    ("invalidauthenticationtokentenant", ErrorCode::InfraUnauthenticated),
    ("authentication failed", ErrorCode::InfraUnauthenticated),
    ("unauthorized", ErrorCode::InfraUnauthorized),
    ("authorizationfailed", ErrorCode::InfraUnauthorized),
    ("accessdenied", ErrorCode::InfraUnauthorized),
    ("operationnotallowed", ErrorCode::InfraUnauthorized),
    ("throttling", ErrorCode::InfraRateLimitsExceeded),
    ("pendingverification", ErrorCode::InfraDependencies),
    ("retryableerror", ErrorCode::RetryableInfraDependencies),
    ("not available in the current hardware cluster", ErrorCode::InfraResourcesDepleted),
    ("invalidparameter", ErrorCode::ConfigurationProblem),
    ("is misconfigured and requires zero voluntary evictions", ErrorCode::RetryableConfigurationProblem),
];

impl ErrorCode {
    /// Returns the code as Gardener writes it, such as `ERR_INFRA_UNAUTHENTICATED`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InfraUnauthenticated => "ERR_INFRA_UNAUTHENTICATED",
            Self::InfraUnauthorized => "ERR_INFRA_UNAUTHORIZED",
            Self::InfraQuotaExceeded => "ERR_INFRA_QUOTA_EXCEEDED",
            Self::InfraRateLimitsExceeded => "ERR_INFRA_RATE_LIMITS_EXCEEDED",
            Self::InfraDependencies => "ERR_INFRA_DEPENDENCIES",
            Self::RetryableInfraDependencies => "ERR_RETRYABLE_INFRA_DEPENDENCIES",
            Self::InfraResourcesDepleted => "ERR_INFRA_RESOURCES_DEPLETED",
            Self::CleanupClusterResources => "ERR_CLEANUP_CLUSTER_RESOURCES",
            Self::ConfigurationProblem => "ERR_CONFIGURATION_PROBLEM",
            Self::RetryableConfigurationProblem => "ERR_RETRYABLE_CONFIGURATION_PROBLEM",
            Self::ProblematicWebhook => "ERR_PROBLEMATIC_WEBHOOK",
        }
    }

    /// Derives codes from the text of an error of the infrastructure, sorted.
    fn of_text(text: &str) -> Vec<Self> {
        let text = text.to_lowercase();
        let mut codes: Vec<Self> =
            TEXTS.iter().filter(|(part, _)| text.contains(part)).map(|(_, code)| *code).collect();
        for (at, _) in text.match_indices("limitexceeded") {
            let rate = text[..at].ends_with("request");
            codes.push(if rate { Self::InfraRateLimitsExceeded } else { Self::InfraQuotaExceeded });
        }
        codes.sort_unstable();
        codes.dedup();
        codes
    }

    /// Derives a code from a status of a Kubernetes API server.
    ///
    /// A 401 or 403 has none: the extension's own rights in the seed are no problem of the Shoot's credentials, and the code
    /// of those would let the owner force the deletion of the Shoot.
    fn of_api_status(status: u16, message: &str) -> Vec<Self> {
        match status {
            403 if message.contains("exceeded quota") => vec![Self::InfraQuotaExceeded],
            422 => vec![Self::ConfigurationProblem],
            500 | 503 if message.contains("failed calling webhook") => vec![Self::ProblematicWebhook],
            _ => Vec::new(),
        }
    }

    /// Derives a code from an HTTP status of the infrastructure's API.
    fn of_http_status(status: u16) -> Option<Self> {
        Some(match status {
            401 => Self::InfraUnauthenticated,
            403 => Self::InfraUnauthorized,
            429 => Self::InfraRateLimitsExceeded,
            400 | 422 => Self::ConfigurationProblem,
            502..=504 => Self::RetryableInfraDependencies,
            _ => return None,
        })
    }
}

/// Why an actuator failed.
///
/// Any error becomes one with `?`. Its text is the text of the error and of its sources. The codes are those that
/// [`code`](Self::code) and [`http`](Self::http) set; if there are none, they are derived: from the status if a Kubernetes API
/// server answered, from known texts of infrastructures otherwise. As with `anyhow`, the type itself does not implement
/// [`std::error::Error`], so that this conversion can exist.
///
/// ```
/// use billhook_extension::{ActuatorError, ErrorCode};
///
/// let derived = ActuatorError::new("AccessDenied: no right to delete the zone");
/// assert_eq!(derived.codes(), [ErrorCode::InfraUnauthorized]);
///
/// let set = ActuatorError::new("the zone is not delegated").code(ErrorCode::ConfigurationProblem);
/// assert_eq!(set.codes(), [ErrorCode::ConfigurationProblem]);
/// ```
pub struct ActuatorError {
    message: String,
    set: Vec<ErrorCode>,
    derived: Vec<ErrorCode>,
    retry_after: Option<Duration>,
}

impl ActuatorError {
    /// Makes an error from a text.
    pub fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        Self { derived: ErrorCode::of_text(&message), message, set: Vec::new(), retry_after: None }
    }

    /// Makes an error from the answer of an infrastructure's HTTP API. The status sets a code.
    pub fn http(status: u16, message: impl Into<String>) -> Self {
        let error = Self::new(message);
        match ErrorCode::of_http_status(status) {
            Some(code) => error.code(code),
            None => error,
        }
    }

    /// Adds a code. Codes that are derived from the text no longer count then.
    #[must_use]
    pub fn code(mut self, code: ErrorCode) -> Self {
        if !self.set.contains(&code) {
            self.set.push(code);
        }
        self
    }

    /// Sets the pause before the next attempt, in place of the growing pauses of the controller: at least a second, at most
    /// an hour.
    #[must_use]
    pub fn retry_after(mut self, pause: Duration) -> Self {
        self.retry_after = Some(pause);
        self
    }

    /// Returns the codes.
    pub fn codes(&self) -> &[ErrorCode] {
        if self.set.is_empty() { &self.derived } else { &self.set }
    }

    /// Puts what failed before the text.
    pub(crate) fn after(self, what: &str) -> Self {
        Self { message: format!("{what}: {}", self.message), ..self }
    }

    /// Joins errors into one that has the texts and the codes of all.
    pub(crate) fn joined(errors: impl IntoIterator<Item = Self>) -> Self {
        let (mut texts, mut derived) = (Vec::new(), Vec::new());
        for error in errors {
            derived.extend_from_slice(error.codes());
            texts.push(error.message);
        }
        derived.sort_unstable();
        derived.dedup();
        Self { message: texts.join("; "), set: Vec::new(), derived, retry_after: None }
    }

    /// Returns the pause before the next attempt, if the actuator set one.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.retry_after
    }
}

impl fmt::Display for ActuatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for ActuatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.message, self.codes())
    }
}

impl<E: StdError + 'static> From<E> for ActuatorError {
    fn from(error: E) -> Self {
        let mut text = String::new();
        let mut status = None;
        let mut next: Option<&(dyn StdError + 'static)> = Some(&error);
        while let Some(cause) = next {
            let (part, answered) = describe(cause);
            if text.is_empty() {
                text = part;
            } else if !text.contains(&part) {
                text = format!("{text}: {part}");
            }
            if let Some(answered) = answered {
                status = Some(answered);
                break;
            }
            next = cause.source();
        }
        match status {
            Some(derived) => Self { message: text, set: Vec::new(), derived, retry_after: None },
            None => Self::new(text),
        }
    }
}

/// Returns the text of one error of a chain, and the codes if a Kubernetes API server answered with it. kube's own text of
/// such an answer repeats it in Rust's syntax.
fn describe(error: &(dyn StdError + 'static)) -> (String, Option<Vec<ErrorCode>>) {
    if let Some(kube::Error::Api(status)) = error.downcast_ref::<kube::Error>() {
        return (status.message.clone(), Some(ErrorCode::of_api_status(status.code, &status.message)));
    }
    if let Some(error) = error.downcast_ref::<billhook_cluster::Error>() {
        let codes = error.status().map(|status| ErrorCode::of_api_status(status.code, &status.message));
        return (error.to_string(), Some(codes.unwrap_or_default()));
    }
    (error.to_string(), None)
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn codes_are_derived_from_the_texts_of_infrastructures() {
        use ErrorCode as C;
        for (text, expected) in [
            ("authentication failed: key expired", &[C::InfraUnauthenticated][..]),
            ("invalid: InvalidAuthenticationTokenTenant", &[C::InfraUnauthenticated]),
            ("Unauthorized", &[C::InfraUnauthorized]),
            ("AuthorizationFailed", &[C::InfraUnauthorized]),
            ("VpcLimitExceeded", &[C::InfraQuotaExceeded]),
            ("RequestLimitExceeded", &[C::InfraRateLimitsExceeded]),
            ("requestLimitExceeded and limitExceeded", &[C::InfraQuotaExceeded, C::InfraRateLimitsExceeded]),
            ("Throttling: slow down", &[C::InfraRateLimitsExceeded]),
            ("PendingVerification", &[C::InfraDependencies]),
            ("RetryableError", &[C::RetryableInfraDependencies]),
            ("type x is not available in the current hardware cluster", &[C::InfraResourcesDepleted]),
            ("InvalidParameter: cidr", &[C::ConfigurationProblem]),
            ("pdb is misconfigured and requires zero voluntary evictions", &[C::RetryableConfigurationProblem]),
            ("AccessDenied, then Throttling", &[C::InfraUnauthorized, C::InfraRateLimitsExceeded]),
            ("no route to host", &[]),
        ] {
            assert_eq!(ActuatorError::new(text).codes(), expected, "{text}");
        }
    }

    #[test]
    fn codes_are_derived_from_statuses() {
        use ErrorCode as C;
        for (status, message, expected) in [
            (401, "Unauthorized", &[][..]),
            (403, "User \"x\" cannot get resource", &[]),
            (403, "exceeded quota: pods", &[C::InfraQuotaExceeded]),
            (422, "spec.x: Invalid value", &[C::ConfigurationProblem]),
            (500, "Internal error occurred: failed calling webhook \"x\"", &[C::ProblematicWebhook]),
            (404, "configmaps \"a\" not found", &[]),
        ] {
            let answer = Status { code: status, message: message.to_owned(), ..Status::default() };
            let error = ActuatorError::from(kube::Error::Api(Box::new(answer)));
            assert_eq!((error.codes(), error.to_string()), (expected, message.to_owned()), "{status}");
        }
        for (status, expected) in [
            (401, &[C::InfraUnauthenticated][..]),
            (403, &[C::InfraUnauthorized]),
            (429, &[C::InfraRateLimitsExceeded]),
            (422, &[C::ConfigurationProblem]),
            (503, &[C::RetryableInfraDependencies]),
            (500, &[]),
        ] {
            assert_eq!(ActuatorError::http(status, "answer").codes(), expected, "{status}");
        }
    }

    #[test]
    fn codes_that_are_set_replace_derived_ones() {
        let error = ActuatorError::new("AccessDenied").code(ErrorCode::InfraDependencies);
        assert_eq!(error.code(ErrorCode::InfraDependencies).codes(), [ErrorCode::InfraDependencies]);
    }

    #[test]
    fn joined_errors_keep_the_codes_of_each_and_derive_none_from_the_whole_text() {
        let answer = Status { code: 403, message: "unauthorized: no right".into(), ..Status::default() };
        let seed = ActuatorError::from(kube::Error::Api(Box::new(answer)));
        let dns = ActuatorError::new("key revoked").code(ErrorCode::InfraUnauthenticated).after("delete failed");
        let joined = ActuatorError::joined([dns, seed]);
        assert_eq!(joined.to_string(), "delete failed: key revoked; unauthorized: no right");
        assert_eq!(joined.codes(), [ErrorCode::InfraUnauthenticated]);
    }

    #[test]
    fn the_text_of_an_error_names_each_cause_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("write the record")]
        struct Outer(#[source] std::io::Error);
        let error = ActuatorError::from(Outer(std::io::Error::other("AccessDenied by the server")));
        assert_eq!(error.to_string(), "write the record: AccessDenied by the server");
        assert_eq!(error.codes(), [ErrorCode::InfraUnauthorized]);
    }
}
