//! Reviews of identities and access rights, which are answered and never stored.
//!
//! The reason why access is allowed is left out. Selectors in a review have no effect, as with RBAC.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    admission::{self, AdmissionRequest, Operation},
    authorization::{self, AccessRequest},
    call::{Call, Target, User},
    kinds::Kind,
    object::{metadata_mut, text, texts},
    patch::{Manager, track},
    state::State,
    status::{ApiError, Cause, Qualified},
    verbs::{Writer, read_body},
};

/// Answers a review.
pub(crate) fn review(state: &State, call: &Call, kind: &Arc<Kind>, mut body: Value) -> Result<Value, ApiError> {
    let writer = Writer::of(call, kind, 0, None)?;
    read_body(&writer, &mut body)?;
    let namespace = match &call.target {
        Target::Resource(path) => path.namespace.as_deref().unwrap_or_default(),
        Target::Path(_) => "",
    };
    if !namespace.is_empty() {
        metadata_mut(&mut body).insert("namespace".to_owned(), namespace.into());
    }
    let (api_version, time) = (writer.api_version(), state.time());
    let manager = Manager { name: &writer.manager, api_version: &api_version, subresource: None, time: &time };
    track(None, &mut body, &writer.version().schema, manager);
    let request = AdmissionRequest {
        operation: Operation::Create,
        user: &call.user,
        kind,
        version: &writer.version().name,
        subresource: None,
        namespace,
        name: "",
        object: Some(&body),
        old: None,
        options: &json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        dry_run: writer.dry_run,
    };
    admission::admit(state, &request)?;
    let status = status(state, &call.user, kind, &body, namespace)?;
    let name = kind.kind.as_str();
    // These two do not repeat the request.
    Ok(match name {
        "SelfSubjectReview" => {
            json!({"kind": name, "apiVersion": api_version, "metadata": {"creationTimestamp": time}, "status": status})
        }
        "SelfSubjectRulesReview" => {
            json!({"kind": name, "apiVersion": api_version, "metadata": {}, "spec": {}, "status": status})
        }
        _ => {
            body["status"] = status;
            body
        }
    })
}

/// Returns the status of a review.
fn status(state: &State, user: &User, kind: &Kind, body: &Value, namespace: &str) -> Result<Value, ApiError> {
    let spec = &body["spec"];
    match kind.kind.as_str() {
        "SelfSubjectReview" => Ok(json!({"userInfo": user_info(user)})),
        "TokenReview" => token(state, spec),
        "SelfSubjectRulesReview" => rules(state, user, spec),
        "SelfSubjectAccessReview" => {
            check_access(kind, body, false, namespace)?;
            Ok(access(state, user, spec))
        }
        "SubjectAccessReview" | "LocalSubjectAccessReview" => {
            check_access(kind, body, true, namespace)?;
            Ok(access(state, &subject(spec), spec))
        }
        other => Err(ApiError::not_modelled(other)),
    }
}

fn user_info(user: &User) -> Value {
    json!({"username": user.name, "groups": user.groups})
}

/// Returns the user that a review is about, with exactly the groups it lists.
fn subject(spec: &Value) -> User {
    let groups = spec["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
    User { name: text(spec, "user").to_owned(), groups: groups.map(str::to_owned).collect() }
}

/// Validates a review of access rights.
fn check_access(kind: &Kind, body: &Value, names_user: bool, namespace: &str) -> Result<(), ApiError> {
    let (spec, mut causes) = (&body["spec"], Vec::new());
    let (resource, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    if resource.is_object() && path.is_object() {
        // The message contains the value of the Go type.
        let value = json!({"Path": text(path, "path"), "Verb": text(path, "verb")});
        let detail = "cannot be specified in combination with resourceAttributes";
        causes.push(Cause::invalid("spec.nonResourceAttributes", &value, detail));
    }
    if !resource.is_object() && !path.is_object() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        causes.push(Cause::invalid("spec.resourceAttributes", &Value::Null, detail));
    }
    let is_local = kind.namespaced;
    if names_user && text(spec, "user").is_empty() && subject(spec).groups.is_empty() {
        causes.push(Cause::invalid("spec.user", &"".into(), "at least one of user or group must be specified"));
    }
    let mut metadata = body["metadata"].as_object().cloned().unwrap_or_default();
    metadata.remove("managedFields");
    if is_local {
        metadata.remove("namespace");
    }
    if !metadata.is_empty() {
        let detail = if is_local { "must be empty except for namespace" } else { "must be empty" };
        causes.push(Cause::invalid("metadata", &body["metadata"], detail));
    }
    if is_local && resource.is_object() && text(resource, "namespace") != namespace {
        let value = text(resource, "namespace").into();
        causes.push(Cause::invalid("spec.resourceAttributes.namespace", &value, "must match metadata.namespace"));
    }
    if is_local && path.is_object() {
        let value = json!({"Path": text(path, "path"), "Verb": text(path, "verb")});
        causes.push(Cause::invalid("spec.nonResourceAttributes", &value, "disallowed on this kind of request"));
    }
    // The error does not name the kind.
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(&Qualified::new(kind.group(), ""), "", causes)) }
}

