//! Plans that deploy: CRDs, then cluster-scoped objects, then namespaced ones, or as the policy says; then the old
//! version's remains are pruned.

mod nodes;
mod order;
mod own;
mod prepare;
mod prune;
mod versions;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
};

use billhook_objects::{Catalog, Manifest, ObjectKey, wellknown};
use billhook_policy::Policy;

use crate::{
    ApplyRequest, Directives, Note, NoteCode, Operation, Plan, PlanError, PlanErrorKind, Query, Snapshot, Wanted,
    delete::{self, missing_queries, plan_delete},
    error::Problems,
    find::{Finder, Index},
    groups::{Matcher, place},
    queries::{ByKind, QuerySet, release_selector},
};

pub use prepare::prepare;

/// The queries that show what an apply is about; their answers are what [`plan_apply`] needs.
///
/// # Errors
///
/// When the policy is wrong: all that is wrong with it.
pub fn apply_queries(request: &ApplyRequest<'_>) -> Result<Vec<Query>, PlanError> {
    let catalogs = versions::lasting(request);
    let scene = Scene::new(&ApplyRequest { catalogs: &catalogs, ..*request })?;
    let mut queries = QuerySet::default();
    queries.extend(scene.first_round());
    queries.extend(delete::delete_queries(&scene.pruning())?);
    Ok(queries.into_vec())
}

/// The queries of the second round: objects that a list by label did not show may have lost the label, and where a
/// list is forbidden, single reads may not be. Most often there are none.
pub fn missing_apply_queries(request: &ApplyRequest<'_>, snapshot: &Snapshot) -> Vec<Query> {
    let catalogs = versions::lasting(request);
    let Ok(scene) = Scene::new(&ApplyRequest { catalogs: &catalogs, ..*request }) else { return Vec::new() };
    let mut queries = QuerySet::default();
    let first = scene.first_round();
    queries.extend(scene.objects.missing(&Finder::new(&first, &Index::of(snapshot))));
    queries.extend(missing_queries(&scene.pruning(), snapshot));
    queries.into_vec().into_iter().filter(|query| !first.contains(query)).collect()
}

/// Plans a deployment and, after it, the pruning of what the old version had and the new one lacks.
///
/// # Errors
///
/// When the policy or its order is wrong, when the snapshot leaves open whether an object is there, and when objects
/// belong to somebody else: all problems at once.
pub fn plan_apply(request: &ApplyRequest<'_>, snapshot: &Snapshot) -> Result<Plan, PlanError> {
    let catalogs = versions::lasting(request);
    let scene = Scene::new(&ApplyRequest { catalogs: &catalogs, ..*request })?;
    let index = Index::of(snapshot);
    let mut queries = scene.first_round();
    queries.extend(scene.objects.missing(&Finder::new(&queries, &index)));
    let finder = Finder::new(&queries, &index);
    let mut problems = Problems::default();
    let mut live = scene.own(&finder, &mut problems);
    let mut plan = Plan::new(Operation::Apply, Some(request.release));
    plan.notes.append(&mut live.notes);
    scene.add_nodes(&live, &mut plan, &mut problems);
    match plan_delete(&scene.pruning(), snapshot) {
        Ok(mut pruning) => {
            prune::drop_applied(&mut pruning, &live);
            versions::check(request, &pruning, &mut problems);
            scene.add_pruning(pruning, &mut plan);
        }
        Err(error) => problems.extend(error),
    }
    problems.check()?;
    plan.notes.extend(request.namespaces.iter().map(|namespace| created(namespace)));
    plan.sort_notes();
    Ok(plan)
}

/// A request with everything resolved that does not need the cluster's answers.
struct Scene<'a> {
    request: ApplyRequest<'a>,
    catalog: &'a Catalog,
    objects: ByKind<'a>,
    /// What is to be pruned; empty without `--prune`.
    obsolete: Vec<Wanted>,
    /// What the new version lacks and still needs, or what is not pruned: it stays.
    kept: Vec<prune::Kept>,
}

