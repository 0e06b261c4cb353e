//! Writes by the update strategies, also while other clients write.

use std::{collections::BTreeMap, sync::LazyLock};

use billhook_cluster::{Applied, Cluster, Error, ErrorKind, Patch, PatchKind, WriteOptions};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_policy::UpdateStrategy;
use serde_json::{Value, json};

use crate::fake::{Answer, Log, Req, cluster, configmaps, missing, object, ok, status};

const MANIFEST: &str =
    r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"a","name":"x"},"data":{"k":"new"}}"#;
const MANAGER: &str = "billhook/a/web";
const CREATE: &str = "POST /api/v1/namespaces/a/configmaps?fieldManager=billhook%2Fa%2Fweb&fieldValidation=Strict";
const READ: &str = "GET /api/v1/namespaces/a/configmaps/x";
const UPDATE: &str = "PUT /api/v1/namespaces/a/configmaps/x?fieldManager=billhook%2Fa%2Fweb&fieldValidation=Strict";
const PATCH: &str = "PATCH /api/v1/namespaces/a/configmaps/x?fieldManager=billhook%2Fa%2Fweb&fieldValidation=Strict";

fn key() -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "x")
}

fn live(version: u64, value: &str) -> Value {
    let mut live = object("x", "1", version);
    live["data"] = json!({"k": value, "old": "o"});
    live
}

/// Writes the object, which had this UID when it was seen.
async fn write(
    strategy: UpdateStrategy,
    seen: Option<&str>,
    cluster: &Cluster,
    edit: fn(&mut WriteOptions<'_>),
) -> Result<Applied, Error> {
    let uid = seen.map(Uid::new);
    let mut options = WriteOptions {
        strategy,
        expected: uid.as_ref(),
        field_manager: MANAGER,
        adopt: false,
        takes_over: &[],
        annotate_before_create: &BTreeMap::from([("first".to_owned(), "yes".to_owned())]),
        force_conflicts: false,
        dry_run: false,
    };
    edit(&mut options);
    cluster.write(&configmaps(), &key(), MANIFEST, &options).await
}

/// An object that these managers have written, the first of them first.
fn written_by(uid: &str, managers: &[&str]) -> Value {
    let mut found = object("x", uid, 7);
    let entry = |(second, manager): (usize, &&str)| {
        json!({"manager": manager, "operation": "Apply", "apiVersion": "v1", "time": format!("2026-01-01T00:00:0{second}Z"),
            "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:k": {}}}})
    };
    found["metadata"]["managedFields"] = managers.iter().enumerate().map(entry).collect();
    found
}

fn exists() -> Answer {
    status(409, "AlreadyExists", "configmaps \"x\" already exists")
}

