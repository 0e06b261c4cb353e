//! The guards of a pruning: what it deletes of the release, and whether that is more than an update usually does.

use std::collections::{BTreeSet, HashSet};

use billhook_objects::{GroupKind, ObjectKey};

use crate::{Inventory, Listed, Listing, NoteKind, Plan, Snapshot, Work};

use super::{deployment::Deployment, existing::Existing};

/// The least number of objects that are more than half of a release: a single one is replaced by another too often.
const FEWEST: usize = 2;

impl Deployment<'_> {
    /// Returns dangerous notes on what the plan prunes.
    pub(super) fn note_pruning(&self, plan: &Plan, existing: &Existing<'_>, snapshot: &Snapshot) -> Vec<NoteKind> {
        let Some(inventory) = self.request.inventory else { return Vec::new() };
        let mut notes = Vec::new();
        let deleted = deleted(plan);
        let own = deleted.iter().filter(|(cluster, _)| cluster.is_none()).map(|(_, key)| *key);
        let pruned: Vec<&ObjectKey> = own.filter(|key| inventory.entries.contains_key(*key)).collect();
        let kept = self.kept(plan, existing, inventory);
        let objects = pruned.len() + kept.len();
        let dropped = self.dropped(&pruned);
        if self.request.manifests.is_empty() && !inventory.entries.is_empty() {
            notes.push(NoteKind::RendersNothing { pruned: pruned.len(), objects });
        } else if dropped >= FEWEST && 2 * dropped > objects {
            notes.push(NoteKind::PrunesMost { pruned: dropped, objects });
        }
        let data: Vec<_> = deleted.iter().filter(|(_, key)| holds_data(key)).map(|(_, key)| (*key).clone()).collect();
        if !data.is_empty() && !kept.iter().any(|key| holds_data(key)) {
            notes.push(NoteKind::PrunesData { objects: data });
        }
        let protected: BTreeSet<_> = protected(snapshot).filter(|(on, key)| deleted.contains(&(*on, key))).collect();
        if !protected.is_empty() {
            notes.push(NoteKind::PrunesProtected { objects: protected.into_iter().map(|(_, key)| key).collect() });
        }
        notes
    }

    /// Returns the existing objects of the release that are not pruned.
    fn kept<'s>(&'s self, plan: &'s Plan, existing: &Existing<'s>, inventory: &Inventory) -> Vec<&'s ObjectKey> {
        let updated = existing.objects.keys().copied().filter(|key| inventory.entries.contains_key(*key));
        let uncovered = plan.uncovered.iter().filter(|left| left.deleted_with.is_none()).map(|left| &left.object);
        let unpruned = self.kept.iter().filter(|kept| !kept.needed).map(|kept| &kept.object);
        updated.chain(uncovered).chain(unpruned).collect()
    }

    /// Counts pruned objects without those that the new version only renames: kustomize appends a hash of the content to
    /// the names of generated objects, so that every change replaces them.
    fn dropped(&self, pruned: &[&ObjectKey]) -> usize {
        let stems: HashSet<_> = self.request.manifests.iter().filter_map(|manifest| stem(&manifest.key)).collect();
        pruned.iter().filter(|key| !stem(key).is_some_and(|stem| stems.contains(&stem))).count()
    }
}

/// Returns the objects that a plan deletes: those of its groups, and those of the release that are deleted with their
/// Namespace or CRD.
fn deleted(plan: &Plan) -> BTreeSet<(Option<&str>, &ObjectKey)> {
    let mut deleted = BTreeSet::new();
    for node in &plan.nodes {
        if let Work::Delete(work) = &node.work {
            deleted.extend(work.objects.iter().map(|task| (node.cluster.as_deref(), &task.object)));
        }
    }
    let contained = plan.uncovered.iter().filter(|uncovered| uncovered.deleted_with.is_some());
    deleted.extend(contained.map(|uncovered| (None, &uncovered.object)));
    deleted
}

/// Returns the objects that are annotated as protected, each with its cluster.
fn protected(snapshot: &Snapshot) -> impl Iterator<Item = (Option<&str>, ObjectKey)> {
    snapshot.listings.iter().flat_map(|Listing { query, found }| {
        let items = if let Listed::Items { items, .. } = found { items.as_slice() } else { &[] };
        let protected = items.iter().filter(|object| object.annotations.is_protected());
        protected.map(move |object| (query.cluster.as_deref(), object.key(&query.resource.kind)))
    })
}

fn holds_data(key: &ObjectKey) -> bool {
    key.kind.is("", "PersistentVolumeClaim")
}

/// Returns what identifies a generated object besides the hash at the end of its name (`hash` in kustomize's
/// `api/internal/generators` and `hasher`: ten characters of this alphabet).
fn stem(key: &ObjectKey) -> Option<(&GroupKind, Option<&str>, &str)> {
    let (stem, hash) = key.name.rsplit_once('-')?;
    let is_hash = hash.len() == 10 && hash.bytes().all(|byte| b"2456789bcdfghkmt".contains(&byte));
    is_hash.then_some((&key.kind, key.namespace.as_deref(), stem))
}
