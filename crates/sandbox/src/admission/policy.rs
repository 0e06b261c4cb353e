//! ValidatingAdmissionPolicies. Requests that a MutatingAdmissionPolicy matches are answered with 501.

use http::StatusCode;
use kube_cel::cel::Value as Cel;
use serde_json::Value;

use super::{
    AdmissionRequest, Operation,
    expression::{Failure, Scope, conditions},
    matching,
};
use crate::{
    kinds::{Kind, ResourceId},
    selector::label_selector_matches,
    state::State,
    status::{ApiError, Cause},
};

/// A policy and its bindings.
struct Bound {
    policy: Value,
    bindings: Vec<Value>,
}

impl Bound {
    fn name(&self) -> &str {
        self.policy["metadata"]["name"].as_str().unwrap_or_default()
    }

    fn ignores(&self) -> bool {
        self.policy["spec"]["failurePolicy"] == "Ignore"
    }

    /// Returns the version in which the policy matches a request.
    fn matches<'a>(&self, state: &State, request: &AdmissionRequest<'a>) -> Option<&'a str> {
        matching::matched_resources(state, request, &self.policy["spec"]["matchConstraints"])
    }

    fn bindings<'b>(&'b self, state: &'b State, request: &'b AdmissionRequest<'_>) -> impl Iterator<Item = &'b Value> {
        self.bindings.iter().filter(move |binding| {
            let by = &binding["spec"]["matchResources"];
            by.is_null() || matching::matched_resources(state, request, by).is_some()
        })
    }
}

/// The rejection of a request by a policy.
struct Denial {
    message: String,
    reason: String,
}

impl Denial {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: "Invalid".to_owned() }
    }
}

/// Returns the policies that have bindings; none for requests that concern policies or are never stored, to which
/// policies do not apply.
fn bound(state: &State, request: &AdmissionRequest<'_>, policies: &str, bindings: &str) -> Vec<Bound> {
    let group = "admissionregistration.k8s.io";
    let plural = &request.kind.id.plural;
    if request.kind.review || (request.kind.group() == group && plural.contains("admissionpolic")) {
        return Vec::new();
    }
    let bindings: Vec<_> = state.store.list(&ResourceId::new(group, bindings), None).map(|one| one.value()).collect();
    if bindings.is_empty() {
        return Vec::new();
    }
    let of = |name: &str| bindings.iter().filter(|one| one["spec"]["policyName"] == name).cloned().collect();
    let policies = ResourceId::new(group, policies);
    let bound =
        state.store.list(&policies, None).map(|policy| Bound { bindings: of(&policy.name), policy: policy.value() });
    bound.filter(|bound| !bound.bindings.is_empty()).collect()
}

/// Rejects requests that a MutatingAdmissionPolicy might change.
pub(super) fn mutate(state: &State, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if request.operation == Operation::Delete {
        return Ok(());
    }
    for bound in bound(state, request, "mutatingadmissionpolicies", "mutatingadmissionpolicybindings") {
        let Some(version) = bound.matches(state, request) else { continue };
        let spec = &bound.policy["spec"];
        let scope = Scope::new(request, version).variables(&spec["variables"]);
        let applies = !matches!(conditions(&scope, &spec["matchConditions"]), Ok(false));
        if applies && bound.bindings(state, request).next().is_some() {
            let what = format!("MutatingAdmissionPolicies, and {:?} matches this request", bound.name());
            return Err(ApiError::not_modelled(what));
        }
    }
    Ok(())
}

