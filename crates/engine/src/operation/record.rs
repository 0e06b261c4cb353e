//! The inventory of a release during an operation: written before the first request, and forgetting an object only when
//! it is gone.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    time::Duration,
};

use billhook_cluster::{Begun, Cluster, Error, ErrorKind, HeldLock, Stored, Token};
use billhook_objects::{ApiVersion, Digest, Manifest, ObjectKey, ReleaseName, Uid, wellknown};
use billhook_plan::{
    ApplyAction, ApplyTask, Backup, DeletionState, Directives, Entry, Failures, Inventory, Phase, Plan, PlanError,
    Problem, RequestedDeletion, Snapshot, Uncovered, UncoveredCause, Work,
};
use billhook_policy::{ManifestPolicy, Policy};
use serde_json::Value;

use super::{
    claims::{labelled, remove_labels},
    error::OperationError,
};
use crate::{
    Blocker, Clusters, Event, Left, RefusedBy, RunOptions, Status, Summary,
    node::AppliedObject,
    run,
    run::Outcome,
    write::{self, How},
};

/// How long the last write of an inventory may take after a timeout or an interruption.
const LAST_WRITE: Duration = Duration::from_secs(10);

/// The group of the objects that a release gives up.
const GIVEN_UP: &str = "no longer managed";

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
    fn into_entry(self) -> (ObjectKey, Entry) {
        let Self { key, api_version, uid, before_delete, keep, fallback } = self;
        let before_delete = before_delete.map(Box::new);
        // The applied manifest is unknown, so the next apply always writes the object.
        let unlabelled = uid.is_some();
        let entry = Entry::new(api_version, Digest::of(&Value::Null));
        (key, Entry { uid, before_delete, keep, fallback, unlabelled, ..entry })
    }
}

/// The inventory of a release during an operation.
pub(crate) struct Record {
    pub(crate) inventory: Inventory,
    /// The precondition of the next write; none if the inventory is not stored yet.
    pub(crate) token: Option<Token>,
    origin: Origin,
    /// Whether it has changes that are not written yet.
    dirty: bool,
    /// The lock of the release, from the first write of the operation to the last.
    lock: Option<HeldLock>,
    /// Whether an apply restores the backup in the record, and so keeps it.
    restores: bool,
}

/// Why the last write of an inventory was not sent, or failed.
pub(super) enum NotWritten {
    /// The lock of the release was lost: the inventory is another operation's now.
    LockLost,
    /// The write failed.
    Failed(Error),
}

/// What is stored of a release.
pub(super) enum Loaded {
    /// Its inventory.
    Record(Box<Record>),
    /// None; perhaps the head of an operation that ended before it wrote one.
    Nothing(Option<Box<Token>>),
}

/// Where the inventory comes from.
#[derive(Clone, Copy, PartialEq)]
enum Origin {
    /// The release is new.
    New,
    /// It was stored.
    Stored,
    /// It consists of the objects of an earlier deployer, and is not stored yet.
    Inherited,
    /// It was lost. Its objects were found by their label.
    Swept,
}

impl Record {
    /// Returns the inventory of a release that has none stored: the objects of an earlier deployer, if there are any. The
    /// `head` may be what an interrupted operation has left.
    pub(super) fn inherited(release: ReleaseName, head: Option<Box<Token>>, inherited: Vec<Inherited>) -> Self {
        let origin = if inherited.is_empty() { Origin::New } else { Origin::Inherited };
        let mut inventory = Inventory::new(release);
        inventory.entries.extend(inherited.into_iter().map(Inherited::into_entry));
        Self { inventory, token: head.map(|head| *head), origin, dirty: true, lock: None, restores: false }
    }

    /// Returns the inventory of a release that lost its own: the objects that a sweep found.
    pub(super) fn swept(release: ReleaseName, head: Option<Box<Token>>, entries: BTreeMap<ObjectKey, Entry>) -> Self {
        let inventory = Inventory { entries, swept: true, ..Inventory::new(release) };
        Self {
            inventory,
            token: head.map(|head| *head),
            origin: Origin::Swept,
            dirty: true,
            lock: None,
            restores: false,
        }
    }

