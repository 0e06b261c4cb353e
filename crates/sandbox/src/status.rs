//! Errors as the API returns them: a `Status` with code, reason and message.
//!
//! The texts are those of `k8s.io/apimachinery/pkg/api/errors`, because clients compare them.

use http::StatusCode;
use serde_json::{Value, json};

/// The group and resource, or the group and kind, that an error names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Qualified {
    pub(crate) group: String,
    /// The plural, `configmaps`; in validation errors the kind, `ConfigMap`, as in Kubernetes.
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

/// One of the causes of an error.
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

    /// Reports an invalid value, which is shown as JSON.
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

/// An error that the API returns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApiError {
    pub(crate) code: StatusCode,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) about: Option<Box<About>>,
    /// The seconds after which a client may retry.
    pub(crate) retry_after: Option<u64>,
    /// Whether the answer is the plain message, because it comes from a component in front of the API.
    pub(crate) plain: bool,
    /// The `Status` of a webhook, which is the body of the answer.
    pub(crate) status: Option<Box<Value>>,
}

/// The details of an error.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct About {
    pub(crate) kind: Qualified,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) causes: Vec<Cause>,
}

impl ApiError {
    pub(crate) fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), about: None, retry_after: None, plain: false, status: None }
    }

    /// Adds empty details: `details: {}`.
    pub(crate) fn about_nothing(mut self) -> Self {
        self.about = Some(Box::default());
        self
    }

    /// Returns an error for which the API server has no reason: 500.
    pub(crate) fn unnamed(message: impl Into<String>) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// Returns the error for an object in storage that cannot be decoded, as the API server reports a text there that is none.
    pub(crate) fn undecodable() -> Self {
        Self::unnamed("illegal base64 data at input byte 4")
    }

    /// Returns the error for invalid options, such as `ListOptions` or `DeleteOptions`.
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

    /// Returns the error for an unknown resource in a served group.
    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::new(StatusCode::NOT_FOUND, "NotFound", message).about_nothing()
    }

    /// Returns the error for a path where nothing is served.
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

    /// Returns the error for a write that is based on an outdated object.
    pub(crate) fn modified(kind: &Qualified, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// Returns a validation error. `kind` contains the kind, `ConfigMap`, not the plural.
    pub(crate) fn invalid(kind: &Qualified, name: &str, causes: Vec<Cause>) -> Self {
        let mut texts: Vec<String> = Vec::new();
        for text in causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)) {
            // If two checks find the same, the message contains it once and the causes twice.
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

    /// Returns the error for a revision that is no longer in the history.
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

    /// Returns the error for what the sandbox does not model, so that nothing is answered wrongly.
    pub(crate) fn not_modelled(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_IMPLEMENTED, "NotImplemented", format!("the sandbox does not model {what}"))
    }

    /// Returns the mark of a request that cannot continue without the answers of webhooks. It is never sent.
    pub(crate) fn waiting() -> Self {
        Self::internal("the request waits for a webhook")
    }

    pub(crate) fn timeout(why: &str) -> Self {
        Self::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", format!("Timeout: {why}")).about_nothing()
    }

    /// Returns the body of the answer.
    pub(crate) fn body(&self) -> Value {
        if let Some(status) = &self.status {
            return (**status).clone();
        }
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
