//! The deployment of a release.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use billhook_cluster::ApplyOptions;
use billhook_objects::{Catalog, GroupKind, Manifest, ObjectKey, ReleaseName, ResourceType, wellknown, yaml::Document};
use billhook_plan::{
    AppliedVersion, ApplyRequest, Deployment, Directives, Failures, Inventory, Listed, MissingNamespaces, Note,
    NoteKind, Observed, Plan, PlanError, Problem, Resource, Snapshot, TaskGraph, Unlabelled, Wait,
};
use billhook_policy::{Policy, Propagation, UpdateStrategy};
use tokio::time::Instant;

use super::{
    claims::gone,
    delete::unlisted_note,
    error::OperationError,
    read::{GraphRules, add_contents, catalog, catalogs},
    record::{Inherited, Loaded, Record, applied, finish},
    sweep::sweep,
};
use crate::{Clusters, Event, Recorded, RunOptions, Summary};

/// Returns the graph of a deployment for the versions that were applied before, the newest first.
pub type GraphOf = Box<dyn FnOnce(&[AppliedVersion]) -> TaskGraph + Send>;

/// The input of an apply.
pub struct ApplyInput {
    /// The release.
    pub release: ReleaseName,
    /// Whether the release is known to be new, so that no inventory is read. If one exists nevertheless, writing the new one
    /// fails with a conflict before anything is changed.
    pub is_new: bool,
    /// Its objects, as written.
    pub manifests: Vec<Manifest>,
    /// The namespace of objects without one; if it is none, such an object is an error.
    pub namespace: Option<String>,
    /// Instructions for some of the manifests, by their index.
    pub directives: BTreeMap<usize, Directives>,
    /// How existing objects are updated.
    pub strategy: UpdateStrategy,
    /// The objects of an earlier deployer, used if there is no inventory.
    pub inherited: Vec<Inherited>,
    /// The policy to record; if it is none, the recorded one remains.
    pub policy: Option<Policy>,
    /// Whether to take over existing objects that belong to no release.
    pub adopt: bool,
    /// Whether to delete objects that the new version no longer contains.
    pub prune: bool,
    /// More deletions than this are dangerous.
    pub max_deletions: Option<usize>,
    /// Whether a new release without objects is an error.
    pub require_objects: bool,
    /// Whether a release without a record is looked for by its label if an object carries it.
    pub sweep: bool,
    /// The order of the deployment, in place of the policy's deployment groups, and which objects are to be deleted. Its
    /// indexes are those of `manifests`.
    pub graph: Option<GraphOf>,
    /// The version that is applied, for the history in the record; none for a release without versions.
    pub version: Option<String>,
    /// What the end of the deployment waits for, without a graph.
    pub wait: Wait,
    /// What happens to namespaces that do not exist and that the release does not contain.
    pub missing_namespaces: MissingNamespaces,
    /// Whether namespaces that are created belong to the release, as if it contained them.
    pub own_namespaces: bool,
    /// What happens to objects to prune that do not carry the release's label.
    pub unlabelled: Unlabelled,
    /// How dependents of pruned objects are treated if the policy does not specify it.
    pub propagation: Propagation,
    /// Notes of earlier stages, such as those on a chart's hooks.
    pub notes: Vec<Note>,
    /// The kinds of the release's cluster, if they are known already.
    pub catalog: Option<Arc<Catalog>>,
}

/// A planned apply.
pub struct PreparedApply {
    /// The plan.
    pub plan: Plan,
    /// The manifests, as they will be sent.
    pub manifests: BTreeMap<ObjectKey, Manifest>,
    /// Instructions for some of the manifests.
    pub directives: BTreeMap<ObjectKey, Directives>,
    /// The kinds that the release's own CRDs define and that the cluster does not serve yet.
    pub not_served: BTreeSet<GroupKind>,
    /// The versions that were applied before, the newest first.
    pub history: Vec<AppliedVersion>,
    /// What failed in the last apply.
    pub failures: Failures,
    snapshot: Snapshot,
    pub(super) record: Record,
    prune: bool,
    /// When the planning started, which is the time of the call.
    since: Instant,
}

/// An apply whose run is about to start.
pub struct Starting {
    /// The clusters, behind the fence of the lock.
    pub clusters: Clusters,
    /// Whether the release is locked. It is not if the apply has nothing to write.
    pub is_locked: bool,
}

