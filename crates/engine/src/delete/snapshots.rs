//! Snapshots of volumes, which exist outside of the cluster. The CSI sidecar deletes the snapshot of a VolumeSnapshotContent that
//! is being deleted only with an annotation, which the snapshot controller adds when it deletes the VolumeSnapshot. Where that did
//! not happen, the annotation is added here, so that the snapshot does not outlive the cluster.

use billhook_objects::{ObjectKey, Uid, wellknown};
use serde_json::{Value, json};

use super::{
    machine::Machine,
    messages::{Effect, Timer},
};
use crate::{Event, retry::Failure};

/// Returns the merge patch of a VolumeSnapshotContent whose snapshot is to be deleted.
pub(super) fn release() -> Value {
    let annotations = json!({ wellknown::SNAPSHOT_BEING_DELETED: "yes", wellknown::SNAPSHOT_BEING_CREATED: null });
    json!({ "metadata": { "annotations": annotations } })
}

impl Machine<'_> {
    /// Starts the time after which a VolumeSnapshotContent that is being deleted is annotated.
    pub(super) fn release_snapshot_after(&mut self, key: &ObjectKey, uid: Uid, deleted_at: Option<i64>) {
        if let Some(after) = self.work.release_snapshots.filter(|_| key.kind == wellknown::volume_snapshot_content()) {
            let timer = Timer::ReleaseSnapshot(key.clone(), uid);
            self.effects.push(Effect::ForceAfter { timer, after: after.0, deleted_at });
        }
    }

    /// That time has passed. From now on, each change of the object is followed by the annotation if it is missing.
    pub(super) fn release_snapshot(&mut self, key: &ObjectKey, uid: &Uid) {
        if let Some(object) = self.objects.present(key, uid) {
            object.releases_snapshot = true;
            self.force(key);
        }
    }

    /// Returns whether an object is to be annotated now.
    pub(super) fn holds_snapshot(&self, key: &ObjectKey) -> bool {
        self.objects.get(key).is_some_and(|object| object.releases_snapshot && object.annotations.hold_snapshot())
    }

    pub(super) fn snapshot_released(&mut self, key: ObjectKey, uid: Uid, answer: Result<bool, Failure>) {
        let Some((_, outdated)) = self.force_answered(&key, &uid) else { return };
        match answer {
            Ok(exists) => {
                if exists {
                    self.emit(Event::SnapshotReleased { node: self.node(), object: key.clone() });
                }
                if outdated {
                    self.force(&key);
                }
            }
            Err(failure) => self.force_failed(key, uid, &failure),
        }
    }
}
