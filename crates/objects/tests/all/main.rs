//! The integration tests of the crate, in one program.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and prints what it skips"
)]

mod diagnostics;
mod fixtures;
mod kubectl;
mod properties;
