//! The parts of a cause: evidence, who is responsible, what to do next.

use serde::{Deserialize, Serialize};

use crate::ObjectRef;

/// One piece of evidence: where it was read, and what it was.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Fact {
    /// The object that says so.
    pub object: ObjectRef,
    /// The field, or what was asked about the object.
    pub path: String,
    /// The value or answer.
    pub value: String,
}

impl Fact {
    /// Quotes a field.
    pub fn new(object: &ObjectRef, path: impl Into<String>, value: impl Into<String>) -> Self {
        Self { object: object.clone(), path: path.into(), value: value.into() }
    }

    /// Quotes that an object does not exist.
    pub(crate) fn missing(object: &ObjectRef) -> Self {
        Self::new(object, "", "NotFound")
    }
}

/// Who has to act.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Responsible {
    /// A name for people: `Deployment shop/database-operator`.
    pub name: String,
    /// Whether it works.
    pub state: ResponsibleState,
}

impl Responsible {
    pub(crate) fn new(name: impl Into<String>, state: ResponsibleState) -> Self {
        Self { name: name.into(), state }
    }
}

/// Whether the responsible party works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponsibleState {
    /// It works.
    Working,
    /// It exists and does not work, or reports why it cannot finish.
    Failing,
    /// It does not exist, or is scaled to zero.
    Absent,
    /// The evidence does not tell.
    Unknown,
}

/// One thing to do, the safest first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct NextStep {
    /// What is lost.
    pub risk: Risk,
    /// What it does, and what is lost by it.
    pub message: String,
    /// The exact command; none where the evidence does not support one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

/// What a next step costs, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Risk {
    /// Nothing.
    None,
    /// Resources outside of the cluster remain.
    LeavesExternal,
    /// Other objects or users are affected.
    AffectsOthers,
    /// Data is lost.
    LosesData,
}
