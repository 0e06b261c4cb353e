//! Admission webhooks.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::StatusCode;
use serde_json::{Value, json};

use super::{
    AdmissionRequest, Operation,
    expression::{Scope, conditions, request_variable},
    matching,
};
use crate::{
    conversion::convert,
    kinds::ResourceId,
    object::{metadata_mut, text},
    patch::json_patch,
    state::State,
    status::ApiError,
    webhooks::{Reply, internal},
};

/// Why a webhook does not allow a request.
enum Refusal {
    /// It could not be called, or its answer is not valid. The failure policy decides.
    Failed(String),
    /// The request is rejected, or cannot be decided yet.
    Rejected(ApiError),
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::Rejected(error)
    }
}

/// Calls the mutating webhooks one after another, and a second time those that ask for it if a later one has changed the
/// object. Returns the object if one has changed it, without what the server generates for a new one.
pub(super) fn mutate(state: &State, request: &AdmissionRequest<'_>) -> Result<Option<Value>, ApiError> {
    let webhooks = configured(state, request, "mutatingwebhookconfigurations");
    if webhooks.is_empty() {
        return Ok(None);
    }
    let sent = request.object.cloned().map(|object| unborn(request, object));
    let mut object = sent.clone();
    // By their positions: those that ask to be called again and have been called since the last change, and those that are
    // to be called again.
    let (mut called, mut again) = (BTreeSet::new(), BTreeSet::new());
    for first in [true, false] {
        for (at, webhook) in webhooks.iter().enumerate() {
            if !first && !again.contains(&at) {
                continue;
            }
            let current = request.with(object.as_ref());
            let Some(version) = matched(state, &current, webhook)? else { continue };
            let changed = settle(webhook, mutated(state, &current, webhook, version))?;
            if let Some(changed) = changed.filter(|changed| Some(changed) != object.as_ref()) {
                object = Some(changed);
                again.append(&mut called);
            }
            if webhook["reinvocationPolicy"] == "IfNeeded" {
                called.insert(at);
            }
        }
    }
    Ok(object.filter(|object| sent.as_ref() != Some(object)))
}

/// Calls the validating webhooks, all at once. The first that rejects the request, in their order, decides.
pub(super) fn validate(state: &State, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let mut calls = Vec::new();
    let webhooks = configured(state, request, "validatingwebhookconfigurations");
    for webhook in &webhooks {
        if let Some(version) = matched(state, request, webhook)? {
            calls.push((webhook, version));
        }
    }
    let answers: Vec<_> =
        calls.iter().map(|(webhook, version)| settle(webhook, allowed(state, request, webhook, version))).collect();
    if state.is_waiting() {
        return Err(ApiError::waiting());
    }
    answers.into_iter().collect()
}

/// Returns the webhooks of one kind of configuration; none for requests to which webhooks do not apply.
fn configured(state: &State, request: &AdmissionRequest<'_>, configurations: &str) -> Vec<Value> {
    let mut all = Vec::new();
    if request.is_admission_configuration() {
        return all;
    }
    for one in state.store.list(&ResourceId::new("admissionregistration.k8s.io", configurations), None) {
        if let Value::Array(webhooks) = one.value()["webhooks"].take() {
            all.extend(webhooks);
        }
    }
    all
}

/// Returns the version in which a webhook has to be called; none if it does not match.
fn matched<'a>(state: &State, request: &AdmissionRequest<'a>, webhook: &Value) -> Result<Option<&'a str>, ApiError> {
    if !matching::selected(state, request, webhook) {
        return Ok(None);
    }
    let Some(version) = matching::matched_version(request, &webhook["rules"], &webhook["matchPolicy"]) else {
        return Ok(None);
    };
    if webhook["matchConditions"].as_array().is_none_or(Vec::is_empty) {
        return Ok(Some(version));
    }
    let scope = Scope::new(request, version);
    match conditions(&scope, &webhook["matchConditions"]) {
        Err(failure) if failure.not_modelled => Err(failure.into_error()),
        Err(_) if ignores(webhook) => Ok(None),
        Err(failure) => Err(ApiError::forbidden(&request.kind.resource(), request.name, &failure.message)),
        Ok(matches) => Ok(Some(version).filter(|_| matches)),
    }
}

fn ignores(webhook: &Value) -> bool {
    webhook["failurePolicy"] == "Ignore"
}

