//! The versions of a release that were applied.

use serde::{Deserialize, Serialize};

/// How many versions a record keeps: as many as the history of a `ClusterVersion`.
pub const MAX_HISTORY: usize = 100;

/// A version of a release that was applied, as in the history of a `ClusterVersion`. Times are in RFC 3339 format, by the
/// clock of the caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppliedVersion {
    /// The version.
    pub version: String,
    /// Whether it was applied completely.
    pub state: VersionState,
    /// When it was first applied.
    pub started_time: String,
    /// When it was first applied completely, or when another version was applied instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<String>,
}

/// Whether a version was applied completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum VersionState {
    /// An apply of the version has succeeded.
    Completed,
    /// No apply of it has succeeded yet.
    Partial,
}

/// Notes in a history that a version is being applied. The version before it, if it was not completed, ends.
pub fn begin_version(history: &mut Vec<AppliedVersion>, version: &str, now: &str) {
    if history.first().is_some_and(|last| last.version == version) {
        return;
    }
    if let Some(last) = history.first_mut() {
        last.completion_time.get_or_insert_with(|| now.to_owned());
    }
    let (version, started_time) = (version.to_owned(), now.to_owned());
    let begun = AppliedVersion { version, state: VersionState::Partial, started_time, completion_time: None };
    history.insert(0, begun);
    history.truncate(MAX_HISTORY);
}

/// Notes in a history that its first version is applied completely. Returns whether that is new.
pub fn complete_version(history: &mut [AppliedVersion], now: &str) -> bool {
    let Some(last) = history.first_mut().filter(|last| last.state == VersionState::Partial) else {
        return false;
    };
    last.state = VersionState::Completed;
    last.completion_time = Some(now.to_owned());
    true
}
