//! The restoration of a release from the backup of its deletion: an apply of the objects in it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use billhook_objects::{Catalog, Manifest, ObjectKey, ReleaseName, ResourceType, Scope, wellknown};
use billhook_plan::{
    ApplyAction, ApplyTask, BackupNote, LateOwner, MissingNamespaces, Note, NoteKind, Operation, PatchTask, Phase,
    PlanError, Problem, Resource, Tie, UncoveredCause, UncoveredNote, Wait,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::{
    apply::{ApplyInput, DeploymentOrder, PreparedApply, Unowned, prepare_apply},
    backup,
    error::OperationError,
    read::catalog,
};
use crate::{Clusters, node::WINDOW};

/// The input of a restoration.
pub struct RestoreInput {
    /// The release.
    pub release: ReleaseName,
    /// Whether to take over objects that exist and belong to no release.
    pub adopt: bool,
    /// What happens to namespaces that do not exist and that are not restored.
    pub missing_namespaces: MissingNamespaces,
    /// What the end of the restoration waits for.
    pub wait: Wait,
}

/// Plans a restoration, which [`apply`](super::apply) carries out. Changes nothing.
///
/// # Errors
///
/// When there is no backup, it is damaged, objects belong to another release, or the cluster cannot be read.
pub async fn prepare_restore(clusters: &Clusters, input: RestoreInput) -> Result<PreparedApply, OperationError> {
    let RestoreInput { release, adopt, missing_namespaces, wait } = input;
    let store = clusters.inventory();
    let (catalog, stored) = tokio::try_join!(catalog(clusters, None), store.load(&release))?;
    let Some(stored) = stored.filter(|stored| !stored.token.is_empty()) else {
        return Err(OperationError::NoRelease(release, Vec::new()));
    };
    let Some(saved) = &stored.inventory.backup else { return Err(OperationError::NoBackup(release)) };
    let mut restoration = backup::read(clusters, &release, saved).await?;
    let notes = restoration.notes();
    let catalog = with_defined_kinds(catalog, &restoration.own);
    let entries = &stored.inventory.entries;
    let left: BTreeSet<_> = entries.iter().filter(|(_, entry)| !entry.obsolete).map(|(key, _)| key.clone()).collect();
    let apply = ApplyInput {
        unowned: if adopt { Unowned::Take } else { Unowned::Refuse },
        missing_namespaces,
        order: DeploymentOrder::Groups(wait),
        notes: notes.into_iter().map(Note::from).collect(),
        ..ApplyInput::new(release, std::mem::take(&mut restoration.own))
    };
    let mut prepared = prepare_apply(clusters, apply).await?;
    if prepared.revision() != stored.token.revision() {
        let release = stored.inventory.release.to_string();
        return Err(PlanError::from(Problem::Outdated { release }).into());
    }
    prepared.record.restore(&left);
    // What the deletion has left is not of an earlier version.
    let plan = &mut prepared.plan;
    plan.operation = Operation::Restore;
    plan.notes.retain(|note| !matches!(note.kind, NoteKind::Uncovered(UncoveredNote::NotPruned { .. })));
    plan.uncovered.retain(|uncovered| uncovered.cause != UncoveredCause::NoGroup);
    let (others, exist) = others(clusters, &catalog, std::mem::take(&mut restoration.others)).await?;
    plan.add_notes(exist.into_iter().map(|object| NoteKind::Backup(BackupNote::Exists { object }).into()));
    // After a restoration that has succeeded, only what is created again needs its owners and its status.
    let is_complete = stored.inventory.phase == Phase::Applied;
    let is_tied = |task: &ApplyTask| task.left().is_none() && (!is_complete || task.action == ApplyAction::Create);
    let tasks: HashMap<ObjectKey, Resource> = plan
        .apply_tasks()
        .filter(|task| task.action != ApplyAction::Await && is_tied(task))
        .chain(others.iter().map(|(task, _)| task))
        .map(|task| (task.object.clone(), task.resource.clone()))
        .collect();
    let patches = patches(clusters, &catalog, &tasks, restoration.ties).await?;
    plan.add_notes(patches.notes);
    let (tasks, manifests): (Vec<_>, Vec<_>) = others.into_iter().unzip();
    plan.append_restoration(tasks, patches.owners, patches.status);
    prepared.manifests.extend(manifests.into_iter().map(|manifest| (manifest.key.clone(), manifest)));
    Ok(prepared)
}

fn with_defined_kinds(mut catalog: Arc<Catalog>, manifests: &[Manifest]) -> Arc<Catalog> {
    let crds = manifests.iter().filter(|manifest| manifest.key.kind == wellknown::crd());
    for defined in crds.filter_map(|manifest| ResourceType::from_crd(&manifest.value())) {
        Arc::make_mut(&mut catalog).insert_missing(defined);
    }
    catalog
}

/// Returns the tasks that create objects of others, and those of them that exist.
async fn others(
    clusters: &Clusters,
    catalog: &Catalog,
    manifests: Vec<Manifest>,
) -> Result<(Vec<(ApplyTask, Manifest)>, Vec<ObjectKey>), OperationError> {
    let one = |manifest: Manifest| async move {
        let Some(served) = catalog.get(&manifest.key.kind) else {
            return Err(PlanError::from(Problem::NotRestorable { object: manifest.key }).into());
        };
        let resource = Resource::of(served, Some(manifest.api_version.version()));
        let exists = clusters.own.get_meta(&resource, &manifest.key).await?.is_some();
        Ok::<_, OperationError>((exists, ApplyTask::creation(manifest.key.clone(), resource), manifest))
    };
    // Collected because the closure must not live across an await: the future would not be `Send`.
    let reads: Vec<_> = manifests.into_iter().map(one).collect();
    let found: Vec<_> = stream::iter(reads).buffered(WINDOW).try_collect().await?;
    let (mut tasks, mut exist) = (Vec::new(), Vec::new());
    for (exists, task, manifest) in found {
        if exists { exist.push(task.object) } else { tasks.push((task, manifest)) }
    }
    Ok((tasks, exist))
}

#[derive(Default)]
struct Patches {
    owners: Vec<PatchTask>,
    status: Vec<PatchTask>,
    notes: Vec<Note>,
}

/// Returns the patches that tie restored objects to their owners and set their status. An owner that is not restored must be the
/// same as before.
async fn patches(
    clusters: &Clusters,
    catalog: &Catalog,
    tasks: &HashMap<ObjectKey, Resource>,
    ties: BTreeMap<ObjectKey, Tie>,
) -> Result<Patches, OperationError> {
    let mut patches = Patches::default();
    let mut exists: HashMap<String, bool> = HashMap::new();
    for (object, Tie { owners, status }) in ties {
        let Some(resource) = tasks.get(&object) else { continue };
        let (mut references, mut late) = (Vec::new(), Vec::new());
        for reference in owners {
            let Some(served) = catalog.get(&reference.owner.kind) else {
                patches.notes.push(missing(&object, reference.owner));
                continue;
            };
            let namespace = object.namespace.clone().filter(|_| served.scope == Scope::Namespaced);
            let owner = ObjectKey { namespace, ..reference.owner };
            let address = Resource::of(served, None);
            if reference.is_restored {
                late.push(LateOwner { index: references.len(), object: owner, resource: address });
                references.push(without_uid(reference.reference));
                continue;
            }
            let is_same = match exists.get(reference.uid.as_str()) {
                Some(is_same) => *is_same,
                None => {
                    let found = clusters.own.get_meta(&address, &owner).await?;
                    let is_same = found.is_some_and(|found| found.uid == reference.uid);
                    exists.insert(reference.uid.as_str().to_owned(), is_same);
                    is_same
                }
            };
            if is_same { references.push(reference.reference) } else { patches.notes.push(missing(&object, owner)) }
        }
        if !references.is_empty() {
            let patch = json!({ "metadata": { "ownerReferences": references } });
            let task = PatchTask::new(object.clone(), resource.clone(), None, patch);
            patches.owners.push(PatchTask { owners: late, ..task });
        }
        if let Some(status) = status {
            let task = PatchTask::new(object, resource.clone(), None, Value::Null);
            patches.status.push(PatchTask { status: Some(Box::new(status)), ..task });
        }
    }
    Ok(patches)
}

fn missing(object: &ObjectKey, owner: ObjectKey) -> Note {
    NoteKind::Backup(BackupNote::OwnerMissing { object: object.clone(), owner }).into()
}

/// The UID of an owner is set when it is known.
fn without_uid(mut reference: Value) -> Value {
    reference["uid"] = Value::from("");
    reference
}
