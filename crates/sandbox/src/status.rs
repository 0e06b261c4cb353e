//! What goes wrong, as the API says it: a `Status` with the code, reason and message that clients look for.
//!
//! The texts are the API's own (`k8s.io/apimachinery/pkg/api/errors`): clients compare them.

use http::StatusCode;
use serde_json::{Value, json};

/// Which kind of objects an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Qualified {
    pub(crate) group: String,
    /// The plural, `configmaps`; for errors of validation the kind, `ConfigMap`, as the API has it.
    pub(crate) resource: String,
}

impl Qualified {
    pub(crate) fn new(group: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), resource: resource.into() }
    }
}

/// `configmaps`, `deployments.apps`.
impl std::fmt::Display for Qualified {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.group.is_empty() { f.write_str(&self.resource) } else { write!(f, "{}.{}", self.resource, self.group) }
    }
}

/// One of several mistakes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// `FieldValueRequired`, `FieldValueInvalid`, …
    pub(crate) reason: &'static str,
    /// `spec.containers[0].name`
    pub(crate) field: String,
    /// `Required value: …`, without the field.
    pub(crate) message: String,
}

impl Cause {
    pub(crate) fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueRequired", field, "Required value", detail)
    }

    /// `value` is shown as the API shows it: texts quoted, everything else as JSON.
    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueInvalid", field, &format!("Invalid value: {value}"), detail)
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new("FieldValueForbidden", field, "Forbidden", detail)
    }

    pub(crate) fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new("FieldValueTypeInvalid", field, &format!("Invalid value: {value}"), detail)
    }

    pub(crate) fn unsupported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|value| format!("\"{value}\"")).collect();
        let detail = format!("supported values: {}", quoted.join(", "));
        Self::new("FieldValueNotSupported", field, &format!("Unsupported value: {value}"), &detail)
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new("FieldValueDuplicate", field, &format!("Duplicate value: {value}"), "")
    }

    pub(crate) fn new(reason: &'static str, field: impl Into<String>, what: &str, detail: &str) -> Self {
        let message = if detail.is_empty() { what.to_owned() } else { format!("{what}: {detail}") };
        Self { reason, field: field.into(), message }
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) about: Option<Box<About>>,
    /// Seconds after which it may be tried again.
    pub(crate) retry_after: Option<u64>,
    /// The answer is the message as plain text: what answers is not the API itself, but what stands before it.
    pub(crate) plain: bool,
}

/// What a refusal is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct About {
    pub(crate) kind: Qualified,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) causes: Vec<Cause>,
}

impl ApiError {
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), about: None, retry_after: None, plain: false }
    }

    /// It is about nothing, and says so: `details: {}`.
    pub(crate) fn about_nothing(mut self) -> Self {
        self.about = Some(Box::default());
        self
    }

    /// An error that the API server has no words of its own for: 500, without a reason.
    pub(crate) fn unnamed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Options of a request that are wrong: `ListOptions`, `DeleteOptions`.
    pub(crate) fn options(kind: &str, causes: Vec<Cause>) -> Self {
        Self::invalid(&Qualified::new("meta.k8s.io", kind), "", causes)
    }

    pub(crate) fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message)
    }

    pub(crate) fn about(mut self, kind: &Qualified, name: &str) -> Self {
        self.about = Some(Box::new(About { kind: kind.clone(), name: name.to_owned(), ..About::default() }));
        self
    }

    pub(crate) fn causes(mut self, causes: Vec<Cause>) -> Self {
        self.about.get_or_insert_default().causes = causes;
        self
    }

    pub(crate) fn not_found(kind: &Qualified, name: &str) -> Self {
        let message = format!("{kind} \"{name}\" not found");
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about(kind, name)
    }

    /// A resource that a group which is served does not have.
    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about_nothing()
    }

    /// A path that nothing is served at.
    pub(crate) fn no_such_path() -> Self {
        Self { plain: true, ..Self::new(StatusCode::NOT_FOUND, "NotFound", "404 page not found") }
    }

    pub(crate) fn already_exists(kind: &Qualified, name: &str) -> Self {
        let message = format!("{kind} \"{name}\" already exists");
        Self::new(StatusCode::CONFLICT, "AlreadyExists", message).about(kind, name)
    }

    pub(crate) fn conflict(kind: &Qualified, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
        Self::new(StatusCode::CONFLICT, "Conflict", message).about(kind, name)
    }

    /// The object that was read is no longer the one that is stored.
    pub(crate) fn modified(kind: &Qualified, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// `kind` holds the kind, `ConfigMap`, not the plural.
    pub(crate) fn invalid(kind: &Qualified, name: &str, causes: Vec<Cause>) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)) {
            // What two checks found is said once, and counted twice among the causes.
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let all = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
        let message = format!("{kind} \"{name}\" is invalid: {all}");
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).about(kind, name).causes(causes)
    }

    pub(crate) fn forbidden(kind: &Qualified, name: &str, why: &str) -> Self {
        let object = if name.is_empty() { kind.to_string() } else { format!("{kind} \"{name}\"") };
        Self::new(StatusCode::FORBIDDEN, "Forbidden", format!("{object} is forbidden: {why}")).about(kind, name)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// The revision is no longer known.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(StatusCode::GONE, "Expired", message)
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message).about_nothing()
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> Self {
        let message = format!("Internal error occurred: {message}");
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message)
    }

    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge", message)
    }

    /// What the sandbox does not do is said, never answered wrongly.
    pub(crate) fn not_modelled(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", format!("the sandbox does not model {what}"))
    }

    /// The body of the answer.
    pub(crate) fn body(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        let mut details = serde_json::Map::new();
        if let Some(about) = &self.about {
            for (key, text) in [
                ("name", &about.name),
                ("group", &about.kind.group),
                ("kind", &about.kind.resource),
                ("uid", &about.uid),
            ] {
                if !text.is_empty() {
                    details.insert(key.to_owned(), text.as_str().into());
                }
            }
            if !about.causes.is_empty() {
                let cause = |cause: &Cause| {
                    let mut json = json!({"message": cause.message});
                    if !cause.reason.is_empty() {
                        json["reason"] = cause.reason.into();
                    }
                    if !cause.field.is_empty() {
                        json["field"] = cause.field.as_str().into();
                    }
                    json
                };
                details.insert("causes".to_owned(), about.causes.iter().map(cause).collect());
            }
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".to_owned(), seconds.into());
        }
        if !details.is_empty() || self.about.is_some() {
            status["details"] = details.into();
        }
        status
    }
}
