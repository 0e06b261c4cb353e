//! The status of a release: which of its objects exist, which are being deleted, and what blocks them.

use std::collections::BTreeMap;

use billhook_cluster::Cluster;
use billhook_objects::{Catalog, GroupKind, ObjectKey, ReleaseName};
use billhook_plan::{
    Catalogs, DeleteRequest, Deletion, Entry, Inventory, ListFailure, Listed, Listing, Observed, Operation, Phase,
    Query, Resource, Snapshot, Swept, Unlabelled, Wanted,
};
use billhook_policy::Propagation;
use serde::Serialize;
use tokio::task::JoinSet;

use crate::{
    Blocker, Clusters, OperationError,
    blockers::blockers_of,
    operation::{load_record, sweep},
};

/// How many objects that are being deleted are read for their blockers.
const MAX_READ: usize = 20;

/// The status of a release.
#[derive(Clone, Debug, Serialize)]
pub struct ReleaseStatus {
    /// The name of the release.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// The last operation of the release.
    pub phase: String,
    /// How often the record was written; 0 if it was lost, and the objects were found by their label.
    pub revision: u64,
    /// The counts by kind.
    pub kinds: Vec<KindStatus>,
    /// The objects that are not as deployed.
    pub objects: Vec<ObjectStatus>,
    /// Of a release that lost its record: what could not be listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<ListFailure>,
}

/// How many objects of one kind are in which state.
#[derive(Clone, Debug, Serialize)]
pub struct KindStatus {
    /// The kind.
    #[serde(flatten)]
    pub kind: GroupKind,
    /// Those that the release contains.
    pub desired: usize,
    /// Those that exist.
    pub live: usize,
    /// Those that exist and are being deleted.
    pub deleting: usize,
    /// Those that do not exist.
    pub missing: usize,
    /// Why they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// An object that is not as deployed.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectStatus {
    /// The object.
    pub object: ObjectKey,
    /// Its state.
    pub state: ObjectState,
    /// Its finalizers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// What blocks its deletion. Only the first objects that are being deleted are read for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
}

/// The state of an object that is not as deployed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectState {
    /// It is being deleted.
    Deleting,
    /// It does not exist.
    Missing,
    /// Another object has its name.
    Replaced,
    /// It belongs to an earlier version of the release and is still to be pruned.
    Obsolete,
    /// It could not be read.
    Unreadable,
}

/// Reads the status of a release.
///
/// # Errors
///
/// When there is no such release, or its record or the kinds of the cluster cannot be read.
pub async fn release_status(clusters: &Clusters, release: &ReleaseName) -> Result<ReleaseStatus, OperationError> {
    let (inventory, catalog) = tokio::try_join!(load_record(clusters, release), clusters.own.catalog())?;
    let (inventory, unlisted) = match inventory {
        Some(inventory) => (inventory, Vec::new()),
        None => {
            let Swept { entries, unlisted } = sweep(clusters, &catalog, release).await;
            if entries.is_empty() {
                return Err(OperationError::NoRelease(release.clone(), unlisted));
            }
            (Inventory { entries, ..Inventory::new(release.clone()) }, unlisted)
        }
    };
    let found = Found::read(&clusters.own, catalog, &inventory).await?;
    Ok(ReleaseStatus { unlisted, ..report(&inventory, &found) })
}

/// What exists of a release.
#[derive(Default)]
struct Found {
    objects: BTreeMap<ObjectKey, Observed>,
    /// Why the objects of a kind could not be read.
    failed: BTreeMap<GroupKind, String>,
    /// What blocks objects that are being deleted.
    blockers: BTreeMap<ObjectKey, Vec<Blocker>>,
}

impl Found {
    /// Reads what a deletion of the release would read: one list by label per kind, then single objects that the label did
    /// not show; and the blockers of objects that are being deleted.
    async fn read(cluster: &Cluster, catalog: Catalog, inventory: &Inventory) -> Result<Self, OperationError> {
        let (objects, unavailable) = wanted(inventory, &catalog);
        let deletion = Deletion::new(DeleteRequest {
            release: Some(&inventory.release),
            objects,
            groups: &[],
            catalogs: Catalogs::own(catalog),
            propagation: Propagation::Background,
            operation: Operation::Delete,
            record_here: true,
            unlabelled: Unlabelled::Leave,
        })?;
        let snapshot = Snapshot { listings: cluster.snapshot(deletion.queries()).await };
        let missing = deletion.missing(&snapshot);
        let mut found = Self::default();
        found.add(snapshot.listings);
        // Objects of a failed list are queried again as missing ones.
        found.failed = unavailable;
        found.add(cluster.snapshot(&missing).await);
        found.blockers =
            found.read_blockers(cluster, deletion.queries().iter().cloned().chain(missing), inventory).await;
        Ok(found)
    }

