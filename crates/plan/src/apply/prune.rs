//! What the old version had and the new one lacks.

use std::collections::{BTreeSet, HashSet};

use billhook_objects::{Catalog, ObjectKey, Uid, wellknown};

use crate::{
    ApplyRequest, NoteCode, Plan, Uncovered, Wanted, Work,
    counts::Counts,
    delete::{info, warning},
};

use super::{Scene, own::Live};

/// An object that the new version lacks and that is not pruned, and why.
pub(super) struct Kept {
    object: ObjectKey,
    /// Objects of the new version would go with it; else pruning is off.
    needed: bool,
}

/// Divides what the inventory has and the manifests lack into what is pruned and what stays.
pub(super) fn obsolete(request: &ApplyRequest<'_>, catalog: &Catalog) -> (Vec<Wanted>, Vec<Kept>) {
    let current: HashSet<&ObjectKey> = request.manifests.iter().map(|manifest| &manifest.key).collect();
    let entries = request.inventory.map(|inventory| &inventory.entries).into_iter().flatten();
    let lacking = entries.filter(|(key, _)| !current.contains(key));
    let needed = containers(request, catalog);
    let (mut obsolete, mut kept) = (Vec::new(), Vec::new());
    for (key, entry) in lacking {
        // A Namespace or CRD would take along what the new version has in it.
        let needed = needed.contains(key);
        if needed || !request.prune {
            kept.push(Kept { object: key.clone(), needed });
        } else {
            obsolete.push(Wanted::of_entry(key, entry));
        }
    }
    (obsolete, kept)
}

/// The Namespaces and CRDs that the objects of the new version are in.
fn containers(request: &ApplyRequest<'_>, catalog: &Catalog) -> BTreeSet<ObjectKey> {
    let keys = || request.manifests.iter().map(|manifest| &manifest.key);
    let namespaces: BTreeSet<&str> = keys().filter_map(|key| key.namespace.as_deref()).collect();
    let kinds: BTreeSet<_> = keys().map(|key| &key.kind).collect();
    let crds = kinds.into_iter().filter_map(|kind| catalog.get(kind));
    let crds = crds.map(|t| ObjectKey::new(wellknown::crd(), None, format!("{}.{}", t.plural, t.kind.group)));
    namespaces.into_iter().map(|ns| ObjectKey::new(wellknown::namespace(), None, ns)).chain(crds).collect()
}

impl Scene<'_> {
    /// Appends the nodes of a pruning: the old goes when the new is there, and ready where that is waited for.
    pub(super) fn add_pruning(&self, pruning: Plan, plan: &mut Plan) {
        let queries = plan.queries.len();
        for mut node in pruning.nodes {
            // A deletion is a chain, and so is a deployment.
            node.after = plan.nodes.len().checked_sub(1).into_iter().collect();
            if let Work::Delete(work) = &mut node.work {
                work.collections.iter_mut().for_each(|collection| collection.query += queries);
                for task in &mut work.objects {
                    task.query += queries;
                    task.instances.iter_mut().for_each(|instances| *instances += queries);
                }
            }
            plan.nodes.push(node);
        }
        plan.queries.extend(pruning.queries);
        plan.uncovered.extend(pruning.uncovered);
        plan.notes.extend(pruning.notes);
        self.note_kept(plan);
    }

    fn note_kept(&self, plan: &mut Plan) {
        let mut off = Counts::default();
        for Kept { object, needed } in &self.kept {
            if *needed {
                let reason = "the new version has objects in it".to_owned();
                plan.uncovered.push(Uncovered { object: object.clone(), reason });
                let message =
                    format!("{object} is not in the new version, but stays: objects of the new version need it");
                plan.notes.push(warning(NoteCode::Uncovered, message).about(object.clone()));
            } else {
                off.add(&object.kind);
            }
        }
        if off.total() > 0 {
            let message = format!("{} that the new version lacks are not pruned: {off}", off.objects());
            plan.notes.push(info(NoteCode::Uncovered, message).counting(off.into_vec()));
        }
        plan.uncovered.sort_by(|a, b| a.object.cmp(&b.object));
    }
}

/// An object that moved to another API group is still the same object, under two kinds: it is not pruned.
pub(super) fn drop_applied(pruning: &mut Plan, live: &Live<'_>) {
    let applied: HashSet<&Uid> = live.existing.values().map(|object| &object.uid).collect();
    for node in &mut pruning.nodes {
        match &mut node.work {
            Work::Delete(work) => work.objects.retain(|task| !applied.contains(&task.uid)),
            Work::Patch(work) => {
                work.objects.retain(|task| !task.uid.as_ref().is_some_and(|uid| applied.contains(uid)))
            }
            Work::Apply(_) => {}
        }
    }
    pruning.nodes.retain(|node| match &node.work {
        Work::Delete(work) => !work.objects.is_empty() || !work.collections.is_empty(),
        Work::Patch(work) => !work.objects.is_empty(),
        Work::Apply(_) => true,
    });
}
