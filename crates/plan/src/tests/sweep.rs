use std::sync::Arc;

use super::cluster::*;
use crate::*;

/// Sweeps a cluster, and returns the objects that were found and what could not be listed.
fn sweep(catalog: &billhook_objects::Catalog, live: &Cluster) -> (Vec<String>, Vec<String>) {
    let swept = Swept::new(catalog, &live.answer(&sweep_queries(catalog, &release())));
    let texts = swept.unlisted.iter().map(ToString::to_string).collect();
    (swept.entries.keys().map(ToString::to_string).collect(), texts)
}

#[test]
fn a_sweep_finds_what_carries_the_label_in_every_kind() {
    let live = cluster(&[
        "ConfigMap/a/x ours",
        "ConfigMap/a/other of=other.app",
        "ClusterRole/r ours",
        "Event/a/e ours",
        // Kubernetes copies the labels of a Service to these, and deletes them with it.
        "Service/a/s uid=1 ours",
        "Endpoints/a/s ours",
        "EndpointSlice/a/s-1 owner=1 ours",
        // Its Service is gone.
        "Endpoints/a/left ours",
    ]);
    let expected = ["ConfigMap/a/x", "Endpoints/a/left", "Service/a/s", "ClusterRole.rbac.authorization.k8s.io/r"]
        .map(str::to_owned);
    assert_eq!(sweep(&catalog(), &live), (expected.to_vec(), Vec::new()));
}

#[test]
fn a_sweep_sends_one_query_for_each_kind_that_can_be_listed_and_deleted() {
    let mut catalog = catalog();
    let mut view = catalog.get(&key("Pod/a/b").kind).unwrap().clone();
    view.kind = billhook_objects::GroupKind::new("metrics.k8s.io", "PodMetrics");
    view.verbs = vec!["get".into(), "list".into()];
    catalog.insert(view);
    let queries = sweep_queries(&catalog, &release());
    assert_eq!(queries.len(), catalog.iter().count() - 2, "neither events nor views");
    assert!(queries.iter().all(|query| query.namespace.is_none() && query.select != Select::All));
}

#[test]
fn what_could_not_be_listed_is_named() {
    let mut live = cluster(&["ConfigMap/app/x ours"]);
    live.forbidden = vec!["=secrets".into()];
    let mut catalogs = Catalogs::own(catalog());
    let catalog = Arc::make_mut(&mut catalogs.own);
    catalog.stale.push("m.example/v1".into());
    let mut listings = live.answer(&sweep_queries(catalog, &release()));
    // Listing all ConfigMaps is forbidden, and listing those of the namespace is not.
    for listing in listings.iter_mut().filter(|listing| listing.query.resource.plural == "configmaps") {
        listing.found = Listed::Failed("no rights".into());
    }
    let narrower = narrower_sweep(&listings, &release());
    assert!(narrower.iter().all(|query| query.namespace.as_deref() == Some(release().namespace())));
    listings.extend(live.answer(&narrower));
    let swept = Swept::new(catalog, &listings);
    assert_eq!(swept.entries.len(), 1);
    let unlisted: Vec<_> = swept.unlisted.iter().map(ToString::to_string).collect();
    assert_eq!(
        unlisted,
        [
            "failed to list configmaps: no rights",
            "failed to list secrets: forbidden",
            "failed to list *.m.example: the API m.example/v1 is unavailable"
        ]
    );
}
