//! Saves the live objects of a release before they are deleted.

use std::collections::{HashMap, HashSet};

use billhook_cluster::{BackupWriter, Cluster, Error, MAX_PARTS, NewBackup, PackedBackup};
use billhook_objects::{ObjectKey, ReleaseName, Resource, Uid};
use billhook_plan::{
    BackupNote, Doomed, Listed, NoteKind, Phase, Plan, PlanError, Problem, SavedObject, Snapshot, to_save,
};
use serde_json::{Value, value::RawValue};

use super::{
    delete::PreparedDelete,
    error::OperationError,
    record::{Record, is_unwritable},
};
use crate::Clusters;

/// When a deletion saves the live objects in the record of the release.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackupMode {
    /// Never.
    #[default]
    Never,
    /// If a force stage may remove finalizers.
    Forced,
    /// Always.
    Always,
}

/// Notes what a deletion will save, and returns whether it will.
///
/// # Errors
///
/// When a backup is required, and the record that would hold it is deleted, too.
pub(super) fn plan_backup(
    clusters: &Clusters,
    plan: &mut Plan,
    snapshot: &Snapshot,
    release: &ReleaseName,
    mode: BackupMode,
) -> Result<bool, PlanError> {
    let wanted = match mode {
        BackupMode::Never => false,
        BackupMode::Forced => plan.has_force(),
        BackupMode::Always => true,
    };
    if !wanted {
        return Ok(false);
    }
    let doomed = Doomed::of(plan, snapshot, Some(release));
    if doomed.is_empty() {
        return Ok(false);
    }
    let is_lost = clusters.record_here() && Doomed::includes_record(plan, release);
    if is_lost && mode == BackupMode::Always {
        return Err(Problem::BackupLost { namespace: release.namespace().to_owned() }.into());
    }
    let mut notes = Vec::new();
    if is_lost {
        let object = ObjectKey::new(billhook_objects::wellknown::namespace(), None, release.namespace());
        notes.push(NoteKind::Backup(BackupNote::LostWithNamespace { object }).into());
    } else {
        notes.push(NoteKind::Backup(BackupNote::Saves { counts: doomed.counts }).into());
        if doomed.elsewhere.total() > 0 {
            notes.push(NoteKind::Backup(BackupNote::OtherClusters { counts: doomed.elsewhere }).into());
        }
    }
    plan.add_notes(notes);
    Ok(!is_lost)
}

/// Reads the live objects that a planned deletion deletes, without what no restoration needs, and passes them on one by one.
///
/// # Errors
///
/// When objects cannot be read, or `save` fails.
pub async fn save_objects<E: From<OperationError>>(
    clusters: &Clusters,
    prepared: &PreparedDelete,
    mut save: impl FnMut(SavedObject) -> Result<(), E>,
) -> Result<(), E> {
    let release = prepared.record.as_ref().map(|record| record.inventory.release.clone());
    let doomed = Doomed::of(&prepared.plan, &prepared.snapshot, release.as_ref());
    let mut live = Live { cluster: &clusters.own, doomed };
    while let Some(found) = live.next().await {
        let Found { resource, texts } = found.map_err(|why| not_saved(release.as_ref(), why)).map_err(E::from)?;
        for (uid, text) in texts {
            if let Some(object) = live.saved(&resource, &uid, &text) {
                save(object)?;
            }
        }
    }
    Ok(())
}

fn not_saved(release: Option<&ReleaseName>, why: String) -> OperationError {
    OperationError::NotSaved { release: release.map(ToString::to_string), why }
}

/// The live objects that a plan deletes, read kind by kind.
struct Live<'a> {
    cluster: &'a Cluster,
    doomed: Doomed,
}

/// The objects of a query as text, which takes a fraction of the memory of what it means.
struct Found {
    resource: Resource,
    texts: Vec<(Uid, Box<RawValue>)>,
}

