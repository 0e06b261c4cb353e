//! The result of a readiness check.

use serde::Serialize;

/// Whether an object is ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "reason", rename_all = "kebab-case")]
pub enum Readiness {
    /// It is ready.
    Ready,
    /// It is not ready yet, for this reason.
    NotYet(String),
    /// It will not become ready by itself, for this reason.
    Failed(String),
}

impl Readiness {
    pub(super) fn not_observed() -> Self {
        Self::NotYet("its controller has not observed the current generation yet".into())
    }
}

impl From<Result<(), String>> for Readiness {
    fn from(checks: Result<(), String>) -> Self {
        checks.map_or_else(Self::NotYet, |()| Self::Ready)
    }
}

/// Whether an object is healthy, and how its state is classified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is ready, and if not, the message about it.
    pub readiness: Readiness,
    /// The reason as a word, where the rules have one.
    pub code: Option<&'static str>,
    /// What the object itself says, if the message does not contain it.
    pub detail: Option<String>,
}

impl Verdict {
    pub(super) const READY: Self = Self { readiness: Readiness::Ready, code: None, detail: None };

    pub(super) fn of(readiness: Readiness, code: &'static str) -> Self {
        Self { readiness, code: Some(code), detail: None }
    }

    pub(super) fn because(self, detail: String) -> Self {
        Self { detail: Some(detail), ..self }
    }
}

impl From<Readiness> for Verdict {
    fn from(readiness: Readiness) -> Self {
        Self { readiness, code: None, detail: None }
    }
}
