//! Prepares manifests for a deployment: checks their kinds, sets their namespaces and the release's label.

use std::collections::{HashMap, HashSet};

use billhook_objects::{
    Catalog, GroupKind, KindName, Manifest, ObjectKey, ReleaseName, ResolveError, ResourceType, Scope,
    wellknown::RELEASE_LABEL,
};

use crate::{
    ApplyRequest, PlanError, Problem, TaskGraph, UnservedKind, UnservedStep,
    groups::{unavailable_api, unserved},
    problem::Problems,
};

/// Prepares manifests for [`crate::Deployment`] and returns them in their order. A namespaced object without a namespace
/// gets `namespace`, a cluster-scoped object loses its own, and all get the release's label. The catalog must also contain
/// the kinds of the release's own CRDs. In a graph, neither a kind nor its version needs to be served: an object to delete is
/// gone then, and the step of another one fails.
///
/// # Errors
///
/// For unknown kinds and versions, missing namespaces and duplicate objects: all problems at once.
pub fn prepare(
    manifests: Vec<Manifest>,
    release: &ReleaseName,
    namespace: Option<&str>,
    catalog: &Catalog,
    graph: Option<&TaskGraph>,
) -> Result<Vec<Manifest>, PlanError> {
    let mut problems = Problems::default();
    let kinds: HashSet<&GroupKind> = manifests.iter().map(|manifest| &manifest.key.kind).collect();
    let types: HashMap<GroupKind, &ResourceType> =
        kinds.into_iter().filter_map(|kind| Some((kind.clone(), catalog.get(kind)?))).collect();
    let label = release.label_value();
    let mut prepared = Vec::with_capacity(manifests.len());
    for mut manifest in manifests {
        match types.get(&manifest.key.kind) {
            None => match unknown(&manifest, catalog) {
                Problem::NotServed { .. } if graph.is_some() => {}
                problem => problems.add(problem),
            },
            Some(served) => {
                if graph.is_none() {
                    check_version(&manifest, served, &mut problems);
                }
                place(&mut manifest, served.scope, namespace, &mut problems);
            }
        }
        manifest.set_label(RELEASE_LABEL, &label);
        prepared.push(manifest);
    }
    check_duplicates(&prepared, &mut problems);
    problems.check()?;
    Ok(prepared)
}

fn place(manifest: &mut Manifest, scope: Scope, namespace: Option<&str>, problems: &mut Problems) {
    match (scope, &manifest.key.namespace, namespace) {
        (Scope::Namespaced, None, Some(namespace)) => manifest.set_namespace(namespace),
        (Scope::Namespaced, None, None) => {
            let Manifest { key, source, .. } = manifest;
            problems.add(Problem::NoNamespace { source: Some(source.clone()), object: key.clone() });
        }
        (Scope::Cluster, Some(_), _) => manifest.clear_namespace(),
        _ => {}
    }
}

fn unknown(manifest: &Manifest, catalog: &Catalog) -> Problem {
    let Manifest { key, source, .. } = manifest;
    let source = source.clone();
    match unserved_kind(&key.kind, catalog) {
        Ok(kind) => Problem::NotServed { source, kind },
        Err(correct) => {
            Problem::Misspelt { source, written: key.kind.kind.clone(), correct: correct.kind.kind.clone() }
        }
    }
}

/// Returns what may be meant by a kind that is not served, or the kind that is only spelled differently.
fn unserved_kind<'a>(kind: &GroupKind, catalog: &'a Catalog) -> Result<UnservedKind, &'a ResourceType> {
    let name = KindName { group: kind.group.clone(), name: kind.kind.clone() };
    let elsewhere = match catalog.resolve(&name) {
        Ok(served) => return Err(served),
        Err(ResolveError::NotServed { elsewhere, .. }) => elsewhere,
        Err(ResolveError::Ambiguous { candidates, .. }) => candidates,
    };
    Ok(unserved(name, &elsewhere, catalog))
}

/// Returns the step for a manifest whose kind or version the cluster does not serve.
pub(super) fn unserved_step(manifest: &Manifest, catalog: &Catalog) -> UnservedStep {
    let Manifest { api_version, key, .. } = manifest;
    let name = || KindName { group: key.kind.group.clone(), name: key.kind.kind.clone() };
    let kind = match catalog.get(&key.kind) {
        Some(served) => unserved(name(), std::slice::from_ref(&served.kind), catalog),
        None => unserved_kind(&key.kind, catalog).unwrap_or_else(|_| unserved(name(), &[], catalog)),
    };
    UnservedStep { object: key.clone(), api_version: api_version.clone(), kind }
}

/// Checks that the version is served. Another version cannot replace it, since the URL must have the version of the object.
fn check_version(manifest: &Manifest, served: &ResourceType, problems: &mut Problems) {
    let Manifest { api_version, key, source, .. } = manifest;
    if !served.versions.iter().any(|version| version == api_version.version()) {
        problems.add(Problem::VersionNotServed {
            source: source.clone(),
            kind: key.kind.kind.clone(),
            api_version: api_version.clone(),
            served: served.versions.clone(),
        });
    }
}

fn check_duplicates(manifests: &[Manifest], problems: &mut Problems) {
    let mut first: HashMap<&ObjectKey, &Manifest> = HashMap::with_capacity(manifests.len());
    for manifest in manifests {
        match first.entry(&manifest.key) {
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(manifest);
            }
            std::collections::hash_map::Entry::Occupied(entry) => {
                let (object, source) = (manifest.key.clone(), manifest.source.clone());
                problems.add(Problem::Duplicate { source, object, first: entry.get().source.clone() });
            }
        }
    }
}

/// Checks the kinds of objects to delete that are not known: a kind whose aggregated API is unavailable is not gone.
pub(super) fn check_unavailable(request: &ApplyRequest<'_>, problems: &mut Problems) {
    let catalog = &request.catalogs.own;
    let deleted = request.deleted();
    let kinds = deleted.iter().filter_map(|at| Some(&request.manifests.get(*at)?.key.kind));
    let unknown = kinds.filter(|kind: &&GroupKind| catalog.get(kind).is_none());
    for (kind, (group, version)) in unknown.filter_map(|kind| Some((kind, unavailable_api(catalog, kind)?))) {
        problems.add(Problem::UnavailableApi { kind: kind.clone(), api: format!("{group}/{version}") });
    }
}
