//! Whether a request may change what it wants to change: namespaces, webhooks, escalation of rights and policies.
//!
//! Other built-in plugins (LimitRanger, ServiceAccount, PodSecurity, ResourceQuota, …) are not modelled: nothing here
//! changes an object.

mod expression;
mod language;
mod matching;
mod namespace;
mod policy;
mod webhook;

use http::StatusCode;
use serde_json::Value;

use crate::{
    authorization,
    call::User,
    kinds::Kind,
    object::meta,
    state::State,
    status::{ApiError, Cause},
};

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// `CREATE`, as rules spell it.
    fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A request as admission sees it.
pub(crate) struct Review<'a> {
    pub(crate) operation: Operation,
    pub(crate) user: &'a User,
    pub(crate) kind: &'a Kind,
    /// The version that the client speaks.
    pub(crate) version: &'a str,
    pub(crate) subresource: Option<&'a str>,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// As it will be; none for a deletion.
    pub(crate) object: Option<&'a Value>,
    /// As it is; none for a creation.
    pub(crate) old: Option<&'a Value>,
    /// `CreateOptions`, `UpdateOptions`, `PatchOptions`, `DeleteOptions`.
    pub(crate) options: &'a Value,
    pub(crate) dry_run: bool,
}

impl<'a> Review<'a> {
    fn subresource(&self) -> &'a str {
        self.subresource.unwrap_or_default()
    }

    /// The namespace of the request: a Namespace lies in itself.
    fn scope(&self) -> &'a str {
        if self.is_namespace() { self.name } else { self.namespace }
    }

    fn is_namespace(&self) -> bool {
        self.kind.is("", "namespaces")
    }

    /// Whether the object itself rules admission: neither webhooks nor policies are asked about those.
    fn is_admission_configuration(&self) -> bool {
        self.kind.group() == "admissionregistration.k8s.io"
            && matches!(
                self.kind.kind.as_str(),
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
            )
    }

    /// A refusal that names the object, by the start of its name where the rest is yet to be generated.
    fn forbidden(&self, why: &str) -> ApiError {
        let object = self.object.unwrap_or(&Value::Null);
        let names = [self.name, meta(object, "name"), meta(object, "generateName")];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        ApiError::forbidden(&self.kind.resource(), name, why)
    }
}

/// Asks, in the API server's order: what changes objects there comes first, then what only looks at them.
pub(crate) fn admit(state: &State, review: &Review<'_>) -> Result<(), ApiError> {
    namespace::admit(state, review)?;
    policy::mutate(state, review)?;
    webhook::admit(state, review, "mutatingwebhookconfigurations")?;
    authorization::forbid_escalation(state, review)?;
    policy::validate(state, review)?;
    webhook::admit(state, review, "validatingwebhookconfigurations")
}

/// An internal error that the API server's own code found: it is told twice.
fn internal(why: &str) -> ApiError {
    let cause = Cause { reason: "", field: String::new(), message: why.to_owned() };
    ApiError::internal(why).causes(vec![cause])
}

/// The code of a reason that a policy may give.
fn refusal(reason: &str) -> (StatusCode, &'static str) {
    match reason {
        "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
        "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        kinds::{ResourceId, Version},
        options::Options,
        schema::Schema,
    };

    /// A kind as tests need it, with these versions.
    pub(super) fn kind(group: &str, plural: &str, kind: &str, namespaced: bool, versions: &[&str]) -> Kind {
        let version = |name: &&str| Version {
            name: (*name).to_owned(),
            served: true,
            schema: Schema::any(),
            status: true,
            scale: None,
            selectable: Vec::new(),
            columns: Vec::new(),
        };
        Kind {
            id: ResourceId::new(group, plural),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced,
            versions: versions.iter().map(version).collect(),
            storage: 0,
            review: false,
            crd: None,
        }
    }

    pub(super) fn configmaps() -> Kind {
        kind("", "configmaps", "ConfigMap", true, &["v1"])
    }

    /// A state with the namespace `shop`.
    pub(super) fn state() -> State {
        let mut state = State::new(Options::default());
        put(&mut state, "", "namespaces", json!({"metadata": {"name": "shop", "labels": {"team": "a"}}}));
        state
    }

    pub(super) fn put(state: &mut State, group: &str, plural: &str, mut object: Value) {
        object["metadata"]["uid"] = format!("{plural}-{}", object["metadata"]["name"]).into();
        state.store.put(&ResourceId::new(group, plural), object);
    }

    /// What becomes of creating, or deleting, a ConfigMap in `shop`.
    pub(super) fn ask(state: &State, operation: Operation, object: &Value, dry_run: bool) -> Result<(), ApiError> {
        let (user, kind) = (User::new("jane", ["system:masters"]), configmaps());
        let deletion = operation == Operation::Delete;
        let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"});
        let review = Review {
            operation,
            user: &user,
            kind: &kind,
            version: "v1",
            subresource: None,
            namespace: "shop",
            name: meta(object, "name"),
            object: (!deletion).then_some(object),
            old: deletion.then_some(object),
            options: &options,
            dry_run,
        };
        admit(state, &review)
    }

    #[test]
    fn nothing_stands_in_the_way() {
        assert_eq!(ask(&state(), Operation::Create, &json!({"metadata": {"name": "a"}}), false), Ok(()));
    }

    #[test]
    fn refusals_name_what_is_to_be_generated() {
        let mut state = state();
        let deleting = json!({"metadata": {"name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        put(&mut state, "", "namespaces", deleting);
        let refused = ask(&state, Operation::Create, &json!({"metadata": {"generateName": "gen-"}}), false);
        assert!(
            refused.expect_err("refused").message.starts_with("configmaps \"gen-\" is forbidden: unable to create")
        );
    }
}
