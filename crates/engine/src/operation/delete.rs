//! The deletion of a release, or of what manifests name.

use std::{collections::BTreeMap, sync::Arc};

use billhook_objects::{Catalog, Manifest, ReleaseName};
use billhook_plan::{
    DeleteRequest, Deletion, Directives, NoteKind, Operation, Plan, PlanError, Problem, Snapshot, Wanted,
};
use billhook_policy::{Policy, Propagation};

use super::{
    error::OperationError,
    read::{catalog, catalogs, note_foreign},
    record::{Inherited, Record, finish},
};
use crate::{Clusters, RunOptions, Summary};

/// What to delete.
pub enum Subject {
    /// A release, by its inventory.
    Release(ReleaseName),
    /// The objects that manifests name, and instructions for some of them, by their index.
    Manifests(Vec<Manifest>, BTreeMap<usize, Directives>),
}

/// The input of a deletion.
pub struct DeleteInput {
    /// What to delete.
    pub subject: Subject,
    /// Replaces the policy recorded with the release.
    pub policy: Option<Policy>,
    /// How dependents are treated if the policy does not specify it.
    pub propagation: Propagation,
    /// More deletions than this are dangerous.
    pub max_deletions: Option<usize>,
    /// The namespace of manifests without one.
    pub namespace: String,
    /// The objects of an earlier deployer, used if there is no inventory.
    pub inherited: Vec<Inherited>,
    /// Whether a release without an inventory is an error. If not, inherited objects and collections are deleted.
    pub require_record: bool,
    /// The kinds of the release's cluster, if they are known already.
    pub catalog: Option<Arc<Catalog>>,
}

/// A planned deletion.
pub struct PreparedDelete {
    /// The plan.
    pub plan: Plan,
    snapshot: Snapshot,
    record: Option<Record>,
}

/// Plans a deletion. Changes nothing.
///
/// # Errors
///
/// When the release does not exist, the policy does not fit the cluster, or the cluster cannot be read.
pub async fn prepare_delete(clusters: &Clusters, input: DeleteInput) -> Result<PreparedDelete, OperationError> {
    let catalog = catalog(clusters, input.catalog);
    let (catalog, record, objects) = match input.subject {
        Subject::Release(release) => {
            let (catalog, record) = tokio::try_join!(catalog, Record::load_or_namespace(clusters, &release))?;
            let record = match record {
                None if input.require_record => return Err(OperationError::NoRelease(release)),
                None => Record::inherited(release, input.inherited),
                Some(record) => record,
            };
            let objects = record.inventory.wanted();
            (catalog, Some(record), objects)
        }
        Subject::Manifests(manifests, _) if manifests.is_empty() => {
            return Err(PlanError::from(Problem::NoObjects).into());
        }
        Subject::Manifests(manifests, directives) => {
            let catalog = catalog.await?;
            let objects = Wanted::of_manifests(&manifests, &directives, &input.namespace, &catalog);
            (catalog, None, objects)
        }
    };
    let recorded = record.as_ref().map(|record| record.inventory.policy.clone());
    let policy_is_lost = input.policy.is_none() && record.as_ref().is_some_and(Record::is_lost);
    let policy = input.policy.or(recorded).unwrap_or_default();
    let catalogs = catalogs(clusters, catalog, &policy.deletion).await?;
    let release = record.as_ref().map(|record| &record.inventory.release);
    let deletion = Deletion::new(DeleteRequest {
        release,
        objects,
        groups: &policy.deletion,
        catalogs: catalogs.clone(),
        propagation: input.propagation,
        operation: Operation::Delete,
        record_here: clusters.record_here(),
    })?;
    let mut snapshot = clusters.snapshot(deletion.queries()).await;
    snapshot.listings.extend(clusters.snapshot(&deletion.missing(&snapshot)).await.listings);
    let mut plan = deletion.plan(&snapshot)?;
    note_foreign(clusters, &mut plan, &catalogs, release).await;
    if let Some(max) = input.max_deletions {
        billhook_plan::limit_deletions(&mut plan, max);
    }
    plan.add_notes(policy_is_lost.then(|| NoteKind::PolicyLost.into()));
    Ok(PreparedDelete { plan, snapshot, record })
}

/// Runs a planned deletion and keeps the inventory up to date.
///
/// # Errors
///
/// When the inventory cannot be written beforehand; nothing was changed then. Everything else is in the summary.
pub async fn delete(
    clusters: &Clusters,
    prepared: PreparedDelete,
    options: &RunOptions,
) -> Result<Summary, OperationError> {
    let PreparedDelete { plan, snapshot, record } = prepared;
    crate::run::announce(&plan, options);
    let none = BTreeMap::new();
    let (outcome, written) = match record {
        Some(mut record) => {
            record.begin_delete(clusters, &plan).await?;
            let outcome = record.run(&plan, &snapshot, clusters, &none, options).await;
            let written = record.end_delete(clusters, &plan, &outcome).await;
            (outcome, written)
        }
        None => (crate::run::run(&plan, &snapshot, clusters, &none, None, options).await, Ok(())),
    };
    Ok(finish(outcome, written, clusters, options))
}
