//! What a plan is asked for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_objects::{Catalog, GroupKind, Manifest, ObjectKey, ReleaseName, Scope, Uid};
use billhook_policy::{DeletionGroup, Policy, Propagation, UpdateStrategy};
use serde_json::Value;

use crate::{Directives, Entry, Inventory, Operation, error::Problems};

/// An object that is to be deleted: from an inventory or from a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which object.
    pub key: ObjectKey,
    /// The version it was applied or written in; it only says how to talk to it.
    pub version: String,
    /// The UID in the inventory; none for a manifest and for an object that was merely intended.
    pub uid: Option<Uid>,
    /// Its policy is `keep`: it stays, whatever the groups say.
    pub keep: bool,
    /// The merge patch that it gets before anything is deleted.
    pub before_delete: Option<Value>,
}

impl Wanted {
    /// What an entry of an inventory names.
    pub(crate) fn of_entry(key: &ObjectKey, entry: &Entry) -> Self {
        Self {
            key: key.clone(),
            version: entry.api_version.version().to_owned(),
            uid: entry.uid.clone(),
            keep: entry.keep,
            before_delete: entry.before_delete.clone(),
        }
    }

    /// What manifests name: a namespaced object without a namespace is looked for in `namespace`.
    ///
    /// Kinds that the catalog does not know stay as they are; a plan counts them as gone.
    pub fn of_manifests(manifests: &[Manifest], namespace: &str, catalog: &Catalog) -> Vec<Self> {
        let scopes: BTreeMap<&GroupKind, Option<Scope>> =
            manifests.iter().map(|m| (&m.key.kind, catalog.get(&m.key.kind).map(|t| t.scope))).collect();
        let wanted = |manifest: &Manifest| {
            let mut key = manifest.key.clone();
            match scopes.get(&key.kind).copied().flatten() {
                Some(Scope::Namespaced) => key.namespace = Some(key.namespace.unwrap_or_else(|| namespace.to_owned())),
                Some(Scope::Cluster) => key.namespace = None,
                None => {}
            }
            let version = manifest.api_version.version().to_owned();
            Self { key, version, uid: None, keep: false, before_delete: None }
        };
        manifests.iter().map(wanted).collect()
    }
}

/// The kinds of each cluster: `None` is the release's own, `Some(name)` a target.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalogs(pub BTreeMap<Option<String>, Arc<Catalog>>);

impl Catalogs {
    /// The catalogs of a call that knows no targets.
    pub fn own(catalog: impl Into<Arc<Catalog>>) -> Self {
        Self(BTreeMap::from([(None, catalog.into())]))
    }

    /// The catalog of a cluster, if the caller gave it.
    pub fn get(&self, cluster: Option<&str>) -> Option<&Catalog> {
        let found = match cluster {
            None => self.0.get(&None),
            Some(name) => self.0.iter().find(|(known, _)| known.as_deref() == Some(name)).map(|(_, catalog)| catalog),
        };
        found.map(Arc::as_ref)
    }

    /// The catalog of a cluster; its absence is a problem that says what to do.
    pub(crate) fn find(&self, cluster: Option<&str>, place: &str, problems: &mut Problems) -> Option<&Catalog> {
        let found = self.get(cluster);
        match (found, cluster) {
            (None, Some(name)) => {
                problems.input(format!(
                    "{place}: target {name:?} is not known: name its cluster with --target {name}=KUBECONFIG"
                ));
            }
            (None, None) => problems.input("the kinds of the release's own cluster are not known"),
            (Some(_), _) => {}
        }
        found
    }
}

/// What is to be deleted, and how.
#[derive(Clone, Copy, Debug)]
pub struct DeleteRequest<'a> {
    /// The release; none where manifests alone name the objects.
    pub release: Option<&'a ReleaseName>,
    /// The objects.
    pub objects: &'a [Wanted],
    /// The groups, in order.
    pub groups: &'a [DeletionGroup],
    /// The kinds of the clusters.
    pub catalogs: &'a Catalogs,
    /// The call's propagation, for groups that have none of their own.
    pub propagation: Propagation,
    /// [`Operation::Apply`] where an update prunes: then what carries the release's label is in no collection.
    pub operation: Operation,
    /// Whether the record of the release lies in the release's own cluster, in the release's namespace: then the
    /// Namespace of that name goes last.
    pub record_here: bool,
}

/// What the end of a deployment waits for. CRDs are always Established before anything follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    /// Nothing more.
    Nothing,
    /// Pods and what makes Pods are ready: Landscaper's default readiness check
    /// (`IsRelevantForDefaultReadinessCheck` in gardener/landscaper `pkg/deployer/lib/readinesscheck`).
    Workloads,
    /// All objects are ready.
    #[default]
    All,
}

/// What is to be applied, and how.
#[derive(Clone, Copy, Debug)]
pub struct ApplyRequest<'a> {
    /// The release.
    pub release: &'a ReleaseName,
    /// The manifests, as [`crate::prepare`] returns them.
    pub manifests: &'a [Manifest],
    /// What is to be done with them beside applying them, where anything is.
    pub directives: &'a BTreeMap<ObjectKey, Directives>,
    /// How objects that exist are brought to what their manifests say.
    pub strategy: UpdateStrategy,
    /// The release's record; none at the first apply.
    pub inventory: Option<&'a Inventory>,
    /// The policy that is recorded with the release.
    pub policy: &'a Policy,
    /// The kinds of the clusters; the release's own cluster with the kinds that its CRDs bring.
    pub catalogs: &'a Catalogs,
    /// Kinds that only the release's own CRDs bring: nothing of them exists yet, and nothing is asked.
    pub not_served: &'a BTreeSet<GroupKind>,
    /// Namespaces that do not exist, that the release does not bring, and that the call creates before anything else.
    pub namespaces: &'a [String],
    /// Whether objects that belong to nobody are taken up.
    pub adopt: bool,
    /// Whether what the new version lacks is deleted.
    pub prune: bool,
    /// What the end of the deployment waits for.
    pub wait: Wait,
    /// The call's propagation, for pruning groups that have none of their own.
    pub propagation: Propagation,
    /// See [`DeleteRequest::record_here`].
    pub record_here: bool,
}
