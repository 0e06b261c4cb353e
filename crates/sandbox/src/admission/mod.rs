//! Admission: namespace lifecycle, webhooks, policies, and escalation of rights.
//!
//! Other built-in plugins (LimitRanger, ServiceAccount, PodSecurity, ResourceQuota, …) are not modelled, so only webhooks
//! change objects.

mod expression;
mod language;
mod matching;
mod namespace;
mod policy;
mod request;
mod webhook;

use serde_json::Value;

use crate::{authorization, state::State, status::ApiError};

pub(crate) use request::{AdmissionRequest, Operation};

/// Runs both phases of admission, for a request whose object webhooks cannot change.
pub(crate) fn admit(state: &State, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    mutate(state, request)?;
    validate(state, request)
}

/// Runs the first phase of admission, before the object is validated. Returns the object if webhooks have changed it,
/// without what the server generates for a new one.
pub(crate) fn mutate(state: &State, request: &AdmissionRequest<'_>) -> Result<Option<Value>, ApiError> {
    namespace::admit(state, request)?;
    policy::mutate(state, request)?;
    webhook::mutate(state, request)
}

/// Runs the second phase of admission.
pub(crate) fn validate(state: &State, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    authorization::forbid_escalation(state, request)?;
    policy::validate(state, request)?;
    webhook::validate(state, request)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        call::User,
        kinds::{Kind, ResourceId, Version},
        object::meta,
        options::Options,
        schema::Schema,
    };

    /// Returns a kind with these versions.
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

    /// Returns a state with the namespace `shop`.
    pub(super) fn state() -> State {
        let mut state = State::new(Options::default());
        put(&mut state, "", "namespaces", json!({"metadata": {"name": "shop", "labels": {"team": "a"}}}));
        state
    }

    pub(super) fn put(state: &mut State, group: &str, plural: &str, mut object: Value) {
        object["metadata"]["uid"] = format!("{plural}-{}", object["metadata"]["name"]).into();
        state.store.put(&ResourceId::new(group, plural), object);
    }

    /// Creates or deletes a ConfigMap in `shop`.
    pub(super) fn ask(state: &State, operation: Operation, object: &Value, dry_run: bool) -> Result<(), ApiError> {
        let (user, kind) = (User::new("jane", ["system:masters"]), configmaps());
        let deletion = operation == Operation::Delete;
        let options = json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"});
        let request = AdmissionRequest {
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
        admit(state, &request)
    }

    #[test]
    fn requests_are_admitted() {
        assert_eq!(ask(&state(), Operation::Create, &json!({"metadata": {"name": "a"}}), false), Ok(()));
    }

    #[test]
    fn errors_contain_the_base_of_a_generated_name() {
        let mut state = state();
        let deleting = json!({"metadata": {"name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        put(&mut state, "", "namespaces", deleting);
        let refused = ask(&state, Operation::Create, &json!({"metadata": {"generateName": "gen-"}}), false);
        assert!(
            refused.expect_err("refused").message.starts_with("configmaps \"gen-\" is forbidden: unable to create")
        );
    }
}
