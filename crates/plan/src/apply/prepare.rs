//! Manifests made ready: kinds known, namespaces filled in, the release's label set.

use std::collections::{HashMap, HashSet};

use billhook_objects::{
    Catalog, GroupKind, KindName, Manifest, ObjectKey, ReleaseName, ResourceType, Scope, wellknown::RELEASE_LABEL,
};

use crate::{PlanError, error::Problems, groups::describe};

/// Makes manifests ready for [`crate::plan_apply`], in the order given: each kind is looked up in a catalog that holds
/// the kinds of the release's own CRDs too, a namespaced object without a namespace gets the release's, a
/// cluster-scoped one loses its own, and all get the release's label.
///
/// # Errors
///
/// For all kinds and versions that are not known, and all objects that are there twice.
pub fn prepare(
    manifests: Vec<Manifest>,
    release: &ReleaseName,
    namespace: Option<&str>,
    catalog: &Catalog,
) -> Result<Vec<Manifest>, PlanError> {
    let mut problems = Problems::default();
    let kinds: HashSet<&GroupKind> = manifests.iter().map(|manifest| &manifest.key.kind).collect();
    let types: HashMap<GroupKind, &ResourceType> =
        kinds.into_iter().filter_map(|kind| Some((kind.clone(), catalog.get(kind)?))).collect();
    let label = release.label_value();
    let mut prepared = Vec::with_capacity(manifests.len());
    for mut manifest in manifests {
        match types.get(&manifest.key.kind) {
            None => problems.input(unknown(&manifest, catalog)),
            Some(served) => {
                check_version(&manifest, served, &mut problems);
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
            problems.input(format!("{source}: {key} has no namespace: write it into its metadata"));
        }
        (Scope::Cluster, Some(_), _) => manifest.clear_namespace(),
        _ => {}
    }
}

fn unknown(manifest: &Manifest, catalog: &Catalog) -> String {
    let Manifest { key, source, .. } = manifest;
    let name = KindName { group: key.kind.group.clone(), name: key.kind.kind.clone() };
    match catalog.resolve(&name) {
        Ok(served) => format!("{source}: kind {:?} is spelt {:?}", key.kind.kind, served.kind.kind),
        Err(error) => format!("{source}: {}, and there is no CRD for it in the release", describe(&error, catalog)),
    }
}

/// The version in the URL has to be that of the object, so another one cannot take its place here.
fn check_version(manifest: &Manifest, served: &ResourceType, problems: &mut Problems) {
    let Manifest { api_version, key, source, .. } = manifest;
    if !served.versions.iter().any(|version| version == api_version.version()) {
        let kind = &key.kind.kind;
        let versions = served.versions.join(", ");
        problems.input(format!("{source}: {kind} is not served in {api_version}, but in the versions {versions}"));
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
                let (key, source, before) = (&manifest.key, &manifest.source, &entry.get().source);
                problems.input(format!("{source}: {key} is there already, at {before}"));
            }
        }
    }
}
