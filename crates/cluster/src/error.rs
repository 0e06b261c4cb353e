//! Failures of requests, classified by the API server's answer.

use std::{sync::Arc, time::Duration};

use billhook_plan::Resource;
use serde::Deserialize;

/// Shared, so that all callers that waited for one request get its failure.
type Source = Arc<dyn std::error::Error + Send + Sync>;

/// The longest pause that a server can ask for. One that somebody else chooses may ask for more than a clock can add.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// A request that failed: what was being done, and the kind of the failure.
///
/// Its text completes "failed to …" and names each cause once, the source included.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Error {
    /// What was being done, such as `delete ConfigMap/a/b`.
    what: String,
    kind: ErrorKind,
    status: Option<Box<Status>>,
    message: Option<Box<str>>,
    #[source]
    source: Option<Source>,
    answer_lost: bool,
    retry_after: Option<Duration>,
}

/// The kind of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The caller lacks the rights (403 by RBAC).
    Forbidden,
    /// An admission webhook denied the request.
    Denied,
    /// Other admission rejected the request: a policy, a quota, or a namespace that is being deleted.
    Refused,
    /// Admission of a Pod did not find its ServiceAccount, which a new namespace does not have yet.
    NoServiceAccount,
    /// Another client changed the object, or other managers own these fields of it.
    Conflict(Vec<FieldConflict>),
    /// The object is not the one that was seen: another client has created or recreated it.
    NotAsSeen,
    /// The server does not serve the kind.
    NotServed,
    /// The object is invalid.
    Invalid,
    /// A backend that the API server needs is unavailable: a webhook, a conversion, or an aggregated API.
    Webhook,
    /// The server did not answer in time.
    Timeout,
    /// The server cannot be reached.
    Unreachable,
    /// The answer is larger than [`Options::answer_limit`](crate::Options::answer_limit), or a list than
    /// [`Options::list_limit`](crate::Options::list_limit).
    TooLarge,
    /// A [`Fence`](crate::Fence) was closed before the request was sent.
    Stopped,
    /// Any other failure; the status has details.
    Other,
}

/// A field that another manager owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldConflict {
    /// The other manager.
    pub manager: String,
    /// The field, such as `.spec.replicas`.
    pub field: String,
}

/// The server's answer: the parts of a `Status` that are used here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// The reason, such as `NotFound`; empty if the body was not a `Status`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The object that the status is about (`details.name`); empty if it is about none.
    pub name: String,
    /// The plural or kind that it is about (`details.kind`).
    pub kind: String,
    /// The causes as reason, message and field.
    pub causes: Vec<(String, String, String)>,
    /// After how many seconds to retry (`details.retryAfterSeconds`).
    pub retry_after: Option<u64>,
}

impl Error {
    pub(crate) fn new(what: impl Into<String>, kind: ErrorKind) -> Self {
        Self {
            what: what.into(),
            kind,
            status: None,
            message: None,
            source: None,
            answer_lost: false,
            retry_after: None,
        }
    }

    /// Replaces the message of the failure.
    #[must_use]
    pub fn because(mut self, message: impl Into<Box<str>>) -> Self {
        self.message = Some(message.into());
        self
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    pub(crate) fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    pub(crate) fn with_retry_after(mut self, after: Option<Duration>) -> Self {
        self.retry_after = after.map(|after| after.min(LONGEST_PAUSE));
        self
    }

    pub(crate) fn with_answer_lost(mut self, lost: bool) -> Self {
        self.answer_lost = lost;
        self
    }

    /// Makes an error of a failure that the server answered with.
    pub(crate) fn answered(what: &str, status: Status) -> Self {
        let mut error = Self::new(what, kind_of(&status));
        error.status = Some(Box::new(status));
        error
    }

    /// Makes an error for a kind that discovery does not list in any version.
    pub(crate) fn not_served(resource: &Resource) -> Self {
        Self::new(format!("list {}", resource.kind), ErrorKind::NotServed).because("the kind is not served")
    }

    /// Returns what was being done.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// Returns the server's answer, if there is one.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_deref()
    }

