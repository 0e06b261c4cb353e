//! Instructions for single manifests.

use std::collections::BTreeMap;

use billhook_objects::{Digest, Manifest};
use billhook_policy::ManifestPolicy;
use serde_json::{Value, json};

/// The instructions of a ProviderConfiguration for one manifest. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// How the object is managed. A manifest with the policy `ignore` is left out before planning.
    pub policy: ManifestPolicy,
    /// Annotations that the object gets when it is created, but not later.
    pub annotate_before_create: BTreeMap<String, String>,
    /// A merge patch that is sent once the whole release is deployed, and ready if that is awaited.
    pub patch_after: Option<Value>,
    /// A merge patch that is sent before anything is deleted: `annotateBeforeDelete` and `patchBeforeDelete` joined.
    pub before_delete: Option<Value>,
}

impl Directives {
    /// Returns the digest of everything that an update writes, so that a changed patch counts as a change.
    pub fn digest(&self, manifest: &Manifest) -> Digest {
        match &self.patch_after {
            None => manifest.digest(),
            Some(patch) => Digest::of(&json!({ "manifest": manifest.digest(), "patchAfterDeployment": patch })),
        }
    }
}
