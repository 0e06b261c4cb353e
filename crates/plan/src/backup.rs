//! Backups: which objects a deletion saves, what is kept of each, and how they become the manifests of a restoration.

mod compile;
mod doomed;
mod saved;
mod strip;

use billhook_objects::ObjectKey;
use serde::{Deserialize, Serialize};

use crate::{ApplyAction, ApplyTask, ApplyWork, Barrier, DeleteTask, Node, PatchTask, Plan, Work, counts::Counts};

pub use compile::{Contents, OwnerReference, Restoration, Tie};
pub use doomed::Doomed;
pub use saved::{SavedObject, to_save};

/// The backup in the record of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backup {
    /// When it was written, in RFC 3339 format.
    pub taken: String,
    /// How many objects it holds.
    pub objects: usize,
    /// The Secrets that hold it, in this order.
    pub parts: Vec<String>,
}

/// What happens to the objects of a backup, or to the backup itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "detail", rename_all = "kebab-case", rename_all_fields = "camelCase")]
#[expect(missing_docs, reason = "the names of the parameters describe them")]
pub enum BackupNote {
    /// The live objects are saved before the first of them is deleted.
    Saves { counts: Counts },
    /// No backup is written, because the Namespace of the record is deleted.
    LostWithNamespace { object: ObjectKey },
    /// Objects of other clusters are not saved.
    OtherClusters { counts: Counts },
    /// A Job or Pod that has ended is not restored, as it would run again.
    Ended { object: ObjectKey },
    /// The data of volumes is not part of a backup.
    VolumeData { objects: Vec<ObjectKey> },
    /// What the object stood for outside of the cluster is created again.
    External { object: ObjectKey },
    /// An owner does not exist any more and is not restored, so that its dependent is restored without it.
    OwnerMissing { object: ObjectKey, owner: ObjectKey },
    /// Objects that the release did not create are restored without its label.
    Others { counts: Counts },
    /// An object that the release did not create exists again. It remains unchanged.
    Exists { object: ObjectKey },
}

impl Plan {
    /// Adds the nodes of a restoration after those that create the objects of the release, and before the wait for their
    /// readiness.
    pub fn append_restoration(&mut self, others: Vec<ApplyTask>, owners: Vec<PatchTask>, status: Vec<PatchTask>) {
        let awaits = |work: &Work| match work {
            Work::Apply(work) => work.objects.iter().all(|task| task.action == ApplyAction::Await),
            _ => false,
        };
        let wait = self.nodes.pop_if(|node| awaits(&node.work));
        if !others.is_empty() {
            self.append(Node {
                title: "objects of others".to_owned(),
                path: String::new(),
                after: Vec::new(),
                cluster: None,
                work: Work::Apply(ApplyWork { objects: others }),
                barrier: Barrier::Requested,
                timeout: None,
            });
        }
        self.append_patches("owner references", owners);
        self.append_patches("status", status);
        if let Some(wait) = wait {
            self.append(wait);
        }
    }

    /// Whether a force stage of the plan may remove finalizers.
    pub fn has_force(&self) -> bool {
        self.delete_nodes().any(|(_, work)| {
            let is_annotated = |task: &DeleteTask| task.annotations.treatment().finalize_after.is_some();
            let has_objects = !work.objects.is_empty() || !work.collections.is_empty();
            (work.force.is_some() && has_objects) || work.objects.iter().any(is_annotated)
        })
    }
}
