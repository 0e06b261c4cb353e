//! Work items of the controllers.

use super::set;

/// What to do with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Check the owner references of an object (a UID).
    References,
    /// Collect an object (a UID) if it is garbage, or continue its deletion in the foreground.
    Collect,
    /// Check whether an object (a UID) still waits for its dependents.
    Unblock,
    /// Add work on all dependents of an object (a UID).
    Dependents,
    /// Orphan the dependents of an object (a UID).
    Orphan,
    /// Empty a namespace that is being deleted.
    Namespace,
    /// Create the service account of a namespace.
    Account,
    /// Accept the names of a definition and serve its kind.
    Definition,
    /// Reconsider the names of all definitions of a group, because some are available again.
    Names,
    /// Delete the instances of a definition that is being deleted.
    Cleanup,
    /// Check whether the instances have been deleted.
    CleanupPoll,
    /// Stop serving the kind of a deleted definition.
    Unserve,
    Claim,
    /// All claims of a namespace that are being deleted.
    Claims,
    Volume,
    Deployment,
    ReplicaSet,
    Job,
    /// All workloads of a namespace, which may adopt an object without owner.
    Adopt,
    JobPod,
    /// Compute the status of the PodDisruptionBudgets of a namespace.
    Disruption,
    /// Check the Service of an APIService.
    ApiService,
    /// Check all APIServices that refer to a Service.
    ApiServices,
    /// Remove the endpoints of deleted Pods in a namespace.
    Endpoints,
}

impl Task {
    /// Returns the controller that does the work; none if the API server does it itself.
    pub(super) fn controller(self) -> Option<&'static str> {
        match self {
            Self::References | Self::Collect | Self::Unblock | Self::Dependents | Self::Orphan => Some(set::GARBAGE),
            Self::Namespace => Some(set::NAMESPACES),
            Self::Account => Some(set::ACCOUNTS),
            Self::Claim | Self::Claims => Some(set::CLAIMS),
            Self::Volume => Some(set::VOLUMES),
            Self::Deployment => Some(set::DEPLOYMENTS),
            Self::ReplicaSet => Some(set::REPLICA_SETS),
            Self::Job | Self::JobPod => Some(set::JOBS),
            Self::Disruption => Some(set::DISRUPTION),
            // Adoption only adds work for the controllers of workloads.
            Self::Adopt => None,
            Self::Definition | Self::Names | Self::Cleanup | Self::CleanupPoll | Self::Unserve => None,
            Self::ApiService | Self::ApiServices | Self::Endpoints => None,
        }
    }
}

/// A task and the object that it concerns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Work {
    pub(super) task: Task,
    pub(super) namespace: Box<str>,
    pub(super) name: Box<str>,
}

impl Work {
    pub(super) fn new(task: Task, namespace: &str, name: &str) -> Self {
        Self { task, namespace: namespace.into(), name: name.into() }
    }
}
