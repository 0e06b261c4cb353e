//! The deletion of a release, or of what manifests name.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_cluster::{Error, Token};
use billhook_objects::{Catalog, Manifest, ObjectKey, ReleaseName, wellknown};
use billhook_plan::{
    DeleteRequest, Deletion, Directives, ListFailure, Note, NoteKind, Operation, Plan, PlanError, Problem, Resource,
    Snapshot, Swept, Uncovered, UncoveredCause, Unlabelled, UnreadableNote, Wanted, safe_policy,
};
use billhook_policy::{Policy, Propagation};

use super::{
    backup::{BackupMode, plan_backup},
    claims::{labelled, remove_labels},
    error::OperationError,
    read::{add_contents, catalog, catalogs},
    record::{Inherited, Loaded, NotWritten, Record, deleted, finish},
    sweep::{prove, sweep},
};
use crate::{Clusters, RunOptions, Status, Summary, explain::Lookout, run::Outcome};

/// What to delete.
#[derive(Clone)]
pub enum Subject {
    /// A release, by its inventory.
    Release(ReleaseName),
    /// The objects that manifests name, and instructions for some of them, by their index.
    Manifests(Vec<Manifest>, BTreeMap<usize, Directives>),
}

/// The input of a deletion.
#[derive(Clone)]
pub struct DeleteInput {
    /// What to delete.
    pub subject: Subject,
    /// Replaces the policy recorded with the release.
    pub policy: Option<Policy>,
    /// How dependents are treated if the policy does not specify it.
    pub propagation: Propagation,
    /// More deletions than this are dangerous.
    pub max_deletions: Option<usize>,
    /// The namespace of manifests without one.
    pub namespace: String,
    /// The objects of an earlier deployer, used if there is no inventory.
    pub inherited: Vec<Inherited>,
    /// Whether a release without an inventory is looked for by its label. It is an error if no object carries it, or if no
    /// policy is given, since that was lost too. If not, inherited objects and collections are deleted.
    pub require_record: bool,
    /// What happens to recorded objects without the release's label.
    pub unlabelled: Unlabelled,
    /// Whether the record remains as long as objects do that no group covers. If not, these objects lose the release's label.
    pub retain: bool,
    /// Whether the deletion of a release ends with a sweep for its label. That of a release without a record always does.
    pub verify: bool,
    /// When the live objects are saved in the record first.
    pub backup: BackupMode,
    /// The kinds of the release's cluster, if they are known already.
    pub catalog: Option<Arc<Catalog>>,
}

/// A planned deletion.
pub struct PreparedDelete {
    /// The plan.
    pub plan: Plan,
    /// The policy that deletes in a safe order, if the plan looks ahead.
    pub safe_policy: Option<Policy>,
    pub(crate) snapshot: Snapshot,
    pub(crate) record: Option<Record>,
    retain: bool,
    /// Whether the live objects are saved in the record first.
    backs_up: bool,
    /// The kinds for the sweep at the end, if there is one.
    sweep: Option<Arc<Catalog>>,
}

impl PreparedDelete {
    /// Fails if another operation works on the release, as far as the record tells that was read: [`delete`] would be refused. A
    /// request is only sent for the Lease of a controller that has locked the release.
    ///
    /// # Errors
    ///
    /// When another operation works on the release, or that Lease cannot be read.
    pub async fn check_lock(&self, clusters: &Clusters) -> Result<(), OperationError> {
        match &self.record {
            Some(record) => record.check_lock(clusters).await,
            None => Ok(()),
        }
    }
}

/// Plans a deletion. Changes nothing.
///
/// # Errors
///
/// When the release does not exist, the policy does not fit the cluster, or the cluster cannot be read.
pub async fn prepare_delete(clusters: &Clusters, input: DeleteInput) -> Result<PreparedDelete, OperationError> {
    Preparation::load(clusters, input).await?.plan().await
}

