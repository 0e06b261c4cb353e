//! Merging a manifest into an object, and the patch between two objects.

use billhook_objects::wellknown::RELEASE_LABEL;
use serde_json::{Map, Value};

/// The suffix of the label by which Landscaper's deployers identify their objects.
const DEPLOY_ITEM_LABEL: &str = ".deployer.landscaper.gardener.cloud/deployitem";

/// Merges a manifest into an object as Landscaper does with `mergo.Merge`: maps key by key, lists as a whole.
///
/// Without `overwrite`, a value is set if the object has none or one that is zero in Go. With it, every value is set, even
/// zero or null, and only an empty map changes nothing. Labels that give the owner of the object are always set.
pub(super) fn merged(live: &Value, manifest: &Value, overwrite: bool) -> Value {
    let mut object = live.clone();
    if let (Some(into), Some(from)) = (object.as_object_mut(), manifest.as_object()) {
        merge(into, from, overwrite);
    }
    let labels = manifest["metadata"]["labels"].as_object().into_iter().flatten();
    for (key, value) in labels.filter(|(key, _)| *key == RELEASE_LABEL || key.ends_with(DEPLOY_ITEM_LABEL)) {
        object["metadata"]["labels"][key] = value.clone();
    }
    object
}

fn merge(into: &mut Map<String, Value>, from: &Map<String, Value>, overwrite: bool) {
    for (key, value) in from {
        match (into.get_mut(key), value) {
            (Some(Value::Object(into)), Value::Object(from)) => merge(into, from, overwrite),
            (_, Value::Null) if !overwrite => {}
            (Some(old), _) if overwrite || is_empty(old) => *old = value.clone(),
            (Some(_), _) => {}
            (None, _) => {
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Returns the JSON merge patch (RFC 7386) from `now` to `goal`.
pub(super) fn difference(now: &Value, goal: &Value) -> Value {
    let (Value::Object(now), Value::Object(goal)) = (now, goal) else { return goal.clone() };
    let mut patch = Map::new();
    for key in now.keys().filter(|key| !goal.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    for (key, value) in goal {
        match now.get(key) {
            Some(old) if old == value => {}
            Some(old) => {
                patch.insert(key.clone(), difference(old, value));
            }
            None => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// Returns whether a value is a zero value of Go: null, "", 0, false, or an empty list or map.
pub(super) fn is_empty(value: &Value) -> bool {
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

    /// Compares with the results of Landscaper's `mergo.Merge` (dario.cat/mergo 1.0.2), without and with override.
    fn check(live: Value, manifest: Value, merge: Value, merge_overwrite: Value) {
        assert_eq!(merged(&live, &manifest, false), merge, "merge {live} {manifest}");
        assert_eq!(merged(&live, &manifest, true), merge_overwrite, "mergeOverwrite {live} {manifest}");
    }

    #[test]
    fn objects_are_merged_as_landscaper_merges_them() {
        let a = |value: Value| json!({ "a": value });
        for (live, manifest, merge, overwrite) in [
            (json!(1), json!(0), json!(1), json!(0)),
            (json!("x"), json!(""), json!("x"), json!("")),
            (json!(true), json!(false), json!(true), json!(false)),
            (json!(false), json!(true), json!(true), json!(true)),
            (json!(0), json!(5), json!(5), json!(5)),
            (json!(0.0), json!(""), json!(""), json!("")),
            (json!(1), json!(null), json!(1), json!(null)),
            (json!(null), json!(1), json!(1), json!(1)),
            (json!(null), json!({"b": 1}), json!({"b": 1}), json!({"b": 1})),
            (json!([1, 2]), json!([3]), json!([1, 2]), json!([3])),
            (json!([]), json!([3]), json!([3]), json!([3])),
            (json!([1]), json!([]), json!([1]), json!([])),
            (json!([{"n": 1, "v": 1}]), json!([{"n": 1}]), json!([{"n": 1, "v": 1}]), json!([{"n": 1}])),
            (
                json!({"b": 1, "c": 2}),
                json!({"b": 3, "d": 4}),
                json!({"b": 1, "c": 2, "d": 4}),
                json!({"b": 3, "c": 2, "d": 4}),
            ),
            (json!({"b": 1}), json!({}), json!({"b": 1}), json!({"b": 1})),
            (json!({}), json!({"b": 1}), json!({"b": 1}), json!({"b": 1})),
            (json!({"b": [1]}), json!({"b": [2, 3]}), json!({"b": [1]}), json!({"b": [2, 3]})),
            (json!({"b": 1}), json!("s"), json!({"b": 1}), json!("s")),
            (json!("s"), json!({"b": 1}), json!("s"), json!({"b": 1})),
            (json!([1]), json!({"b": 1}), json!([1]), json!({"b": 1})),
            (json!({"c": 1}), json!({"c": 0, "d": null}), json!({"c": 1}), json!({"c": 0, "d": null})),
        ] {
            check(a(live), a(manifest), a(merge), a(overwrite));
        }
        check(json!({}), a(json!(null)), json!({}), a(json!(null)));
        for empty in [json!(""), json!({}), json!([]), json!({"b": null})] {
            check(json!({}), a(empty.clone()), a(empty.clone()), a(empty));
        }
    }

    #[test]
    fn every_merge_sets_the_labels_of_the_owner() {
        let item = format!("manifest{DEPLOY_ITEM_LABEL}");
        let object = |release: &str, item_of: &str, other: &str| json!({"metadata": {"labels": {RELEASE_LABEL: release, item.as_str(): item_of, "other": other}}});
        assert_eq!(merged(&object("a", "b", "c"), &object("1", "2", "3"), false), object("1", "2", "c"));
        let bare = json!({"metadata": {"name": "x"}});
        assert_eq!(merged(&bare, &bare, false), bare);
    }

    /// RFC 7386.
    fn patched(target: &Value, patch: &Value) -> Value {
        let Value::Object(patch) = patch else { return patch.clone() };
        let mut result = target.as_object().cloned().unwrap_or_default();
        for (key, value) in patch {
            match value {
                Value::Null => result.remove(key),
                value => result.insert(key.clone(), patched(result.get(key).unwrap_or(&Value::Null), value)),
            };
        }
        Value::Object(result)
    }

    #[test]
    fn a_difference_is_the_patch_from_one_object_to_the_other() {
        let cases = [
            json!({}),
            json!({"a": 1}),
            json!({"a": {"b": 1, "c": [1]}}),
            json!({"a": {"c": [1, 2]}, "d": "x"}),
            json!({"a": {}, "d": {"e": {"f": false}}}),
            json!({"a": [{"b": 1}], "d": {"e": 1}}),
        ];
        for now in &cases {
            for goal in &cases {
                let patch = difference(now, goal);
                assert_eq!(&patched(now, &patch), goal, "{now} {patch}");
                assert_eq!(patch == json!({}), now == goal, "{now} {goal}");
            }
        }
    }
}
