//! Queries in many namespaces: one list and watch for all of them, or for each, as rights and costs allow.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use billhook_cluster::{Change, Cluster, Known};
use billhook_objects::{GroupKind, Uid};
use billhook_plan::{Listed, Listing, Query, Select};
use futures::{Stream, StreamExt as _, stream::SelectAll};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc::{UnboundedSender, unbounded_channel},
    time::timeout,
};

use crate::fake::{Answer, Log, Req, cluster, event, missing, ok, query, status};

const KINDS: [&str; 3] = ["configmaps", "secrets", "services"];

/// Returns the query for object `x` in these namespaces.
fn named(namespaces: &[String]) -> Query {
    let objects = namespaces.iter().map(|namespace| (namespace.clone(), vec!["x".to_owned()]));
    Query { namespaces: namespaces.to_vec(), ..query(None, Select::Objects(objects.collect())) }
}

fn namespaces(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number:04}")).collect()
}

fn object(namespace: &str) -> Value {
    json!({"metadata": {"name": "x", "namespace": namespace, "uid": format!("uid-{namespace}"), "resourceVersion": "5"}})
}

/// A server with an object `x` in each of some namespaces.
#[derive(Default)]
struct Server {
    /// The objects that are gone: plural and namespace.
    gone: Vec<(String, String)>,
    /// The open watches by path.
    watches: HashMap<String, Vec<UnboundedSender<Value>>>,
    most: usize,
}

impl Server {
    fn delete(&mut self, plural: &str, namespace: &str) {
        self.gone.push((plural.to_owned(), namespace.to_owned()));
        for path in [format!("/api/v1/{plural}"), format!("/api/v1/namespaces/{namespace}/{plural}")] {
            for watch in self.watches.get(&path).into_iter().flatten() {
                let _ = watch.send(event("DELETED", &object(namespace)));
            }
        }
    }

    fn answer(&mut self, req: &Req, all: &[String], everywhere: bool) -> Answer {
        let parts: Vec<&str> = req.path.split('/').skip(3).collect();
        let (namespace, plural, name) = match parts[..] {
            [plural] => (None, plural, None),
            [_, namespace, plural] => (Some(namespace), plural, None),
            [_, namespace, plural, name] => (Some(namespace), plural, Some(name)),
            _ => panic!("{}", req.path),
        };
        if namespace.is_none() && !everywhere {
            return status(403, "Forbidden", "User \"a\" cannot do that");
        }
        if req.is_watch() {
            let (sender, receiver) = unbounded_channel();
            self.watches.values_mut().for_each(|open| open.retain(|sender| !sender.is_closed()));
            self.watches.entry(req.path.clone()).or_default().push(sender);
            self.most = self.most.max(self.watches.values().map(Vec::len).sum());
            return Answer::Lines(receiver);
        }
        let exists = |of: &&String| {
            namespace.is_none_or(|namespace| namespace == of.as_str())
                && !self.gone.iter().any(|(gone, at)| gone == plural && at == *of)
        };
        let items: Vec<Value> = all.iter().filter(exists).map(|of| object(of)).collect();
        match (name, items.first()) {
            (Some(_), Some(item)) => ok(item.clone()),
            (Some(name), None) => missing(plural, name),
            (None, _) => {
                let limit = req.query("limit").parse().unwrap_or(usize::MAX);
                let left = items.len().saturating_sub(limit);
                let next = if left > 0 { "more" } else { "" };
                let metadata = json!({"resourceVersion": "9", "remainingItemCount": left, "continue": next});
                let start = if req.query("continue").is_empty() { 0 } else { items.len() };
                ok(json!({"metadata": metadata, "items": items[start..].iter().take(limit).collect::<Vec<_>>()}))
            }
        }
    }
}

fn serve(all: Vec<String>, everywhere: bool) -> (Cluster, Log, Arc<Mutex<Server>>) {
    let server = Arc::new(Mutex::new(Server::default()));
    let shared = Arc::clone(&server);
    let (cluster, log) = cluster(move |req| shared.lock().unwrap().answer(&req, &all, everywhere));
    (cluster, log, server)
}

