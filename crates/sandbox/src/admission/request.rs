//! A request as admission sees it.

use serde_json::Value;

use crate::{call::User, kinds::Kind, object::meta, status::ApiError};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// Returns the operation as rules spell it: `CREATE`.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A request as admission sees it.
#[derive(Clone, Copy)]
pub(crate) struct AdmissionRequest<'a> {
    pub(crate) operation: Operation,
    pub(crate) user: &'a User,
    pub(crate) kind: &'a Kind,
    /// The version of the request.
    pub(crate) version: &'a str,
    pub(crate) subresource: Option<&'a str>,
    /// Empty for cluster-scoped objects.
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// The new object; none for a deletion.
    pub(crate) object: Option<&'a Value>,
    /// The stored object; none for a creation.
    pub(crate) old: Option<&'a Value>,
    /// `CreateOptions`, `UpdateOptions`, `PatchOptions`, `DeleteOptions`.
    pub(crate) options: &'a Value,
    pub(crate) dry_run: bool,
}

impl<'a> AdmissionRequest<'a> {
    pub(super) fn subresource(&self) -> &'a str {
        self.subresource.unwrap_or_default()
    }

    /// Returns the namespace of the request. For a Namespace, this is the Namespace itself.
    pub(super) fn scope(&self) -> &'a str {
        if self.is_namespace() { self.name } else { self.namespace }
    }

    pub(super) fn is_namespace(&self) -> bool {
        self.kind.is("", "namespaces")
    }

    /// Returns the request with a changed object.
    pub(super) fn with<'b>(&'b self, object: Option<&'b Value>) -> AdmissionRequest<'b> {
        AdmissionRequest { object, ..*self }
    }

    /// Returns whether the object configures admission. Webhooks are not called for such objects.
    pub(super) fn is_admission_configuration(&self) -> bool {
        self.kind.group() == "admissionregistration.k8s.io"
            && matches!(
                self.kind.kind.as_str(),
                "ValidatingWebhookConfiguration"
                    | "MutatingWebhookConfiguration"
                    | "ValidatingAdmissionPolicy"
                    | "ValidatingAdmissionPolicyBinding"
                    | "MutatingAdmissionPolicy"
                    | "MutatingAdmissionPolicyBinding"
            )
    }

    /// Rejects the request. The error names the object, or the base of a name that is yet to be generated.
    pub(super) fn forbidden(&self, why: &str) -> ApiError {
        let object = self.object.unwrap_or(&Value::Null);
        let names = [self.name, meta(object, "name"), meta(object, "generateName")];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown");
        ApiError::forbidden(&self.kind.resource(), name, why)
    }
}
