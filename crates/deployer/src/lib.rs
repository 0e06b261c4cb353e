//! DeployItems carried out: the manifest deployer and the helm deployer of Landscaper, as a controller.
//!
//! A DeployItem becomes manifests and a policy, these become a plan, and the engine carries it out: there is nothing here
//! that decides how objects are deployed or deleted. What is here is the way in (the API, when there is work, where it is
//! to be done) and the way out (status, conditions, Events, metrics, exports).

pub mod api;
mod charts;
mod controller;
pub mod crds;
mod error;
mod events;
mod exports;
mod item;
mod managed;
mod metrics;
mod mode;
mod progress;
mod readiness;
mod reconcile;
mod schedule;
mod serve;
mod shard;
mod slots;
mod status;
mod target;
mod trigger;

pub use controller::{Controller, ControllerError, ControllerOptions, NAME, TYPES};
pub use metrics::Metrics;
pub use mode::Mode;
pub use serve::{Probe, Probes, router, serve};
pub use shard::Shard;
pub use target::Connect;
