//! The lists of names that callers share.

use std::{sync::Arc, time::Duration};

use billhook_cluster::{Cluster, WriteOptions};
use billhook_objects::{GroupKind, ObjectKey};
use billhook_plan::{Listed, Select};
use billhook_policy::UpdateStrategy;
use serde_json::json;
use tokio::time::advance;

use crate::fake::{Answer, cluster, configmaps, object, ok, page, query, status};

async fn existing(cluster: &Cluster, names: &[&str]) -> Vec<String> {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    let listings = cluster.snapshot(&[query(Some("a"), Select::Names(names))]).await;
    let Listed::Items { items, .. } = &listings[0].found else { panic!("{listings:?}") };
    items.iter().map(|item| item.name.clone()).collect()
}

fn with_one() -> (Cluster, crate::fake::Log) {
    cluster(|req| match (req.method.as_str(), req.query("fieldSelector")) {
        ("POST", _) => Answer::Json(201, object("new", "u2", 2)),
        (_, "") => ok(page(7, vec![object("old", "u1", 1)])),
        (_, "metadata.name=old") => ok(page(8, vec![object("old", "u1", 1)])),
        (_, "metadata.name=new") => ok(page(8, vec![object("new", "u2", 2)])),
        _ => ok(page(8, Vec::new())),
    })
}

#[tokio::test(start_paused = true)]
async fn absent_objects_of_many_callers_are_found_by_one_list() {
    let (cluster, log) = with_one();
    let recent = cluster.with_recent_names();
    let callers = ["x", "y", "z"].map(|name| {
        let recent = recent.clone();
        async move { existing(&recent, &[name, "other"]).await }
    });
    for found in futures::future::join_all(callers).await {
        assert_eq!(found, [""; 0]);
    }
    assert_eq!(log.lines(), ["GET /api/v1/namespaces/a/configmaps?limit=500"]);
    // What exists is read.
    assert_eq!(existing(&recent, &["x", "old"]).await, ["old"]);
    assert_eq!(log.lines().len(), 2);
    advance(Duration::from_secs(31)).await;
    assert_eq!(existing(&recent, &["x"]).await, [""; 0]);
    assert_eq!(log.lines().len(), 3);
    // All other callers read by name.
    assert_eq!(existing(&cluster, &["x"]).await, [""; 0]);
    assert_eq!(log.lines()[3], "GET /api/v1/namespaces/a/configmaps?fieldSelector=metadata.name%3Dx");
}

#[tokio::test(start_paused = true)]
async fn what_was_created_since_exists() {
    let (cluster, _) = with_one();
    let recent = cluster.with_recent_names();
    assert_eq!(existing(&recent, &["new"]).await, [""; 0]);
    let key = ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "new");
    let options = WriteOptions {
        strategy: UpdateStrategy::Update,
        expected: None,
        field_manager: "m",
        adopt: false,
        takes_over: &[],
        annotate_before_create: &Default::default(),
        force_conflicts: false,
        dry_run: false,
    };
    let manifest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "namespace": "a"}});
    cluster.write(&configmaps(), &key, &manifest.to_string(), &options).await.unwrap();
    assert_eq!(existing(&recent, &["new"]).await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn names_are_read_one_by_one_where_a_list_is_too_long_or_forbidden() {
    let long = || {
        let items = (0..500).map(|n| object(&format!("{n}"), &format!("u{n}"), 1)).collect::<Vec<_>>();
        ok(json!({"metadata": {"resourceVersion": "7", "continue": "x", "remainingItemCount": 5000}, "items": items}))
    };
    let forbidden = || status(403, "Forbidden", "no");
    let answers: [Arc<dyn Fn() -> Answer + Send + Sync>; 2] = [Arc::new(long), Arc::new(forbidden)];
    for whole in answers {
        let (cluster, log) = cluster(move |req| match req.query("fieldSelector") {
            "" => whole(),
            _ => ok(page(8, Vec::new())),
        });
        let recent = cluster.with_recent_names();
        for _ in 0..3 {
            assert_eq!(existing(&recent, &["x", "y"]).await, [""; 0]);
        }
        assert_eq!(log.lines().len(), 1 + 3 * 2, "{:?}", log.lines());
    }
}