async fn listed(cluster: &Cluster, query: &Query) -> (Option<String>, usize) {
    match &cluster.snapshot(std::slice::from_ref(query)).await[..] {
        [Listing { found: Listed::Items { resource_version, items }, .. }] => (resource_version.clone(), items.len()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn many_namespaces_are_listed_at_once_if_they_hold_most_objects() {
    let (cluster, log, _) = serve(namespaces(20), true);
    assert_eq!(listed(&cluster, &named(&namespaces(10))).await, (Some("9".into()), 10));
    assert_eq!(log.lines(), ["GET /api/v1/configmaps?limit=160"]);
}

#[tokio::test(start_paused = true)]
async fn many_namespaces_are_listed_one_by_one_among_many_objects_of_others() {
    let (cluster, log, _) = serve(namespaces(1000), true);
    assert_eq!(listed(&cluster, &named(&namespaces(10))).await, (Some("9".into()), 10));
    assert_eq!(log.lines().len(), 11, "{:?}", log.lines());
    assert_eq!(log.lines()[1], "GET /api/v1/namespaces/n0000/configmaps?fieldSelector=metadata.name%3Dx");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_listed_does_not_hide_the_others() {
    let (cluster, _) = cluster(|req| match req.path.as_str() {
        "/api/v1/configmaps" | "/api/v1/namespaces/n0003/configmaps" => {
            status(403, "Forbidden", "User \"a\" cannot list resource")
        }
        path => ok(json!({"metadata": {"resourceVersion": "7"}, "items": [object(path.split('/').nth(4).unwrap())]})),
    });
    let query = Query { namespaces: namespaces(6), ..query(None, Select::All) };
    let listings = cluster.snapshot(std::slice::from_ref(&query)).await;
    let [failed, others] = &listings[..] else { panic!("{listings:?}") };
    assert_eq!(failed.query, query);
    assert!(matches!(&failed.found, Listed::Failed(why) if why.contains("n0003")), "{failed:?}");
    assert!(!others.query.covers(Some("n0003")) && others.query.covers(Some("n0004")));
    assert!(matches!(&others.found, Listed::Items { items, .. } if items.len() == 5), "{others:?}");
}

/// Waits until this many objects are gone.
async fn all_gone(watches: &mut (impl Stream<Item = Change> + Unpin), count: usize) {
    let mut gone = 0;
    while gone < count {
        let change = timeout(Duration::from_secs(60), watches.next()).await;
        gone += usize::from(matches!(change.unwrap(), Some(Change::Gone { .. })));
    }
}

/// Deletes object `x` of three kinds in 600 namespaces, and returns how many watches were open at once.
async fn watches_at_once(everywhere: bool) -> (usize, BTreeMap<String, u64>) {
    let all = namespaces(600);
    let (cluster, _, server) = serve(all.clone(), everywhere);
    let mut watches = SelectAll::new();
    for plural in KINDS {
        let mut query = named(&all);
        (query.resource.plural, query.resource.kind) = (plural.to_owned(), GroupKind::new("", plural));
        let objects = all.iter().map(|ns| (Some(ns.clone()), "x".to_owned(), Uid::new(format!("uid-{ns}"))));
        let known = Known { resource_version: Some("9".into()), objects: objects.collect() };
        watches.push(cluster.watch(&query, known));
    }
    let delete = async {
        for namespace in &all {
            tokio::time::sleep(Duration::from_millis(5)).await;
            KINDS.iter().for_each(|plural| server.lock().unwrap().delete(plural, namespace));
        }
    };
    tokio::join!(delete, all_gone(&mut watches, 3 * 600));
    let requests = cluster.requests().by_verb().into_iter().map(|(verb, count)| (verb.to_owned(), count)).collect();
    (server.lock().unwrap().most, requests)
}

#[tokio::test(start_paused = true)]
async fn one_watch_per_kind_shows_the_deletions_in_all_namespaces() {
    let (most, requests) = watches_at_once(true).await;
    assert_eq!(most, 3);
    assert_eq!((requests["watch"], requests["list"], requests["get"]), (3, 0, 0));
}

#[tokio::test(start_paused = true)]
async fn rights_in_namespaces_alone_open_a_bounded_number_of_watches() {
    let (most, requests) = watches_at_once(false).await;
    assert_eq!(most, 3 * 64);
    assert!(requests["get"] + requests["list"] < 6000, "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn the_total_of_watches_is_bounded() {
    let all = namespaces(300);
    let (cluster, _, server) = serve(all.clone(), true);
    let mut watches = SelectAll::new();
    for namespace in &all {
        let query = query(Some(namespace), Select::Names(vec!["x".into()]));
        let object = (Some(namespace.clone()), "x".to_owned(), Uid::new(format!("uid-{namespace}")));
        watches.push(cluster.watch(&query, Known { resource_version: Some("9".into()), objects: vec![object] }));
    }
    assert!(timeout(Duration::from_secs(2), all_gone(&mut watches, 1)).await.is_err());
    assert_eq!(server.lock().unwrap().most, 256);
    all.iter().for_each(|namespace| server.lock().unwrap().delete("configmaps", namespace));
    all_gone(&mut watches, all.len()).await;
}
