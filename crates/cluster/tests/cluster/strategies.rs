//! Writes by the update strategies, also while other clients write.

use std::collections::BTreeMap;

use billhook_cluster::{Applied, Cluster, Error, ErrorKind, Patch, PatchKind, WriteOptions};
use billhook_objects::{GroupKind, ObjectKey};
use billhook_policy::UpdateStrategy;
use serde_json::{Value, json};

use crate::fake::{Answer, Log, Req, cluster, configmaps, missing, object, ok, status};

const MANIFEST: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"x"},"data":{"k":"new"}}"#;
const CREATE: &str = "POST /api/v1/namespaces/a/configmaps?fieldManager=billhook&fieldValidation=Strict";
const READ: &str = "GET /api/v1/namespaces/a/configmaps/x";
const UPDATE: &str = "PUT /api/v1/namespaces/a/configmaps/x?fieldManager=billhook&fieldValidation=Strict";
const PATCH: &str = "PATCH /api/v1/namespaces/a/configmaps/x?fieldManager=billhook&fieldValidation=Strict";

fn key() -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "x")
}

fn live(version: u64, value: &str) -> Value {
    let mut live = object("x", "1", version);
    live["data"] = json!({"k": value, "old": "o"});
    live
}

async fn write(strategy: UpdateStrategy, exists: bool, cluster: &Cluster) -> Result<Applied, Error> {
    let annotations = BTreeMap::from([("first".to_owned(), "yes".to_owned())]);
    let annotate_before_create = &annotations;
    let options = WriteOptions { strategy, exists, annotate_before_create, force_conflicts: false, dry_run: false };
    cluster.write(&configmaps(), &key(), MANIFEST, &options).await
}

fn exists() -> Answer {
    status(409, "AlreadyExists", "configmaps \"x\" already exists")
}

