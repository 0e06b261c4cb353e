//! Labels, finalizers and kinds with a special meaning.

use crate::{GroupKind, ObjectKey};

/// The label on every object of a release; its value is [`crate::ReleaseName::label_value`].
pub const RELEASE_LABEL: &str = "billhook.dev/release";
/// The annotation of an object that an update does not prune without confirmation, if its value is `true`.
pub const PROTECT_ANNOTATION: &str = "billhook.dev/protect";
/// The annotation of a deleted VolumeSnapshotContent whose snapshot the CSI sidecar is to delete.
pub const SNAPSHOT_BEING_DELETED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// The annotation of a VolumeSnapshotContent whose snapshot is being taken. With it, the CSI sidecar deletes no snapshot.
pub const SNAPSHOT_BEING_CREATED: &str = "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// The field manager of billhook's own objects, such as records. Earlier versions also used it for the objects of all
/// releases; now each release has its own, [`crate::ReleaseName::field_manager`].
pub const FIELD_MANAGER: &str = "billhook";
/// The finalizer that keeps a CRD until its instances are gone. Only the API server may remove it.
pub const CRD_CLEANUP_FINALIZER: &str = "customresourcecleanup.apiextensions.k8s.io";
/// The finalizer of `propagationPolicy: Orphan`, which keeps an owner until its dependents are released. Only the garbage
/// collector may remove it: otherwise it would delete the dependents.
pub const ORPHAN_FINALIZER: &str = "orphan";
/// The finalizer of `propagationPolicy: Foreground`, which keeps an owner until its dependents are gone.
pub const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
/// The entry of a Namespace's `spec.finalizers` that the namespace controller removes.
pub const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Returns the kind of CustomResourceDefinitions.
pub fn crd() -> GroupKind {
    GroupKind::new("apiextensions.k8s.io", "CustomResourceDefinition")
}

/// Returns the CRD that defines a kind, if it is a custom one.
pub fn crd_of(plural: &str, kind: &GroupKind) -> ObjectKey {
    ObjectKey::new(crd(), None, format!("{plural}.{}", kind.group))
}

/// Returns the kind of Namespaces.
pub fn namespace() -> GroupKind {
    GroupKind::new("", "Namespace")
}

/// Returns the kind of Pods.
pub fn pod() -> GroupKind {
    GroupKind::new("", "Pod")
}

/// Returns the kind of VolumeSnapshotContents, which stand for the snapshots outside of the cluster.
pub fn volume_snapshot_content() -> GroupKind {
    GroupKind::new("snapshot.storage.k8s.io", "VolumeSnapshotContent")
}

/// Returns whether a finalizer must never be removed by force, even if a policy lists it.
pub fn is_never_removed(finalizer: &str) -> bool {
    [CRD_CLEANUP_FINALIZER, ORPHAN_FINALIZER].contains(&finalizer)
}

/// Returns whether a namespace belongs to the system: `default` and `kube-*` are never deleted.
pub fn is_protected_namespace(name: &str) -> bool {
    name == "default" || name.starts_with("kube-")
}

/// Returns whether an API group is Kubernetes' own: it has no dot, or is one of these. Other groups that end with `.k8s.io` are
/// those of approved CRDs.
pub fn is_built_in(group: &str) -> bool {
    const GROUPS: [&str; 18] = [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "internal.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    ];
    !group.contains('.') || GROUPS.contains(&group)
}
