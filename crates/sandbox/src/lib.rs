//! A Kubernetes API server in memory.
//!
//! It lets programs that talk to Kubernetes be tested under control: with tokio's paused clock an hour passes in a
//! millisecond, and any request can be made to fail.

pub mod actors;
mod admission;
mod authorization;
mod call;
mod conditions;
mod controllers;
mod conversion;
mod copy;
mod discovery;
mod dispatch;
mod duplicates;
pub mod faults;
mod kinds;
mod names;
mod object;
mod openapi;
mod options;
mod patch;
mod protobuf;
mod reviews;
mod sandbox;
mod schema;
mod selector;
mod server;
mod shared;
mod state;
mod status;
mod store;
mod tokens;
mod verbs;
mod webhooks;

pub use call::{User, Verb};
pub use controllers::{ControllerSet, UnknownController};
pub use options::Options;
pub use sandbox::Sandbox;
pub use server::Served;

/// Compiles and runs the examples in the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sandbox.md")]
struct Documentation;
