//! The built-in kinds that rules read.

use billhook_objects::{ApiVersion, GroupKind, Resource};

use crate::ObjectRef;

/// A built-in kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Builtin {
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
}

const fn namespaced(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Builtin {
    Builtin { group, version, kind, plural, namespaced: true }
}

const fn cluster(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Builtin {
    Builtin { group, version, kind, plural, namespaced: false }
}

pub(crate) const NAMESPACE: Builtin = cluster("", "v1", "Namespace", "namespaces");
pub(crate) const NODE: Builtin = cluster("", "v1", "Node", "nodes");
pub(crate) const POD: Builtin = namespaced("", "v1", "Pod", "pods");
pub(crate) const SERVICE: Builtin = namespaced("", "v1", "Service", "services");
pub(crate) const SECRET: Builtin = namespaced("", "v1", "Secret", "secrets");
pub(crate) const SERVICE_ACCOUNT: Builtin = namespaced("", "v1", "ServiceAccount", "serviceaccounts");
pub(crate) const EVENT: Builtin = namespaced("", "v1", "Event", "events");
pub(crate) const CLAIM: Builtin = namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
pub(crate) const VOLUME: Builtin = cluster("", "v1", "PersistentVolume", "persistentvolumes");
pub(crate) const ATTACHMENT: Builtin = cluster("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments");
pub(crate) const SNAPSHOT: Builtin = namespaced("snapshot.storage.k8s.io", "v1", "VolumeSnapshot", "volumesnapshots");
pub(crate) const SNAPSHOT_CONTENT: Builtin =
    cluster("snapshot.storage.k8s.io", "v1", "VolumeSnapshotContent", "volumesnapshotcontents");
pub(crate) const ENDPOINT_SLICE: Builtin = namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices");
pub(crate) const LEASE: Builtin = namespaced("coordination.k8s.io", "v1", "Lease", "leases");
pub(crate) const DEPLOYMENT: Builtin = namespaced("apps", "v1", "Deployment", "deployments");
pub(crate) const STATEFUL_SET: Builtin = namespaced("apps", "v1", "StatefulSet", "statefulsets");
pub(crate) const DAEMON_SET: Builtin = namespaced("apps", "v1", "DaemonSet", "daemonsets");
pub(crate) const CRON_JOB: Builtin = namespaced("batch", "v1", "CronJob", "cronjobs");
pub(crate) const CSI_DRIVER: Builtin = cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers");
pub(crate) const BUDGET: Builtin = namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub(crate) const API_SERVICE: Builtin = cluster("apiregistration.k8s.io", "v1", "APIService", "apiservices");
pub(crate) const CRD: Builtin =
    cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
pub(crate) const VALIDATING: Builtin =
    cluster("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations");
pub(crate) const MUTATING: Builtin =
    cluster("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations");
pub(crate) const CLUSTER_ROLE: Builtin = cluster("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
pub(crate) const CLUSTER_ROLE_BINDING: Builtin =
    cluster("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
pub(crate) const ROLE: Builtin = namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles");
pub(crate) const ROLE_BINDING: Builtin = namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings");

impl Builtin {
    pub(crate) fn group_kind(&self) -> GroupKind {
        GroupKind::new(self.group, self.kind)
    }

    pub(crate) fn resource(&self) -> Resource {
        Resource {
            kind: self.group_kind(),
            version: self.version.to_owned(),
            plural: self.plural.to_owned(),
            namespaced: self.namespaced,
        }
    }

    pub(crate) fn named(&self, namespace: Option<&str>, name: impl Into<String>) -> ObjectRef {
        ObjectRef::new(ApiVersion::new(self.group, self.version), self.kind, namespace, name)
    }

    pub(crate) fn is(&self, object: &ObjectRef) -> bool {
        object.kind == self.kind && object.api_version.group() == self.group
    }
}
