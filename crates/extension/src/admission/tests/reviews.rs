//! Reviews as an API server sends them, malformed ones, and the endpoints.

use std::time::Duration;

use axum::{
    body::{Body, Bytes, to_bytes},
    http::{Method, Request, StatusCode},
    response::Response,
};
use futures::{StreamExt as _, TryFutureExt as _, future};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::ServiceExt as _;

use super::super::{DELETION, FORCE_DELETION, MAX_REVIEW, Rule, review, router};

const FIELD: &str = "metadata.annotations[confirmation.gardener.cloud/force-deletion]";
const NOT_DELETING: &str = "force-deletion annotation cannot be set when Shoot deletionTimestamp is nil";
const REMOVED: &str = "force-deletion annotation cannot be removed once set";
const NO_CODE: &str = "force-deletion annotation cannot be set when Shoot status does not contain one of these error codes: \
                       [ERR_CLEANUP_CLUSTER_RESOURCES ERR_CONFIGURATION_PROBLEM ERR_INFRA_DEPENDENCIES \
                       ERR_INFRA_UNAUTHENTICATED ERR_INFRA_UNAUTHORIZED]";

/// Returns a review with the fields that Kubernetes 1.36 sends.
fn sent(operation: &str, object: Value, old: Value) -> Value {
    let kind = json!({"group": "core.gardener.cloud", "version": "v1beta1", "kind": "Shoot"});
    let resource = json!({"group": "core.gardener.cloud", "version": "v1beta1", "resource": "shoots"});
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "kind": kind, "resource": resource, "requestKind": kind,
            "requestResource": resource, "name": "web", "namespace": "garden-shop", "operation": operation,
            "userInfo": {"username": "admin", "groups": ["system:masters"], "extra": {"a": ["b"]}},
            "object": object, "oldObject": old, "dryRun": false,
            "options": {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"},
        },
    })
}

