//! The kinds that are served: a fixed table for Kubernetes' own, and those that CustomResourceDefinitions add.

mod builtin;
mod crd;
mod registry;
mod strategy;

use std::{cmp::Reverse, fmt, sync::Arc};

use serde_json::Value;

use crate::{schema::Schema, status::Qualified};

pub(crate) use builtin::body_of;
pub(crate) use crd::kind_of_crd;
pub(crate) use registry::Kinds;
pub(crate) use strategy::{
    CRD_CLEANUP, CellSource, Column, Subresource, is_known_subresource, prepare_create, prepare_part, prepare_update,
    validate, validate_part,
};

/// The identity of a resource: its group and plural.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceId {
    pub(crate) group: Arc<str>,
    pub(crate) plural: Arc<str>,
}

impl ResourceId {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self { group: group.into(), plural: plural.into() }
    }
}

/// `configmaps`, `deployments.apps`.
impl fmt::Display for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.plural)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// A kind that is served.
#[derive(Debug)]
pub(crate) struct Kind {
    pub(crate) id: ResourceId,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// The preferred version is the first.
    pub(crate) versions: Vec<Version>,
    /// The version in which objects are stored, as an index of `versions`.
    pub(crate) storage: usize,
    /// Whether the kind can only be created and is never stored, as reviews are.
    pub(crate) review: bool,
    /// Set for a kind of a CustomResourceDefinition.
    pub(crate) crd: Option<Crd>,
}

/// What a CustomResourceDefinition specifies about its kind apart from names and versions.
#[derive(Debug)]
pub(crate) struct Crd {
    /// The webhook that converts objects to other versions: `spec.conversion.webhook`. Without one, only the `apiVersion`
    /// changes.
    pub(crate) webhook: Option<Value>,
}

/// A version of a kind.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: String,
    /// A version that is not served is listed only because objects are stored in it.
    pub(crate) served: bool,
    pub(crate) schema: Arc<Schema>,
    pub(crate) status: bool,
    pub(crate) scale: Option<Scale>,
    /// The fields that a field selector may use besides name and namespace: `status.phase`.
    pub(crate) selectable: Vec<String>,
    /// The printer columns that a CRD defines.
    pub(crate) columns: Vec<Column>,
}

/// The fields of the `scale` subresource, as dotted paths without a leading dot: `spec.replicas`.
#[derive(Clone, Debug)]
pub(crate) struct Scale {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) selector: Option<String>,
}

impl Kind {
    pub(crate) fn group(&self) -> &str {
        &self.id.group
    }

    pub(crate) fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.served && version.name == name)
    }

    /// Returns the `apiVersion` of a version: `apps/v1`.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group().is_empty() { version.to_owned() } else { format!("{}/{version}", self.group()) }
    }

    /// Returns the name for errors that name the resource: `configmaps`.
    pub(crate) fn resource(&self) -> Qualified {
        Qualified::new(self.group(), &*self.id.plural)
    }

    /// Returns the name for validation errors, which name the kind: `ConfigMap`.
    pub(crate) fn qualified(&self) -> Qualified {
        Qualified::new(&*self.table().group, &*self.kind)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group() == group && &*self.id.plural == plural
    }
}

/// Returns the rank of a version's name: stable versions come before betas and these before alphas, newer ones before
/// older ones, and all other names follow in alphabetical order.
pub(crate) fn version_rank(name: &str) -> (u8, Reverse<u64>, Reverse<u64>, &str) {
    let parsed = || {
        let rest = name.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(digits);
        let major = major.parse::<u64>().ok()?;
        if rest.is_empty() {
            return Some((0, Reverse(major), Reverse(0)));
        }
        let (stage, minor) = match (rest.strip_prefix("beta"), rest.strip_prefix("alpha")) {
            (Some(minor), _) => (1, minor),
            (_, Some(minor)) => (2, minor),
            _ => return None,
        };
        Some((stage, Reverse(major), Reverse(minor.parse::<u64>().ok()?)))
    };
    match parsed() {
        Some((stage, major, minor)) => (stage, major, minor, ""),
        None => (3, Reverse(0), Reverse(0), name),
    }
}