    fn add(&mut self, listings: Vec<Listing>) {
        for Listing { query, found } in listings {
            match found {
                Listed::Items { items, .. } => {
                    self.objects.extend(items.into_iter().map(|item| (item.key(&query.resource.kind), item)));
                }
                Listed::NotServed => {}
                Listed::Failed(why) => {
                    self.failed.insert(query.resource.kind, why);
                }
            }
        }
    }

    async fn read_blockers(
        &self,
        cluster: &Cluster,
        queries: impl Iterator<Item = Query>,
        inventory: &Inventory,
    ) -> BTreeMap<ObjectKey, Vec<Blocker>> {
        let resources: BTreeMap<GroupKind, Resource> =
            queries.map(|query| (query.resource.kind.clone(), query.resource)).collect();
        let deleting = inventory.entries.keys().filter(|key| self.objects.get(key).is_some_and(|found| found.deleting));
        let mut reads = JoinSet::new();
        for key in deleting.take(MAX_READ) {
            let Some(resource) = resources.get(&key.kind).cloned() else { continue };
            let (cluster, key) = (cluster.clone(), key.clone());
            reads.spawn(async move {
                // If the read fails, the finalizers are known from the list.
                let blockers = blockers_of(&cluster, &resource, &key).await.unwrap_or_default();
                (key, blockers)
            });
        }
        reads.join_all().await.into_iter().collect()
    }

    /// Returns the state of an object; none if it is as deployed.
    fn state(&self, key: &ObjectKey, entry: &Entry) -> Option<ObjectState> {
        match self.objects.get(key) {
            None if self.failed.contains_key(&key.kind) => Some(ObjectState::Unreadable),
            None => Some(ObjectState::Missing),
            Some(found) if found.deleting => Some(ObjectState::Deleting),
            Some(found) if entry.uid.as_ref().is_some_and(|uid| *uid != found.uid) => Some(ObjectState::Replaced),
            Some(_) if entry.obsolete => Some(ObjectState::Obsolete),
            Some(_) => None,
        }
    }
}

/// Returns the objects of the kinds that the cluster serves, and the kinds whose API is unavailable.
fn wanted(inventory: &Inventory, catalog: &Catalog) -> (Vec<Wanted>, BTreeMap<GroupKind, String>) {
    let mut unavailable = BTreeMap::new();
    let mut objects = inventory.wanted();
    objects.retain(|wanted| {
        let kind = &wanted.key.kind;
        let known = catalog.get(kind).is_some();
        let of_group = |api: &&String| api.split_once('/').is_some_and(|(group, _)| group == kind.group);
        if let Some(api) = catalog.stale.iter().find(of_group).filter(|_| !known) {
            unavailable.entry(kind.clone()).or_insert_with(|| format!("{kind}: the API {api} is unavailable"));
        }
        known
    });
    (objects, unavailable)
}

fn report(inventory: &Inventory, found: &Found) -> ReleaseStatus {
    let mut kinds: BTreeMap<&GroupKind, KindStatus> = BTreeMap::new();
    let mut objects = Vec::new();
    for (key, entry) in &inventory.entries {
        let empty =
            || KindStatus { kind: key.kind.clone(), desired: 0, live: 0, deleting: 0, missing: 0, unreadable: None };
        let kind = kinds.entry(&key.kind).or_insert_with(empty);
        kind.desired += usize::from(!entry.obsolete);
        let state = found.state(key, entry);
        match state {
            Some(ObjectState::Missing) => kind.missing += 1,
            Some(ObjectState::Unreadable) => kind.unreadable = found.failed.get(&key.kind).cloned(),
            Some(ObjectState::Deleting) => (kind.live, kind.deleting) = (kind.live + 1, kind.deleting + 1),
            Some(ObjectState::Replaced | ObjectState::Obsolete) | None => kind.live += 1,
        }
        // An object of an earlier version is meant to be missing.
        if let Some(state) = state.filter(|state| !(entry.obsolete && *state == ObjectState::Missing)) {
            let finalizers = found.objects.get(key).map(|found| found.finalizers.clone()).unwrap_or_default();
            let blockers = found.blockers.get(key).cloned().unwrap_or_default();
            objects.push(ObjectStatus { object: key.clone(), state, finalizers, blockers });
        }
    }
    ReleaseStatus {
        name: inventory.release.name().to_owned(),
        namespace: inventory.release.namespace().to_owned(),
        phase: phase(inventory, &objects),
        revision: inventory.revision,
        kinds: kinds.into_values().collect(),
        objects,
        unlisted: Vec::new(),
    }
}

