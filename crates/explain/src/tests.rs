//! Tests over whole diagnoses: recorded situations, properties.

mod properties;
mod situations;
mod world;

pub(crate) use situations::check_table;
