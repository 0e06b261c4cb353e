//! The versions of a release that were applied.

use serde::{Deserialize, Serialize};

/// How many versions a record keeps: as many as the history of a `ClusterVersion`.
pub(crate) const MAX_HISTORY: usize = 100;

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
    // The newest completed version decides what the next apply is.
    let completed = history.iter().position(|entry| entry.state == VersionState::Completed);
    while history.len() > MAX_HISTORY {
        let last = history.len() - 1;
        history.remove(if completed == Some(last) { last - 1 } else { last });
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_history_keeps_the_newest_completed_version() {
        let mut history = Vec::new();
        begin_version(&mut history, "completed", "t");
        complete_version(&mut history, "t");
        for n in 0..2 * MAX_HISTORY {
            begin_version(&mut history, &n.to_string(), "t");
        }
        assert_eq!(history.len(), MAX_HISTORY);
        assert_eq!(history[0].version, (2 * MAX_HISTORY - 1).to_string());
        assert_eq!(history[MAX_HISTORY - 2].version, (MAX_HISTORY + 1).to_string());
        assert_eq!(history[MAX_HISTORY - 1].version, "completed");
        complete_version(&mut history, "t");
        begin_version(&mut history, "next", "t");
        assert_eq!((history.len(), history[MAX_HISTORY - 1].state), (MAX_HISTORY, VersionState::Partial));
    }
}
