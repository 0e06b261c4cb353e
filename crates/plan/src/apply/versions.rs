//! Versions that outlast the update: what is pruned is looked up before a new CRD is applied, and watched after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_objects::{GroupKind, Manifest, ObjectKey, ResourceType};

use crate::{ApplyRequest, Catalogs, Plan, Problem, Work, groups::is_crd, problem::Problems};

/// Returns the catalogs for the whole update. A kind whose CRD is applied keeps only the versions that both the cluster
/// and the new CRD serve, in the cluster's order of preference.
pub(super) fn lasting(request: &ApplyRequest<'_>) -> Catalogs {
    let mut catalogs = request.catalogs.clone();
    // Only a pruning sends requests before and after the CRD is applied.
    if request.inventory.is_none() || !request.prune {
        return catalogs;
    }
    for (_, defined) in definitions(request) {
        let Some(known) = request.catalogs.own.get(&defined.kind) else { continue };
        let mut versions = known.versions.clone();
        versions.retain(|version| defined.versions.contains(version));
        // If none is left, `check_versions` rejects what would need one.
        if !versions.is_empty() && versions.len() < known.versions.len() {
            Arc::make_mut(&mut catalogs.own).insert(ResourceType { versions, ..known.clone() });
        }
    }
    catalogs
}

/// Rejects manifests in a version that their CRD among the manifests does not serve, and the pruning of a kind of which no
/// version is served before and after the update: its objects could not be distinguished from objects that are gone.
pub(super) fn check_versions(request: &ApplyRequest<'_>, pruning: &Plan, problems: &mut Problems) {
    let mut ending: BTreeMap<GroupKind, Problem> = BTreeMap::new();
    for (crd, defined) in definitions(request) {
        let of_kind = request.applied().filter(|(_, manifest)| manifest.key.kind == defined.kind);
        for (_, Manifest { source, api_version, key, .. }) in of_kind {
            if !defined.versions.iter().any(|version| version == api_version.version()) {
                problems.add(Problem::VersionNotDefined {
                    source: source.clone(),
                    kind: key.kind.kind.clone(),
                    api_version: api_version.clone(),
                    crd: crd.clone(),
                    served: defined.versions.clone(),
                });
            }
        }
        let Some(known) = request.catalogs.own.get(&defined.kind) else { continue };
        if !known.versions.iter().any(|version| defined.versions.contains(version)) {
            let problem = Problem::NoLastingVersion {
                crd: crd.clone(),
                kind: defined.kind.clone(),
                before: known.versions.clone(),
                after: defined.versions,
            };
            ending.insert(defined.kind, problem);
        }
    }
    let mut pruned: BTreeSet<&GroupKind> = BTreeSet::new();
    for node in pruning.nodes.iter().filter(|node| node.cluster.is_none()) {
        if let Work::Delete(work) = &node.work {
            pruned.extend(work.objects.iter().map(|task| &task.object.kind));
            let queries = work.collections.iter().filter_map(|collection| pruning.queries.get(collection.query));
            pruned.extend(queries.map(|query| &query.resource.kind));
        }
    }
    ending.retain(|kind, _| pruned.contains(kind));
    ending.into_values().for_each(|problem| problems.add(problem));
}

/// Returns the kinds that the CRDs among the manifests define, each with its CRD.
fn definitions<'a>(request: &ApplyRequest<'a>) -> impl Iterator<Item = (&'a ObjectKey, ResourceType)> {
    let crds = request.applied().filter(|(_, manifest)| is_crd(&manifest.key.kind));
    crds.filter_map(|(_, crd)| Some((&crd.key, ResourceType::from_crd(&crd.value())?)))
}
