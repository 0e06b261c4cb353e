//! The objects whose manifests request their deletion.

use billhook_objects::ObjectKey;

use crate::{
    Annotation, DeletionState, Observed, Problem, RequestedDeletion,
    find::{Seen, State},
    groups::is_protected,
    problem::Problems,
};

use super::{deployment::Deployment, existing::Existing};

/// The annotations that matter to a requested deletion.
const MATTER: [Annotation; 3] = [Annotation::KeepObject, Annotation::Mode, Annotation::FinalizeDeletionAfter];

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
        existing: &mut Existing<'s>,
        problems: &mut Problems,
    ) -> Option<Requested<'s>> {
        let inventory = self.request.inventory;
        let deleted_before = inventory.and_then(|inventory| inventory.deleted.get(key)).cloned();
        let entry = inventory.and_then(|inventory| inventory.entries.get(key));
        let (recorded, requested) = (entry.is_some(), entry.is_some_and(|entry| entry.deletion_requested));
        let (state, seen) = match found {
            State::Gone | State::NotServed => (DeletionState::NotFound, None),
            State::Open(problem) => {
                problems.add(problem);
                return None;
            }
            State::Found(seen) => {
                let Observed { deleting, deleted_at, ref annotations, .. } = *seen.object;
                let treatment = existing.honoured.read(key, annotations, &MATTER);
                let state = match self.request.graph {
                    _ if deleting => DeletionState::Deleting { deleted_at },
                    Some(graph) if graph.deletes => match treatment.kept_by() {
                        Some(annotation) => {
                            existing.honoured.add(annotation, key, false);
                            if annotation == Annotation::Mode {
                                self.give_up(key, seen.object, label, existing);
                            }
                            DeletionState::Kept
                        }
                        None => DeletionState::ToDelete,
                    },
                    _ => DeletionState::Left,
                };
                let goes = matches!(state, DeletionState::ToDelete | DeletionState::Deleting { .. });
                if goes && treatment.finalize_after.is_some() {
                    existing.honoured.add_not_finalized(key);
                }
                (state, Some(seen))
            }
        };
        if let (DeletionState::ToDelete, Some(seen)) = (state, seen) {
            self.check_deletion(key, seen.object, label, deleted_before.is_some() || requested, problems);
        }
        let object = key.clone();
        let deletion = RequestedDeletion { object, state, recorded, requested, dropped: false, deleted_before };
        Some(Requested { deletion, seen })
    }

    /// Returns what was found of an object whose deletion an earlier version requested and that no manifest names any more. Nothing is
    /// requested for it.
    pub(super) fn dropped_deletion(&self, key: &ObjectKey, found: State<'_>) -> Option<RequestedDeletion> {
        let state = match found {
            State::Gone | State::NotServed => DeletionState::NotFound,
            // It remains in the record.
            State::Open(_) => return None,
            State::Found(seen) if seen.object.deleting => {
                DeletionState::Deleting { deleted_at: seen.object.deleted_at }
            }
            State::Found(_) => DeletionState::Left,
        };
        let object = key.clone();
        Some(RequestedDeletion { object, state, recorded: true, requested: true, dropped: true, deleted_before: None })
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
    /// reappeared after its deletion is not the recorded one any more, but its manifest requests that there be none.
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
