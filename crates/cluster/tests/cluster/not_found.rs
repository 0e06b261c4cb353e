//! What a 404 proves, and what it does not.

use std::time::Duration;

use billhook_cluster::{Cluster, DeleteAnswer, DeleteOptions, Error, ErrorKind, RemoveAnswer};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::{Listed, Observed, Select};
use serde_json::json;

use crate::fake::{Answer, Log, Req, cluster, configmaps, discovery, missing, object, ok, query};

fn key() -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "x")
}

/// A server whose discovery lists these versions, and whose v1 answers 404 with a page of a gateway.
fn without_v1(
    versions: &'static [&'static str],
    mut other: impl FnMut(&Req) -> Answer + Send + 'static,
) -> (Cluster, Log) {
    cluster(move |req| {
        if req.path == "/api" {
            return discovery(versions);
        }
        if req.path.starts_with("/api/v1/") { Answer::Text(404, "404 page not found\n") } else { other(&req) }
    })
}

fn nothing_else(req: &Req) -> Answer {
    panic!("{} {}", req.method, req.path)
}

async fn delete(cluster: &Cluster) -> Result<DeleteAnswer, Error> {
    let options = DeleteOptions { uid: Some(Uid::new("1")), ..DeleteOptions::default() };
    cluster.delete(&configmaps(), &key(), &options).await
}

async fn strip(cluster: &Cluster) -> Result<RemoveAnswer, Error> {
    let held: Observed = serde_json::from_value(json!({"namespace": "a", "name": "x", "uid": "1",
        "resourceVersion": "3", "deleting": true, "finalizers": ["x/y"]}))
    .unwrap();
    cluster.remove_finalizers(&configmaps(), &held, &["x/y".to_owned()]).await
}

#[tokio::test(start_paused = true)]
async fn an_object_is_gone_when_discovery_no_longer_lists_its_kind() {
    let (cluster, log) = without_v1(&[], nothing_else);
    let (resource, key) = (configmaps(), key());
    let (deleted, read) = tokio::join!(delete(&cluster), cluster.get_meta(&resource, &key));
    assert_eq!((deleted.unwrap(), read.unwrap()), (DeleteAnswer::NotFound, None));
    assert_eq!(log.lines().iter().filter(|line| *line == "GET /api").count(), 1, "one request for all callers");
    assert_eq!(strip(&cluster).await.unwrap(), RemoveAnswer::Gone);
    assert_eq!(*cluster.find(&query(None, Select::All), &|_| true).await.unwrap_err().kind(), ErrorKind::NotServed);
}

#[tokio::test(start_paused = true)]
async fn a_404_without_an_object_proves_nothing_while_the_kind_is_served() {
    let (cluster, log) = without_v1(&["v1"], nothing_else);
    let error = delete(&cluster).await.unwrap_err();
    assert_eq!((error.kind(), error.code()), (&ErrorKind::Unreachable, Some(404)));
    assert!(error.is_transient() && *log.times().last().unwrap() >= Duration::from_secs(1));
    for error in [
        cluster.get_meta(&configmaps(), &key()).await.unwrap_err(),
        strip(&cluster).await.unwrap_err(),
        cluster.find(&query(None, Select::All), &|_| true).await.unwrap_err(),
    ] {
        assert_eq!(*error.kind(), ErrorKind::Unreachable, "{error}");
    }
    let listings = cluster.snapshot(&[query(None, Select::All)]).await;
    assert!(matches!(&listings[0].found, Listed::Failed(why) if why.contains("404 page not found")));
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_version_is_no_longer_served_is_requested_in_another_one() {
    let (cluster, _) = without_v1(&["v2", "v1beta1"], |req| match (req.method.as_str(), req.path.as_str()) {
        ("GET", "/api/v2/configmaps") => ok(json!({"metadata": {}, "items": [object("x", "1", 4)]})),
        ("DELETE", "/api/v2/namespaces/a/configmaps/x") => {
            assert_eq!(req.body["preconditions"], json!({"uid": "1"}));
            ok(json!({"kind": "Status", "status": "Success"}))
        }
        ("GET" | "PATCH", "/api/v2/namespaces/a/configmaps/x") => ok(object("x", "1", 4)),
        _ => nothing_else(req),
    });
    assert_eq!(delete(&cluster).await.unwrap(), DeleteAnswer::Done);
    assert_eq!(cluster.get_meta(&configmaps(), &key()).await.unwrap().unwrap().uid, Uid::new("1"));
    assert_eq!(strip(&cluster).await.unwrap(), RemoveAnswer::Removed(vec!["x/y".into()]));
    assert_eq!(cluster.find(&query(None, Select::All), &|_| true).await.unwrap().len(), 1);
    let listings = cluster.snapshot(&[query(None, Select::All)]).await;
    assert!(matches!(&listings[0].found, Listed::Failed(why) if why.contains("served in version v2")));
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_group_is_not_gone() {
    let (server, _) = cluster(|req| match req.path.as_str() {
        "/api" => ok(json!({"kind": "APIGroupDiscoveryList", "items": [
            {"metadata": {}, "versions": [{"version": "v1", "freshness": "Stale"}]}]})),
        _ => Answer::Text(404, "404 page not found\n"),
    });
    assert_eq!(*delete(&server).await.unwrap_err().kind(), ErrorKind::Unreachable);
    let (server, _) = cluster(|_| Answer::Text(404, "404 page not found\n"));
    assert_eq!(*delete(&server).await.unwrap_err().kind(), ErrorKind::Unreachable, "nor is a group without discovery");
}

#[tokio::test(start_paused = true)]
async fn a_404_that_names_the_object_needs_no_discovery() {
    let (cluster, log) = cluster(|_| missing("configmaps", "x"));
    assert_eq!(delete(&cluster).await.unwrap(), DeleteAnswer::NotFound);
    assert_eq!(cluster.get_meta(&configmaps(), &key()).await.unwrap(), None);
    assert_eq!(strip(&cluster).await.unwrap(), RemoveAnswer::Gone);
    assert_eq!(log.lines().len(), 3);
}