/// The order of a deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeletionOrder {
    /// That of the policy.
    #[default]
    Policy,
    /// What others need is deleted after them; else that of the policy.
    Safe,
}

/// Plans a deletion like [`prepare_delete`], and looks ahead: notes say what will hang, what is lost, and what remains outside of
/// the cluster. Changes nothing.
///
/// # Errors
///
/// See [`prepare_delete`].
pub async fn prepare_delete_foreseen(
    clusters: &Clusters,
    input: DeleteInput,
    order: DeletionOrder,
) -> Result<PreparedDelete, OperationError> {
    let mut preparation = Preparation::load(clusters, input).await?;
    let catalog = Arc::clone(&preparation.catalog);
    let mut lookout = Lookout::new(&clusters.own, &catalog);
    let mut planned = preparation.planned().await?;
    let before = lookout.foresee(&mut planned.0, &planned.1).await;
    // A policy with which nothing hangs is as safe as any.
    let is_safe = !planned.0.notes.iter().any(|note| note.is_about_order() || note.leaves_order_open());
    let safe = match is_safe {
        true => preparation.policy.clone(),
        false => safe_policy(&preparation.policy, &planned.0, &before, &catalog),
    };
    if order == DeletionOrder::Safe && safe != preparation.policy {
        preparation.policy = safe.clone();
        planned = preparation.planned().await?;
        lookout.foresee(&mut planned.0, &planned.1).await;
    }
    Ok(PreparedDelete { safe_policy: Some(safe), ..preparation.prepared(planned) })
}

/// What a deletion is planned from.
struct Preparation<'a> {
    clusters: &'a Clusters,
    catalog: Arc<Catalog>,
    record: Option<Record>,
    objects: Vec<Wanted>,
    policy: Policy,
    propagation: Propagation,
    max_deletions: Option<usize>,
    unlabelled: Unlabelled,
    unlisted: Vec<ListFailure>,
    retain: bool,
    verify: bool,
    backup: BackupMode,
}

/// A plan, what it was made from, and whether the live objects are saved first.
type Planned = (Plan, Snapshot, bool);

impl<'a> Preparation<'a> {
    async fn load(clusters: &'a Clusters, input: DeleteInput) -> Result<Self, OperationError> {
        let DeleteInput { propagation, max_deletions, unlabelled, retain, verify, backup, .. } = input;
        let catalog = catalog(clusters, input.catalog);
        let mut unlisted = Vec::new();
        let (catalog, mut record, objects) = match input.subject {
            Subject::Release(release) => {
                let (catalog, record) = tokio::try_join!(catalog, Record::load(clusters, &release))?;
                let record = match record {
                    Loaded::Nothing(head) if input.require_record => {
                        let swept = sweep(clusters, &catalog, &release).await;
                        unlisted.clone_from(&swept.unlisted);
                        found(release, head, swept, input.policy.is_none())?
                    }
                    Loaded::Nothing(head) => Record::inherited(release, head, input.inherited),
                    Loaded::Record(mut record) if record.inventory.swept => {
                        // What the first sweep could not list may be found now.
                        let swept = sweep(clusters, &catalog, &release).await;
                        unlisted.clone_from(&swept.unlisted);
                        record.add_swept(swept.entries);
                        *record
                    }
                    Loaded::Record(record) => *record,
                };
                let objects = record.inventory.wanted();
                (catalog, Some(record), objects)
            }
            Subject::Manifests(manifests, _) if manifests.is_empty() => {
                return Err(PlanError::from(Problem::NoObjects).into());
            }
            Subject::Manifests(manifests, directives) => {
                let catalog = catalog.await?;
                let objects = Wanted::of_manifests(&manifests, &directives, &input.namespace, &catalog);
                (catalog, None, objects)
            }
        };
        let recorded = record.as_ref().map(|record| record.inventory.policy.clone());
        // Everything that the recorded policy covers is gone: deleting the release again deletes nothing more.
        let is_over = input.policy.is_none() && record.as_ref().is_some_and(Record::is_retained);
        let mut policy = input.policy.or(recorded).unwrap_or_default();
        if let Some(record) = record.as_mut().filter(|record| record.is_lost()) {
            record.inventory.policy = policy.clone();
        }
        if is_over {
            policy.deletion.clear();
        }
        Ok(Self {
            clusters,
            catalog,
            record,
            objects,
            policy,
            propagation,
            max_deletions,
            unlabelled,
            unlisted,
            retain,
            verify,
            backup,
        })
    }

