//! Admission reviews of `admission.k8s.io/v1`: what the rules read of them, and the answers.

use std::fmt::{self, Display};

use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};

use super::{FORCE_DELETION, ForceDeletionError, check_deletion_confirmed, validate_force_deletion};

/// The only version of reviews that is supported.
const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// The length limit of a message: one about malformed input may quote all of it.
const MAX_MESSAGE: usize = 500;

/// A rule of the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// [`validate_force_deletion`], for the creation and every update of a Shoot.
    ForceDeletion,
    /// [`check_deletion_confirmed`], for the deletion of an object of any kind.
    DeletionConfirmation,
}

/// A body is not a review that can be answered.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MalformedReview(String);

impl MalformedReview {
    fn new(problem: impl Display) -> Self {
        let shown = |char: char| if char.is_control() { ' ' } else { char };
        Self(problem.to_string().chars().map(shown).take(MAX_MESSAGE).collect())
    }
}

/// What is read of a review of objects with the status `S`. What the rules do not need is skipped and not kept in memory.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<S> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<Request<S>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request<S> {
    uid: String,
    kind: Kind,
    resource: Resource,
    operation: Operation,
    /// Empty if the API server generates it, and for an object of a collection.
    #[serde(default)]
    name: String,
    #[serde(default)]
    namespace: String,
    object: Option<Object<S>>,
    old_object: Option<Object<S>>,
}

#[derive(Deserialize)]
struct Kind {
    group: String,
    kind: String,
}

#[derive(Deserialize)]
struct Resource {
    group: String,
    resource: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

#[derive(Deserialize)]
struct Object<S> {
    #[serde(default)]
    metadata: Metadata,
    status: Option<S>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    #[serde(default)]
    name: String,
    annotations: Option<Annotations>,
    deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(rename = "confirmation.gardener.cloud/force-deletion")]
    force_deletion: Option<String>,
    #[serde(rename = "confirmation.gardener.cloud/deletion")]
    deletion: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ShootStatus {
    last_errors: Option<Vec<LastError>>,
}

#[derive(Deserialize)]
struct LastError {
    codes: Option<Vec<String>>,
}

/// Answers an admission review, given as JSON, by a rule. Returns the review with the response.
///
/// A review of another operation or, for [`Rule::ForceDeletion`], of another kind is answered with a permission. For every object
/// of a DELETECOLLECTION, Kubernetes sends a review of its own, with the object but without its name; a review that does not
/// contain the object is answered with a denial.
///
/// # Errors
///
/// If the body is not a review of version `admission.k8s.io/v1`, or lacks what a review of this operation must contain. The
/// message is a single sentence.
pub fn review(rule: Rule, body: &[u8]) -> Result<Value, MalformedReview> {
    let (uid, decision) = match rule {
        Rule::ForceDeletion => {
            let request: Request<ShootStatus> = read(body)?;
            let decision = request.force_deletion()?;
            (request.uid, decision)
        }
        Rule::DeletionConfirmation => {
            let request: Request<IgnoredAny> = read(body)?;
            let decision = request.deletion();
            (request.uid, decision)
        }
    };
    Ok(json!({"apiVersion": API_VERSION, "kind": KIND, "response": decision.response(&uid)}))
}

/// Reads the request of a review.
fn read<S: DeserializeOwned>(body: &[u8]) -> Result<Request<S>, MalformedReview> {
    let review: Review<S> = serde_json::from_slice(body)
        .map_err(|error| MalformedReview::new(format_args!("failed to read the admission review: {error}")))?;
    if review.api_version != API_VERSION || review.kind != KIND {
        return Err(MalformedReview::new(format_args!(
            "unknown kind {:?} of version {:?}, expected {KIND} of {API_VERSION}: set admissionReviewVersions to [v1] in the \
             registration of this webhook",
            review.kind, review.api_version
        )));
    }
    let request = review.request.ok_or_else(|| MalformedReview::new("the admission review has no request"))?;
    if request.uid.is_empty() {
        return Err(MalformedReview::new("the request of the admission review has no uid"));
    }
    Ok(request)
}

/// The answer of a rule.
enum Decision {
    Allowed,
    /// The rule does not concern such objects: the registration of the webhook is wrong.
    NotConcerned(String),
    /// The status with which the API server answers the client.
    Denied(Value),
}

impl Decision {
    fn response(self, uid: &str) -> Value {
        match self {
            Self::Allowed => json!({"uid": uid, "allowed": true}),
            Self::NotConcerned(why) => json!({"uid": uid, "allowed": true, "warnings": [why]}),
            Self::Denied(status) => json!({"uid": uid, "allowed": false, "status": status}),
        }
    }
}

impl Request<ShootStatus> {
    fn force_deletion(&self) -> Result<Decision, MalformedReview> {
        if self.kind.group != "core.gardener.cloud" || self.kind.kind != "Shoot" {
            return Ok(Decision::NotConcerned(format!(
                "force deletion is only checked for Shoots, not for {}",
                self.kind
            )));
        }
        let missing = |field| MalformedReview::new(format_args!("the request of the admission review has no {field}"));
        let old = match self.operation {
            Operation::Create => None,
            Operation::Update => Some(self.old_object.as_ref().ok_or_else(|| missing("oldObject"))?),
            Operation::Delete | Operation::Connect => return Ok(Decision::Allowed),
        };
        let new = self.object.as_ref().ok_or_else(|| missing("object"))?;
        let errors = validate_force_deletion(
            old.and_then(|old| old.metadata.force_deletion()),
            new.metadata.force_deletion(),
            new.metadata.deletion_timestamp.is_some(),
            new.codes(),
        );
        Ok(if errors.is_empty() { Decision::Allowed } else { self.invalid(&errors) })
    }
}

impl<S> Request<S> {
    fn deletion(&self) -> Decision {
        if self.operation != Operation::Delete {
            return Decision::Allowed;
        }
        let Some(object) = &self.old_object else {
            return self.forbidden("the API server did not send the object to the webhook");
        };
        match check_deletion_confirmed(object.metadata.deletion()) {
            Ok(()) => Decision::Allowed,
            Err(error) => self.forbidden(&error.to_string()),
        }
    }

