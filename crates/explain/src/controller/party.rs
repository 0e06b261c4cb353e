//! The party that removes a finalizer.

use crate::{Fact, NextStep, ObjectRef, ResponsibleState, Strength};

/// The party that removes a finalizer.
#[derive(Clone)]
pub(crate) struct Controller {
    /// For people: `Deployment.apps shop/database-operator`.
    pub(crate) name: String,
    pub(crate) state: ResponsibleState,
    /// What is missing; empty if it works.
    pub(crate) problem: String,
    pub(crate) strength: Strength,
    pub(crate) facts: Vec<Fact>,
    /// The workload that it is, if it is one.
    pub(crate) workload: Option<ObjectRef>,
    /// The namespace and name of its ServiceAccount.
    pub(crate) account: Option<(String, String)>,
    /// How it is started again.
    pub(crate) start: Option<NextStep>,
    /// Whether it is a part of the control plane.
    pub(crate) of_control_plane: bool,
}

impl Controller {
    pub(crate) fn new(name: impl Into<String>, state: ResponsibleState, strength: Strength) -> Self {
        Self {
            name: name.into(),
            state,
            problem: String::new(),
            strength,
            facts: Vec::new(),
            workload: None,
            account: None,
            start: None,
            of_control_plane: false,
        }
    }

    pub(crate) fn absent(
        name: impl Into<String>,
        problem: impl Into<String>,
        strength: Strength,
        facts: Vec<Fact>,
    ) -> Self {
        Self { problem: problem.into(), facts, ..Self::new(name, ResponsibleState::Absent, strength) }
    }
}
