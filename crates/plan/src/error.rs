//! Why there is no plan.

use std::fmt;

/// Why no plan can be made; every problem that was found, not the first alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    /// What kind of problem it is; the gravest where there are several kinds.
    pub kind: PlanErrorKind,
    /// Each problem, as a lower-case fragment with its place.
    pub problems: Vec<String>,
}

/// What keeps a plan from being made, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PlanErrorKind {
    /// What the user wrote is wrong (exit 2).
    Input,
    /// The cluster did not show what the plan has to know (exit 1).
    Unreadable,
    /// A guard refuses (exit 4).
    Refused,
    /// An object is on its way out; once it is gone, there is a plan (exit 4).
    Busy,
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.problems.join("\n"))
    }
}

impl std::error::Error for PlanError {}

/// Collects problems until they are reported together.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    found: Vec<(PlanErrorKind, String)>,
}

impl Problems {
    pub(crate) fn add(&mut self, kind: PlanErrorKind, problem: impl Into<String>) {
        self.found.push((kind, problem.into()));
    }

    pub(crate) fn input(&mut self, problem: impl Into<String>) {
        self.add(PlanErrorKind::Input, problem);
    }

    pub(crate) fn extend(&mut self, error: PlanError) {
        self.found.extend(error.problems.into_iter().map(|problem| (error.kind, problem)));
    }

    /// Reports what was found, each problem once, the gravest kind first.
    pub(crate) fn check(&mut self) -> Result<(), PlanError> {
        let mut found = std::mem::take(&mut self.found);
        found.sort_by_key(|(kind, _)| *kind);
        let Some(&(kind, _)) = found.first() else { return Ok(()) };
        let mut problems: Vec<String> = Vec::with_capacity(found.len());
        let mut seen = std::collections::HashSet::new();
        for (_, problem) in found {
            if seen.insert(problem.clone()) {
                problems.push(problem);
            }
        }
        Err(PlanError { kind, problems })
    }
}