/// Returns whether a user has the access that a review asks for.
fn access(state: &State, user: &User, spec: &Value) -> Value {
    let (attributes, path) = (&spec["resourceAttributes"], &spec["nonResourceAttributes"]);
    let resource = match text(attributes, "subresource") {
        "" => text(attributes, "resource").to_owned(),
        subresource => format!("{}/{subresource}", text(attributes, "resource")),
    };
    let request = if path.is_object() {
        AccessRequest::Path { verb: text(path, "verb"), path: text(path, "path") }
    } else {
        let (verb, group) = (text(attributes, "verb"), text(attributes, "group"));
        AccessRequest::Resource {
            verb,
            group,
            resource: &resource,
            namespace: text(attributes, "namespace"),
            name: text(attributes, "name"),
        }
    };
    match authorization::authorize_access(state, user, request) {
        Ok(()) => json!({"allowed": true}),
        Err(reason) if reason.is_empty() => json!({"allowed": false}),
        Err(reason) => json!({"allowed": false, "reason": reason}),
    }
}

/// Returns the rules for a user in a namespace.
fn rules(state: &State, user: &User, spec: &Value) -> Result<Value, ApiError> {
    let namespace = text(spec, "namespace");
    if namespace.is_empty() {
        return Err(ApiError::bad_request("no namespace on request"));
    }
    let (rules, wrong) = authorization::of_user(state, user, namespace);
    let some = |rule: &Value, field: &str| rule[field].as_array().is_some_and(|texts| !texts.is_empty());
    let part = |rule: &Value, fields: &[&str]| -> Value {
        let found = fields.iter().filter(|field| some(rule, field));
        found.map(|field| ((*field).to_owned(), rule[*field].clone())).collect::<serde_json::Map<_, _>>().into()
    };
    let resources = rules.iter().filter(|rule| some(rule, "resources"));
    let resources: Value =
        resources.map(|rule| part(rule, &["verbs", "apiGroups", "resources", "resourceNames"])).collect();
    let paths = rules.iter().filter(|rule| some(rule, "nonResourceURLs"));
    let paths: Value = paths.map(|rule| part(rule, &["verbs", "nonResourceURLs"])).collect();
    let mut status = json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false});
    if !wrong.is_empty() {
        status["evaluationError"] = wrong.into();
    }
    Ok(status)
}

