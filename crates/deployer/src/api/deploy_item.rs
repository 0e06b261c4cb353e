//! DeployItems.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{ObjectReference, embedded, time};

/// What a deployer is to deploy, and where.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "landscaper.gardener.cloud",
    version = "v1alpha1",
    kind = "DeployItem",
    doc = "A DeployItem says what is deployed to a target, by which deployer, and how it is deleted.",
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
    /// The cluster that is deployed to: a Target of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<ObjectReference>,
    /// The Context of the same namespace, with the credentials of registries; `default` where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The configuration of the deployer: a ProviderConfiguration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded")]
    pub config: Option<Value>,
    /// How long the deployer may take, as a Go duration, or `none` for no limit; ten minutes where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Whether a reconcile does nothing as long as the specification has not changed since it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_on_change_only: Option<bool>,
    /// What holds when the item is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_delete: Option<OnDelete>,
}

/// What holds when an item is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OnDelete {
    /// Whether nothing is uninstalled where the target cluster is already gone. Landscaper decides this by its own target
    /// sync objects, which only it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_uninstall_if_cluster_removed: Option<bool>,
}

/// The state of a DeployItem.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployItemStatus {
    /// The phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub phase: Option<Phase>,
    /// The generation that was reconciled last, or is being reconciled.
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
    /// Who has reconciled the item.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployer: Option<DeployerInformation>,
    /// The state that the deployer keeps: the resources it manages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "embedded")]
    pub provider_status: Option<Value>,
    /// The Secret with the exported values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub export_ref: Option<ObjectReference>,
    /// The job that Landscaper wants done.
    #[serde(default, rename = "jobID", skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// The job that was done last.
    #[serde(default, rename = "jobIDFinished", skip_serializing_if = "Option::is_none")]
    pub job_id_finished: Option<String>,
    /// When the job was set.
    #[serde(default, rename = "jobIDGenerationTime", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub job_id_generation_time: Option<Time>,
    /// Deprecated in Landscaper; read by nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deploy_item_phase: Option<String>,
    /// When the state changed.
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
    /// It is nearly done; only other deployers use it.
    Completing,
    /// All is deployed and ready.
    Succeeded,
    /// It could not be deployed.
    Failed,
    /// Its deletion was triggered.
    InitDelete,
    /// It is being deleted.
    Deleting,
    /// It could not be deleted.
    DeleteFailed,
    /// A phase that this version does not know.
    #[serde(other)]
    Unknown,
}

impl Phase {
    /// Whether nothing is done until the next trigger.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::DeleteFailed)
    }
}

/// A condition, in Gardener's form.
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
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// The codes of a problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub codes: Vec<ErrorCode>,
}

/// An error that occurred.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ItemError {
    /// What was being done.
    pub operation: String,
    /// When it occurred first.
    #[schemars(schema_with = "time")]
    pub last_transition_time: Time,
    /// When it occurred last.
    #[schemars(schema_with = "time")]
    pub last_update_time: Time,
    /// Why, in one word.
    pub reason: String,
    /// Why, for people.
    pub message: String,
    /// What kind of problem it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub codes: Vec<ErrorCode>,
}

/// The codes that Landscaper knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ErrorCode {
    /// Credentials or rights are missing.
    #[serde(rename = "ERR_UNAUTHORIZED")]
    Unauthorized,
    /// Objects could not be deleted.
    #[serde(rename = "ERR_CLEANUP")]
    CleanupResources,
    /// The configuration is wrong: nobody but its author can mend it.
    #[serde(rename = "ERR_CONFIGURATION_PROBLEM")]
    ConfigurationProblem,
    /// Something went wrong that the author of the item cannot mend.
    #[serde(rename = "ERR_INTERNAL_PROBLEM")]
    InternalProblem,
    /// It took longer than it may.
    #[serde(rename = "ERR_TIMEOUT")]
    Timeout,
    /// A webhook refused something or did not answer.
    #[serde(rename = "ERR_WEBHOOK")]
    Webhook,
    /// A code of another deployer.
    #[serde(other, rename = "ERR_OTHER")]
    Other,
}

/// Who reconciles items.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeployerInformation {
    /// Which of them.
    pub identity: String,
    /// The name of the deployer.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// When the state of an item changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TransitionTimes {
    /// When the work was triggered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub trigger_time: Option<Time>,
    /// When the work was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub init_time: Option<Time>,
    /// When the objects were deployed, and their readiness was waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub wait_time: Option<Time>,
    /// When a final phase was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "time")]
    pub finished_time: Option<Time>,
}