impl Live<'_> {
    /// Reads the objects of the next query. An object that is gone meanwhile is left out.
    async fn next(&mut self) -> Option<Result<Found, String>> {
        let query = self.doomed.queries.pop()?;
        let (listings, texts) = self.cluster.details::<Box<RawValue>>(&query, true).await;
        let failure = listings.into_iter().find_map(|listing| match listing.found {
            Listed::Failed(reason) => Some(reason),
            Listed::Items { .. } | Listed::NotServed => None,
        });
        Some(failure.map_or(Ok(Found { resource: query.resource, texts }), Err))
    }

    /// Returns an object as it is saved, if it is.
    fn saved(&mut self, resource: &Resource, uid: &Uid, text: &RawValue) -> Option<SavedObject> {
        let own = self.doomed.take(uid)?;
        // The text was decoded once already, so that it can be parsed. The items of a list do not name their kind.
        let mut object: Value = serde_json::from_str(text.get()).unwrap_or_default();
        object["apiVersion"] = resource.api_version().to_string().into();
        object["kind"] = resource.kind.kind.as_str().into();
        Some(SavedObject { own, object: to_save(object)? })
    }
}

impl Record {
    /// Saves the live objects that a plan deletes, before the write of the inventory that names the backup. What an earlier
    /// deletion has saved and not found any more, as it was interrupted, remains in the backup.
    pub(super) async fn back_up(
        &mut self,
        clusters: &Clusters,
        plan: &Plan,
        snapshot: &Snapshot,
    ) -> Result<(), OperationError> {
        self.check_lock(clusters).await?;
        let (store, release) = (clusters.inventory(), self.inventory.release.clone());
        let token = match store.owner_of_backup(&release, self.token.take()).await {
            // A lost record whose namespace is being deleted has no place for a backup.
            Err(error) if !self.is_stored() && is_unwritable(&error) => return Ok(()),
            token => token?,
        };
        // An apply that has succeeded since made the backup of an earlier deletion worthless.
        let former = self.inventory.backup.as_ref().filter(|_| self.inventory.phase != Phase::Applied);
        let former = match former {
            Some(backup) => Some(store.read_backup(&release, backup).await?),
            None => None,
        };
        let live = Live { cluster: &clusters.own, doomed: Doomed::of(plan, snapshot, Some(&release)) };
        let mut writer = store.write_backup(&release, &token);
        let fits = save_all(&mut writer, live, former.as_ref(), &release).await?;
        let written = if fits { writer.finish().await? } else { writer.discard().await };
        self.token = Some(token);
        match written {
            NewBackup::Written(backup) => {
                self.set_backup(backup);
                Ok(())
            }
            NewBackup::TooLarge => {
                let why = format!("the backup would need more than {MAX_PARTS} Secrets");
                Err(not_saved(Some(&release), why))
            }
        }
    }
}

/// Writes the live objects to a backup, and those of the former one that they do not replace. Returns whether they fit.
async fn save_all(
    writer: &mut BackupWriter<'_>,
    mut live: Live<'_>,
    former: Option<&PackedBackup>,
    release: &ReleaseName,
) -> Result<bool, OperationError> {
    let mut known: HashMap<ObjectKey, Option<Uid>> = HashMap::new();
    for object in former.iter().flat_map(|former| former.objects()) {
        let object = object?;
        known.insert(object.key(), object.uid());
    }
    let mut replaced = HashSet::new();
    while let Some(found) = live.next().await {
        let Found { resource, texts } = found.map_err(|why| not_saved(Some(release), why))?;
        for (uid, text) in texts {
            let Some(object) = live.saved(&resource, &uid, &text) else { continue };
            let key = object.key();
            // Its controllers may have torn down half of an object that is being deleted since.
            if object.is_deleting() && known.get(&key).is_some_and(|uid| *uid == object.uid()) {
                continue;
            }
            if !writer.add(&object).await? {
                return Ok(false);
            }
            replaced.insert(key);
        }
    }
    for object in former.iter().flat_map(|former| former.objects()) {
        let object = object?;
        if !replaced.contains(&object.key()) && !writer.add(&object).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads the backup of a release twice: what it contains, and then its objects.
pub(super) async fn read(
    clusters: &Clusters,
    release: &ReleaseName,
    backup: &billhook_plan::Backup,
) -> Result<billhook_plan::Restoration, Error> {
    let packed = clusters.inventory().read_backup(release, backup).await?;
    let mut contents = billhook_plan::BackupContents::default();
    for object in packed.objects() {
        contents.add(&object?);
    }
    let mut restoration = billhook_plan::Restoration::new(contents);
    for object in packed.objects() {
        restoration.add(object?).map_err(|error| packed.damaged(&error.problem))?;
    }
    Ok(restoration)
}
