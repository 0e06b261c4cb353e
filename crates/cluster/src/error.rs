//! What can go wrong with a request, told apart by what the API server says.

use std::{sync::Arc, time::Duration};

use billhook_plan::Resource;
use serde::Deserialize;

/// Shared, so that all who waited for one request can be told of its failure.
type Source = Arc<dyn std::error::Error + Send + Sync>;

/// A request that failed: what was being done, and of which kind the failure is.
///
/// Its text fits behind "failed to"; the source is not in it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Error {
    /// What was being done, such as `delete ConfigMap/a/b`.
    pub what: String,
    /// Of which kind the failure is.
    pub kind: ErrorKind,
    /// What the server said, if it did.
    pub status: Option<Box<Status>>,
    message: Option<Box<str>>,
    #[source]
    source: Option<Source>,
    /// Whether the answer to an earlier try may have been lost, so that the request may have been carried out.
    pub(crate) answer_lost: bool,
    /// When the server wants to be asked again.
    pub(crate) retry_after: Option<Duration>,
}

/// Of which kind a failure is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The rights are missing (403 by RBAC).
    Forbidden,
    /// Admission refused it: a webhook, an admission policy, a quota, a namespace that is being deleted.
    Refused,
    /// Another writer was there: the fields that other managers own, or none where the object itself has changed.
    Conflict(Vec<FieldConflict>),
    /// The server serves no such kind.
    NotServed,
    /// The object is not valid, or not what its schema says.
    Invalid,
    /// A backend that the API server needs for this does not answer: a webhook, a conversion, an aggregated API.
    Webhook,
    /// No answer in time.
    Timeout,
    /// The server cannot be reached.
    Unreachable,
    /// Anything else; the status says what.
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

/// What the server said: the parts of a `Status` that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The HTTP status.
    pub code: u16,
    /// The reason, such as `NotFound`; empty where the body was not a `Status`.
    pub reason: String,
    /// The message.
    pub message: String,
    /// The object the status is about, by `details.name`; empty where it is not about one.
    pub name: String,
    /// The plural or kind it is about, by `details.kind`.
    pub kind: String,
    /// Causes as reason, message and field.
    pub causes: Vec<(String, String, String)>,
    /// When to come back, by `details.retryAfterSeconds`.
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

    pub(crate) fn because(mut self, message: impl Into<Box<str>>) -> Self {
        self.message = Some(message.into());
        self
    }

    pub(crate) fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into().into());
        self
    }

    /// A failure that the server answered with.
    pub(crate) fn answered(what: &str, status: Status) -> Self {
        let mut error = Self::new(what, kind_of(&status));
        error.status = Some(Box::new(status));
        error
    }

    /// Discovery says that the kind is not served in any version.
    pub(crate) fn not_served(resource: &Resource) -> Self {
        Self::new(format!("list {}", resource.kind), ErrorKind::NotServed).because("the kind is not served")
    }

    /// Of which kind the failure is.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// What was being done.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// What the server said, if it did.
    pub fn status(&self) -> Option<&Status> {
        self.status.as_deref()
    }

    /// The HTTP status, if the server answered.
    pub fn code(&self) -> Option<u16> {
        self.status.as_ref().map(|status| status.code)
    }

    /// When the server wants to be asked again, if it said so: where that is later than
    /// [`Options::patience`](crate::Options::patience) the caller may wait for it.
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Whether the server says that this one object is not there (and not that nobody knows its kind).
    pub(crate) fn object_not_found(&self) -> bool {
        self.status().is_some_and(Status::object_not_found)
    }

    /// Whether the server says that an object of this name is there already.
    pub(crate) fn already_exists(&self) -> bool {
        self.status().is_some_and(|status| status.code == 409 && status.reason == "AlreadyExists")
    }

    /// The failure alone, without what was being done.
    pub fn message(&self) -> String {
        match (&self.message, &self.status, &self.source) {
            (Some(message), _, _) => message.to_string(),
            (None, Some(status), _) if !status.message.is_empty() => status.message.clone(),
            (None, Some(status), _) => format!("the server answered {}", status.code),
            (None, None, Some(source)) => innermost(source.as_ref()).to_string(),
            (None, None, None) => "it is not possible".into(),
        }
    }

    /// Whether the same call may succeed later although nobody changes anything: the server is away or busy.
    ///
    /// Such a call was repeated already until [`Options::patience`](crate::Options::patience) had passed.
    pub fn is_transient(&self) -> bool {
        match self.kind {
            ErrorKind::Timeout | ErrorKind::Unreachable => true,
            ErrorKind::Webhook => false,
            _ => self.status.as_ref().is_some_and(|status| is_transient(status)),
        }
    }

    fn text(&self) -> String {
        let with_message = self.message.is_some() || self.status.is_some();
        if with_message { format!("{}: {}", self.what, self.message()) } else { self.what.clone() }
    }

    /// Hides the values that server-side apply quotes from an object of the wrong shape.
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

