//! Authorization: RBAC with the Roles and bindings in the store.

mod access;
mod escalation;
mod impersonation;
mod rules;
mod tokens;

use http::StatusCode;

use crate::{
    call::{Call, User},
    state::State,
    status::{ApiError, Qualified},
};

use access::CallAccess;

pub(crate) use access::AccessRequest;
pub(crate) use escalation::forbid_escalation;
pub(crate) use impersonation::impersonate;
pub(crate) use rules::of_user;
pub(crate) use tokens::user_of_token;

/// The paths that all authenticated users may read, by the ClusterRoles `system:discovery` and
/// `system:public-info-viewer`.
pub(crate) const DISCOVERY: [&str; 11] = [
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];

/// Rejects a call that its user is not allowed to make.
pub(crate) fn authorize(state: &State, call: &Call) -> Result<(), ApiError> {
    if !state.options.rbac {
        return Ok(());
    }
    check(state, &call.user, CallAccess::of(call).request())
}

/// Rejects an access that a user is not allowed. Without RBAC, everything is allowed.
fn check(state: &State, user: &User, request: AccessRequest<'_>) -> Result<(), ApiError> {
    authorize_access(state, user, request).map_err(|reason| forbidden(user, request, &reason))
}

/// Checks an access. The error of a denial contains missing roles, if there are any.
pub(crate) fn authorize_access(state: &State, user: &User, request: AccessRequest<'_>) -> Result<(), String> {
    if state.options.rbac { decide(state, user, request) } else { Ok(()) }
}

fn forbidden(user: &User, request: AccessRequest<'_>, reason: &str) -> ApiError {
    let user = &user.name;
    match request {
        AccessRequest::Path { verb, path } => {
            let why = format!("User {user:?} cannot {verb} path {path:?}");
            let message = format!("forbidden: {}", explain(&why, reason));
            ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message).about_nothing()
        }
        AccessRequest::Resource { verb, group, resource, namespace, name } => {
            let place = match namespace {
                "" => "at the cluster scope".to_owned(),
                namespace => format!("in the namespace {namespace:?}"),
            };
            let why = format!("User {user:?} cannot {verb} resource {resource:?} in API group {group:?} {place}");
            let plural = resource.split('/').next().unwrap_or_default();
            ApiError::forbidden(&Qualified::new(group, plural), name, &explain(&why, reason))
        }
    }
}

/// Kubernetes escapes HTML in these messages.
fn explain(why: &str, reason: &str) -> String {
    let why = why.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    if reason.is_empty() { why } else { format!("{why}: {reason}") }
}

