//! A Kubernetes API server in memory.
//!
//! For programs that talk to Kubernetes and want to be tested against something that obeys: a server on which an hour
//! passes in a millisecond under tokio's paused clock, and on which any request can fail.

pub mod actors;
mod admission;
mod authorization;
mod call;
mod conditions;
mod controllers;
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
mod verbs;

pub use call::{User, Verb};
pub use options::Options;
pub use sandbox::Sandbox;
pub use server::Served;

/// The examples of the documentation, which have to hold.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/sandbox.md")]
struct Documentation;
