//! The live objects that a plan deletes, whether it names them or not.

use std::collections::{HashMap, HashSet};

use billhook_objects::{ObjectKey, ReleaseName, Uid, wellknown};

use crate::{Counts, Listed, Listing, Plan, Query, Snapshot, groups::is_crd};

/// The objects of the release's own cluster that a plan deletes: those that it names, those of its collections, and the contents
/// of Namespaces and CRDs.
#[derive(Debug, Default)]
pub struct Doomed {
    /// The objects, each with whether it belongs to the release.
    objects: HashMap<Uid, bool>,
    /// Their kinds.
    pub counts: Counts,
    /// The objects of other clusters.
    pub elsewhere: Counts,
    /// The queries that show them.
    pub queries: Vec<Query>,
}

impl Doomed {
    /// Finds the objects in the snapshot of a plan that includes the contents of the Namespaces and CRDs that it deletes.
    pub fn of(plan: &Plan, snapshot: &Snapshot, release: Option<&ReleaseName>) -> Self {
        let label = release.map(ReleaseName::label_value);
        let (mut named, mut namespaces, mut crds) = (HashSet::new(), HashSet::new(), HashSet::new());
        let mut doomed = Self::default();
        for (cluster, key, uid, _) in plan.deleted() {
            if cluster.is_some() {
                doomed.elsewhere.add(&key.kind);
                continue;
            }
            named.insert(uid);
            if key.kind == wellknown::namespace() {
                namespaces.insert(key.name.as_str());
            } else if is_crd(&key.kind) {
                crds.insert(key.name.as_str());
            }
        }
        for Listing { query, found } in snapshot.listings.iter().filter(|listing| listing.query.cluster.is_none()) {
            let Listed::Items { items, .. } = found else { continue };
            let nodes = plan.delete_nodes().filter(|(node, _)| node.cluster.is_none());
            let collections = nodes.flat_map(|(_, work)| &work.collections);
            let collections: Vec<_> =
                collections.filter(|collection| plan.queries.get(collection.query) == Some(query)).collect();
            let is_instance = crds.contains(query.resource.crd().name.as_str());
            let mut shows = false;
            for item in items {
                let is_inside = || item.namespace.as_deref().is_some_and(|name| namespaces.contains(name));
                let is_named = named.contains(&item.uid);
                let is_doomed =
                    is_named || is_instance || is_inside() || collections.iter().any(|one| one.contains(item));
                if is_doomed && !doomed.objects.contains_key(&item.uid) {
                    let own = is_named || label.as_deref().is_some_and(|label| item.carries(label));
                    doomed.objects.insert(item.uid.clone(), own);
                    doomed.counts.add(&query.resource.kind);
                    shows = true;
                }
            }
            if shows {
                doomed.queries.push(query.clone());
            }
        }
        doomed
    }

    /// Whether an object belongs to the release; none if the plan does not delete it. Each object is returned once.
    pub fn take(&mut self, uid: &Uid) -> Option<bool> {
        self.objects.remove(uid)
    }

    /// Whether the plan deletes an object that has not been taken.
    pub fn contains(&self, uid: &Uid) -> bool {
        self.objects.contains_key(uid)
    }

    /// Whether the plan deletes no objects.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Returns whether a plan deletes the Namespace that holds the record of a release.
    pub fn includes_record(plan: &Plan, release: &ReleaseName) -> bool {
        let namespace = ObjectKey::new(wellknown::namespace(), None, release.namespace());
        plan.deleted().any(|(cluster, key, ..)| cluster.is_none() && *key == namespace)
    }
}