    /// Returns whether the server named this reason among the causes of the failure.
    pub fn has_cause(&self, reason: &str) -> bool {
        self.status.as_ref().is_some_and(|status| status.causes.iter().any(|(cause, _, _)| cause == reason))
    }

    /// Returns the HTTP status, if the server answered.
    pub fn code(&self) -> Option<u16> {
        self.status.as_ref().map(|status| status.code)
    }

    /// Returns after which pause the server wants a retry, if it named one. It may be longer than
    /// [`Options::patience`](crate::Options::patience), so that the caller has to wait.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns whether the answer to an earlier try was lost, so that the request may have been carried out.
    pub(crate) fn answer_lost(&self) -> bool {
        self.answer_lost
    }

    /// Returns whether the request may have been carried out although it failed: the answer to one of its tries was lost.
    pub fn may_have_taken_effect(&self) -> bool {
        self.answer_lost || matches!(self.kind, ErrorKind::Timeout | ErrorKind::Unreachable)
    }

    /// Returns whether this object does not exist, as opposed to its kind.
    pub(crate) fn object_not_found(&self) -> bool {
        self.status().is_some_and(Status::object_not_found)
    }

    /// Returns whether the namespace of the object does not exist.
    pub fn namespace_not_found(&self) -> bool {
        self.status().is_some_and(|status| status.object_not_found() && status.kind == "namespaces")
    }

    /// Returns whether an object of this name exists already.
    pub(crate) fn already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
    }

    /// Returns whether the precondition about the UID failed.
    pub(crate) fn is_about_uid(&self) -> bool {
        self.is_about_precondition("uid in ")
    }

    /// Returns whether the precondition about the version failed.
    pub(crate) fn is_about_version(&self) -> bool {
        self.is_about_precondition("resourceversion in ")
    }

    /// Returns whether the precondition about a field failed (k8s.io/apiserver registry/rest/delete.go and
    /// storage/interfaces.go). Only the message names the field.
    fn is_about_precondition(&self, field: &str) -> bool {
        self.status().is_some_and(|status| {
            let message = status.message.to_lowercase();
            status.code == 409 && message.contains(field) && message.contains("precondition")
        })
    }

    /// Returns whether a DELETE was about a Namespace that is being deleted already: some servers do not let a client delete
    /// it twice. Only the message tells.
    pub(crate) fn is_about_emptied_namespace(&self) -> bool {
        let text = "ensuring all content is removed from this namespace";
        self.status().is_some_and(|status| status.code == 409 && status.message.contains(text))
    }

    /// Returns the failure without what was being done.
    pub fn message(&self) -> String {
        match (&self.message, &self.status, &self.source) {
            (Some(message), _, _) => message.to_string(),
            (None, Some(status), _) if !status.message.is_empty() => status.message.clone(),
            (None, Some(status), _) => format!("the server answered {}", status.code),
            (None, None, Some(source)) => innermost(source.as_ref()).to_string(),
            (None, None, None) => "the cause is unknown".into(),
        }
    }

    /// Returns whether the same call may succeed later without any change: the server is unreachable or busy.
    ///
    /// Such a call was already retried for [`Options::patience`](crate::Options::patience).
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Timeout | ErrorKind::Unreachable => true,
            ErrorKind::Webhook => false,
            _ => self.status.as_ref().is_some_and(|status| is_transient(status)),
        }
    }

    fn text(&self) -> String {
        let message = (self.message.is_some() || self.status.is_some()).then(|| self.message());
        let source = self.source.as_ref().map(|source| innermost(source.as_ref()).to_string());
        let mut text = self.what.clone();
        for cause in message.into_iter().chain(source) {
            if !text.contains(&cause) {
                text = format!("{text}: {cause}");
            }
        }
        text
    }

    /// Removes the values that server-side apply quotes from an object with a wrong type.
    pub(crate) fn without_values(mut self) -> Self {
        const MARK: &str = "got &value";
        if let Some(status) = &mut self.status {
            let causes = status.causes.iter_mut().map(|(_, message, _)| message);
            for text in causes.chain([&mut status.message]) {
                if let Some(at) = text.find(MARK) {
                    text.truncate(at);
                    text.push_str("got another type");
                }
            }
        }
        self
    }
}