/// Returns a Shoot with an annotation and what the rules read of it, among other fields.
fn shoot(annotation: Option<&str>, is_deleting: bool, codes: &[&str]) -> Value {
    let mut shoot = json!({
        "apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot",
        "metadata": {
            "name": "web", "namespace": "garden-shop", "uid": "1", "generation": 2, "annotations": {"other": "text"},
            "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
        },
        "spec": {"provider": {"type": "local"}, "hibernation": null},
        "status": {
            "lastErrors": [{"description": "no codes"}, {"description": "d", "codes": codes}],
            "lastOperation": {"progress": 50},
        },
    });
    if let Some(value) = annotation {
        shoot["metadata"]["annotations"][FORCE_DELETION] = value.into();
    }
    if is_deleting {
        shoot["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    shoot
}

fn answer(rule: Rule, review_sent: &Value) -> Value {
    let answer = review(rule, review_sent.to_string().as_bytes()).expect("an answer");
    assert_eq!((&answer["apiVersion"], &answer["kind"]), (&json!("admission.k8s.io/v1"), &json!("AdmissionReview")));
    assert_eq!(answer["response"]["uid"], review_sent["request"]["uid"]);
    answer["response"].clone()
}

fn allows(rule: Rule, review_sent: &Value) {
    let response = answer(rule, review_sent);
    assert_eq!(response, json!({"uid": response["uid"], "allowed": true}), "{review_sent}");
}

fn denies(rule: Rule, review_sent: &Value, code: u16, reason: &str, message: &str) -> Value {
    let response = answer(rule, review_sent);
    let status = &response["status"];
    let found = (&response["allowed"], &status["code"], &status["reason"], &status["message"], &status["status"]);
    let expected = (&json!(false), &json!(code), &json!(reason), &json!(message), &json!("Failure"));
    assert_eq!(found, expected, "{review_sent}");
    status["details"].clone()
}

#[test]
fn updates_of_shoots_are_checked() {
    let update = |old: Value, new: Value| sent("UPDATE", new, old);
    let (plain, forced) = (shoot(None, false, &[]), shoot(Some("1"), false, &[]));
    let code = ["ERR_INFRA_UNAUTHENTICATED"];
    allows(Rule::ForceDeletion, &update(plain.clone(), plain.clone()));
    allows(Rule::ForceDeletion, &update(forced.clone(), forced.clone()));
    allows(Rule::ForceDeletion, &update(shoot(None, true, &code), shoot(Some("true"), true, &code)));
    allows(Rule::ForceDeletion, &update(plain.clone(), shoot(Some("yes"), false, &[])));

    let message = format!("Shoot.core.gardener.cloud \"web\" is invalid: {FIELD}: Forbidden: {REMOVED}");
    let removed = update(forced.clone(), plain.clone());
    let details = denies(Rule::ForceDeletion, &removed, 422, "Invalid", &message);
    let cause =
        |text| json!({"reason": "FieldValueForbidden", "message": format!("Forbidden: {text}"), "field": FIELD});
    let expected =
        |causes: Value| json!({"group": "core.gardener.cloud", "kind": "Shoot", "name": "web", "causes": causes});
    assert_eq!(details, expected(json!([cause(REMOVED)])));
    denies(Rule::ForceDeletion, &update(forced.clone(), shoot(Some("0"), true, &code)), 422, "Invalid", &message);

    let both = format!(
        "Shoot.core.gardener.cloud \"web\" is invalid: [{FIELD}: Forbidden: {NOT_DELETING}, {FIELD}: Forbidden: {NO_CODE}]"
    );
    let details = denies(Rule::ForceDeletion, &update(plain.clone(), forced.clone()), 422, "Invalid", &both);
    assert_eq!(details, expected(json!([cause(NOT_DELETING), cause(NO_CODE)])));

    // The codes of the updated Shoot count, not those before.
    let message = format!("Shoot.core.gardener.cloud \"web\" is invalid: {FIELD}: Forbidden: {NO_CODE}");
    let cleared = update(shoot(None, true, &code), shoot(Some("t"), true, &["ERR_PROBLEMATIC_WEBHOOK"]));
    denies(Rule::ForceDeletion, &cleared, 422, "Invalid", &message);
}

#[test]
fn a_new_shoot_cannot_be_annotated() {
    let mut create = sent("CREATE", shoot(Some("true"), false, &[]), Value::Null);
    let both = |name: &str| {
        format!(
            "Shoot.core.gardener.cloud \"{name}\" is invalid: \
             [{FIELD}: Forbidden: {NOT_DELETING}, {FIELD}: Forbidden: {NO_CODE}]"
        )
    };
    denies(Rule::ForceDeletion, &create, 422, "Invalid", &both("web"));
    // With generateName there is no name yet.
    create["request"]["name"] = "".into();
    create["request"]["object"]["metadata"].as_object_mut().expect("an object").remove("name");
    denies(Rule::ForceDeletion, &create, 422, "Invalid", &both(""));
    allows(Rule::ForceDeletion, &sent("CREATE", shoot(Some("false"), false, &[]), Value::Null));
}

#[test]
fn other_operations_and_kinds_do_not_concern_force_deletion() {
    allows(Rule::ForceDeletion, &sent("DELETE", Value::Null, shoot(Some("true"), true, &[])));
    let mut other = sent("UPDATE", shoot(Some("true"), false, &[]), shoot(None, false, &[]));
    other["request"]["kind"] = json!({"group": "operations.gardener.cloud", "version": "v1alpha1", "kind": "Bastion"});
    let response = answer(Rule::ForceDeletion, &other);
    let warning = "force deletion is only checked for Shoots, not for Bastion.operations.gardener.cloud";
    assert_eq!(response, json!({"uid": response["uid"], "allowed": true, "warnings": [warning]}));
}

#[test]
fn absent_and_null_fields_are_empty() {
    for old in
        [json!({}), json!({"metadata": {}}), json!({"metadata": {"annotations": null, "name": "x"}, "status": null})]
    {
        for status in
            [json!(null), json!({}), json!({"lastErrors": null}), json!({"lastErrors": [{"codes": null}, {}]})]
        {
            let mut new = shoot(Some("T"), true, &[]);
            new["status"] = status;
            let message = format!("Shoot.core.gardener.cloud \"web\" is invalid: {FIELD}: Forbidden: {NO_CODE}");
            denies(Rule::ForceDeletion, &sent("UPDATE", new.clone(), old.clone()), 422, "Invalid", &message);
            new["metadata"]["deletionTimestamp"] = Value::Null;
            assert_eq!(answer(Rule::ForceDeletion, &sent("UPDATE", new, old.clone()))["allowed"], false);
        }
    }
}

#[test]
fn deletions_need_a_confirmation() {
    let object = |annotations: Value| {
        let metadata = json!({"name": "web", "namespace": "garden-shop", "annotations": annotations});
        // A status of any type: the rule is for any kind.
        sent("DELETE", Value::Null, json!({"metadata": metadata, "status": "Success"}))
    };
    let message = "shoots.core.gardener.cloud \"web\" is forbidden: must have a \"confirmation.gardener.cloud/deletion\" \
                   annotation to delete";
    for value in ["true", "1", "t", "T", "TRUE", "True"] {
        allows(Rule::DeletionConfirmation, &object(json!({DELETION: value})));
    }
    for annotations in
        [json!(null), json!({}), json!({DELETION: "false"}), json!({DELETION: "yes"}), json!({FORCE_DELETION: "1"})]
    {
        let mut single = object(annotations);
        let details = denies(Rule::DeletionConfirmation, &single, 403, "Forbidden", message);
        assert_eq!(details, json!({"group": "core.gardener.cloud", "kind": "shoots", "name": "web"}));
        // An object of a collection: the request has no name.
        single["request"].as_object_mut().expect("an object").remove("name");
        denies(Rule::DeletionConfirmation, &single, 403, "Forbidden", message);
        for operation in ["CREATE", "UPDATE", "CONNECT"] {
            single["request"]["operation"] = operation.into();
            allows(Rule::DeletionConfirmation, &single);
        }
    }
    let absent =
        "shoots.core.gardener.cloud \"web\" is forbidden: the API server did not send the object to the webhook";
    denies(Rule::DeletionConfirmation, &sent("DELETE", Value::Null, Value::Null), 403, "Forbidden", absent);
    let mut core = object(json!({}));
    core["request"]["resource"] = json!({"group": "", "version": "v1", "resource": "secrets"});
    let message =
        "secrets \"web\" is forbidden: must have a \"confirmation.gardener.cloud/deletion\" annotation to delete";
    denies(Rule::DeletionConfirmation, &core, 403, "Forbidden", message);
}

/// Returns the review with a value at a path; without a value, the field is removed.
fn with(mut review: Value, path: &str, value: Option<Value>) -> Value {
    let (parent, field) = path.rsplit_once('/').expect("a path");
    let parent = review.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
    match value {
        Some(value) => parent.insert(field.to_owned(), value),
        None => parent.remove(field),
    };
    review
}

#[test]
fn malformed_reviews_are_named() {
    let update = || sent("UPDATE", shoot(None, false, &[]), shoot(None, false, &[]));
    let changed = |path, value| with(update(), path, value).to_string();
    for (body, problem) in [
        (String::new(), "failed to read the admission review: EOF while parsing a value"),
        ("{".repeat(200_000), "failed to read the admission review: "),
        ("[".repeat(200_000), "failed to read the admission review: "),
        (format!("{{\"request\": {{\"object\": {}", "[".repeat(200_000)), "failed to read the admission review: "),
        ("null".to_owned(), "invalid type: null"),
        ("{}".to_owned(), "unknown kind \"\" of version \"\""),
        (
            changed("/apiVersion", Some(json!("admission.k8s.io/v1beta1"))),
            "unknown kind \"AdmissionReview\" of version \"admission.k8s.io/v1beta1\", expected AdmissionReview of \
             admission.k8s.io/v1: set admissionReviewVersions to [v1] in the registration of this webhook",
        ),
        (changed("/kind", Some(json!("Pod"))), "unknown kind \"Pod\" of version \"admission.k8s.io/v1\""),
        (changed("/request", None), "the admission review has no request"),
        (changed("/request", Some(Value::Null)), "the admission review has no request"),
        (changed("/request/uid", None), "missing field `uid`"),
        (changed("/request/uid", Some(json!(""))), "the request of the admission review has no uid"),
        (changed("/request/kind", None), "missing field `kind`"),
        (changed("/request/operation", Some(json!("delete"))), "unknown variant `delete`"),
        (changed("/request/operation", Some(json!("x".repeat(1 << 20)))), "unknown variant `xxx"),
        (changed("/request/object", Some(Value::Null)), "the request of the admission review has no object"),
        (changed("/request/oldObject", None), "the request of the admission review has no oldObject"),
        (
            changed("/request/object/metadata/annotations", Some(json!({FORCE_DELETION: true}))),
            "invalid type: boolean `true`",
        ),
        (changed("/request/object/metadata/annotations", Some(json!("a\nb"))), "invalid type: string \"a\\nb\""),
        (changed("/request/object/status", Some(json!({"lastErrors": {}}))), "invalid type: map, expected a sequence"),
    ] {
        let error = review(Rule::ForceDeletion, body.as_bytes()).expect_err("no error").to_string();
        assert!(error.contains(problem), "{problem}: {error}");
        assert!(error.chars().count() <= 500 && !error.contains(char::is_control), "{error}");
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::hash_map(".{0,8}", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// A review that is well-formed except for one value.
fn mutated() -> impl Strategy<Value = String> {
    let paths = prop::sample::select(vec![
        "/kind",
        "/apiVersion",
        "/request",
        "/request/uid",
        "/request/kind",
        "/request/kind/group",
        "/request/resource",
        "/request/operation",
        "/request/name",
        "/request/object",
        "/request/oldObject",
        "/request/object/metadata",
        "/request/object/metadata/name",
        "/request/object/metadata/annotations",
        "/request/object/metadata/deletionTimestamp",
        "/request/object/status",
        "/request/object/status/lastErrors",
        "/request/oldObject/metadata",
        "/request/options",
    ]);
    let operation = prop::sample::select(vec!["CREATE", "UPDATE", "DELETE", "CONNECT", "PATCH"]);
    let value = prop_oneof![3 => any_json().prop_map(Some), 1 => Just(None)];
    (operation, paths, value).prop_map(|(operation, path, value)| {
        let review = sent(operation, shoot(Some("1"), true, &["ERR_INFRA_UNAUTHORIZED"]), shoot(None, true, &[]));
        with(review, path, value).to_string()
    })
}

/// A body that is a review, or was one before some bytes changed.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let damaged = (
        mutated(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        any::<prop::sample::Index>(),
    );
    let damaged = damaged.prop_map(|(text, changes, end)| {
        let mut bytes = text.into_bytes();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        // Half of them are cut off.
        let end = end.index(bytes.len() * 2);
        bytes.truncate(end.max(1));
        bytes
    });
    prop_oneof![
        mutated().prop_map(String::into_bytes),
        damaged,
        any_json().prop_map(|json| json.to_string().into_bytes()),
        prop::collection::vec(any::<u8>(), 0..200),
    ]
}

proptest! {
    /// Whatever is sent is answered with the same UID, or with a sentence.
    #[test]
    fn no_body_is_without_an_answer(body in body(), confirmation in any::<bool>()) {
        let rule = if confirmation { Rule::DeletionConfirmation } else { Rule::ForceDeletion };
        match review(rule, &body) {
            Ok(answer) => {
                let response = &answer["response"];
                // What is skipped need not be valid, such as a number that is too large.
                if let Ok(sent) = serde_json::from_slice::<Value>(&body) {
                    prop_assert_eq!(&response["uid"], &sent["request"]["uid"]);
                }
                prop_assert_eq!(response["allowed"] == json!(false), response["status"]["message"].is_string());
            }
            Err(error) => {
                let error = error.to_string();
                prop_assert!(!error.is_empty() && error.chars().count() <= 500 && !error.contains(char::is_control));
            }
        }
    }
}

async fn request(method: Method, path: &str, body: impl Into<Body>) -> (StatusCode, String) {
    let request = Request::builder().method(method).uri(path).body(body.into()).expect("a request");
    let response: Response = router().oneshot(request).await.expect("an answer");
    let status = response.status();
    let body: Bytes = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

#[tokio::test]
async fn the_endpoints_answer() {
    let forced = sent("UPDATE", shoot(Some("1"), false, &[]), shoot(None, false, &[])).to_string();
    for (path, allowed) in [("/validate-force-deletion", false), ("/validate-deletion-confirmation", true)] {
        let (status, body) = request(Method::POST, path, forced.clone()).await;
        let body: Value = serde_json::from_str(&body).expect("JSON");
        assert_eq!((status, &body["response"]["allowed"]), (StatusCode::OK, &json!(allowed)));
        let (status, body) = request(Method::POST, path, "{}").await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(body.starts_with("unknown kind \"\" of version \"\"") && body.ends_with("webhook\n"), "{body}");
        for method in [Method::GET, Method::PUT, Method::DELETE] {
            assert_eq!(request(method, path, "").await.0, StatusCode::METHOD_NOT_ALLOWED);
        }
    }
    assert_eq!(request(Method::GET, "/healthz", "").await, (StatusCode::OK, "ok\n".to_owned()));
    assert_eq!(request(Method::POST, "/healthz", "").await.0, StatusCode::METHOD_NOT_ALLOWED);
    for path in ["/", "/validate-force-deletion/", "/validate", "/metrics"] {
        assert_eq!(request(Method::POST, path, forced.clone()).await.0, StatusCode::NOT_FOUND, "{path}");
    }
}

#[tokio::test]
async fn reviews_of_two_large_objects_are_answered_and_larger_ones_are_not() {
    let large = |bytes: usize| {
        let shoot = with(shoot(None, false, &[]), "/spec", Some("x".repeat(bytes).into()));
        sent("UPDATE", shoot.clone(), shoot).to_string()
    };
    let (status, _) = request(Method::POST, "/validate-force-deletion", large(3 << 20)).await;
    assert_eq!(status, StatusCode::OK);
    let body = large(MAX_REVIEW / 2);
    let (status, body) = request(Method::POST, "/validate-force-deletion", body).await;
    assert_eq!(
        (status, body.contains("is larger than 7340032 bytes")),
        (StatusCode::PAYLOAD_TOO_LARGE, true),
        "{body}"
    );
}

/// A body without a length that does not end.
fn endless() -> Body {
    Body::from_stream(futures::stream::pending::<Result<Bytes, std::io::Error>>())
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_end_is_not_awaited() {
    let (status, text) = request(Method::POST, "/validate-force-deletion", endless()).await;
    assert_eq!((status, text.as_str()), (StatusCode::REQUEST_TIMEOUT, "the review was not received in time\n"));
}

#[tokio::test(start_paused = true)]
async fn slow_clients_do_not_delay_others() {
    let router = router();
    let send = |body: Body| {
        let request = Request::post("/validate-force-deletion").body(body).expect("a request");
        router.clone().oneshot(request).map_ok(|response| response.status())
    };
    let since = Instant::now();
    let slow = future::join_all((0..100).map(|_| send(endless())));
    let other = send(sent("DELETE", Value::Null, shoot(None, false, &[])).to_string().into());
    let (slow, other) = tokio::join!(slow, async { (other.await, since.elapsed()) });
    assert_eq!(other, (Ok(StatusCode::OK), Duration::ZERO));
    assert!(slow.iter().all(|status| *status == Ok(StatusCode::REQUEST_TIMEOUT)), "{slow:?}");
    assert_eq!(since.elapsed().as_secs(), 5);
}

/// A body that stops after this many bytes, and does not end.
fn stalled(bytes: usize) -> Body {
    let first = futures::stream::iter([Ok::<_, std::io::Error>(Bytes::from(vec![b' '; bytes]))]);
    Body::from_stream(first.chain(futures::stream::pending()))
}

#[tokio::test(start_paused = true)]
async fn clients_that_send_little_do_not_delay_large_reviews() {
    let router = router();
    let send = |body: Body| {
        let request = Request::post("/validate-force-deletion").body(body).expect("a request");
        router.clone().oneshot(request).map_ok(|response| response.status())
    };
    let large = || {
        let shoot = with(shoot(None, false, &[]), "/spec", Some("x".repeat(1 << 20).into()));
        Body::from(sent("UPDATE", shoot.clone(), shoot).to_string())
    };
    // How many clients stall after how many bytes, and when and how a large review is answered.
    for (clients, bytes, expected) in [
        (100, 64 * 1024, (StatusCode::OK, 0)),
        (16, 64 * 1024 + 1, (StatusCode::OK, 2)),
        (32, 64 * 1024 + 1, (StatusCode::SERVICE_UNAVAILABLE, 3)),
    ] {
        let since = Instant::now();
        let slow = future::join_all((0..clients).map(|_| send(stalled(bytes))));
        let answered = async { (send(large()).await.expect("an answer"), since.elapsed().as_secs()) };
        let (slow, answered) = tokio::join!(slow, answered);
        assert_eq!(answered, expected, "{clients} clients");
        assert!(slow.iter().all(|status| *status != Ok(StatusCode::OK)), "{slow:?}");
    }
}
