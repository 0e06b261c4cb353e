//! Prevention of privilege escalation through roles and bindings.

use serde_json::{Value, json};

use super::{
    access::RBAC,
    is_master, may,
    rules::{self, texts},
};
use crate::{
    admission::{AdmissionRequest, Operation},
    call::User,
    state::State,
    status::ApiError,
};

/// Rejects roles and bindings that grant rights which the user does not have.
pub(crate) fn forbid_escalation(state: &State, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    let Some(object) = request.object.filter(|_| state.options.rbac && request.kind.group() == RBAC) else {
        return Ok(());
    };
    if is_master(request.user) || request.operation == Operation::Delete || is_left(object, request.old) {
        return Ok(());
    }
    match &*request.kind.id.plural {
        "roles" | "clusterroles" => forbid_role(state, request, object),
        "rolebindings" | "clusterrolebindings" => forbid_binding(state, request, object),
        _ => Ok(()),
    }
}

/// Returns whether an update only changes fields of the metadata that concern garbage collection.
fn is_left(object: &Value, old: Option<&Value>) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(metadata) = rest["metadata"].as_object_mut() {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        rest
    };
    old.is_some_and(|old| rest(object) == rest(old))
}

fn forbid_role(state: &State, request: &AdmissionRequest<'_>, role: &Value) -> Result<(), ApiError> {
    let plural = &request.kind.id.plural;
    let name = if request.operation == Operation::Create { "" } else { request.name };
    if may(state, request.user, "escalate", RBAC, plural, request.namespace, name) {
        return Ok(());
    }
    let rules: Vec<_> = role["rules"].as_array().into_iter().flatten().cloned().collect();
    confirm(state, request, &rules)?;
    let aggregates = |role: &Value| {
        role["aggregationRule"]["clusterRoleSelectors"].as_array().is_some_and(|selectors| !selectors.is_empty())
    };
    if aggregates(role) || request.old.is_some_and(aggregates) {
        let everything = json!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ]);
        let everything: Vec<_> = everything.as_array().into_iter().flatten().cloned().collect();
        let why = "must have cluster-admin privileges to use the aggregationRule";
        confirm(state, request, &everything).map_err(|_| forbidden(request, why))?;
    }
    Ok(())
}

fn forbid_binding(state: &State, request: &AdmissionRequest<'_>, binding: &Value) -> Result<(), ApiError> {
    let reference = &binding["roleRef"];
    let plural = if reference["kind"] == "Role" { "roles" } else { "clusterroles" };
    let name = reference["name"].as_str().unwrap_or_default();
    if may(state, request.user, "bind", RBAC, plural, request.namespace, name) {
        return Ok(());
    }
    // Kubernetes' error for a missing role names the kind of the binding.
    let rules = rules::of_role(state, reference, request.namespace)
        .map_err(|missing| ApiError::not_found(&request.kind.resource(), &missing.name))?;
    confirm(state, request, &rules)
}

fn forbidden(request: &AdmissionRequest<'_>, why: &str) -> ApiError {
    ApiError::forbidden(&request.kind.resource(), request.name, why)
}

/// Checks that the user has all rights that the rules grant.
fn confirm(state: &State, request: &AdmissionRequest<'_>, granted: &[Value]) -> Result<(), ApiError> {
    let User { name, groups } = request.user;
    let mut owned = Vec::new();
    let missing = rules::visit(state, request.user, request.namespace, &mut |rule| {
        owned.push(rule.clone());
        true
    });
    let granted = granted.iter().flat_map(break_down);
    let not_held: Vec<_> = granted.filter(|right| !owned.iter().any(|rule| right.is_covered(rule))).collect();
    if not_held.is_empty() {
        return Ok(());
    }
    let mut why = format!(
        "user {name:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        quoted(groups),
        compact(&not_held).join("\n"),
    );
    if !missing.is_empty() {
        let kind = request.kind.resource();
        let missing = missing.iter().map(|role| format!("{kind} {:?} not found", role.name));
        why += &format!("; resolution errors: [{}]", rules::aggregate(missing.collect()));
    }
    Err(forbidden(request, &why))
}

/// A single right that a rule grants.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Right {
    Resource { group: String, resource: String, name: Option<String>, verb: String },
    Url { url: String, verb: String },
}

