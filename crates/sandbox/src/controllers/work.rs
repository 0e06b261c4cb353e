//! Items of work.

/// What is to be done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Look whether the owners of an object (a UID) are what they should be.
    References,
    /// Look whether an object (a UID) is garbage, or whether what it waits for is gone.
    Collect,
    /// Look only whether what an object (a UID) waits for is gone.
    Unblock,
    /// Look at all dependents of an object (a UID).
    Dependents,
    /// Make an object (a UID) the owner of nothing.
    Orphan,
    /// Empty a namespace that is being deleted.
    Namespace,
    /// Give a namespace its service account.
    Account,
    /// Accept a definition's names, and serve its kind.
    Definition,
    /// Reconsider the names of all definitions of a group, because some are free again.
    Names,
    /// Delete the objects of a definition that is being deleted.
    Cleanup,
    /// Look whether they are gone.
    CleanupPoll,
    /// Serve the kind of a definition that is gone no longer.
    Unserve,
    Claim,
    /// All claims of a namespace.
    Claims,
    Volume,
    Deployment,
    ReplicaSet,
    Job,
    /// Whatever in a namespace could take in what has lost its owner.
    Adopt,
    JobPod,
    /// Look whether the Service of an APIService is there.
    ApiService,
    /// The same for all that point to a Service.
    ApiServices,
}

/// A task and the object that it is about.
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
