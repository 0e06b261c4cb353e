//! The status of a release: which of its objects exist and are ready, which are being deleted, and what blocks them.

mod dependents;
mod targets;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use billhook_cluster::Cluster;
use billhook_objects::{Catalog, GroupKind, ObjectKey, ReleaseName, Uid, wellknown::RELEASE_LABEL};
use billhook_plan::{
    AppliedVersion, Catalogs, DeleteRequest, Deletion, Entry, Failures, Inventory, ListFailure, Listed, Listing,
    Locked, Observed, Operation, Phase, Query, Snapshot, Swept, Unlabelled, Wanted, is_ready_when_created,
};
use billhook_policy::Propagation;
use futures::future::join_all;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, value::RawValue};

use crate::{
    Blocker, Clusters, OperationError,
    blockers::blockers,
    operation::sweep,
    readiness::{Readiness, View, readiness},
};

pub use targets::{TargetGroup, TargetState, TargetStatus};

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
    /// The operation that works on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<Locked>,
    /// How many objects the backup in the record has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<usize>,
    /// The versions that were applied, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<AppliedVersion>,
    /// What failed in the last apply.
    #[serde(skip_serializing_if = "Failures::is_empty")]
    pub failures: Failures,
    /// The counts by kind.
    pub kinds: Vec<KindStatus>,
    /// The objects of the release, except those of earlier versions that are gone.
    pub objects: Vec<ObjectStatus>,
    /// The other clusters that the policy names, and what its groups select there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetStatus>,
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
    /// Those that are ready.
    pub ready: usize,
    /// Those that exist and are being deleted.
    pub deleting: usize,
    /// Those that do not exist.
    pub missing: usize,
    /// Why they could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unreadable: Option<String>,
}

/// An object of a release.
#[derive(Clone, Debug, Serialize)]
pub struct ObjectStatus {
    /// The object.
    pub object: ObjectKey,
    /// The UID of the object that was found.
    #[serde(skip)]
    pub uid: Option<Uid>,
    /// Its state.
    pub state: ObjectState,
    /// Whether it is ready, by the rules that `apply` waits for; none unless it is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// Its finalizers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// What blocks its deletion.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blockers: Vec<Blocker>,
    /// Since when it is being deleted: its `deletionTimestamp`, in seconds since 1970 by the server's clock.
    #[serde(rename = "deletedAt", skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<i64>,
    /// Whether a manifest has requested its deletion.
    #[serde(rename = "deletionRequested", skip_serializing_if = "std::ops::Not::not")]
    pub deletion_requested: bool,
}

impl ObjectStatus {
    /// Returns whether the object is as deployed and ready.
    pub fn is_well(&self) -> bool {
        self.state == ObjectState::Present && !matches!(&self.readiness, Some(why) if *why != Readiness::Ready)
    }
}

/// The state of an object of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectState {
    /// It exists.
    Present,
    /// It is being deleted.
    Deleting,
    /// It does not exist.
    Missing,
    /// Another object has its name, without the label of the release.
    Replaced,
    /// It exists, but carries no label of a release, so that only the record assigns it to this one.
    Unlabelled,
    /// It exists, but carries the label of another release.
    Claimed,
    /// It belongs to an earlier version of the release and is still to be pruned.
    Obsolete,
    /// It could not be read.
    Unreadable,
}

/// Reads the status of a release. Of its policy's other clusters it reads those that `clusters` contains.
///
/// # Errors
///
/// When there is no such release, or its record or the kinds of the cluster cannot be read.
pub async fn release_status(clusters: &Clusters, release: &ReleaseName) -> Result<ReleaseStatus, OperationError> {
    let store = clusters.inventory();
    let (stored, catalog) = tokio::try_join!(store.load(release), clusters.own.catalog())?;
    let operation = match &stored {
        // Without the right to read a controller's Lease, nothing is known about it.
        Some(stored) => store.locked(release, &stored.token, &clusters.holder).await.unwrap_or_default(),
        None => None,
    };
    let stored = stored.filter(|stored| !stored.token.is_empty());
    let (inventory, unlisted) = match stored.map(|stored| stored.inventory) {
        Some(inventory) => (inventory, Vec::new()),
        None => {
            let Swept { entries, unlisted } = sweep(clusters, &catalog, release).await;
            if entries.is_empty() && operation.is_none() {
                return Err(OperationError::NoRelease(release.clone(), unlisted));
            }
            (Inventory { entries, ..Inventory::new(release.clone()) }, unlisted)
        }
    };
    let found = Found::read(&clusters.own, catalog, &inventory);
    let (found, targets) = tokio::join!(found, targets::read(clusters, &inventory));
    Ok(ReleaseStatus { operation, targets, unlisted, ..report(&inventory, &found?) })
}

/// Reads the versions of a release that were applied, the newest first; none if it has no record.
///
/// # Errors
///
/// When the record cannot be read.
pub async fn release_history(
    clusters: &Clusters,
    release: &ReleaseName,
) -> Result<Vec<AppliedVersion>, OperationError> {
    let stored = clusters.inventory().load(release).await?;
    Ok(stored.map(|stored| stored.inventory.history).unwrap_or_default())
}

/// What the lists show of an object besides its identity.
#[derive(Clone, Debug, Default)]
struct Detail {
    /// The fields that readiness depends on; none if they cannot be decoded.
    view: Option<View>,
    /// What blocks its deletion, if it is being deleted.
    blockers: Vec<Blocker>,
}

