//! Drops the record of a release and the label of its objects, and deletes none of them.

use std::{collections::BTreeSet, sync::Arc};

use billhook_objects::{Catalog, ObjectKey, ReleaseName};
use billhook_plan::{Catalogs, DeleteRequest, Deletion, ListFailure, Operation, Unlabelled};
use billhook_policy::Propagation;
use serde::Serialize;

use super::{
    claims::{labelled, remove_labels},
    error::OperationError,
    read::catalog,
    record::{Loaded, NotWritten, Record},
    sweep::sweep,
};
use crate::Clusters;

/// What was forgotten.
#[derive(Clone, Debug, Serialize)]
pub struct Forgotten {
    /// The objects that lost the label of the release.
    pub objects: Vec<ObjectKey>,
    /// The objects that keep the label because a request failed, each with the reason. The record then remains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<(ObjectKey, String)>,
    /// Of a release that lost its record: what could not be listed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unlisted: Vec<ListFailure>,
}

/// A release that is to be forgotten.
pub struct PreparedForget {
    catalog: Arc<Catalog>,
    record: Record,
    unlisted: Vec<ListFailure>,
}

/// Reads the record of a release, or looks for its objects if it has none. Changes nothing.
///
/// # Errors
///
/// When there is no such release, or the cluster cannot be read.
pub async fn prepare_forget(clusters: &Clusters, release: &ReleaseName) -> Result<PreparedForget, OperationError> {
    let (catalog, record) = tokio::try_join!(catalog(clusters, None), Record::load(clusters, release))?;
    let (record, unlisted) = match record {
        Loaded::Record(record) => (*record, Vec::new()),
        Loaded::Nothing(head) => {
            let swept = sweep(clusters, &catalog, release).await;
            if swept.entries.is_empty() && head.is_none() {
                return Err(OperationError::NoRelease(release.clone(), swept.unlisted));
            }
            (Record::swept(release.clone(), head, swept.entries), swept.unlisted)
        }
    };
    Ok(PreparedForget { catalog, record, unlisted })
}

/// Removes the label of a release from its objects, then its record. Objects that the record does not name keep the label.
///
/// # Errors
///
/// When another operation works on the release, its objects cannot be looked up, or the record cannot be deleted.
pub async fn forget(clusters: &Clusters, prepared: PreparedForget) -> Result<Forgotten, OperationError> {
    let PreparedForget { catalog, mut record, unlisted } = prepared;
    let release = &record.inventory.release.clone();
    let clusters = &record.lock(clusters, "forget").await?;
    let forgotten = drop_labels(clusters, release, &record, catalog).await;
    let mut forgotten = match forgotten {
        Ok(forgotten) if forgotten.failed.is_empty() => {
            match record.remove(clusters).await {
                Ok(()) => {}
                Err(NotWritten::Failed(error)) => return Err(error.into()),
                Err(NotWritten::LockLost) => return Err(OperationError::LockLost(release.clone())),
            }
            forgotten
        }
        forgotten => {
            record.unlock(clusters).await;
            forgotten?
        }
    };
    forgotten.unlisted = unlisted;
    Ok(forgotten)
}

/// Removes the label of a release from the objects of its record.
async fn drop_labels(
    clusters: &Clusters,
    release: &ReleaseName,
    record: &Record,
    catalog: Arc<Catalog>,
) -> Result<Forgotten, OperationError> {
    let deletion = Deletion::new(DeleteRequest {
        release: Some(release),
        objects: record.inventory.wanted(),
        groups: &[],
        catalogs: Catalogs::own(catalog),
        propagation: Propagation::Background,
        operation: Operation::Delete,
        record_here: clusters.record_here(),
        unlabelled: Unlabelled::Leave,
    })?;
    let mut snapshot = clusters.snapshot(deletion.queries()).await;
    snapshot.listings.extend(clusters.snapshot(&deletion.missing(&snapshot)).await.listings);
    let plan = deletion.plan(&snapshot)?;
    let label = release.label_value();
    let keys: BTreeSet<&ObjectKey> = plan.uncovered.iter().map(|uncovered| &uncovered.object).collect();
    let objects = labelled(&snapshot, &label, &keys);
    let mut forgotten = Forgotten { objects: Vec::new(), failed: Vec::new(), unlisted: Vec::new() };
    for (object, error) in remove_labels(&clusters.own, &label, objects).await {
        match error {
            None => forgotten.objects.push(object),
            Some(error) => forgotten.failed.push((object, error.message())),
        }
    }
    Ok(forgotten)
}
