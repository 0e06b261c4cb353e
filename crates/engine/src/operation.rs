//! Operations on releases: from the input to a plan, and from a plan to the release's inventory. All front ends share them.

mod apply;
mod delete;
mod record;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_cluster::{Cluster, Error};
use billhook_objects::{Catalog, ReleaseName};
use billhook_plan::{Catalogs, Plan, PlanError, Query, Snapshot};
use billhook_policy::DeletionGroup;

use crate::{Clusters, Event, RunOptions, Status, Summary, run::Outcome};

pub use apply::{ApplyInput, PreparedApply, apply, prepare_apply};
pub use delete::{DeleteInput, PreparedDelete, Subject, delete, prepare_delete};
pub use record::{Inherited, load_record};

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// No plan could be made; nothing was changed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The release does not exist.
    #[error("find release {0}")]
    NoRelease(ReleaseName),
    /// A request failed.
    #[error(transparent)]
    Cluster(#[from] Error),
}

impl Clusters {
    /// Sends each cluster its own queries.
    pub(crate) async fn snapshot(&self, queries: &[Query]) -> Snapshot {
        let mut by_cluster: BTreeMap<Option<&str>, Vec<Query>> = BTreeMap::new();
        for query in queries {
            by_cluster.entry(query.cluster.as_deref()).or_default().push(query.clone());
        }
        let answers = by_cluster.iter().filter_map(|(name, queries)| Some(self.get(*name)?.snapshot(queries)));
        Snapshot { listings: futures::future::join_all(answers).await.into_iter().flatten().collect() }
    }
}

/// Deletes the inventory of a release, and leaves its objects unchanged.
///
/// # Errors
///
/// When the inventory cannot be deleted.
pub async fn forget(records: &Cluster, release: &ReleaseName) -> Result<(), Error> {
    records.inventory().forget(release).await
}

/// Returns the kinds of the release's own cluster, read from it unless they are known.
async fn catalog(clusters: &Clusters, known: Option<Arc<Catalog>>) -> Result<Arc<Catalog>, Error> {
    match known {
        Some(catalog) => Ok(catalog),
        None => Ok(Arc::new(clusters.own.catalog().await?)),
    }
}

/// Returns the catalogs of the release's own cluster and of the targets that the groups name.
async fn catalogs(clusters: &Clusters, own: Arc<Catalog>, groups: &[DeletionGroup]) -> Result<Catalogs, Error> {
    let named: BTreeSet<&String> = groups.iter().filter_map(|group| group.target.as_ref()).collect();
    let mut targets = BTreeMap::new();
    for (name, cluster) in clusters.targets.iter().filter(|(name, _)| named.contains(name)) {
        targets.insert(name.clone(), Arc::new(cluster.catalog().await?));
    }
    Ok(Catalogs { own, targets })
}

/// Adds notes on the contents of the Namespaces and CRDs that a plan deletes. Sends no request if it deletes none.
async fn note_foreign(clusters: &Clusters, plan: &mut Plan, catalogs: &Catalogs, release: Option<&ReleaseName>) {
    let queries = billhook_plan::blast_queries(plan, catalogs);
    let contents = clusters.snapshot(&queries).await;
    billhook_plan::add_blast_notes(plan, &contents, release);
}

/// Emits the last event. A failure to write the inventory is added to the summary and hides nothing in it.
fn finish(outcome: Outcome, written: Result<(), Error>, clusters: &Clusters, options: &RunOptions) -> Summary {
    let mut summary = outcome.summary;
    if let Err(error) = written {
        summary.record_error = Some(format!("failed to {error}: {}", error.message()));
        if summary.status == Status::Done {
            summary.status = Status::Failed;
        }
    }
    summary.requests = clusters.requests();
    (options.sink)(Event::Finished(summary.clone()));
    summary
}
