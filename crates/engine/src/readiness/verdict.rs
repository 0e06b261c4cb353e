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
