//! Targets.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::schema::{anything, filled, size};

/// What takes the place of a configuration that is too large.
pub(crate) const TOO_LARGE: &str = "its configuration has more than 256 KiB, which is too large for a kubeconfig";
/// The maximum size of the configuration of a Target, in bytes: all of them are kept.
const LARGEST: usize = 256 << 10;

/// Reads the configuration of a Target.
fn limited<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let found = Option::<Value>::deserialize(deserializer)?;
    Ok(found.map(|config| if size(&config) > LARGEST { TOO_LARGE.into() } else { config }))
}

/// The type of a Target that is a Kubernetes cluster.
pub const KUBERNETES_CLUSTER: &str = "landscaper.gardener.cloud/kubernetes-cluster";

/// The specification of a Target. Exactly one of `config` and `secretRef` is set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "landscaper.gardener.cloud",
    version = "v1alpha1",
    kind = "Target",
    doc = "A Target is a Kubernetes cluster that DeployItems deploy to, with the kubeconfig for it.",
    plural = "targets",
    singular = "target",
    shortname = "tgt",
    shortname = "tg",
    namespaced,
    printcolumn = r#"{"name": "Type", "type": "string", "jsonPath": ".spec.type"}"#,
    printcolumn = r#"{"name": "Context", "type": "string", "jsonPath": ".metadata.labels['data\\.landscaper\\.gardener\\.cloud\\/context']"}"#,
    printcolumn = r#"{"name": "Key", "type": "string", "jsonPath": ".metadata.labels['data\\.landscaper\\.gardener\\.cloud\\/key']"}"#,
    printcolumn = r#"{"name": "Idx", "type": "string", "jsonPath": ".metadata.labels['data\\.landscaper\\.gardener\\.cloud\\/index']"}"#,
    printcolumn = r#"{"name": "TMKey", "type": "string", "jsonPath": ".metadata.labels['data\\.landscaper\\.gardener\\.cloud\\/targetmapkey']"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct TargetSpec {
    /// The type of the target.
    pub r#type: String,
    /// The configuration: for a Kubernetes cluster the field `kubeconfig`, a string or an object.
    #[serde(default, deserialize_with = "limited", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "anything")]
    pub config: Option<Value>,
    /// The Secret in the same namespace that holds the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<TargetSecretReference>,
}

/// A key of a Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TargetSecretReference {
    /// The name of the Secret.
    pub name: String,
    /// The key that holds the configuration; without it, the keys of the Secret are the fields of the configuration.
    #[serde(default, deserialize_with = "filled", skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}
