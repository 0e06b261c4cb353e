//! The plan of an apply: what the cluster and the record of the release show, and what follows from it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_cluster::Error;
use billhook_objects::{Catalog, GroupKind, Manifest, ObjectKey, ReleaseName, ResourceType, wellknown, yaml::Document};
use billhook_plan::{
    ApplyRequest, Catalogs, Deployment, Directives, Inventory, Listed, MissingNamespaces, Note, NoteKind, Observed,
    Plan, PlanError, Problem, Resource, Snapshot, TaskGraph,
};
use tokio::time::Instant;

use super::{
    super::{
        claims::gone,
        delete::unlisted_note,
        error::OperationError,
        read::{GraphRules, add_contents, catalog, catalogs},
        record::{Loaded, Record, applied},
        sweep::sweep,
    },
    ApplyInput, PreparedApply, Unrecorded,
};
use crate::Clusters;

/// Plans an apply. Changes nothing.
///
/// # Errors
///
/// When the manifests or the policy do not fit the cluster, objects belong to another release, or the cluster cannot be
/// read.
pub async fn prepare_apply(clusters: &Clusters, input: ApplyInput) -> Result<PreparedApply, OperationError> {
    let since = Instant::now();
    let release = &input.release;
    let may_be_lost = matches!(input.unrecorded, Unrecorded::Swept);
    let record = load(clusters, release, input.unrecorded);
    let (mut catalog, record) = tokio::try_join!(catalog(clusters, input.catalog), record)?;
    let (history, failures) = (record.inventory.history.clone(), record.inventory.failures.clone());
    let (graph, wait) = input.order.after(&history);
    let graph = graph.as_ref();
    let not_served = add_defined_kinds(&mut catalog, &input.manifests, graph);
    if may_be_lost && input.manifests.is_empty() && record.known().is_none() {
        return Err(PlanError::from(Problem::NoObjects).into());
    }
    let chooses_policy = input.policy.is_some();
    let policy = input.policy.unwrap_or_else(|| record.inventory.policy.clone());
    let manifests = billhook_plan::prepare(input.manifests, release, input.namespace.as_deref(), &catalog, graph)
        .map_err(|error| error.with(billhook_plan::check_policy(&policy, &catalog)))?;
    let directives = by_object(input.directives, &manifests);
    let catalogs = catalogs(clusters, catalog, &policy.during_update).await?;
    let request = ApplyRequest {
        release,
        manifests: &[],
        directives: &directives,
        strategy: input.strategy,
        inventory: None,
        policy: &policy,
        catalogs: catalogs.clone(),
        not_served: &not_served,
        missing_namespaces: input.missing_namespaces,
        adopt: input.unowned.adopts(),
        unlabelled: input.unowned.unlabelled(),
        prune: input.prune,
        wait,
        propagation: input.propagation,
        record_here: clusters.record_here(),
        graph,
    };
    let mut planning = Planning { clusters, request, manifests, record, created: Vec::new(), notes: input.notes };
    let planned = planning.plan(may_be_lost, chooses_policy).await?;
    let Planning { manifests, record, created, notes, .. } = planning;
    let (mut plan, snapshot) = noted(clusters, release, planned, &catalogs, input.max_deletions).await;
    plan.add_notes(notes);
    let mut manifests: BTreeMap<_, _> =
        manifests.into_iter().map(|manifest| (manifest.key.clone(), manifest)).collect();
    // An object that the plan leaves to another client does not belong to the release.
    let tasks: BTreeMap<_, _> = applied(&plan).map(|task| (&task.object, task)).collect();
    manifests.retain(|key, _| tasks.contains_key(key));
    let labelled = labelled(&snapshot, release).map(|object| &object.uid).collect();
    let mut record = record.intend(&manifests, &directives, &tasks, &labelled, policy, &created);
    record.intend_deletions(&plan, &clusters.now);
    record.intend_to_release(&plan);
    if let Some(version) = &input.version {
        record.begin_version(version, &clusters.now);
    }
    let prune = input.prune;
    Ok(PreparedApply { plan, manifests, directives, not_served, history, failures, snapshot, record, prune, since })
}

