//! Which objects a deployment waits for.

use billhook_objects::GroupKind;

use crate::{Wait, groups::is_crd};

use super::deployment::Deployment;

/// Kinds without a status that could show readiness: their objects are ready once they exist.
const READY_WHEN_CREATED: [(&str, &str); 25] = [
    ("", "ConfigMap"),
    ("", "Endpoints"),
    ("", "LimitRange"),
    ("", "PodTemplate"),
    ("", "ResourceQuota"),
    ("", "Secret"),
    ("", "Service"),
    ("", "ServiceAccount"),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
    ("coordination.k8s.io", "Lease"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "IngressClass"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("node.k8s.io", "RuntimeClass"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("storage.k8s.io", "CSIDriver"),
    ("storage.k8s.io", "StorageClass"),
];

/// Pods, and the workloads that create Pods.
const WORKLOADS: [(&str, &str); 6] = [
    ("", "Pod"),
    ("", "ReplicationController"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "ReplicaSet"),
    ("apps", "StatefulSet"),
];

impl Deployment<'_> {
    /// Whether the end of the deployment waits for objects of this kind.
    pub(super) fn is_awaited(&self, kind: &GroupKind) -> bool {
        match self.request.wait {
            Wait::Nothing => false,
            Wait::Workloads => is_among(kind, &WORKLOADS),
            Wait::All => !is_ready_when_created(kind),
        }
    }
}

/// Returns whether objects of a kind are ready once they exist: the kind has no status that could show readiness.
pub fn is_ready_when_created(kind: &GroupKind) -> bool {
    is_among(kind, &READY_WHEN_CREATED)
}

fn is_among(kind: &GroupKind, kinds: &[(&str, &str)]) -> bool {
    kinds.iter().any(|(group, name)| kind.is(group, name))
}

/// Returns whether the annotation `skip-health-check` matters to objects of a kind. It does not to a CRD, whose instances can
/// only be created once it is Established.
pub(super) fn may_skip(kind: &GroupKind) -> bool {
    !is_crd(kind) && !is_ready_when_created(kind)
}