impl Right {
    fn is_covered(&self, rule: &Value) -> bool {
        let has = |field: &str, wanted: &str| texts(rule, field).any(|text| text == "*" || text == wanted);
        let mut names = texts(rule, "resourceNames").peekable();
        match self {
            Self::Url { url, verb } => {
                let covered = texts(rule, "nonResourceURLs").any(|known| rules::url_covers(known, url));
                has("verbs", verb) && covered && names.peek().is_none()
            }
            Self::Resource { group, resource, name, verb } => {
                has("verbs", verb)
                    && has("apiGroups", group)
                    && texts(rule, "resources").any(|known| rules::resource_covers(known, resource))
                    && (names.peek().is_none() || name.as_deref().is_some_and(|name| names.any(|known| known == name)))
            }
        }
    }
}

fn break_down(rule: &Value) -> Vec<Right> {
    let names: Vec<_> = texts(rule, "resourceNames").map(|name| Some(name.to_owned())).collect();
    let names = if names.is_empty() { vec![None] } else { names };
    let mut rights = Vec::new();
    for group in texts(rule, "apiGroups") {
        for resource in texts(rule, "resources") {
            for verb in texts(rule, "verbs") {
                let [group, resource, verb] = [group, resource, verb].map(str::to_owned);
                let right = |name: &Option<String>| Right::Resource {
                    group: group.clone(),
                    resource: resource.clone(),
                    name: name.clone(),
                    verb: verb.clone(),
                };
                rights.extend(names.iter().map(right));
            }
        }
    }
    for url in texts(rule, "nonResourceURLs") {
        rights.extend(texts(rule, "verbs").map(|verb| Right::Url { url: url.to_owned(), verb: verb.to_owned() }));
    }
    rights
}

/// Lists rights like the API server: the verbs for a resource in one line, and the lines sorted.
fn compact(rights: &[Right]) -> Vec<String> {
    type Same<'a> = (&'a str, &'a str, Option<&'a str>);
    let mut resources: Vec<(Same<'_>, Vec<&str>)> = Vec::new();
    let mut lines = std::collections::BTreeSet::new();
    for right in rights {
        match right {
            Right::Url { url, verb } => {
                lines.insert(format!("{{NonResourceURLs:[{url:?}], Verbs:[{verb:?}]}}"));
            }
            Right::Resource { group, resource, name, verb } => {
                let same = (group.as_str(), resource.as_str(), name.as_deref());
                match resources.iter_mut().find(|(known, _)| *known == same) {
                    Some((_, verbs)) => verbs.push(verb),
                    None => resources.push((same, vec![verb])),
                }
            }
        }
    }
    for ((group, resource, name), verbs) in resources {
        let name = name.map(|name| format!(", ResourceNames:[{name:?}]")).unwrap_or_default();
        let verbs = quoted(&verbs);
        lines.insert(format!("{{APIGroups:[{group:?}], Resources:[{resource:?}]{name}, Verbs:{verbs}}}"));
    }
    lines.into_iter().collect()
}

