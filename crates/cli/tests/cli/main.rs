//! The wiring of the command line: arguments, input, output. No test here talks to a cluster: scenarios do.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

mod call;
mod test_arguments;
mod test_input;
mod test_plan;
mod test_report;
mod test_sandbox;
mod test_validate;
