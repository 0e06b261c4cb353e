//! What tests of billhook need: real control planes, scenarios and scripted controllers.

#[cfg(feature = "scenarios")]
pub mod conformance;
pub mod control_plane;
#[cfg(feature = "scenarios")]
pub mod scenario;
