//! Tests of the crate from outside, in one program.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it skipped"
)]

mod diagnostics;
mod fixtures;
mod kubectl;
mod properties;
