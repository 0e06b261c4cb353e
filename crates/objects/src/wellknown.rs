//! Labels, finalizers and kinds that have a meaning of their own.

use crate::GroupKind;

/// The label on every object of a release; its value is [`crate::ReleaseName::label_value`].
pub const RELEASE_LABEL: &str = "billhook.dev/release";
/// The field manager of all our writes.
pub const FIELD_MANAGER: &str = "billhook";
/// The finalizer with which the API server holds a CRD until its instances are gone. It is never ours to remove.
pub const CRD_CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// With which `propagationPolicy: Orphan` holds an owner until its dependents are released; never ours to remove either,
/// as the dependents that must stay would be collected.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// With which `propagationPolicy: Foreground` holds an owner until its dependents are gone.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// The entry of a Namespace's `spec.finalizers` that the namespace controller removes.
pub const NAMESPACE_FINALIZER: &str = "kubernetes";

/// The kind of CustomResourceDefinitions.
pub fn crd() -> GroupKind {
    GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// The kind of Namespaces.
pub fn namespace() -> GroupKind {
    GroupKind::new("", "Namespace")
}

/// Whether a finalizer is never removed by force, whatever a policy says.
pub fn is_never_removed(finalizer: &str) -> bool {
    [CRD_CLEANUP_FINALIZER, ORPHAN_FINALIZER].contains(&finalizer)
}

/// Whether a namespace belongs to the system: `default` and `kube-*` are never deleted.
pub fn is_protected_namespace(name: &str) -> bool {
    name == "default" || name.starts_with("kube-")
}
