//! From a release or manifests to a plan, and from a plan to the release's record: what every front end shares.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_cluster::{ApplyOptions, Cluster, Error};
use billhook_objects::{
    ApiVersion, Catalog, Digest, GroupKind, Manifest, ObjectKey, ReleaseName, ResourceType, Uid, wellknown,
};
use billhook_plan::{
    ApplyAction, ApplyRequest, ApplyTask, Catalogs, DeleteRequest, Directives, Entry, Inventory, Listed, Note,
    NoteCode, Operation, Plan, PlanError, PlanErrorKind, Query, Resource, Select, Severity, Snapshot, Wait, Wanted,
    Work,
};
use billhook_policy::{DeletionGroup, Policy, Propagation, UpdateStrategy};
use serde_json::Value;

use crate::{Clusters, RunOptions, Status, Summary};

mod record;

use record::Record;

/// What is deleted.
pub enum Subject {
    /// A release, by its record.
    Release(ReleaseName),
    /// The objects that manifests name.
    Manifests(Vec<Manifest>),
}

/// An object that an earlier deployer of the same release has left: it joins the record where there is none yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Inherited {
    /// Which object.
    pub key: ObjectKey,
    /// The `apiVersion` it was applied in.
    pub api_version: ApiVersion,
    /// Which object of that name, where that is known. One without is the release's only if it carries its label.
    pub uid: Option<Uid>,
    /// The merge patch that it gets before it is deleted.
    pub before_delete: Option<Value>,
    /// It is never deleted.
    pub keep: bool,
}

impl Inherited {
    fn into_entry(self) -> (ObjectKey, Entry) {
        let Self { key, api_version, uid, before_delete, keep } = self;
        // What was applied is not known, so the next apply writes it in any case.
        (key, Entry { uid, before_delete, keep, ..Entry::new(api_version, Digest::of(&Value::Null)) })
    }
}

/// What a deletion is to do.
pub struct DeleteInput {
    /// What is deleted.
    pub subject: Subject,
    /// Replaces the policy recorded with the release.
    pub policy: Option<Policy>,
    /// How dependents are treated where the policy says nothing.
    pub propagation: Propagation,
    /// More deletions than these are dangerous.
    pub max_deletions: Option<usize>,
    /// Look for objects that the release did not create and that would go along.
    pub look_for_foreign: bool,
    /// The namespace of manifests that name none.
    pub namespace: String,
    /// What an earlier deployer has left, where there is no record.
    pub inherited: Vec<Inherited>,
    /// Whether a release without a record is an error; else what is inherited goes, and what the groups delete as a whole.
    pub require_record: bool,
    /// The kinds of the release's cluster, where they were read already.
    pub catalog: Option<Arc<Catalog>>,
}

/// What an apply is to do.
pub struct ApplyInput {
    /// The release.
    pub release: ReleaseName,
    /// The release is known to be new: no record is looked for. Should there be one after all, writing the new one is a
    /// conflict, before anything is touched.
    pub is_new: bool,
    /// Its objects, as written.
    pub manifests: Vec<Manifest>,
    /// The namespace of objects that name none; without one such an object is an error.
    pub namespace: Option<String>,
    /// What is to be done with manifests beside applying them, by their index.
    pub directives: BTreeMap<usize, Directives>,
    /// How objects that exist are brought to what their manifests say.
    pub strategy: UpdateStrategy,
    /// What an earlier deployer has left, where there is no record yet.
    pub inherited: Vec<Inherited>,
    /// The policy to record; the recorded one stays where none is given.
    pub policy: Option<Policy>,
    /// Take up objects that belong to nobody.
    pub adopt: bool,
    /// Delete what the old version had and the new one lacks.
    pub prune: bool,
    /// What the end of the deployment waits for.
    pub wait: Wait,
    /// What becomes of namespaces that do not exist and that the release does not bring.
    pub missing_namespaces: MissingNamespaces,
    /// How dependents of pruned objects are treated where the policy says nothing.
    pub propagation: Propagation,
    /// Notes of earlier stages, such as those on a chart's hooks.
    pub notes: Vec<Note>,
    /// The kinds of the release's cluster, where they were read already.
    pub catalog: Option<Arc<Catalog>>,
}

/// What becomes of namespaces that do not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingNamespaces {
    /// They are an error, before anything is touched.
    Refuse,
    /// They are created.
    Create,
    /// They are not looked for: the API server refuses what would lie in them.
    Leave,
}

