//! What the old version contained and the new one does not.

use std::collections::{BTreeSet, HashSet};

use billhook_objects::{Catalog, ObjectKey, wellknown};

use crate::{ApplyRequest, Wanted};

/// An object that the new version does not contain and that is not pruned.
pub(super) struct Kept {
    pub(super) object: ObjectKey,
    /// Whether objects of the new version are in it; else pruning is off.
    pub(super) needed: bool,
}

/// Divides the objects that only the inventory contains into those to prune and those to keep.
pub(super) fn obsolete(request: &ApplyRequest<'_>, catalog: &Catalog) -> (Vec<Wanted>, Vec<Kept>) {
    let current: HashSet<&ObjectKey> = request.manifests.iter().map(|manifest| &manifest.key).collect();
    let entries = request.inventory.map(|inventory| &inventory.entries).into_iter().flatten();
    let lacking = entries.filter(|(key, _)| !current.contains(key));
    let needed = containers(request, catalog);
    let (mut obsolete, mut kept) = (Vec::new(), Vec::new());
    for (key, entry) in lacking {
        // Deleting a Namespace or CRD would delete the objects of the new version in it.
        let needed = needed.contains(key);
        if needed || !request.prune {
            kept.push(Kept { object: key.clone(), needed });
        } else {
            obsolete.push(Wanted::of_entry(key, entry));
        }
    }
    (obsolete, kept)
}

/// Returns the Namespaces and CRDs that the objects of the new version are in.
fn containers(request: &ApplyRequest<'_>, catalog: &Catalog) -> BTreeSet<ObjectKey> {
    let keys = || request.applied().map(|(_, manifest)| &manifest.key);
    let namespaces: BTreeSet<&str> = keys().filter_map(|key| key.namespace.as_deref()).collect();
    let kinds: BTreeSet<_> = keys().map(|key| &key.kind).collect();
    let crds = kinds.into_iter().filter_map(|kind| catalog.get(kind));
    let crds = crds.map(|served| wellknown::crd_of(&served.plural, &served.kind));
    namespaces.into_iter().map(|ns| ObjectKey::new(wellknown::namespace(), None, ns)).chain(crds).collect()
}
