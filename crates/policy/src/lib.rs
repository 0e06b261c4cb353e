//! Deletion policies in every dialect, compiled to one [`Policy`].
//!
//! Each dialect has a module of its own that translates its syntax into the groups of the model; nothing after this
//! crate knows which dialect a policy was written in. Mistakes are [`Diagnostics`]: all of a document at once, each
//! with its path and its place in the source.

mod diagnostic;
mod dialect;
mod document;
mod duration;
mod model;
mod reader;
mod selector;

pub use diagnostic::{Diagnostic, Diagnostics, Severity, nearest};
pub use document::{
    ItemTimeout, ManifestEntry, ManifestPolicy, PolicyDocument, Provider, parse_document, parse_policy_file,
    read_policy_file, validate,
};
pub use duration::{DurationError, GoDuration};
pub use model::{DeletionGroup, DeploymentGroup, Force, Members, Policy, Propagation, ResourceClass, WaitFor};
pub use selector::{LabelOperator, LabelRequirement, LabelSelector, ResourceSelector};
