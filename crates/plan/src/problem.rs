//! The problems that prevent a plan, as data. `text.rs` has their wording.

use std::collections::HashSet;

use billhook_objects::{ApiVersion, GroupKind, KindName, ObjectKey, Source};

use crate::{ListFailure, UnservedKind};

/// Why no plan could be made: every problem that was found, not only the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// The kind of the problems; the most severe one if there are several.
    pub kind: PlanErrorKind,
    /// The problems, the most severe first, each once.
    pub problems: Vec<Problem>,
}

/// The kind of a problem, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlanErrorKind {
    /// The input is invalid.
    Input,
    /// The cluster did not return what the plan depends on.
    Unreadable,
    /// A guard rejects the plan.
    Refused,
    /// An object is being deleted. The plan can be made once it is gone.
    Busy,
}

/// A problem that prevents a plan.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Problem {
    /// The input contains no objects.
    NoObjects,
    /// A group names a target whose cluster was not given.
    UnknownTarget {
        /// Where the group is in the policy.
        group: String,
        /// The target.
        target: String,
    },
    /// A kind in the policy has several meanings.
    AmbiguousKind {
        /// Where the group is in the policy.
        group: String,
        /// The kind as written.
        name: KindName,
        /// The kinds it may mean.
        candidates: Vec<GroupKind>,
    },
    /// A manifest has a kind that neither the cluster nor the release's CRDs define.
    NotServed {
        /// Where the manifest is.
        source: Source,
        /// The kind.
        kind: UnservedKind,
    },
    /// A manifest spells its kind differently than the cluster does.
    Misspelt {
        /// Where the manifest is.
        source: Source,
        /// The kind as written.
        written: String,
        /// The correct kind.
        correct: String,
    },
    /// The cluster does not serve the version of a manifest.
    VersionNotServed {
        /// Where the manifest is.
        source: Source,
        /// The kind.
        kind: String,
        /// The version of the manifest.
        api_version: ApiVersion,
        /// The versions that are served.
        served: Vec<String>,
    },
    /// The release's own CRD does not serve the version of a manifest.
    VersionNotDefined {
        /// Where the manifest is.
        source: Source,
        /// The kind.
        kind: String,
        /// The version of the manifest.
        api_version: ApiVersion,
        /// The CRD.
        crd: ObjectKey,
        /// The versions that the CRD serves.
        served: Vec<String>,
    },
    /// No version of a kind is served before and after the update, so that its objects cannot be pruned.
    NoLastingVersion {
        /// The CRD.
        crd: ObjectKey,
        /// The kind.
        kind: GroupKind,
        /// The versions that the cluster serves.
        before: Vec<String>,
        /// The versions that the new CRD serves.
        after: Vec<String>,
    },
    /// A namespaced object has no namespace.
    NoNamespace {
        /// Where the manifest is, if there is one.
        source: Option<Source>,
        /// The object.
        object: ObjectKey,
    },
    /// A cluster-scoped object has a namespace.
    HasNamespace {
        /// The object.
        object: ObjectKey,
    },
    /// Two manifests define one object.
    Duplicate {
        /// Where the second manifest is.
        source: Source,
        /// The object.
        object: ObjectKey,
        /// Where the first manifest is.
        first: Source,
    },
    /// Objects of a deployment group need a Namespace or CRD that is not applied earlier.
    TooEarly {
        /// Where the group is in the policy.
        group: String,
        /// How many objects need it.
        count: usize,
        /// The Namespace or CRD.
        needed: ObjectKey,
    },
    /// A namespace does not exist.
    MissingNamespace {
        /// Its name.
        namespace: String,
    },
    /// A list failed.
    ListFailed(ListFailure),
    /// The snapshot lacks the answer to a query for an object.
    NotLookedUp {
        /// The kind of the object.
        kind: GroupKind,
    },
    /// An aggregated API is unavailable, so that objects of a kind cannot be looked up.
    UnavailableApi {
        /// The kind.
        kind: GroupKind,
        /// The API, as `group/version`.
        api: String,
    },
    /// The plan would delete a system namespace.
    SystemNamespace {
        /// The Namespace.
        object: ObjectKey,
    },
    /// An object belongs to another release.
    OtherRelease {
        /// The object.
        object: ObjectKey,
        /// The other release.
        release: String,
    },
    /// An object exists and belongs to no release.
    Unowned {
        /// The object.
        object: ObjectKey,
    },
    /// An object is being deleted.
    BeingDeleted {
        /// The object.
        object: ObjectKey,
    },
}

impl Problem {
    fn kind(&self) -> PlanErrorKind {
        match self {
            Self::NoObjects
            | Self::UnknownTarget { .. }
            | Self::AmbiguousKind { .. }
            | Self::NotServed { .. }
            | Self::Misspelt { .. }
            | Self::VersionNotServed { .. }
            | Self::VersionNotDefined { .. }
            | Self::NoLastingVersion { .. }
            | Self::NoNamespace { .. }
            | Self::HasNamespace { .. }
            | Self::Duplicate { .. }
            | Self::TooEarly { .. }
            | Self::MissingNamespace { .. } => PlanErrorKind::Input,
            Self::ListFailed(_) | Self::NotLookedUp { .. } | Self::UnavailableApi { .. } => PlanErrorKind::Unreadable,
            Self::SystemNamespace { .. } | Self::OtherRelease { .. } | Self::Unowned { .. } => PlanErrorKind::Refused,
            Self::BeingDeleted { .. } => PlanErrorKind::Busy,
        }
    }
}

impl From<Problem> for PlanError {
    fn from(problem: Problem) -> Self {
        Self { kind: problem.kind(), problems: vec![problem] }
    }
}

impl std::error::Error for PlanError {}

/// Collects problems to report them together.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<Problem>);

impl Problems {
    pub(crate) fn add(&mut self, problem: Problem) {
        self.0.push(problem);
    }

    pub(crate) fn extend(&mut self, error: PlanError) {
        self.0.extend(error.problems);
    }

    /// Fails with the collected problems, if there are any.
    pub(crate) fn check(self) -> Result<(), PlanError> {
        let mut problems = self.0;
        problems.sort_by_key(Problem::kind);
        let mut seen = HashSet::new();
        problems.retain(|problem| seen.insert(problem.clone()));
        match problems.first().map(Problem::kind) {
            Some(kind) => Err(PlanError { kind, problems }),
            None => Ok(()),
        }
    }
}
