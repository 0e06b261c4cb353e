//! What an apply needs to know.

use std::{collections::BTreeMap, sync::Arc};

use billhook_objects::{Catalog, Manifest, ReleaseName};
use billhook_plan::{AppliedVersion, Directives, MissingNamespaces, Note, TaskGraph, Unlabelled, Wait};
use billhook_policy::{Policy, Propagation, UpdateStrategy};

use super::super::record::Inherited;

/// Returns the graph of a deployment for the versions that were applied before, the newest first.
pub type GraphOf = Box<dyn FnOnce(&[AppliedVersion]) -> TaskGraph + Send>;

/// The input of an apply. [`ApplyInput::new`] has the values that most callers leave.
pub struct ApplyInput {
    /// The release.
    pub release: ReleaseName,
    /// Its objects, as written.
    pub manifests: Vec<Manifest>,
    /// The namespace of objects without one; if it is none, such an object is an error.
    pub namespace: Option<String>,
    /// Instructions for some of the manifests, by their index.
    pub directives: BTreeMap<usize, Directives>,
    /// How existing objects are updated.
    pub strategy: UpdateStrategy,
    /// What the release is if it has no record.
    pub unrecorded: Unrecorded,
    /// What happens to existing objects that do not belong to the release for sure.
    pub unowned: Unowned,
    /// What happens to namespaces that do not exist and that the release does not contain.
    pub missing_namespaces: MissingNamespaces,
    /// The policy to record; if it is none, the recorded one remains.
    pub policy: Option<Policy>,
    /// The order of the deployment.
    pub order: DeploymentOrder,
    /// The version that is applied, for the history in the record; none for a release without versions.
    pub version: Option<String>,
    /// Whether to delete objects that the new version no longer contains.
    pub prune: bool,
    /// More deletions than this are dangerous.
    pub max_deletions: Option<usize>,
    /// How dependents of pruned objects are treated if the policy does not specify it.
    pub propagation: Propagation,
    /// Notes of earlier stages, such as those on a chart's hooks.
    pub notes: Vec<Note>,
    /// The kinds of the release's cluster, if they are known already.
    pub catalog: Option<Arc<Catalog>>,
}

impl ApplyInput {
    /// Returns the input of an apply that refuses what it has no right to, prunes nothing, waits for all objects, and takes
    /// objects without a namespace to be in that of the release.
    pub fn new(release: ReleaseName, manifests: Vec<Manifest>) -> Self {
        Self {
            namespace: Some(release.namespace().to_owned()),
            release,
            manifests,
            directives: BTreeMap::new(),
            strategy: UpdateStrategy::ServerSide,
            unrecorded: Unrecorded::Inherits(Vec::new()),
            unowned: Unowned::Refuse,
            missing_namespaces: MissingNamespaces::Refuse,
            policy: None,
            order: DeploymentOrder::Groups(Wait::All),
            version: None,
            prune: false,
            max_deletions: None,
            propagation: Propagation::Background,
            notes: Vec::new(),
            catalog: None,
        }
    }
}

/// What a release without a record is.
pub enum Unrecorded {
    /// New for sure, so that no record is read. If there is one nevertheless, writing the new one fails with a conflict before
    /// anything is changed.
    New,
    /// The release of an earlier deployer with these objects; new if there are none.
    Inherits(Vec<Inherited>),
    /// New, or a release whose record was lost: its objects are looked for by its label if one of them carries it. A new one
    /// without objects is an error.
    Swept,
}

/// What happens to existing objects that do not belong to the release for sure: those of the new version that belong to no
/// release, and those to prune that the record names, but that do not carry the release's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unowned {
    /// They are a problem, and no plan is made.
    Refuse,
    /// They are taken over, or pruned. A dangerous note reports those to prune.
    Take,
    /// Those of the new version are taken over; those to prune remain, and a dangerous note reports them.
    TakeNew,
}

impl Unowned {
    /// Returns whether objects of the new version are taken over.
    pub(super) fn adopts(self) -> bool {
        self != Self::Refuse
    }

    /// Returns what happens to those to prune.
    pub(super) fn unlabelled(self) -> Unlabelled {
        match self {
            Self::Refuse => Unlabelled::Refuse,
            Self::Take => Unlabelled::Take,
            Self::TakeNew => Unlabelled::Leave,
        }
    }
}

/// The order of a deployment.
pub enum DeploymentOrder {
    /// That of the policy's deployment groups; at the end, this is waited for.
    Groups(Wait),
    /// That of a graph, which also says which objects are to be deleted and what is waited for. Its indexes are those of
    /// [`ApplyInput::manifests`].
    Graph(GraphOf),
}

impl DeploymentOrder {
    /// Returns the graph for the versions that were applied before, or what groups wait for.
    pub(super) fn after(self, history: &[AppliedVersion]) -> (Option<TaskGraph>, Wait) {
        match self {
            Self::Groups(wait) => (None, wait),
            Self::Graph(graph) => (Some(graph(history)), Wait::Nothing),
        }
    }
}
