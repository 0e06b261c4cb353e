//! Compiles the objects of a backup into manifests.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use billhook_objects::{GroupKind, Manifest, ManifestError, ObjectKey, Uid, wellknown::RELEASE_LABEL, yaml::Document};
use serde_json::Value;

use crate::{Counts, NoteKind};

use super::{
    BackupNote, SavedObject,
    strip::{kind_of, strip, unbind},
};

/// Where the manifests of a restoration come from.
const SOURCE: &str = "backup";

/// What a backup contains: the first of two passes over its objects, so that they need not be in memory at once.
#[derive(Debug, Default)]
pub struct Contents {
    by_uid: HashMap<Uid, ObjectKey>,
    volumes: HashSet<String>,
}

impl Contents {
    /// Adds an object.
    pub fn add(&mut self, saved: &SavedObject) {
        let key = key_of(&saved.object);
        if has_ended(&key.kind, &saved.object) {
            return;
        }
        if key.kind.is("", "PersistentVolume") {
            self.volumes.insert(key.name.clone());
        }
        if let Some(uid) = uid_of(&saved.object["metadata"]) {
            self.by_uid.insert(uid, key);
        }
    }
}

/// The objects of a backup, as they are created again.
#[derive(Debug, Default)]
pub struct Restoration {
    /// The objects of the release.
    pub own: Vec<Manifest>,
    /// Objects that the release did not create.
    pub others: Vec<Manifest>,
    /// What is set on objects once all exist.
    pub ties: BTreeMap<ObjectKey, Tie>,
    contents: Contents,
    ended: Vec<ObjectKey>,
    external: Vec<ObjectKey>,
    claims: Vec<ObjectKey>,
    counts: Counts,
}

/// What is set on a restored object once it and its owners exist.
#[derive(Debug, Default)]
pub struct Tie {
    /// Its owners.
    pub owners: Vec<OwnerReference>,
    /// Its status.
    pub status: Option<Value>,
}

/// A reference of an object to its owner.
#[derive(Debug)]
pub struct OwnerReference {
    /// The reference as it was.
    pub reference: Value,
    /// The owner. Whether one that is not restored is in the namespace of its dependent depends on its kind.
    pub owner: ObjectKey,
    /// The UID that the owner had.
    pub uid: Uid,
    /// Whether the owner is restored, too, so that it gets another UID.
    pub is_restored: bool,
}

impl Restoration {
    /// Starts the second pass over the objects of a backup.
    pub fn new(contents: Contents) -> Self {
        Self { contents, ..Self::default() }
    }

    /// Adds an object.
    ///
    /// # Errors
    ///
    /// When it is not an object of Kubernetes.
    pub fn add(&mut self, saved: SavedObject) -> Result<(), ManifestError> {
        let SavedObject { own, mut object } = saved;
        let key = key_of(&object);
        if has_ended(&key.kind, &object) {
            self.ended.push(key);
            return Ok(());
        }
        let owners = owners(&key, &object["metadata"], &self.contents.by_uid);
        if key.kind.is("", "PersistentVolumeClaim") {
            self.claims.push(key.clone());
            if object["spec"]["volumeName"].as_str().is_some_and(|name| !self.contents.volumes.contains(name)) {
                unbind(&mut object);
            }
        }
        if key.kind.is("", "Service") && object["spec"]["type"] == "LoadBalancer" {
            self.external.push(key.clone());
        }
        let status = strip(&mut object);
        if !own {
            self.counts.add(&key.kind);
            remove_label(&mut object);
        }
        if !owners.is_empty() || status.is_some() {
            self.ties.insert(key, Tie { owners, status });
        }
        let manifests = Manifest::from_document(Document { line: 1, value: object }, &Arc::from(SOURCE));
        let manifests = manifests.or_else(|errors| errors.into_iter().next().map_or_else(|| Ok(Vec::new()), Err))?;
        if own {
            self.own.extend(manifests)
        } else {
            self.others.extend(manifests)
        }
        Ok(())
    }

    /// Returns what will not be as it was.
    pub fn notes(&self) -> Vec<NoteKind> {
        let one = |note: fn(ObjectKey) -> BackupNote, keys: &[ObjectKey]| {
            keys.iter().cloned().map(note).map(NoteKind::Backup).collect::<Vec<_>>()
        };
        let mut notes = one(|object| BackupNote::Ended { object }, &self.ended);
        notes.extend(one(|object| BackupNote::External { object }, &self.external));
        if !self.claims.is_empty() {
            notes.push(NoteKind::Backup(BackupNote::VolumeData { objects: self.claims.clone() }));
        }
        if self.counts.total() > 0 {
            notes.push(NoteKind::Backup(BackupNote::Others { counts: self.counts.clone() }));
        }
        notes
    }
}

