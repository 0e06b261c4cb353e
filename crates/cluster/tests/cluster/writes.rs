//! Apply, delete, and the removal of finalizers.

use std::time::Duration;

use billhook_cluster::{ApplyOptions, DeleteAnswer, DeleteOptions, ErrorKind, Fence, RemoveAnswer};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::Observed;
use serde_json::json;

use crate::fake::{Answer, Req, cluster, configmaps, missing, object, ok, status};

/// Its fields are in another order than serde would write them.
const MANIFEST: &str = r#"{"metadata":{"namespace":"a","name":"x"},"kind":"ConfigMap","apiVersion":"v1"}"#;

fn key() -> ObjectKey {
    ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "x")
}

async fn delete(answer: impl FnMut(Req) -> Answer + Send + 'static) -> DeleteAnswer {
    let (cluster, _) = cluster(answer);
    let options = DeleteOptions { uid: Some(Uid::new("1")), ..DeleteOptions::default() };
    cluster.delete(&configmaps(), &key(), &options).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_answers_to_a_delete_are_classified() {
    let done = delete(|req| {
        assert_eq!((req.method.as_str(), req.path.as_str()), ("DELETE", "/api/v1/namespaces/a/configmaps/x"));
        assert_eq!(req.body["preconditions"], json!({"uid": "1"}));
        assert_eq!(req.body["propagationPolicy"], "Background");
        ok(json!({"kind": "Status", "status": "Success", "metadata": {}, "details": {"name": "x", "uid": "1"}}))
    });
    assert_eq!(done.await, DeleteAnswer::Done);
    let held = delete(|_| {
        let mut held = object("x", "1", 4);
        held["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        held["metadata"]["finalizers"] = json!(["x/y"]);
        ok(held)
    });
    assert_eq!(
        held.await,
        DeleteAnswer::Accepted { finalizers: vec!["x/y".into()], deletion: true, deleted_at: Some(1_795_219_200) }
    );
    assert_eq!(delete(|_| missing("configmaps", "x")).await, DeleteAnswer::NotFound);
    let other = "Operation cannot be fulfilled on configmaps \"x\": StorageError: invalid object, Code: 4, Key: /x, \
        ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: 1, UID in object meta: 2";
    assert_eq!(delete(move |_| status(409, "Conflict", other)).await, DeleteAnswer::OtherUid);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_cannot_be_deleted_twice_keeps_its_finalizers_and_its_age() {
    let twice = "Operation cannot be fulfilled on namespaces \"x\": The system is ensuring all content is removed from this \
        namespace.  Upon completion, this namespace will automatically be purged by the system.";
    let check = async |read: fn() -> Answer| {
        let answer = move |req: Req| if req.method == "DELETE" { status(409, "Conflict", twice) } else { read() };
        delete(answer).await
    };
    let held = || {
        let mut held = object("x", "1", 4);
        held["metadata"]["deletionTimestamp"] = json!("2026-11-21T00:00:00Z");
        held["metadata"]["finalizers"] = json!(["x/y"]);
        ok(held)
    };
    let accepted = |finalizers: &[&str], deleted_at: Option<i64>| {
        let finalizers = finalizers.iter().map(|&finalizer| finalizer.to_owned()).collect();
        DeleteAnswer::Accepted { finalizers, deletion: true, deleted_at }
    };
    assert_eq!(check(held).await, accepted(&["x/y"], Some(1_795_219_200)));
    assert_eq!(check(|| missing("configmaps", "x")).await, DeleteAnswer::NotFound);
    assert_eq!(check(|| ok(object("x", "2", 5))).await, DeleteAnswer::OtherUid);
    let forbidden = || status(403, "Forbidden", "User \"a\" cannot get it");
    assert_eq!(check(forbidden).await, accepted(&[], None));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_stopped_after_a_lost_answer_may_have_taken_effect() {
    for (lost, expected) in [(true, true), (false, false)] {
        let (cluster, log) = cluster(move |_| if lost { Answer::Reset } else { Answer::Busy(1) });
        let fence = Fence::new("it ended", {
            let log = log.clone();
            move || log.lines().is_empty()
        });
        let options = DeleteOptions { uid: Some(Uid::new("1")), ..DeleteOptions::default() };
        let error = cluster.fenced(fence).delete(&configmaps(), &key(), &options).await.unwrap_err();
        assert_eq!((error.kind(), error.may_have_taken_effect()), (&ErrorKind::Stopped, expected));
        assert_eq!(log.lines().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_survives_lost_answers_and_other_writers() {
    let mut n = 0;
    let answer = delete(move |_| {
        n += 1;
        match n {
            1 => status(409, "Conflict", "please apply your changes to the latest version and try again"),
            2 => Answer::Reset,
            _ => missing("configmaps", "x"),
        }
    });
    assert_eq!(answer.await, DeleteAnswer::NotFound);
}

#[tokio::test(start_paused = true)]
async fn an_object_is_applied_strictly_and_a_new_kind_is_retried() {
    let mut n = 0;
    let (cluster, log) = cluster(move |req| {
        n += 1;
        assert_eq!(req.headers["content-type"], "application/apply-patch+yaml");
        assert_eq!(req.text, MANIFEST, "the text is sent unchanged");
        if n < 4 {
            return Answer::Text(404, "404 page not found\n");
        }
        Answer::Json(201, object("x", "1", 4))
    });
    let applied = cluster.apply(&configmaps(), &key(), MANIFEST, &ApplyOptions::default()).await.unwrap();
    assert!(applied.created && applied.resource_version == "4");
    assert_eq!(log.lines()[0], "PATCH /api/v1/namespaces/a/configmaps/x?fieldManager=billhook&fieldValidation=Strict");
}

async fn refused(answer: impl FnMut(Req) -> Answer + Send + 'static) -> (ErrorKind, String, Duration) {
    let (cluster, log) = cluster(answer);
    let error = cluster.apply(&configmaps(), &key(), MANIFEST, &ApplyOptions::default()).await.unwrap_err();
    (error.kind().clone(), error.to_string(), *log.times().last().unwrap())
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_fails_gives_the_reason() {
    let (kind, text, took) = refused(|_| missing("namespaces", "a")).await;
    assert_eq!((kind, took), (ErrorKind::Other, Duration::ZERO));
    assert_eq!(text, "apply ConfigMap/a/x: namespaces \"a\" not found");
    let (kind, _, took) = refused(|_| Answer::Text(404, "404 page not found")).await;
    assert_eq!(kind, ErrorKind::NotServed);
    assert!(took > Duration::from_secs(7) && took <= Duration::from_secs(10), "{took:?}");
    let strict = "failed to create typed patch object: .dataa: field not declared in schema";
    let (kind, _, _) = refused(move |_| status(422, "Invalid", strict)).await;
    assert_eq!(kind, ErrorKind::Invalid);
    let (kind, _, took) = refused(|_| {
        let mut body = json!({"kind": "Status", "code": 409, "reason": "Conflict", "message": "Apply failed"});
        body["details"]["causes"] = json!([{"reason": "FieldManagerConflict", "field": ".data.a",
            "message": "conflict with \"kubectl-edit\" using v1"}]);
        Answer::Json(409, body)
    })
    .await;
    let ErrorKind::Conflict(fields) = kind else { panic!("{kind:?}") };
    assert_eq!(
        (fields[0].manager.as_str(), fields[0].field.as_str(), took),
        ("kubectl-edit", ".data.a", Duration::ZERO)
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_is_applied_without_creating_the_object() {
    let (cluster, log) = cluster(|req| match req.path.ends_with("/status") {
        true => ok(object("x", "1", 5)),
        false => missing("configmaps", "x"),
    });
    let options =
        ApplyOptions { subresource: Some("status"), field_manager: "billhook/a/web", ..ApplyOptions::default() };
    let applied = cluster.apply(&configmaps(), &key(), MANIFEST, &options).await.unwrap();
    assert_eq!(applied.resource_version, "5");
    assert_eq!(
        log.lines(),
        ["PATCH /api/v1/namespaces/a/configmaps/x/status?fieldManager=billhook%2Fa%2Fweb&fieldValidation=Strict"]
    );
    let (cluster, _) = self::cluster(|_| missing("configmaps", "x"));
    let error = cluster.apply(&configmaps(), &key(), MANIFEST, &options).await.unwrap_err();
    assert_eq!(error.to_string(), "apply the status of ConfigMap/a/x: configmaps \"x\" not found");
}

#[tokio::test(start_paused = true)]
async fn the_own_rights_are_reviewed() {
    for allowed in [true, false] {
        let (cluster, _) = cluster(move |req| {
            assert_eq!(
                (req.method.as_str(), req.path.as_str()),
                ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            );
            assert_eq!(
                req.body["spec"]["resourceAttributes"],
                json!({"verb": "patch", "group": "", "version": "v1", "resource": "configmaps", "subresource": "status",
                    "namespace": "a", "name": "x"})
            );
            Answer::Json(201, json!({"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}))
        });
        let found = cluster.may("patch", &configmaps(), &key(), Some("status")).await.unwrap();
        assert_eq!(found, allowed);
    }
}

fn held() -> Observed {
    serde_json::from_value(json!({"namespace": "a", "name": "x", "uid": "1", "resourceVersion": "3", "deleting": true,
        "finalizers": ["x/y"]}))
    .unwrap()
}

async fn remove(
    answer: impl FnMut(Req) -> Answer + Send + 'static,
    object: Observed,
) -> Result<RemoveAnswer, ErrorKind> {
    let (cluster, _) = cluster(answer);
    cluster.remove_finalizers(&configmaps(), &object, &["x/y".to_owned()]).await.map_err(|error| error.kind().clone())
}

/// Returns the API server's answer to a JSON patch whose test fails.
fn test_failed() -> Answer {
    let mut body = json!({"kind": "Status", "code": 422, "reason": "Invalid",
        "message": "the server rejected our request due to an error in our request"});
    body["details"]["causes"] =
        json!([{"reason": "UnexpectedServerResponse", "message": "testing value /metadata/uid failed"}]);
    Answer::Json(422, body)
}

#[tokio::test(start_paused = true)]
async fn finalizers_are_removed_only_where_they_were_seen() {
    let patched = |req: Req| {
        assert_eq!(req.headers["content-type"], "application/json-patch+json");
        assert_eq!(req.body.as_array().map(Vec::len), Some(3));
        ok(object("x", "1", 4))
    };
    let removed = RemoveAnswer::Removed(vec!["x/y".into()]);
    assert_eq!(remove(patched, held()).await, Ok(removed.clone()));
    assert_eq!(remove(|_| missing("configmaps", "x"), held()).await, Ok(RemoveAnswer::Gone));
    assert_eq!(remove(|_| test_failed(), held()).await, Ok(RemoveAnswer::Changed));
    let alive = Observed { deleting: false, ..held() };
    assert_eq!(remove(|_| panic!("nothing is sent"), alive).await, Err(ErrorKind::Refused));
    let bare = Observed { finalizers: Vec::new(), ..held() };
    assert_eq!(remove(|_| panic!("nothing is sent"), bare).await, Ok(RemoveAnswer::NothingToDo));
    let denied = "configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no";
    assert_eq!(remove(move |_| status(422, "Invalid", denied), held()).await, Err(ErrorKind::Refused));
    // The answer to the first try is lost, but it was carried out.
    let mut n = 0;
    let lost = move |_| {
        n += 1;
        match n {
            1 => Answer::Reset,
            2 => test_failed(),
            _ => ok(object("x", "1", 4)),
        }
    };
    assert_eq!(remove(lost, held()).await, Ok(removed));
}

#[tokio::test(start_paused = true)]
async fn a_namespace_keeps_its_other_finalizers() {
    let namespace = json!({"metadata": {"name": "n", "uid": "1", "resourceVersion": "3",
        "deletionTimestamp": "2026-11-21T00:00:00Z"}, "spec": {"finalizers": ["kubernetes", "x/y"]}});
    let (cluster, log) = cluster(move |req| {
        if req.method == "PUT" {
            assert_eq!(req.body["spec"]["finalizers"], json!(["x/y"]));
            assert_eq!(req.body["metadata"]["resourceVersion"], "3");
        }
        ok(namespace.clone())
    });
    let remove = ["kubernetes".to_owned()];
    let answer = cluster.finalize_namespace("n", &Uid::new("1"), &remove).await.unwrap();
    assert_eq!(answer, RemoveAnswer::Removed(remove.to_vec()));
    assert_eq!(log.lines(), ["GET /api/v1/namespaces/n", "PUT /api/v1/namespaces/n/finalize"]);
    assert_eq!(cluster.finalize_namespace("n", &Uid::new("2"), &remove).await.unwrap(), RemoveAnswer::Gone);
}