impl Status {
    /// Reads the body of a failure; one that is not a `Status` (a proxy's page) becomes its message, shortened.
    pub(crate) fn read(code: u16, body: &[u8]) -> Self {
        let mut status = serde_json::from_slice::<Wire>(body).map(Self::from).unwrap_or_else(|_| Self {
            message: String::from_utf8_lossy(body).trim().chars().take(300).collect(),
            ..Self::default()
        });
        status.code = code;
        status
    }

    /// Reads a `Status` that came as an event of a watch.
    pub(crate) fn event(body: &str) -> Self {
        serde_json::from_str::<Wire>(body).map(Self::from).unwrap_or_default()
    }

    /// Whether it says that this one object is not there (and not that nobody knows its kind).
    pub(crate) fn object_not_found(&self) -> bool {
        self.code == 404 && !self.name.is_empty()
    }
}

/// The API server's own trouble: it, or its etcd, will answer again.
pub(crate) fn is_transient(status: &Status) -> bool {
    const ETCD: [&str; 5] =
        ["etcdserver", "leader changed", "request timed out", "context deadline exceeded", "connection refused"];
    match status.code {
        429 | 502 | 503 | 504 => true,
        500 => kind_of(status) != ErrorKind::Webhook && ETCD.iter().any(|text| status.message.contains(text)),
        _ => false,
    }
}

fn kind_of(status: &Status) -> ErrorKind {
    let says = |text: &str| status.message.contains(text);
    let denied = says("denied the request") || says("denied request");
    match status.code {
        // The authorizer's own words (k8s.io/apiserver endpoints/handlers/responsewriters); all else is admission.
        403 if status.reason.is_empty() || (says("User \"") && says("cannot ")) => ErrorKind::Forbidden,
        403 => ErrorKind::Refused,
        400 | 406 | 413 | 415 | 422 if !denied => ErrorKind::Invalid,
        400 | 422 => ErrorKind::Refused,
        404 if !status.object_not_found() => ErrorKind::NotServed,
        409 => ErrorKind::Conflict(conflicts(status)),
        500 if denied => ErrorKind::Refused,
        // Server-side apply of an object that its schema does not allow: a 500 as of 1.36.
        500 if says("failed to create typed patch object") => ErrorKind::Invalid,
        500 | 503 if says("failed calling webhook") || says("failed to call webhook") || says("conversion webhook") => {
            ErrorKind::Webhook
        }
        // The aggregator's words for an APIService without a backend.
        503 if says("error trying to reach service") || status.message == "service unavailable" => ErrorKind::Webhook,
        504 => ErrorKind::Timeout,
        502 | 503 => ErrorKind::Unreachable,
        _ => ErrorKind::Other,
    }
}

/// The causes of a conflict of server-side apply: `conflict with "MANAGER" using apps/v1`, and the field.
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
        let error = Error::answered("try it", Status::read(code, body.as_bytes()));
        assert_eq!((&error.kind, error.is_transient()), (&expected, transient), "{code} {body}");
    }

    fn status(reason: &str, message: &str) -> String {
        serde_json::json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message}).to_string()
    }

    #[test]
    fn failures_are_told_apart_by_what_the_server_says() {
        use ErrorKind::{Forbidden, Invalid, NotServed, Other, Refused, Timeout, Unreachable, Webhook};
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
            (400, "BadRequest", r#"admission webhook "w.example" denied the request: no"#, Refused, false),
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
        let status = Status::read(404, body.as_bytes());
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
        let error = Error::answered("apply it", Status::read(409, body.to_string().as_bytes()));
        let ErrorKind::Conflict(found) = &error.kind else { panic!("{error:?}") };
        let found: Vec<_> = found.iter().map(|c| (c.manager.as_str(), c.field.as_str())).collect();
        assert_eq!(found, [("kubectl-client-side-apply", ".spec.replicas"), ("hpa", ".data.a")]);
        assert_eq!(error.to_string(), "apply it: Apply failed with 2 conflicts: …");
    }

    #[test]
    fn values_of_a_secret_are_not_quoted() {
        let body = status("", ".stringData.a: expected string, got &value.valueUnstructured{Value:\"hunter2\"}");
        let error = Error::answered("apply Secret/a/b", Status::read(500, body.as_bytes())).without_values();
        assert_eq!(error.to_string(), "apply Secret/a/b: .stringData.a: expected string, got another type");
    }
}
