//! Discovery and lists.

use billhook_cluster::Scan;
use billhook_objects::{GroupKind, Uid};
use billhook_plan::{Listed, Query, Select};
use serde_json::{Value, json};

use crate::fake::{Answer, Req, cluster, configmaps, discovery, missing, object, ok, page, query, status};

fn names(listed: &Listed) -> Vec<&str> {
    let Listed::Items { items, .. } = listed else { panic!("{listed:?}") };
    items.iter().map(|item| item.name.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn discovery_is_two_requests_and_an_unavailable_group_does_not_affect_the_others() {
    let (cluster, log) = cluster(|req| {
        let deployments = json!({"resource": "deployments", "responseKind": {"group": "apps", "version": "v1", "kind": "Deployment"},
            "scope": "Namespaced", "singularResource": "deployment", "verbs": ["list", "watch"], "shortNames": ["deploy"],
            "subresources": [{"subresource": "scale", "responseKind": {"kind": "Scale"}, "verbs": ["get"]}]});
        let other =
            json!({"resource": "deployz", "responseKind": {"kind": "Deployment"}, "scope": "Namespaced", "verbs": []});
        let items = if req.path == "/api" {
            json!([])
        } else {
            json!([
                {"metadata": {"name": "apps"}, "versions": [
                    {"version": "v1", "freshness": "Current", "resources": [deployments, other]},
                    {"version": "v1beta1", "freshness": "Current", "resources": [deployments]}]},
                {"metadata": {"name": "metrics.k8s.io"}, "versions": [{"version": "v1beta1", "freshness": "Stale"}]},
            ])
        };
        ok(json!({"kind": "APIGroupDiscoveryList", "items": items}))
    });
    let catalog = cluster.catalog().await.unwrap();
    assert_eq!(log.lines(), ["GET /api", "GET /apis"]);
    assert_eq!(catalog.stale, ["metrics.k8s.io/v1beta1"]);
    let deployment = catalog.get(&GroupKind::new("apps", "Deployment")).unwrap();
    assert_eq!((deployment.plural.as_str(), deployment.versions.join(" ").as_str()), ("deployments", "v1 v1beta1"));
    assert_eq!(catalog.iter().count(), 1);
}

#[tokio::test(start_paused = true)]
async fn discovery_on_an_old_server_is_one_request_per_group_version() {
    let (cluster, _) = cluster(|req| {
        let resource = |name: &str| json!({"name": name, "kind": "Thing", "namespaced": true, "verbs": ["list"]});
        match req.path.as_str() {
            "/api" => ok(json!({"kind": "APIVersions", "versions": ["v1"]})),
            "/apis" => ok(json!({"kind": "APIGroupList", "groups": [
                {"name": "a.example", "versions": [{"version": "v1"}, {"version": "v2"}], "preferredVersion": {"version": "v2"}},
                {"name": "dead.example", "versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}]})),
            "/apis/dead.example/v1" => Answer::Text(503, "service unavailable"),
            _ => ok(json!({"kind": "APIResourceList", "resources": [resource("things"), resource("things/status")]})),
        }
    });
    let catalog = cluster.catalog().await.unwrap();
    assert_eq!(catalog.stale, ["dead.example/v1"]);
    let thing = catalog.get(&GroupKind::new("a.example", "Thing")).unwrap();
    assert_eq!(thing.versions, ["v2", "v1"]);
    assert_eq!(catalog.iter().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_list_is_read_page_by_page_and_restarted_when_its_token_expires() {
    let mut expired = false;
    let (cluster, log) = cluster(move |req| match req.query("continue") {
        "" => ok(json!({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [object("b", "2", 2)]})),
        _ if !std::mem::replace(&mut expired, true) => status(410, "Expired", "the token is too old"),
        _ => {
            let mut last = object("a", "1", 1);
            last["metadata"]["finalizers"] = json!(["x/y"]);
            last["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
            last["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "ConfigMap", "uid": "o", "name": "n"}]);
            last["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": {"f:a": {}}}]);
            ok(json!({"metadata": {"resourceVersion": "7"}, "items": [last]}))
        }
    });
    let found = cluster.snapshot(&[query(Some("a"), Select::All)]).await;
    assert_eq!(names(&found[0].found), ["a", "b"]);
    let Listed::Items { resource_version, items } = &found[0].found else { panic!() };
    assert_eq!(resource_version.as_deref(), Some("7"));
    assert!(items[0].deleting && items[0].finalizers == ["x/y"] && items[0].owners[0].uid == Uid::new("o"));
    assert_eq!(log.lines().len(), 4);
    assert_eq!(log.lines()[0], "GET /api/v1/namespaces/a/configmaps?limit=500");
    assert_eq!(cluster.requests().list, 4);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_not_a_failure() {
    let (cluster, _) = cluster(|req| match req.path.as_str() {
        "/api" => discovery(&[]),
        _ => Answer::Text(404, "404 page not found\n"),
    });
    assert_eq!(cluster.snapshot(&[query(None, Select::All)]).await[0].found, Listed::NotServed);
}

/// A namespace of `total` objects `n0000…`; lists and single reads.
fn many(total: usize) -> impl FnMut(Req) -> Answer {
    move |req| {
        let all: Vec<String> = (0..total).map(|n| format!("n{n:05}")).collect();
        let item = |name: &str| object(name, &format!("u-{name}"), 1);
        if let Some(name) = req.path.strip_prefix("/api/v1/namespaces/a/configmaps/") {
            return if all.iter().any(|n| n == name) { ok(item(name)) } else { missing("configmaps", name) };
        }
        if let Some(name) = req.query("fieldSelector").strip_prefix("metadata.name=") {
            return ok(page(100, all.iter().filter(|n| *n == name).map(|n| item(n)).collect()));
        }
        let start: usize = req.query("continue").parse().unwrap_or(0);
        let limit: usize = req.query("limit").parse().unwrap_or(total);
        let end = (start + limit).min(total);
        let items: Vec<Value> = all[start..end].iter().map(|name| item(name)).collect();
        let mut body = page(100, items);
        if end < total {
            body["metadata"]["continue"] = json!(end.to_string());
            body["metadata"]["remainingItemCount"] = json!(total - end);
        }
        ok(body)
    }
}

async fn check(total: usize, wanted: usize, step: usize, lists: u64, gets: u64) {
    let (cluster, _) = cluster(many(total));
    let wanted: Vec<String> = (0..wanted).map(|n| format!("n{:05}", n * step)).collect();
    let found = cluster.snapshot(&[query(Some("a"), Select::Names(wanted.clone()))]).await;
    let existing: Vec<&String> = wanted.iter().filter(|name| name[1..].parse::<usize>().unwrap() < total).collect();
    assert_eq!(names(&found[0].found), existing);
    let Listed::Items { resource_version, .. } = &found[0].found else { panic!() };
    assert_eq!(resource_version.as_deref(), Some("100"));
    assert_eq!((cluster.requests().list, cluster.requests().get), (lists, gets), "{total} {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn names_are_read_with_the_fewest_requests() {
    check(20_000, 1, 1, 1, 0).await;
    check(20_000, 8, 1_000, 8, 0).await;
    check(30, 10, 1, 1, 0).await;
    check(20_000, 10, 1_000, 1, 9).await;
    check(60, 12, 10, 2, 0).await;
    check(1_500, 1_000, 1, 3, 0).await;
}

#[tokio::test(start_paused = true)]
async fn names_that_must_not_be_listed_are_read_one_by_one() {
    let (cluster, _) = cluster(|req| {
        let one = "/api/v1/namespaces/a/configmaps/";
        match req.path.strip_prefix(one) {
            Some("x") => ok(object("x", "1", 1)),
            Some(name) => missing("configmaps", name),
            None => status(403, "Forbidden", "User \"a\" cannot list resource"),
        }
    });
    let wanted = Select::Names(vec!["x".into(), "y".into()]);
    let found = cluster.snapshot(&[query(Some("a"), wanted)]).await;
    assert_eq!(names(&found[0].found), ["x"]);
    assert!(matches!(&found[0].found, Listed::Items { resource_version: None, .. }));
}

#[tokio::test(start_paused = true)]
async fn a_search_ends_with_the_page_that_holds_a_match() {
    let (server, log) = cluster(many(1_700));
    let everything = query(Some("a"), Select::All);
    let found = server.find(&everything, &|object| object.name.as_str() >= "n00900").await.unwrap();
    assert_eq!((found.len(), found[0].name.as_str()), (100, "n00900"));
    assert_eq!(log.lines()[0], "GET /api/v1/namespaces/a/configmaps?limit=500");
    assert_eq!(log.lines().len(), 2, "it ends with the page that holds a match");
    assert_eq!(server.find(&everything, &|_| false).await.unwrap(), []);
    assert_eq!(log.lines().len(), 6, "only the end of the list proves it");
}

#[tokio::test(start_paused = true)]
async fn a_search_restarts_when_its_token_expires_and_falls_back_to_namespaces() {
    let mut expired = false;
    let (server, log) = cluster(move |req| match (req.path.as_str(), req.query("continue")) {
        ("/api/v1/configmaps", _) => status(403, "Forbidden", "User \"a\" cannot list resource \"configmaps\""),
        ("/api/v1/namespaces/a/configmaps", "") => {
            ok(json!({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": [object("x", "1", 1)]}))
        }
        (_, "next") if !std::mem::replace(&mut expired, true) => status(410, "Expired", "the token is too old"),
        (_, "next") => ok(page(7, vec![object("y", "2", 1)])),
        _ => ok(json!({"metadata": {"resourceVersion": "9"}, "items": null})),
    });
    let all = Query { namespaces: vec!["a".into(), "b".into()], ..query(None, Select::Labels("a=b".into())) };
    let found = server.find(&all, &|object| object.name == "y").await.unwrap();
    assert_eq!(found.iter().map(|object| object.uid.as_str()).collect::<Vec<_>>(), ["2"]);
    assert_eq!(log.lines()[0], "GET /api/v1/configmaps?labelSelector=a%3Db&limit=500");
    assert_eq!(log.lines().len(), 6);
}

/// What was deleted, changed or created meanwhile is read once, as it is in the list that was read to its end.
#[tokio::test(start_paused = true)]
async fn a_scan_whose_token_expires_starts_anew() {
    let check = async |expires: usize, expected: &[(&str, u64)], lists: u64| {
        let mut begun = 0;
        let (cluster, _) = cluster(move |req| match (req.query("continue"), req.query("limit")) {
            ("", limit) => {
                begun += 1;
                let first = vec![object(&format!("first-{begun}"), "1", begun), object("kept", "2", begun)];
                match limit {
                    "2" => ok(json!({"metadata": {"resourceVersion": "7", "continue": "next"}, "items": first})),
                    _ => ok(page(7, first)),
                }
            }
            _ if begun <= expires as u64 => status(410, "Expired", "the token is too old"),
            _ => ok(page(7, vec![object("last", "3", begun), object("unwanted", "4", begun)])),
        });
        let resource = configmaps();
        let scan = Scan { resource: &resource, namespace: None, whole: true, page: 2, pages: 10 };
        let is_wanted = |object: &Value| object["metadata"]["name"] != "unwanted";
        let (objects, complete) = cluster.scan(&scan, |object| Some(object).filter(is_wanted)).await.unwrap();
        let version = |object: &Value| object["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        let found: Vec<(&str, u64)> =
            objects.iter().map(|object| (object["metadata"]["name"].as_str().unwrap(), version(object))).collect();
        assert_eq!((found.as_slice(), complete), (expected, true), "{expires}");
        assert_eq!(cluster.requests().list, lists, "{expires}");
    };
    check(0, &[("first-1", 1), ("kept", 1), ("last", 1)], 2).await;
    check(1, &[("first-2", 2), ("kept", 2), ("last", 2)], 4).await;
    // A list that expires each time is read at once.
    check(9, &[("first-4", 4), ("kept", 4)], 7).await;
}
