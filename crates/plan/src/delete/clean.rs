//! Plans that clean a cluster: all objects of certain kinds, whoever created them, except those that are excluded.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use billhook_objects::{GroupKind, ObjectKey, Uid, wellknown};
use billhook_policy::{DeletionGroup, LabelSelector, Propagation};

use super::deletion::Deletion;
use crate::{
    Catalogs, DeleteRequest, Exclusion, Listed, Listing, Observed, Operation, Plan, PlanError, Query, Resource,
    Snapshot, Uncovered, UncoveredCause, Unlabelled, queries::all_of,
};

/// What to clean.
pub struct CleanRequest<'a> {
    /// The stages, as groups.
    pub groups: &'a [DeletionGroup],
    /// The kinds that the cluster serves.
    pub catalogs: Catalogs,
    /// What no stage contains; none to delete everything that the groups select.
    pub spared: Option<&'a Spared>,
}

/// What the cleaning of a cluster leaves: the namespaces `default` and `kube-*` with everything in them, what Kubernetes itself
/// creates in every cluster, and objects with certain labels.
#[derive(Clone, Debug)]
pub struct Spared {
    /// Objects that any of these matches are left.
    pub labels: Vec<LabelSelector>,
}

impl<'a> Deletion<'a> {
    /// Resolves the request to clean a cluster.
    ///
    /// # Errors
    ///
    /// When a stage names an ambiguous kind: all problems at once.
    pub fn clean(request: CleanRequest<'a>) -> Result<Self, PlanError> {
        let CleanRequest { groups, catalogs, spared } = request;
        let mut deletion = Self::new(DeleteRequest {
            release: None,
            objects: Vec::new(),
            groups,
            catalogs,
            propagation: Propagation::Background,
            operation: Operation::Clean,
            record_here: false,
            unlabelled: Unlabelled::default(),
        })?;
        for draft in deletion.groups.iter_mut().flat_map(|group| &mut group.drafts) {
            let spared = spared.map(|spared| spared.of(&draft.query.resource));
            draft.collection.excluded.extend(spared.into_iter().flatten());
        }
        Ok(deletion)
    }

    /// Returns further queries that tell what the excluded objects own: where Pods are deleted, the objects between them and their
    /// workloads, whose kinds the stages need not name.
    pub fn owner_queries(&self) -> Vec<Query> {
        let drafts = || self.groups.iter().flat_map(|group| &group.drafts);
        if !drafts().any(|draft| draft.query.resource.kind == wellknown::pod()) {
            return Vec::new();
        }
        let is_listed = |kind: &GroupKind| {
            drafts().any(|draft| draft.query.resource.kind == *kind && draft.query.namespace.is_none())
        };
        let between = [GroupKind::new("apps", "ReplicaSet"), GroupKind::new("batch", "Job")];
        let unlisted = between.iter().filter(|kind| !is_listed(kind));
        unlisted.filter_map(|kind| Some(all_of(None, self.catalog().get(kind)?))).collect()
    }

    /// Makes a plan of a cleaning that leaves what belongs to the `spared` objects, from the answers to all queries, those to
    /// [`Self::owner_queries`] and to [`crate::blast_queries`] of a first plan included: what they own, directly or not, since it
    /// belongs to them and their controllers would create it again; and the Namespaces and CRDs that contain what is left, excluded
    /// or kept by annotations, since it would be deleted with them.
    ///
    /// # Errors
    ///
    /// As [`Self::plan`].
    pub fn plan_without(&mut self, spared: &Spared, first: Plan, snapshot: &Snapshot) -> Result<Plan, PlanError> {
        let owned = Exclusion { owners: Arc::new(spared.owners(snapshot)), ..Exclusion::default() };
        let containers = spared.containers(&owned, snapshot);
        let deleted = first.deleted().map(|(_, key, ..)| key).filter(|key| containers.contains(key));
        let kept: Vec<ObjectKey> = deleted.cloned().collect();
        if kept.is_empty() && owned.owners.is_empty() {
            return Ok(first);
        }
        for draft in self.groups.iter_mut().flat_map(|group| &mut group.drafts) {
            let of_kind = kept.iter().filter(|key| key.kind == draft.query.resource.kind);
            let names: Vec<String> = of_kind.map(|key| key.name.clone()).collect();
            let containers = Exclusion { names, ..Exclusion::default() };
            let excluded = [
                (!owned.owners.is_empty()).then(|| owned.clone()),
                (!containers.names.is_empty()).then_some(containers),
            ];
            draft.collection.excluded.extend(excluded.into_iter().flatten());
        }
        let mut plan = self.plan(snapshot)?;
        plan.uncovered.extend(kept.iter().map(|key| Uncovered::new(key, UncoveredCause::HoldsExcluded)));
        plan.uncovered.sort();
        Ok(plan)
    }
}

