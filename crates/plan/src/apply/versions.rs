//! Versions that outlast the update: what is pruned is looked for before a new CRD is applied, and watched after it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_objects::{GroupKind, Manifest, ObjectKey, ResourceType};

use crate::{ApplyRequest, Catalogs, Plan, Work, error::Problems, groups::is_crd};

/// The kinds as the whole update may talk to them: of a kind whose CRD is applied, only versions that are served now and
/// that the new CRD serves as well, in the order that the cluster prefers them.
pub(super) fn lasting<'a>(request: &ApplyRequest<'a>) -> Cow<'a, Catalogs> {
    let mut catalogs = Cow::Borrowed(request.catalogs);
    // Only a pruning talks to the cluster before and after.
    if request.inventory.is_none() || !request.prune {
        return catalogs;
    }
    for (_, defined) in definitions(request) {
        let Some(known) = request.catalogs.get(None).and_then(|catalog| catalog.get(&defined.kind)) else { continue };
        let mut versions = known.versions.clone();
        versions.retain(|version| defined.versions.contains(version));
        // Where none is left, `check` refuses what would need one.
        if versions.is_empty() || versions.len() == known.versions.len() {
            continue;
        }
        let narrowed = ResourceType { versions, ..known.clone() };
        if let Some(catalog) = catalogs.to_mut().0.get_mut(&None) {
            Arc::make_mut(catalog).insert(narrowed);
        }
    }
    catalogs
}

/// Refuses manifests in a version that their CRD among the manifests does not serve (any more), and to prune objects of a
/// kind of which no version is served before and after the update: they could not be told from objects that are gone.
pub(super) fn check(request: &ApplyRequest<'_>, pruning: &Plan, problems: &mut Problems) {
    let mut ending: BTreeMap<GroupKind, (&ObjectKey, String, String)> = BTreeMap::new();
    for (crd, defined) in definitions(request) {
        let of_kind = request.manifests.iter().filter(|manifest| manifest.key.kind == defined.kind);
        for Manifest { source, api_version, key, .. } in of_kind {
            if !defined.versions.iter().any(|version| version == api_version.version()) {
                let (kind, versions) = (&key.kind.kind, defined.versions.join(", "));
                problems.input(format!(
                    "{source}: {kind} in {api_version} is not what the release's own {crd} serves: versions {versions}"
                ));
            }
        }
        let Some(known) = request.catalogs.get(None).and_then(|catalog| catalog.get(&defined.kind)) else { continue };
        if !known.versions.iter().any(|version| defined.versions.contains(version)) {
            ending.insert(defined.kind, (crd, known.versions.join(", "), defined.versions.join(", ")));
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
    for (kind, (crd, now, then)) in ending.iter().filter(|(kind, _)| pruned.contains(kind)) {
        let then = if then.is_empty() { "none" } else { then };
        problems.input(format!(
            "{crd}: objects of {kind} are to be pruned, but no version is served before and after the update (now {now}, \
             then {then}): let the new CRD serve one of the old versions, or use --prune=false"
        ));
    }
}

/// The kinds that the CRDs among the manifests define, each with its CRD.
fn definitions<'a>(request: &ApplyRequest<'a>) -> impl Iterator<Item = (&'a ObjectKey, ResourceType)> {
    let crds = request.manifests.iter().filter(|manifest| is_crd(&manifest.key.kind));
    crds.filter_map(|crd| Some((&crd.key, ResourceType::from_crd(&crd.value())?)))
}