/// Evaluates the ValidatingAdmissionPolicies until one denies the request.
pub(super) fn validate(state: &State, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    for bound in bound(state, request, "validatingadmissionpolicies", "validatingadmissionpolicybindings") {
        let Some(version) = bound.matches(state, request) else { continue };
        let kind = match param_kind(state, &bound.policy) {
            Ok(kind) => kind,
            Err(_) if bound.ignores() => continue,
            Err(why) => {
                return Err(denied(request, &bound, None, &Denial::new(format!("failed to configure policy: {why}"))));
            }
        };
        for binding in bound.bindings(state, request) {
            let params = match params(state, request, kind, &binding["spec"]["paramRef"]) {
                Ok(params) => params,
                Err(_) if bound.ignores() => continue,
                Err(why) => {
                    let denial = Denial::new(format!("failed to configure binding: {why}"));
                    return Err(denied(request, &bound, Some(binding), &denial));
                }
            };
            let denies = binding["spec"]["validationActions"].as_array().into_iter().flatten().any(|one| one == "Deny");
            for params in params.iter().map(Option::as_ref).filter(|_| denies) {
                if let Some(denial) = decide(state, request, &bound, version, params)? {
                    return Err(denied(request, &bound, Some(binding), &denial));
                }
            }
        }
    }
    Ok(())
}

fn denied(request: &AdmissionRequest<'_>, bound: &Bound, binding: Option<&Value>, denial: &Denial) -> ApiError {
    let binding = binding.map(|binding| binding["metadata"]["name"].as_str().unwrap_or_default());
    let by = binding.map(|name| format!(" with binding '{name}'")).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{}'{by} denied request: {}", bound.name(), denial.message);
    let mut error = request.forbidden(&message);
    (error.code, error.reason) = refusal(&denial.reason);
    let causes = &mut error.about.get_or_insert_default().causes;
    causes.push(Cause { reason: "", field: String::new(), message });
    error
}

/// Evaluates a policy with one of its parameters. An expression that only Kubernetes could evaluate is an error
/// regardless of the failure policy.
fn decide(
    state: &State,
    request: &AdmissionRequest<'_>,
    bound: &Bound,
    version: &str,
    params: Option<&Value>,
) -> Result<Option<Denial>, ApiError> {
    let spec = &bound.policy["spec"];
    let failed = |failure: Failure| match (failure.not_modelled, bound.ignores()) {
        (true, _) => Err(failure.into_error()),
        (false, true) => Ok(None),
        (false, false) => Ok(Some(Denial::new(failure.message))),
    };
    let scope = || Scope::new(request, version).params(params);
    if spec["matchConditions"].as_array().is_some_and(|conditions| !conditions.is_empty()) {
        // Match conditions cannot use `namespaceObject`.
        match conditions(&scope().variables(&spec["variables"]), &spec["matchConditions"]) {
            Ok(true) => {}
            Ok(false) => return Ok(None),
            Err(failure) => return failed(failure),
        }
    }
    let mut scope = scope();
    let namespace = state.store.get(&ResourceId::new("", "namespaces"), "", request.namespace);
    if let Some(namespace) = namespace.filter(|_| !request.is_namespace()) {
        scope = scope.namespace(namespace.value());
    }
    let scope = scope.variables(&spec["variables"]);
    for validation in spec["validations"].as_array().into_iter().flatten() {
        let denial = match scope.evaluate(validation["expression"].as_str().unwrap_or_default()) {
            Ok(Cel::Bool(true)) => continue,
            Ok(_) => Some(objection(&scope, validation)),
            Err(failure) => failed(failure)?,
        };
        if denial.is_some() {
            return Ok(denial);
        }
    }
    for annotation in spec["auditAnnotations"].as_array().into_iter().flatten() {
        let value = scope.evaluate(annotation["valueExpression"].as_str().unwrap_or_default());
        if let Some(denial) = value.err().map(failed).transpose()?.flatten() {
            return Ok(Some(denial));
        }
    }
    Ok(None)
}

/// Returns the denial of a failed validation, with the result of its message expression, its message, or the expression
/// itself.
fn objection(scope: &Scope, validation: &Value) -> Denial {
    let text = |field: &str| validation[field].as_str().unwrap_or_default().trim();
    let given = match validation["messageExpression"].as_str().filter(|text| !text.is_empty()) {
        Some(expression) => scope.evaluate(expression).ok(),
        None => None,
    };
    let given = match &given {
        Some(Cel::String(given)) => given.trim(),
        _ => "",
    };
    let usable = !given.is_empty() && given.len() <= 5 * 1024 && !given.contains('\n');
    let message = match (usable, text("message")) {
        (true, _) => given.to_owned(),
        (false, "") => format!("failed expression: {}", text("expression")),
        (false, message) => message.to_owned(),
    };
    Denial { message, reason: text("reason").to_owned() }
}