/// A plan, and what carrying it out needs.
pub struct Prepared {
    /// The plan.
    pub plan: Plan,
    /// The manifests of an apply, as they will be sent.
    pub manifests: BTreeMap<ObjectKey, Manifest>,
    /// What is to be done with some of them beside applying them.
    pub directives: BTreeMap<ObjectKey, Directives>,
    snapshot: Snapshot,
    label: Option<String>,
    record: Option<Record>,
    /// Namespaces to create before anything else.
    namespaces: Vec<String>,
    /// Whether what the new version lacks was planned for deletion, so that what was not found of it is gone.
    prune: bool,
}

/// Why an operation could not be done.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The input is wrong; nothing was touched.
    #[error("{}", .0.join("\n"))]
    Input(Vec<String>),
    /// A guard refused it; nothing was touched.
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
    /// Something is being deleted that has to be gone first; nothing was touched.
    #[error("{}", .0.join("\n"))]
    Busy(Vec<String>),
    /// The cluster could not be read well enough to be sure; nothing was touched.
    #[error("{}", .0.join("\n"))]
    Unreadable(Vec<String>),
    /// There is no such release.
    #[error("find release {0}")]
    NoRelease(ReleaseName),
    /// A request failed.
    #[error(transparent)]
    Cluster(#[from] Error),
}

impl From<PlanError> for OperationError {
    fn from(error: PlanError) -> Self {
        match error.kind {
            PlanErrorKind::Input => Self::Input(error.problems),
            PlanErrorKind::Refused => Self::Refused(error.problems),
            PlanErrorKind::Busy => Self::Busy(error.problems),
            PlanErrorKind::Unreadable => Self::Unreadable(error.problems),
        }
    }
}

/// Plans a deletion. Changes nothing.
///
/// # Errors
///
/// When there is no such release, the policy does not fit the cluster, or the cluster cannot be read.
pub async fn prepare_delete(clusters: &Clusters, input: DeleteInput) -> Result<Prepared, OperationError> {
    let catalog = catalog(clusters, input.catalog);
    let (catalog, record) = match &input.subject {
        Subject::Release(release) => {
            let (catalog, record) = tokio::try_join!(catalog, Record::load_what_is_left(clusters, release))?;
            let record = match record {
                None if input.require_record => return Err(OperationError::NoRelease(release.clone())),
                None => Record::inherited(release.clone(), input.inherited),
                Some(record) => record,
            };
            (catalog, Some(record))
        }
        Subject::Manifests(_) => (catalog.await?, None),
    };
    let objects = match (&record, input.subject) {
        (Some(record), _) => record.inventory.wanted(),
        (None, Subject::Manifests(manifests)) if manifests.is_empty() => {
            return Err(OperationError::Input(vec!["the input holds no object".to_owned()]));
        }
        (None, Subject::Manifests(manifests)) => Wanted::of_manifests(&manifests, &input.namespace, &catalog),
        (None, Subject::Release(_)) => Vec::new(),
    };
    let recorded = record.as_ref().map(|record| record.inventory.policy.clone());
    let policy_is_lost = input.policy.is_none() && record.as_ref().is_some_and(Record::went_with_its_namespace);
    let policy = input.policy.or(recorded).unwrap_or_default();
    let catalogs = catalogs(clusters, catalog, &policy.deletion).await?;
    let release = record.as_ref().map(|record| &record.inventory.release);
    let request = DeleteRequest {
        release,
        objects: &objects,
        groups: &policy.deletion,
        catalogs: &catalogs,
        propagation: input.propagation,
        operation: Operation::Delete,
        record_here: clusters.record_here(),
    };
    let snapshot = look(clusters, &request).await?;
    let mut plan = billhook_plan::plan_delete(&request, &snapshot)?;
    if input.look_for_foreign {
        note_foreign(clusters, &mut plan, &catalogs, release).await;
    }
    if let Some(max) = input.max_deletions {
        billhook_plan::limit_deletions(&mut plan, max);
    }
    if policy_is_lost {
        let message =
            "the record went with its Namespace, and the policy with it: the default holds unless --policy is given";
        plan.notes.push(note(Severity::Warning, NoteCode::InventoryLast, message.to_owned()));
        plan.notes.sort_by_key(|note| note.severity);
    }
    let label = release.map(ReleaseName::label_value);
    Ok(Prepared {
        plan,
        manifests: BTreeMap::new(),
        directives: BTreeMap::new(),
        snapshot,
        label,
        record,
        namespaces: Vec::new(),
        prune: true,
    })
}

