//! Tests over whole diagnoses: recorded situations, properties.

mod custody;
mod foresight;
mod properties;
mod situations;
mod world;

pub(crate) use situations::check_table;