/// Answers by a script, and checks that all of it was requested.
async fn check(
    strategy: UpdateStrategy,
    exists: bool,
    mut script: Vec<(&'static str, Answer)>,
) -> (Result<Applied, Error>, Vec<Value>, Cluster) {
    let bodies = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let expected: Vec<&str> = script.iter().map(|(line, _)| *line).collect();
    script.reverse();
    let sent = bodies.clone();
    let (cluster, log): (Cluster, Log) = cluster(move |req: Req| {
        if req.method != "GET" {
            sent.lock().unwrap().push(req.body);
        }
        script.pop().map_or_else(|| status(500, "InternalError", "more than expected"), |(_, answer)| answer)
    });
    let applied = write(strategy, exists, &cluster).await;
    assert_eq!(log.lines(), expected);
    let bodies = bodies.lock().unwrap().clone();
    (applied, bodies, cluster)
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_created_with_its_first_annotations() {
    let created = || Answer::Json(201, object("x", "1", 4));
    let (applied, bodies, _) = check(UpdateStrategy::Update, false, vec![(CREATE, created())]).await;
    let applied = applied.unwrap();
    assert!(applied.created && applied.resource_version == "4");
    assert_eq!(bodies[0]["metadata"]["annotations"], json!({"first": "yes"}));
    // The same if the caller expected it to exist.
    let script = vec![(READ, missing("configmaps", "x")), (CREATE, created())];
    let (applied, bodies, _) = check(UpdateStrategy::Patch, true, script).await;
    assert!(applied.unwrap().created && bodies[0]["metadata"]["annotations"]["first"] == "yes");
    let script =
        vec![("PATCH /api/v1/namespaces/a/configmaps/x?fieldManager=billhook&fieldValidation=Strict", created())];
    let (applied, bodies, _) = check(UpdateStrategy::ServerSide, false, script).await;
    assert!(applied.unwrap().created && bodies[0]["metadata"]["annotations"]["first"] == "yes");
}

#[tokio::test(start_paused = true)]
async fn each_strategy_sends_its_own_kind_of_write() {
    use UpdateStrategy::{Merge, MergeOverwrite, Patch, ServerSide, Update};
    let put = |data: Value| {
        let mut object = object("x", "1", 3);
        object["metadata"] = json!({"name": "x", "namespace": "a", "resourceVersion": "3"});
        object["data"] = data;
        object
    };
    let mut annotated: Value = serde_json::from_str(MANIFEST).unwrap();
    annotated["metadata"]["annotations"] = json!({"first": "yes"});
    for (strategy, line, body) in [
        (Update, UPDATE, put(json!({"k": "new"}))),
        (Patch, PATCH, json!({"metadata": {"uid": "1"}, "data": {"k": "new", "old": null}})),
        (MergeOverwrite, UPDATE, put(json!({"k": "new", "old": "o"}))),
    ] {
        let script = vec![(READ, ok(live(3, "before"))), (line, ok(object("x", "1", 4)))];
        let (applied, bodies, _) = check(strategy, true, script).await;
        let applied = applied.unwrap();
        assert!(!applied.created && applied.resource_version == "4");
        assert_eq!(bodies, [body], "{strategy:?}");
    }
    let (applied, _, _) = check(Merge, true, vec![(READ, ok(live(3, "before")))]).await;
    assert_eq!(applied.unwrap().resource_version, "3", "a change without effect is not sent");
    let (_, bodies, _) = check(ServerSide, true, vec![(PATCH, ok(object("x", "1", 4)))]).await;
    assert_eq!(bodies, [annotated], "an update must not remove the annotations of the creation");
}

#[tokio::test(start_paused = true)]
async fn changes_by_other_clients_are_met_by_another_read() {
    let changed = || status(409, "Conflict", "the object has been modified");
    let script = vec![
        (CREATE, exists()),
        (READ, ok(live(3, "before"))),
        (UPDATE, changed()),
        (READ, ok(live(4, "other"))),
        (UPDATE, missing("configmaps", "x")),
        (CREATE, exists()),
        (READ, missing("configmaps", "x")),
        (CREATE, Answer::Json(201, object("x", "2", 9))),
    ];
    let (applied, bodies, cluster) = check(UpdateStrategy::Update, false, script).await;
    let applied = applied.unwrap();
    assert!(applied.created && applied.resource_version == "9");
    assert_eq!(bodies[2]["metadata"]["resourceVersion"], "4", "each write has the version that was just read");
    let responses = cluster.responses();
    let expected = [(("create", 201), 1), (("create", 409), 2), (("get", 200), 2), (("get", 404), 1)];
    assert!(expected.iter().all(|(key, count)| responses.get(key) == Some(count)), "{responses:?}");
    assert_eq!(responses.values().sum::<u64>(), cluster.requests().total());

    let script = (0..8).flat_map(|_| [(READ, ok(live(3, "before"))), (UPDATE, changed())]).collect();
    let (applied, ..) = check(UpdateStrategy::Update, true, script).await;
    assert_eq!(*applied.unwrap_err().kind(), ErrorKind::Conflict(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_creation_does_not_cost_the_first_annotations() {
    let mut made = object("x", "1", 4);
    made["data"] = json!({"k": "new"});
    made["metadata"]["annotations"] = json!({"first": "yes"});
    let script = vec![(CREATE, Answer::Reset), (CREATE, exists()), (READ, ok(made))];
    let (applied, _, cluster) = check(UpdateStrategy::Update, false, script).await;
    assert_eq!(applied.unwrap().resource_version, "4");
    assert_eq!(cluster.responses()[&("create", 0)], 1);
}

#[tokio::test(start_paused = true)]
async fn a_rejected_write_is_not_retried() {
    let denied = || status(400, "BadRequest", "admission webhook \"w\" denied the request: no");
    let script = vec![(READ, ok(live(3, "before"))), (UPDATE, denied())];
    let (applied, ..) = check(UpdateStrategy::Update, true, script).await;
    assert_eq!(*applied.unwrap_err().kind(), ErrorKind::Refused);
    let (applied, ..) = check(UpdateStrategy::Update, false, vec![(CREATE, missing("namespaces", "a"))]).await;
    assert_eq!(applied.unwrap_err().to_string(), "apply ConfigMap/a/x: namespaces \"a\" not found");
}

#[tokio::test(start_paused = true)]
async fn a_patch_goes_to_the_object_or_its_subresource() {
    let body = json!({"status": {"phase": "Succeeded"}});
    let patch = async |subresource, kind, answer: fn() -> Answer| {
        let (cluster, log) = cluster(move |_| answer());
        let patch = Patch { subresource, kind, body: &body };
        let found = cluster.patch(&configmaps(), &key(), &patch).await.unwrap();
        (found.map(|applied| applied.resource_version), log.lines()[0].clone())
    };
    let done = || ok(object("x", "1", 5));
    let (version, line) = patch(Some("status"), PatchKind::Merge, done).await;
    assert_eq!(line, "PATCH /api/v1/namespaces/a/configmaps/x/status?fieldManager=billhook");
    assert_eq!(version.as_deref(), Some("5"));
    assert_eq!(patch(None, PatchKind::Json, done).await, (Some("5".to_owned()), PATCH.to_owned()));
    assert_eq!(patch(None, PatchKind::Merge, || missing("configmaps", "x")).await.0, None);
}

#[tokio::test(start_paused = true)]
async fn requests_that_find_no_server_have_no_code() {
    let (cluster, _) = cluster(|_| Answer::Refused);
    cluster.get(&configmaps(), &key()).await.unwrap_err();
    let responses = cluster.responses();
    assert!(responses.len() == 1 && responses[&("get", 0)] > 1, "{responses:?}");
}
