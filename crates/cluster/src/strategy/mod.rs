//! The update strategies: pure functions from an existing object and its manifest to the change that is sent.
//!
//! The behaviour is Landscaper's (`pkg/deployer/lib/resourcemanager/objectapplier.go` in gardener/landscaper), except
//! that a change without effect is not sent, and that [`carry`] keeps more fields that the API server does not let go.

mod carry;
mod merge;

use billhook_policy::UpdateStrategy;
use k8s_openapi::ByteString;
use serde_json::Value;

/// The change to send.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// The object already matches.
    Nothing,
    /// A replacement, with the `resourceVersion` that was read.
    Put(Value),
    /// A JSON merge patch, with the UID that was read, so that it cannot change another object of the same name.
    Patch(Value),
}

/// The fields of `metadata` that only the API server writes: they are neither compared nor taken from a manifest.
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

/// Returns the change by which `live` matches `manifest`, for a strategy other than server-side apply.
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

/// Moves a Secret's `stringData` into `data`, as the API server does with every write, so that it can be compared with an
/// object that was read.
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
    fn each_strategy_sends_its_own_change() {
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
    fn a_change_without_effect_is_not_sent() {
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
    fn string_data_of_a_secret_is_compared_as_the_api_server_stores_it() {
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
