//! Problems, for which no plan is made.

use std::fmt::{Display, Formatter, Result};

use super::{clip, joined, objects, seconds, suggestion, versions};
use crate::{Locked, NoteKind, PlanError, Problem};

impl Display for Locked {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        write!(f, "another operation works on release {}: {}", self.release, self.holder())?;
        match (&self.lease, self.expires_in) {
            (Some(lease), _) => write!(f, "; its lock is held as long as Lease {lease} is renewed"),
            (None, Some(left)) => write!(f, "; its lock expires in {} unless it is renewed", seconds(left)),
            (None, None) => write!(f, "; the API server does not tell when its lock was last renewed"),
        }
    }
}

impl Locked {
    /// Returns which operation holds the lock, where and since when: `apply by host (process 12) since …`.
    pub fn holder(&self) -> String {
        let Self { operation, holder, pid, since, .. } = self;
        let since = since.as_ref().map(|since| format!(" since {since}")).unwrap_or_default();
        format!("{operation} by {holder} (process {pid}){since}")
    }
}

/// Prints one problem a line.
impl Display for PlanError {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let lines: Vec<_> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::NoObjects => f.write_str("the input contains no objects"),
            Self::BackupLost { namespace } => write!(
                f,
                "the backup would be deleted with Namespace {namespace}, which holds the record of the release"
            ),
            Self::NotRestorable { object } => {
                write!(f, "{object:#} cannot be restored: the cluster does not serve its kind")
            }
            Self::UnknownTarget { group, target } => write!(f, "{group}: target {target:?} is unknown"),
            Self::AmbiguousKind { group, name, candidates } => {
                write!(f, "{group}: {name} is ambiguous: it may be {}", joined(candidates, " or "))
            }
            Self::NotServed { source, kind } => write!(
                f,
                "{source}: neither the cluster nor a CRD of the release defines {}{}",
                kind.name,
                suggestion(kind)
            ),
            Self::Misspelt { source, written, correct } => {
                write!(f, "{source}: kind {written:?} must be spelled {correct:?}")
            }
            Self::VersionNotServed { source, kind, api_version, served } => {
                write!(f, "{source}: {kind} is not served in {api_version}, but in {}", served.join(", "))
            }
            Self::VersionNotDefined { source, kind, api_version, crd, served } => write!(
                f,
                "{source}: {kind} is not served in {api_version}: the release's own {crd:#} serves {}",
                versions(served)
            ),
            Self::NoLastingVersion { crd, kind, before, after } => write!(
                f,
                "{crd:#}: objects of {kind} cannot be pruned because no version is served both before the update ({}) \
                 and after it ({})",
                versions(before),
                versions(after)
            ),
            Self::NoNamespace { source, object } => {
                let source = source.as_ref().map(|source| format!("{source}: ")).unwrap_or_default();
                write!(f, "{source}{object:#} has no namespace, but its kind is namespaced")
            }
            Self::Annotation { source, object, annotation, key, value } => {
                let expected = annotation.expected();
                write!(f, "{source}: {object:#}: annotation {key} must be {expected}, found {:?}", clip(value))
            }
            Self::Duplicate { source, object, first } => {
                write!(f, "{source}: {object:#} is already defined at {first}")
            }
            Self::TooEarly { group, count, needed } => {
                let verb = if *count == 1 { "needs" } else { "need" };
                write!(f, "{group}: {} {verb} {needed:#}, which is not in an earlier deployment group", objects(*count))
            }
            Self::AppliedLater { group, count, needed } => {
                let verb = if *count == 1 { "needs" } else { "need" };
                write!(f, "{group}: {} {verb} {needed:#}, which is only applied later", objects(*count))
            }
            Self::DeletesNeeded { count, needed } => {
                let verb = if *count == 1 { "needs" } else { "need" };
                write!(f, "{needed:#} is to be deleted, but {} to apply {verb} it", objects(*count))
            }
            Self::MissingNamespace { namespace } => write!(f, "namespace {namespace} does not exist"),
            Self::ListFailed(failure) => failure.fmt(f),
            Self::NotLookedUp { kind } => write!(f, "the answers to the queries for {kind} are missing"),
            Self::UnavailableApi { kind, api } => write!(f, "cannot look up {kind}: the API {api} is unavailable"),
            Self::SystemNamespace { object } => {
                write!(f, "{object:#} is a system namespace and is never deleted; exclude it with excludedResources")
            }
            Self::ProtectedNamespace { object, holds_inventory } => {
                NoteKind::ProtectedNamespace { object: object.clone(), holds_inventory: *holds_inventory }.fmt(f)
            }
            Self::OtherRelease { object, release } => write!(f, "{object:#} belongs to release {release}"),
            Self::Unowned { object, former: None } => write!(f, "{object:#} exists and belongs to no release"),
            Self::Unowned { object, former: Some(release) } => {
                write!(f, "{object:#} exists and belongs to no release: release {release} no longer exists")
            }
            Self::Unlabelled { object } => {
                write!(f, "{object:#} is in the record of the release, but does not carry its label")
            }
            Self::Unrecorded { object } => {
                write!(f, "{object:#} carries the label of the release, but is not in its record")
            }
            Self::BeingDeleted { object } => write!(f, "{object:#} is being deleted"),
            Self::Locked(locked) => locked.fmt(f),
            Self::Outdated { release } => {
                write!(f, "another operation changed release {release} after this one had read it")
            }
        }
    }
}
