//! Tests of the protocol against an in-memory service under a paused clock.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test helpers may panic")]

mod checks;
mod fake;
mod fences;
mod foreign;
mod inventory;
mod leases;
mod limits;
mod looks;
mod not_found;
mod reads;
mod recent_names;
mod requests;
mod rights;
mod spread;
mod strategies;
mod watches;
mod writes;