    /// Returns the name of the object, which the request may lack.
    fn name(&self) -> &str {
        let objects = [&self.old_object, &self.object].into_iter().flatten();
        let names = std::iter::once(&self.name).chain(objects.map(|object| &object.metadata.name));
        names.map(String::as_str).find(|name| !name.is_empty()).unwrap_or_default()
    }

    /// Denies the request as an API server does if fields have forbidden values.
    fn invalid(&self, errors: &[ForceDeletionError]) -> Decision {
        let field = format!("metadata.annotations[{FORCE_DELETION}]");
        let texts: Vec<String> = errors.iter().map(|error| format!("{field}: Forbidden: {error}")).collect();
        let listed = if let [text] = &*texts { text.clone() } else { format!("[{}]", texts.join(", ")) };
        let cause = |error: &ForceDeletionError| json!({"reason": "FieldValueForbidden", "message": format!("Forbidden: {error}"), "field": field});
        let Kind { group, kind } = &self.kind;
        let details = json!({
            "group": group, "kind": kind, "name": self.name(), "causes": errors.iter().map(cause).collect::<Vec<_>>(),
        });
        self.denied(422, "Invalid", format!("{} {:?} is invalid: {listed}", self.kind, self.name()), details)
    }

    /// Denies the request as an API server does if it is forbidden.
    fn forbidden(&self, problem: &str) -> Decision {
        let Resource { group, resource } = &self.resource;
        let details = json!({"group": group, "kind": resource, "name": self.name()});
        self.denied(403, "Forbidden", format!("{} {:?} is forbidden: {problem}", self.resource, self.name()), details)
    }

    fn denied(&self, code: u16, reason: &str, message: String, details: Value) -> Decision {
        let Self { operation, namespace, .. } = self;
        tracing::info!(?operation, namespace, reason = message, "denied");
        let status = json!({
            "status": "Failure", "code": code, "reason": reason, "message": message, "details": details,
        });
        Decision::Denied(status)
    }
}

impl Metadata {
    fn force_deletion(&self) -> Option<&str> {
        self.annotations.as_ref()?.force_deletion.as_deref()
    }

    fn deletion(&self) -> Option<&str> {
        self.annotations.as_ref()?.deletion.as_deref()
    }
}

impl Object<ShootStatus> {
    fn codes(&self) -> impl Iterator<Item = &str> {
        let errors = self.status.iter().flat_map(|status| &status.last_errors).flatten();
        errors.flat_map(|error| &error.codes).flatten().map(String::as_str)
    }
}

impl Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        qualified(&self.kind, &self.group, f)
    }
}

impl Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        qualified(&self.resource, &self.group, f)
    }
}

/// Writes a kind or a resource with its group, as messages of Kubernetes do.
fn qualified(name: &str, group: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if group.is_empty() { f.write_str(name) } else { write!(f, "{name}.{group}") }
}