    async fn plan(self) -> Result<PreparedDelete, OperationError> {
        let planned = self.planned().await?;
        Ok(self.prepared(planned))
    }

    /// Plans by the policy.
    async fn planned(&self) -> Result<Planned, OperationError> {
        let clusters = self.clusters;
        let catalogs = catalogs(clusters, Arc::clone(&self.catalog), &self.policy.deletion).await?;
        let release = self.record.as_ref().map(|record| &record.inventory.release);
        let deletion = Deletion::new(DeleteRequest {
            release,
            objects: self.objects.clone(),
            groups: &self.policy.deletion,
            catalogs: catalogs.clone(),
            propagation: self.propagation,
            operation: Operation::Delete,
            record_here: clusters.record_here(),
            unlabelled: self.unlabelled,
        })?;
        let mut snapshot = clusters.snapshot(deletion.queries()).await;
        snapshot.listings.extend(clusters.snapshot(&deletion.missing(&snapshot)).await.listings);
        let mut plan = deletion.plan(&snapshot)?;
        add_contents(clusters, &plan, &catalogs, &mut snapshot).await;
        billhook_plan::add_blast_notes(&mut plan, &snapshot, release);
        if let Some(max) = self.max_deletions {
            billhook_plan::limit_deletions(&mut plan, max);
        }
        plan.add_notes(unlisted_note(self.unlisted.clone()));
        let mut backs_up = false;
        if let Some(record) = &self.record {
            list_created_namespaces(clusters, record, &mut plan).await;
            backs_up = plan_backup(clusters, &mut plan, &snapshot, &record.inventory.release, self.backup)?;
        }
        Ok((plan, snapshot, backs_up))
    }

    /// Returns a plan with what carries it out. A sweep ends the deletion of a release without a record, or if it is wanted.
    fn prepared(self, (plan, snapshot, backs_up): Planned) -> PreparedDelete {
        let Self { catalog, record, retain, verify, .. } = self;
        let sweep = record.as_ref().filter(|record| verify || record.inventory.swept).map(|_| catalog);
        PreparedDelete { plan, safe_policy: None, snapshot, record, retain, backs_up, sweep }
    }
}

/// Returns the record of a release that lost its own, from what a sweep found. A head without a record is deleted like one.
fn found(
    release: ReleaseName,
    head: Option<Box<Token>>,
    swept: Swept,
    needs_policy: bool,
) -> Result<Record, OperationError> {
    if swept.entries.is_empty() && head.is_none() {
        return Err(OperationError::NoRelease(release, swept.unlisted));
    }
    if needs_policy && !swept.entries.is_empty() {
        return Err(OperationError::PolicyLost(release, Box::new(swept)));
    }
    Ok(Record::swept(release, head, swept.entries))
}

pub(super) fn unlisted_note(failures: Vec<ListFailure>) -> Option<Note> {
    (!failures.is_empty()).then(|| NoteKind::Unreadable(UnreadableNote::Release { failures }).into())
}

