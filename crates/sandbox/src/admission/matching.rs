//! Matching of requests by the rules and selectors of webhooks and policies.

use serde_json::Value;

use super::{AdmissionRequest, Operation};
use crate::{kinds::ResourceId, selector::label_selector_matches, state::State};

/// Returns whether the selectors match the namespace and the object.
pub(super) fn selected(state: &State, request: &AdmissionRequest<'_>, by: &Value) -> bool {
    namespace_selected(state, request, &by["namespaceSelector"]) && object_selected(request, &by["objectSelector"])
}

fn namespace_selected(state: &State, request: &AdmissionRequest<'_>, selector: &Value) -> bool {
    if request.scope().is_empty() && !request.is_namespace() {
        return true;
    }
    // A write to a Namespace is matched by the labels that it will have.
    let written = request.is_namespace() && request.subresource.is_none() && request.operation != Operation::Delete;
    if written && let Some(object) = request.object {
        return labels_selected(object, selector);
    }
    let namespace = state.store.get(&ResourceId::new("", "namespaces"), "", request.scope());
    label_selector_matches(selector, &|key| namespace.and_then(|namespace| namespace.label(key)))
}

fn object_selected(request: &AdmissionRequest<'_>, selector: &Value) -> bool {
    // A selector that matches everything needs no object.
    if is_empty(selector) || selector.as_object().is_some_and(|fields| fields.values().all(is_empty)) {
        return true;
    }
    [request.object, request.old].into_iter().flatten().any(|object| labels_selected(object, selector))
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_none_or(serde_json::Map::is_empty) && value.as_array().is_none_or(Vec::is_empty)
}

fn labels_selected(object: &Value, selector: &Value) -> bool {
    let labels = &object["metadata"]["labels"];
    label_selector_matches(selector, &|key| labels.get(key).and_then(Value::as_str))
}

/// Returns the version in which a rule matches a request: the one of the request, or else, with `matchPolicy:
/// Equivalent`, another version of the kind. Without rules, nothing matches.
pub(super) fn matched_version<'a>(
    request: &AdmissionRequest<'a>,
    rules: &Value,
    match_policy: &Value,
) -> Option<&'a str> {
    let rules = || rules.as_array().into_iter().flatten();
    if rules().any(|rule| rule_matches(request, request.version, rule)) {
        return Some(request.version);
    }
    if match_policy == "Exact" {
        return None;
    }
    let others = || request.kind.versions.iter().filter(|other| other.served && other.name != request.version);
    rules().find_map(|rule| others().find(|other| rule_matches(request, &other.name, rule))).map(|other| &*other.name)
}

/// Returns the version in which the `matchConstraints` or `matchResources` of a policy match. These can also exclude
/// resources, and match everything without rules.
pub(super) fn matched_resources<'a>(state: &State, request: &AdmissionRequest<'a>, by: &Value) -> Option<&'a str> {
    let policy = &by["matchPolicy"];
    if !selected(state, request, by) || matched_version(request, &by["excludeResourceRules"], policy).is_some() {
        return None;
    }
    let rules = &by["resourceRules"];
    if is_empty(rules) { Some(request.version) } else { matched_version(request, rules, policy) }
}

