//! DeployItem, Target and Context of `landscaper.gardener.cloud/v1alpha1`, as Landscaper defines them.
//!
//! Unknown fields are ignored when reading. Objects are only patched, never replaced, so that these fields are preserved.

mod context;
mod deploy_item;
mod schema;
mod target;

pub use context::{Context, ContextSpec, LocalObjectReference, SecretKeyReference, VerificationSignature};
pub use deploy_item::{
    Condition, DeployItem, DeployItemSpec, DeployItemStatus, DeployerInformation, ErrorCode, ItemError, OnDelete,
    Phase, TransitionTimes,
};
pub use schema::ObjectReference;
pub(crate) use schema::size;
pub(crate) use target::TOO_LARGE;
pub use target::{KUBERNETES_CLUSTER, Target, TargetSecretReference, TargetSpec};

use billhook_objects::GroupKind;
use billhook_plan::Resource;

/// The API group.
pub const GROUP: &str = "landscaper.gardener.cloud";
/// The API version.
pub const VERSION: &str = "v1alpha1";
/// The finalizer that keeps a DeployItem until its objects are gone.
pub const FINALIZER: &str = "finalizer.landscaper.gardener.cloud";
/// The annotation that requests an operation: `reconcile`, `interrupt` or `test-reconcile`.
pub const OPERATION: &str = "landscaper.gardener.cloud/operation";
/// The annotation that, with the value `true`, makes the deletion of a DeployItem leave its objects in the cluster.
pub const DELETE_WITHOUT_UNINSTALL: &str = "landscaper.gardener.cloud/delete-without-uninstall";
/// The annotation that, with the value `false`, turns `continuousReconcile` off.
pub const CONTINUOUS_RECONCILE_ACTIVE: &str = "continuousreconcile.extensions.landscaper.gardener.cloud/active";

/// Returns the resource of a kind of this API.
pub(crate) fn resource(kind: &str, plural: &str) -> Resource {
    Resource { kind: GroupKind::new(GROUP, kind), version: VERSION.into(), plural: plural.into(), namespaced: true }
}

/// Returns whether the item has our finalizer.
pub fn has_finalizer(item: &DeployItem) -> bool {
    item.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER)
}
