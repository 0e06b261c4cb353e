//! Why an operation failed.

use billhook_cluster::Error;
use billhook_objects::ReleaseName;
use billhook_plan::{ListFailure, PlanError, Swept};

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// No plan could be made; nothing was changed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The release has no record, and no object carries its label; with what could not be listed.
    #[error("find release {0}")]
    NoRelease(ReleaseName, Vec<ListFailure>),
    /// The release lost its record and with it its policy, and none is given.
    #[error("find the policy of release {0}")]
    PolicyLost(ReleaseName, Box<Swept>),
    /// Another operation took the lock of the release over.
    #[error("keep the lock of release {0}")]
    LockLost(ReleaseName),
    /// The release has no backup.
    #[error("find a backup of release {0}")]
    NoBackup(ReleaseName),
    /// The live objects could not be saved; nothing was changed.
    #[error("save the live objects")]
    NotSaved {
        /// The release, if it is one.
        release: Option<String>,
        /// Why.
        why: String,
    },
    /// A request failed.
    #[error(transparent)]
    Cluster(#[from] Error),
}