/// Carries out a deletion, and keeps the record of the release true.
///
/// # Errors
///
/// When the record cannot be written beforehand; nothing was touched then. Everything else is in the summary.
pub async fn delete(
    clusters: &Clusters,
    mut prepared: Prepared,
    options: &RunOptions,
) -> Result<Summary, OperationError> {
    if let Some(record) = &mut prepared.record {
        record.deleting(clusters).await?;
    }
    let outcome = run(clusters, &prepared, options).await;
    let written = match prepared.record {
        Some(record) => record.deleted(clusters, &prepared.plan, &outcome).await,
        None => Ok(()),
    };
    Ok(finished(outcome, written, clusters, options))
}

/// Plans an apply. Changes nothing.
///
/// # Errors
///
/// When the manifests or the policy do not fit the cluster, objects belong to somebody else, or the cluster cannot be
/// read.
pub async fn prepare_apply(clusters: &Clusters, input: ApplyInput) -> Result<Prepared, OperationError> {
    let catalog = catalog(clusters, input.catalog);
    let record = async { if input.is_new { Ok(None) } else { Record::load(clusters, &input.release).await } };
    let (mut catalog, record) = tokio::try_join!(catalog, record)?;
    let not_served = add_defined_kinds(&mut catalog, &input.manifests);
    let manifests = billhook_plan::prepare(input.manifests, &input.release, input.namespace.as_deref(), &catalog)?;
    let directives = by_object(input.directives, &manifests);
    let record = record.unwrap_or_else(|| Record::inherited(input.release.clone(), input.inherited));
    let policy = input.policy.unwrap_or_else(|| record.inventory.policy.clone());
    let catalogs = catalogs(clusters, catalog, &policy.during_update).await?;
    let request = ApplyRequest {
        release: &input.release,
        manifests: &manifests,
        directives: &directives,
        strategy: input.strategy,
        inventory: record.known(),
        policy: &policy,
        catalogs: &catalogs,
        not_served: &not_served,
        namespaces: &[],
        adopt: input.adopt,
        prune: input.prune,
        wait: input.wait,
        propagation: input.propagation,
        record_here: clusters.record_here(),
    };
    let mut snapshot = clusters.snapshot(&billhook_plan::apply_queries(&request)?).await;
    let namespaces = match input.missing_namespaces {
        MissingNamespaces::Leave => Vec::new(),
        _ => missing_namespaces(clusters, &manifests, &input.release, &snapshot).await?,
    };
    if !namespaces.is_empty() && input.missing_namespaces == MissingNamespaces::Refuse {
        let missing = |namespace| {
            let way_out = "create it, bring it with the release, or use --create-namespace";
            format!("namespace {namespace} does not exist: {way_out}")
        };
        return Err(OperationError::Input(namespaces.into_iter().map(missing).collect()));
    }
    let request = ApplyRequest { namespaces: &namespaces, ..request };
    let missing = billhook_plan::missing_apply_queries(&request, &snapshot);
    snapshot.listings.extend(clusters.snapshot(&missing).await.listings);
    let mut plan = billhook_plan::plan_apply(&request, &snapshot)?;
    note_foreign(clusters, &mut plan, &catalogs, Some(&input.release)).await;
    plan.notes.extend(input.notes);
    plan.notes.sort_by_key(|note| note.severity);
    let label = Some(input.release.label_value());
    let mut manifests: BTreeMap<_, _> =
        manifests.into_iter().map(|manifest| (manifest.key.clone(), manifest)).collect();
    // What the plan leaves to somebody else is none of the release's.
    let tasks: BTreeMap<_, _> = applied(&plan).map(|task| (&task.object, task)).collect();
    manifests.retain(|key, _| tasks.contains_key(key));
    let record = Some(record.intend(&manifests, &directives, &tasks, policy));
    Ok(Prepared { plan, manifests, directives, snapshot, label, record, namespaces, prune: input.prune })
}

