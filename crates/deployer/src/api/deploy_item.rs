//! DeployItems.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::IntoDeserializer as _};
use serde_json::Value;

use super::schema::{ObjectReference, embedded, filled, named, time};

/// The specification of a DeployItem: what is deployed, by which deployer, and to which cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "landscaper.gardener.cloud",
    version = "v1alpha1",
    kind = "DeployItem",
    doc = "A DeployItem defines what a deployer deploys to a target, and how it is deleted.",
    plural = "deployitems",
    singular = "deployitem",
    shortname = "di",
    namespaced,
    status = "DeployItemStatus",
    printcolumn = r#"{"name": "Type", "type": "string", "jsonPath": ".spec.type"}"#,
    printcolumn = r#"{"name": "Phase", "type": "string", "jsonPath": ".status.phase"}"#,
    printcolumn = r#"{"name": "ExportRef", "type": "string", "jsonPath": ".status.exportRef.name"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct DeployItemSpec {
    /// The type of the deployer that handles the item.
    pub r#type: String,
    /// The cluster to deploy to: a Target in the same namespace.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectReference>,
    /// The Context in the same namespace with the credentials of registries; `default` if not set.
    #[serde(default, deserialize_with = "filled", skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The configuration of the deployer: a ProviderConfiguration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded")]
    pub config: Option<Value>,
    /// The time limit for a deployment or deletion, as a Go duration, or `none` for no limit; ten minutes if not set.
    #[serde(default, deserialize_with = "filled", skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Whether a reconcile is skipped if the specification has not changed since the last success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_on_change_only: Option<bool>,
    /// Settings for the deletion of the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_delete: Option<OnDelete>,
}

/// Settings for the deletion of an item.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnDelete {
    /// Whether the uninstallation is skipped if the target cluster no longer exists. Only Landscaper uses it, because only
    /// Landscaper has the TargetSync objects that tell whether the cluster exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_uninstall_if_cluster_removed: Option<bool>,
}

/// The state of a DeployItem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployItemStatus {
    /// The phase.
    #[serde(default, deserialize_with = "phase", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub phase: Option<Phase>,
    /// The generation that is being reconciled, or was reconciled last.
    #[serde(default)]
    #[schemars(!default)]
    pub observed_generation: i64,
    /// The conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The error that occurred last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ItemError>,
    /// The errors that occurred since the last trigger, at most the last ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_errors: Vec<ItemError>,
    /// The first error that occurred since the last trigger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<ItemError>,
    /// When the last reconcile began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub last_reconcile_time: Option<Time>,
    /// The deployer that reconciled the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployer: Option<DeployerInformation>,
    /// The deployer's own state: the resources that it manages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded")]
    pub provider_status: Option<Value>,
    /// The Secret with the exported values.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    pub export_ref: Option<ObjectReference>,
    /// The ID of the job that Landscaper requests.
    #[serde(default, deserialize_with = "filled", rename = "jobID", skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The ID of the job that was finished last.
    #[serde(default, deserialize_with = "filled", rename = "jobIDFinished", skip_serializing_if = "Option::is_none")]
    pub job_id_finished: Option<String>,
    /// When Landscaper set the job ID.
    #[serde(default, rename = "jobIDGenerationTime", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub job_id_generation_time: Option<Time>,
    /// Deprecated in Landscaper, and not used.
    #[serde(default, deserialize_with = "filled", skip_serializing_if = "Option::is_none")]
    pub deploy_item_phase: Option<String>,
    /// The times at which the state changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transition_times: Option<TransitionTimes>,
}

/// The phase of a DeployItem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It was triggered.
    Init,
    /// It is being deployed.
    Progressing,
    /// It is about to complete; only other deployers use this phase.
    Completing,
    /// All objects are deployed and ready.
    Succeeded,
    /// The deployment failed.
    Failed,
    /// Its deletion was triggered.
    InitDelete,
    /// It is being deleted.
    Deleting,
    /// The deletion failed.
    DeleteFailed,
    /// A phase that this version does not know.
    #[serde(other)]
    Unknown,
}

/// Reads an optional phase; an empty one is none.
fn phase<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Phase>, D::Error> {
    filled(deserializer)?.map(|phase| Phase::deserialize(phase.into_deserializer())).transpose()
}

impl Phase {
    /// Returns whether the work is over until the next trigger.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::DeleteFailed)
    }
}

/// A condition, in Gardener's format.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// The type of the condition.
    pub r#type: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the status changed last.
    #[schemars(schema_with = "time")]
    pub last_transition_time: Time,
    /// When the condition was updated last.
    #[schemars(schema_with = "time")]
    pub last_update_time: Time,
    /// The reason as one word.
    pub reason: String,
    /// The reason as text.
    pub message: String,
    /// The categories of a problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub codes: Vec<ErrorCode>,
}

/// An error that occurred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemError {
    /// The operation that failed.
    pub operation: String,
    /// When it occurred first.
    #[schemars(schema_with = "time")]
    pub last_transition_time: Time,
    /// When it occurred last.
    #[schemars(schema_with = "time")]
    pub last_update_time: Time,
    /// The reason as one word.
    pub reason: String,
    /// The reason as text.
    pub message: String,
    /// The categories of the problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub codes: Vec<ErrorCode>,
}

/// The error codes of Landscaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorCode {
    /// Credentials or rights are missing.
    #[serde(rename = "ERR_UNAUTHORIZED")]
    Unauthorized,
    /// Objects could not be deleted.
    #[serde(rename = "ERR_CLEANUP")]
    CleanupResources,
    /// The configuration is wrong; its author must correct it.
    #[serde(rename = "ERR_CONFIGURATION_PROBLEM")]
    ConfigurationProblem,
    /// A problem that the author of the item cannot fix.
    #[serde(rename = "ERR_INTERNAL_PROBLEM")]
    InternalProblem,
    /// The time limit was reached.
    #[serde(rename = "ERR_TIMEOUT")]
    Timeout,
    /// A webhook denied a request or did not answer.
    #[serde(rename = "ERR_WEBHOOK")]
    Webhook,
    /// A code of another deployer.
    #[serde(other, rename = "ERR_OTHER")]
    Other,
}

/// A deployer that reconciles items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeployerInformation {
    /// The identity of the replica.
    pub identity: String,
    /// The name of the deployer.
    pub name: String,
    /// The version of the deployer.
    pub version: String,
}

/// The times at which the state of an item changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransitionTimes {
    /// When the work was triggered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub trigger_time: Option<Time>,
    /// When the work began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub init_time: Option<Time>,
    /// When all objects were deployed, and custom readiness checks and exports began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub wait_time: Option<Time>,
    /// When a final phase was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub finished_time: Option<Time>,
}
