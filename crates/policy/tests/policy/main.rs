//! Tests of what each dialect compiles to, and of the diagnostics of each mistake.

mod check;
mod configuration;
mod deletion_groups;
mod deployment;
mod documents;
mod helm;
mod limits;
mod payload;
mod places;
mod properties;
mod proposal;
mod rank_rules;
mod reference;
mod schema;
mod stages;
