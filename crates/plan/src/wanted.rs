//! Objects to delete, as an inventory or manifests name them.

use std::collections::BTreeMap;

use billhook_objects::{Catalog, GroupKind, Manifest, ObjectKey, Scope, Uid};
use billhook_policy::ManifestPolicy;
use serde_json::Value;

use crate::{Directives, Entry, Inventory};

/// An object to delete, named by an inventory or a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The object.
    pub key: ObjectKey,
    /// The version it was applied or written in. It only selects the URL.
    pub version: String,
    /// The UID in the inventory. None for a manifest and for an object whose creation was never confirmed.
    pub uid: Option<Uid>,
    /// Whether its policy is `keep`: it is never deleted, even if a group matches it.
    pub keep: bool,
    /// See [`Entry::fallback`].
    pub fallback: bool,
    /// The merge patch to send before anything is deleted.
    pub before_delete: Option<Box<Value>>,
    /// See [`Entry::unlabelled`].
    pub unlabelled: bool,
}

impl Wanted {
    /// Returns the object that an inventory entry names.
    pub(crate) fn of_entry(key: &ObjectKey, entry: &Entry) -> Self {
        Self {
            key: key.clone(),
            version: entry.api_version.version().to_owned(),
            uid: entry.uid.clone(),
            keep: entry.keep,
            fallback: entry.fallback,
            before_delete: entry.before_delete.clone(),
            unlabelled: entry.unlabelled,
        }
    }

    /// Returns the objects that manifests name. A namespaced object without a namespace is assumed in `namespace`.
    ///
    /// Kinds that the catalog does not contain are returned unchanged; a plan counts their objects as gone.
    pub fn of_manifests(
        manifests: &[Manifest],
        directives: &BTreeMap<usize, Directives>,
        namespace: &str,
        catalog: &Catalog,
    ) -> Vec<Self> {
        let scopes: BTreeMap<&GroupKind, Option<Scope>> =
            manifests.iter().map(|m| (&m.key.kind, catalog.get(&m.key.kind).map(|t| t.scope))).collect();
        let wanted = |(at, manifest): (usize, &Manifest)| {
            let mut key = manifest.key.clone();
            match scopes.get(&key.kind).copied().flatten() {
                Some(Scope::Namespaced) => key.namespace = Some(key.namespace.unwrap_or_else(|| namespace.to_owned())),
                Some(Scope::Cluster) => key.namespace = None,
                None => {}
            }
            let version = manifest.api_version.version().to_owned();
            let directives = directives.get(&at);
            Self {
                key,
                version,
                uid: None,
                keep: directives.is_some_and(|directives| directives.policy == ManifestPolicy::Keep),
                fallback: false,
                before_delete: directives.and_then(|directives| directives.before_delete.clone().map(Box::new)),
                unlabelled: false,
            }
        };
        manifests.iter().enumerate().map(wanted).collect()
    }
}

impl Inventory {
    /// Returns all recorded objects, unconfirmed ones included: what a deletion of the release is about.
    pub fn wanted(&self) -> Vec<Wanted> {
        self.entries.iter().map(|(key, entry)| Wanted::of_entry(key, entry)).collect()
    }
}