impl PreparedApply {
    /// Returns whether the release was locked when its record was read, by another operation or by one that was killed.
    pub fn is_locked(&self) -> bool {
        self.record.is_locked()
    }

    /// Returns whether the record of the release was lost, so that nothing is known of the versions before.
    pub fn is_lost(&self) -> bool {
        self.record.is_lost()
    }

    /// Returns the number of the write that made the record that was read; 0 if there is none.
    pub fn revision(&self) -> u64 {
        self.record.inventory.revision
    }
}

/// Plans an apply. Changes nothing.
///
/// # Errors
///
/// When the manifests or the policy do not fit the cluster, objects belong to another release, or the cluster cannot be
/// read.
pub async fn prepare_apply(clusters: &Clusters, input: ApplyInput) -> Result<PreparedApply, OperationError> {
    let since = Instant::now();
    let catalog = catalog(clusters, input.catalog);
    let record =
        async { if input.is_new { Ok(Loaded::Nothing(None)) } else { Record::load(clusters, &input.release).await } };
    let (mut catalog, record) = tokio::try_join!(catalog, record)?;
    let mut record = match record {
        Loaded::Record(record) => *record,
        Loaded::Nothing(head) => Record::inherited(input.release.clone(), head, input.inherited),
    };
    let (history, failures) = (record.inventory.history.clone(), record.inventory.failures.clone());
    let graph = input.graph.map(|graph| graph(&history));
    let graph = graph.as_ref();
    let not_served = add_defined_kinds(&mut catalog, &input.manifests, graph);
    if input.require_objects && input.manifests.is_empty() && record.known().is_none() {
        return Err(PlanError::from(Problem::NoObjects).into());
    }
    let chooses_policy = input.policy.is_some();
    let policy = input.policy.unwrap_or_else(|| record.inventory.policy.clone());
    let mut manifests =
        billhook_plan::prepare(input.manifests, &input.release, input.namespace.as_deref(), &catalog, graph)
            .map_err(|error| error.with(billhook_plan::check_policy(&policy, &catalog)))?;
    let directives = by_object(input.directives, &manifests);
    let catalogs = catalogs(clusters, catalog, &policy.during_update).await?;
    manifests.extend(owned_namespaces(&record.inventory, &manifests));
    let mut created = Vec::new();
    let own = input.release.namespace();
    let may_be_left = input.own_namespaces && record.known().is_none() && needs(&manifests, own);
    if may_be_left && is_left(clusters, &input.release).await {
        // A crash has left it before there was a record.
        created.push(own.to_owned());
        manifests.extend(namespace_of(&input.release, own));
    }
    let request = ApplyRequest {
        release: &input.release,
        manifests: &[],
        directives: &directives,
        strategy: input.strategy,
        inventory: None,
        policy: &policy,
        catalogs: catalogs.clone(),
        not_served: &not_served,
        missing_namespaces: input.missing_namespaces,
        adopt: input.adopt,
        unlabelled: input.unlabelled,
        prune: input.prune,
        wait: input.wait,
        propagation: input.propagation,
        record_here: clusters.record_here(),
        graph,
    };
    let (mut plan, mut snapshot) = plan_apply(clusters, &request, &manifests, &record).await?;
    let mut notes = input.notes;
    if input.sweep && record.known().is_none() && labelled(&snapshot, &input.release).next().is_some() {
        let swept = sweep(clusters, &catalogs.own, &input.release).await;
        notes.extend(unlisted_note(swept.unlisted));
        notes.extend((!chooses_policy).then(|| NoteKind::PolicyLost.into()));
        record = Record::swept(input.release.clone(), record.take_head(), swept.entries);
        (plan, snapshot) = plan_apply(clusters, &request, &manifests, &record).await?;
    }
    created.extend(plan.namespaces.iter().cloned());
    if input.own_namespaces && !plan.namespaces.is_empty() {
        manifests.extend(plan.namespaces.iter().flat_map(|name| namespace_of(&input.release, name)));
        (plan, snapshot) = plan_apply(clusters, &request, &manifests, &record).await?;
    }
    add_contents(clusters, &plan, &catalogs, &mut snapshot).await;
    billhook_plan::add_blast_notes(&mut plan, &snapshot, Some(&input.release));
    if let Some(max) = input.max_deletions {
        billhook_plan::limit_deletions(&mut plan, max);
    }
    plan.add_notes(notes);
    let mut manifests: BTreeMap<_, _> =
        manifests.into_iter().map(|manifest| (manifest.key.clone(), manifest)).collect();
    // An object that the plan leaves to another client does not belong to the release.
    let tasks: BTreeMap<_, _> = applied(&plan).map(|task| (&task.object, task)).collect();
    manifests.retain(|key, _| tasks.contains_key(key));
    let labelled = labelled(&snapshot, &input.release).map(|object| &object.uid).collect();
    let mut record = record.intend(&manifests, &directives, &tasks, &labelled, policy, &created);
    record.intend_deletions(&plan, &clusters.now);
    record.intend_to_release(&plan);
    if let Some(version) = &input.version {
        record.begin_version(version, &clusters.now);
    }
    let prune = input.prune;
    Ok(PreparedApply { plan, manifests, directives, not_served, history, failures, snapshot, record, prune, since })
}

