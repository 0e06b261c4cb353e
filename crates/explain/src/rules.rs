//! The rules, one module each, with the situations that it explains.
//!
//! A rule is added by its module here and a line in `registry.rs`.

pub(crate) mod abandoned;
pub(crate) mod api_services;
pub(crate) mod conversion;
pub(crate) mod definitions;
pub(crate) mod denied;
pub(crate) mod dependents;
pub(crate) mod evictions;
pub(crate) mod finalizers;
pub(crate) mod in_use;
pub(crate) mod namespaces;
pub(crate) mod not_deleting;
pub(crate) mod oversized;
pub(crate) mod owners;
pub(crate) mod pods;
pub(crate) mod protected;
pub(crate) mod rate_limits;
pub(crate) mod recreated;
pub(crate) mod unreadable;
pub(crate) mod unserved;
pub(crate) mod webhooks;