fn innermost<'a>(error: &'a (dyn std::error::Error + 'static)) -> &'a (dyn std::error::Error + 'static) {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error
}

/// Returns how errors name an object.
pub(crate) fn object_name(resource: &Resource, namespace: Option<&str>, name: &str) -> String {
    match namespace.filter(|_| resource.namespaced) {
        Some(namespace) => format!("{}/{namespace}/{name}", resource.kind),
        None => format!("{}/{name}", resource.kind),
    }
}

impl Status {
    /// Reads the body of a failure. With `quote`, a body that is not a `Status`, such as a proxy's page, becomes the message,
    /// shortened. Without, only the aggregator's own texts do.
    pub(crate) fn read(code: u16, body: &[u8], quote: bool) -> Self {
        let mut status = serde_json::from_slice::<Wire>(body).map(Self::from).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(body);
            let text = Some(text.trim()).filter(|text| quote || AGGREGATOR.iter().any(|own| text.starts_with(own)));
            Self { message: text.unwrap_or_default().chars().take(300).collect(), ..Self::default() }
        });
        status.code = code;
        status
    }

    /// Reads a `Status` from an ERROR event of a watch.
    pub(crate) fn event(body: &str) -> Self {
        serde_json::from_str::<Wire>(body).map(Self::from).unwrap_or_default()
    }

    /// Returns whether this object does not exist, as opposed to its kind.
    pub(crate) fn object_not_found(&self) -> bool {
        self.code == 404 && !self.name.is_empty()
    }
}

/// The aggregator's texts for an APIService without a backend, which it does not send as a `Status`.
const AGGREGATOR: [&str; 2] = ["error trying to reach service", "service unavailable"];

/// Returns whether the API server or its etcd has a failure from which it recovers by itself.
pub(crate) fn is_transient(status: &Status) -> bool {
    const ETCD: [&str; 5] =
        ["etcdserver", "leader changed", "request timed out", "context deadline exceeded", "connection refused"];
    match status.code {
        429 | 502 | 503 | 504 => true,
        500 => kind_of(status) == ErrorKind::Other && ETCD.iter().any(|text| status.message.contains(text)),
        _ => false,
    }
}

/// Classifies an answer by its code, and by its message where the API server gives nothing better.
fn kind_of(status: &Status) -> ErrorKind {
    let contains = |text: &str| status.message.contains(text);
    let denied = contains("denied the request") || contains("denied request");
    match status.code {
        400 | 403 | 422 | 500 if denied && contains("admission webhook") => ErrorKind::Denied,
        400 | 403 | 422 | 500 if denied => ErrorKind::Refused,
        // The authorizer's wording (k8s.io/apiserver endpoints/handlers/responsewriters); any other 403 is admission.
        403 if status.reason.is_empty() || (contains("User \"") && contains("cannot ")) => ErrorKind::Forbidden,
        // The wording of kubernetes plugin/pkg/admission/serviceaccount.
        403 if contains("error looking up service account") => ErrorKind::NoServiceAccount,
        403 => ErrorKind::Refused,
        400 | 406 | 413 | 415 | 422 => ErrorKind::Invalid,
        404 if !status.object_not_found() => ErrorKind::NotServed,
        409 => ErrorKind::Conflict(conflicts(status)),
        // Server-side apply answers 500 for an object that violates its schema, as of 1.36.
        500 if contains("failed to create typed patch object") => ErrorKind::Invalid,
        500 | 503
            if contains("failed calling webhook")
                || contains("failed to call webhook")
                || contains("conversion webhook") =>
        {
            ErrorKind::Webhook
        }
        // The aggregator's wording for an APIService without a backend.
        503 if contains("error trying to reach service") || status.message == "service unavailable" => {
            ErrorKind::Webhook
        }
        504 => ErrorKind::Timeout,
        502 | 503 => ErrorKind::Unreachable,
        _ => ErrorKind::Other,
    }
}