    /// Reads the inventory.
    pub(super) async fn load(clusters: &Clusters, release: &ReleaseName) -> Result<Loaded, Error> {
        Ok(match clusters.inventory().load(release).await? {
            Some(Stored { token, .. }) if token.is_empty() => Loaded::Nothing(Some(Box::new(token))),
            Some(Stored { inventory, token }) => {
                let (token, origin) = (Some(token), Origin::Stored);
                Loaded::Record(Box::new(Self { inventory, token, origin, dirty: false, lock: None, restores: false }))
            }
            None => Loaded::Nothing(None),
        })
    }

    /// Takes the head that was read, for the inventory that replaces this one.
    pub(super) fn take_head(&mut self) -> Option<Box<Token>> {
        self.token.take().map(Box::new)
    }

    /// Returns the inventory as it was read; none for a new release, or one of which only a backup is left.
    pub(super) fn known(&self) -> Option<&Inventory> {
        let exists = self.origin != Origin::New && self.inventory.phase != Phase::Deleted;
        exists.then_some(&self.inventory)
    }

    /// Whether the inventory is stored.
    pub(super) fn is_stored(&self) -> bool {
        self.origin == Origin::Stored
    }

    /// Replaces the backup that the next write of the inventory names.
    pub(super) fn set_backup(&mut self, backup: Backup) {
        self.inventory.backup = Some(backup);
        self.dirty = true;
    }