/// Answers by a script, and checks that all of it was requested.
async fn check(
    strategy: UpdateStrategy,
    seen: Option<&str>,
    script: Vec<(&'static str, Answer)>,
) -> (Result<Applied, Error>, Vec<Value>, Cluster) {
    check_with(strategy, seen, script, |_| {}).await
}

async fn check_with(
    strategy: UpdateStrategy,
    seen: Option<&str>,
    mut script: Vec<(&'static str, Answer)>,
    edit: fn(&mut WriteOptions<'_>),
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
    let applied = write(strategy, seen, &cluster, edit).await;
    assert_eq!(log.lines(), expected);
    let bodies = bodies.lock().unwrap().clone();
    (applied, bodies, cluster)
}

#[tokio::test(start_paused = true)]
async fn a_missing_object_is_created_with_its_first_annotations() {
    let created = || Answer::Json(201, object("x", "1", 4));
    let (applied, bodies, _) = check(UpdateStrategy::Update, None, vec![(CREATE, created())]).await;
    let applied = applied.unwrap();
    assert!(applied.created && applied.resource_version == "4");
    assert_eq!(bodies[0]["metadata"]["annotations"], json!({"first": "yes"}));
    // The same if it was deleted in the meantime.
    let script = vec![(READ, missing("configmaps", "x")), (CREATE, created())];
    let (applied, bodies, _) = check(UpdateStrategy::Patch, Some("1"), script).await;
    assert!(applied.unwrap().created && bodies[0]["metadata"]["annotations"]["first"] == "yes");
    let (applied, bodies, _) = check(UpdateStrategy::ServerSide, None, vec![(PATCH, created())]).await;
    assert!(applied.unwrap().created && bodies[0]["metadata"]["annotations"]["first"] == "yes");
    assert_eq!(bodies[0]["metadata"]["resourceVersion"], "9223372036854775807", "it must not exist");
    let uid_mismatch = status(409, "Conflict", "uid mismatch: … no existing object was found");
    let script = vec![(PATCH, uid_mismatch), (READ, missing("configmaps", "x")), (PATCH, created())];
    let (applied, ..) = check(UpdateStrategy::ServerSide, Some("1"), script).await;
    assert!(applied.unwrap().created);
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
    annotated["metadata"]["uid"] = json!("1");
    for (strategy, line, body) in [
        (Update, UPDATE, put(json!({"k": "new"}))),
        (Patch, PATCH, json!({"metadata": {"uid": "1"}, "data": {"k": "new", "old": null}})),
        (MergeOverwrite, UPDATE, put(json!({"k": "new", "old": "o"}))),
    ] {
        let script = vec![(READ, ok(live(3, "before"))), (line, ok(object("x", "1", 4)))];
        let (applied, bodies, _) = check(strategy, Some("1"), script).await;
        let applied = applied.unwrap();
        assert!(!applied.created && applied.resource_version == "4");
        assert_eq!(bodies, [body], "{strategy:?}");
    }
    let (applied, _, _) = check(Merge, Some("1"), vec![(READ, ok(live(3, "before")))]).await;
    assert_eq!(applied.unwrap().resource_version, "3", "a change without effect is not sent");
    let (_, bodies, _) = check(ServerSide, Some("1"), vec![(PATCH, ok(object("x", "1", 4)))]).await;
    assert_eq!(bodies, [annotated], "an update must not remove the annotations of the creation");
}

#[tokio::test(start_paused = true)]
async fn changes_by_other_clients_are_met_by_another_read() {
    let changed = || status(409, "Conflict", "the object has been modified");
    let script = vec![
        (READ, ok(live(3, "before"))),
        (UPDATE, changed()),
        (READ, ok(live(4, "other"))),
        (UPDATE, missing("configmaps", "x")),
        (CREATE, exists()),
        (READ, missing("configmaps", "x")),
        (CREATE, Answer::Json(201, object("x", "2", 9))),
    ];
    let (applied, bodies, cluster) = check(UpdateStrategy::Update, Some("1"), script).await;
    let applied = applied.unwrap();
    assert!(applied.created && applied.resource_version == "9");
    assert_eq!(bodies[1]["metadata"]["resourceVersion"], "4", "each write has the version that was just read");
    let responses = cluster.responses();
    let expected = [(("create", 201), 1), (("create", 409), 1), (("get", 200), 2), (("get", 404), 1)];
    assert!(expected.iter().all(|(key, count)| responses.get(key) == Some(count)), "{responses:?}");
    assert_eq!(responses.values().sum::<u64>(), cluster.requests().total());

    let script = (0..8).flat_map(|_| [(READ, ok(live(3, "before"))), (UPDATE, changed())]).collect();
    let (applied, ..) = check(UpdateStrategy::Update, Some("1"), script).await;
    assert_eq!(*applied.unwrap_err().kind(), ErrorKind::Conflict(Vec::new()));
    let script = (0..8).flat_map(|_| [(PATCH, changed()), (READ, ok(object("x", "1", 3)))]).collect();
    let (applied, ..) = check(UpdateStrategy::ServerSide, Some("1"), script).await;
    assert_eq!(*applied.unwrap_err().kind(), ErrorKind::Conflict(Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_a_creation_does_not_cost_the_first_annotations() {
    let mut made = written_by("1", &[MANAGER]);
    made["data"] = json!({"k": "new"});
    made["metadata"]["annotations"] = json!({"first": "yes"});
    let script = vec![(CREATE, Answer::Reset), (CREATE, exists()), (READ, ok(made.clone())), (READ, ok(made.clone()))];
    let (applied, _, cluster) = check(UpdateStrategy::Update, None, script).await;
    assert_eq!(applied.unwrap().resource_version, "7");
    assert_eq!(cluster.responses()[&("create", 0)], 1);
    // The same after an earlier call, and by server-side apply.
    let script = vec![(CREATE, exists()), (READ, ok(made.clone())), (READ, ok(made.clone()))];
    let (applied, ..) = check(UpdateStrategy::Update, None, script).await;
    assert!(!applied.unwrap().created);
    let changed = status(409, "Conflict", "the object has been modified");
    let script = vec![(PATCH, Answer::Reset), (PATCH, changed), (READ, ok(made.clone())), (PATCH, ok(made))];
    let (applied, bodies, _) = check(UpdateStrategy::ServerSide, None, script).await;
    assert_eq!(applied.unwrap().resource_version, "7");
    assert_eq!(bodies[2]["metadata"]["uid"], "1");
}

/// A write finds an object that is not the one that was seen.
async fn check_refused(strategy: UpdateStrategy, seen: Option<&str>, script: Vec<(&'static str, Answer)>, why: &str) {
    let (applied, ..) = check(strategy, seen, script).await;
    let error = applied.unwrap_err();
    assert_eq!((error.kind(), error.message().as_str()), (&ErrorKind::NotAsSeen, why), "{strategy:?} {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_another_client_created_is_refused() {
    use UpdateStrategy::{Merge, MergeOverwrite, Patch, ServerSide, Update};
    let theirs = || ok(written_by("2", &["kubectl-create", "kubectl-edit"]));
    let why = "it was created by kubectl-create in the meantime";
    for strategy in [Update, Patch, Merge, MergeOverwrite] {
        check_refused(strategy, None, vec![(CREATE, exists()), (READ, theirs())], why).await;
    }
    let changed = || status(409, "Conflict", "the object has been modified");
    check_refused(ServerSide, None, vec![(PATCH, changed()), (READ, theirs())], why).await;
    // The answer was lost, but this is not what we sent.
    let script = vec![(PATCH, Answer::Reset), (PATCH, changed()), (READ, theirs())];
    check_refused(ServerSide, None, script, why).await;

    let why = "it was recreated by kubectl-create in the meantime";
    for strategy in [Update, Patch, Merge, MergeOverwrite] {
        check_refused(strategy, Some("1"), vec![(READ, theirs())], why).await;
    }
    let mut immutable = json!({"kind": "Status", "code": 422, "reason": "Invalid", "message": "field is immutable"});
    immutable["details"]["causes"] = json!([{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "…"}]);
    let mut fields =
        json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "Apply failed with 1 conflict"});
    fields["details"]["causes"] = json!([{"reason": "FieldManagerConflict", "field": ".data.k", "message": "conflict with \"kubectl-edit\" using v1"}]);
    let conflict = || Answer::Json(409, fields.clone());
    check_refused(ServerSide, Some("1"), vec![(PATCH, conflict()), (READ, theirs())], why).await;
    let (applied, ..) = check(ServerSide, Some("2"), vec![(PATCH, conflict()), (READ, theirs())]).await;
    let ErrorKind::Conflict(fields) = applied.unwrap_err().kind().clone() else { panic!() };
    assert_eq!(fields[0].field, ".data.k");
    let script = vec![(PATCH, Answer::Json(422, immutable)), (READ, theirs())];
    check_refused(ServerSide, Some("1"), script, why).await;
    let unknown = ok(object("x", "2", 9));
    check_refused(Update, Some("1"), vec![(READ, unknown)], "it was recreated by another client in the meantime").await;
}

#[tokio::test(start_paused = true)]
async fn an_object_of_no_release_is_taken_over_if_that_is_wanted() {
    let adopt = |options: &mut WriteOptions<'_>| options.adopt = true;
    let theirs = || written_by("2", &["kubectl-create"]);
    let changed = || status(409, "Conflict", "the object has been modified");
    let script = vec![(PATCH, changed()), (READ, ok(theirs())), (PATCH, ok(object("x", "2", 8)))];
    let (applied, bodies, _) = check_with(UpdateStrategy::ServerSide, None, script, adopt).await;
    let applied = applied.unwrap();
    assert!(applied.adopted && !applied.created);
    assert_eq!(bodies[1]["metadata"]["uid"], "2");
    let mut labelled = theirs();
    labelled["metadata"]["labels"] = json!({"billhook.dev/release": "other.a"});
    let script = vec![(PATCH, changed()), (READ, ok(labelled))];
    let (applied, ..) = check_with(UpdateStrategy::ServerSide, None, script, adopt).await;
    assert_eq!(*applied.unwrap_err().kind(), ErrorKind::NotAsSeen);
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_former_managers_move_first() {
    static FORMER: LazyLock<Vec<String>> = LazyLock::new(|| vec!["billhook".to_owned(), "billhook/a/gone".to_owned()]);
    let common = |options: &mut WriteOptions<'_>| options.takes_over = &FORMER;
    let found = || ok(written_by("1", &["billhook", "other"]));
    let changed = status(409, "Conflict", "the object has been modified");
    let applied = || ok(object("x", "1", 9));
    let script =
        vec![(READ, found()), (PATCH, changed), (READ, found()), (PATCH, ok(object("x", "1", 8))), (PATCH, applied())];
    let (done, bodies, _) = check_with(UpdateStrategy::ServerSide, Some("1"), script, common).await;
    assert_eq!(done.unwrap().resource_version, "9");
    assert_eq!(bodies[1][0], json!({"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}));
    let entries = bodies[1][1]["value"].as_array().unwrap();
    let managers: Vec<_> = entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect();
    assert_eq!(managers, [MANAGER, "other"]);
    // Another object, or one whose fields have moved already, is not patched.
    for found in [written_by("2", &["billhook"]), written_by("1", &[MANAGER])] {
        let script = vec![(READ, ok(found)), (PATCH, applied())];
        check_with(UpdateStrategy::ServerSide, Some("1"), script, common).await.0.unwrap();
    }
    // A dry run cannot move them. It is sent as their owner, and overwrites fields of all former managers.
    let dry = |options: &mut WriteOptions<'_>| (options.takes_over, options.dry_run) = (&FORMER, true);
    const DRY: &str = "PATCH /api/v1/namespaces/a/configmaps/x?fieldManager=billhook&fieldValidation=Strict&dryRun=All";
    const FORCED: &str =
        "PATCH /api/v1/namespaces/a/configmaps/x?fieldManager=billhook&fieldValidation=Strict&force=true&dryRun=All";
    check_with(UpdateStrategy::ServerSide, Some("1"), vec![(DRY, applied())], dry).await.0.unwrap();
    let owned = |manager: &str| {
        let message = format!("conflict with \"{manager}\"");
        let cause = json!({"reason": "FieldManagerConflict", "message": message, "field": ".data.k"});
        Answer::Json(
            409,
            json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "conflict",
            "details": {"name": "x", "causes": [cause]}}),
        )
    };
    let script = vec![(DRY, owned("billhook/a/gone")), (FORCED, applied())];
    check_with(UpdateStrategy::ServerSide, Some("1"), script, dry).await.0.unwrap();
    let script = vec![(DRY, owned("other")), (READ, ok(written_by("1", &["billhook", "other"])))];
    let (refused, ..) = check_with(UpdateStrategy::ServerSide, Some("1"), script, dry).await;
    assert!(matches!(refused.unwrap_err().kind(), ErrorKind::Conflict(_)));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_write_is_not_retried() {
    let denied = || status(400, "BadRequest", "admission webhook \"w\" denied the request: no");
    let script = vec![(READ, ok(live(3, "before"))), (UPDATE, denied())];
    let (applied, ..) = check(UpdateStrategy::Update, Some("1"), script).await;
    assert_eq!(*applied.unwrap_err().kind(), ErrorKind::Denied);
    let (applied, ..) = check(UpdateStrategy::Update, None, vec![(CREATE, missing("namespaces", "a"))]).await;
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
    let ours = "PATCH /api/v1/namespaces/a/configmaps/x?fieldManager=billhook&fieldValidation=Strict".to_owned();
    assert_eq!(patch(None, PatchKind::Json, done).await, (Some("5".to_owned()), ours));
    assert_eq!(patch(None, PatchKind::Merge, || missing("configmaps", "x")).await.0, None);
}

#[tokio::test(start_paused = true)]
async fn requests_that_find_no_server_have_no_code() {
    let (cluster, _) = cluster(|_| Answer::Refused);
    cluster.get(&configmaps(), &key()).await.unwrap_err();
    let responses = cluster.responses();
    assert!(responses.len() == 1 && responses[&("get", 0)] > 1, "{responses:?}");
}
