//! The problems that prevent a plan, as data. `text.rs` has their wording.

use std::{collections::HashSet, time::Duration};

use billhook_objects::{ApiVersion, GroupKind, KindName, ObjectKey, ReleaseName, Source};

use serde::{Serialize, Serializer};

use crate::{Annotation, ListFailure, UnservedKind};

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
    /// An object is being deleted, or another operation works on the release. The same command can succeed later.
    Busy,
}

/// A problem that prevents a plan. A `source` is where the manifest is, a `group` its path in the policy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum Problem {
    /// The input contains no objects.
    NoObjects,
    /// A group names a target whose cluster was not given.
    UnknownTarget { group: String, target: String },
    /// A kind in the policy has several meanings.
    AmbiguousKind { group: String, name: KindName, candidates: Vec<GroupKind> },
    /// A manifest has a kind that neither the cluster nor the release's CRDs define.
    NotServed { source: Source, kind: UnservedKind },
    /// A manifest spells its kind differently than the cluster does.
    Misspelt { source: Source, written: String, correct: String },
    /// The cluster does not serve the version of a manifest.
    VersionNotServed { source: Source, kind: String, api_version: ApiVersion, served: Vec<String> },
    /// The release's own CRD does not serve the version of a manifest.
    VersionNotDefined { source: Source, kind: String, api_version: ApiVersion, crd: ObjectKey, served: Vec<String> },
    /// No version of a kind is served before and after the update, so that its objects cannot be pruned.
    NoLastingVersion { crd: ObjectKey, kind: GroupKind, before: Vec<String>, after: Vec<String> },
    /// A namespaced object has no namespace.
    NoNamespace {
        /// Where the manifest is, if there is one.
        source: Option<Source>,
        object: ObjectKey,
    },
    /// The value of an annotation in a manifest cannot be read.
    Annotation {
        source: Source,
        object: ObjectKey,
        annotation: Annotation,
        /// The annotation as written, with its prefix.
        key: String,
        value: String,
    },
    /// Two manifests define one object.
    Duplicate { source: Source, object: ObjectKey, first: Source },
    /// Objects of a deployment group need a Namespace or CRD that is not applied earlier.
    TooEarly { group: String, count: usize, needed: ObjectKey },
    /// Objects need a Namespace or CRD that is only applied after them.
    AppliedLater { group: String, count: usize, needed: ObjectKey },
    /// Objects are applied that need a Namespace or CRD whose deletion is requested.
    DeletesNeeded { count: usize, needed: ObjectKey },
    /// A namespace does not exist.
    MissingNamespace { namespace: String },
    /// A list failed.
    ListFailed(ListFailure),
    /// The snapshot does not contain the answer to a query for an object.
    NotLookedUp { kind: GroupKind },
    /// An aggregated API is unavailable, so that objects of a kind cannot be looked up.
    UnavailableApi {
        kind: GroupKind,
        /// The API, as `group/version`.
        api: String,
    },
    /// The plan would delete a system namespace.
    SystemNamespace { object: ObjectKey },
    /// An update would delete a Namespace that no update deletes.
    ProtectedNamespace {
        object: ObjectKey,
        /// Whether it holds the inventory of the release; else it is a system namespace.
        holds_inventory: bool,
    },
    /// An object belongs to another release.
    OtherRelease { object: ObjectKey, release: String },
    /// An object exists and belongs to no release.
    Unowned {
        object: ObjectKey,
        /// The release whose label it carries, which no longer exists.
        former: Option<String>,
    },
    /// An object is in the record of the release, but does not carry its label.
    Unlabelled { object: ObjectKey },
    /// An object carries the label of the release, but is not in its record.
    Unrecorded { object: ObjectKey },
    /// An object is being deleted.
    BeingDeleted { object: ObjectKey },
    /// The record that would hold a backup is deleted with its namespace.
    BackupLost { namespace: String },
    /// The cluster does not serve the kind of an object in a backup.
    NotRestorable { object: ObjectKey },
    /// Another operation works on the release.
    Locked(Locked),
    /// Another operation has changed the release since the plan was made.
    Outdated { release: String },
}

/// The operation that works on a release.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Locked {
    /// The release.
    #[serde(skip)]
    pub release: ReleaseName,
    /// The operation, such as `apply`.
    pub operation: String,
    /// Its holder, such as `user@host`.
    pub holder: String,
    /// The number of its process.
    pub pid: u32,
    /// When it started, by the holder's clock.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// When the lock expires unless the holder renews it; none if the server does not tell its age.
    #[serde(rename = "expiresInSeconds", serialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Duration>,
    /// The Lease that the holder renews instead of the lock, as `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
}

#[expect(clippy::ref_option, reason = "the signature that serde calls")]
fn seconds<S: Serializer>(time: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    time.map(|time| time.as_secs()).serialize(serializer)
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
            | Self::Annotation { .. }
            | Self::Duplicate { .. }
            | Self::TooEarly { .. }
            | Self::AppliedLater { .. }
            | Self::DeletesNeeded { .. }
            | Self::MissingNamespace { .. } => PlanErrorKind::Input,
            Self::ListFailed(_) | Self::NotLookedUp { .. } | Self::UnavailableApi { .. } => PlanErrorKind::Unreadable,
            Self::SystemNamespace { .. }
            | Self::ProtectedNamespace { .. }
            | Self::OtherRelease { .. }
            | Self::Unowned { .. }
            | Self::Unlabelled { .. }
            | Self::Unrecorded { .. }
            | Self::BackupLost { .. }
            | Self::NotRestorable { .. } => PlanErrorKind::Refused,
            Self::BeingDeleted { .. } | Self::Locked(_) | Self::Outdated { .. } => PlanErrorKind::Busy,
        }
    }
}

impl From<Problem> for PlanError {
    fn from(problem: Problem) -> Self {
        Self { kind: problem.kind(), problems: vec![problem] }
    }
}

impl PlanError {
    /// Adds the problems of another check.
    #[must_use]
    pub fn with(mut self, other: Result<(), Self>) -> Self {
        if let Err(other) = other {
            self.kind = self.kind.min(other.kind);
            self.problems.extend(other.problems);
            self.problems.sort_by_key(Problem::kind);
        }
        self
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
