//! NamespaceLifecycle: an object needs its namespace, and a terminating namespace accepts no new objects.

use super::{AdmissionRequest, Operation};
use crate::{
    kinds::ResourceId,
    state::State,
    status::{ApiError, Cause, Qualified},
};

/// The namespaces that cannot be deleted.
const UNDELETABLE: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn admit(state: &State, request: &AdmissionRequest<'_>) -> Result<(), ApiError> {
    if request.is_namespace() {
        let refused = request.operation == Operation::Delete && UNDELETABLE.contains(&request.name);
        let forbidden =
            || ApiError::forbidden(&request.kind.resource(), request.name, "this namespace may not be deleted");
        return if refused { Err(forbidden()) } else { Ok(()) };
    }
    // The answer would reveal whether the namespace exists.
    let review_of_rights = request.kind.is("authorization.k8s.io", "localsubjectaccessreviews");
    if request.namespace.is_empty() || request.operation == Operation::Delete || review_of_rights {
        return Ok(());
    }
    let name = request.namespace;
    let Some(namespace) = state.store.get(&ResourceId::new("", "namespaces"), "", name) else {
        return Err(ApiError::not_found(&Qualified::new("", "namespaces"), name));
    };
    if request.operation == Operation::Create && namespace.deleting {
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let mut error = request.forbidden(&why);
        error.about.get_or_insert_default().causes.push(Cause {
            reason: "NamespaceTerminating",
            field: "metadata.namespace".to_owned(),
            message: format!("namespace {name} is being terminated"),
        });
        return Err(error);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::tests::{configmaps, kind, put, state},
        *,
    };
    use crate::{call::User, kinds::Kind};

    fn check(kind: &Kind, operation: Operation, namespace: &str, name: &str, expected: Result<(), (u16, &str)>) {
        let mut state = state();
        let going = json!({"metadata": {"name": "going", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        put(&mut state, "", "namespaces", going);
        let (user, object) = (User::admin(), json!({"metadata": {"name": name}}));
        let request = AdmissionRequest {
            operation,
            user: &user,
            kind,
            version: "v1",
            subresource: None,
            namespace,
            name,
            object: Some(&object),
            old: None,
            options: &serde_json::Value::Null,
            dry_run: false,
        };
        let found = super::admit(&state, &request).map_err(|error| (error.code.as_u16(), error.message));
        assert_eq!(found, expected.map_err(|(code, message)| (code, message.to_owned())));
    }

    #[test]
    fn namespaces_are_checked() {
        use Operation::{Create, Delete, Update};
        let (configmaps, namespaces) = (configmaps(), kind("", "namespaces", "Namespace", false, &["v1"]));
        check(&configmaps, Create, "shop", "a", Ok(()));
        check(&configmaps, Create, "none", "a", Err((404, r#"namespaces "none" not found"#)));
        check(&configmaps, Update, "none", "a", Err((404, r#"namespaces "none" not found"#)));
        check(&configmaps, Delete, "none", "a", Ok(()));
        let refused = "configmaps \"a\" is forbidden: unable to create new content in namespace going because it is \
                       being terminated";
        check(&configmaps, Create, "going", "a", Err((403, refused)));
        check(&configmaps, Update, "going", "a", Ok(()));
        check(&configmaps, Delete, "going", "a", Ok(()));
        let refused = r#"namespaces "default" is forbidden: this namespace may not be deleted"#;
        check(&namespaces, Delete, "", "default", Err((403, refused)));
        check(&namespaces, Delete, "", "kube-node-lease", Ok(()));
        check(&namespaces, Create, "", "going", Ok(()));
        let nodes = kind("", "nodes", "Node", false, &["v1"]);
        check(&nodes, Create, "", "a", Ok(()));
    }

    #[test]
    fn terminating_namespaces_are_a_cause() {
        let mut state = state();
        let going = json!({"metadata": {"name": "shop", "deletionTimestamp": "2026-01-01T00:00:00Z"}});
        put(&mut state, "", "namespaces", going);
        let error = super::super::tests::ask(&state, Operation::Create, &json!({"metadata": {"name": "a"}}), false);
        let expected = json!({"name": "a", "kind": "configmaps", "causes": [{
            "reason": "NamespaceTerminating", "field": "metadata.namespace",
            "message": "namespace shop is being terminated",
        }]});
        assert_eq!(error.expect_err("refused").body()["details"], expected);
    }
}
