//! Comparison with recorded steps on Kubernetes 1.36.3, and properties that hold for all objects.
//!
//! `recorded.json` contains requests and answers without UIDs, versions and creation times, which other code of the
//! sandbox sets. Each step starts from the object that Kubernetes stored before.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{fields::Set, *};
use crate::schema::{ListType, PatchStrategy, Schema, Type};

/// Parses an OpenAPI schema.
fn schema(json: &Value) -> Schema {
    let text = |key: &str| json[key].as_str().unwrap_or_default();
    let types = match text("type") {
        "object" => Type::Object,
        "array" => Type::Array,
        "string" => Type::String,
        "integer" => Type::Integer,
        _ => Type::Any,
    };
    let keys = json["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
    let list = match text("x-kubernetes-list-type") {
        "set" => ListType::Set,
        "map" => ListType::Map(keys.filter_map(Value::as_str).map(str::to_owned).collect()),
        _ => ListType::Atomic,
    };
    let patch = match (text("x-kubernetes-patch-strategy"), text("x-kubernetes-patch-merge-key")) {
        ("", _) => None,
        (_, "") => Some(PatchStrategy::Merge),
        (_, key) => Some(PatchStrategy::MergeKey(key.to_owned())),
    };
    let child = |json: &Value| std::sync::Arc::new(schema(json));
    let properties = json["properties"].as_object().into_iter().flatten();
    Schema {
        types,
        list,
        patch,
        properties: properties.map(|(name, json)| (name.clone(), child(json))).collect(),
        additional: json.get("additionalProperties").map(child),
        items: json.get("items").map(child),
        atomic: text("x-kubernetes-map-type") == "atomic",
        preserve_unknown: json["x-kubernetes-preserve-unknown-fields"] == true,
        default: json.get("default").cloned(),
        ..Schema::default()
    }
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn texts() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

fn by_keys(merge_key: &str, keys: &[&str], item: Value) -> Value {
    json!({
        "type": "array", "items": item,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys,
        "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": merge_key,
    })
}

/// Returns a kind with the usual metadata.
fn kind(fields: Value) -> Value {
    let (text, set) = (json!({"type": "string"}), "set");
    let mut kind = object(fields);
    kind["properties"]["apiVersion"] = text.clone();
    kind["properties"]["kind"] = text.clone();
    kind["properties"]["metadata"] = object(json!({
        "name": text, "namespace": text, "creationTimestamp": text, "labels": texts(), "annotations": texts(),
        "finalizers": {
            "type": "array", "items": text, "x-kubernetes-list-type": set, "x-kubernetes-patch-strategy": "merge",
        },
        "ownerReferences": by_keys("uid", &["uid"], json!({"type": "object", "x-kubernetes-map-type": "atomic"})),
        "managedFields": {"type": "array"},
    }));
    kind
}

fn widget() -> Schema {
    let text = json!({"type": "string"});
    let more = object(json!({"x": text, "y": text}));
    let port = object(json!({
        "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}, "note": text, "more": more,
    }));
    let condition = object(json!({"type": text, "status": text}));
    let mut whole = object(json!({"a": text, "b": text}));
    whole["x-kubernetes-map-type"] = "atomic".into();
    let spec = object(json!({
        "size": {"type": "integer"},
        "text": text,
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "labels": texts(),
        "groups": {"type": "object", "additionalProperties": object(json!({"a": text, "b": text}))},
        "whole": whole,
        "atoms": {"type": "array", "items": text},
        "tags": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "ports": by_keys("port", &["port", "protocol"], port),
    }));
    // A CustomResourceDefinition need not describe the metadata.
    let mut all = object(json!({
        "spec": spec, "status": object(json!({"phase": text, "conditions": by_keys("type", &["type"], condition)})),
    }));
    all["properties"]["metadata"] = json!({"type": "object"});
    all["properties"]["apiVersion"] = text.clone();
    all["properties"]["kind"] = text;
    Schema { source: Some(all.clone()), ..schema(&all) }
}

fn deployment() -> Schema {
    let (text, number) = (json!({"type": "string"}), json!({"type": "integer"}));
    let port = object(json!({"containerPort": number, "protocol": {"type": "string", "default": "TCP"}, "name": text}));
    let container = object(json!({
        "name": text, "image": text, "imagePullPolicy": text, "terminationMessagePath": text,
        "terminationMessagePolicy": text,
        "resources": object(json!({"limits": texts(), "requests": texts()})),
        "ports": by_keys("containerPort", &["containerPort", "protocol"], port),
        "env": by_keys("name", &["name"], object(json!({"name": text, "value": text}))),
    }));
    let pod = object(json!({
        "containers": by_keys("name", &["name"], container),
        "volumes": by_keys("name", &["name"], object(json!({"name": text, "emptyDir": texts()}))),
        "securityContext": object(json!({"runAsUser": number})),
        "restartPolicy": text, "dnsPolicy": text, "schedulerName": text, "terminationGracePeriodSeconds": number,
    }));
    let rolling = object(json!({"maxSurge": {}, "maxUnavailable": {}}));
    let mut selector = object(json!({"matchLabels": texts()}));
    selector["x-kubernetes-map-type"] = "atomic".into();
    let meta = kind(json!({}))["properties"]["metadata"].clone();
    let condition = object(json!({
        "type": text, "status": text, "lastUpdateTime": text, "lastTransitionTime": text,
    }));
    schema(&kind(json!({
        "spec": object(json!({
            "replicas": number, "selector": selector, "revisionHistoryLimit": number,
            "progressDeadlineSeconds": number,
            "strategy": object(json!({"type": text, "rollingUpdate": rolling})),
            "template": object(json!({"metadata": meta, "spec": pod})),
        })),
        "status": object(json!({"replicas": number, "conditions": by_keys("type", &["type"], condition)})),
    })))
}

fn schema_of(kind_name: &str) -> Schema {
    let reference = || json!({"type": "object", "x-kubernetes-map-type": "atomic"});
    match kind_name {
        "ConfigMap" => schema(&kind(json!({"data": texts(), "binaryData": texts()}))),
        "ServiceAccount" => schema(&kind(json!({
            "secrets": by_keys("name", &["name"], reference()),
            "imagePullSecrets": {"type": "array", "items": reference(), "x-kubernetes-list-type": "atomic"},
        }))),
        "Widget" => widget(),
        _ => deployment(),
    }
}

/// Performs a recorded step.
fn replay(kind: &str, step: &Value, live: Option<&Value>, schema: &Schema) -> Result<Value, ApiError> {
    let (body, version) = (&step["body"], step["apiVersion"].as_str());
    let default = match kind {
        "Widget" => "patch.lab/v1",
        "Deployment" => "apps/v1",
        _ => "v1",
    };
    let manager = Manager {
        name: step["manager"].as_str().unwrap(),
        api_version: version.unwrap_or(default),
        subresource: step["subresource"].as_str(),
        time: step["now"].as_str().unwrap(),
    };
    let current = live.unwrap_or(&Value::Null);
    let mut new = match step["verb"].as_str().unwrap() {
        "apply" => return apply(live, body, schema, manager, step["force"] == true),
        "create" => body.clone(),
        "json" => json_patch(current, body)?,
        "merge" => merge_patch(current, body)?,
        _ => strategic_merge_patch(current, body, schema)?,
    };
    if let ("Deployment", Some(stored)) = (kind, step.get("object")) {
        // These tests do not set defaults.
        let sent = new["metadata"]["managedFields"].take();
        new = stored.clone();
        new["metadata"]["managedFields"] = sent;
    }
    set_defaults(&mut new);
    track(live, &mut new, schema, manager);
    Ok(new)
}

/// Sets the only default of widgets.
fn set_defaults(object: &mut Value) {
    for port in object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if port.get("protocol").is_none() {
            port["protocol"] = "TCP".into();
        }
    }
}

/// Sorts the causes, because Kubernetes lists managers in any order.
fn sort_causes(mut status: Value) -> Value {
    if let Some(causes) = status.pointer_mut("/details/causes").and_then(Value::as_array_mut) {
        causes.sort_by_key(Value::to_string);
    }
    status
}

/// Removes what Go omits from structs when empty.
fn without_empty(mut object: Value) -> Value {
    let empty = |value: &Value| {
        matches!(value, Value::Object(map) if map.is_empty())
            || matches!(value, Value::Array(list) if list.is_empty())
            || value.is_null()
    };
    for at in ["/metadata", "", "/spec"] {
        if let Some(Value::Object(fields)) = object.pointer_mut(at) {
            fields.retain(|key, value| key == "spec" || !empty(value));
        }
    }
    object
}

#[test]
fn recorded_steps_have_the_results_of_kubernetes() {
    let recorded: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let mut wrong = Vec::new();
    for scenario in &recorded {
        let (name, kind) = (scenario["scenario"].as_str().unwrap(), scenario["kind"].as_str().unwrap());
        let schema = schema_of(kind);
        let mut live: Option<&Value> = None;
        for (number, step) in scenario["steps"].as_array().unwrap().iter().enumerate() {
            live = step.get("before").or(live);
            if step["status"]["code"] == 422 && step["status"]["details"]["kind"].is_string() {
                // The patched object is invalid.
                continue;
            }
            let found = match replay(kind, step, live, &schema) {
                Ok(mut object) if kind == "Deployment" => object["metadata"]["managedFields"].take(),
                Ok(mut object) => {
                    object["metadata"]["namespace"] = "patch-lab".into();
                    set_defaults(&mut object);
                    without_empty(object)
                }
                Err(error) => sort_causes(error.body()),
            };
            let expected = match (step.get("object"), kind) {
                (Some(object), "Deployment") => object["metadata"]["managedFields"].clone(),
                (Some(object), _) => without_empty(object.clone()),
                (None, _) => {
                    let status = &step["status"];
                    let mut body = json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": status["message"], "code": status["code"],
                    });
                    if let Some(reason) = status.get("reason") {
                        body["reason"] = reason.clone();
                    }
                    if let Some(details) = status.get("details") {
                        body["details"] = details.clone();
                    }
                    sort_causes(body)
                }
            };
            if found != expected {
                wrong.push(format!("{name}, step {number}: {}\n   found {found}\nexpected {expected}", step["body"]));
            }
            live = step.get("object").or(live);
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}

/// Generates objects of the recorded kind.
fn widgets() -> impl Strategy<Value = Value> {
    let tags = Just(vec!["a", "b", "c", "d"]).prop_shuffle().prop_flat_map(|tags| (Just(tags), 0..4_usize));
    let tags = tags.prop_map(|(tags, count)| tags[..count].to_vec());
    let ports = prop::collection::btree_map(1..4_i64, prop::option::of("[ab]"), 0..3);
    let labels = prop::collection::btree_map("[ab]", "[ab]", 0..3);
    let free = prop::collection::btree_map("[ab]", prop::collection::btree_map("[ab]", 0..3_i64, 0..2), 0..3);
    (prop::option::of(0..3_i64), tags, ports, labels, free).prop_map(|(size, tags, ports, labels, free)| {
        let port = |(port, note): (i64, Option<String>)| match note {
            Some(note) => json!({"port": port, "note": note}),
            None => json!({"port": port}),
        };
        let ports: Vec<_> = ports.into_iter().map(port).collect();
        let mut spec = json!({"tags": tags, "ports": ports, "labels": labels, "free": free});
        if let Some(size) = size {
            spec["size"] = size.into();
        }
        json!({"apiVersion": "patch.lab/v1", "kind": "Widget", "metadata": {"name": "s"}, "spec": spec})
    })
}

fn sets() -> impl Strategy<Value = Set> {
    let leaf = Just(json!({}));
    let tree = leaf.prop_recursive(3, 12, 3, |inner| {
        let element = prop::sample::select(vec![".", "f:a", "f:b", "k:{\"n\":1}", "v:\"x\"", "i:0"]);
        prop::collection::btree_map(element, inner, 0..4).prop_map(|fields| {
            let dot = |(key, value): (&str, Value)| (key.to_owned(), if key == "." { json!({}) } else { value });
            Value::Object(fields.into_iter().map(dot).collect())
        })
    });
    tree.prop_map(|json| Set::read(&json).unwrap())
}

fn by(name: &str) -> Manager<'_> {
    Manager { name, api_version: "patch.lab/v1", subresource: None, time: "2026-01-01T00:00:00Z" }
}