/// Whether the namespace of the record of a release carries the release's label.
async fn is_left(clusters: &Clusters, release: &ReleaseName) -> bool {
    if !clusters.record_here() {
        return false;
    }
    let key = ObjectKey::new(wellknown::namespace(), None, release.namespace());
    let found = clusters.own.get_meta(&Resource::namespaces(), &key).await;
    found.is_ok_and(|found| found.is_some_and(|namespace| namespace.carries(&release.label_value())))
}

/// Returns the objects in a snapshot that carry the label of a release.
fn labelled<'a>(snapshot: &'a Snapshot, release: &ReleaseName) -> impl Iterator<Item = &'a Observed> {
    let label = release.label_value();
    let items = snapshot.listings.iter().filter_map(|listing| match &listing.found {
        Listed::Items { items, .. } => Some(items),
        Listed::Failed(_) | Listed::NotServed => None,
    });
    items.flatten().filter(move |item| item.carries(&label))
}

/// Reads what the plan of an apply needs, and plans it.
async fn plan_apply(
    clusters: &Clusters,
    request: &ApplyRequest<'_>,
    manifests: &[Manifest],
    record: &Record,
) -> Result<(Plan, Snapshot), OperationError> {
    let mut deployment = Deployment::new(ApplyRequest { manifests, inventory: record.known(), ..request.clone() })?;
    let rules = GraphRules::new(&deployment, request.graph, manifests);
    let mut snapshot = clusters.snapshot_tracked(deployment.queries(), &rules).await;
    let missing = deployment.missing(&snapshot);
    snapshot.listings.extend(clusters.snapshot_tracked(&missing, &rules).await.listings);
    let claims = deployment.claims(&snapshot);
    if !claims.is_empty() {
        deployment.ignore_claims(gone(clusters, request.release, claims).await);
    }
    let plan = deployment.plan(&snapshot)?;
    Ok((plan, snapshot))
}

/// Returns the namespaces that an earlier apply created for the release, which belong to it as long as it uses them.
fn owned_namespaces(inventory: &Inventory, manifests: &[Manifest]) -> Vec<Manifest> {
    let key = |name: &str| ObjectKey::new(wellknown::namespace(), None, name);
    let owned = inventory.created_namespaces.iter().filter(|name| inventory.entries.contains_key(&key(name)));
    owned.filter(|name| needs(manifests, name)).flat_map(|name| namespace_of(&inventory.release, name)).collect()
}

/// Whether manifests are in a namespace without containing it.
fn needs(manifests: &[Manifest], namespace: &str) -> bool {
    let key = ObjectKey::new(wellknown::namespace(), None, namespace);
    manifests.iter().any(|manifest| manifest.key.namespace.as_deref() == Some(namespace))
        && manifests.iter().all(|manifest| manifest.key != key)
}

/// Returns the manifest of a namespace that belongs to a release without being in its manifests.
fn namespace_of(release: &ReleaseName, name: &str) -> Vec<Manifest> {
    let value = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let document = Document { line: 1, value };
    let mut manifests = Manifest::from_document(document, &Arc::from("created namespace")).unwrap_or_default();
    manifests.iter_mut().for_each(|manifest| manifest.set_label(wellknown::RELEASE_LABEL, &release.label_value()));
    manifests
}

/// Runs a planned apply and keeps the inventory up to date.
///
/// # Errors
///
/// When a namespace cannot be created or the inventory cannot be written beforehand. Everything else is in the summary.
pub async fn apply(
    clusters: &Clusters,
    prepared: PreparedApply,
    options: &RunOptions,
) -> Result<Summary, OperationError> {
    apply_announced(clusters, prepared, options, async |_| Ok(())).await
}

