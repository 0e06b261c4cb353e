//! What the API server itself adds to objects of certain kinds, and what it refuses.
//!
//! This is for objects as a whole: writes to `finalize`, `status` and `scale` add nothing. On creation the status is
//! what it begins with, whatever was sent; on an update the server has put back the status that was there.

mod columns;
mod defaults;
mod deletion;
mod fields;
mod immutable;
mod metadata;
mod prepare;
mod rules;
mod scale;
mod subresources;
mod workloads;
mod writes;

use serde_json::Value;

use super::{Kind, kind_of_crd};
use crate::{schema::Schema, status::Cause};

pub(crate) use columns::{CellSource, Column};
pub(crate) use deletion::CRD_CLEANUP;
pub(crate) use subresources::{Subresource, is_known_subresource};

/// Defaults and what only the server sets, for a new object.
pub(crate) fn prepare_create(kind: &Kind, object: &mut Value) {
    if kind.crd.is_none() {
        prepare::create(kind, object);
        defaults::fill(kind, object);
    }
}

/// The same for one that replaces another.
pub(crate) fn prepare_update(kind: &Kind, object: &mut Value, old: &Value) {
    if kind.crd.is_none() {
        // What is compared with the old object has its defaults.
        defaults::fill(kind, object);
        prepare::update(kind, object, old);
    }
}

/// Returns everything that is wrong with an object: what its schema rejects, then what the rules of its kind reject.
pub(crate) fn validate(kind: &Kind, schema: &Schema, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let rules = rules(kind, object, old);
    let mut causes = schema.validate(object);
    if kind.crd.is_none() {
        // The API server reports a required field from the rules of the kind alone, and there sometimes only a part of it.
        let replaced = |field: &str| rules.iter().any(|rule| is_within(&rule.field, field)) || is_optional(kind, field);
        causes.retain(|cause| !replaced(&cause.field));
    }
    if old.is_some() {
        // The API server checks the metadata of an update twice: once for all kinds, once for this one.
        causes.extend(rules.iter().filter(|cause| cause.field.starts_with("metadata.")).cloned());
    }
    causes.extend(rules);
    causes
}

/// Whether a path names a field or something inside it.
fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Whether the API server accepts an object without a field that its schema requires.
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
        if let Some(old) = old {
            immutable::validate(kind, object, old, &mut wrong);
        }
    }
    if kind.is("apiextensions.k8s.io", "customresourcedefinitions") {
        wrong.extend(kind_of_crd(object).err().into_iter().flatten());
    }
    wrong
}

#[cfg(test)]
mod tests;