/// Returns the user that a token identifies.
fn token(state: &State, spec: &Value) -> Result<Value, ApiError> {
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(ApiError::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = texts(&spec["audiences"]);
    Ok(match authorization::user_of_token(state, token, &audiences) {
        Some((user, valid)) if valid.is_empty() => json!({"authenticated": true, "user": user_info(&user)}),
        Some((user, valid)) => json!({"authenticated": true, "user": user_info(&user), "audiences": valid}),
        None => json!({"user": {}, "error": "invalid bearer token"}),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};

    use super::*;
    use crate::{controllers, options::Options};

    /// Checks the answer to a review that a user without rights sends. The path determines the kind.
    fn check(path: &str, body: &Value, expected: Result<Value, (u16, &str)>) {
        let options = Options::default().rbac(true).user("secret", User::new("bot", ["bots"]));
        let mut state = State::new(options);
        controllers::bootstrap(&mut state);
        let uri = format!("/apis/{path}").parse().expect("a URI");
        let (user, bytes) = (User::new("jane", [""; 0]), Bytes::from(body.to_string()));
        let call = Call::new(user, String::new(), Method::POST, &uri, HeaderMap::new(), bytes).expect("a call");
        let Target::Resource(resource) = &call.target else { panic!("{path}") };
        let kind = state.kinds.find(&resource.group, &resource.plural).expect("a kind").clone();
        let found = review(&state, &call, &kind, call.json().expect("JSON"));
        let found = found.map(|answer| answer["status"].clone()).map_err(|error| (error.code.as_u16(), error.message));
        assert_eq!(found, expected.map_err(|(code, text)| (code, text.to_owned())), "{path} {body}");
    }

    #[test]
    fn access_reviews_are_answered() {
        let ask = |verb: &str, namespace: &str| json!({"verb": verb, "resource": "configmaps", "namespace": namespace});
        let of = |spec: Value| json!({"spec": spec});
        let own = "authorization.k8s.io/v1/selfsubjectaccessreviews";
        check(own, &of(json!({"resourceAttributes": ask("get", "default")})), Ok(json!({"allowed": false})));
        let path = json!({"verb": "get", "path": "/version"});
        check(own, &of(json!({"nonResourceAttributes": path})), Ok(json!({"allowed": true})));
        let invalid = ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid \
                       value: null: exactly one of nonResourceAttributes or resourceAttributes must be specified";
        check(own, &of(json!({})), Err((422, invalid)));
        let other = "authorization.k8s.io/v1/subjectaccessreviews";
        let masters = json!({"groups": ["system:masters"], "resourceAttributes": ask("delete", "default")});
        check(other, &of(masters.clone()), Ok(json!({"allowed": true})));
        let anyone = ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at \
                      least one of user or group must be specified";
        check(other, &of(json!({"resourceAttributes": ask("get", "")})), Err((422, anyone)));
        let local = "authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews";
        check(local, &of(masters.clone()), Ok(json!({"allowed": true})));
        let elsewhere = "authorization.k8s.io/v1/namespaces/kube-system/localsubjectaccessreviews";
        let mismatch = ".authorization.k8s.io \"\" is invalid: \
                        spec.resourceAttributes.namespace: Invalid value: \"default\": must match metadata.namespace";
        check(elsewhere, &of(masters), Err((422, mismatch)));
    }

    #[test]
    fn identity_reviews_are_answered() {
        let groups = json!(["system:authenticated"]);
        let own = json!({"userInfo": {"username": "jane", "groups": groups}});
        check("authentication.k8s.io/v1/selfsubjectreviews", &json!({}), Ok(own));
        let token = "authentication.k8s.io/v1/tokenreviews";
        let bot = json!({"username": "bot", "groups": ["bots", "system:authenticated"]});
        check(token, &json!({"spec": {"token": "secret"}}), Ok(json!({"authenticated": true, "user": bot.clone()})));
        let unknown = json!({"user": {}, "error": "invalid bearer token"});
        check(token, &json!({"spec": {"token": "other"}}), Ok(unknown));
        check(token, &json!({"spec": {}}), Err((400, "token is required for TokenReview in authentication")));
        let audiences = json!({"spec": {"token": "secret", "audiences": ["some"]}});
        let bot = json!({"authenticated": true, "user": bot, "audiences": ["some"]});
        check(token, &audiences, Ok(bot));
    }

    #[test]
    fn rules_reviews_are_answered() {
        let path = "authorization.k8s.io/v1/selfsubjectrulesreviews";
        check(path, &json!({"spec": {}}), Err((400, "no namespace on request")));
        let mut state = State::new(Options::default().rbac(true));
        controllers::bootstrap(&mut state);
        let status = rules(&state, &User::new("jane", [""; 0]), &json!({"namespace": "default"})).expect("rules");
        let resources = json!({
            "apiGroups": ["authorization.k8s.io"], "verbs": ["create"],
            "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"],
        });
        assert_eq!((&status["resourceRules"][0], &status["incomplete"]), (&resources, &json!(false)));
        assert_eq!(status["nonResourceRules"][0]["verbs"], json!(["get"]));
    }
}
