//! The kinds of Kubernetes 1.36, each in its preferred version.
//!
//! Not served are `bindings` and `componentstatuses`, which are not stored objects, and the groups flowcontrol and
//! resource.

use std::{
    any::TypeId,
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use k8s_openapi::{
    ClusterResourceScope, ListableResource, Resource,
    api::{
        admissionregistration::v1 as admission, apps::v1 as apps, authentication::v1 as authentication,
        authorization::v1 as authorization, autoscaling::v1 as scale, autoscaling::v2 as autoscaling,
        batch::v1 as batch, certificates::v1 as certificates, coordination::v1 as coordination, core::v1 as core,
        discovery::v1 as discovery, events::v1 as events, networking::v1 as networking, node::v1 as node,
        policy::v1 as policy, rbac::v1 as rbac, scheduling::v1 as scheduling, storage::v1 as storage,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1 as apiextensions,
    kube_aggregator::pkg::apis::apiregistration::v1 as apiregistration,
};

use super::{Kind, ResourceId, Scale, Version};
use crate::schema;

/// Returns all of them. They are built once per process.
pub(super) fn all() -> Arc<BTreeMap<ResourceId, Arc<Kind>>> {
    static ALL: LazyLock<Arc<BTreeMap<ResourceId, Arc<Kind>>>> =
        LazyLock::new(|| Arc::new(table().into_iter().map(|row| (row.0.id.clone(), Arc::new(row.0))).collect()));
    Arc::clone(&ALL)
}

const ALL: &str = "all";
const API: &str = "api-extensions";
const POD: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];
const CORE_EVENT: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
const EVENT: &[&str] = &[
    "reason",
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reportingController",
    "type",
];

#[rustfmt::skip]
fn table() -> Vec<Row> {
    vec![
        row::<core::ConfigMap>().short("cm"),
        row::<core::Endpoints>().short("ep"),
        row::<core::Event>().short("ev").select(CORE_EVENT),
        row::<core::LimitRange>().short("limits"),
        row::<core::Namespace>().short("ns").status().select(&["status.phase"]),
        row::<core::Node>().short("no").status().select(&["spec.unschedulable"]),
        row::<core::PersistentVolume>().short("pv").status(),
        row::<core::PersistentVolumeClaim>().short("pvc").status(),
        row::<core::Pod>().short("po").category(ALL).status().select(POD),
        row::<core::PodTemplate>(),
        row::<core::ReplicationController>().short("rc").category(ALL).status().scale().select(&["status.replicas"]),
        row::<core::ResourceQuota>().short("quota").status(),
        row::<core::Secret>().select(&["type"]),
        row::<core::Service>().short("svc").category(ALL).status().select(&["spec.clusterIP", "spec.type"]),
        row::<core::ServiceAccount>().short("sa"),
        row::<admission::MutatingAdmissionPolicy>().category(API),
        row::<admission::MutatingAdmissionPolicyBinding>().category(API),
        row::<admission::MutatingWebhookConfiguration>().category(API),
        row::<admission::ValidatingAdmissionPolicy>().category(API).status(),
        row::<admission::ValidatingAdmissionPolicyBinding>().category(API),
        row::<admission::ValidatingWebhookConfiguration>().category(API),
        row::<apiextensions::CustomResourceDefinition>().short("crd").short("crds").category(API).status(),
        row::<apiregistration::APIService>().category(API).status(),
        row::<apps::ControllerRevision>(),
        row::<apps::DaemonSet>().short("ds").category(ALL).status(),
        row::<apps::Deployment>().short("deploy").category(ALL).status().scale(),
        row::<apps::ReplicaSet>().short("rs").category(ALL).status().scale(),
        row::<apps::StatefulSet>().short("sts").category(ALL).status().scale(),
        review::<authentication::SelfSubjectReview>(),
        review::<authentication::TokenReview>(),
        review::<authorization::LocalSubjectAccessReview>(),
        review::<authorization::SelfSubjectAccessReview>(),
        review::<authorization::SelfSubjectRulesReview>(),
        review::<authorization::SubjectAccessReview>(),
        row::<autoscaling::HorizontalPodAutoscaler>().short("hpa").category(ALL).status(),
        row::<batch::CronJob>().short("cj").category(ALL).status(),
        row::<batch::Job>().category(ALL).status().select(&["status.successful"]),
        row::<certificates::CertificateSigningRequest>().short("csr").status().select(&["spec.signerName"]),
        row::<coordination::Lease>(),
        row::<discovery::EndpointSlice>(),
        row::<events::Event>().short("ev").select(EVENT),
        row::<networking::IPAddress>().short("ip"),
        row::<networking::Ingress>().short("ing").status(),
        row::<networking::IngressClass>(),
        row::<networking::NetworkPolicy>().short("netpol"),
        row::<networking::ServiceCIDR>().status(),
        row::<node::RuntimeClass>(),
        row::<policy::PodDisruptionBudget>().short("pdb").status(),
        row::<rbac::ClusterRole>(),
        row::<rbac::ClusterRoleBinding>(),
        row::<rbac::Role>(),
        row::<rbac::RoleBinding>(),
        row::<scheduling::PriorityClass>().short("pc"),
        row::<storage::CSIDriver>(),
        row::<storage::CSINode>(),
        row::<storage::CSIStorageCapacity>(),
        row::<storage::StorageClass>().short("sc"),
        row::<storage::VolumeAttachment>().status(),
        row::<storage::VolumeAttributesClass>().short("vac"),
    ]
}

/// Returns the kind of the bodies of a subresource that only creates.
pub(crate) fn body_of(subresource: &str) -> Option<Arc<Kind>> {
    type Bodies = BTreeMap<&'static str, Arc<Kind>>;
    static ALL: LazyLock<Bodies> = LazyLock::new(|| {
        let rows = [
            ("binding", review::<core::Binding>()),
            ("eviction", review::<policy::Eviction>()),
            ("scale", review::<scale::Scale>()),
            ("token", review::<authentication::TokenRequest>()),
        ];
        rows.into_iter().map(|(name, Row(kind))| (name, Arc::new(kind))).collect()
    });
    ALL.get(subresource).cloned()
}

/// A kind under construction.
struct Row(Kind);

/// Describes a stored kind by what its type declares: the names, the version and the scope.
fn row<T: ListableResource>() -> Row
where
    T::Scope: 'static,
{
    let mut row = review::<T>();
    row.0.list_kind = T::LIST_KIND.to_owned();
    row.0.review = false;
    row
}

/// Describes a kind whose requests are answered and never stored.
fn review<T: Resource>() -> Row
where
    T::Scope: 'static,
{
    let version = Version {
        name: T::VERSION.to_owned(),
        served: true,
        schema: schema::builtin::<T>(),
        status: false,
        scale: None,
        selectable: Vec::new(),
        columns: Vec::new(),
    };
    Row(Kind {
        id: ResourceId::new(T::GROUP, T::URL_PATH_SEGMENT),
        kind: T::KIND.to_owned(),
        list_kind: String::new(),
        singular: T::KIND.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: TypeId::of::<T::Scope>() != TypeId::of::<ClusterResourceScope>(),
        versions: vec![version],
        storage: 0,
        review: true,
        crd: None,
    })
}

impl Row {
    fn short(mut self, name: &str) -> Self {
        self.0.short_names.push(name.to_owned());
        self
    }

    fn category(mut self, name: &str) -> Self {
        self.0.categories.push(name.to_owned());
        self
    }

    fn status(mut self) -> Self {
        self.0.versions[0].status = true;
        self
    }

    /// Adds `scale`. The selector of these kinds is an object in the spec, not a string in the status.
    fn scale(mut self) -> Self {
        self.0.versions[0].scale = Some(Scale {
            spec_replicas: "spec.replicas".to_owned(),
            status_replicas: "status.replicas".to_owned(),
            selector: Some("spec.selector".to_owned()),
        });
        self
    }

    fn select(mut self, fields: &[&str]) -> Self {
        self.0.versions[0].selectable = fields.iter().map(|&field| field.to_owned()).collect();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_each_kind_once() {
        let all = all();
        assert_eq!((all.len(), table().len()), (59, 59));
        let find = |group, plural| all.values().find(|kind| kind.is(group, plural)).expect("known");
        let ingress = find("networking.k8s.io", "ingresses");
        assert_eq!((&*ingress.singular, &*ingress.list_kind, ingress.namespaced), ("ingress", "IngressList", true));
        assert!(!find("", "namespaces").namespaced);
        assert_eq!(find("apps", "deployments").stored_api_version(), "apps/v1");
    }
}
