//! Test support for billhook: real control planes, scenarios, conformance sequences and scripted controllers.

#[cfg(feature = "scenarios")]
pub mod browser;
pub mod conformance;
pub mod control_plane;
#[cfg(feature = "scenarios")]
pub mod scenario;
