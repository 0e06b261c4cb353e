//! Reads what a plan needs from its clusters.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_cluster::{Cluster, Error};
use billhook_objects::{Catalog, GroupKind, ReleaseName};
use billhook_plan::{Catalogs, Plan, Query, Snapshot};
use billhook_policy::DeletionGroup;
use futures::future::join_all;

use crate::{
    Clusters,
    readiness::{Readiness, View, readiness},
};

impl Clusters {
    /// Sends each cluster its own queries.
    pub(crate) async fn snapshot(&self, queries: &[Query]) -> Snapshot {
        let answers = self.by_cluster(queries).map(|(cluster, queries)| async move { cluster.snapshot(&queries).await });
        Snapshot { listings: join_all(answers).await.into_iter().flatten().collect() }
    }

    /// Like [`snapshot`](Self::snapshot), with what an apply compares, and with the readiness of objects in the answers to the
    /// queries that are also in `whole`.
    pub(crate) async fn snapshot_tracked(&self, queries: &[Query], whole: &[Query]) -> Snapshot {
        let is_ready = |kind: &GroupKind, object: &View| readiness(kind, object) == Readiness::Ready;
        let answers = self
            .by_cluster(queries)
            .map(|(cluster, queries)| async move { cluster.snapshot_tracked(&queries, whole, is_ready).await });
        Snapshot { listings: join_all(answers).await.into_iter().flatten().collect() }
    }

    fn by_cluster(&self, queries: &[Query]) -> impl Iterator<Item = (&Cluster, Vec<Query>)> {
        let mut by_cluster: BTreeMap<Option<&str>, Vec<Query>> = BTreeMap::new();
        for query in queries {
            by_cluster.entry(query.cluster.as_deref()).or_default().push(query.clone());
        }
        by_cluster.into_iter().filter_map(|(name, queries)| Some((self.get(name)?, queries)))
    }
}

/// Returns the kinds of the release's own cluster, read from it unless they are known.
pub(super) async fn catalog(clusters: &Clusters, known: Option<Arc<Catalog>>) -> Result<Arc<Catalog>, Error> {
    match known {
        Some(catalog) => Ok(catalog),
        None => Ok(Arc::new(clusters.own.catalog().await?)),
    }
}

/// Returns the catalogs of the release's own cluster and of the targets that the groups name.
pub(super) async fn catalogs(
    clusters: &Clusters,
    own: Arc<Catalog>,
    groups: &[DeletionGroup],
) -> Result<Catalogs, Error> {
    let named: BTreeSet<&String> = groups.iter().filter_map(|group| group.target.as_ref()).collect();
    let mut targets = BTreeMap::new();
    for (name, cluster) in clusters.targets.iter().filter(|(name, _)| named.contains(name)) {
        targets.insert(name.clone(), Arc::new(cluster.catalog().await?));
    }
    Ok(Catalogs { own, targets })
}

/// Adds notes on the contents of the Namespaces and CRDs that a plan deletes. Sends no request if it deletes none.
pub(super) async fn note_foreign(
    clusters: &Clusters,
    plan: &mut Plan,
    catalogs: &Catalogs,
    release: Option<&ReleaseName>,
) {
    let queries = billhook_plan::blast_queries(plan, catalogs);
    let contents = clusters.snapshot(&queries).await;
    billhook_plan::add_blast_notes(plan, &contents, release);
}
