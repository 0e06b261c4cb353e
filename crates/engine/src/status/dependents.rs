//! The dependents that an object waits for which is deleted in the foreground.

use std::collections::BTreeMap;

use billhook_cluster::Cluster;
use billhook_objects::{Catalog, GroupKind, ObjectKey, Uid};
use billhook_plan::{Observed, Query, Resource, Select};
use futures::future::join_all;

use crate::Blocker;

use super::Found;

/// The finalizer of an object that the garbage collector deletes after its dependents.
const FOREGROUND: &str = "foregroundDeletion";
/// How many dependents of an object are named.
const NAMED: usize = 10;
/// How many lists of dependents are sent at most.
const LISTS: usize = 16;

/// A group and a kind.
type Kind = (&'static str, &'static str);

/// The workloads of Kubernetes, each with the kind of the objects that its controller creates. To find the dependents of any
/// other object, all kinds would have to be listed.
const OWNED: [(Kind, Kind); 7] = [
    (("apps", "DaemonSet"), ("", "Pod")),
    (("apps", "Deployment"), ("apps", "ReplicaSet")),
    (("apps", "ReplicaSet"), ("", "Pod")),
    (("apps", "StatefulSet"), ("", "Pod")),
    (("", "ReplicationController"), ("", "Pod")),
    (("batch", "CronJob"), ("batch", "Job")),
    (("batch", "Job"), ("", "Pod")),
];

impl Found {
    /// Adds the dependents of objects that wait for them: those in the release, and those that controllers of Kubernetes
    /// create. It sends one list for each kind and namespace of these, and none if no object waits.
    pub(super) async fn add_dependents(&mut self, cluster: &Cluster, catalog: &Catalog) {
        let waits = |found: &&Observed| found.deleting && found.finalizers.iter().any(|name| name == FOREGROUND);
        let mut owners: BTreeMap<(&GroupKind, Option<&str>), Vec<Uid>> = BTreeMap::new();
        for (key, found) in self.objects.iter().filter(|(_, found)| waits(found)) {
            owners.entry((&key.kind, key.namespace.as_deref())).or_default().push(found.uid.clone());
        }
        let lists = owners.iter().take(LISTS).filter_map(|((kind, namespace), uids)| {
            let (_, (group, name)) = OWNED.iter().find(|((group, name), _)| kind.is(group, name))?;
            let query = Query {
                cluster: None,
                resource: Resource::of(catalog.get(&GroupKind::new(*group, *name))?, None),
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
        let mut dependents: BTreeMap<ObjectKey, Observed> = join_all(lists).await.into_iter().flatten().collect();
        dependents.extend(self.objects.iter().map(|(key, found)| (key.clone(), found.clone())));
        let owners: Vec<_> = owners.into_values().flatten().collect();
        for uid in owners {
            let of_owner = |(_, object): &(&ObjectKey, &Observed)| object.owners.iter().any(|owner| owner.uid == uid);
            let named = dependents.iter().filter(of_owner).take(NAMED);
            let named = named.map(|(key, _)| Blocker::Dependent { object: key.clone() });
            self.details.entry(uid.clone()).or_default().blockers.extend(named);
        }
    }
}
