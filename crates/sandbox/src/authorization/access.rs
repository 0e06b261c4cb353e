//! The access that a request needs.

use crate::call::{Call, Target, Verb};

pub(super) const RBAC: &str = "rbac.authorization.k8s.io";

/// An access for which RBAC is evaluated.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccessRequest<'a> {
    /// Access to a resource. The namespace is empty for cluster-scoped resources, and the name for collections.
    Resource {
        verb: &'a str,
        group: &'a str,
        /// The resource, with its subresource if there is one: `pods`, `pods/log`.
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// Access to a path that is not a resource.
    Path { verb: &'a str, path: &'a str },
}

/// The access that a call needs: to the path if there is one, else to the resource.
#[derive(Clone, Debug, Default)]
pub(super) struct CallAccess {
    pub(super) verb: String,
    pub(super) group: String,
    pub(super) resource: String,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) path: Option<String>,
}

impl CallAccess {
    /// Returns the access that a call needs.
    pub(super) fn of(call: &Call) -> Self {
        let path = match &call.target {
            Target::Path(path) => {
                let path = if path.is_empty() { "/" } else { path };
                let verb = call.method.as_str().to_ascii_lowercase();
                return Self { verb, path: Some(path.to_owned()), ..Self::default() };
            }
            Target::Resource(path) => path,
        };
        // RBAC only considers the first segment of a subresource: `proxy`.
        let subresource = path.subresource.as_deref().and_then(|rest| rest.split('/').next());
        let selected = matches!(call.verb, Verb::List | Verb::Watch).then(|| selected_name(call)).flatten();
        // A Namespace counts as an object in the namespace of its own name.
        let itself = path.name.as_deref().filter(|_| path.group.is_empty() && path.plural == "namespaces");
        Self {
            verb: call.verb.as_str().to_owned(),
            group: path.group.clone(),
            resource: subresource.map_or_else(|| path.plural.clone(), |sub| format!("{}/{sub}", path.plural)),
            namespace: path.namespace.as_deref().or(itself).unwrap_or_default().to_owned(),
            name: path.name.as_deref().or(selected).unwrap_or_default().to_owned(),
            path: None,
        }
    }

    pub(super) fn request(&self) -> AccessRequest<'_> {
        let Self { verb, group, resource, namespace, name, path } = self;
        match path {
            Some(path) => AccessRequest::Path { verb, path },
            None => AccessRequest::Resource { verb, group, resource, namespace, name },
        }
    }
}

/// Returns the name that the field selector of a list requires.
fn selected_name(call: &Call) -> Option<&str> {
    let mut terms = call.text("fieldSelector")?.split(',');
    terms.find_map(|term| {
        let (field, value) = term.split_once("==").or_else(|| term.split_once('='))?;
        (field.trim() == "metadata.name" && !value.is_empty()).then(|| value.trim())
    })
}
