//! How certain kinds differ: defaults, rules, and what only the server sets, like the strategies in Kubernetes'
//! registry.
//!
//! Preparation and validation apply to writes of whole objects, not to `finalize`, `status` and `scale`. A new object
//! gets its initial status, whatever was sent; an update keeps the stored status.

mod certificates;
mod columns;
mod defaults;
mod deletion;
mod events;
mod fields;
mod immutable;
mod metadata;
mod prepare;
mod replicas;
mod rules;
mod scale;
mod subresources;
mod workloads;
mod writes;

use serde_json::Value;

use super::{Kind, kind_of_crd};
use crate::{call::User, schema::Schema, status::Cause};

pub(crate) use columns::{CellSource, Column};
pub(crate) use deletion::CRD_CLEANUP;
pub(crate) use subresources::{Subresource, is_known_subresource};

/// Sets defaults and server-owned fields in a new object of a user.
pub(crate) fn prepare_create(kind: &Kind, object: &mut Value, user: &User) {
    if kind.crd.is_none() {
        prepare::create(kind, object, user);
        defaults::fill(kind, object);
    }
}

/// Sets defaults and server-owned fields in an object that replaces another.
pub(crate) fn prepare_update(kind: &Kind, object: &mut Value, old: &Value) {
    if kind.crd.is_none() {
        // Both sides of the comparison must have their defaults.
        defaults::fill(kind, object);
        prepare::update(kind, object, old);
    }
}

/// Sets what only the server sets in a part of an object that is written through a subresource.
pub(crate) fn prepare_part(kind: &Kind, subresource: &str, object: &mut Value, old: &Value, now: &str) {
    if kind.is("certificates.k8s.io", "certificatesigningrequests") {
        certificates::prepare_part(subresource, object, old, now);
    }
}

/// Returns what a write through a subresource may not change.
pub(crate) fn validate_part(kind: &Kind, subresource: &str, object: &Value, old: &Value) -> Vec<Cause> {
    let mut wrong = Vec::new();
    if kind.is("certificates.k8s.io", "certificatesigningrequests") {
        certificates::validate_part(subresource, object, old, &mut wrong);
    }
    wrong
}

/// Returns everything that is wrong with an object: first what its schema rejects, then what the rules of its kind
/// reject.
pub(crate) fn validate(kind: &Kind, schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let rules = rules(kind, object, old);
    let mut causes = schema.validate(object);
    if kind.crd.is_none() {
        // Where a rule of the kind reports a required field, or a part of it, the API server reports nothing else about
        // it.
        let replaced = |field: &str| rules.iter().any(|rule| is_within(&rule.field, field)) || is_optional(kind, field);
        causes.retain(|cause| !replaced(&cause.field));
    }
    if old.is_some() {
        // The API server validates the metadata of an update twice: for all kinds alike and for this kind.
        causes.extend(rules.iter().filter(|cause| cause.field.starts_with("metadata.")).cloned());
    }
    causes.extend(rules);
    causes
}

/// Returns whether a path leads to a field or into it.
fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Returns whether the API server accepts an object without a field that the schema requires.
fn is_optional(kind: &Kind, field: &str) -> bool {
    kind.is("apps", "daemonsets") && field == "spec.selector"
}

/// Returns what the rules beyond the schema reject.
fn rules(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut wrong = metadata::validate(kind, object, old);
    if kind.crd.is_some() {
        scale::validate(kind, object, &mut wrong);
    } else {
        rules::validate(kind, object, &mut wrong);
        replicas::validate(kind, object, &mut wrong);
        match old {
            Some(old) => immutable::validate(kind, object, old, &mut wrong),
            None if kind.is("events.k8s.io", "events") => events::validate(object, &mut wrong),
            None => {}
        }
    }
    if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
        wrong.extend(kind_of_crd(object).err().into_iter().flatten());
    }
    wrong
}

#[cfg(test)]
mod tests;
