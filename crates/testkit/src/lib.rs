//! Test support for billhook: real control planes, scenarios, conformance sequences and scripted controllers.

pub mod browser;
#[cfg(feature = "scenarios")]
pub mod conformance;
pub mod control_plane;
#[cfg(feature = "scenarios")]
pub mod scenario;