/// Returns the kind of a policy's parameters, if it has any.
fn param_kind<'s>(state: &'s State, policy: &Value) -> Result<Option<&'s Kind>, String> {
    let kind = &policy["spec"]["paramKind"];
    let [api_version, kind] = ["apiVersion", "kind"].map(|field| kind[field].as_str().unwrap_or_default());
    if kind.is_empty() {
        return Ok(None);
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let found = state.kinds.by_kind(group, kind).filter(|found| found.version(version).is_some());
    let missing = || format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'");
    found.map(|found| Some(&**found)).ok_or_else(missing)
}

/// Returns the parameters that a binding refers to, or a single `None` for a policy without parameters.
fn params(
    state: &State,
    request: &AdmissionRequest<'_>,
    kind: Option<&Kind>,
    reference: &Value,
) -> Result<Vec<Option<Value>>, String> {
    let Some(kind) = kind.filter(|_| !reference.is_null()) else { return Ok(vec![None]) };
    let [name, namespace] = ["name", "namespace"].map(|field| reference[field].as_str().unwrap_or_default());
    let namespace = match (kind.namespaced, namespace, request.scope()) {
        (true, "", "") => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "", namespace) | (true, namespace, _) => namespace,
        (false, "", _) => "",
        (false, ..) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let selector = &reference["selector"];
    let found: Vec<_> = match (name, selector.is_null()) {
        ("", true) => return Err("one of name or selector must be provided".to_owned()),
        ("", false) => {
            let all = state.store.list(&kind.id, Some(namespace));
            all.filter(|object| label_selector_matches(selector, &|key| object.label(key))).collect()
        }
        (_, false) => return Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned()),
        (name, true) => state.store.get(&kind.id, namespace, name).into_iter().collect(),
    };
    if found.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found.into_iter().map(|object| Some(object.value())).collect())
}