/// Returns whether a user is allowed access to a resource (`users`, `pods/log`).
pub(crate) fn may(
    state: &State,
    user: &User,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> bool {
    authorize_access(state, user, AccessRequest::Resource { verb, group, resource, namespace, name }).is_ok()
}

/// Evaluates RBAC. The error of a denial contains missing roles, if there are any.
fn decide(state: &State, user: &User, request: AccessRequest<'_>) -> Result<(), String> {
    if is_master(user) {
        return Ok(());
    }
    let namespace = match request {
        AccessRequest::Resource { namespace, .. } => namespace,
        AccessRequest::Path { verb, path } => {
            let known = user.groups.iter().any(|group| group == "system:authenticated");
            if known && verb == "get" && DISCOVERY.iter().any(|rule| rules::url_covers(rule, path)) {
                return Ok(());
            }
            ""
        }
    };
    let mut allowed = false;
    let missing = rules::visit(state, user, namespace, &mut |rule| {
        allowed = rules::allows(rule, request);
        !allowed
    });
    if allowed {
        return Ok(());
    }
    let missing = rules::missing(&missing);
    Err(if missing.is_empty() { missing } else { format!("RBAC: {missing}") })
}

fn is_master(user: &User) -> bool {
    user.groups.iter().any(|group| group == "system:masters")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method, Uri};
    use serde_json::{Value, json};

    use super::{access::RBAC, *};
    use crate::{kinds::ResourceId, options::Options};

    pub(super) fn put(state: &mut State, plural: &str, mut object: Value) {
        let uid = format!("{plural}/{}/{}", object["metadata"]["namespace"], object["metadata"]["name"]);
        object["metadata"]["uid"] = uid.into();
        state.store.put(&ResourceId::new(RBAC, plural), object);
    }

    /// Binds a role to a subject.
    pub(super) fn bind(state: &mut State, namespace: Option<&str>, role: (&str, &str), subject: &Value) {
        let name = format!("{}-{}", role.0, role.1);
        let plural = if namespace.is_some() { "rolebindings" } else { "clusterrolebindings" };
        let reference = json!({"apiGroup": RBAC, "kind": role.0, "name": role.1});
        let metadata = json!({"name": name, "namespace": namespace});
        put(state, plural, json!({"metadata": metadata, "roleRef": reference, "subjects": [subject]}));
    }

    pub(super) fn state() -> State {
        let mut state = State::new(Options::default().rbac(true));
        let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
        put(
            &mut state,
            "clusterroles",
            role(
                "reader",
                json!([
                    {"apiGroups": [""], "resources": ["configmaps", "pods/log"], "verbs": ["get", "list"]},
                    {"apiGroups": ["apps"], "resources": ["*/scale"], "verbs": ["*"]},
                    {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"], "verbs": ["get", "list"]},
                    {"nonResourceURLs": ["/metrics", "/logs/*"], "verbs": ["get"]},
                ]),
            ),
        );
        let mut shop = role("editor", json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]));
        shop["metadata"]["namespace"] = "shop".into();
        put(&mut state, "roles", shop);
        bind(&mut state, None, ("ClusterRole", "reader"), &json!({"kind": "Group", "name": "readers"}));
        bind(&mut state, Some("shop"), ("Role", "editor"), &json!({"kind": "User", "name": "ed"}));
        bind(&mut state, Some("shop"), ("ClusterRole", "reader"), &json!({"kind": "ServiceAccount", "name": "bot"}));
        state
    }

    fn call(user: &User, method: Method, uri: &str) -> Call {
        let uri: Uri = uri.parse().expect("a URI");
        Call::new(user.clone(), String::new(), method, &uri, HeaderMap::new(), Bytes::new()).expect("a call")
    }

    fn allowed(user: &User, method: Method, uri: &str) {
        assert_eq!(authorize(&state(), &call(user, method, uri)), Ok(()), "{uri}");
    }

    fn refused(user: &User, method: Method, uri: &str, message: &str) {
        let error = authorize(&state(), &call(user, method, uri)).expect_err(uri);
        assert_eq!((error.code.as_u16(), error.reason, error.message.as_str()), (403, "Forbidden", message));
    }

    #[test]
    fn roles_grant_access() {
        let reader = User::new("rita", ["readers"]);
        allowed(&reader, Method::GET, "/api/v1/namespaces/shop/configmaps/a");
        allowed(&reader, Method::GET, "/api/v1/configmaps");
        allowed(&reader, Method::GET, "/api/v1/namespaces/x/pods/p/log");
        allowed(&reader, Method::PUT, "/apis/apps/v1/namespaces/x/deployments/d/scale");
        allowed(&reader, Method::GET, "/api/v1/namespaces/x/secrets/one");
        allowed(&reader, Method::GET, "/api/v1/namespaces/x/secrets?fieldSelector=metadata.name%3Done");
        allowed(&reader, Method::GET, "/metrics");
        allowed(&reader, Method::GET, "/logs/a/b");
        let editor = User::new("ed", ["others"]);
        allowed(&editor, Method::DELETE, "/apis/apps/v1/namespaces/shop/deployments");
        allowed(&editor, Method::DELETE, "/api/v1/namespaces/shop");
        let bot = User::new("system:serviceaccount:shop:bot", ["system:serviceaccounts"]);
        allowed(&bot, Method::GET, "/api/v1/namespaces/shop/configmaps/a");
        allowed(&User::admin(), Method::DELETE, "/api/v1/nodes");
        for path in ["/api", "/api/v1", "/apis/apps/v1", "/openapi/v3/apis/apps/v1", "/version", "/healthz", "/apis/"] {
            allowed(&User::new("nobody", [""; 0]), Method::GET, path);
        }
    }

    #[test]
    fn errors_name_the_access() {
        let user = User::new("restricted", ["readers"]);
        let cannot = |what: &str, rest: &str| format!("{what} is forbidden: User \"restricted\" cannot {rest}");
        let check =
            |method: Method, uri: &str, what: &str, rest: &str| refused(&user, method, uri, &cannot(what, rest));
        check(
            Method::DELETE,
            "/api/v1/namespaces/x/configmaps/a",
            r#"configmaps "a""#,
            r#"delete resource "configmaps" in API group "" in the namespace "x""#,
        );
        check(Method::GET, "/api/v1/pods", "pods", r#"list resource "pods" in API group "" at the cluster scope"#);
        check(
            Method::GET,
            "/api/v1/pods?watch=1",
            "pods",
            r#"watch resource "pods" in API group "" at the cluster scope"#,
        );
        check(
            Method::DELETE,
            "/apis/apps/v1/namespaces/x/deployments",
            "deployments.apps",
            r#"deletecollection resource "deployments" in API group "apps" in the namespace "x""#,
        );
        check(
            Method::GET,
            "/api/v1/namespaces/x",
            r#"namespaces "x""#,
            r#"get resource "namespaces" in API group "" in the namespace "x""#,
        );
        check(
            Method::PUT,
            "/api/v1/namespaces/x/finalize",
            r#"namespaces "x""#,
            r#"update resource "namespaces/finalize" in API group "" in the namespace "x""#,
        );
        check(
            Method::GET,
            "/api/v1/namespaces/x/secrets?fieldSelector=metadata.name%3Dtwo",
            r#"secrets "two""#,
            r#"list resource "secrets" in API group "" in the namespace "x""#,
        );
        refused(&user, Method::GET, "/x", r#"forbidden: User "restricted" cannot get path "/x""#);
        refused(&user, Method::POST, "/version", r#"forbidden: User "restricted" cannot post path "/version""#);
        refused(&user, Method::GET, "/", r#"forbidden: User "restricted" cannot get path "/""#);
        let error = authorize(&state(), &call(&user, Method::GET, "/apis/apps/v1/deployments")).expect_err("refused");
        assert_eq!(error.body()["details"], json!({"group": "apps", "kind": "deployments"}));
        refused(
            &User::new("a<b>&\"", [""; 0]),
            Method::GET,
            "/x",
            r#"forbidden: User "a&lt;b&gt;&amp;\"" cannot get path "/x""#,
        );
    }

    #[test]
    fn missing_roles_are_reported() {
        let mut state = state();
        let user = json!({"kind": "User", "name": "u"});
        bind(&mut state, None, ("ClusterRole", "none"), &user);
        let error = |state: &State| {
            let call = call(&User::new("u", [""; 0]), Method::GET, "/api/v1/namespaces/x/pods");
            authorize(state, &call).expect_err("refused").message
        };
        let base = r#"pods is forbidden: User "u" cannot list resource "pods" in API group "" in the namespace "x""#;
        let first = r#"clusterrole.rbac.authorization.k8s.io "none" not found"#;
        assert_eq!(error(&state), format!("{base}: RBAC: {first}"));
        bind(&mut state, Some("x"), ("Role", "none"), &user);
        let second = r#"role.rbac.authorization.k8s.io "none" not found"#;
        assert_eq!(error(&state), format!("{base}: RBAC: [{first}, {second}]"));
    }

    #[test]
    fn bindings_apply_in_their_namespace() {
        let state = state();
        let editor = User::new("ed", [""; 0]);
        assert!(may(&state, &editor, "impersonate", "", "users", "shop", "x"));
        assert!(!may(&state, &editor, "impersonate", "", "users", "", "x"));
        assert!(!may(&state, &editor, "get", "", "pods", "other", ""));
        let bot = User::new("system:serviceaccount:other:bot", [""; 0]);
        assert!(!may(&state, &bot, "get", "", "configmaps", "shop", ""));
        assert!(may(&State::new(Options::default()), &editor, "get", "", "pods", "other", ""));
    }

    #[test]
    fn service_accounts_are_in_their_groups() {
        let mut state = state();
        bind(
            &mut state,
            None,
            ("ClusterRole", "reader"),
            &json!({"kind": "Group", "name": "system:serviceaccounts:x"}),
        );
        let bot = |namespace: &str| User::new(format!("system:serviceaccount:{namespace}:bot"), [""; 0]);
        assert!(may(&state, &bot("x"), "get", "", "configmaps", "any", "a"));
        assert!(!may(&state, &bot("y"), "get", "", "configmaps", "any", "a"));
    }

    #[test]
    fn cluster_roles_are_aggregated() {
        let mut state = state();
        let aggregated = |name: &str, label: &str, own: &str| {
            json!({
                "metadata": {"name": name, "labels": {own: "true"}},
                "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {label: "true"}}]},
            })
        };
        put(&mut state, "clusterroles", aggregated("admin", "to-admin", "to-edit"));
        put(&mut state, "clusterroles", aggregated("edit", "to-edit", "to-admin"));
        put(
            &mut state,
            "clusterroles",
            json!({
                "metadata": {"name": "part", "labels": {"to-edit": "true"}},
                "rules": [{"apiGroups": ["x.example"], "resources": ["*"], "verbs": ["*"]}],
            }),
        );
        bind(&mut state, None, ("ClusterRole", "admin"), &json!({"kind": "User", "name": "u"}));
        let user = User::new("u", [""; 0]);
        assert!(may(&state, &user, "delete", "x.example", "things", "shop", "a"));
        assert!(!may(&state, &user, "delete", "y.example", "things", "shop", "a"));
    }
}
