//! The commands, one file each; `operate`, which carries out their plans, `take_over`, which they do for it, and `serving`, which
//! serves their metrics.

pub(crate) mod apart;
pub(crate) mod apply;
pub(crate) mod clean;
pub(crate) mod completion;
pub(crate) mod controller;
pub(crate) mod delete;
#[cfg(feature = "sandbox")]
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod forget;
pub(crate) mod list;
pub(crate) mod operate;
pub(crate) mod payload;
pub(crate) mod plan;
#[cfg(feature = "sandbox")]
pub(crate) mod rehearse;
pub(crate) mod restore;
#[cfg(feature = "sandbox")]
pub(crate) mod sandbox;
pub(crate) mod schema;
pub(crate) mod serving;
pub(crate) mod status;
pub(crate) mod take_over;
pub(crate) mod validate;
pub(crate) mod webhook;
pub(crate) mod why;
