//! Reads what a plan needs from its clusters.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use billhook_cluster::{Cluster, Error};
use billhook_objects::{Catalog, GroupKind, ObjectKey, ReleaseName};
use billhook_plan::{Catalogs, Listing, Plan, Query, Snapshot};
use billhook_policy::DeletionGroup;

use crate::{
    Clusters,
    awaited::Rules,
    readiness::{Readiness, View},
};

impl Clusters {
    /// Sends each cluster its own queries.
    pub(crate) async fn snapshot(&self, queries: &[Query]) -> Snapshot {
        self.snapshot_by(queries, async |cluster, queries| cluster.snapshot(&queries).await).await
    }

    /// Like [`snapshot`](Self::snapshot), with what an apply compares, and in the answers to the queries that are `whole` with
    /// whether each object is ready, or healthy by its rules.
    pub(crate) async fn snapshot_tracked(
        &self,
        queries: &[Query],
        whole: impl Fn(&Query) -> bool,
        rules: &HashMap<&ObjectKey, Rules>,
    ) -> Snapshot {
        let is_ready = |kind: &GroupKind, object: &View| {
            let metadata = &object.metadata;
            let key = ObjectKey::new(kind.clone(), metadata.namespace.as_deref(), &*metadata.name);
            rules.get(&key).is_some_and(|rules| rules.judge(kind, object).readiness == Readiness::Ready)
        };
        let snapshot = async |cluster: &Cluster, queries: Vec<Query>| {
            cluster.snapshot_tracked(&queries, &whole, &is_ready).await
        };
        self.snapshot_by(queries, snapshot).await
    }

    async fn snapshot_by(
        &self,
        queries: &[Query],
        snapshot: impl AsyncFn(&Cluster, Vec<Query>) -> Vec<Listing>,
    ) -> Snapshot {
        let mut by_cluster: BTreeMap<Option<&str>, Vec<Query>> = BTreeMap::new();
        for query in queries {
            by_cluster.entry(query.cluster.as_deref()).or_default().push(query.clone());
        }
        let answers = by_cluster.into_iter().filter_map(|(name, queries)| Some(snapshot(self.get(name)?, queries)));
        Snapshot { listings: futures::future::join_all(answers).await.into_iter().flatten().collect() }
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
