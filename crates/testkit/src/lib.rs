//! What tests of billhook need: real control planes, scenarios and scripted controllers.

pub mod control_plane;
#[cfg(feature = "scenarios")]
pub mod scenario;
