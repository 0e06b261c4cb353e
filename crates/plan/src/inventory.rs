//! The stored record of a release's objects.

use std::collections::{BTreeMap, BTreeSet};

use billhook_objects::{ApiVersion, Digest, ObjectKey, ReleaseName, Uid};
use billhook_policy::Policy;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Backup, Fingerprint,
    failures::Failures,
    history::{AppliedVersion, begin_version, complete_version},
};

/// The format version of a stored inventory. Readers accept this one and all before it.
pub const INVENTORY_FORMAT: u32 = 2;

/// The label on the Secrets that hold inventories.
pub(crate) const INVENTORY_LABEL: &str = "billhook.dev/inventory";

/// The record of a release. It is written before the first request, so that no crash loses an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    /// The release.
    pub release: ReleaseName,
    /// The last operation on the release.
    pub phase: Phase,
    /// Counts the writes. A write fails if the stored number differs from the one that was read.
    pub revision: u64,
    /// The policy of the last apply, which a deletion uses.
    pub policy: Policy,
    /// The namespaces that applies created because they did not exist. Those without an entry do not belong to the release.
    pub created_namespaces: BTreeSet<String>,
    /// Whether the record was lost and the objects were found by their label, so that there may be others.
    pub swept: bool,
    /// The objects, by identity.
    pub entries: BTreeMap<ObjectKey, Entry>,
    /// The objects that manifests of the last apply request to delete and whose deletion is verified, each with the time of
    /// the apply that verified it, in RFC 3339 format.
    pub deleted: BTreeMap<ObjectKey, String>,
    /// The versions that were applied, the newest first, up to a limit.
    pub history: Vec<AppliedVersion>,
    /// What failed in the last apply.
    pub failures: Failures,
    /// The backup of the objects that a deletion has deleted.
    pub backup: Option<Backup>,
}

impl Inventory {
    /// Returns an inventory without objects.
    pub fn new(release: ReleaseName) -> Self {
        Self {
            release,
            phase: Phase::Applying,
            revision: 0,
            policy: Policy::default(),
            created_namespaces: BTreeSet::new(),
            swept: false,
            entries: BTreeMap::new(),
            deleted: BTreeMap::new(),
            history: Vec::new(),
            failures: Failures::default(),
            backup: None,
        }
    }

    /// Notes in the history that a version is being applied. The version before it, if it was not completed, ends.
    pub fn begin_version(&mut self, version: &str, now: &str) {
        begin_version(&mut self.history, version, now);
    }

    /// Notes in the history that the version is applied completely. Returns whether that is new.
    pub fn complete_version(&mut self, now: &str) -> bool {
        complete_version(&mut self.history, now)
    }
}

/// The last operation on a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// An apply was started and has not succeeded.
    Applying,
    /// The last apply succeeded.
    Applied,
    /// A deletion was started.
    Deleting,
    /// Everything that the policy covers is gone. The entries are the objects that remain.
    Retained,
    /// All objects are gone. The record remains for the backup in it.
    Deleted,
}

impl Phase {
    /// All phases.
    pub const ALL: [Self; 5] = [Self::Applying, Self::Applied, Self::Deleting, Self::Retained, Self::Deleted];

    /// Whether a deletion has deleted everything that the policy covers.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Retained | Self::Deleted)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Applying => "applying",
            Self::Applied => "applied",
            Self::Deleting => "deleting",
            Self::Retained => "retained",
            Self::Deleted => "deleted",
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
    /// The UID that our own write returned; none until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<Uid>,
    /// The `resourceVersion` that our own write returned; none until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    /// The state that our own write returned, if it was a server-side apply; none until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<Fingerprint>,
    /// Whether only an earlier version of the release contained it, so that it is to be pruned.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub obsolete: bool,
    /// Whether its policy is `keep`, so that it is never deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep: bool,
    /// Whether its policy is `fallback`, so that it is left to another DeployItem whose deployer labels it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fallback: bool,
    /// The merge patch to send before it is deleted; boxed because few objects have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_delete: Option<Box<Value>>,
    /// Whether it was taken over without a write, so that it does not carry the release's label: it is inherited from an
    /// earlier deployer, or its policy is `immutable`. Only a record that is stored apart from the objects is believed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unlabelled: bool,
    /// Whether a manifest has requested its deletion, [`RequestedDeletion`](crate::RequestedDeletion).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deletion_requested: bool,
}

impl Entry {
    /// Returns an entry for an object that no write has confirmed.
    pub fn new(api_version: ApiVersion, digest: Digest) -> Self {
        Self {
            api_version,
            digest,
            uid: None,
            resource_version: None,
            fingerprint: None,
            obsolete: false,
            keep: false,
            fallback: false,
            before_delete: None,
            unlabelled: false,
            deletion_requested: false,
        }
    }
}
