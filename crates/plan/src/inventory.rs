//! The durable record of a release's objects.

use std::collections::BTreeMap;

use billhook_objects::{ApiVersion, Digest, ObjectKey, ReleaseName, Uid};
use billhook_policy::Policy;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Wanted;

/// The format version of a stored inventory. Readers accept this one and all before it.
pub const INVENTORY_FORMAT: u32 = 1;

/// The label on the Secrets that hold inventories.
pub const INVENTORY_LABEL: &str = "billhook.dev/inventory";

/// The record of a release: written before the act, so that a crash at any request loses nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// Whose record this is.
    pub release: ReleaseName,
    /// What was last begun with the release.
    pub phase: Phase,
    /// Counts the writes of this record; a write that finds another number than it read is refused.
    pub revision: u64,
    /// The policy given at `apply`; it holds at `delete`.
    pub policy: Policy,
    /// The objects, by identity.
    pub entries: BTreeMap<ObjectKey, Entry>,
}

impl Inventory {
    /// The record of a release that has nothing yet.
    pub fn new(release: ReleaseName) -> Self {
        Self { release, phase: Phase::Applying, revision: 0, policy: Policy::default(), entries: BTreeMap::new() }
    }

    /// All objects of the record, those that are merely intended too: what a deletion of the release is about.
    pub fn wanted(&self) -> Vec<Wanted> {
        self.entries.iter().map(|(key, entry)| Wanted::of_entry(key, entry)).collect()
    }
}

/// What was last begun with a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// An apply was begun and has not ended well.
    Applying,
    /// The last apply did all it had to.
    Applied,
    /// A deletion was begun.
    Deleting,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Applying => "applying",
            Self::Applied => "applied",
            Self::Deleting => "deleting",
        })
    }
}

/// One object of a release, intended or confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The `apiVersion` it was applied in.
    pub api_version: ApiVersion,
    /// The digest of what was applied, [`crate::Directives::digest`].
    pub digest: Digest,
    /// The UID our own write returned; none while the object is merely intended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The `resourceVersion` our own write returned; none while merely intended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// An earlier version of the release had it and the current one has not: it is to be pruned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub obsolete: bool,
    /// Its policy is `keep`: it is never deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// The merge patch that it gets before it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_delete: Option<Value>,
}

impl Entry {
    /// An object of which nothing is known but how it is called: merely intended.
    pub fn new(api_version: ApiVersion, digest: Digest) -> Self {
        Self {
            api_version,
            digest,
            uid: None,
            resource_version: None,
            obsolete: false,
            keep: false,
            before_delete: None,
        }
    }
}