/// Reads the causes of a server-side apply conflict: `conflict with "MANAGER" using apps/v1`, and the field.
fn conflicts(status: &Status) -> Vec<FieldConflict> {
    let manager = |message: &str| message.split('"').nth(1).unwrap_or(message).to_owned();
    let causes = status.causes.iter().filter(|(reason, _, _)| reason == "FieldManagerConflict");
    causes.map(|(_, message, field)| FieldConflict { manager: manager(message), field: field.clone() }).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(rename = "kind")]
    _kind: StatusKind,
    code: Option<u16>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Deserialize)]
enum StatusKind {
    Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    name: Option<String>,
    kind: Option<String>,
    causes: Option<Vec<Cause>>,
    retry_after_seconds: Option<u64>,
}

#[derive(Deserialize)]
struct Cause {
    reason: Option<String>,
    message: Option<String>,
    field: Option<String>,
}

impl From<Wire> for Status {
    fn from(wire: Wire) -> Self {
        let details = wire.details.unwrap_or_default();
        let text = Option::unwrap_or_default;
        Self {
            code: wire.code.unwrap_or_default(),
            reason: text(wire.reason),
            message: text(wire.message),
            name: text(details.name),
            kind: text(details.kind),
            causes: details
                .causes
                .unwrap_or_default()
                .into_iter()
                .map(|cause| (text(cause.reason), text(cause.message), text(cause.field)))
                .collect(),
            retry_after: details.retry_after_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(code: u16, body: &str, expected: ErrorKind, transient: bool) {
        let error = Error::answered("try it", Status::read(code, body.as_bytes(), true));
        assert_eq!((&error.kind, error.is_transient()), (&expected, transient), "{code} {body}");
    }

    fn status(reason: &str, message: &str) -> String {
        serde_json::json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message}).to_string()
    }