/// Without a record the last operation is unknown, unless objects are being deleted.
fn phase(inventory: &Inventory, objects: &[ObjectStatus]) -> String {
    match inventory.revision {
        0 if objects.iter().any(|object| object.state == ObjectState::Deleting) => Phase::Deleting.to_string(),
        0 => "unknown".to_owned(),
        _ => inventory.phase.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::{ApiVersion, Digest, ResourceType, Scope, Uid};

    use super::*;

    fn inventory(keys: &[(&str, &str, Option<&str>, &str)]) -> Inventory {
        let mut inventory = Inventory::new(ReleaseName::new("shop", "web").unwrap());
        inventory.revision = 3;
        for (group, kind, namespace, name) in keys {
            let key = ObjectKey::new(GroupKind::new(*group, *kind), *namespace, *name);
            let entry = Entry::new(ApiVersion::new(*group, "v1"), Digest::of(&serde_json::Value::Null));
            let entry = Entry { uid: Some(Uid::new("1")), ..entry };
            inventory.entries.insert(key, entry);
        }
        inventory
    }

    fn deleting(inventory: &Inventory, blockers: Vec<Blocker>) -> Found {
        let key = inventory.entries.keys().next().unwrap();
        let object = Observed {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: Uid::new("1"),
            resource_version: "1".into(),
            labels: BTreeMap::new(),
            finalizers: vec!["a.example/x".into()],
            deleting: true,
            owners: Vec::new(),
        };
        Found {
            objects: BTreeMap::from([(key.clone(), object)]),
            failed: BTreeMap::new(),
            blockers: BTreeMap::from([(key.clone(), blockers)]),
        }
    }

    #[test]
    fn an_object_that_is_being_deleted_is_reported_with_its_blockers() {
        let inventory = inventory(&[("", "Namespace", None, "shop")]);
        let finalizer = Blocker::Finalizer { finalizer: "a.example/x".into(), manager: Some("operator".into()) };
        let status = report(&inventory, &deleting(&inventory, vec![finalizer]));
        let json = serde_json::to_value(&status).unwrap();
        assert_eq!(json["objects"][0]["state"], "deleting");
        assert_eq!(json["objects"][0]["finalizers"], serde_json::json!(["a.example/x"]));
        assert_eq!(json["objects"][0]["blockers"][0]["manager"], "operator");
        assert_eq!((status.kinds[0].live, status.kinds[0].deleting), (1, 1));
    }

    #[test]
    fn a_record_that_was_deleted_with_its_namespace_is_a_deletion() {
        let mut inventory = inventory(&[("", "Namespace", None, "shop")]);
        assert_eq!(report(&inventory, &Found::default()).phase, "applying");
        inventory.revision = 0;
        assert_eq!(report(&inventory, &deleting(&inventory, Vec::new())).phase, "deleting");
        assert_eq!(report(&inventory, &Found::default()).phase, "unknown");
    }

    #[test]
    fn objects_of_an_unavailable_api_are_unreadable_and_not_missing() {
        use ObjectState::{Missing, Unreadable};
        let inventory = inventory(&[
            ("", "ConfigMap", Some("shop"), "a"),
            ("dead.example", "Widget", Some("shop"), "b"),
            ("gone.example", "Gadget", Some("shop"), "c"),
        ]);
        let mut catalog = Catalog::default();
        catalog.insert(ResourceType {
            kind: GroupKind::new("", "ConfigMap"),
            plural: "configmaps".into(),
            singular: "configmap".into(),
            short_names: Vec::new(),
            scope: Scope::Namespaced,
            versions: vec!["v1".into()],
            verbs: Vec::new(),
        });
        catalog.stale = vec!["dead.example/v1".into()];
        let (objects, unavailable) = wanted(&inventory, &catalog);
        assert_eq!(objects.iter().map(|w| w.key.name.as_str()).collect::<Vec<_>>(), ["a"]);
        let found = Found { failed: unavailable, ..Found::default() };
        let states: Vec<_> = inventory.entries.iter().map(|(key, entry)| found.state(key, entry)).collect();
        assert_eq!(states, [Some(Missing), Some(Unreadable), Some(Missing)]);
    }
}
