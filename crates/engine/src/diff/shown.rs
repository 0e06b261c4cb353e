//! The states of an object as they are shown: without what only the server sets, and without values of Secrets.

use billhook_objects::GroupKind;
use serde_json::{Map, Value};

/// The fields of `metadata` that only the server sets.
const SERVER_SIDE: [&str; 8] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
];
/// The annotation in which kubectl stores a whole object, even if it is a Secret.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns the states of an object before and after a change as they are shown.
pub(super) fn shown(
    kind: &GroupKind,
    mut before: Option<Value>,
    mut after: Option<Value>,
) -> (Option<Value>, Option<Value>) {
    // Without a subresource for it, `status` is a field like any other.
    let same_status = match (&before, &after) {
        (Some(before), Some(after)) => before.get("status") == after.get("status"),
        _ => true,
    };
    for object in [&mut before, &mut after].into_iter().filter_map(|object| object.as_mut()?.as_object_mut()) {
        if same_status {
            object.remove("status");
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            clean(metadata);
        }
    }
    if kind.is("", "Secret") {
        for field in ["data", "stringData"] {
            let value =
                |object: &mut Option<Value>| object.as_mut().and_then(|object| object.get_mut(field).map(Value::take));
            let (one, other) = (value(&mut before), value(&mut after));
            let (one, other) = masked(one, other);
            for (object, value) in [(&mut before, one), (&mut after, other)] {
                if let (Some(object), Some(value)) = (object, value) {
                    object[field] = value;
                }
            }
        }
    }
    (before, after)
}

fn clean(metadata: &mut Map<String, Value>) {
    metadata.retain(|key, _| !SERVER_SIDE.contains(&key.as_str()));
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut)
        && annotations.remove(LAST_APPLIED).is_some()
        && annotations.is_empty()
    {
        metadata.remove("annotations");
    }
}

/// Replaces the values of two maps, so that only which of them differ can be seen, as `kubectl diff` does.
fn masked(before: Option<Value>, after: Option<Value>) -> (Option<Value>, Option<Value>) {
    let mask = |value: &Value, other: Option<&Value>, mark: &str| match other {
        _ if value.is_null() => Value::Null,
        Some(other) if other != value => Value::from(format!("*** ({mark})")),
        _ => Value::from("***"),
    };
    let all = |value: &Option<Value>, other: &Option<Value>, mark: &str| {
        Some(match value.as_ref()? {
            Value::Object(entries) => {
                let other = |key: &str| other.as_ref().and_then(|other| other.get(key));
                entries.iter().map(|(key, value)| (key.clone(), mask(value, other(key), mark))).collect()
            }
            value => mask(value, other.as_ref(), mark),
        })
    };
    (all(&before, &after, "before"), all(&after, &before, "after"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(kind: &str, before: Value, after: Value, expected: (Value, Value)) {
        let some = |value: Value| Some(value).filter(|value| !value.is_null());
        let (before, after) = shown(&GroupKind::new("", kind), some(before), some(after));
        assert_eq!((before.unwrap_or_default(), after.unwrap_or_default()), expected);
    }

    #[test]
    fn fields_of_the_server_are_left_out() {
        let live = json!({"kind": "A", "spec": {"a": 1}, "status": {"b": 2}, "metadata": {
            "name": "a", "uid": "1", "resourceVersion": "2", "generation": 3, "creationTimestamp": null,
            "managedFields": [{}], "selfLink": "/a", "annotations": {LAST_APPLIED: "{}"}}});
        let shown = json!({"kind": "A", "spec": {"a": 1}, "metadata": {"name": "a"}});
        check("A", live.clone(), live.clone(), (shown.clone(), shown.clone()));
        check("A", Value::Null, live.clone(), (Value::Null, shown.clone()));
        check("A", live.clone(), Value::Null, (shown.clone(), Value::Null));
        let annotated = json!({"metadata": {"annotations": {LAST_APPLIED: "{}", "a": "b"}}});
        check("A", annotated, Value::Null, (json!({"metadata": {"annotations": {"a": "b"}}}), Value::Null));
        let without = json!({"kind": "A", "spec": {"a": 1}, "status": {"b": 3}, "metadata": {"name": "a"}});
        let with = json!({"kind": "A", "spec": {"a": 1}, "status": {"b": 2}, "metadata": {"name": "a"}});
        check("A", live, without.clone(), (with, without));
    }

    #[test]
    fn values_of_secrets_are_masked_and_changed_keys_are_named() {
        check(
            "Secret",
            json!({"data": {"same": "YQ==", "changed": "YQ==", "removed": "YQ==", "empty": null}}),
            json!({"data": {"same": "YQ==", "changed": "Yg==", "added": "YQ=="}, "stringData": {"new": "b"}}),
            (
                json!({"data": {"same": "***", "changed": "*** (before)", "removed": "***", "empty": null}}),
                json!({"data": {"same": "***", "changed": "*** (after)", "added": "***"}, "stringData": {"new": "***"}}),
            ),
        );
        check("Secret", json!({"data": {"a": "YQ=="}}), Value::Null, (json!({"data": {"a": "***"}}), Value::Null));
        check("Secret", json!({"data": "YQ=="}), json!({}), (json!({"data": "***"}), json!({})));
        let nested = json!({"data": {"a": {"b": "secret"}}, "stringData": ["secret"]});
        check("Secret", Value::Null, nested, (Value::Null, json!({"data": {"a": "***"}, "stringData": "***"})));
        let settings = json!({"data": {"a": "b"}});
        check("ConfigMap", settings.clone(), Value::Null, (settings, Value::Null));
    }
}
