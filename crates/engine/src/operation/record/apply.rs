//! What an apply writes into the inventory: its intention before the first request, and what it has confirmed.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use billhook_cluster::Error;
use billhook_objects::{Digest, Manifest, ObjectKey, Uid, wellknown};
use billhook_plan::{
    ApplyAction, ApplyTask, DeletionState, Directives, Entry, Failures, Inventory, Phase, Plan, RequestedDeletion, Work,
};
use billhook_policy::{ManifestPolicy, Policy};
use serde_json::Value;

use super::{NotWritten, Record, in_time, not_written};
use crate::{
    Clusters, Status, Summary,
    node::AppliedObject,
    operation::error::OperationError,
    run::Outcome,
    write::{self, How},
};

impl Record {
    /// Adds the objects that an apply intends to write. The old ones remain until they are gone. `labelled` are the UIDs of the
    /// existing objects that carry the label of the release.
    pub(in crate::operation) fn intend(
        mut self,
        manifests: &BTreeMap<ObjectKey, Manifest>,
        directives: &BTreeMap<ObjectKey, Directives>,
        tasks: &BTreeMap<&ObjectKey, &ApplyTask>,
        labelled: &HashSet<&Uid>,
        policy: Policy,
        created: &[String],
    ) -> Self {
        let entries = &mut self.inventory.entries;
        for (key, entry) in entries.iter_mut() {
            let obsolete = !manifests.contains_key(key);
            self.dirty |= entry.obsolete != obsolete;
            entry.obsolete = obsolete;
        }
        let default = Directives::default();
        let directives = |key| directives.get(key).unwrap_or(&default);
        let left = |key| tasks.get(key).and_then(|task| task.left());
        let missing = manifests.iter().filter(|(key, _)| !entries.contains_key(key));
        let new = missing.map(|(key, manifest)| {
            let applied = if left(key).is_some() { Digest::of(&Value::Null) } else { directives(key).digest(manifest) };
            (key.clone(), Entry::new(manifest.api_version.clone(), applied))
        });
        // Added at once: a map that grows in order is half empty.
        let mut new: BTreeMap<_, _> = new.collect();
        self.dirty |= !new.is_empty();
        entries.append(&mut new);
        for (key, manifest) in manifests {
            let Some(entry) = entries.get_mut(key) else { continue };
            let (directives, left) = (directives(key), left(key));
            let before = entry.clone();
            match left {
                // It is not written, so the entry keeps describing the last apply.
                Some(uid) => (entry.uid, entry.unlabelled) = (Some(uid.clone()), !labelled.contains(uid)),
                None if entry.digest == directives.digest(manifest) => {}
                None => {
                    // The recorded version belongs to the old digest.
                    (entry.resource_version, entry.fingerprint) = (None, None);
                    entry.digest = directives.digest(manifest);
                    entry.api_version = manifest.api_version.clone();
                }
            }
            entry.keep = directives.policy == ManifestPolicy::Keep;
            entry.fallback = directives.policy == ManifestPolicy::Fallback;
            entry.deletion_requested = false;
            entry.before_delete = directives.before_delete.clone().map(Box::new);
            self.dirty |= *entry != before;
        }
        for namespace in created {
            self.dirty |= self.inventory.created_namespaces.insert(namespace.clone());
        }
        self.dirty |= self.inventory.policy != policy;
        self.inventory.policy = policy;
        self
    }

    /// Adds the objects that an apply deletes and no entry names, forgets those whose deletion is complete, with what was in
    /// them, and notes when that was verified.
    pub(in crate::operation) fn intend_deletions(&mut self, plan: &Plan, now: &str) {
        let Inventory { entries, deleted, .. } = &mut self.inventory;
        for step in plan.delete_steps() {
            entries.entry(step.object.clone()).or_insert_with(|| {
                self.dirty = true;
                let entry = Entry::new(step.resource.api_version(), Digest::of(&Value::Null));
                Entry { uid: Some(step.uid.clone()), obsolete: true, ..entry }
            });
        }
        let before = std::mem::take(deleted);
        for RequestedDeletion { object, state, dropped, .. } in &plan.requested_deletions {
            let was_recorded = *state == DeletionState::NotFound && entries.remove(object).is_some();
            let verified = was_recorded.then(|| now.to_owned()).or_else(|| before.get(object).cloned());
            deleted.extend(verified.filter(|_| !dropped).map(|at| (object.clone(), at)));
            self.dirty |= was_recorded;
            // Whoever requested it, it is what the manifest asks for.
            if let (DeletionState::Deleting { .. }, Some(entry)) = (state, entries.get_mut(object)) {
                self.dirty |= !std::mem::replace(&mut entry.deletion_requested, true);
            }
            let is_gone = *state == DeletionState::NotFound && object.kind == wellknown::namespace();
            if is_gone {
                let count = entries.len();
                entries.retain(|key, entry| !(entry.obsolete && key.namespace.as_ref() == Some(&object.name)));
                self.dirty |= entries.len() != count;
            }
        }
        self.dirty |= *deleted != before;
    }

    /// Notes that a version is being applied.
    pub(in crate::operation) fn begin_version(&mut self, version: &str, now: &str) {
        let before = self.inventory.history.first().map(|last| last.version.clone());
        self.inventory.begin_version(version, now);
        self.dirty |= before.as_deref() != Some(version);
    }

