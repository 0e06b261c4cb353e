//! The protocol, against a service in memory under a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests may")]

mod fake;
mod gone;
mod inventory;
mod leases;
mod reads;
mod requests;
mod rights;
mod strategies;
mod verdicts;
mod watches;
mod writes;
