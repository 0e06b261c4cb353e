//! Deletion policies in every dialect, compiled to one [`Policy`].
//!
//! Each dialect has its own module, which translates its syntax into the groups of the model; no other crate knows
//! which dialect a policy was written in. Mistakes are [`Diagnostics`]: all of a document at once, each with its path
//! and its place in the source.

mod configuration;
mod control_plane;
mod diagnostic;
mod dialect;
mod document;
mod duration;
mod model;
mod payload;
mod reader;
mod selector;
mod written;

/// The label of objects that Gardener's cleaning of a cluster leaves (gardener/gardener `docs/usage/advanced/shoot_cleanup.md`).
pub const NO_CLEANUP_LABEL: &str = "shoot.gardener.cloud/no-cleanup";

/// The JSON Schema (2020-12) of a policy file. It accepts every valid policy; what it cannot express, such as that all ranks
/// differ, only the reader checks.
pub const POLICY_SCHEMA: &str = include_str!("../../../docs/policy.schema.json");

/// The JSON Schema (2020-12) of a stages file. It accepts every valid file; that the names of stages differ, only the reader
/// checks.
pub const STAGES_SCHEMA: &str = include_str!("../../../docs/stages.schema.json");

/// The JSON Schema (2020-12) of the configuration of a payload. It accepts what the reader accepts, and nothing else.
pub const PAYLOAD_SCHEMA: &str = include_str!("../../../docs/payload.schema.json");

pub use configuration::{
    ChartSource, Export, FromObjectReference, HelmConfiguration, HelmDeployment, HelmOptions, ItemTimeout,
    LabelledKind, ManifestEntry, ManifestPolicy, Operator, PolicyDocument, Provider, ProviderConfiguration,
    ReadinessCheck, ReadinessChecks, Requirement, Schedule, TypedReference,
};
pub use control_plane::control_plane;
pub use diagnostic::{Diagnostic, Diagnostics, Severity, nearest};
pub use dialect::stages::{Stages, UnknownStage, read_stages};
pub use document::{controller_only, parse_configuration, parse_document, parse_timeout, read_policy_file, validate};
pub use duration::{DurationError, GoDuration};
pub use model::{
    DeletionGroup, DeploymentGroup, Force, Members, Policy, Propagation, ResourceClass, UpdateStrategy, WaitFor,
};
pub use payload::{PayloadConfiguration, read_payload_configuration};
pub use selector::{InvalidSelector, LabelOperator, LabelRequirement, LabelSelector, ResourceSelector};
pub use written::write_policy;
