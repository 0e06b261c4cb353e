//! The API: DeployItem, Target and Context of `landscaper.gardener.cloud/v1alpha1`, as Landscaper defines them.
//!
//! They are read leniently (all that is not needed here is skipped) and never written as a whole: what is changed is
//! patched, so that fields of others survive.

mod context;
mod deploy_item;
mod target;

pub use context::{Context, ContextSpec, LocalObjectReference, SecretKeyReference, VerificationSignature};
pub use deploy_item::{
    Condition, DeployItem, DeployItemSpec, DeployItemStatus, DeployerInformation, ErrorCode, ItemError, OnDelete,
    Phase, TransitionTimes,
};
pub use target::{KUBERNETES_CLUSTER, Target, TargetSecretReference, TargetSpec};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// The API group of all of them.
pub const GROUP: &str = "landscaper.gardener.cloud";
/// The version of all of them.
pub const VERSION: &str = "v1alpha1";
/// The finalizer that keeps a DeployItem until what it deployed is gone.
pub const FINALIZER: &str = "finalizer.landscaper.gardener.cloud";
/// An annotation that asks for something to be done once: `reconcile`, `interrupt` or `test-reconcile`.
pub const OPERATION: &str = "landscaper.gardener.cloud/operation";
/// An annotation: with the value `true`, a deleted DeployItem leaves what it deployed.
pub const DELETE_WITHOUT_UNINSTALL: &str = "landscaper.gardener.cloud/delete-without-uninstall";
/// An annotation that turns `continuousReconcile` off with the value `false`.
pub const CONTINUOUS_RECONCILE_ACTIVE: &str = "continuousreconcile.extensions.landscaper.gardener.cloud/active";

/// The name of an object, and the namespace where that is another one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectReference {
    /// The name of the object.
    pub name: String,
    /// The namespace of the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The schema of a time, which k8s-openapi's type has none of by itself.
fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// The schema of a value of any type.
fn anything(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-preserve-unknown-fields": true })
}

/// The schema of an object with any fields.
fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true })
}

/// The schema of an object of any kind within an object.
fn embedded(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}