/// Carries out an apply, and keeps the record of the release true.
///
/// # Errors
///
/// When a namespace cannot be created or the record cannot be written beforehand. Everything else is in the summary.
pub async fn apply(
    clusters: &Clusters,
    mut prepared: Prepared,
    options: &RunOptions,
) -> Result<Summary, OperationError> {
    for namespace in &prepared.namespaces {
        create_namespace(clusters, namespace).await?;
    }
    if let Some(record) = &mut prepared.record {
        record.applying(clusters, &prepared.plan, &prepared.manifests).await?;
    }
    let outcome = run(clusters, &prepared, options).await;
    let written = match prepared.record {
        Some(record) => record.applied(clusters, &prepared.plan, &outcome, prepared.prune).await,
        None => Ok(()),
    };
    Ok(finished(outcome, written, clusters, options))
}

async fn run(clusters: &Clusters, prepared: &Prepared, options: &RunOptions) -> crate::run::Outcome {
    let Prepared { plan, manifests, snapshot, label, .. } = prepared;
    crate::run::run(plan, snapshot, clusters, manifests, label.clone(), options).await
}

/// The last event. A record that could not be written does not hide what happened to the objects.
fn finished(
    outcome: crate::run::Outcome,
    written: Result<(), Error>,
    clusters: &Clusters,
    options: &RunOptions,
) -> Summary {
    let mut summary = outcome.summary;
    if let Err(error) = written {
        summary.record_error = Some(format!("failed to {error}: {}", error.message()));
        if summary.status == Status::Done {
            summary.status = Status::Failed;
        }
    }
    summary.requests = clusters.requests();
    (options.sink)(crate::Event::Finished(summary.clone()));
    summary
}

impl Clusters {
    /// Asks each cluster its own queries.
    pub(crate) async fn snapshot(&self, queries: &[billhook_plan::Query]) -> Snapshot {
        let mut by_cluster: BTreeMap<Option<&str>, Vec<billhook_plan::Query>> = BTreeMap::new();
        for query in queries {
            by_cluster.entry(query.cluster.as_deref()).or_default().push(query.clone());
        }
        let asked = by_cluster.iter().filter_map(|(name, queries)| Some(self.get(*name)?.snapshot(queries)));
        Snapshot { listings: futures::future::join_all(asked).await.into_iter().flatten().collect() }
    }
}

/// The kinds of the release's own cluster.
async fn catalog(clusters: &Clusters, known: Option<Arc<Catalog>>) -> Result<Arc<Catalog>, Error> {
    match known {
        Some(catalog) => Ok(catalog),
        None => Ok(Arc::new(clusters.own.catalog().await?)),
    }
}

/// Directives by the object that the manifest of their index is of.
fn by_object(directives: BTreeMap<usize, Directives>, manifests: &[Manifest]) -> BTreeMap<ObjectKey, Directives> {
    directives.into_iter().filter_map(|(at, directives)| Some((manifests.get(at)?.key.clone(), directives))).collect()
}

/// The snapshot a deletion needs: what the label shows, then what the label did not show.
async fn look(clusters: &Clusters, request: &DeleteRequest<'_>) -> Result<Snapshot, OperationError> {
    let mut snapshot = clusters.snapshot(&billhook_plan::delete_queries(request)?).await;
    let missing = billhook_plan::missing_queries(request, &snapshot);
    snapshot.listings.extend(clusters.snapshot(&missing).await.listings);
    Ok(snapshot)
}

/// The catalogs of the release's own cluster and of those targets that the groups name.
async fn catalogs(
    clusters: &Clusters,
    own: Arc<Catalog>,
    groups: &[DeletionGroup],
) -> Result<Catalogs, OperationError> {
    let named: BTreeSet<&String> = groups.iter().filter_map(|group| group.target.as_ref()).collect();
    let mut catalogs = BTreeMap::from([(None, own)]);
    for (name, cluster) in clusters.targets.iter().filter(|(name, _)| named.contains(name)) {
        catalogs.insert(Some(name.clone()), Arc::new(cluster.catalog().await?));
    }
    Ok(Catalogs(catalogs))
}

/// The kinds that the manifests' own CRDs define: known from now on, and those the cluster does not serve yet.
fn add_defined_kinds(catalog: &mut Arc<Catalog>, manifests: &[Manifest]) -> BTreeSet<GroupKind> {
    let definitions = manifests.iter().filter(|manifest| manifest.key.kind == wellknown::crd());
    let mut not_served = BTreeSet::new();
    for defined in definitions.filter_map(|manifest| ResourceType::from_crd(&manifest.value())) {
        if catalog.get(&defined.kind).is_none() {
            not_served.insert(defined.kind.clone());
        }
        Arc::make_mut(catalog).insert_missing(defined);
    }
    not_served
}

