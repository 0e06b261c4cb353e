//! The clients of a rehearsal: one that may not read what could not be copied, and one for each controller.

use std::sync::Arc;

use billhook_engine::NotRead;
use billhook_sandbox::{Sandbox, User};
use http::{Method, Request, Response, StatusCode};
use kube::{Client, client::Body};
use serde_json::json;

/// Returns the client of billhook itself. What could not be read in the cluster it cannot read here either, so that nothing is
/// concluded from it.
pub(super) fn reader(sandbox: &Sandbox, unread: Vec<NotRead>) -> Client {
    let (client, unread) = (sandbox.client(User::admin(), "billhook"), Arc::new(unread));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, unread) = (client.clone(), Arc::clone(&unread));
        async move {
            if request.method() == Method::GET
                && let Some(place) = place(request.uri().path())
                && let Some(why) = unread.iter().find(|one| hides(one, &place))
            {
                return Ok(denied(&why.why));
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

/// Returns the client of a controller. It reads everything, and writes with the rights of its ServiceAccount, if that is known.
pub(super) fn controller(sandbox: &Sandbox, account: Option<&(String, String)>) -> Client {
    let reads = sandbox.client(User::admin(), "controller");
    let Some((namespace, name)) = account else { return reads };
    let groups = ["system:serviceaccounts".to_owned(), format!("system:serviceaccounts:{namespace}")];
    let writes = sandbox.client(User::new(format!("system:serviceaccount:{namespace}:{name}"), groups), "controller");
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = if request.method() == Method::GET { reads.clone() } else { writes.clone() };
        async move { client.send(request).await }
    });
    Client::new(service, "default")
}

/// A resource that a request reads.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    group: &'a str,
    plural: &'a str,
    namespace: Option<&'a str>,
}

/// Returns what a path reads; none for other paths, such as those of discovery.
fn place(path: &str) -> Option<Place<'_>> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    match rest {
        ["namespaces", namespace, plural, ..] if !matches!(*plural, "finalize" | "status") => {
            Some(Place { group, plural, namespace: Some(namespace) })
        }
        [plural, ..] => Some(Place { group, plural, namespace: None }),
        [] => None,
    }
}

/// Returns whether a failed list hides a place.
fn hides(one: &NotRead, place: &Place<'_>) -> bool {
    let is_kind = one.resource.kind.group == place.group && one.resource.plural == place.plural;
    let is_there = match &one.namespace {
        Some(namespace) => place.namespace == Some(namespace),
        None => place.namespace.is_none_or(|namespace| !one.except.contains(namespace)),
    };
    is_kind && is_there && !one.partly
}

fn denied(why: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Forbidden",
        "message": format!("it could not be read in the cluster: {why}"),
    });
    let mut response = Response::new(Body::from(status.to_string().into_bytes()));
    *response.status_mut() = StatusCode::FORBIDDEN;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    response
}

#[cfg(test)]
mod tests {
    use billhook_objects::{GroupKind, Resource};

    use super::*;

    #[test]
    fn paths_are_read() {
        let of = |path| place(path).map(|place| (place.group, place.plural, place.namespace));
        assert_eq!(of("/api/v1/namespaces/shop/pods/a"), Some(("", "pods", Some("shop"))));
        assert_eq!(of("/api/v1/namespaces/shop"), Some(("", "namespaces", None)));
        assert_eq!(of("/api/v1/namespaces/shop/finalize"), Some(("", "namespaces", None)));
        assert_eq!(of("/apis/apps/v1/deployments"), Some(("apps", "deployments", None)));
        assert_eq!(of("/apis/apps/v1"), None);
        assert_eq!(of("/version"), None);
    }

    #[test]
    fn what_was_not_read_is_hidden() {
        let one = |plural: &str, namespaced: bool, namespace: Option<&str>, except: &[&str], partly: bool| NotRead {
            resource: Resource {
                kind: GroupKind::new("", plural),
                version: "v1".into(),
                plural: plural.into(),
                namespaced,
            },
            namespace: namespace.map(str::to_owned),
            why: "no".into(),
            partly,
            except: except.iter().map(|name| (*name).to_owned()).collect(),
        };
        let check = |unread: &[NotRead], path: &str, expected: bool| {
            let place = place(path).unwrap();
            assert_eq!(unread.iter().any(|one| hides(one, &place)), expected, "{path} {unread:?}");
        };
        let nodes = [one("nodes", false, None, &[], false)];
        check(&nodes, "/api/v1/nodes", true);
        check(&nodes, "/api/v1/nodes/a", true);
        check(&nodes, "/api/v1/pods", false);
        // Not all namespaces could be listed at once, and of those that matter only one.
        let pods = [one("pods", true, None, &["b"], false), one("pods", true, Some("a"), &[], false)];
        check(&pods, "/api/v1/pods", true);
        check(&pods, "/api/v1/namespaces/a/pods", true);
        check(&pods, "/api/v1/namespaces/b/pods/x", false);
        check(&pods, "/api/v1/namespaces/c/pods", true);
        check(&[one("pods", true, None, &[], false)], "/api/v1/namespaces/b/pods", true);
        check(&[one("pods", true, None, &[], true)], "/api/v1/pods", false);
    }
}
