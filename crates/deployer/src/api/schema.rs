//! Object references, and schemas that the derive macros do not provide.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::text::clip;

/// Reads an optional string. An empty one is none, because clients in Go write fields without `omitempty` that way.
pub(super) fn filled<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.filter(|text| !text.is_empty()))
}

/// The longest name of an object that is kept. One of an object has at most 253 bytes.
const LONGEST_NAME: usize = 256;

/// Reads an optional reference. One with an empty name is none, for the same reason. A name that is too long for an object is cut, so
/// that it does not fill the log and the metrics; it ends with a character that no name has.
pub(super) fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ObjectReference>, D::Error> {
    let found = Option::<ObjectReference>::deserialize(deserializer)?.filter(|reference| !reference.name.is_empty());
    Ok(found.map(|reference| ObjectReference { name: clip(&reference.name, LONGEST_NAME), ..reference }))
}

/// Returns about how many bytes a value has as JSON.
pub(crate) fn size(value: &Value) -> usize {
    const SCALAR: usize = 4;
    match value {
        Value::String(text) => SCALAR + text.len(),
        Value::Array(items) => SCALAR + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => {
            SCALAR + fields.iter().map(|(key, value)| SCALAR + key.len() + size(value)).sum::<usize>()
        }
        _ => SCALAR,
    }
}

/// The name of an object, and its namespace if it is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectReference {
    /// The name of the object.
    pub name: String,
    /// The namespace of the object.
    #[serde(default, deserialize_with = "filled", skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Returns the schema of a time; k8s-openapi's type has none.
pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// Returns the schema of a value of any type.
pub(super) fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the schema of an object with any fields.
pub(super) fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// Returns the schema of a Kubernetes object within another object.
pub(super) fn embedded(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use crate::api::{ContextSpec, DeployItemSpec, DeployItemStatus, TargetSpec};

    #[test]
    fn a_name_that_is_too_long_for_an_object_is_cut_and_names_none() {
        let read = |name: &str| {
            let spec = json!({ "type": "t", "target": { "name": name } });
            serde_json::from_value::<DeployItemSpec>(spec).unwrap().target.unwrap().name
        };
        assert_eq!(read(&"a".repeat(253)), "a".repeat(253));
        let long = read(&"a".repeat(1 << 20));
        assert!(long.len() <= 256 && long.ends_with('…'), "{long}");
    }

    #[test]
    fn empty_optional_strings_are_the_same_as_none() {
        fn check<T: DeserializeOwned + PartialEq + std::fmt::Debug>(empty: Value, absent: Value) {
            let read = |value: &Value| serde_json::from_value::<T>(value.clone()).unwrap();
            assert_eq!(read(&empty), read(&absent), "{empty}");
        }
        check::<TargetSpec>(
            json!({ "type": "t", "secretRef": { "name": "s", "key": "" } }),
            json!({ "type": "t", "secretRef": { "name": "s" } }),
        );
        check::<DeployItemSpec>(
            json!({ "type": "t", "target": { "name": "a", "namespace": "" }, "context": "", "timeout": "" }),
            json!({ "type": "t", "target": { "name": "a" } }),
        );
        check::<DeployItemSpec>(
            json!({ "type": "t", "target": { "name": "", "namespace": "" } }),
            json!({ "type": "t" }),
        );
        check::<DeployItemStatus>(
            json!({ "phase": "", "jobID": "", "jobIDFinished": "", "deployItemPhase": "", "exportRef": { "name": "" } }),
            json!({}),
        );
        let key = |key: Value| json!({ "verificationSignatures": { "a": { "publicKeySecretReference": key } } });
        check::<ContextSpec>(key(json!({ "name": "s", "key": "", "namespace": "" })), key(json!({ "name": "s" })));
        check::<ContextSpec>(json!({ "componentVersionOverwrites": "" }), json!({}));
    }
}
