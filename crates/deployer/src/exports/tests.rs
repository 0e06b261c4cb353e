use std::time::Duration;

use billhook_objects::ApiVersion;
use serde_json::json;
use tokio::time::sleep;

use super::*;
use crate::readiness::lab::{Lab, assert_send, config, path, reference};

/// Returns an export of a path in a ConfigMap.
fn export_of(key: &str, json_path: &str, name: &str) -> Export {
    Export {
        key: key.to_owned(),
        json_path: path(json_path),
        from_resource: Some(reference("configmaps", name)),
        from_object_ref: None,
        target_name: None,
    }
}

/// Returns an export of the token in the first Secret of a ServiceAccount.
fn token_of(account: &str) -> Export {
    let kind = reference("secrets", "");
    Export {
        json_path: path("secrets[0]"),
        from_resource: Some(reference("sa", account)),
        from_object_ref: Some(FromObjectReference {
            api_version: kind.api_version,
            kind: kind.kind,
            json_path: path("data.token"),
        }),
        ..export_of("token", ".", "")
    }
}

fn account(name: &str, secrets: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}, "secrets": secrets})
}

fn secret(namespace: &str, name: &str, token: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace}, "data": {"token": token}})
}

fn message(stop: Stop) -> String {
    match stop {
        Stop::Failed(failure) => failure.message,
        Stop::Halted => "halted".to_owned(),
    }
}

/// Reads exports and runs `meanwhile` concurrently; returns the result and the second in which it came, at most 600.
async fn read(
    lab: &Lab,
    exports: impl AsRef<[Export]>,
    meanwhile: impl Future<Output = ()>,
) -> (u64, Result<Value, String>) {
    let begun = Instant::now();
    let (deadline, stop) = (Some(begun + Duration::from_secs(600)), CancellationToken::new());
    let reading = async {
        let read = export(&lab.clusters, exports.as_ref(), &lab.catalogs, deadline, &stop).await;
        (begun.elapsed().as_secs(), read.map(Value::Object).map_err(message))
    };
    tokio::join!(reading, meanwhile).0
}