/// Adds the namespaces that were created for a release to what the plan leaves, unless they do not exist any more.
async fn list_created_namespaces(clusters: &Clusters, record: &Record, plan: &mut Plan) {
    let key = |name: &String| ObjectKey::new(wellknown::namespace(), None, name.as_str());
    let deleted = deleted(plan);
    let created = record.inventory.created_namespaces.iter().map(key);
    let created = created.filter(|key| !record.inventory.entries.contains_key(key) && !deleted.contains(key));
    let remains = |key: ObjectKey| async move {
        let found = clusters.own.get_meta(&Resource::namespaces(), &key).await;
        // Without the right to read it, it is assumed to exist.
        let exists = !matches!(found, Ok(None));
        exists.then_some(Uncovered { object: key, cause: UncoveredCause::CreatedNamespace, deleted_with: None })
    };
    // Collected because the closures must not live across an await: the future would not be `Send`.
    let reads: Vec<_> = created.map(remains).collect();
    let remaining = futures::future::join_all(reads).await;
    plan.uncovered.extend(remaining.into_iter().flatten());
    plan.uncovered.sort_by(|a, b| a.object.cmp(&b.object));
}

/// Runs a planned deletion and keeps the inventory up to date.
///
/// # Errors
///
/// When the inventory cannot be written beforehand; nothing was changed then. Everything else is in the summary.
pub async fn delete(
    clusters: &Clusters,
    prepared: PreparedDelete,
    options: &RunOptions,
) -> Result<Summary, OperationError> {
    let PreparedDelete { plan, snapshot, record, retain, backs_up, sweep, .. } = prepared;
    crate::run::announce(&plan, options);
    let none = BTreeMap::new();
    let Some(mut record) = record else {
        let outcome = crate::run::run(&plan, &snapshot, clusters, &none, None, options).await;
        return Ok(finish(outcome, Ok(()), clusters, options));
    };
    if backs_up {
        record.back_up(clusters, &plan, &snapshot).await?;
    }
    record.begin_delete(clusters, &plan).await?;
    let backup = record.inventory.backup.as_ref().map(|backup| backup.objects);
    let release = record.inventory.release.clone();
    let mut outcome = record.run(&plan, &snapshot, clusters, &none, options).await;
    record.release_unmanaged(clusters, &plan, &snapshot, options, &mut outcome).await;
    let done = outcome.summary.status == Status::Done;
    let released = match done && !retain {
        true => release_remaining(&record.fenced(clusters), &outcome, &snapshot, &release.label_value()).await,
        false => Ok(()),
    };
    if released.is_err() {
        // The record remains, so that the next try finds the objects.
        outcome.summary.status = Status::Failed;
    }
    let written = record.end_delete(clusters, &plan, &outcome, retain).await;
    let written = released.map_err(NotWritten::Failed).and(written);
    outcome.summary.retained = written.as_ref().is_ok_and(|retained| *retained);
    outcome.summary.backup = backup.filter(|_| written.is_ok() && retain);
    if let Some(catalog) = sweep.filter(|_| done) {
        let expected = outcome.summary.uncovered.iter().map(|uncovered| uncovered.object.clone()).collect();
        let proof = prove(clusters, &catalog, &release, &expected, &options.stop).await;
        if !proof.is_complete() {
            outcome.summary.status = Status::Failed;
        }
        outcome.summary.proof = Some(proof);
    }
    Ok(finish(outcome, written.map(drop), clusters, options))
}

/// Removes the release's label from what a deletion leaves, so that another release can take it over. An object whose label
/// cannot be removed keeps it: the claim of a release that does not exist refuses nobody.
async fn release_remaining(
    clusters: &Clusters,
    outcome: &Outcome,
    snapshot: &Snapshot,
    label: &str,
) -> Result<(), Error> {
    let gone: BTreeSet<_> = outcome.gone.iter().collect();
    let remaining = outcome.summary.uncovered.iter().filter(|uncovered| match &uncovered.deleted_with {
        Some(container) => !gone.contains(container),
        None => true,
    });
    let keys = remaining.map(|uncovered| &uncovered.object).collect();
    let answers = remove_labels(&clusters.own, label, labelled(snapshot, label, &keys)).await;
    let failed = answers.into_iter().filter_map(|(_, error)| error).find(Error::is_transient);
    failed.map_or(Ok(()), Err)
}