/// Like [`apply`], and calls `announce` once nothing but the run itself can fail any more: the release is locked, unless there is
/// nothing to write.
///
/// # Errors
///
/// As [`apply`], and when `announce` fails. Then nothing is applied, and the lock is removed.
pub async fn apply_announced<E: From<OperationError>>(
    clusters: &Clusters,
    prepared: PreparedApply,
    options: &RunOptions,
    announce: impl AsyncFnOnce(Starting) -> Result<(), E>,
) -> Result<Summary, E> {
    let PreparedApply { mut plan, manifests, snapshot, mut record, prune, since, .. } = prepared;
    crate::run::announce(&plan, options);
    // The record names the namespaces before they are created, except the one that holds it.
    let is_first = |name: &String| clusters.record_here() && name == record.inventory.release.namespace();
    let (first, others): (Vec<String>, Vec<String>) = plan.namespaces.iter().cloned().partition(is_first);
    create_namespaces(clusters, &first, options).await?;
    let is_locked = record.begin_apply(clusters, &mut plan, &manifests).await?;
    let fenced = record.fenced(clusters);
    let begun = match create_namespaces(&fenced, &others, options).await {
        Ok(()) => announce(Starting { clusters: fenced, is_locked }).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = begun {
        record.unlock(clusters).await;
        return Err(error);
    }
    let mut outcome = record.run(&plan, &snapshot, clusters, &manifests, options).await;
    record.release_unmanaged(clusters, &plan, &snapshot, options, &mut outcome).await;
    let ended = Clusters { now: later(&clusters.now, since.elapsed()), ..clusters.clone() };
    let before = record.inventory.history.clone();
    let written = record.end_apply(&ended, &plan, &outcome, prune).await;
    let Inventory { history, revision, entries, .. } = record.inventory;
    let uids =
        entries.into_iter().filter(|(_, entry)| !entry.obsolete).filter_map(|(key, entry)| Some((key, entry.uid?)));
    let history = if written.is_ok() { history } else { before };
    outcome.summary.recorded = Some(Recorded { history, revision, uids: uids.collect() });
    Ok(finish(outcome, written, clusters, options))
}

/// Returns a time in RFC 3339 format after some time, in whole seconds.
fn later(time: &str, elapsed: Duration) -> String {
    let at = time.parse::<jiff::Timestamp>().ok();
    let later = at.and_then(|at| at.checked_add(Duration::from_secs(elapsed.as_secs())).ok());
    later.map_or_else(|| time.to_owned(), |later| later.to_string())
}

/// Returns the directives by the object of the manifest at their index.
fn by_object(directives: BTreeMap<usize, Directives>, manifests: &[Manifest]) -> BTreeMap<ObjectKey, Directives> {
    directives.into_iter().filter_map(|(at, directives)| Some((manifests.get(at)?.key.clone(), directives))).collect()
}

/// Adds the kinds that the manifests' own CRDs define to a catalog, and returns those that the cluster does not serve yet. A
/// CRD that is to be deleted defines nothing.
fn add_defined_kinds(
    catalog: &mut Arc<Catalog>,
    manifests: &[Manifest],
    graph: Option<&TaskGraph>,
) -> BTreeSet<GroupKind> {
    let deleted = graph.map(TaskGraph::deleted).unwrap_or_default();
    let crds = manifests.iter().enumerate().filter(|(_, manifest)| manifest.key.kind == wellknown::crd());
    let definitions = crds.filter(|(at, _)| !deleted.contains(at));
    let mut not_served = BTreeSet::new();
    for defined in definitions.filter_map(|(_, manifest)| ResourceType::from_crd(&manifest.value())) {
        if catalog.get(&defined.kind).is_none() {
            not_served.insert(defined.kind.clone());
        }
        Arc::make_mut(catalog).insert_missing(defined);
    }
    not_served
}

async fn create_namespaces(clusters: &Clusters, names: &[String], options: &RunOptions) -> Result<(), OperationError> {
    for name in names {
        let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let key = ObjectKey::new(wellknown::namespace(), None, name.as_str());
        let (text, how) = (manifest.to_string(), ApplyOptions::default());
        if clusters.own.apply(&Resource::namespaces(), &key, &text, &how).await?.created {
            (options.sink)(Event::NamespaceCreated { object: key });
        }
    }
    Ok(())
}
