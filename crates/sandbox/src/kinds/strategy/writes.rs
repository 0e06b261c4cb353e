//! How the creation and update of certain kinds differ.

use super::Kind;

impl Kind {
    /// Returns whether the API server counts the generations of objects.
    pub(crate) fn has_generation(&self) -> bool {
        if self.crd.is_some() {
            return true;
        }
        match self.group() {
            "apps" => &*self.id.plural != "controllerrevisions",
            "batch"
            | "networking.k8s.io"
            | "policy"
            | "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "scheduling.k8s.io" => true,
            "" => matches!(&*self.id.plural, "pods" | "replicationcontrollers"),
            _ => false,
        }
    }

    /// Returns whether a PUT creates an object that does not exist: `AllowCreateOnUpdate` in Kubernetes.
    pub(crate) fn allows_create_on_update(&self) -> bool {
        match self.group() {
            "" => matches!(&*self.id.plural, "services" | "endpoints" | "events" | "limitranges"),
            "coordination.k8s.io" | "rbac.authorization.k8s.io" | "events.k8s.io" | "node.k8s.io" => true,
            _ => false,
        }
    }

    /// Returns whether a PUT may leave out the `resourceVersion`: `AllowUnconditionalUpdate` in Kubernetes.
    pub(crate) fn allows_unconditional_update(&self) -> bool {
        let conditional =
            ["apiextensions.k8s.io", "apiregistration.k8s.io", "admissionregistration.k8s.io", "coordination.k8s.io"];
        self.crd.is_none() && !conditional.contains(&self.group())
    }

    /// Returns the field of the metadata that a write to the status does not change.
    pub(crate) fn field_kept_by_status(&self) -> &'static str {
        match (self.group(), &*self.id.plural) {
            ("apps", "deployments") => "labels",
            ("", "pods") => "ownerReferences",
            _ => "uid",
        }
    }
}