/// Namespaces that objects lie in, that the release does not bring, and that do not exist: one query for all in which
/// the snapshot has found nothing.
async fn missing_namespaces(
    clusters: &Clusters,
    manifests: &[Manifest],
    release: &ReleaseName,
    snapshot: &Snapshot,
) -> Result<Vec<String>, OperationError> {
    let kind = wellknown::namespace();
    let brought: BTreeSet<_> = manifests.iter().filter(|m| m.key.kind == kind).map(|m| m.key.name.as_str()).collect();
    let items = snapshot.listings.iter().filter_map(|listing| match &listing.found {
        Listed::Items { items, .. } => Some(items),
        Listed::NotServed | Listed::Failed(_) => None,
    });
    let found: BTreeSet<_> = items.flatten().filter_map(|item| item.namespace.as_deref()).collect();
    let used = manifests.iter().filter_map(|m| m.key.namespace.as_deref());
    let used: BTreeSet<_> = used.chain(clusters.record_here().then(|| release.namespace())).collect();
    let unsure = used.into_iter().filter(|n| *n != "default" && !brought.contains(n) && !found.contains(n));
    let names: Vec<String> = unsure.map(str::to_owned).collect();
    if names.is_empty() {
        return Ok(names);
    }
    let query = Query {
        cluster: None,
        resource: Resource::namespaces(),
        namespace: None,
        select: Select::Names(names.clone()),
        namespaces: Vec::new(),
    };
    let answer = clusters.own.snapshot(&[query]).await;
    match answer.into_iter().next().map(|listing| listing.found) {
        Some(Listed::Items { items, .. }) => {
            if let Some(leaving) = items.iter().find(|item| item.deleting) {
                let problem = format!("namespace {} is being deleted: wait until it is gone", leaving.name);
                return Err(OperationError::Busy(vec![problem]));
            }
            Ok(names.into_iter().filter(|name| items.iter().all(|item| item.name != *name)).collect())
        }
        // Who may not read namespaces may still write into them.
        _ => Ok(Vec::new()),
    }
}

/// Adds what the plan's Namespaces and CRDs would take along; nothing is asked where it deletes none.
async fn note_foreign(clusters: &Clusters, plan: &mut Plan, catalogs: &Catalogs, release: Option<&ReleaseName>) {
    let queries = billhook_plan::blast_queries(plan, catalogs);
    let content = clusters.snapshot(&queries).await;
    billhook_plan::add_blast_notes(plan, &content, release);
}

fn note(severity: Severity, code: NoteCode, message: String) -> Note {
    Note { severity, code, message, object: None, counts: Vec::new() }
}

/// The record of a release; where it went together with its Namespace, what is left of it.
///
/// # Errors
///
/// When it cannot be read.
pub async fn load_record(clusters: &Clusters, release: &ReleaseName) -> Result<Option<Inventory>, Error> {
    Ok(Record::load_what_is_left(clusters, release).await?.map(|record| record.inventory))
}

/// Forgets a release without touching its objects: its record goes, and that is all.
///
/// # Errors
///
/// When the record cannot be removed.
pub async fn forget(records: &Cluster, release: &ReleaseName) -> Result<(), Error> {
    records.inventory().forget(release).await
}

async fn create_namespace(clusters: &Clusters, name: &str) -> Result<(), OperationError> {
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let key = ObjectKey::new(wellknown::namespace(), None, name);
    let options = ApplyOptions { force_conflicts: false, dry_run: false };
    clusters.own.apply(&Resource::namespaces(), &key, &manifest.to_string(), &options).await?;
    Ok(())
}

/// What a plan applies, each object once.
fn applied(plan: &Plan) -> impl Iterator<Item = &ApplyTask> {
    let work = plan.nodes.iter().filter_map(|node| if let Work::Apply(work) = &node.work { Some(work) } else { None });
    work.flat_map(|work| &work.objects).filter(|task| task.action != ApplyAction::Await)
}

/// The objects of the release's own cluster that a plan deletes.
fn tasks(plan: &Plan) -> BTreeSet<&ObjectKey> {
    let own = plan.nodes.iter().filter(|node| node.cluster.is_none());
    let work = own.filter_map(|node| if let Work::Delete(work) = &node.work { Some(work) } else { None });
    work.flat_map(|work| work.objects.iter().map(|task| &task.object)).collect()
}