/// Returns the status code and reason for the reason of a validation.
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
    use std::sync::Arc;

    use serde_json::json;

    use super::{
        super::tests::{ask, configmaps, kind, put, state},
        *,
    };

    const GROUP: &str = "admissionregistration.k8s.io";

    /// Returns a state with a policy for ConfigMaps and its binding.
    fn with_policy(spec: &Value, binding: &Value) -> State {
        let mut state = state();
        state.kinds.insert(Arc::new(configmaps()));
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]});
        let mut full = json!({"matchConstraints": {"resourceRules": [rule]}});
        merge(&mut full, spec);
        put(&mut state, GROUP, "validatingadmissionpolicies", json!({"metadata": {"name": "p"}, "spec": full}));
        let mut full = json!({"policyName": "p", "validationActions": ["Deny"]});
        merge(&mut full, binding);
        put(&mut state, GROUP, "validatingadmissionpolicybindings", json!({"metadata": {"name": "b"}, "spec": full}));
        for (name, value) in [("one", "a"), ("two", "z")] {
            let metadata = json!({"name": name, "namespace": "shop", "labels": {"param": "yes"}});
            put(&mut state, "", "configmaps", json!({"metadata": metadata, "data": {"x": value}}));
        }
        state
    }

    fn merge(into: &mut Value, changes: &Value) {
        for (key, value) in changes.as_object().expect("an object") {
            into[key] = value.clone();
        }
    }

    fn decision(spec: &Value, binding: &Value) -> Result<(), ApiError> {
        let object = json!({"metadata": {"name": "a", "labels": {"app": "x"}}, "data": {"k": "v"}});
        ask(&with_policy(spec, binding), Operation::Create, &object, false)
    }

    fn passes(spec: Value, binding: Value) {
        assert_eq!(decision(&spec, &binding), Ok(()), "{spec}");
    }

    fn denied(spec: Value, binding: Value, message: &str) {
        let error = decision(&spec, &binding).expect_err("denied");
        let expected = format!(
            "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: {message}"
        );
        assert_eq!((error.code.as_u16(), error.reason, error.message), (422, "Invalid", expected));
    }

    fn validations(validation: Value) -> Value {
        json!({"validations": [{"expression": "true"}, validation]})
    }

    #[test]
    fn validations_deny() {
        denied(
            validations(json!({"expression": " object.data.k == 'w' "})),
            json!({}),
            "failed expression: object.data.k == 'w'",
        );
        denied(validations(json!({"expression": "false", "message": " hello "})), json!({}), "hello");
        let given =
            json!({"expression": "false", "message": "text", "messageExpression": "'no ' + object.metadata.name"});
        denied(validations(given), json!({}), "no a");
        for bad in ["object.nope", "'  '", "'a\\nb'", "1"] {
            let given = json!({"expression": "false", "message": "text", "messageExpression": bad});
            denied(validations(given), json!({}), "text");
        }
        passes(validations(json!({"expression": "object.data.k == 'v'"})), json!({}));
        for actions in [json!(["Warn"]), json!(["Audit"]), json!([])] {
            passes(validations(json!({"expression": "false"})), json!({"validationActions": actions}));
        }
    }

    #[test]
    fn the_reason_determines_the_code() {
        for (reason, code) in
            [("Forbidden", 403), ("Unauthorized", 401), ("RequestEntityTooLarge", 413), ("Invalid", 422)]
        {
            let spec = validations(json!({"expression": "false", "message": "m", "reason": reason}));
            let error = decision(&spec, &json!({})).expect_err("denied");
            assert_eq!((error.code.as_u16(), error.reason), (code, reason));
            let details = &error.body()["details"];
            let cause = "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: m";
            assert_eq!((&details["name"], &details["kind"]), (&json!("a"), &json!("configmaps")));
            assert_eq!(details["causes"][0]["message"], cause);
        }
    }

    #[test]
    fn errors_follow_the_failure_policy() {
        let spec = |expression: &str, failure: &str| {
            json!({
                "failurePolicy": failure, "validations": [{"expression": expression}],
            })
        };
        denied(
            spec("object.spec.x == 1", "Fail"),
            json!({}),
            "expression 'object.spec.x == 1' resulted in error: no such key: spec",
        );
        passes(spec("object.spec.x == 1", "Ignore"), json!({}));
        for failure in ["Fail", "Ignore"] {
            let error = decision(&spec("authorizer.path('/x').check('get').allowed()", failure), &json!({}));
            assert_eq!(error.expect_err("not modelled").code.as_u16(), 501);
        }
        let annotation = json!({"auditAnnotations": [{"key": "k", "valueExpression": "object.nope"}]});
        denied(annotation, json!({}), "expression 'object.nope' resulted in error: no such key: nope");
    }

    #[test]
    fn policies_apply_to_matching_requests() {
        let never = || validations(json!({"expression": "false"}));
        let with = |field: &str, value: Value| {
            let mut spec = never();
            spec[field] = value;
            spec
        };
        passes(with("matchConstraints", json!({"objectSelector": {"matchLabels": {"app": "y"}}})), json!({}));
        let all = json!([{"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]}]);
        passes(with("matchConstraints", json!({"excludeResourceRules": all})), json!({}));
        denied(with("matchConstraints", json!({})), json!({}), "failed expression: false");
        passes(with("matchConditions", json!([{"name": "c", "expression": "object.metadata.name == 'b'"}])), json!({}));
        denied(
            with("matchConditions", json!([{"name": "c", "expression": "object.nope.x == 1"}])),
            json!({}),
            "expression 'object.nope.x == 1' resulted in error: no such key: nope",
        );
        passes(never(), json!({"matchResources": {"namespaceSelector": {"matchLabels": {"team": "b"}}}}));
        passes(never(), json!({"policyName": "other"}));
    }

    #[test]
    fn variables_and_the_namespace_can_be_read() {
        let spec = json!({
            "variables": [{"name": "team", "expression": "namespaceObject.metadata.labels.team"}],
            "validations": [{"expression": "variables.team == 'b'", "messageExpression": "'team ' + variables.team"}],
        });
        denied(spec, json!({}), "team a");
    }

    #[test]
    fn parameters_are_read() {
        let spec = |expression: &str| {
            json!({
                "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
                "validations": [{"expression": expression, "messageExpression": "params.data.x"}],
            })
        };
        let reference = |fields: Value| json!({"paramRef": fields});
        let same = "params.data.x == object.metadata.name";
        passes(spec(same), reference(json!({"name": "one", "parameterNotFoundAction": "Deny"})));
        denied(spec(same), reference(json!({"name": "two", "namespace": "shop"})), "z");
        denied(spec(same), reference(json!({"selector": {"matchLabels": {"param": "yes"}}})), "z");
        passes(spec(same), reference(json!({"selector": {"matchLabels": {"param": "no"}}})));
        passes(spec("params == null"), json!({}));
        passes(spec(same), reference(json!({"name": "none", "parameterNotFoundAction": "Allow"})));
        denied(
            spec(same),
            reference(json!({"name": "none", "parameterNotFoundAction": "Deny"})),
            "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction",
        );
        let unknown = json!({"paramKind": {"apiVersion": "nope.example/v1", "kind": "Nope"}});
        let message = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to \
                       configure policy: failed to find resource referenced by paramKind: 'nope.example/v1, Kind=Nope'";
        assert_eq!(decision(&unknown, &json!({})).expect_err("denied").message, message);
    }

    #[test]
    fn policies_do_not_apply_to_policies() {
        let mut state =
            with_policy(&json!({"matchConstraints": {}, "validations": [{"expression": "false"}]}), &json!({}));
        let asked = |state: &State, plural: &str, kind_name: &str| {
            let (user, kind) = (crate::call::User::admin(), kind(GROUP, plural, kind_name, false, &["v1"]));
            let object = json!({"metadata": {"name": "x"}});
            let request = AdmissionRequest {
                operation: Operation::Update,
                user: &user,
                kind: &kind,
                version: "v1",
                subresource: None,
                namespace: "",
                name: "x",
                object: Some(&object),
                old: None,
                options: &Value::Null,
                dry_run: false,
            };
            super::super::admit(state, &request)
        };
        assert_eq!(asked(&state, "validatingadmissionpolicies", "ValidatingAdmissionPolicy"), Ok(()));
        assert!(asked(&state, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration").is_err());
        let binding = ResourceId::new(GROUP, "validatingadmissionpolicybindings");
        state.store.remove(&binding, "", "b");
        assert_eq!(asked(&state, "validatingwebhookconfigurations", "ValidatingWebhookConfiguration"), Ok(()));
    }

    #[test]
    fn mutating_policies_are_not_modelled() {
        let mut state = state();
        let spec = |object: &str| json!({"matchConstraints": {"objectSelector": {"matchLabels": {"app": object}}}});
        put(&mut state, GROUP, "mutatingadmissionpolicies", json!({"metadata": {"name": "m"}, "spec": spec("x")}));
        let binding = json!({"metadata": {"name": "mb"}, "spec": {"policyName": "m"}});
        put(&mut state, GROUP, "mutatingadmissionpolicybindings", binding);
        let object = |app: &str| json!({"metadata": {"name": "a", "labels": {"app": app}}});
        let error = ask(&state, Operation::Create, &object("x"), false).expect_err("not modelled");
        assert_eq!(error.code.as_u16(), 501);
        assert_eq!(ask(&state, Operation::Create, &object("y"), false), Ok(()));
        assert_eq!(ask(&state, Operation::Delete, &object("x"), false), Ok(()));
    }
}
