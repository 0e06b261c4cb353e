//! The controller against the sandbox, under tokio's paused clock, and its dispatch also on a real control plane.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod control_plane;
mod dispatch;
mod force;
mod lab;
mod leaders;
mod load;
mod retries;
mod rows;