fn later(name: &str) -> Manager<'_> {
    Manager { time: "2026-01-02T00:00:00Z", ..by(name) }
}

fn owned(object: &Value, name: &str) -> Set {
    let list = object["metadata"]["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let entry = list.iter().find(|entry| entry["manager"] == name);
    entry.map(|entry| Set::read(&entry["fieldsV1"]).unwrap()).unwrap_or_default()
}

proptest! {
    #[test]
    fn sets_obey_the_laws_of_sets(a in sets(), b in sets()) {
        prop_assert_eq!(&Set::read(&a.write()).unwrap(), &a);
        let both = a.intersection(&b);
        prop_assert_eq!(&both, &b.intersection(&a));
        prop_assert!(a.contains(&both) && b.contains(&both));
        let mut all = a.clone();
        all.unite(b.clone());
        prop_assert!(all.contains(&a) && all.contains(&b));
        let mut rest = a.clone();
        rest.subtract(&b);
        prop_assert!(rest.intersection(&b).is_empty() && a.contains(&rest));
        rest.unite(both);
        prop_assert_eq!(&rest, &a);
        all.subtract(&b);
        all.subtract(&a);
        prop_assert!(all.is_empty());
        prop_assert_eq!(a.contains(&b), { let mut b = b.clone(); b.subtract(&a); b.is_empty() });
    }

    #[test]
    fn applying_twice_changes_nothing(first in widgets(), second in widgets()) {
        let schema = widget();
        let live = apply(None, &first, &schema, by("one"), false).unwrap();
        prop_assert_eq!(&apply(Some(&live), &first, &schema, later("one"), false).unwrap(), &live);
        let live = apply(Some(&live), &second, &schema, by("two"), true).unwrap();
        prop_assert_eq!(&apply(Some(&live), &second, &schema, later("two"), false).unwrap(), &live);
    }

    #[test]
    fn applied_fields_are_stored_and_owned(first in widgets(), second in widgets()) {
        let schema = widget();
        let live = apply(None, &first, &schema, by("one"), false).unwrap();
        prop_assert_eq!(&live["spec"], &first["spec"]);
        let live = apply(Some(&live), &second, &schema, by("two"), true).unwrap();
        let alone = apply(None, &second, &schema, by("two"), true).unwrap();
        prop_assert_eq!(owned(&live, "two"), owned(&alone, "two"));
        // The last owner of a field removes it, and nothing else.
        let nothing = json!({"apiVersion": "patch.lab/v1", "kind": "Widget", "metadata": {"name": "s"}});
        let live = apply(Some(&live), &nothing, &schema, by("two"), false).unwrap();
        prop_assert!(owned(&live, "two").is_empty());
        let has = |field: &str| live["spec"][field].as_array().is_some_and(|list| !list.is_empty());
        prop_assert!(first["spec"]["tags"] == json!([]) || has("tags"));
        prop_assert!(first["spec"]["ports"] == json!([]) || has("ports"));
    }

    #[test]
    fn conflicts_are_fields_that_another_manager_changed(first in widgets(), second in widgets()) {
        let schema = widget();
        let live = apply(None, &first, &schema, by("one"), false).unwrap();
        let forced = apply(Some(&live), &second, &schema, by("two"), true).unwrap();
        let conflict = apply(Some(&live), &second, &schema, by("two"), false).is_err();
        prop_assert_eq!(conflict, owned(&forced, "one") != owned(&live, "one"));
    }

    #[test]
    fn written_fields_have_one_owner(first in widgets(), second in widgets()) {
        let schema = widget();
        let mut live = first.clone();
        track(None, &mut live, &schema, by("one"));
        let mut new = second.clone();
        track(Some(&live), &mut new, &schema, by("two"));
        prop_assert!(owned(&new, "one").intersection(&owned(&new, "two")).is_empty());
        let mut again = second;
        track(Some(&new), &mut again, &schema, later("three"));
        prop_assert_eq!(again, new);
    }
}

#[test]
fn changed_times_alone_are_no_change() {
    let schema = widget();
    let applied = json!({
        "apiVersion": "patch.lab/v1", "kind": "Widget", "metadata": {"name": "s"}, "spec": {"size": 1},
    });
    let old = apply(None, &applied, &schema, by("one"), false).unwrap();
    let mut new = apply(None, &applied, &schema, later("one"), false).unwrap();
    assert_ne!(new, old);
    keep_times(&old, &mut new);
    assert_eq!(new, old);
    let mut new = apply(None, &applied, &schema, later("one"), false).unwrap();
    new["spec"]["size"] = 2.into();
    let before = new.clone();
    keep_times(&old, &mut new);
    assert_eq!(new, before);
}

#[test]
fn malformed_patches_are_rejected() {
    let check = |result: Result<Value, ApiError>, code: u16, message: &str| {
        let error = result.unwrap_err();
        assert_eq!((error.code.as_u16(), error.message.as_str()), (code, message));
    };
    let current = json!({"data": {}});
    let json = |patch: Value| json_patch(&current, &patch);
    let into = "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp";
    check(json(json!({"op": "add"})), 400, into);
    let many = vec![json!({"op": "add", "path": "/data/a", "value": 1}); 10_001];
    check(json(many.into()), 413, "The allowed maximum operations in a JSON patch is 10000, got 10001");
    let rejected = "the server rejected our request due to an error in our request";
    for operation in [
        json!({"op": "frob", "path": "/data/a"}),
        json!({"op": "add", "value": "q"}),
        json!({"op": "add", "path": "", "value": {}}),
        json!({"op": "add", "path": "/nix/z", "value": "q"}),
        json!({"op": "remove", "path": "/data/z"}),
        json!({"op": "replace", "path": "/nix/z", "value": "q"}),
        json!({"op": "move", "path": "/data/a", "from": "/data/z"}),
        json!({"op": "test", "path": "/data/z", "value": "w"}),
    ] {
        check(json(json!([operation])), 422, rejected);
    }
    let into = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    check(merge_patch(&current, &json!([])), 400, &format!("error decoding patch: {into}"));
    check(merge_patch(&current, &Value::Null), 400, "Invalid JSON Patch");
    check(strategic_merge_patch(&current, &json!([]), &Schema::default()), 400, into);
}

#[test]
fn elements_have_one_canonical_form() {
    let read = |json: Value| Set::read(&json).map(|set| set.write());
    let spelt = json!({"f:l": {"k:{\"a\":\"x\",\"b\":80}": {".": {}, "f:a": {}}}});
    assert_eq!(read(json!({"f:l": {"k:{\"b\": 80.0, \"a\": \"x\"}": {"f:a": {}, ".": {}}}})), Some(spelt));
    assert_eq!(read(json!({"f:a": {".": {}}, "x:future": {}})), Some(json!({"f:a": {}})));
    assert_eq!(read(json!({"nonsense": {}})), None);
    assert_eq!(read(json!({"v:nonsense": {}})), None);
    let paths = Set::read(&json!({"f:l": {"k:{\"a\":\"x\",\"b\":80}": {".": {}, "f:a": {}}}, "f:s": {"v:\"x\"": {}}}));
    let expected = [".l[a=\"x\",b=80]", ".l[a=\"x\",b=80].a", ".s[=\"x\"]"];
    assert_eq!(paths.unwrap().paths(), expected);
}
