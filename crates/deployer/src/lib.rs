//! A controller that deploys and deletes DeployItems, in place of Landscaper's manifest deployer and helm deployer.
//!
//! A DeployItem is compiled to manifests and a policy, from which `billhook_engine` makes and runs a plan. This crate does
//! not decide how objects are deployed or deleted. It handles the input (the API, the triggers, the Targets) and the output
//! (status, conditions, Events, metrics, exports).
//!
//! An item passes through these modules: `dispatcher` (what is due), `reconcile` (from the first status to the last),
//! `reconcile::deploy` or `reconcile::delete` (the plan), `run` (the engine's work on it), `item` (writes to the item).

pub mod api;
mod charts;
mod configuration;
mod controller;
mod counts;
mod crashes;
pub mod crds;
mod dispatcher;
mod error;
mod events;
mod exports;
mod fair;
mod foresight;
mod halt;
mod health;
mod helms;
mod item;
mod journal;
mod known;
mod managed;
mod metrics;
mod mode;
mod objects;
mod owner;
mod progress;
mod readiness;
mod reconcile;
mod retry;
mod run;
mod schedule;
mod shard;
mod shared;
mod slots;
mod status;
mod target;
mod text;
mod trigger;
mod waited;
mod warnings;

pub use billhook_charts::Helm;
pub use controller::{Apart, Controller, ControllerError};
pub use dispatcher::TYPES;
pub use helms::MAX_HELMS;
pub use metrics::Metrics;
pub use mode::Mode;
pub use shard::Shard;
pub use shared::{ControllerOptions, NAME};
pub use target::{Connect, ConnectionRules, SelectorError, TargetSelector};
