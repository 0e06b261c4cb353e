//! The objects of an earlier deployer of the same release.

use billhook_objects::{ApiVersion, Digest, ObjectKey, Uid};
use billhook_plan::Entry;
use serde_json::Value;

/// An object of an earlier deployer of the same release. It becomes part of the inventory if there is none yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Inherited {
    /// The object.
    pub key: ObjectKey,
    /// The `apiVersion` it was applied in.
    pub api_version: ApiVersion,
    /// Its UID, if known. An object without one belongs to the release only if it carries its label.
    pub uid: Option<Uid>,
    /// The merge patch to send before it is deleted.
    pub before_delete: Option<Value>,
    /// Whether it is never deleted.
    pub keep: bool,
    /// Whether it is left to another DeployItem whose deployer labels it.
    pub fallback: bool,
}

impl Inherited {
    pub(super) fn into_entry(self) -> (ObjectKey, Entry) {
        let Self { key, api_version, uid, before_delete, keep, fallback } = self;
        let before_delete = before_delete.map(Box::new);
        // The applied manifest is unknown, so the next apply always writes the object.
        let unlabelled = uid.is_some();
        let entry = Entry::new(api_version, Digest::of(&Value::Null));
        (key, Entry { uid, before_delete, keep, fallback, unlabelled, ..entry })
    }
}
