//! What is to be done with a manifest beside applying it.

use std::collections::BTreeMap;

use billhook_objects::{Digest, Manifest};
use billhook_policy::ManifestPolicy;
use serde_json::{Value, json};

/// What a ProviderConfiguration says of one manifest beside the manifest itself. The default is a manifest that nothing is
/// said of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// What may be done with the object. `ignore` means that there is no such manifest.
    pub policy: ManifestPolicy,
    /// Annotations that the object gets when it is created, and not later.
    pub annotate_before_create: BTreeMap<String, String>,
    /// A merge patch that is sent when all of the release is deployed, and ready where that is waited for.
    pub patch_after: Option<Value>,
    /// A merge patch that is sent before anything is deleted: `annotateBeforeDelete` and `patchBeforeDelete` joined.
    pub before_delete: Option<Value>,
}

impl Directives {
    /// The digest of all that is written into the object by an update, so that a changed patch is not taken for nothing new.
    pub fn digest(&self, manifest: &Manifest) -> Digest {
        match &self.patch_after {
            None => manifest.digest(),
            Some(patch) => Digest::of(&json!({ "manifest": manifest.digest(), "patchAfterDeployment": patch })),
        }
    }
}