impl<'de> Deserialize<'de> for Detail {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(from)?;
        let view = serde_json::from_str(text.get()).ok();
        // Most objects are not being deleted, and decoding all fields takes ten times as long.
        let object = text.get().contains("deletionTimestamp").then(|| serde_json::from_str::<Value>(text.get()).ok());
        let deleting = object.flatten().filter(|object| object.pointer("/metadata/deletionTimestamp").is_some());
        Ok(Self { view, blockers: deleting.map(|object| blockers(&object)).unwrap_or_default() })
    }
}

/// What exists of a release.
#[derive(Default)]
struct Found {
    objects: BTreeMap<ObjectKey, Observed>,
    details: HashMap<Uid, Detail>,
    /// Why the objects of a kind could not be read.
    failed: BTreeMap<GroupKind, String>,
}

impl Found {
    /// Reads what a deletion of the release would read: one list by label per kind, then single objects that the label did
    /// not show. The lists are of whole objects only for kinds whose status shows readiness.
    async fn read(cluster: &Cluster, catalog: Catalog, inventory: &Inventory) -> Result<Self, OperationError> {
        let catalog = Arc::new(catalog);
        let (objects, unavailable) = wanted(inventory, &catalog);
        let deletion = Deletion::new(DeleteRequest {
            release: Some(&inventory.release),
            objects,
            groups: &[],
            catalogs: Catalogs::own(Arc::clone(&catalog)),
            propagation: Propagation::Background,
            operation: Operation::Delete,
            record_here: true,
            unlabelled: Unlabelled::Leave,
        })?;
        let mut found = Self::default();
        let snapshot = Snapshot { listings: found.list(cluster, deletion.queries()).await };
        let missing = deletion.missing(&snapshot);
        found.add(snapshot.listings);
        // Objects of a failed list are queried again as missing ones.
        found.failed = unavailable;
        let listings = found.list(cluster, &missing).await;
        found.add(listings);
        found.add_dependents(cluster).await;
        Ok(found)
    }

    /// Sends the queries and adds the details of the objects.
    async fn list(&mut self, cluster: &Cluster, queries: &[Query]) -> Vec<Listing> {
        let lists = queries.iter().map(|query| cluster.details(query, !is_ready_when_created(&query.resource.kind)));
        let mut listings = Vec::new();
        for (found, details) in join_all(lists).await {
            self.details.extend(details);
            listings.extend(found);
        }
        listings
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

    /// Returns the state of an object, which belongs to the release with this label as a plan decides it.
    fn state(&self, key: &ObjectKey, entry: &Entry, label: &str) -> ObjectState {
        let Some(found) = self.objects.get(key) else {
            let is_unknown = self.failed.contains_key(&key.kind);
            return if is_unknown { ObjectState::Unreadable } else { ObjectState::Missing };
        };
        let is_recorded = entry.uid.as_ref() == Some(&found.uid);
        match found.labels.get(RELEASE_LABEL) {
            _ if found.deleting => ObjectState::Deleting,
            Some(holder) if holder != label && is_recorded => ObjectState::Claimed,
            None if is_recorded && !entry.unlabelled => ObjectState::Unlabelled,
            _ if !is_recorded && !found.carries(label) => ObjectState::Replaced,
            _ if entry.obsolete => ObjectState::Obsolete,
            _ => ObjectState::Present,
        }
    }

    fn status(&self, key: &ObjectKey, entry: &Entry, label: &str) -> ObjectStatus {
        let state = self.state(key, entry, label);
        let found = self.objects.get(key);
        let detail = found.and_then(|found| self.details.get(&found.uid));
        let readiness = match (state, detail.and_then(|detail| detail.view.as_ref())) {
            (ObjectState::Present, _) if is_ready_when_created(&key.kind) => Some(Readiness::Ready),
            (ObjectState::Present, Some(view)) => Some(readiness(&key.kind, view)),
            _ => None,
        };
        ObjectStatus {
            object: key.clone(),
            uid: found.map(|found| found.uid.clone()),
            state,
            readiness,
            finalizers: found.map(|found| found.finalizers.clone()).unwrap_or_default(),
            blockers: detail.map(|detail| detail.blockers.clone()).unwrap_or_default(),
            deleted_at: found.and_then(|found| found.deleted_at),
            deletion_requested: entry.deletion_requested,
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
    let label = inventory.release.label_value();
    for (key, entry) in &inventory.entries {
        let empty = || KindStatus {
            kind: key.kind.clone(),
            desired: 0,
            live: 0,
            ready: 0,
            deleting: 0,
            missing: 0,
            unreadable: None,
        };
        let kind = kinds.entry(&key.kind).or_insert_with(empty);
        kind.desired += usize::from(!entry.obsolete);
        let object = found.status(key, entry, &label);
        match object.state {
            ObjectState::Missing => kind.missing += 1,
            ObjectState::Unreadable => kind.unreadable = found.failed.get(&key.kind).cloned(),
            ObjectState::Deleting => (kind.live, kind.deleting) = (kind.live + 1, kind.deleting + 1),
            ObjectState::Present
            | ObjectState::Replaced
            | ObjectState::Unlabelled
            | ObjectState::Claimed
            | ObjectState::Obsolete => kind.live += 1,
        }
        kind.ready += usize::from(object.readiness == Some(Readiness::Ready));
        // An object of an earlier version is meant to be missing.
        if !(entry.obsolete && object.state == ObjectState::Missing) {
            objects.push(object);
        }
    }
    ReleaseStatus {
        name: inventory.release.name().to_owned(),
        namespace: inventory.release.namespace().to_owned(),
        phase: phase(inventory, &objects),
        revision: inventory.revision,
        backup: inventory.backup.as_ref().map(|backup| backup.objects),
        history: inventory.history.clone(),
        failures: inventory.failures.clone(),
        kinds: kinds.into_values().collect(),
        objects,
        operation: None,
        targets: Vec::new(),
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
mod tests;
