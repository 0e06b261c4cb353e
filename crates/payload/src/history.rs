//! The versions that a release has had, and the state that follows from them.

use serde::{Deserialize, Serialize};

/// A version that was applied, as `ClusterVersion.status.history` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    /// The version.
    pub version: String,
    /// Whether all its manifests were applied.
    pub state: UpdateState,
}

/// How far a version has been applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UpdateState {
    /// All manifests were applied at least once.
    Completed,
    /// The version was replaced before that, or it is still being applied.
    Partial,
}

/// What a pass over a payload is for. It decides about the graph, and about whether objects are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// No version was completed yet.
    Initializing,
    /// Another version than the last completed one is applied.
    Updating,
    /// The last completed version is applied again.
    Reconciling,
}

impl State {
    /// Returns the state in which a version is applied. The newest version of the history is the first.
    pub fn of(history: &[HistoryEntry], version: &str) -> Self {
        match last_completed(history) {
            None => Self::Initializing,
            Some(completed) if completed.version == version => Self::Reconciling,
            Some(_) => Self::Updating,
        }
    }

    /// Returns whether objects are deleted in this state. In the others their existence is only looked up.
    pub fn deletes(self) -> bool {
        self == Self::Updating
    }
}

/// Returns the newest version that was completed.
pub fn last_completed(history: &[HistoryEntry]) -> Option<&HistoryEntry> {
    history.iter().find(|entry| entry.state == UpdateState::Completed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asserts the state for a history such as `4.21.0 partial, 4.20.0`, newest first.
    fn check(history: &str, version: &str, expected: State) {
        let entries = history.split(", ").filter(|entry| !entry.is_empty());
        let history: Vec<_> = entries
            .map(|entry| match entry.strip_suffix(" partial") {
                Some(version) => HistoryEntry { version: version.to_owned(), state: UpdateState::Partial },
                None => HistoryEntry { version: entry.to_owned(), state: UpdateState::Completed },
            })
            .collect();
        assert_eq!(State::of(&history, version), expected, "{history:?} {version}");
    }

    #[test]
    fn the_state_follows_from_the_last_completed_version() {
        check("", "4.20.0", State::Initializing);
        check("4.20.0 partial", "4.20.0", State::Initializing);
        check("4.20.1 partial, 4.20.0 partial", "4.20.0", State::Initializing);
        check("4.20.0", "4.20.0", State::Reconciling);
        check("4.20.0", "4.20.1", State::Updating);
        check("4.20.1 partial, 4.20.0", "4.20.1", State::Updating);
        check("4.20.1 partial, 4.20.0", "4.20.0", State::Reconciling);
        check("4.20.1, 4.20.0", "4.20.0", State::Updating);
    }
}