/// Applies the failure policy.
fn settle<T: Default>(webhook: &Value, answer: Result<T, Refusal>) -> Result<T, ApiError> {
    match answer {
        Ok(answer) => Ok(answer),
        Err(Refusal::Rejected(error)) => Err(error),
        Err(Refusal::Failed(_)) if ignores(webhook) => Ok(T::default()),
        Err(Refusal::Failed(why)) => {
            Err(internal(&format!("failed calling webhook {:?}: {why}", text(webhook, "name"))))
        }
    }
}

/// Returns the object that a mutating webhook makes of the request's; none without a patch.
fn mutated(
    state: &State,
    request: &AdmissionRequest<'_>,
    webhook: &Value,
    version: &str,
) -> Result<Option<Value>, Refusal> {
    let response = call(state, request, webhook, version)?;
    let patch = text(&response, "patch");
    match (patch.is_empty(), response["patchType"].as_str()) {
        (false, None) => return Err(invalid("webhook returned response.patch but not response.patchType")),
        (true, Some(_)) => return Err(invalid("webhook returned response.patchType but not response.patch")),
        _ => {}
    }
    decide(state, webhook, &response)?;
    if patch.is_empty() {
        return Ok(None);
    }
    let internal = |why: &dyn std::fmt::Display| Refusal::Rejected(internal(&why.to_string()));
    let bytes = STANDARD.decode(patch).map_err(|error| internal(&error))?;
    let patch: Value = serde_json::from_slice(&bytes).map_err(|error| internal(&error))?;
    if patch.as_array().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    let Some(object) = request.object else {
        let name = text(webhook, "name");
        let why = format!(
            "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
        );
        return Err(internal(&why));
    };
    if response["patchType"] != "JSONPatch" {
        return Err(Refusal::Failed(format!("unsupported patch type {:?}", text(&response, "patchType"))));
    }
    let object = in_version(state, request, object, version)?;
    let changed = json_patch(&object, &patch).map_err(|error| internal(&error.message))?;
    Ok(Some(in_version(state, request, &changed, request.version)?))
}

/// Returns whether a validating webhook allows a request.
fn allowed(state: &State, request: &AdmissionRequest<'_>, webhook: &Value, version: &str) -> Result<(), Refusal> {
    let response = call(state, request, webhook, version)?;
    if !text(&response, "patch").is_empty() {
        return Err(invalid("validating webhook may not return response.patch"));
    }
    if !response["patchType"].is_null() {
        return Err(invalid("validating webhook may not return response.patchType"));
    }
    decide(state, webhook, &response)
}

fn invalid(why: &str) -> Refusal {
    Refusal::Failed(format!("received invalid webhook response: {why}"))
}