/// Reads the record of a release, or returns that of one that has none.
async fn load(clusters: &Clusters, release: &ReleaseName, unrecorded: Unrecorded) -> Result<Record, Error> {
    let (loaded, inherited) = match unrecorded {
        Unrecorded::New => (Loaded::Nothing(None), Vec::new()),
        Unrecorded::Inherits(objects) => (Record::load(clusters, release).await?, objects),
        Unrecorded::Swept => (Record::load(clusters, release).await?, Vec::new()),
    };
    Ok(match loaded {
        Loaded::Record(record) => *record,
        Loaded::Nothing(head) => Record::inherited(release.clone(), head, inherited),
    })
}

/// An apply that is being planned.
struct Planning<'a> {
    clusters: &'a Clusters,
    /// The request without its manifests and its inventory.
    request: ApplyRequest<'a>,
    manifests: Vec<Manifest>,
    record: Record,
    /// The namespaces that are created for the release.
    created: Vec<String>,
    notes: Vec<Note>,
}

impl Planning<'_> {
    /// Plans the apply; again if the record of the release was lost, and if namespaces are created that belong to the release.
    async fn plan(&mut self, may_be_lost: bool, chooses_policy: bool) -> Result<(Plan, Snapshot), OperationError> {
        let (clusters, release) = (self.clusters, self.request.release);
        let owns_namespaces = self.request.missing_namespaces == MissingNamespaces::CreateOwned;
        self.manifests.extend(owned_namespaces(&self.record.inventory, &self.manifests));
        if owns_namespaces {
            self.add_left_namespace().await;
        }
        let (mut plan, mut snapshot) = self.plan_once().await?;
        if may_be_lost && self.record.known().is_none() && labelled(&snapshot, release).next().is_some() {
            let swept = sweep(clusters, &self.request.catalogs.own, release).await;
            self.notes.extend(unlisted_note(swept.unlisted));
            self.notes.extend((!chooses_policy).then(|| NoteKind::PolicyLost.into()));
            self.record = Record::swept(release.clone(), self.record.take_head(), swept.entries);
            (plan, snapshot) = self.plan_once().await?;
        }
        self.created.extend(plan.namespaces.iter().cloned());
        if owns_namespaces && !plan.namespaces.is_empty() {
            self.manifests.extend(plan.namespaces.iter().flat_map(|name| namespace_of(release, name)));
            (plan, snapshot) = self.plan_once().await?;
        }
        Ok((plan, snapshot))
    }

    /// Adds the namespace of the record if a crash has left it before there was a record.
    async fn add_left_namespace(&mut self) {
        let release = self.request.release;
        let own = release.namespace();
        let may_be_left = self.record.known().is_none() && needs(&self.manifests, own);
        if may_be_left && is_left(self.clusters, release).await {
            self.created.push(own.to_owned());
            self.manifests.extend(namespace_of(release, own));
        }
    }

    /// Reads what the plan needs, and plans it.
    async fn plan_once(&self) -> Result<(Plan, Snapshot), OperationError> {
        let Self { clusters, request, manifests, record, .. } = self;
        let request = ApplyRequest { manifests, inventory: record.known(), ..request.clone() };
        let (release, graph) = (request.release, request.graph);
        let mut deployment = Deployment::new(request)?;
        let rules = GraphRules::new(&deployment, graph, manifests);
        let mut snapshot = clusters.snapshot_tracked(deployment.queries(), &rules).await;
        let missing = deployment.missing(&snapshot);
        snapshot.listings.extend(clusters.snapshot_tracked(&missing, &rules).await.listings);
        let claims = deployment.claims(&snapshot);
        if !claims.is_empty() {
            deployment.ignore_claims(gone(clusters, release, claims).await);
        }
        let plan = deployment.plan(&snapshot)?;
        Ok((plan, snapshot))
    }
}

/// Adds the notes on what else the deletions of a plan take along, and on their number.
async fn noted(
    clusters: &Clusters,
    release: &ReleaseName,
    (mut plan, mut snapshot): (Plan, Snapshot),
    catalogs: &Catalogs,
    max_deletions: Option<usize>,
) -> (Plan, Snapshot) {
    add_contents(clusters, &plan, catalogs, &mut snapshot).await;
    billhook_plan::add_blast_notes(&mut plan, &snapshot, Some(release));
    if let Some(max) = max_deletions {
        billhook_plan::limit_deletions(&mut plan, max);
    }
    (plan, snapshot)
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
