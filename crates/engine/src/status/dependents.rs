//! The dependents that an object waits for which is deleted in the foreground.

use std::collections::BTreeMap;

use billhook_cluster::Cluster;
use billhook_objects::{GroupKind, ObjectKey, Uid, wellknown};
use billhook_plan::{Observed, Query, Select};
use futures::future::join_all;

use super::Found;
use crate::dependents;

/// How many lists of dependents are sent at most.
const LISTS: usize = 16;

impl Found {
    /// Adds the dependents of objects that wait for them: those in the release, and those that controllers of Kubernetes
    /// create. It sends one list for each kind and namespace of these, and none if no object waits.
    pub(super) async fn add_dependents(&mut self, cluster: &Cluster) {
        let waits = |found: &&Observed| {
            found.deleting && found.finalizers.iter().any(|name| name == wellknown::FOREGROUND_FINALIZER)
        };
        let mut owners: BTreeMap<(&GroupKind, Option<&str>), Vec<Uid>> = BTreeMap::new();
        for (key, found) in self.objects.iter().filter(|(_, found)| waits(found)) {
            owners.entry((&key.kind, key.namespace.as_deref())).or_default().push(found.uid.clone());
        }
        let lists = owners.iter().take(LISTS).filter_map(|((kind, namespace), uids)| {
            let query = Query {
                cluster: None,
                resource: dependents::created_by(kind)?,
                namespace: namespace.map(str::to_owned),
                select: Select::All,
                namespaces: Vec::new(),
            };
            Some(async move {
                let owned = |object: &Observed| object.owners.iter().any(|owner| uids.contains(&owner.uid));
                // Without the right to list them, only the finalizer is shown.
                let found = cluster.find(&query, &owned).await.unwrap_or_default();
                found.into_iter().map(|object| (object.key(&query.resource.kind), object)).collect::<Vec<_>>()
            })
        });
        // Collected, because the compiler cannot prove a future `Send` that holds these closures across an await.
        let lists: Vec<_> = lists.collect();
        let mut found: BTreeMap<ObjectKey, Observed> = join_all(lists).await.into_iter().flatten().collect();
        found.extend(self.objects.iter().map(|(key, found)| (key.clone(), found.clone())));
        let owners: Vec<_> = owners.into_values().flatten().collect();
        for uid in owners {
            let of_owner = |(_, object): &(&ObjectKey, &Observed)| object.owners.iter().any(|owner| owner.uid == uid);
            let mut kinds: BTreeMap<&GroupKind, Vec<&ObjectKey>> = BTreeMap::new();
            for (key, _) in found.iter().filter(of_owner) {
                kinds.entry(&key.kind).or_default().push(key);
            }
            let blockers = kinds.into_iter().map(|(kind, keys)| dependents::blocker(kind.clone(), &keys));
            self.details.entry(uid.clone()).or_default().blockers.extend(blockers);
        }
    }
}