/// Calls a webhook and returns the `response` in its answer.
fn call(state: &State, request: &AdmissionRequest<'_>, webhook: &Value, version: &str) -> Result<Value, Refusal> {
    if request.dry_run {
        match webhook["sideEffects"].as_str() {
            Some("None" | "NoneOnDryRun") => {}
            None => return Err(Refusal::Failed("Webhook SideEffects is nil".to_owned())),
            Some(_) => {
                let why = format!("admission webhook {:?} does not support dry run", text(webhook, "name"));
                return Err(ApiError::bad_request(why).into());
            }
        }
    }
    let known = webhook["admissionReviewVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let review_version = known.into_iter().find(|version| matches!(*version, "v1" | "v1beta1")).unwrap_or("v1");
    let api_version = format!("admission.k8s.io/{review_version}");
    let mut variable = request_variable(request, version);
    for (field, object) in [("object", request.object), ("oldObject", request.old)] {
        variable[field] = object.map(|object| in_version(state, request, object, version)).transpose()?.into();
    }
    let review = json!({"kind": "AdmissionReview", "apiVersion": api_version, "request": variable});
    let seconds = webhook["timeoutSeconds"].as_u64().unwrap_or(10);
    let reply = state.ask(&webhook["clientConfig"], Some(seconds), &review)?;
    let reply = reply.map_err(|why| Refusal::Failed(format!("failed to call webhook: {why}")))?;
    response(reply, &api_version)
}

/// Returns the `response` in an answer, as `VerifyAdmissionResponse` of Kubernetes does.
fn response(reply: Reply, api_version: &str) -> Result<Value, Refusal> {
    let Reply { uid, mut review } = reply;
    let response = review["response"].take();
    if response.is_null() {
        return Err(invalid("webhook response was absent"));
    }
    if api_version.ends_with("/v1") {
        if response["uid"] != *uid {
            return Err(invalid(&format!("expected response.uid={uid:?}, got {:?}", text(&response, "uid"))));
        }
        let (found, kind) = (text(&review, "apiVersion"), text(&review, "kind"));
        if found != api_version || kind != "AdmissionReview" {
            let expected = format!("{api_version}, Kind=AdmissionReview");
            return Err(invalid(&format!("expected webhook response of {expected}, got {found}, Kind={kind}")));
        }
    }
    Ok(response)
}

/// Returns an object in the version in which a webhook wants it.
fn in_version(state: &State, request: &AdmissionRequest<'_>, object: &Value, version: &str) -> Result<Value, ApiError> {
    let to = request.kind.api_version(version);
    // The bodies of some subresources are of another kind.
    if version == request.version && text(object, "apiVersion") == to || object["kind"] != *request.kind.kind {
        return Ok(object.clone());
    }
    Ok(convert(state, request.kind, vec![object.clone()], &to)?.pop().unwrap_or_default())
}

/// Adds the warnings of a webhook, and rejects the request if the webhook does.
fn decide(state: &State, webhook: &Value, response: &Value) -> Result<(), Refusal> {
    let warnings = response["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut memory = state.memory.borrow_mut();
    for warning in warnings {
        if !memory.warnings.iter().any(|known| known == warning) {
            memory.warnings.push(warning.to_owned());
        }
    }
    if response["allowed"] == true {
        return Ok(());
    }
    let mut status = response["status"].clone();
    let denied = format!("admission webhook {:?} denied the request", text(webhook, "name"));
    let message = match (text(&status, "message"), text(&status, "reason")) {
        ("", "") => format!("{denied} without explanation"),
        ("", why) | (why, _) => format!("{denied}: {why}"),
    };
    let code = status["code"].as_u64().and_then(|code| StatusCode::from_u16(u16::try_from(code).ok()?).ok());
    let code = code.filter(|code| code.as_u16() >= 400).unwrap_or(StatusCode::BAD_REQUEST);
    if !status.is_object() {
        status = json!({});
    }
    for (field, value) in
        [("kind", "Status"), ("apiVersion", "v1"), ("status", "Failure"), ("message", message.as_str())]
    {
        status[field] = value.into();
    }
    status["code"] = code.as_u16().into();
    metadata_mut(&mut status);
    let mut error = ApiError::new(code, "", message);
    error.status = Some(Box::new(status));
    Err(error.into())
}

/// Returns a new object as mutating webhooks see it, without what the server generates after they have been called.
fn unborn(request: &AdmissionRequest<'_>, mut object: Value) -> Value {
    if request.operation == Operation::Create && request.subresource.is_none() {
        let metadata = metadata_mut(&mut object);
        for field in ["uid", "creationTimestamp", "generation"] {
            metadata.remove(field);
        }
        if request.name.is_empty() {
            metadata.remove("name");
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{
            Operation,
            tests::{ask, put, state},
        },
        *,
    };

    /// Returns a webhook for every ConfigMap, with changes.
    fn webhook(changes: Value) -> Value {
        let mut webhook = json!({
            "name": "w.example.com", "sideEffects": "None",
            "clientConfig": {"service": {"name": "svc", "namespace": "shop", "path": "/p"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        });
        for (key, value) in changes.as_object().expect("an object") {
            webhook[key] = value.clone();
        }
        webhook
    }

    fn check(webhook: Value, dry_run: bool, expected: Result<(), (u16, &str)>) {
        let mut state = state();
        let exists = json!({
            "metadata": {"name": "exists", "namespace": "shop"},
            "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 443}]},
        });
        put(&mut state, "", "services", exists);
        let configuration = json!({"metadata": {"name": "c"}, "webhooks": [webhook]});
        let group = "admissionregistration.k8s.io";
        put(&mut state, group, "validatingwebhookconfigurations", configuration);
        let object = json!({"metadata": {"name": "a", "labels": {"app": "x"}}, "data": {"k": "v"}});
        let found = ask(&state, Operation::Create, &object, dry_run);
        let found = found.map_err(|error| (error.code.as_u16(), error.message));
        assert_eq!(found, expected.map_err(|(code, message)| (code, message.to_owned())));
    }

    #[test]
    fn called_webhooks_fail() {
        let post = |rest: &str| {
            format!(
                "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post {rest}"
            )
        };
        let fails = |changes: Value, rest: &str| check(webhook(changes), false, Err((500, &post(rest))));
        fails(json!({}), r#""https://svc.shop.svc:443/p?timeout=10s": service "svc" not found"#);
        fails(
            json!({"clientConfig": {"service": {"name": "svc", "namespace": "x", "port": 8443}}, "timeoutSeconds": 3}),
            r#""https://svc.x.svc:8443/?timeout=3s": service "svc" not found"#,
        );
        fails(
            json!({"clientConfig": {"service": {"name": "exists", "namespace": "shop", "port": 1}}}),
            r#""https://exists.shop.svc:1/?timeout=10s": no service port 1 found for service "exists""#,
        );
        fails(
            json!({"clientConfig": {"service": {"name": "exists", "namespace": "shop"}}}),
            r#""https://exists.shop.svc:443/?timeout=10s": dial tcp 10.0.0.7:443: connect: connection refused"#,
        );
        fails(
            json!({"clientConfig": {"url": "https://10.0.0.1:1/q"}}),
            r#""https://10.0.0.1:1/q?timeout=10s": dial tcp 10.0.0.1:1: connect: connection refused"#,
        );
        fails(
            json!({"clientConfig": {"url": "https://nope.example"}}),
            r#""https://nope.example/?timeout=10s": dial tcp: lookup nope.example: no such host"#,
        );
    }

    #[test]
    fn other_webhooks_do_not_fail() {
        let passes = |changes: Value| check(webhook(changes), false, Ok(()));
        passes(json!({"failurePolicy": "Ignore"}));
        passes(json!({"rules": []}));
        passes(json!({"objectSelector": {"matchLabels": {"app": "y"}}}));
        passes(json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}));
        passes(json!({"matchConditions": [{"name": "c", "expression": "object.data.k == 'w'"}]}));
        passes(json!({
            "failurePolicy": "Ignore", "matchConditions": [{"name": "c", "expression": "object.nope == 'w'"}],
        }));
        passes(json!({"matchConditions": [
            {"name": "c", "expression": "object.nope == 'w'"},
            {"name": "d", "expression": "request.operation == 'DELETE'"},
        ]}));
        let conditions = json!({"matchConditions": [
            {"name": "c", "expression": "object.spec.x == 'y'"}, {"name": "d", "expression": "object.nope == 'y'"},
        ]});
        let message = "configmaps \"a\" is forbidden: [expression 'object.spec.x == 'y'' resulted in error: no such \
                       key: spec, expression 'object.nope == 'y'' resulted in error: no such key: nope]";
        check(webhook(conditions), false, Err((403, message)));
    }

    #[test]
    fn dry_runs_require_webhooks_without_side_effects() {
        let message = "admission webhook \"w.example.com\" does not support dry run";
        for side_effects in ["Some", "Unknown"] {
            let webhook = webhook(json!({"sideEffects": side_effects, "failurePolicy": "Ignore"}));
            check(webhook, true, Err((400, message)));
        }
        check(webhook(json!({"sideEffects": "NoneOnDryRun", "failurePolicy": "Ignore"})), true, Ok(()));
        let message = "Internal error occurred: failed calling webhook \"w.example.com\": Webhook SideEffects is nil";
        check(webhook(json!({"sideEffects": null})), true, Err((500, message)));
    }

    #[test]
    fn the_first_failure_is_reported() {
        let mut state = state();
        let configuration =
            |name: &str, hook: &str| json!({"metadata": {"name": name}, "webhooks": [webhook(json!({"name": hook}))]});
        let group = "admissionregistration.k8s.io";
        put(&mut state, group, "validatingwebhookconfigurations", configuration("a", "validating"));
        let refused = |state: &State| {
            ask(state, Operation::Delete, &json!({"metadata": {"name": "a"}}), false).expect_err("refused").message
        };
        assert!(refused(&state).contains("\"validating\""));
        put(&mut state, group, "mutatingwebhookconfigurations", configuration("z", "late"));
        put(&mut state, group, "mutatingwebhookconfigurations", configuration("b", "early"));
        assert!(refused(&state).contains("\"early\""));
    }
}