impl<'a> Scene<'a> {
    fn new(request: &ApplyRequest<'a>) -> Result<Self, PlanError> {
        let mut problems = Problems::default();
        let Some(catalog) = request.catalogs.find(None, "", &mut problems) else {
            problems.check()?;
            return Err(PlanError { kind: PlanErrorKind::Input, problems: Vec::new() });
        };
        for manifest in request.manifests.iter().filter(|m| catalog.get(&m.key.kind).is_none()) {
            problems.input(format!("{}: the cluster does not serve {}", manifest.source, manifest.key.kind));
        }
        check_deletion(request, catalog, &mut problems);
        problems.check()?;
        let asked = request.manifests.iter().filter(|m| !request.not_served.contains(&m.key.kind));
        let objects = ByKind::of(asked.map(|m| (&m.key, m.api_version.version())), catalog);
        let (obsolete, kept) = prune::obsolete(request, catalog);
        Ok(Self { request: *request, catalog, objects, obsolete, kept })
    }

    /// By label where the inventory knows every object that is looked for; a new one does not carry the label yet, and
    /// what has its name may be anybody's.
    fn first_round(&self) -> Vec<Query> {
        let label = release_selector(self.request.release);
        let entries = self.request.inventory.map(|inventory| &inventory.entries);
        let mut confirmed: HashMap<_, HashSet<&str>> = HashMap::new();
        for (key, _) in entries.into_iter().flatten().filter(|(_, entry)| entry.uid.is_some()) {
            confirmed.entry((&key.kind, key.namespace.as_deref())).or_default().insert(&key.name);
        }
        let mut queries = Vec::new();
        for (kind, objects) in &self.objects.kinds {
            let known = |namespace: Option<&str>, names: &BTreeSet<&str>| {
                confirmed.get(&(*kind, namespace)).is_some_and(|known| names.iter().all(|name| known.contains(name)))
            };
            queries.extend(objects.queries(Some(&label), known, |_| false));
        }
        queries
    }

    fn directives(&self, key: &ObjectKey) -> Cow<'_, Directives> {
        self.request.directives.get(key).map_or_else(Cow::default, Cow::Borrowed)
    }

    /// Pruning is a deletion of what the new version lacks, by `deletionGroupsDuringUpdate`.
    fn pruning(&self) -> crate::DeleteRequest<'_> {
        let prune = self.request.prune && self.request.inventory.is_some();
        crate::DeleteRequest {
            release: Some(self.request.release),
            objects: &self.obsolete,
            // At the first apply there is no old version: collections have nothing to do either.
            groups: if prune { &self.request.policy.during_update } else { &[] },
            catalogs: self.request.catalogs,
            propagation: self.request.propagation,
            operation: Operation::Apply,
            record_here: self.request.record_here,
        }
    }
}

/// Nothing is touched before the whole policy is valid, those parts of it included that a later call will need.
fn check_deletion(request: &ApplyRequest<'_>, catalog: &Catalog, problems: &mut Problems) {
    let Policy { deletion, during_update, .. } = request.policy;
    for group in deletion.iter().chain(during_update).filter(|group| group.target.is_none()) {
        let place = place(&group.path, &group.title);
        let _ = Matcher::resolve(&group.members, &group.excluded, catalog, place, problems);
    }
}

fn created(namespace: &str) -> Note {
    let message = format!("namespace {namespace} does not exist and is created");
    delete::info(NoteCode::NamespaceCreated, message).about(ObjectKey::new(wellknown::namespace(), None, namespace))
}

/// The labels of a manifest, as a selector takes them.
fn labels(manifest: &Manifest) -> BTreeMap<String, String> {
    let value = manifest.value();
    let labels = value.get("metadata").and_then(|metadata| metadata.get("labels"));
    let labels = labels.and_then(serde_json::Value::as_object).into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
