//! An extension object, as far as the controller reads it, whichever kind it is.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

/// The annotation by which gardenlet asks for an operation.
pub(crate) const OPERATION: &str = "gardener.cloud/operation";
/// The type of the condition that says whether a DNSRecord was created at least once.
pub(crate) const CREATED: &str = "Created";
/// The operation that asks to leave an object alone until its state is written.
pub(crate) const WAIT_FOR_STATE: &str = "wait-for-state";
/// The class of an object that names none: it belongs to a Shoot.
pub(crate) const DEFAULT_CLASS: &str = "shoot";

/// The namespace and name of an object; no namespace if the kind is cluster-scoped. Objects of a namespace are neighbours in
/// the order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The type of a `lastOperation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum OperationType {
    Create,
    Reconcile,
    Delete,
    Migrate,
    Restore,
}

/// A `lastOperation`. A type or state that this version does not know counts as unfinished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LastOperation {
    pub(crate) operation: Option<OperationType>,
    pub(crate) succeeded: bool,
}

/// An extension object.
#[derive(Clone, Debug)]
pub(crate) struct ExtensionObject {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) resource_version: String,
    pub(crate) generation: i64,
    pub(crate) deleting: bool,
    pub(crate) finalizers: Vec<String>,
    /// The value of the operation annotation.
    pub(crate) operation: Option<String>,
    /// The value of the timestamp annotation, which gardenlet changes with every request.
    pub(crate) timestamp: Option<String>,
    /// `spec.type`.
    pub(crate) kind_type: String,
    /// `spec.class`.
    pub(crate) class: String,
    pub(crate) last_operation: Option<LastOperation>,
    /// Whether the condition [`CREATED`] is false.
    pub(crate) never_created: bool,
    /// The whole object.
    pub(crate) value: Value,
}

impl ExtensionObject {
    /// Returns whether the object has a finalizer.
    pub(crate) fn has(&self, finalizer: &str) -> bool {
        self.finalizers.iter().any(|found| found == finalizer)
    }

    /// Returns whether the last operation succeeded.
    pub(crate) fn is_settled(&self) -> bool {
        self.last_operation.as_ref().is_some_and(|last| last.succeeded)
    }
}

impl<'de> Deserialize<'de> for ExtensionObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        let Parts { metadata, spec, status } = Parts::deserialize(&value).map_err(D::Error::custom)?;
        let spec = spec.unwrap_or_default();
        let Status { last_operation, conditions } = status.unwrap_or_default();
        let mut conditions = conditions.as_array().into_iter().flatten();
        let never_created = conditions.any(|condition| condition["type"] == CREATED && condition["status"] == "False");
        let last_operation = last_operation.map(|last| LastOperation {
            operation: serde_json::from_value(last.r#type).ok(),
            succeeded: last.state.as_deref() == Some("Succeeded"),
        });
        let mut annotations = metadata.annotations.unwrap_or_default();
        Ok(Self {
            key: Key { namespace: metadata.namespace.filter(|namespace| !namespace.is_empty()), name: metadata.name },
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            generation: metadata.generation,
            deleting: metadata.deletion_timestamp.is_some(),
            finalizers: metadata.finalizers.unwrap_or_default(),
            operation: annotations.operation.take(),
            timestamp: annotations.timestamp.take(),
            kind_type: spec.r#type.unwrap_or_default(),
            class: spec.class.filter(|class| !class.is_empty()).unwrap_or_else(|| DEFAULT_CLASS.to_owned()),
            last_operation,
            never_created,
            value,
        })
    }
}

#[derive(Deserialize)]
struct Parts {
    metadata: Metadata,
    spec: Option<Spec>,
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: String,
    uid: String,
    resource_version: String,
    #[serde(default)]
    generation: i64,
    deletion_timestamp: Option<String>,
    finalizers: Option<Vec<String>>,
    annotations: Option<Annotations>,
}

#[derive(Default, Deserialize)]
struct Annotations {
    #[serde(rename = "gardener.cloud/operation")]
    operation: Option<String>,
    #[serde(rename = "gardener.cloud/timestamp")]
    timestamp: Option<String>,
}

#[derive(Default, Deserialize)]
struct Spec {
    r#type: Option<String>,
    class: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    last_operation: Option<StatusOperation>,
    #[serde(default)]
    conditions: Value,
}

#[derive(Deserialize)]
struct StatusOperation {
    #[serde(default)]
    r#type: Value,
    state: Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// Makes an object of version 1 with our finalizer `own/x`, changed by a JSON merge patch.
    pub(crate) fn object(changes: &Value) -> ExtensionObject {
        let mut object = json!({
            "metadata": {
                "namespace": "shoot--a", "name": "x", "uid": "1", "resourceVersion": "1", "generation": 1,
                "finalizers": ["own/x"],
            },
            "spec": {"type": "local"},
        });
        merge(&mut object, changes);
        serde_json::from_value(object).unwrap()
    }

    fn merge(into: &mut Value, changes: &Value) {
        let Some(changes) = changes.as_object() else {
            into.clone_from(changes);
            return;
        };
        if !into.is_object() {
            *into = json!({});
        }
        for (key, value) in changes {
            match value {
                Value::Null => drop(into.as_object_mut().unwrap().remove(key)),
                value => merge(&mut into[key], value),
            }
        }
    }

    #[test]
    fn an_object_is_read_whichever_kind_it_is() {
        let read = object(&json!({
            "metadata": {"annotations": {OPERATION: "restore", "gardener.cloud/timestamp": "t", "other": "x"}},
            "spec": {"class": "seed", "more": {"a": 1}},
            "status": {"lastOperation": {"type": "Restore", "state": "Error"}},
        }));
        assert_eq!((read.operation.as_deref(), read.timestamp.as_deref()), (Some("restore"), Some("t")));
        assert_eq!((read.kind_type.as_str(), read.class.as_str()), ("local", "seed"));
        let last = LastOperation { operation: Some(OperationType::Restore), succeeded: false };
        assert_eq!(read.last_operation, Some(last));
        assert_eq!(read.value["spec"]["more"]["a"], 1);
        assert!(read.has("own/x") && !read.has("own") && !read.deleting && !read.is_settled());
    }

    #[test]
    fn fields_may_be_missing_or_unknown() {
        let bare = object(&json!({"spec": null, "status": {"lastOperation": {"type": "New", "state": "Succeeded"}}}));
        assert_eq!((bare.class.as_str(), bare.kind_type.as_str()), ("shoot", ""));
        assert_eq!(bare.last_operation, Some(LastOperation { operation: None, succeeded: true }));
        assert_eq!(object(&json!({"spec": {"class": ""}})).class, "shoot");
        assert_eq!(object(&json!({"status": {"lastOperation": {}}})).last_operation.unwrap().operation, None);
        assert!(!object(&json!({"status": {"conditions": "x"}})).never_created);
    }
}
