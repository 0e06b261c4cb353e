//! The inventory of a release during an operation: written before the first request, and forgetting an object only when
//! it is gone.

mod apply;
mod delete;
mod inherited;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use billhook_cluster::{Begun, Cluster, Error, ErrorKind, HeldLock, Stored, Token};
use billhook_objects::{Manifest, ObjectKey, ReleaseName};
use billhook_plan::{
    ApplyAction, ApplyTask, Backup, Entry, Inventory, Phase, Plan, PlanError, Problem, Snapshot, Uncovered,
    UncoveredCause,
};

pub use self::inherited::Inherited;
use super::{
    claims::{labelled, remove_labels},
    error::OperationError,
};
use crate::{Clusters, Event, Left, RunOptions, Status, Summary, retry::Failure, run, run::Outcome};

/// How long the last write of an inventory may take after a timeout or an interruption.
pub(super) const LAST_WRITE: Duration = Duration::from_secs(10);

/// The group of the objects that a release gives up.
const GIVEN_UP: &str = "no longer managed";

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

    /// Whether the inventory was locked when it was read.
    pub(super) fn is_locked(&self) -> bool {
        self.token.as_ref().is_some_and(Token::is_locked)
    }

    /// Fails if another operation works on the release, as far as the head tells that was read.
    pub(super) async fn check_lock(&self, clusters: &Clusters) -> Result<(), OperationError> {
        let Some(token) = &self.token else { return Ok(()) };
        match clusters.inventory().locked(&self.inventory.release, token, &clusters.holder).await? {
            Some(locked) => Err(PlanError::from(Problem::Locked(locked)).into()),
            None => Ok(()),
        }
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
            let blockers = vec![Failure::from(error).blocker()];
            summary.left.push(Left { object, group: GIVEN_UP.to_owned(), blockers });
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

/// Returns the tasks of the objects that a plan applies, each object once.
pub(super) fn applied(plan: &Plan) -> impl Iterator<Item = &ApplyTask> {
    plan.apply_tasks().filter(|task| task.action != ApplyAction::Await)
}

/// Returns the objects of the release's own cluster that a plan deletes.
pub(super) fn deleted(plan: &Plan) -> BTreeSet<&ObjectKey> {
    plan.deleted().filter(|(cluster, ..)| cluster.is_none()).map(|(_, object, ..)| object).collect()
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
