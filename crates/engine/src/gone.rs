//! Waits until objects are gone whose deletion was requested earlier, by this process or by another client.

use std::collections::BTreeMap;

use billhook_cluster::{Change, Cluster, Known};
use billhook_objects::{Catalog, GroupKind, ObjectKey, Uid};
use billhook_plan::{Query, Resource};
use futures::{StreamExt as _, stream::SelectAll};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::{Clusters, OperationError, Status, node::until, queries::by_name, retry::backoff};

/// The objects to wait for.
type Remaining = BTreeMap<ObjectKey, Uid>;

/// How a wait for objects ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waited {
    /// [`Status::Done`] if all of them are gone, else [`Status::TimedOut`] or [`Status::Interrupted`].
    pub status: Status,
    /// Those that are not gone, sorted.
    pub remaining: Vec<ObjectKey>,
}

/// Waits until the API server has confirmed that objects of the release's own cluster are gone, or until a deadline or a
/// cancellation. It only reads, and requests no deletion.
///
/// An object is identified by its key and its UID: one that was recreated under its name is gone, as are all objects of a
/// kind that the cluster no longer serves. The objects of a kind in a namespace share a watch of their metadata, those in
/// many namespaces a single one; where it is forbidden, lists or single reads replace it.
///
/// # Errors
///
/// When the kinds of the cluster cannot be read.
pub async fn until_gone(
    clusters: &Clusters,
    objects: impl IntoIterator<Item = (ObjectKey, Uid)>,
    deadline: Option<Instant>,
    stop: &CancellationToken,
) -> Result<Waited, OperationError> {
    let mut remaining: Remaining = objects.into_iter().collect();
    if remaining.is_empty() {
        return Ok(Waited { status: Status::Done, remaining: Vec::new() });
    }
    let status = tokio::select! {
        biased;
        gone = Box::pin(all_gone(&clusters.own, &mut remaining)) => gone.map(|()| Status::Done)?,
        () = stop.cancelled() => Status::Interrupted,
        () = until(deadline) => Status::TimedOut,
    };
    Ok(Waited { status, remaining: remaining.into_keys().collect() })
}

async fn all_gone(cluster: &Cluster, remaining: &mut Remaining) -> Result<(), OperationError> {
    for attempt in 0.. {
        let catalog = cluster.catalog().await?;
        let is_unknown = |key: &ObjectKey| is_unavailable(&key.kind, &catalog);
        remaining.retain(|key, _| catalog.get(&key.kind).is_some() || is_unknown(key));
        let ends = if remaining.keys().any(is_unknown) { Some(Instant::now() + backoff(attempt)) } else { None };
        tokio::select! {
            () = follow(cluster, &catalog, remaining) => {}
            // An API that is not available may be so again.
            () = until(ends) => {}
        }
        if remaining.is_empty() {
            break;
        }
        sleep_until(ends.unwrap_or_else(|| Instant::now() + backoff(attempt))).await;
    }
    Ok(())
}

/// Returns whether it is not known if the cluster serves a kind, because its API is unavailable.
fn is_unavailable(kind: &GroupKind, catalog: &Catalog) -> bool {
    let is_of_group = |api: &String| api.split_once('/').is_some_and(|(group, _)| group == kind.group);
    catalog.get(kind).is_none() && catalog.stale.iter().any(is_of_group)
}

/// Removes objects when they are gone, until none of a served kind remains.
async fn follow(cluster: &Cluster, catalog: &Catalog, remaining: &mut Remaining) {
    let mut watches = SelectAll::new();
    for query in queries(catalog, remaining) {
        let kind = query.resource.kind.clone();
        let shown = remaining.iter().filter(|(key, _)| key.kind == kind && query.covers(key.namespace.as_deref()));
        let objects = shown.map(|(key, uid)| (key.namespace.clone(), key.name.clone(), uid.clone())).collect();
        let known = Known { resource_version: None, objects };
        watches.push(cluster.watch(&query, known).map(move |change| (kind.clone(), change)).boxed());
    }
    while remaining.keys().any(|key| catalog.get(&key.kind).is_some())
        && let Some((kind, change)) = watches.next().await
    {
        // If a kind is no longer served, its watch reports all of its objects before it ends.
        let Change::Gone { namespace, name, uid } = change else { continue };
        let key = ObjectKey { kind, namespace, name };
        if remaining.get(&key) == Some(&uid) {
            remaining.remove(&key);
        }
    }
}

fn queries(catalog: &Catalog, remaining: &Remaining) -> Vec<Query> {
    let resources: BTreeMap<&GroupKind, Resource> =
        remaining.keys().filter_map(|key| Some((&key.kind, Resource::of(catalog.get(&key.kind)?, None)))).collect();
    let objects = remaining.keys().filter_map(|key| Some((key, resources.get(&key.kind)?)));
    by_name(objects, None)
}
