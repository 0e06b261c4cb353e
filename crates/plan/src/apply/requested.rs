//! The objects whose manifests request their deletion.

use billhook_objects::ObjectKey;

use crate::{
    DeletionState, Observed, Problem, RequestedDeletion,
    find::{Seen, State},
    groups::is_protected,
    problem::Problems,
};

use super::deployment::Deployment;

/// An object to delete, and what was found of it.
pub(super) struct Requested<'a> {
    pub(super) deletion: RequestedDeletion,
    /// How it was found, if it exists.
    pub(super) seen: Option<Seen<'a>>,
}

impl Deployment<'_> {
    /// Returns what was found of an object to delete; nothing after a problem. Whose it is only matters if a request follows.
    pub(super) fn requested<'s>(
        &'s self,
        key: &ObjectKey,
        found: State<'s>,
        label: &str,
        problems: &mut Problems,
    ) -> Option<Requested<'s>> {
        let inventory = self.request.inventory;
        let deleted_before = inventory.and_then(|inventory| inventory.deleted.get(key)).cloned();
        let recorded = inventory.is_some_and(|inventory| inventory.entries.contains_key(key));
        let (state, seen) = match found {
            State::Gone | State::NotServed => (DeletionState::NotFound, None),
            State::Open(problem) => {
                problems.add(problem);
                return None;
            }
            State::Found(seen) => {
                let Observed { deleting, deleted_at, .. } = *seen.object;
                let state = match self.request.graph {
                    _ if deleting => DeletionState::Deleting { deleted_at },
                    Some(graph) if graph.deletes => DeletionState::ToDelete,
                    _ => DeletionState::Left,
                };
                (state, Some(seen))
            }
        };
        if let (DeletionState::ToDelete, Some(seen)) = (state, seen) {
            self.check_deletion(key, seen.object, label, deleted_before.is_some(), problems);
        }
        let deletion = RequestedDeletion { object: key.clone(), state, recorded, deleted_before };
        Some(Requested { deletion, seen })
    }

    /// Returns under which name the record has an object. While its kind is not served, nothing tells whether a manifest without
    /// a namespace is of an object that was created in one.
    pub(super) fn recorded_as<'s>(&'s self, key: &'s ObjectKey) -> &'s ObjectKey {
        let Some(inventory) = self.request.inventory.filter(|_| self.catalog().get(&key.kind).is_none()) else {
            return key;
        };
        let mut recorded = inventory.entries.keys().chain(inventory.deleted.keys());
        let is_same = |other: &&ObjectKey| key.namespace.is_none() && other.kind == key.kind && other.name == key.name;
        recorded.find(is_same).unwrap_or(key)
    }

    /// Refuses to delete what an apply would not take over, and Namespaces that no update deletes. An object that has
    /// reappeared after its verified deletion is not the recorded one any more, but its manifest requests that there be none.
    fn check_deletion(
        &self,
        key: &ObjectKey,
        object: &Observed,
        label: &str,
        reappeared: bool,
        problems: &mut Problems,
    ) {
        let entry = self.request.inventory.and_then(|inventory| inventory.entries.get(key));
        let refusal = if self.is_ours(entry, object, label) { None } else { self.refusal(key, object, label) };
        if let Some(problem) = refusal.filter(|p| !reappeared || matches!(p, Problem::OtherRelease { .. })) {
            problems.add(problem);
        }
        let holds_inventory =
            self.request.record_here && key.kind.is("", "Namespace") && self.request.release.namespace() == key.name;
        if holds_inventory || is_protected(key) {
            problems.add(Problem::ProtectedNamespace { object: key.clone(), holds_inventory });
        }
    }
}