/// Returns `["a" "b"]`.
fn quoted(texts: &[impl AsRef<str>]) -> String {
    let quoted: Vec<_> = texts.iter().map(|text| format!("{:?}", text.as_ref())).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use super::{
        super::tests::{bind, put, state},
        *,
    };
    use crate::kinds::{Kind, ResourceId};

    fn kind(plural: &str, kind: &str) -> Kind {
        Kind {
            id: ResourceId::new(RBAC, plural),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            singular: kind.to_lowercase(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: !plural.starts_with("cluster"),
            versions: Vec::new(),
            storage: 0,
            review: false,
            crd: None,
        }
    }

    /// Writes a role or binding as `ulf`, who may read and write roles in `shop`.
    fn write(state: &mut State, kind: &Kind, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let rules = json!([{"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["get", "create", "update"]}]);
        put(state, "roles", json!({"metadata": {"name": "own", "namespace": "shop"}, "rules": rules}));
        bind(state, Some("shop"), ("Role", "own"), &json!({"kind": "User", "name": "ulf"}));
        let user = User::new("ulf", ["g1"]);
        let request = AdmissionRequest {
            operation: if old.is_some() { Operation::Update } else { Operation::Create },
            user: &user,
            kind,
            version: "v1",
            subresource: None,
            namespace: if kind.namespaced { "shop" } else { "" },
            name: "esc",
            object: Some(object),
            old,
            options: &Value::Null,
            dry_run: false,
        };
        forbid_escalation(state, &request)
    }

    fn role(rules: Value) -> Value {
        json!({"metadata": {"name": "esc"}, "rules": rules})
    }

    fn more() -> Value {
        json!([
            {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["list", "get"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["watch"]},
            {"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["get"]},
        ])
    }

    const REFUSED: &str = "roles.rbac.authorization.k8s.io \"esc\" is forbidden: user \"ulf\" (groups=[\"g1\" \
                           \"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n\
                           {APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"list\" \"get\" \"watch\"]}\n\
                           {APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"list\" \"get\"]}";

    #[test]
    fn roles_cannot_grant_more_than_their_writer_has() {
        let roles = kind("roles", "Role");
        let own =
            role(json!([{"apiGroups": [RBAC], "resources": ["roles"], "resourceNames": ["x"], "verbs": ["get"]}]));
        assert_eq!(write(&mut state(), &roles, &own, None), Ok(()));
        let refused = write(&mut state(), &roles, &role(more()), None).expect_err("refused");
        assert_eq!((refused.code.as_u16(), refused.message.as_str()), (403, REFUSED));
        let mut state_with_missing = state();
        for name in ["none-1", "none-2"] {
            let binding = ("ClusterRole", name);
            bind(&mut state_with_missing, Some("shop"), binding, &json!({"kind": "User", "name": "ulf"}));
        }
        let refused = write(&mut state_with_missing, &roles, &role(more()), None).expect_err("refused");
        let errors = "; resolution errors: [[roles.rbac.authorization.k8s.io \"none-1\" not found, \
                      roles.rbac.authorization.k8s.io \"none-2\" not found]]";
        assert_eq!(refused.message, format!("{REFUSED}{errors}"));
    }

    #[test]
    fn the_verb_escalate_allows_escalation() {
        let mut state = state();
        let rules = json!([{"apiGroups": [RBAC], "resources": ["roles"], "verbs": ["escalate"]}]);
        put(&mut state, "roles", json!({"metadata": {"name": "escalate", "namespace": "shop"}, "rules": rules}));
        bind(&mut state, Some("shop"), ("Role", "escalate"), &json!({"kind": "User", "name": "ulf"}));
        assert_eq!(write(&mut state, &kind("roles", "Role"), &role(more()), None), Ok(()));
    }

    #[test]
    fn metadata_for_garbage_collection_may_change() {
        let (roles, old) = (kind("roles", "Role"), role(more()));
        let mut new = old.clone();
        new["metadata"]["finalizers"] = json!(["a.example/b"]);
        assert_eq!(write(&mut state(), &roles, &new, Some(&old)), Ok(()));
        new["rules"][0]["verbs"] = json!(["get"]);
        assert!(write(&mut state(), &roles, &new, Some(&old)).is_err());
    }

    #[test]
    fn aggregation_requires_all_rights() {
        let mut object = role(json!([]));
        object["aggregationRule"] = json!({"clusterRoleSelectors": [{}]});
        let refused = write(&mut state(), &kind("clusterroles", "ClusterRole"), &object, None).expect_err("refused");
        let expected = "clusterroles.rbac.authorization.k8s.io \"esc\" is forbidden: must have cluster-admin \
                        privileges to use the aggregationRule";
        assert_eq!(refused.message, expected);
    }

    #[test]
    fn bindings_cannot_grant_more_than_their_writer_has() {
        let bindings = kind("rolebindings", "RoleBinding");
        let binding = |kind: &str, name: &str| {
            let reference = json!({"apiGroup": RBAC, "kind": kind, "name": name});
            json!({"metadata": {"name": "esc"}, "roleRef": reference})
        };
        assert_eq!(write(&mut state(), &bindings, &binding("Role", "own"), None), Ok(()));
        let refused = write(&mut state(), &bindings, &binding("Role", "editor"), None).expect_err("refused");
        let end = "not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}";
        assert!(refused.message.ends_with(end), "{}", refused.message);
        let refused = write(&mut state(), &bindings, &binding("Role", "rrx"), None).expect_err("refused");
        let expected = (404, "rolebindings.rbac.authorization.k8s.io \"rrx\" not found");
        assert_eq!((refused.code.as_u16(), refused.message.as_str()), expected);
        let refused = write(&mut state(), &bindings, &binding("ClusterRole", "reader"), None).expect_err("refused");
        assert!(refused.message.contains("{NonResourceURLs:[\"/logs/*\"], Verbs:[\"get\"]}"), "{}", refused.message);
    }
}