    /// Writes the intended objects before the first request of an apply, and locks the release. Does neither if there is
    /// nothing to write. Returns whether the release is locked.
    pub(in crate::operation) async fn begin_apply(
        &mut self,
        clusters: &Clusters,
        plan: &mut Plan,
        manifests: &BTreeMap<ObjectKey, Manifest>,
    ) -> Result<bool, OperationError> {
        let idle = |node: &billhook_plan::Node| match &node.work {
            Work::Apply(_) | Work::Sequence(_) => {
                node.work.apply_tasks().all(|t| matches!(t.action, ApplyAction::Unchanged | ApplyAction::Await))
                    && node.work.steps().iter().all(|step| step.delete().is_none())
            }
            Work::Delete(_) | Work::Patch(_) => false,
        };
        self.dirty |= self.inventory.backup.is_some() && !self.restores;
        // A lock that a killed command left is removed at the end.
        if !self.dirty && !self.is_locked() && plan.nodes.iter().all(idle) {
            return Ok(false);
        }
        self.create_own_namespace(clusters, plan, manifests).await?;
        self.inventory.phase = Phase::Applying;
        self.begin(clusters, if self.restores { "restore" } else { "apply" }, false).await?;
        Ok(true)
    }

    /// Applies the Namespace of the inventory if the release contains it, since the inventory cannot be written before.
    async fn create_own_namespace(
        &mut self,
        clusters: &Clusters,
        plan: &mut Plan,
        manifests: &BTreeMap<ObjectKey, Manifest>,
    ) -> Result<(), Error> {
        let key = ObjectKey::new(wellknown::namespace(), None, self.inventory.release.namespace());
        let field_manager = plan.field_manager();
        let is_created = |task: &&mut ApplyTask| task.object == key && task.action == ApplyAction::Create;
        let created = applied_mut(plan).find(is_created).filter(|_| clusters.record_here());
        let Some((task, manifest)) = created.zip(manifests.get(&key)) else { return Ok(()) };
        let how = How { field_manager, force_conflicts: false, dry_run: false };
        let applied = write::apply(&clusters.own, task, manifest, &how).await?;
        // The run writes it again. The task remains a creation, as which it is reported.
        task.uid = Some(applied.uid.clone());
        if let Some(entry) = self.inventory.entries.get_mut(&key) {
            entry.uid = Some(applied.uid);
        }
        Ok(())
    }

    /// Writes what an apply has confirmed.
    pub(in crate::operation) async fn end_apply(
        &mut self,
        clusters: &Clusters,
        plan: &Plan,
        outcome: &Outcome,
        pruned: bool,
    ) -> Result<(), NotWritten> {
        let locked = self.end_lock().await?;
        self.dirty |= locked;
        let to_patch = patches(plan);
        for applied in &outcome.applied {
            // An object is not in its desired state before it is patched.
            self.confirm(applied, !to_patch.contains(&applied.object));
        }
        for patched in &outcome.patched {
            // An object that was patched for its deletion is not in its desired state if a later version contains it again.
            if self.inventory.entries.get(&patched.object).is_some_and(|entry| !entry.obsolete) {
                self.confirm(patched, true);
            }
        }
        for object in &outcome.left_to_others {
            self.dirty |= self.inventory.entries.remove(object).is_some();
        }
        self.confirm_deletions(plan, outcome);
        self.forget(plan, outcome, |entry| entry.obsolete && pruned);
        let failures = Failures::of(outcome.summary.failures());
        self.dirty |= self.inventory.failures != failures;
        self.inventory.failures = failures;
        if outcome.summary.status == Status::Done {
            self.dirty |= self.inventory.phase != Phase::Applied || self.inventory.swept;
            (self.inventory.phase, self.inventory.swept) = (Phase::Applied, false);
            self.dirty |= self.inventory.complete_version(&clusters.now);
            if !self.restores {
                self.dirty |= self.inventory.backup.take().is_some();
            }
        }
        if !self.dirty {
            return Ok(());
        }
        in_time(outcome, self.save(clusters)).await.map_err(not_written)
    }

    /// Notes which deletions that manifests ask for were requested, or are not necessary any more.
    fn confirm_deletions(&mut self, plan: &Plan, outcome: &Outcome) {
        let steps: HashSet<_> = plan.delete_steps().map(|step| &step.object).collect();
        let Summary { requested, recreated, .. } = &outcome.summary;
        for object in requested.iter().chain(recreated).chain(&outcome.gone).filter(|object| steps.contains(object)) {
            let entry = self.inventory.entries.get_mut(object);
            self.dirty |= entry.is_some_and(|entry| !std::mem::replace(&mut entry.deletion_requested, true));
        }
    }

    /// Confirms an object, which may be in its desired state.
    fn confirm(&mut self, applied: &AppliedObject, desired: bool) {
        if let Some(entry) = self.inventory.entries.get_mut(&applied.object) {
            let before = entry.clone();
            entry.uid = Some(applied.uid.clone());
            entry.resource_version = desired.then(|| applied.resource_version.clone());
            entry.fingerprint = applied.fingerprint.filter(|_| desired);
            entry.unlabelled = false;
            self.dirty |= *entry != before;
        }
    }

    /// Lets an apply restore the backup in the record. The objects that the deletion has left still belong to the release.
    pub(in crate::operation) fn restore(&mut self, left: &BTreeSet<ObjectKey>) {
        self.restores = true;
        for (key, entry) in &mut self.inventory.entries {
            entry.obsolete &= !left.contains(key);
        }
    }
}

/// Returns the objects that a plan patches.
fn patches(plan: &Plan) -> BTreeSet<&ObjectKey> {
    plan.patch_tasks().map(|task| &task.object).collect()
}

fn applied_mut(plan: &mut Plan) -> impl Iterator<Item = &mut ApplyTask> {
    plan.nodes.iter_mut().flat_map(|node| node.work.apply_tasks_mut())
}
