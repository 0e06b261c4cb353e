//! Impersonation with the modes of Kubernetes 1.36, which are tried one after another.
//!
//! The mode for the node of a service account is left out, because no token here contains a node. Access to UIDs and
//! extra values is checked, but these are not kept, because users have none here.

use super::{access::CallAccess, check, forbidden};
use crate::{
    call::{Call, User},
    names,
    state::State,
    status::ApiError,
};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// From this number of groups on, access to all groups is checked first.
const MANY: usize = 4;

/// The user that a request wants to impersonate.
#[derive(Debug)]
struct Wanted {
    name: String,
    uid: String,
    groups: Vec<String>,
    extra: Vec<(String, String)>,
}

/// Returns the user of a call: the sender, or the user that the sender impersonates.
pub(crate) fn impersonate(state: &State, call: &Call) -> Result<User, ApiError> {
    let Some(wanted) = wanted(call)? else { return Ok(call.user.clone()) };
    let mut first = None;
    for mode in [Mode::ArbitraryNode, Mode::ServiceAccount, Mode::UserInfo, Mode::Legacy] {
        if !mode.is_for(&wanted) {
            continue;
        }
        match mode.check(state, call, &wanted) {
            Ok(()) => return Ok(mode.user(wanted)),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}

fn wanted(call: &Call) -> Result<Option<Wanted>, ApiError> {
    let all = |header: &str| -> Vec<String> {
        let values = call.headers.get_all(header).iter();
        values.filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let one = |header: &str| all(header).into_iter().next().unwrap_or_default();
    let extra = call.headers.iter().filter_map(|(header, value)| {
        let key = header.as_str().strip_prefix("impersonate-extra-")?;
        Some((crate::call::decode(key), value.to_str().ok()?.to_owned()))
    });
    let wanted = Wanted {
        name: one("impersonate-user"),
        uid: one("impersonate-uid"),
        groups: all("impersonate-group"),
        extra: extra.collect(),
    };
    if !wanted.name.is_empty() {
        return Ok(Some(wanted));
    }
    if wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty() {
        return Ok(None);
    }
    Err(ApiError::bad_request(format!("requested {} without impersonating a user name", go_text(&wanted))))
}

/// Returns a user as Go prints it.
fn go_text(wanted: &Wanted) -> String {
    let list = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
        format!("{{{}}}", texts.join(", "))
    };
    let groups: Vec<&str> = wanted.groups.iter().map(String::as_str).collect();
    let groups = if groups.is_empty() { "(nil)".to_owned() } else { list(&groups) };
    let mut extra: std::collections::BTreeMap<&str, Vec<&str>> = std::collections::BTreeMap::new();
    for (key, value) in &wanted.extra {
        extra.entry(key).or_default().push(value);
    }
    let entry = |(key, values): (&str, Vec<&str>)| format!("{key:?}:[]string{}", list(&values));
    let entries: Vec<String> = extra.into_iter().map(entry).collect();
    let extra = if entries.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", entries.join(", ")) };
    let (name, uid) = (&wanted.name, &wanted.uid);
    format!(
        "&user.DefaultInfo{{Name:{name:?}, UID:{uid:?}, Groups:[]string{groups}, Extra:map[string][]string{extra}}}"
    )
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    ArbitraryNode,
    ServiceAccount,
    UserInfo,
    /// Impersonation without constraints, as in earlier versions.
    Legacy,
}

impl Mode {
    /// Returns the name of a constrained mode.
    fn name(self) -> Option<&'static str> {
        match self {
            Self::ArbitraryNode => Some("arbitrary-node"),
            Self::ServiceAccount => Some("serviceaccount"),
            Self::UserInfo => Some("user-info"),
            Self::Legacy => None,
        }
    }

    fn is_for(self, wanted: &Wanted) -> bool {
        let only_name = wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty();
        let (is_node, is_account) = (node(&wanted.name).is_some(), account(&wanted.name).is_some());
        match self {
            Self::ArbitraryNode => only_name && is_node,
            Self::ServiceAccount => only_name && is_account,
            Self::UserInfo => !is_node && !is_account,
            Self::Legacy => true,
        }
    }

    fn check(self, state: &State, call: &Call, wanted: &Wanted) -> Result<(), ApiError> {
        if let Some(name) = self.name() {
            let mut access = CallAccess::of(call);
            access.verb = format!("impersonate-on:{name}:{}", access.verb);
            check(state, &call.user, access.request())?;
        }
        let group = if self == Self::Legacy { "" } else { AUTHENTICATION };
        let access = |group: &str, resource: &str, name: &str| CallAccess {
            verb: self.name().map_or_else(|| "impersonate".to_owned(), |mode| format!("impersonate:{mode}")),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..CallAccess::default()
        };
        let may = |access: &CallAccess| check(state, &call.user, access.request());
        let user = match (self, node(&wanted.name), account(&wanted.name)) {
            (Self::ArbitraryNode, Some(node), _) => access(group, "nodes", node),
            (_, _, Some((namespace, name))) => {
                CallAccess { namespace: namespace.to_owned(), ..access(group, "serviceaccounts", name) }
            }
            _ => access(group, "users", &wanted.name),
        };
        may(&user)?;
        if !wanted.uid.is_empty() {
            may(&access(AUTHENTICATION, "uids", &wanted.uid))?;
        }
        if self != Self::Legacy {
            Self::forbid_groups(call, wanted, &access(group, "groups", ""))?;
        }
        let all = self != Self::Legacy && wanted.groups.len() >= MANY && may(&access(group, "groups", "*")).is_ok();
        if !all {
            wanted.groups.iter().try_for_each(|name| may(&access(group, "groups", name)))?;
        }
        let extra = |(key, value): &(String, String)| may(&access(AUTHENTICATION, &format!("userextras/{key}"), value));
        wanted.extra.iter().try_for_each(extra)
    }

    /// Rejects groups that only the legacy mode grants.
    fn forbid_groups(call: &Call, wanted: &Wanted, access: &CallAccess) -> Result<(), ApiError> {
        for (group, shown) in [("", "empty string"), ("system:masters", "system:masters")] {
            if wanted.groups.iter().any(|name| name == group) {
                let access = CallAccess { name: group.to_owned(), ..access.clone() };
                let why = format!("impersonating the {shown} group is not allowed");
                return Err(forbidden(&call.user, access.request(), &why));
            }
        }
        Ok(())
    }

    /// Returns the impersonated user with the groups that the name implies.
    fn user(self, wanted: Wanted) -> User {
        let Wanted { name, mut groups, .. } = wanted;
        if self == Self::ArbitraryNode {
            groups = vec!["system:nodes".to_owned()];
        } else if let Some((namespace, _)) = account(&name).filter(|_| groups.is_empty()) {
            groups = vec!["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
        }
        let ensured = if name == "system:anonymous" { UNAUTHENTICATED } else { AUTHENTICATED };
        if ![UNAUTHENTICATED, ensured].iter().any(|known| groups.iter().any(|group| group == known)) {
            groups.push(ensured.to_owned());
        }
        User { name, groups }
    }
}

fn node(name: &str) -> Option<&str> {
    name.strip_prefix("system:node:").filter(|name| names::dns_subdomain(name).is_empty())
}

/// Returns the namespace and name of a service account.
fn account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let valid = names::dns_label(namespace).is_empty() && names::dns_subdomain(name).is_empty();
    valid.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, HeaderName, HeaderValue, Method};
    use serde_json::json;

    use super::{
        super::{
            access::RBAC,
            tests::{bind, put, state},
        },
        *,
    };

    /// Reads a ConfigMap with headers and compares the user and groups, or the code and message.
    fn check(user: &User, headers: &[(&str, &str)], expected: Result<(&str, &[&str]), (u16, &str)>) {
        let mut state = state();
        put(
            &mut state,
            "clusterroles",
            json!({"metadata": {"name": "impersonator"}, "rules": [
                {"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"]},
            ]}),
        );
        put(
            &mut state,
            "clusterroles",
            json!({"metadata": {"name": "constrained"}, "rules": [
                {"apiGroups": [AUTHENTICATION], "resources": ["users", "groups"], "verbs": ["impersonate:user-info"]},
                {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["impersonate-on:user-info:get"]},
            ]}),
        );
        for name in ["impersonator", "constrained"] {
            let subject = json!({"kind": "User", "name": name, "apiGroup": RBAC});
            bind(&mut state, None, ("ClusterRole", name), &subject);
        }
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            all.append(
                HeaderName::from_bytes(name.as_bytes()).expect("a name"),
                HeaderValue::from_str(value).expect("a value"),
            );
        }
        let uri = "/api/v1/namespaces/shop/configmaps/a".parse().expect("a URI");
        let call = Call::new(user.clone(), String::new(), Method::GET, &uri, all, Bytes::new()).expect("a call");
        let found = impersonate(&state, &call).map_err(|error| (error.code.as_u16(), error.message));
        let expected = expected
            .map(|(name, groups)| User {
                name: name.into(),
                groups: groups.iter().map(|&group| group.into()).collect(),
            })
            .map_err(|(code, text)| (code, text.to_owned()));
        assert_eq!(found, expected, "{headers:?}");
    }

    #[test]
    fn impersonation_is_authorized() {
        let [admin, legacy, constrained] =
            [User::admin(), User::new("impersonator", [""; 0]), User::new("constrained", [""; 0])];
        check(&admin, &[], Ok(("admin", &["system:masters", AUTHENTICATED])));
        check(&admin, &[("Impersonate-User", "jane")], Ok(("jane", &[AUTHENTICATED])));
        let masters = [("Impersonate-User", "jane"), ("Impersonate-Group", "system:masters")];
        check(&admin, &masters, Ok(("jane", &["system:masters", AUTHENTICATED])));
        check(&legacy, &masters, Ok(("jane", &["system:masters", AUTHENTICATED])));
        check(
            &constrained,
            &masters,
            Err((
                403,
                "groups.authentication.k8s.io \"system:masters\" is forbidden: User \"constrained\" cannot impersonate:user-info resource \"groups\" in API group \"authentication.k8s.io\" at the cluster scope: impersonating the system:masters group is not allowed",
            )),
        );
        let some = [("Impersonate-User", "jane"), ("Impersonate-Group", "some")];
        check(&constrained, &some, Ok(("jane", &["some", AUTHENTICATED])));
        let account = [("Impersonate-User", "system:serviceaccount:shop:bot")];
        let groups = ["system:serviceaccounts", "system:serviceaccounts:shop", AUTHENTICATED];
        check(&legacy, &account, Ok(("system:serviceaccount:shop:bot", &groups)));
        let node = [("Impersonate-User", "system:node:one")];
        check(&admin, &node, Ok(("system:node:one", &["system:nodes", AUTHENTICATED])));
        check(&legacy, &node, Ok(("system:node:one", &[AUTHENTICATED])));
        check(&admin, &[("Impersonate-User", "system:anonymous")], Ok(("system:anonymous", &[UNAUTHENTICATED])));
        check(
            &User::new("restricted", [""; 0]),
            &some,
            Err((
                403,
                "configmaps \"a\" is forbidden: User \"restricted\" cannot impersonate-on:user-info:get resource \"configmaps\" in API group \"\" in the namespace \"shop\"",
            )),
        );
        check(
            &admin,
            &[("Impersonate-Group", "some"), ("Impersonate-Extra-Scopes", "view")],
            Err((
                400,
                "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"some\"}, Extra:map[string][]string{\"scopes\":[]string{\"view\"}}} without impersonating a user name",
            )),
        );
    }
}
