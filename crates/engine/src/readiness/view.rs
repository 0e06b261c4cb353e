//! The fields of an object that readiness depends on.

use billhook_objects::Uid;
use billhook_plan::Annotations;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};

/// The fields of an object that readiness depends on; the others are not decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct View {
    /// Identity and generation.
    pub metadata: Metadata,
    /// The spec.
    pub spec: Spec,
    /// The status.
    pub status: ObjectStatus,
}

/// See [`View`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata {
    pub name: String,
    pub namespace: Option<String>,
    pub uid: Option<Uid>,
    pub generation: Option<i64>,
    pub resource_version: String,
    pub deletion_timestamp: Option<String>,
    pub annotations: Option<Annotations>,
}

/// See [`View`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    #[serde(deserialize_with = "lenient")]
    pub replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub suspend: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub paused: Option<bool>,
    #[serde(deserialize_with = "lenient")]
    pub update_strategy: Option<UpdateStrategy>,
}

/// How the controller of a StatefulSet or DaemonSet replaces its Pods.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UpdateStrategy {
    pub r#type: String,
    #[serde(deserialize_with = "lenient")]
    pub rolling_update: Option<RollingUpdate>,
}

/// See [`UpdateStrategy`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RollingUpdate {
    #[serde(deserialize_with = "lenient")]
    pub partition: Option<i64>,
}

/// See [`View`].
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectStatus {
    #[serde(deserialize_with = "lenient")]
    pub observed_generation: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub phase: Option<String>,
    #[serde(deserialize_with = "lenient")]
    pub replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub ready_replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub updated_replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub available_replicas: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub desired_number_scheduled: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub updated_number_scheduled: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub number_available: Option<i64>,
    #[serde(deserialize_with = "lenient")]
    pub failed: Option<i64>,
    #[serde(deserialize_with = "lenient_list")]
    pub versions: Vec<OperandVersion>,
    #[serde(deserialize_with = "lenient_list")]
    pub conditions: Vec<Condition>,
}

/// The version of an operand of a ClusterOperator.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct OperandVersion {
    /// The name of the operand.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// A condition of any kind.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    pub r#type: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

impl View {
    /// Whether an annotation of the object says that nothing waits until it is ready.
    pub(super) fn skips_health_check(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|annotations| annotations.treatment().skip_health_check)
    }

    /// Whether the status describes an older generation than that of the object.
    pub(super) fn is_stale(&self) -> bool {
        self.metadata.generation > self.status.observed_generation
    }
}

impl ObjectStatus {
    pub(super) fn condition(&self, r#type: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.r#type == r#type)
    }
}

impl Condition {
    pub(super) fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// Appends the reason and message of the condition to a text.
    pub(super) fn explain(&self, what: &str) -> String {
        match (self.reason.as_str(), self.message.as_str()) {
            ("", "") => what.to_owned(),
            (reason, "") => format!("{what}: {reason}"),
            ("", message) => format!("{what}: {message}"),
            (reason, message) => format!("{what}: {reason}: {message}"),
        }
    }
}

/// Reads a field that custom resources may use for something else: a value of another type counts as absent.
fn lenient<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(serde_json::Value::deserialize(from)?).ok())
}

fn lenient_list<'de, D: Deserializer<'de>, T: DeserializeOwned>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(lenient(from)?.unwrap_or_default())
}
