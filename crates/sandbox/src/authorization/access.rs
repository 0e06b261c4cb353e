//! What a user wants to do, as RBAC sees it.

use crate::call::{Call, Target, Verb};

pub(super) const RBAC: &str = "rbac.authorization.k8s.io";

/// What a user wants to do.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AccessRequest<'a> {
    /// To a resource; the namespace of cluster-scoped ones is empty, the name of lists too.
    Resource {
        verb: &'a str,
        group: &'a str,
        /// `pods`, `pods/log`
        resource: &'a str,
        namespace: &'a str,
        name: &'a str,
    },
    /// To a path that is no resource.
    Path { verb: &'a str, path: &'a str },
}

/// The same with texts of its own. With a path it is about that, else about a resource.
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
    /// What a call wants to do.
    pub(super) fn of(call: &Call) -> Self {
        let path = match &call.target {
            Target::Path(path) => {
                let path = if path.is_empty() { "/" } else { path };
                let verb = call.method.as_str().to_ascii_lowercase();
                return Self { verb, path: Some(path.to_owned()), ..Self::default() };
            }
            Target::Resource(path) => path,
        };
        // Only the first part of what follows the name counts: `proxy`.
        let subresource = path.subresource.as_deref().and_then(|rest| rest.split('/').next());
        let selected = matches!(call.verb, Verb::List | Verb::Watch).then(|| selected_name(call)).flatten();
        // A Namespace lies in itself.
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

/// The name that a list's field selector asks for.
fn selected_name(call: &Call) -> Option<&str> {
    let mut terms = call.text("fieldSelector")?.split(',');
    terms.find_map(|term| {
        let (field, value) = term.split_once("==").or_else(|| term.split_once('='))?;
        (field.trim() == "metadata.name" && !value.is_empty()).then(|| value.trim())
    })
}
