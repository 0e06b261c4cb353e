//! Why an operation failed.

use billhook_cluster::Error;
use billhook_objects::ReleaseName;
use billhook_plan::PlanError;

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// No plan could be made; nothing was changed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The release does not exist.
    #[error("find release {0}")]
    NoRelease(ReleaseName),
    /// A request failed.
    #[error(transparent)]
    Cluster(#[from] Error),
}