async fn after(seconds: u64) {
    sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn exports_read_objects_and_keys_with_dots_nest_the_values() {
    let lab = Lab::new().await;
    lab.put(config("a", json!({"x": "1", "y": "2"}))).await;
    let exports = [
        export_of("one", ".data.x", "a"),
        export_of("both.y", "data.y", "a"),
        export_of("both.all", "data", "a"),
        export_of("first", "data.*", "a"),
        export_of("kind", "{.kind}", "a"),
        export_of(r"dotted\.key", "metadata.name", "a"),
    ];
    let expected = json!({
        "one": "1",
        "both": {"y": "2", "all": {"x": "1", "y": "2"}},
        "first": "1",
        "kind": "ConfigMap",
        "dotted.key": "a",
    });
    assert_eq!(read(&lab, exports, async {}).await, (0, Ok(expected)));
}

#[tokio::test(start_paused = true)]
async fn exports_wait_concurrently_and_are_merged_in_their_order() {
    let lab = Lab::new().await;
    let exports = [export_of("late", "data.x", "a"), export_of("v", "data.x", "a"), export_of("v", "data.x", "b")];
    let found = read(&lab, exports, async {
        after(10).await;
        lab.put(config("b", json!({"x": "b"}))).await;
        lab.put(config("a", json!({}))).await;
        after(10).await;
        lab.put(config("a", json!({"x": "a"}))).await;
    });
    assert_eq!(found.await, (20, Ok(json!({"late": "a", "v": "b"}))));
}

#[tokio::test(start_paused = true)]
async fn at_the_deadline_the_error_names_all_missing_values() {
    let lab = Lab::new().await;
    lab.put(config("a", json!({"x": "1"}))).await;
    lab.put(account("robot", json!([{"name": "none"}]))).await;
    let exports = [
        export_of("found", "data.x", "a"),
        export_of("field", "data.y", "a"),
        export_of("object", "data.y", "b"),
        token_of("robot"),
        Export { json_path: path("data"), from_resource: Some(reference("cm", "a")), ..token_of("") },
    ];
    let expected = "failed to read the values of exports: time limit reached: export \"field\": configmaps/default/a: data.y does not exist; \
                    export \"object\": configmaps/default/b: not found yet; \
                    export \"token\": secrets/default/none: not found yet; \
                    export \"token\": cm/default/a: data is not a reference: it has no name";
    assert_eq!(read(&lab, exports, async {}).await, (600, Err(expected.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn an_export_follows_a_reference_to_the_stored_data_of_a_secret() {
    let lab = Lab::new().await;
    lab.put(account("robot", json!([{"name": "t"}]))).await;
    lab.put(secret("default", "t", "dG9rZW4=")).await;
    assert_eq!(read(&lab, [token_of("robot")], async {}).await, (0, Ok(json!({"token": "dG9rZW4="}))));
    lab.put(secret("kube-system", "u", "dQ==")).await;
    lab.put(account("robot", json!([{"name": "u", "namespace": "kube-system"}]))).await;
    assert_eq!(read(&lab, [token_of("robot")], async {}).await, (0, Ok(json!({"token": "dQ=="}))));
}

#[tokio::test(start_paused = true)]
async fn an_export_follows_a_changed_reference() {
    let lab = Lab::new().await;
    let found = read(&lab, [token_of("robot")], async {
        after(10).await;
        lab.put(account("robot", json!([{"name": "none"}]))).await;
        after(10).await;
        lab.put(account("robot", json!([{"name": "t"}]))).await;
        after(10).await;
        lab.put(secret("default", "none", "bm8=")).await;
        after(10).await;
        lab.put(secret("default", "t", "eWVz")).await;
    });
    assert_eq!(found.await, (40, Ok(json!({"token": "eWVz"}))));
}

#[tokio::test(start_paused = true)]
async fn an_export_does_not_follow_the_reference_of_a_deleted_object() {
    let lab = Lab::new().await;
    lab.put(account("robot", json!([{"name": "t"}]))).await;
    let (at, found) = read(&lab, [token_of("robot")], async {
        after(10).await;
        lab.delete(&account("robot", json!([]))).await;
        after(10).await;
        lab.put(secret("default", "t", "eWVz")).await;
    })
    .await;
    let expected =
        "failed to read the values of exports: time limit reached: export \"token\": sa/default/robot: deleted";
    assert_eq!((at, found), (600, Err(expected.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn a_target_name_selects_another_cluster_and_exports_of_values_are_skipped() {
    let lab = Lab::new().await;
    lab.put(config("a", json!({"x": "own"}))).await;
    lab.put_at_edge(config("a", json!({"x": "edge"}))).await;
    let at = |target: &str| Export { target_name: Some(target.to_owned()), ..export_of("x", "data.x", "a") };
    let of_values = Export { from_resource: None, ..export_of("v", "Values.x", "") };
    let found = read(&lab, [at("edge"), of_values, export_of("y", "data.x", "a")], async {});
    assert_eq!(found.await, (0, Ok(json!({"x": "edge", "y": "own"}))));
    let expected = "failed to find the object of export \"x\": find target \"nowhere\": its cluster is unknown";
    assert_eq!(read(&lab, [at("nowhere")], async {}).await, (0, Err(expected.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn an_invalid_key_fails_at_once_and_a_kind_that_is_never_served_after_a_minute() {
    let lab = Lab::new().await;
    let expected = "export \"a[0]\": invalid key: write names separated by dots, and \\. for a dot in a name";
    assert_eq!(read(&lab, [export_of("a[0]", ".x", "a")], async {}).await, (0, Err(expected.to_owned())));
    let mut strange = export_of("x", ".x", "a");
    strange.from_resource.as_mut().unwrap().api_version = ApiVersion::parse("a.example/v1").unwrap();
    let expected = "failed to find the object of export \"x\": find kind configmaps.a.example: the cluster does not serve it, but ConfigMap";
    assert_eq!(read(&lab, [strange, export_of("y", ".x", "a")], async {}).await, (63, Err(expected.to_owned())));
}

#[tokio::test(start_paused = true)]
async fn exports_can_be_stopped() {
    let lab = Lab::new().await;
    let (exports, stop) = ([export_of("x", ".x", "a")], CancellationToken::new());
    let reading = assert_send(export(&lab.clusters, &exports, &lab.catalogs, None, &stop));
    let (reading, ()) = tokio::join!(reading, async {
        after(7200).await;
        stop.cancel();
    });
    assert!(matches!(reading, Err(Stop::Halted)), "{reading:?}");
}

#[test]
fn exports_read_the_values_of_a_chart() {
    let of = |key: &str, text: &str| Export { from_resource: None, ..export_of(key, text, "") };
    let values = json!({"Values": {"image": {"tag": "1.2"}, "ports": [1, 2]}, "Release": {"Name": "r"}});
    let exports = [
        of("image.tag", ".Values.image.tag"),
        of("image.of", "Release.Name"),
        of("ports", "Values.ports"),
        export_of("other", ".data", "a"),
    ];
    let found = from_values(&exports, &values).unwrap();
    assert_eq!(Value::Object(found), json!({"image": {"tag": "1.2", "of": "r"}, "ports": [1, 2]}));
    let error = from_values(&[of("x", "Values.none")], &values).unwrap_err();
    assert_eq!(error.to_string(), "export \"x\": Values.none does not exist in the chart's values");
}