fn rule_matches(request: &AdmissionRequest<'_>, version: &str, rule: &Value) -> bool {
    let texts = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let has = |field: &str, wanted: &str| texts(field).any(|text| text == "*" || text == wanted);
    let cluster_scoped = request.is_namespace() || request.namespace.is_empty();
    let scope = match rule["scope"].as_str() {
        None | Some("*") => true,
        Some("Namespaced") => !cluster_scoped,
        Some("Cluster") => cluster_scoped,
        Some(_) => false,
    };
    let resource = |text: &str| {
        let (resource, subresource) = text.split_once('/').unwrap_or((text, ""));
        (resource == "*" || resource == &*request.kind.id.plural)
            && (subresource == "*" || subresource == request.subresource())
    };
    let mut names = texts("resourceNames").peekable();
    scope
        && has("operations", request.operation.as_str())
        && has("apiGroups", request.kind.group())
        && has("apiVersions", version)
        && texts("resources").any(resource)
        && (names.peek().is_none() || names.any(|name| name == request.name))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::tests::{kind, put, state},
        *,
    };
    use crate::{call::User, kinds::Kind};

    /// A kind, a subresource, a version and an operation.
    struct TestRequest<'a>(&'a Kind, &'a str, &'a str, Operation);

    impl TestRequest<'_> {
        fn with<R>(&self, object: &Value, use_it: impl FnOnce(&AdmissionRequest<'_>) -> R) -> R {
            let user = User::admin();
            use_it(&AdmissionRequest {
                operation: self.3,
                user: &user,
                kind: self.0,
                version: self.2,
                subresource: Some(self.1).filter(|subresource| !subresource.is_empty()),
                namespace: if self.0.namespaced { "shop" } else { "" },
                name: "a",
                object: (self.3 != Operation::Delete).then_some(object),
                old: (self.3 != Operation::Create).then_some(object),
                options: &Value::Null,
                dry_run: false,
            })
        }
    }

    fn check(test: &TestRequest<'_>, rule: Value, expected: Option<&str>) {
        let mut full = json!({"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"]});
        for (key, value) in rule.as_object().expect("an object") {
            full[key] = value.clone();
        }
        let policy = full["matchPolicy"].clone();
        let found =
            test.with(&Value::Null, |request| matched_version(request, &json!([full]), &policy).map(str::to_owned));
        assert_eq!(found.as_deref(), expected, "{rule}");
    }

    #[test]
    fn rules_match() {
        use Operation::{Create, Delete, Update};
        let deployments = kind("apps", "deployments", "Deployment", true, &["v1", "v1beta1"]);
        let namespaces = kind("", "namespaces", "Namespace", false, &["v1"]);
        let plain = TestRequest(&deployments, "", "v1", Create);
        check(&plain, json!({}), Some("v1"));
        check(&plain, json!({"apiGroups": [""]}), None);
        check(&plain, json!({"apiGroups": ["", "apps"], "resources": ["pods", "deployments"]}), Some("v1"));
        check(&plain, json!({"operations": ["UPDATE"]}), None);
        check(&plain, json!({"operations": ["CREATE"], "scope": "Namespaced"}), Some("v1"));
        check(&plain, json!({"scope": "Cluster"}), None);
        check(&plain, json!({"apiVersions": ["v1beta1"]}), Some("v1beta1"));
        check(&plain, json!({"apiVersions": ["v1beta1"], "matchPolicy": "Exact"}), None);
        check(&plain, json!({"apiVersions": ["v2"]}), None);
        check(&plain, json!({"resources": ["deployments/status"]}), None);
        check(&plain, json!({"resources": ["*/*"]}), Some("v1"));
        check(&plain, json!({"resourceNames": ["b"]}), None);
        check(&plain, json!({"resourceNames": ["b", "a"]}), Some("v1"));
        let status = TestRequest(&deployments, "status", "v1", Update);
        check(&status, json!({}), None);
        for resource in ["deployments/status", "deployments/*", "*/status", "*/*"] {
            check(&status, json!({"resources": [resource]}), Some("v1"));
        }
        check(&status, json!({"resources": ["deployments/scale"]}), None);
        let namespace = TestRequest(&namespaces, "", "v1", Delete);
        check(&namespace, json!({"scope": "Cluster", "operations": ["DELETE"]}), Some("v1"));
        check(&namespace, json!({"scope": "Namespaced"}), None);
    }

    fn select(test: &TestRequest<'_>, by: Value, expected: bool) {
        let mut state = state();
        put(&mut state, "", "namespaces", json!({"metadata": {"name": "a", "labels": {"team": "stored"}}}));
        let object = json!({"metadata": {"name": "a", "labels": {"team": "written", "app": "x"}}});
        assert_eq!(test.with(&object, |request| selected(&state, request, &by)), expected, "{by}");
    }

    #[test]
    fn selectors_match() {
        use Operation::{Create, Delete};
        let configmaps = kind("", "configmaps", "ConfigMap", true, &["v1"]);
        let test = TestRequest(&configmaps, "", "v1", Create);
        select(&test, json!({}), true);
        select(&test, json!({"namespaceSelector": {}, "objectSelector": {}}), true);
        select(&test, json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}), true);
        select(&test, json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), false);
        select(&test, json!({"objectSelector": {"matchLabels": {"app": "x"}}}), true);
        select(&test, json!({"objectSelector": {"matchLabels": {"app": "y"}}}), false);
        let test = TestRequest(&configmaps, "", "v1", Delete);
        select(&test, json!({"objectSelector": {"matchLabels": {"app": "x"}}}), true);
        let nodes = kind("", "nodes", "Node", false, &["v1"]);
        let test = TestRequest(&nodes, "", "v1", Create);
        select(&test, json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), true);
        let namespaces = kind("", "namespaces", "Namespace", false, &["v1"]);
        let test = TestRequest(&namespaces, "", "v1", Create);
        select(&test, json!({"namespaceSelector": {"matchLabels": {"team": "written"}}}), true);
        let test = TestRequest(&namespaces, "", "v1", Delete);
        select(&test, json!({"namespaceSelector": {"matchLabels": {"team": "stored"}}}), true);
    }
}
