//! Finds the objects of a release by its label in all kinds: of a release that lost its record, and to prove that nothing is
//! left of one.

use std::{collections::BTreeSet, time::Duration};

use billhook_objects::{Catalog, GroupKind, ObjectKey, ReleaseName};
use billhook_plan::{Query, Swept, narrower_sweep, sweep_queries};
use tokio_util::sync::CancellationToken;

use crate::{Clusters, Proof};

/// How often what is left is listed again: Kubernetes deletes the dependents of an object a moment after it.
const TRIES: usize = 10;
/// The time between two of these lists.
const PAUSE: Duration = Duration::from_millis(500);

/// Lists every kind once, and again in the namespace of the release where that fails.
pub(crate) async fn sweep(clusters: &Clusters, catalog: &Catalog, release: &ReleaseName) -> Swept {
    list(clusters, catalog, release, &sweep_queries(catalog, release)).await
}

async fn list(clusters: &Clusters, catalog: &Catalog, release: &ReleaseName, queries: &[Query]) -> Swept {
    let mut listings = clusters.snapshot(queries).await.listings;
    listings.extend(clusters.snapshot(&narrower_sweep(&listings, release)).await.listings);
    Swept::new(catalog, &listings)
}

/// Sweeps after a deletion, and returns what is left except the `expected` objects.
pub(super) async fn prove(
    clusters: &Clusters,
    catalog: &Catalog,
    release: &ReleaseName,
    expected: &BTreeSet<ObjectKey>,
    stop: &CancellationToken,
) -> Proof {
    let Swept { mut entries, mut unlisted } = sweep(clusters, catalog, release).await;
    for _ in 0..TRIES {
        entries.retain(|key, _| !expected.contains(key));
        if entries.is_empty() {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = stop.cancelled() => break,
        }
        let kinds: BTreeSet<GroupKind> = entries.keys().map(|key| key.kind.clone()).collect();
        let mut queries = sweep_queries(catalog, release);
        queries.retain(|query| kinds.contains(&query.resource.kind));
        let again = list(clusters, catalog, release, &queries).await;
        entries = again.entries;
        unlisted.extend(again.unlisted);
    }
    unlisted.sort_unstable();
    unlisted.dedup();
    Proof { left: entries.into_keys().filter(|key| !expected.contains(key)).collect(), unlisted }
}
