//! The deployment of a release.

mod input;
mod prepare;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use billhook_cluster::ApplyOptions;
use billhook_objects::{GroupKind, Manifest, ObjectKey, wellknown};
use billhook_plan::{AppliedVersion, Directives, Failures, Inventory, Plan, Resource, Snapshot};
use tokio::time::Instant;

pub use self::{
    input::{ApplyInput, DeploymentOrder, GraphOf, Unowned, Unrecorded},
    prepare::prepare_apply,
};
use super::{
    error::OperationError,
    record::{Record, finish},
};
use crate::{Clusters, Event, Recorded, RunOptions, Summary};

/// A planned apply.
pub struct PreparedApply {
    /// The plan.
    pub plan: Plan,
    /// The manifests, as they will be sent.
    pub manifests: BTreeMap<ObjectKey, Manifest>,
    /// Instructions for some of the manifests.
    pub directives: BTreeMap<ObjectKey, Directives>,
    /// The kinds that the release's own CRDs define and that the cluster does not serve yet.
    pub not_served: BTreeSet<GroupKind>,
    /// The versions that were applied before, the newest first.
    pub history: Vec<AppliedVersion>,
    /// What failed in the last apply.
    pub failures: Failures,
    snapshot: Snapshot,
    pub(super) record: Record,
    prune: bool,
    /// When the planning started, which is the time of the call.
    since: Instant,
}

/// An apply whose run is about to start.
pub struct Starting {
    /// The clusters, behind the fence of the lock.
    pub clusters: Clusters,
    /// Whether the release is locked. It is not if the apply has nothing to write.
    pub is_locked: bool,
}

impl PreparedApply {
    /// Returns whether the release was locked when its record was read, by another operation or by one that was killed.
    pub fn is_locked(&self) -> bool {
        self.record.is_locked()
    }

    /// Returns whether the record of the release was lost, so that nothing is known of the versions before.
    pub fn is_lost(&self) -> bool {
        self.record.is_lost()
    }

    /// Returns the number of the write that made the record that was read; 0 if there is none.
    pub fn revision(&self) -> u64 {
        self.record.inventory.revision
    }
}

/// Runs a planned apply and keeps the inventory up to date.
///
/// # Errors
///
/// When a namespace cannot be created or the inventory cannot be written beforehand. Everything else is in the summary.
pub async fn apply(
    clusters: &Clusters,
    prepared: PreparedApply,
    options: &RunOptions,
) -> Result<Summary, OperationError> {
    apply_announced(clusters, prepared, options, async |_| Ok(())).await
}

/// Like [`apply`], and calls `announce` once nothing but the run itself can fail any more: the release is locked, unless there is
/// nothing to write.
///
/// # Errors
///
/// As [`apply`], and when `announce` fails. Then nothing is applied, and the lock is removed.
pub async fn apply_announced<E: From<OperationError>>(
    clusters: &Clusters,
    prepared: PreparedApply,
    options: &RunOptions,
    announce: impl AsyncFnOnce(Starting) -> Result<(), E>,
) -> Result<Summary, E> {
    let PreparedApply { mut plan, manifests, snapshot, mut record, prune, since, .. } = prepared;
    crate::run::announce(&plan, options);
    // The record names the namespaces before they are created, except the one that holds it.
    let is_first = |name: &String| clusters.record_here() && name == record.inventory.release.namespace();
    let (first, others): (Vec<String>, Vec<String>) = plan.namespaces.iter().cloned().partition(is_first);
    create_namespaces(clusters, &first, options).await?;
    let is_locked = record.begin_apply(clusters, &mut plan, &manifests).await?;
    let fenced = record.fenced(clusters);
    let begun = match create_namespaces(&fenced, &others, options).await {
        Ok(()) => announce(Starting { clusters: fenced, is_locked }).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = begun {
        record.unlock(clusters).await;
        return Err(error);
    }
    let mut outcome = record.run(&plan, &snapshot, clusters, &manifests, options).await;
    record.release_unmanaged(clusters, &plan, &snapshot, options, &mut outcome).await;
    let ended = Clusters { now: later(&clusters.now, since.elapsed()), ..clusters.clone() };
    let before = record.inventory.history.clone();
    let written = record.end_apply(&ended, &plan, &outcome, prune).await;
    let Inventory { history, revision, entries, .. } = record.inventory;
    let uids =
        entries.into_iter().filter(|(_, entry)| !entry.obsolete).filter_map(|(key, entry)| Some((key, entry.uid?)));
    let history = if written.is_ok() { history } else { before };
    outcome.summary.recorded = Some(Recorded { history, revision, uids: uids.collect() });
    Ok(finish(outcome, written, clusters, options))
}

/// Returns a time in RFC 3339 format after some time, in whole seconds.
fn later(time: &str, elapsed: Duration) -> String {
    let at = time.parse::<jiff::Timestamp>().ok();
    let later = at.and_then(|at| at.checked_add(Duration::from_secs(elapsed.as_secs())).ok());
    later.map_or_else(|| time.to_owned(), |later| later.to_string())
}

async fn create_namespaces(clusters: &Clusters, names: &[String], options: &RunOptions) -> Result<(), OperationError> {
    for name in names {
        let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let key = ObjectKey::new(wellknown::namespace(), None, name.as_str());
        let (text, how) = (manifest.to_string(), ApplyOptions::default());
        if clusters.own.apply(&Resource::namespaces(), &key, &text, &how).await?.created {
            (options.sink)(Event::NamespaceCreated { object: key });
        }
    }
    Ok(())
}
