//! Release payloads, as OpenShift's cluster-version operator has them: a folder of manifests that is a release.
//!
//! Everything here is pure. Files become a [`Payload`], settings decide what happens with each of its manifests, and the
//! state of the release makes a [`TaskGraph`](billhook_plan::TaskGraph) of them. Nothing after the graph knows of payloads.

pub mod annotations;
pub mod cluster_version;
mod deletion;
mod graph;
mod history;
pub mod lint;
pub mod messages;
pub mod preconditions;
mod problem;
mod read;
mod rules;
mod settings;
mod text;

pub use deletion::deletion_policy;
pub use graph::graph;
pub use history::{HistoryEntry, State, UpdateState, last_completed};
pub use problem::{Problem, ProblemKind};
pub use read::{Entry, File, Payload, RunStep};
pub use rules::{Decision, Decisions, Outcome, Rule, Unused, unused};
pub use settings::{DEFAULT_FEATURE_SET, DEFAULT_PROFILE, FEATURE_SETS, Override, Settings};
