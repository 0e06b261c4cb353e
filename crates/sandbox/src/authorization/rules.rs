//! The rules that apply to a user, and what they allow.

use serde_json::{Value, json};

use super::access::{AccessRequest, RBAC};
use crate::{call::User, kinds::ResourceId, selector::label_selector_matches, state::State};

/// A missing role that a binding refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// `Role` or `ClusterRole`.
    pub(super) kind: String,
    pub(super) name: String,
}

/// Visits each rule for a user in a namespace, or in the cluster if that is empty, until the visitor returns false.
/// Returns the missing roles.
pub(super) fn visit(
    state: &State,
    user: &User,
    namespace: &str,
    visitor: &mut dyn FnMut(&Value) -> bool,
) -> Vec<Missing> {
    let mut missing = Vec::new();
    let [everywhere, here] = ["clusterrolebindings", "rolebindings"].map(|plural| ResourceId::new(RBAC, plural));
    let here = state.store.list(&here, Some(namespace)).filter(|_| !namespace.is_empty());
    for binding in state.store.list(&everywhere, None).chain(here) {
        let binding_namespace = &*binding.namespace;
        let binding = binding.value();
        let mut subjects = binding["subjects"].as_array().into_iter().flatten();
        if !subjects.any(|subject| is_user(user, subject, binding_namespace)) {
            continue;
        }
        match of_role(state, &binding["roleRef"], binding_namespace) {
            Ok(rules) => {
                if !rules.iter().all(&mut *visitor) {
                    return missing;
                }
            }
            Err(role) => missing.push(role),
        }
    }
    missing
}

fn is_user(user: &User, subject: &Value, namespace: &str) -> bool {
    let text = |field: &str| subject[field].as_str().unwrap_or_default();
    match text("kind") {
        "User" => user.name == text("name"),
        "Group" => is_in_group(user, text("name")),
        "ServiceAccount" => {
            let namespace = if text("namespace").is_empty() { namespace } else { text("namespace") };
            service_account(user).is_some_and(|account| account == (namespace, text("name")))
        }
        _ => false,
    }
}

fn is_in_group(user: &User, group: &str) -> bool {
    let of_namespace = || match (service_account(user), group.strip_prefix("system:serviceaccounts")) {
        (Some((namespace, _)), Some(rest)) => rest.is_empty() || rest.strip_prefix(':') == Some(namespace),
        _ => false,
    };
    user.groups.iter().any(|known| known == group) || of_namespace()
}

/// Returns the namespace and name of a service account.
fn service_account(user: &User) -> Option<(&str, &str)> {
    user.name.strip_prefix("system:serviceaccount:")?.split_once(':')
}

/// Returns the rules of the role that a binding in a namespace refers to.
pub(super) fn of_role(state: &State, reference: &Value, namespace: &str) -> Result<Vec<Value>, Missing> {
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (plural, namespace) = if text("kind") == "Role" { ("roles", namespace) } else { ("clusterroles", "") };
    let Some(role) = state.store.get(&ResourceId::new(RBAC, plural), namespace, text("name")) else {
        return Err(Missing { kind: text("kind").to_owned(), name: text("name").to_owned() });
    };
    let mut rules = Vec::new();
    collect(state, &role.value(), &mut vec![text("name").to_owned()], &mut rules);
    Ok(rules)
}

/// Collects the rules of a role, or those of the ClusterRoles that it aggregates.
fn collect(state: &State, role: &Value, seen: &mut Vec<String>, rules: &mut Vec<Value>) {
    let rule = &role["aggregationRule"];
    if rule.is_null() {
        rules.extend(role["rules"].as_array().into_iter().flatten().cloned());
        return;
    }
    let selectors = || rule["clusterRoleSelectors"].as_array().into_iter().flatten();
    for other in state.store.list(&ResourceId::new(RBAC, "clusterroles"), None) {
        let selected = selectors().any(|selector| label_selector_matches(selector, &|key| other.label(key)));
        if selected && seen.iter().all(|seen| **seen != *other.name) {
            seen.push(other.name.to_string());
            collect(state, &other.value(), seen, rules);
        }
    }
}

/// Returns all rules for a user in a namespace, and an error text about missing roles.
pub(crate) fn of_user(state: &State, user: &User, namespace: &str) -> (Vec<Value>, String) {
    if !state.options.rbac {
        let all = json!(["*"]);
        let resources = json!({"verbs": all, "apiGroups": all, "resources": all});
        return (vec![resources, json!({"verbs": all, "nonResourceURLs": all})], String::new());
    }
    let mut rules = Vec::new();
    let missing_roles = visit(state, user, namespace, &mut |rule| {
        rules.push(rule.clone());
        true
    });
    (rules, missing(&missing_roles))
}

/// Returns an error text about missing roles; empty if there are none.
pub(super) fn missing(roles: &[Missing]) -> String {
    let text = |role: &Missing| format!("{}.{RBAC} {:?} not found", role.kind.to_lowercase(), role.name);
    aggregate(roles.iter().map(text).collect())
}

/// Returns the strings in a field of a rule.
pub(super) fn texts<'a>(rule: &'a Value, field: &str) -> impl Iterator<Item = &'a str> {
    rule[field].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Returns whether a rule allows an access.
pub(super) fn allows(rule: &Value, request: AccessRequest<'_>) -> bool {
    let has = |field: &str, wanted: &str| texts(rule, field).any(|text| text == "*" || text == wanted);
    match request {
        AccessRequest::Path { verb, path } => {
            has("verbs", verb) && texts(rule, "nonResourceURLs").any(|url| url_covers(url, path))
        }
        AccessRequest::Resource { verb, group, resource, name, .. } => {
            let mut names = texts(rule, "resourceNames").peekable();
            has("verbs", verb)
                && has("apiGroups", group)
                && texts(rule, "resources").any(|text| resource_covers(text, resource))
                && (names.peek().is_none() || names.any(|known| known == name))
        }
    }
}

/// Returns whether `*`, `pods`, `pods/log` or `*/log` matches a resource.
pub(super) fn resource_covers(rule: &str, resource: &str) -> bool {
    let subresource = resource.split_once('/').map(|(_, subresource)| subresource);
    rule == "*" || rule == resource || (subresource.is_some() && rule.strip_prefix("*/") == subresource)
}

/// Returns whether `/logs` or `/logs/*` matches a path.
pub(super) fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

/// Joins distinct messages: `[a, b]`.
pub(super) fn aggregate(mut messages: Vec<String>) -> String {
    let mut seen = std::collections::BTreeSet::new();
    messages.retain(|message| seen.insert(message.clone()));
    if messages.len() > 1 { format!("[{}]", messages.join(", ")) } else { messages.concat() }
}
