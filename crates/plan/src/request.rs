//! The input of a plan.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use billhook_objects::{ApiVersion, GroupKind, Manifest, ObjectKey, ReleaseName, ResourceType};
use billhook_policy::{DeletionGroup, Policy, Propagation, UpdateStrategy};

use crate::{Catalogs, Directives, Entry, Inventory, Operation, TaskGraph, Wanted, groups::is_crd};

/// What happens to objects that the record of a release names by their UID, but that do not carry its label: an edited
/// record may name any object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unlabelled {
    /// They are a problem, and no plan is made.
    Refuse,
    /// They are deleted like all others, and a dangerous note reports them.
    Take,
    /// They remain, and a dangerous note reports them.
    #[default]
    Leave,
}

/// What to delete, and how.
#[derive(Clone, Debug)]
pub struct DeleteRequest<'a> {
    /// The release; none if manifests alone name the objects.
    pub release: Option<&'a ReleaseName>,
    /// The objects.
    pub objects: Vec<Wanted>,
    /// The groups, in order.
    pub groups: &'a [DeletionGroup],
    /// The kinds that the clusters serve.
    pub catalogs: Catalogs,
    /// The propagation for groups without their own.
    pub propagation: Propagation,
    /// [`Operation::Apply`] if an update prunes: then no collection contains objects with the release's label.
    pub operation: Operation,
    /// Whether the inventory is stored in the release's own cluster, in the release's namespace. If so, the Namespace of
    /// that name is deleted last.
    pub record_here: bool,
    /// What happens to recorded objects without the release's label.
    pub unlabelled: Unlabelled,
}

/// What the end of a deployment waits for. CRDs are always Established before the next node starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Nothing more.
    Nothing,
    /// Pods and the workloads that create Pods are ready: Landscaper's default readiness check
    /// (`IsRelevantForDefaultReadinessCheck` in gardener/landscaper `pkg/deployer/lib/readinesscheck`).
    Workloads,
    /// All objects are ready.
    #[default]
    All,
}

/// What happens to namespaces that do not exist and that the release does not contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingNamespaces {
    /// They are a problem, and no plan is made.
    Refuse,
    /// They are created before anything else.
    Create,
    /// They are created before anything else, and belong to the release: the caller adds them to its manifests.
    CreateOwned,
    /// They are not looked up: the API server rejects objects in them.
    Leave,
}

/// What to apply, and how.
#[derive(Clone, Debug)]
pub struct ApplyRequest<'a> {
    /// The release.
    pub release: &'a ReleaseName,
    /// The manifests, as [`crate::prepare`] returns them.
    pub manifests: &'a [Manifest],
    /// Instructions for some of the manifests.
    pub directives: &'a BTreeMap<ObjectKey, Directives>,
    /// How existing objects are updated.
    pub strategy: UpdateStrategy,
    /// The release's inventory; none at the first apply.
    pub inventory: Option<&'a Inventory>,
    /// The policy that is recorded with the release.
    pub policy: &'a Policy,
    /// The kinds that the clusters serve; for the release's own cluster also the kinds that its CRDs define.
    pub catalogs: Catalogs,
    /// Kinds that only the release's own CRDs define: no object of them exists yet, so none is looked up.
    pub not_served: &'a BTreeSet<GroupKind>,
    /// What happens to namespaces that do not exist.
    pub missing_namespaces: MissingNamespaces,
    /// Whether to take over existing objects that belong to no release.
    pub adopt: bool,
    /// What happens to objects to prune that do not carry the release's label.
    pub unlabelled: Unlabelled,
    /// Whether to delete objects that the new version no longer contains.
    pub prune: bool,
    /// What the end of the deployment waits for.
    pub wait: Wait,
    /// The propagation for pruning groups without their own.
    pub propagation: Propagation,
    /// See [`DeleteRequest::record_here`].
    pub record_here: bool,
    /// The order of the deployment, in place of the policy's deployment groups; then [`wait`](Self::wait) does not count.
    /// Manifests that no step names are applied before all nodes.
    pub graph: Option<&'a TaskGraph>,
}

impl<'a> ApplyRequest<'a> {
    /// Returns the indexes of the manifests whose objects are to be deleted.
    pub(crate) fn deleted(&self) -> BTreeSet<usize> {
        self.graph.map(TaskGraph::deleted).unwrap_or_default()
    }

    /// Returns the objects of the record whose deletion a graph of an earlier version requested and that no manifest names any more.
    pub(crate) fn dropped_deletions(&self) -> impl Iterator<Item = (&'a ObjectKey, &'a Entry)> + use<'a> {
        let entries = self.inventory.filter(|_| self.graph.is_some()).map(|inventory| &inventory.entries);
        let requested: Vec<_> = entries.into_iter().flatten().filter(|(_, entry)| entry.deletion_requested).collect();
        let named: HashSet<&ObjectKey> = match requested.is_empty() {
            true => HashSet::new(),
            false => self.manifests.iter().map(|manifest| &manifest.key).collect(),
        };
        // A manifest may leave its namespace to the command.
        let unplaced = |key: &ObjectKey| ObjectKey { namespace: None, ..key.clone() };
        requested.into_iter().filter(move |(key, _)| !named.contains(key) && !named.contains(&unplaced(key)))
    }

    /// Returns the manifests to apply, each with its index. In a graph, they do not include those whose kind or version the
    /// cluster does not serve: only their steps fail.
    pub(crate) fn applied(&self) -> impl Iterator<Item = (usize, &'a Manifest)> + use<'a> {
        let (deleted, unserved) = (self.deleted(), self.unserved());
        let manifests = self.manifests.iter().enumerate();
        manifests.filter(move |(at, m)| !deleted.contains(at) && !unserved.contains(&(&m.key.kind, &m.api_version)))
    }

    /// Returns the kinds of a graph's manifests that the cluster does not serve in their version, and that no CRD among the
    /// manifests defines in it.
    pub(crate) fn unserved(&self) -> HashSet<(&'a GroupKind, &'a ApiVersion)> {
        let manifests = self.manifests.iter().filter(|_| self.graph.is_some());
        let kinds: HashSet<_> = manifests.map(|manifest| (&manifest.key.kind, &manifest.api_version)).collect();
        let mut unserved: HashSet<_> =
            kinds.into_iter().filter(|(kind, version)| !self.catalogs.own.serves(kind, version)).collect();
        if !unserved.is_empty() {
            let deleted = self.deleted();
            let crds = self.manifests.iter().enumerate().filter(|(at, m)| is_crd(&m.key.kind) && !deleted.contains(at));
            for defined in crds.filter_map(|(_, crd)| ResourceType::from_crd(&crd.value())) {
                unserved.retain(|(kind, version)| !defined.serves(kind, version));
            }
        }
        unserved
    }
}
