//! Gardener extensions in Rust: an actuator for the objects of a kind, and the controller that reconciles, deletes and
//! force-deletes them with it.
//!
//! The author of an extension implements [`Actuator`]; the [`Controller`] does what Gardener's generic reconcilers do: it
//! dispatches by the object, its annotations and its Shoot, writes `lastOperation` and `lastError` with Gardener's codes, and
//! keeps the finalizer as long as something is left. An extension needs only this crate, `kube` and `tokio`.
//!
//! ```
//! use billhook_extension::{Actuator, ActuatorError, Cluster, Context, Controller, Outcome};
//! use kube::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
//! #[kube(group = "extensions.gardener.cloud", version = "v1alpha1", kind = "DNSRecord", plural = "dnsrecords", namespaced)]
//! struct DnsRecordSpec {
//!     name: String,
//!     values: Vec<String>,
//! }
//!
//! struct Printer;
//!
//! impl Actuator for Printer {
//!     type Object = DNSRecord;
//!
//!     async fn reconcile(&self, _: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
//!         println!("{} is {}", record.spec.name, record.spec.values.join(", "));
//!         Ok(Outcome::done())
//!     }
//!
//!     async fn delete(&self, _: &Context, record: &DNSRecord, _: &Cluster) -> Result<Outcome, ActuatorError> {
//!         println!("{} is nothing", record.spec.name);
//!         Ok(Outcome::done())
//!     }
//! }
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = billhook_extension::client(kube::Config::infer().await?)?;
//! let shutdown = async { drop(tokio::signal::ctrl_c().await) };
//! Controller::new(client, Printer).kind_type("printer").run(shutdown).await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Force deletion
//!
//! When the owner of a Shoot sets the annotation `confirmation.gardener.cloud/force-deletion`, a `delete` that is running or
//! waits for its next try is cancelled, and [`Actuator::force_delete`] is called. A watch on the `Cluster` objects triggers
//! this, so that it takes no longer than the event. See [`Actuator`] for what an actuator must guarantee.
//!
//! # Requests
//!
//! A steady reconcile takes three requests per object, besides those of the actuator. A controller without work sends nothing
//! but the renewal of its Lease and of its two watches. A request that fails transiently is retried; after a failure of the
//! actuator, an object pauses for 1 s, doubled each time up to 2 min, or until something asks for it.
//!
//! # Features
//!
//! Both are on by default, and without both, no HTTP server is compiled: `serve` for `Monitor::serve`, and `webhook` for what
//! answers admission reviews in [`admission`].

mod actuator;
mod attempt;
mod context;
mod controller;
mod created;
mod dispatch;
mod driver;
mod error;
mod events;
mod force;
mod gardener;
mod monitor;
mod object;
mod queue;
mod status;
mod trigger;

pub use actuator::{Actuator, Object, Outcome, SeedObject};
/// Makes a client from a configuration: kube's own without retries, which would bypass leader election, and without two
/// delays of every new connection.
pub use billhook_cluster::connect as client;
pub use context::Context;
pub use controller::{Controller, ControllerError};
pub use error::{ActuatorError, ErrorCode};
pub use gardener::{Cluster, Shoot, parse_bool};
pub use monitor::Monitor;

/// Compiles and runs the examples in the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/extensions.md")]
struct Documentation;

pub mod admission;
