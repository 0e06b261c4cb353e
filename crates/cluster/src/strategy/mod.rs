//! What the update strategies make of an object that exists and its manifest: pure, no request is sent from here.
//!
//! The behaviour is Landscaper's (`pkg/deployer/lib/resourcemanager/objectapplier.go` in gardener/landscaper), except
//! that nothing is sent which changes nothing, and that [`carry`] keeps more of what the API server would refuse to lose.

mod carry;
mod merge;

use billhook_policy::UpdateStrategy;
use k8s_openapi::ByteString;
use serde_json::Value;

/// What is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The object is what it should be.
    Nothing,
    /// The object is replaced; it carries the `resourceVersion` that was read.
    Put(Value),
    /// A JSON merge patch; it carries the UID that was read, so that it does not meet another object of the name.
    Patch(Value),
}

/// What the API server alone writes into `metadata`: it is neither compared nor taken from a manifest.
const SERVER_SIDE: [&str; 8] = [
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "managedFields",
    "selfLink",
];

/// What brings `live` to what `manifest` says, by a strategy that is no server-side apply.
pub(crate) fn change(strategy: UpdateStrategy, live: &Value, manifest: &Value) -> Change {
    let now = without_server_side(live);
    let manifest = with_data(without_server_side(manifest));
    let mut goal = match strategy {
        UpdateStrategy::Merge => merge::merged(&now, &manifest, false),
        UpdateStrategy::MergeOverwrite => merge::merged(&now, &manifest, true),
        UpdateStrategy::Update | UpdateStrategy::Patch | UpdateStrategy::ServerSide => carry::carried(live, manifest),
    };
    if goal == now {
        return Change::Nothing;
    }
    if strategy == UpdateStrategy::Patch {
        let mut patch = merge::difference(&now, &goal);
        patch["metadata"]["uid"] = live["metadata"]["uid"].clone();
        return Change::Patch(patch);
    }
    goal["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    Change::Put(goal)
}

fn without_server_side(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !SERVER_SIDE.contains(&key.as_str()));
    }
    object
}

/// A Secret's `stringData` is moved into `data`, as the API server does it with every write: an object that was read has
/// `data` only, and could not be compared.
fn with_data(mut object: Value) -> Value {
    if object["kind"] != "Secret" || object["apiVersion"] != "v1" {
        return object;
    }
    let Some(Value::Object(texts)) = object.as_object_mut().and_then(|secret| secret.remove("stringData")) else {
        return object;
    };
    for (key, text) in texts {
        let bytes = ByteString(text.as_str().unwrap_or_default().as_bytes().to_vec());
        object["data"][key] = serde_json::to_value(bytes).unwrap_or_default();
    }
    object
}

/// Whether a value says nothing, as Go's zero values do: null, "", 0, false, and empty lists and maps.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "1", "b": "2"}, "metadata": {
            "name": "x", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{}], "labels": {"l": "1"}}})
    }

    fn manifest(data: Value) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "x", "namespace": "n", "creationTimestamp": null, "labels": {"l": "1"}}})
    }

    fn check(strategy: UpdateStrategy, data: Value, expected: Change) {
        assert_eq!(change(strategy, &live(), &manifest(data.clone())), expected, "{strategy:?} {data}");
    }

    fn put(data: Value) -> Change {
        Change::Put(json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data,
            "metadata": {"name": "x", "namespace": "n", "resourceVersion": "7", "labels": {"l": "1"}}}))
    }

    #[test]
    fn each_strategy_makes_its_own_of_the_same_manifest() {
        use UpdateStrategy::{Merge, MergeOverwrite, Patch, Update};
        let data = json!({"b": "3", "c": "4"});
        check(Update, data.clone(), put(json!({"b": "3", "c": "4"})));
        check(
            Patch,
            data.clone(),
            Change::Patch(json!({"metadata": {"uid": "u"}, "data": {"a": null, "b": "3", "c": "4"}})),
        );
        check(Merge, data.clone(), put(json!({"a": "1", "b": "2", "c": "4"})));
        check(MergeOverwrite, data, put(json!({"a": "1", "b": "3", "c": "4"})));
    }

    #[test]
    fn what_would_change_nothing_is_not_sent() {
        use UpdateStrategy::{Merge, MergeOverwrite, Patch, Update};
        for strategy in [Update, Patch, Merge, MergeOverwrite] {
            check(strategy, json!({"a": "1", "b": "2"}), Change::Nothing);
        }
        for strategy in [Merge, MergeOverwrite] {
            check(strategy, json!({"a": "1"}), Change::Nothing);
        }
        check(Merge, json!({"a": "9"}), Change::Nothing);
    }

    #[test]
    fn texts_of_a_secret_are_compared_as_the_api_server_keeps_them() {
        let secret = |key: &str, value: &str| {
            json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", key: {"a": value},
                "metadata": {"name": "x", "uid": "u", "resourceVersion": "7"}})
        };
        let live = secret("data", "aHVudGVyMg==");
        for strategy in [UpdateStrategy::Update, UpdateStrategy::Patch, UpdateStrategy::MergeOverwrite] {
            assert_eq!(change(strategy, &live, &secret("stringData", "hunter2")), Change::Nothing);
        }
        let Change::Patch(patch) = change(UpdateStrategy::Patch, &live, &secret("stringData", "b")) else { panic!() };
        assert_eq!(patch, json!({"metadata": {"uid": "u"}, "data": {"a": "Yg=="}}));
        assert_eq!(change(UpdateStrategy::Merge, &live, &secret("stringData", "b")), Change::Nothing);
    }
}