impl Spared {
    /// Returns what is left of a kind.
    fn of(&self, resource: &Resource) -> Vec<Exclusion> {
        let labelled =
            |selector: &LabelSelector| Exclusion { label_selector: selector.clone(), ..Exclusion::default() };
        let mut spared: Vec<Exclusion> = self.labels.iter().map(labelled).collect();
        if resource.namespaced {
            let (namespaces, namespace_prefixes) = (vec!["default".to_owned()], vec!["kube-".to_owned()]);
            spared.push(Exclusion { namespaces, namespace_prefixes, ..Exclusion::default() });
        }
        spared.extend(own_of_kubernetes(&resource.kind));
        spared
    }

    /// Returns the UIDs of the objects with the excluded labels, and of what these own, directly or not.
    fn owners(&self, snapshot: &Snapshot) -> BTreeSet<Uid> {
        let mut owners: BTreeSet<&Uid> = BTreeSet::new();
        let mut dependents: HashMap<&Uid, Vec<&Uid>> = HashMap::new();
        for Listing { found, .. } in &snapshot.listings {
            let Listed::Items { items, .. } = found else { continue };
            for item in items {
                item.owners.iter().for_each(|owner| dependents.entry(&owner.uid).or_default().push(&item.uid));
                if self.labels.iter().any(|selector| selector.matches(&item.labels)) {
                    owners.insert(&item.uid);
                }
            }
        }
        let mut open: Vec<&Uid> = owners.iter().copied().collect();
        while let Some(owner) = open.pop() {
            for &dependent in dependents.get(owner).into_iter().flatten() {
                if owners.insert(dependent) {
                    open.push(dependent);
                }
            }
        }
        owners.into_iter().cloned().collect()
    }

    /// Returns the Namespaces and CRDs that contain what is left; `owned` covers what excluded objects own.
    fn containers(&self, owned: &Exclusion, snapshot: &Snapshot) -> BTreeSet<ObjectKey> {
        let mut containers = BTreeSet::new();
        for Listing { query, found } in &snapshot.listings {
            let Listed::Items { items, .. } = found else { continue };
            let spared = self.of(&query.resource);
            let is_left = |item: &&Observed| {
                item.annotations.treatment().is_kept()
                    || spared.iter().any(|exclusion| exclusion.covers(item))
                    || (!owned.owners.is_empty() && owned.covers(item))
            };
            for item in items.iter().filter(is_left) {
                let namespace = item.namespace.as_ref();
                containers.extend(namespace.map(|name| ObjectKey::new(wellknown::namespace(), None, name.as_str())));
                containers.insert(query.resource.crd());
            }
        }
        containers
    }
}

/// Returns what Kubernetes itself creates of a kind in every cluster. Most of it is created again as soon as it is deleted.
fn own_of_kubernetes(kind: &GroupKind) -> Option<Exclusion> {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let named = |all: &[&str]| Exclusion { names: names(all), ..Exclusion::default() };
    let prefixed = |prefix: &str| Exclusion { name_prefixes: names(&[prefix]), ..Exclusion::default() };
    let labelled = |key: &str| Exclusion { label_selector: LabelSelector::exists(key), ..Exclusion::default() };
    Some(match (kind.group.as_str(), kind.kind.as_str()) {
        // Those of the API server's own groups and of CRDs (k8s.io/kube-aggregator pkg/controllers/autoregister).
        ("apiregistration.k8s.io", "APIService") => labelled("kube-aggregator.kubernetes.io/automanaged"),
        ("rbac.authorization.k8s.io", "ClusterRole" | "ClusterRoleBinding") => labelled("kubernetes.io/bootstrapping"),
        ("scheduling.k8s.io", "PriorityClass") => prefixed("system-"),
        ("networking.k8s.io", "ServiceCIDR") => named(&["kubernetes"]),
        ("networking.k8s.io", "IPAddress") => labelled("ipaddress.kubernetes.io/managed-by"),
        ("certificates.k8s.io", "ClusterTrustBundle") => prefixed("kubernetes.io:"),
        ("internal.apiserver.k8s.io", "StorageVersion") => Exclusion::default(),
        // k8s.io/apiserver pkg/apis/flowcontrol/bootstrap
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => named(&[
            "exempt",
            "catch-all",
            "endpoint-controller",
            "global-default",
            "kube-controller-manager",
            "kube-scheduler",
            "kube-system-service-accounts",
            "probes",
            "service-accounts",
            "system-leader-election",
            "system-node-high",
            "system-nodes",
            "workload-leader-election",
        ]),
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => named(&[
            "exempt",
            "catch-all",
            "global-default",
            "leader-election",
            "node-high",
            "system",
            "workload-high",
            "workload-low",
        ]),
        _ => return None,
    })
}
