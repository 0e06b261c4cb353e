//! Claims of releases on objects: whether they still count, and how they end.

use std::collections::{BTreeMap, BTreeSet};

use billhook_cluster::{Applied, Cluster, Error, Patch, PatchKind};
use billhook_objects::{
    GroupKind, ObjectKey, ReleaseName, Uid,
    wellknown::{self, RELEASE_LABEL},
};
use billhook_plan::{Listed, Resource, Snapshot};
use futures::{StreamExt as _, future::join_all, stream};
use serde_json::json;

use crate::{Clusters, node::WINDOW};

/// Returns those of the labels whose releases do not exist any more: they have no record, and no DeployItem. A release that
/// cannot be looked up counts as existing. `own` is the release that asks.
pub(super) async fn gone(clusters: &Clusters, own: &ReleaseName, labels: BTreeSet<String>) -> BTreeSet<String> {
    let one = async |label: String| {
        let release = ReleaseName::of_label(&label)?;
        let exists = match release.deploy_item() {
            // Only a controller knows the home cluster of DeployItems.
            Some(item) => item_exists(clusters.records.as_ref()?, own, &release, item).await,
            None => clusters.own.inventory().exists(&release).await,
        };
        (!exists.unwrap_or(true)).then_some(label)
    };
    join_all(labels.into_iter().map(one)).await.into_iter().flatten().collect()
}

async fn item_exists(home: &Cluster, own: &ReleaseName, release: &ReleaseName, item: &str) -> Result<bool, Error> {
    if home.inventory().exists(release).await? {
        return Ok(true);
    }
    let resource = Resource {
        kind: GroupKind::new("landscaper.gardener.cloud", "DeployItem"),
        version: "v1alpha1".to_owned(),
        plural: "deployitems".to_owned(),
        namespaced: true,
    };
    let key = ObjectKey::new(resource.kind.clone(), Some(release.namespace()), item);
    if home.get_meta(&resource, &key).await?.is_some() {
        return Ok(true);
    }
    // Without its namespace, it may be an item of another home cluster. The namespace of an item that is being deployed exists.
    if release.namespace() == own.namespace() {
        return Ok(false);
    }
    let namespace = ObjectKey::new(wellknown::namespace(), None, release.namespace());
    Ok(home.get_meta(&Resource::namespaces(), &namespace).await?.is_none())
}

/// An object that carries the label of a release.
pub(super) struct Labelled {
    resource: Resource,
    key: ObjectKey,
    uid: Uid,
}

/// Returns those of the objects that carry a label in a snapshot of the release's own cluster, each once.
pub(super) fn labelled(snapshot: &Snapshot, label: &str, keys: &BTreeSet<&ObjectKey>) -> Vec<Labelled> {
    let mut found = BTreeMap::new();
    for listing in snapshot.listings.iter().filter(|listing| listing.query.cluster.is_none()) {
        let Listed::Items { items, .. } = &listing.found else { continue };
        let resource = &listing.query.resource;
        for item in items.iter().filter(|item| item.carries(label)) {
            let key = item.key(&resource.kind);
            if keys.contains(&key) {
                let labelled = Labelled { resource: resource.clone(), key, uid: item.uid.clone() };
                found.entry(item.uid.clone()).or_insert(labelled);
            }
        }
    }
    found.into_values().collect()
}

/// Removes the label of a release from objects that still have the same UID and label. Returns the objects, each with the
/// error if the request failed.
pub(super) async fn remove_labels(
    cluster: &Cluster,
    label: &str,
    objects: Vec<Labelled>,
) -> Vec<(ObjectKey, Option<Error>)> {
    let path = format!("/metadata/labels/{}", RELEASE_LABEL.replace('/', "~1"));
    let path = &path;
    let one = |Labelled { resource, key, uid }: Labelled| async move {
        let body = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": path, "value": label},
            {"op": "remove", "path": path},
        ]);
        let patch = Patch { subresource: None, kind: PatchKind::Json, body: &body };
        let answer: Result<Option<Applied>, Error> = cluster.patch(&resource, &key, &patch).await;
        // A failed test: another object has the name, or it does not carry the label any more.
        let error = answer.err().filter(|error| error.code() != Some(422));
        (key, error)
    };
    // Collected because the closure must not live across an await: the future would not be `Send`.
    let requests: Vec<_> = objects.into_iter().map(one).collect();
    let mut done: Vec<_> = stream::iter(requests).buffer_unordered(WINDOW).collect().await;
    done.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    done
}