    #[test]
    fn failures_are_classified_by_the_servers_answer() {
        use ErrorKind::{
            Denied, Forbidden, Invalid, NoServiceAccount, NotServed, Other, Refused, Timeout, Unreachable, Webhook,
        };
        for (code, reason, message, kind, transient) in [
            (
                403,
                "Forbidden",
                r#"configmaps is forbidden: User "a" cannot list resource "configmaps" in API group "" in the namespace "x""#,
                Forbidden,
                false,
            ),
            (
                403,
                "Forbidden",
                r#"configmaps "a" is forbidden: unable to create new content in namespace x because it is being terminated"#,
                Refused,
                false,
            ),
            (403, "Forbidden", r#"pods "a" is forbidden: exceeded quota: q"#, Refused, false),
            (
                422,
                "Invalid",
                "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
                Refused,
                false,
            ),
            (400, "BadRequest", r#"admission webhook "w.example" denied the request: no"#, Denied, false),
            (403, "", r#"admission webhook "w.example" denied the request: User "a" cannot do it"#, Denied, false),
            (500, "", r#"admission webhook "w.example" denied the request: connection refused"#, Denied, false),
            (
                403,
                "Forbidden",
                r#"pods "a" is forbidden: error looking up service account x/default: serviceaccount "default" not found"#,
                NoServiceAccount,
                false,
            ),
            (422, "Invalid", r#"Deployment.apps "a" is invalid: spec.replicas: must be positive"#, Invalid, false),
            (400, "BadRequest", r#"strict decoding error: unknown field "spec.x""#, Invalid, false),
            (
                500,
                "InternalError",
                r#"Internal error occurred: failed calling webhook "w.example": failed to call webhook: Post "https://w.x.svc:443/": context deadline exceeded"#,
                Webhook,
                false,
            ),
            (
                500,
                "",
                "conversion webhook for a.example/v1, Kind=A failed: Post \"https://…\": connection refused",
                Webhook,
                false,
            ),
            (500, "InternalError", "etcdserver: leader changed", Other, true),
            (500, "InternalError", "it broke", Other, false),
            (
                500,
                "",
                "failed to create typed patch object (a/x; /v1, Kind=ConfigMap): .dataa: field not declared in schema",
                Invalid,
                false,
            ),
            (429, "TooManyRequests", "storage is (re)initializing", Other, true),
            (503, "ServiceUnavailable", "apiserver not ready", Unreachable, true),
            (504, "Timeout", "request did not complete", Timeout, true),
            (404, "NotFound", "the server could not find the requested resource", NotServed, false),
            (401, "Unauthorized", "Unauthorized", Other, false),
        ] {
            check(code, &status(reason, message), kind, transient);
        }
        check(404, "404 page not found\n", NotServed, false);
        check(503, "service unavailable\n", Webhook, false);
        check(502, "<html>bad gateway</html>", Unreachable, true);
        check(403, "<html>a proxy</html>", Forbidden, false);
    }

    #[test]
    fn a_missing_object_is_not_a_missing_kind() {
        let body = r#"{"kind":"Status","reason":"NotFound","message":"namespaces \"x\" not found","details":{"name":"x","kind":"namespaces"},"code":404}"#;
        let status = Status::read(404, body.as_bytes(), true);
        assert!(status.object_not_found());
        check(404, body, ErrorKind::Other, false);
    }

    #[test]
    fn a_conflict_names_the_managers_and_their_fields() {
        let body = serde_json::json!({
            "kind": "Status", "reason": "Conflict", "code": 409, "message": "Apply failed with 2 conflicts: …",
            "details": {"causes": [
                {"reason": "FieldManagerConflict", "field": ".spec.replicas",
                 "message": "conflict with \"kubectl-client-side-apply\" using apps/v1"},
                {"reason": "FieldManagerConflict", "field": ".data.a",
                 "message": "conflict with \"hpa\" with subresource \"scale\" using apps/v1"},
            ]},
        });
        let error = Error::answered("apply it", Status::read(409, body.to_string().as_bytes(), true));
        let ErrorKind::Conflict(found) = &error.kind else { panic!("{error:?}") };
        let found: Vec<_> = found.iter().map(|c| (c.manager.as_str(), c.field.as_str())).collect();
        assert_eq!(found, [("kubectl-client-side-apply", ".spec.replicas"), ("hpa", ".data.a")]);
        assert_eq!(error.to_string(), "apply it: Apply failed with 2 conflicts: …");
    }

    #[test]
    fn a_cause_is_named_once() {
        let with_source = |error: Error| error.with_source("disk full").to_string();
        let error = || Error::new("write it", ErrorKind::Other);
        assert_eq!(error().to_string(), "write it");
        assert_eq!(with_source(error()), "write it: disk full");
        assert_eq!(with_source(error().because("no answer")), "write it: no answer: disk full");
        assert_eq!(with_source(error().because("no answer (disk full)")), "write it: no answer (disk full)");
    }

    #[test]
    fn values_of_a_secret_are_removed() {
        let body = status("", ".stringData.a: expected string, got &value.valueUnstructured{Value:\"hunter2\"}");
        let error = Error::answered("apply Secret/a/b", Status::read(500, body.as_bytes(), true)).without_values();
        assert_eq!(error.to_string(), "apply Secret/a/b: .stringData.a: expected string, got another type");
    }

    #[test]
    fn a_body_that_is_not_a_status_is_quoted_only_if_asked_for() {
        fn check(body: &str, quoted: &str, other: &str) {
            let message = |quote| Status::read(503, body.as_bytes(), quote).message;
            assert_eq!((message(true).as_str(), message(false).as_str()), (quoted, other), "{body}");
        }
        check("<html>secret</html>\n", "<html>secret</html>", "");
        check(r#"{"kind": "Secret", "message": "secret"}"#, r#"{"kind": "Secret", "message": "secret"}"#, "");
        check(&status("Expired", "too old"), "too old", "too old");
        check("service unavailable\n", "service unavailable", "service unavailable");
    }
}
