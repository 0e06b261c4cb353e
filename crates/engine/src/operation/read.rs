//! Reads what a plan needs from its clusters.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use billhook_cluster::{Cluster, Error, Judge};
use billhook_objects::{Catalog, GroupKind, Manifest, ObjectKey};
use billhook_plan::{Catalogs, Deployment, Listing, Plan, Query, Snapshot, TaskGraph};
use billhook_policy::DeletionGroup;
use futures::future::join_all;

use crate::{
    Clusters,
    awaited::Rules,
    readiness::{Readiness, View},
};

impl Clusters {
    /// Sends each cluster its own queries.
    pub(crate) async fn snapshot(&self, queries: &[Query]) -> Snapshot {
        let own = self.by_cluster(queries).into_iter();
        joined(own.map(|(cluster, queries)| async move { cluster.snapshot(&queries).await })).await
    }

    /// Like [`snapshot`](Self::snapshot), with what an apply compares.
    pub(super) async fn snapshot_tracked(&self, queries: &[Query], rules: &GraphRules<'_>) -> Snapshot {
        let own = self.by_cluster(queries).into_iter();
        joined(own.map(|(cluster, queries)| async move { cluster.snapshot_tracked(&queries, rules).await })).await
    }

    fn by_cluster(&self, queries: &[Query]) -> Vec<(&Cluster, Vec<Query>)> {
        let mut by_cluster: BTreeMap<Option<&str>, Vec<Query>> = BTreeMap::new();
        for query in queries {
            by_cluster.entry(query.cluster.as_deref()).or_default().push(query.clone());
        }
        by_cluster.into_iter().filter_map(|(name, queries)| Some((self.get(name)?, queries))).collect()
    }
}

async fn joined(listings: impl Iterator<Item = impl Future<Output = Vec<Listing>>>) -> Snapshot {
    Snapshot { listings: join_all(listings).await.into_iter().flatten().collect() }
}

/// The rules by which the objects are judged that steps of a graph wait for or look at.
pub(super) struct GraphRules<'a> {
    deployment: &'a Deployment<'a>,
    rules: HashMap<&'a ObjectKey, Rules>,
}

impl<'a> GraphRules<'a> {
    pub(super) fn new(deployment: &'a Deployment<'a>, graph: Option<&TaskGraph>, manifests: &'a [Manifest]) -> Self {
        let judged = graph.into_iter().flat_map(TaskGraph::judged);
        let rules = judged.filter_map(|(at, health)| {
            let manifest = manifests.get(at)?;
            Some((&manifest.key, Rules::of(health, Some(manifest))))
        });
        Self { deployment, rules: rules.collect() }
    }
}

impl Judge for GraphRules<'_> {
    type View = View;

    fn judges(&self, query: &Query) -> bool {
        self.deployment.needs_readiness(query)
    }

    fn is_ready(&self, kind: &GroupKind, object: &View) -> bool {
        let metadata = &object.metadata;
        let key = ObjectKey::new(kind.clone(), metadata.namespace.as_deref(), &*metadata.name);
        self.rules.get(&key).is_some_and(|rules| rules.judge(kind, object).readiness == Readiness::Ready)
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

/// Adds the contents of the Namespaces and CRDs that a plan deletes to the snapshot that it was made from, for
/// [`billhook_plan::add_blast_notes`]: what the plan has listed already is not listed again. Sends no request if it deletes none.
pub(super) async fn add_contents(clusters: &Clusters, plan: &Plan, catalogs: &Catalogs, snapshot: &mut Snapshot) {
    let queries = billhook_plan::blast_queries(plan, catalogs);
    snapshot.listings.extend(clusters.snapshot(&queries).await.listings);
}
