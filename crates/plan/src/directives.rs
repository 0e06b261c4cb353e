//! Instructions for single manifests.

use std::collections::BTreeMap;

use billhook_objects::{Digest, Manifest};
use billhook_policy::{ManifestEntry, ManifestPolicy};
use serde_json::{Value, json};

/// The instructions of a ProviderConfiguration for one manifest. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directives {
    /// How the object is managed. A manifest with the policy `ignore` is left out before planning.
    pub policy: ManifestPolicy,
    /// Whether an existing object that belongs to no release is taken over.
    pub adopt: bool,
    /// Whether an existing object that does not belong to the release is left to its owner.
    pub leave_others: bool,
    /// Annotations that the object gets when it is created, but not later.
    pub annotate_before_create: BTreeMap<String, String>,
    /// A merge patch that is sent once the whole release is deployed, and ready if that is awaited.
    pub patch_after: Option<Value>,
    /// A merge patch that is sent before anything is deleted: `annotateBeforeDelete` and `patchBeforeDelete` joined.
    pub before_delete: Option<Value>,
}

impl Directives {
    /// Returns the instructions for a manifest of a ProviderConfiguration.
    pub fn of(entry: &ManifestEntry) -> Self {
        Self {
            policy: entry.policy,
            adopt: false,
            leave_others: false,
            annotate_before_create: entry.annotate_before_create.clone(),
            patch_after: entry.patch_after_deployment.clone(),
            before_delete: before_delete(&entry.annotate_before_delete, entry.patch_before_delete.as_ref()),
        }
    }

    /// Returns the digest of everything that an update writes, so that a changed patch counts as a change.
    pub fn digest(&self, manifest: &Manifest) -> Digest {
        match &self.patch_after {
            None => manifest.digest(),
            Some(patch) => Digest::of(&json!({ "manifest": manifest.digest(), "patchAfterDeployment": patch })),
        }
    }
}

/// Combines annotations and a patch to one merge patch. If both set an annotation, the patch wins, as in Landscaper.
pub fn before_delete(annotations: &BTreeMap<String, String>, patch: Option<&Value>) -> Option<Value> {
    let mut all = Value::Null;
    if !annotations.is_empty() {
        merge(&mut all, &json!({ "metadata": { "annotations": annotations } }));
    }
    if let Some(patch) = patch {
        merge(&mut all, patch);
    }
    (!all.is_null()).then_some(all)
}

/// Merges one merge patch into another.
fn merge(into: &mut Value, patch: &Value) {
    match (into, patch) {
        (Value::Object(into), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, patch) => *into = patch.clone(),
    }
}