    /// Whether the inventory was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.origin == Origin::Swept
    }

    /// Adds the objects that another sweep found.
    pub(super) fn add_swept(&mut self, entries: BTreeMap<ObjectKey, Entry>) {
        for (key, entry) in entries {
            self.inventory.entries.entry(key).or_insert(entry);
        }
    }

    /// Whether everything that the recorded policy covers is gone.
    pub(super) fn is_retained(&self) -> bool {
        self.inventory.phase.is_over()
    }

    /// Adds the objects that an apply intends to write. The old ones remain until they are gone. `labelled` are the UIDs of the
    /// existing objects that carry the label of the release.
    pub(super) fn intend(
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
    pub(super) fn intend_deletions(&mut self, plan: &Plan, now: &str) {
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
    pub(super) fn begin_version(&mut self, version: &str, now: &str) {
        let before = self.inventory.history.first().map(|last| last.version.clone());
        self.inventory.begin_version(version, now);
        self.dirty |= before.as_deref() != Some(version);
    }

    /// Writes the intended objects before the first request of an apply, and locks the release. Does neither if there is
    /// nothing to write. Returns whether the release is locked.
    pub(super) async fn begin_apply(
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

    /// Whether the inventory was locked when it was read.
    pub(super) fn is_locked(&self) -> bool {
        self.token.as_ref().is_some_and(Token::is_locked)
    }

    /// Writes the inventory and locks the release.
    async fn begin(&mut self, clusters: &Clusters, operation: &str, may_vanish: bool) -> Result<(), OperationError> {
        let (store, token) = (clusters.inventory(), self.token.take());
        let begun = store.begin(&mut self.inventory, token, (&clusters.holder, operation), may_vanish).await;
        self.hold(begun)?;
        self.dirty = false;
        Ok(())
    }

    fn hold(&mut self, begun: Result<Begun, Error>) -> Result<(), OperationError> {
        let problem = match begun {
            Ok(Begun::Held(lock)) => {
                self.lock = Some(lock);
                return Ok(());
            }
            Ok(Begun::Locked(locked)) => Problem::Locked(locked),
            // Another operation has ended since the record was read.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict(fields) if fields.is_empty()) => {
                Problem::Outdated { release: self.inventory.release.to_string() }
            }
            Err(error) => return Err(error.into()),
        };
        Err(PlanError::from(problem).into())
    }

    /// Locks the release for work other than a plan, without writing its inventory. Returns the clusters for this work.
    pub(super) async fn lock(&mut self, clusters: &Clusters, operation: &str) -> Result<Clusters, OperationError> {
        let (release, token) = (self.inventory.release.clone(), self.token.take());
        match clusters.inventory().lock(&release, token, (&clusters.holder, operation)).await {
            // Where no record can be written, there is no other operation that could lock it.
            Err(error) if self.origin != Origin::Stored && is_unwritable(&error) => {}
            begun => self.hold(begun)?,
        }
        Ok(self.fenced(clusters))
    }

    /// Returns the clusters behind the fence of the lock, if there is one.
    pub(super) fn fenced(&self, clusters: &Clusters) -> Clusters {
        self.lock.as_ref().map_or_else(|| clusters.clone(), |lock| clusters.fenced(&lock.fence()))
    }

    /// Runs a plan while the release is locked. When the lock is lost, no further request passes.
    pub(super) async fn run(
        &mut self,
        plan: &Plan,
        snapshot: &Snapshot,
        clusters: &Clusters,
        manifests: &BTreeMap<ObjectKey, Manifest>,
        options: &RunOptions,
    ) -> Outcome {
        let label = Some(self.inventory.release.label_value());
        let Some(lock) = &mut self.lock else {
            return Box::pin(run::run(plan, snapshot, clusters, manifests, label, options)).await;
        };
        let clusters = clusters.fenced(&lock.fence());
        let options = RunOptions { stop: options.stop.child_token(), ..options.clone() };
        let mut run = Box::pin(run::run(plan, snapshot, &clusters, manifests, label, &options));
        tokio::select! {
            outcome = &mut run => return outcome,
            () = lock.lost() => options.stop.cancel(),
        }
        run.await
    }

    /// Ends the renewals of the lock, so that the last write follows the last renewal. Returns whether there was a lock.
    async fn end_lock(&mut self) -> Result<bool, NotWritten> {
        let Some(lock) = self.lock.take() else { return Ok(false) };
        self.token = Some(lock.end().await.ok_or(NotWritten::LockLost)?);
        Ok(true)
    }

    /// Removes the lock of an operation that ends before its run. If that fails, the lock expires.
    pub(super) async fn unlock(mut self, clusters: &Clusters) {
        if let Ok(true) = self.end_lock().await
            && let Some(token) = self.token
        {
            clusters.inventory().unlock(&self.inventory.release, token).await.ok();
        }
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
    pub(super) async fn end_apply(
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

    /// Marks the release as being deleted, and locks it.
    pub(super) async fn begin_delete(&mut self, clusters: &Clusters, plan: &Plan) -> Result<(), OperationError> {
        let changes_nothing = plan.nodes.is_empty() && plan.unmanaged.is_empty();
        match self.origin {
            // Deleting a retained release again changes nothing.
            Origin::Stored if self.is_retained() && changes_nothing && !self.is_locked() => return Ok(()),
            Origin::Stored | Origin::Inherited => {}
            // Collections may be deleted without any record, and a head that an operation has left is.
            Origin::New | Origin::Swept if !changes_nothing || self.token.is_some() => {}
            // There is nothing to record.
            Origin::New | Origin::Swept => return Ok(()),
        }
        // A policy that is given for the deletion of a retained release is not recorded. The recorded one stays done with.
        if !self.is_retained() {
            self.inventory.phase = Phase::Deleting;
        }
        // What is applied after the deletion is an installation.
        self.inventory.history.clear();
        self.inventory.deleted.clear();
        self.inventory.failures = Failures::default();
        match self.begin(clusters, "delete", true).await {
            // A record that is not stored may have no place to be written to. Its objects are found again: by a sweep, or by
            // what an earlier deployer knows.
            Err(OperationError::Cluster(error)) if self.origin != Origin::Stored && is_unwritable(&error) => Ok(()),
            begun => begun,
        }
    }

    /// Writes what a deletion has left. If everything that the policy covers is gone, deletes the inventory, unless objects
    /// remain that it is to `retain`. Returns whether it retains any.
    pub(super) async fn end_delete(
        mut self,
        clusters: &Clusters,
        plan: &Plan,
        outcome: &Outcome,
        retain: bool,
    ) -> Result<bool, NotWritten> {
        let locked = self.end_lock().await?;
        if self.token.is_none() && self.origin != Origin::Swept {
            return Ok(false);
        }
        self.dirty |= locked;
        let release = self.inventory.release.clone();
        let lost = self.inventory.swept;
        let before = self.inventory.phase;
        let done = outcome.summary.status == Status::Done;
        self.forget(plan, outcome, |_| true);
        let retains = done && retain && !self.inventory.entries.is_empty();
        let remains = retains || (done && retain && self.inventory.backup.is_some());
        if remains {
            self.inventory.phase = if retains { Phase::Retained } else { Phase::Deleted };
            self.dirty |= before != self.inventory.phase;
        }
        let written = match self.token.clone() {
            _ if remains && !self.dirty => Ok(()),
            _ if remains => self.save(clusters).await,
            Some(token) if done => clusters.inventory().remove(&release, token).await,
            Some(_) => in_time(outcome, self.save(clusters)).await,
            None => Ok(()),
        };
        match written {
            // The inventory was deleted with its Namespace. The remaining objects carry the release's label.
            Err(error) if unwritable(clusters, plan, &release, lost, &error) => Ok(false),
            written => written.map(|()| retains).map_err(not_written),
        }
    }

    /// Lets an apply restore the backup in the record. The objects that the deletion has left still belong to the release.
    pub(super) fn restore(&mut self, left: &BTreeSet<ObjectKey>) {
        self.restores = true;
        for (key, entry) in &mut self.inventory.entries {
            entry.obsolete &= !left.contains(key);
        }
    }

    /// Removes the entries of objects that are gone: confirmed by the API server during the run, deleted with their Namespace
    /// or CRD, or not found when the plan was made (then they are in no node and not uncovered).
    fn forget(&mut self, plan: &Plan, outcome: &Outcome, concerned: impl Fn(&Entry) -> bool) {
        let gone: BTreeSet<_> = outcome.gone.iter().collect();
        let planned = deleted(plan);
        let remains = |uncovered: &&Uncovered| !uncovered.deleted_with.as_ref().is_some_and(|with| gone.contains(with));
        let all = &outcome.summary.uncovered;
        let uncovered: BTreeSet<_> = all.iter().filter(remains).map(|uncovered| &uncovered.object).collect();
        let contained: BTreeSet<_> = all.iter().filter(|u| !remains(u)).map(|uncovered| &uncovered.object).collect();
        let before = self.inventory.entries.len();
        self.inventory.entries.retain(|key, entry| {
            let is_left = planned.contains(key) && !gone.contains(key) && !contained.contains(key);
            !concerned(entry) || uncovered.contains(key) || is_left
        });
        self.dirty |= self.inventory.entries.len() != before;
    }

    /// Notes that the release gives up objects, so that there is something to write.
    pub(super) fn intend_to_release(&mut self, plan: &Plan) {
        self.dirty |= !plan.unmanaged.is_empty();
    }

    /// Removes the label of the release from the objects that are annotated as no longer managed, and forgets these objects. One
    /// whose label cannot be removed, or was not because of Ctrl-C, remains in the record, so that the next operation tries it
    /// again.
    pub(super) async fn release_unmanaged(
        &mut self,
        clusters: &Clusters,
        plan: &Plan,
        snapshot: &Snapshot,
        options: &RunOptions,
        outcome: &mut Outcome,
    ) {
        let keys: BTreeSet<_> = plan.unmanaged.iter().map(|unmanaged| &unmanaged.object).collect();
        let is_stopped = options.stop.is_cancelled();
        let mut failed = BTreeMap::new();
        if !keys.is_empty() && !is_stopped {
            let label = self.inventory.release.label_value();
            let cluster = self.fenced(clusters).own;
            let answers = remove_labels(&cluster, &label, labelled(snapshot, &label, &keys)).await;
            failed.extend(answers.into_iter().filter_map(|(object, error)| Some((object, error?))));
        }
        let summary = &mut outcome.summary;
        if is_stopped && !keys.is_empty() {
            summary.status = summary.status.max(Status::Interrupted);
        }
        for object in keys {
            if !is_stopped && !failed.contains_key(object) {
                self.dirty |= self.inventory.entries.remove(object).is_some();
                continue;
            }
            let (object, cause) = (object.clone(), UncoveredCause::Unmanaged);
            summary.uncovered.push(Uncovered { object, cause, deleted_with: None });
        }
        for (object, error) in failed {
            let blocker = Blocker::Refused { message: error.message(), by: RefusedBy::of(&error) };
            summary.left.push(Left { object, group: GIVEN_UP.to_owned(), blockers: vec![blocker] });
            summary.status = summary.status.max(Status::Failed);
        }
    }

    /// Deletes the inventory, if one is stored, and with it the lock.
    pub(super) async fn remove(mut self, clusters: &Clusters) -> Result<(), NotWritten> {
        self.end_lock().await?;
        match self.token {
            Some(token) => clusters.inventory().remove(&self.inventory.release, token).await.map_err(not_written),
            None => Ok(()),
        }
    }

    async fn save(&mut self, clusters: &Clusters) -> Result<(), Error> {
        let token = clusters.inventory().save(&mut self.inventory, self.token.take()).await?;
        self.token = Some(token);
        self.dirty = false;
        Ok(())
    }
}

/// Another operation has written the inventory if it took the lock over, or if this one had no lock, because it had nothing to
/// write when it started.
fn not_written(error: Error) -> NotWritten {
    match error.kind() {
        ErrorKind::Conflict(fields) if fields.is_empty() => NotWritten::LockLost,
        _ => NotWritten::Failed(error),
    }
}

/// Limits the last write of an inventory after a timeout or an interruption. Nothing is lost if it fails, since the
/// remaining objects carry the release's label.
async fn in_time(outcome: &Outcome, write: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    match outcome.summary.status {
        Status::Done | Status::Failed => write.await,
        _ => tokio::time::timeout(LAST_WRITE, write).await.unwrap_or(Ok(())),
    }
}

/// Returns the objects that a plan patches.
fn patches(plan: &Plan) -> BTreeSet<&ObjectKey> {
    plan.patch_tasks().map(|task| &task.object).collect()
}

/// Returns the tasks of the objects that a plan applies, each object once.
pub(super) fn applied(plan: &Plan) -> impl Iterator<Item = &ApplyTask> {
    plan.apply_tasks().filter(|task| task.action != ApplyAction::Await)
}

fn applied_mut(plan: &mut Plan) -> impl Iterator<Item = &mut ApplyTask> {
    plan.nodes.iter_mut().flat_map(|node| node.work.apply_tasks_mut())
}

/// Returns the objects of the release's own cluster that a plan deletes.
pub(super) fn deleted(plan: &Plan) -> BTreeSet<&ObjectKey> {
    plan.deleted().filter(|(cluster, ..)| cluster.is_none()).map(|(_, object, ..)| object).collect()
}

/// Whether an inventory cannot be written because its Namespace is gone, or about to be.
fn unwritable(clusters: &Clusters, plan: &Plan, release: &ReleaseName, lost: bool, error: &Error) -> bool {
    let namespace = ObjectKey::new(wellknown::namespace(), None, release.namespace());
    is_unwritable(error) && (lost || !clusters.record_here() || deleted(plan).contains(&namespace))
}

/// Whether a record cannot be written because its Namespace does not exist, or is being deleted.
pub(super) fn is_unwritable(error: &Error) -> bool {
    error.code() == Some(404) || error.has_cause("NamespaceTerminating")
}

/// Deletes the inventory of a release without reading it, and leaves its objects unchanged.
///
/// # Errors
///
/// When the inventory cannot be deleted.
pub async fn forget_record(records: &Cluster, release: &ReleaseName) -> Result<(), Error> {
    records.inventory().forget(release).await
}

/// Emits the last event. A failure to write the inventory is added to the summary and hides nothing in it.
pub(super) fn finish(
    outcome: Outcome,
    written: Result<(), NotWritten>,
    clusters: &Clusters,
    options: &RunOptions,
) -> Summary {
    let mut summary = outcome.summary;
    match written {
        Ok(()) => {}
        Err(NotWritten::LockLost) => (summary.status, summary.lock_lost) = (Status::Interrupted, true),
        Err(NotWritten::Failed(error)) => {
            summary.record_error = Some(format!("failed to {error}"));
            if summary.status == Status::Done {
                summary.status = Status::Failed;
            }
        }
    }
    summary.requests = clusters.requests();
    (options.sink)(Event::Finished(Box::new(summary.clone())));
    summary
}