/// Returns the identity of a live object.
pub(super) fn key_of(object: &Value) -> ObjectKey {
    let metadata = &object["metadata"];
    ObjectKey::new(kind_of(object), metadata["namespace"].as_str(), metadata["name"].as_str().unwrap_or_default())
}

pub(super) fn uid_of(metadata: &Value) -> Option<Uid> {
    metadata["uid"].as_str().map(Uid::new)
}

fn owners(dependent: &ObjectKey, metadata: &Value, by_uid: &HashMap<Uid, ObjectKey>) -> Vec<OwnerReference> {
    let references = metadata["ownerReferences"].as_array();
    let owner = |reference: &Value| {
        let uid = uid_of(reference)?;
        let restored = by_uid.get(&uid);
        let named = || {
            ObjectKey::new(
                kind_of(reference),
                dependent.namespace.as_deref(),
                reference["name"].as_str().unwrap_or_default(),
            )
        };
        let owner = restored.cloned().unwrap_or_else(named);
        Some(OwnerReference { reference: reference.clone(), owner, uid, is_restored: restored.is_some() })
    };
    references.into_iter().flatten().filter_map(owner).collect()
}

/// Whether an object has done its work, and would do it again.
fn has_ended(kind: &GroupKind, object: &Value) -> bool {
    let status = &object["status"];
    if kind.is("", "Pod") {
        return matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"));
    }
    let conditions = status["conditions"].as_array().filter(|_| kind.is("batch", "Job"));
    let is_final = |condition: &Value| {
        condition["status"] == "True" && matches!(condition["type"].as_str(), Some("Complete" | "Failed"))
    };
    conditions.into_iter().flatten().any(is_final)
}

fn remove_label(object: &mut Value) {
    if let Some(labels) = object.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(RELEASE_LABEL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn saved(own: bool, object: Value) -> SavedObject {
        SavedObject { own, object }
    }

    fn compile(saved: &[SavedObject]) -> Restoration {
        let mut contents = Contents::default();
        saved.iter().for_each(|saved| contents.add(saved));
        let mut restoration = Restoration::new(contents);
        saved.iter().for_each(|saved| restoration.add(saved.clone()).unwrap());
        restoration
    }

    #[test]
    fn owners_are_tied_to_the_restored_object_of_their_uid() {
        let owner = |uid: &str| json!({"apiVersion": "shop.example/v1", "kind": "Shop", "name": "a", "uid": uid});
        let child = |name: &str, uid: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": name, "namespace": "n", "ownerReferences": [owner(uid)]}})
        };
        let shop = json!({"apiVersion": "shop.example/v1", "kind": "Shop", "metadata": {"name": "a", "uid": "1"}});
        let restoration = compile(&[saved(true, child("x", "1")), saved(true, child("y", "2")), saved(true, shop)]);
        let tie = |name: &str| {
            let (_, tie) = restoration.ties.iter().find(|(key, _)| key.name == name).unwrap();
            (tie.owners[0].owner.to_string(), tie.owners[0].is_restored)
        };
        // The restored one is cluster-scoped.
        assert_eq!(tie("x"), (ObjectKey::new(GroupKind::new("shop.example", "Shop"), None, "a").to_string(), true));
        assert!(!tie("y").1);
        assert!(restoration.own.iter().all(|manifest| !manifest.json().contains("ownerReferences")));
    }

    #[test]
    fn notes_say_what_will_not_be_as_it_was() {
        let restoration = compile(&[
            saved(
                true,
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "done", "namespace": "n"},
                "status": {"conditions": [{"type": "Complete", "status": "True"}]}}),
            ),
            saved(
                true,
                json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "open", "namespace": "n"},
                "status": {"conditions": [{"type": "Complete", "status": "False"}]}}),
            ),
            saved(
                true,
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a", "namespace": "n"},
                "spec": {"volumeName": "pv-1"}}),
            ),
            saved(
                true,
                json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "b", "namespace": "n"},
                "spec": {"volumeName": "pv-2"}}),
            ),
            saved(true, json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-2"}})),
            saved(
                false,
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "n",
                "labels": {"billhook.dev/release": "old"}}}),
            ),
        ]);
        let names: Vec<_> = restoration.own.iter().map(|manifest| manifest.key.name.as_str()).collect();
        assert_eq!(names, ["open", "a", "b", "pv-2"]);
        assert!(!restoration.own[1].json().contains("pv-1"));
        assert!(restoration.own[2].json().contains("pv-2"));
        assert!(!restoration.others[0].json().contains("old"));
        let texts: Vec<_> = restoration.notes().iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        assert!(texts[0].contains("done"), "{texts:?}");
        assert!(texts[1].contains("PersistentVolumeClaim"), "{texts:?}");
    }
}
