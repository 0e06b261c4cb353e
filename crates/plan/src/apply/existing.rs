//! The objects that exist already, and what to do with each.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use billhook_objects::{Manifest, ObjectKey, ReleaseName, Uid, wellknown::RELEASE_LABEL};
use billhook_policy::{ManifestPolicy, UpdateStrategy};

use crate::{
    Annotation, Annotations, ApplyAction, DeletionState, Directives, Entry, Note, NoteKind, Observed, Plan, Problem,
    RequestedDeletion, Treatment, Unmanaged, Work,
    deploy_item::{is_of_other_item, is_of_same_item},
    find::{Finder, State},
    honoured::Honoured,
    problem::Problems,
};

use super::{deployment::Deployment, requested::Requested, wait::may_skip};

/// The annotations of live objects that matter to an apply.
const MATTER: [Annotation; 5] = [
    Annotation::Mode,
    Annotation::Ignore,
    Annotation::DeleteOnInvalidUpdate,
    Annotation::DeletionPropagationOnInvalidUpdate,
    Annotation::SkipHealthCheck,
];

/// The existing objects of the manifests.
#[derive(Default)]
pub(super) struct Existing<'a> {
    /// One action for each manifest, in their order; none for an object that another client manages, that is to be deleted, or
    /// whose kind is not served.
    pub(super) actions: Vec<Option<ApplyAction>>,
    /// What was found of the objects to delete, by the index of their manifest.
    pub(super) deletions: BTreeMap<usize, Requested<'a>>,
    /// The indexes of the manifests to apply whose kind or version is not served.
    pub(super) unserved: BTreeSet<usize>,
    /// What was found of objects to delete that no manifest names any more.
    pub(super) dropped: Vec<RequestedDeletion>,
    /// The objects, except those to delete.
    pub(super) objects: HashMap<&'a ObjectKey, &'a Observed>,
    /// How each object is to be treated by its annotations, in the order of the manifests.
    pub(super) treatments: Vec<Treatment>,
    /// The objects that the release gives up.
    pub(super) unmanaged: Vec<Unmanaged>,
    pub(super) notes: Vec<Note>,
    pub(super) honoured: Honoured,
}

impl Existing<'_> {
    /// Returns whether the deployment creates, updates or deletes any object.
    pub(super) fn changes(&self) -> bool {
        let written = self.actions.iter().flatten().any(|action| *action != ApplyAction::Unchanged);
        written || self.deletions.values().any(|found| found.deletion.state == DeletionState::ToDelete)
    }

    /// Returns what to do with an object that does not exist, whose treatment was added last.
    fn create(&mut self, key: &ObjectKey) -> Option<ApplyAction> {
        let treatment = self.treatments.last().copied().unwrap_or_default();
        if treatment.unmanaged {
            self.honoured.add(Annotation::Mode, key, false);
            return None;
        }
        if treatment.skip_health_check {
            self.honoured.add(Annotation::SkipHealthCheck, key, false);
        }
        Some(ApplyAction::Create)
    }

    /// Returns how an object is to be treated whose manifest has this index.
    pub(super) fn treatment(&self, at: usize) -> Treatment {
        self.treatments.get(at).copied().unwrap_or_default()
    }

    /// Removes existing objects from a pruning. An object that the new version has in another API group is the same object
    /// under two kinds.
    pub(super) fn remove_from(&self, pruning: &mut Plan) {
        let applied: HashSet<&Uid> = self.objects.values().map(|object| &object.uid).collect();
        for node in &mut pruning.nodes {
            match &mut node.work {
                Work::Delete(work) => work.objects.retain(|task| !applied.contains(&task.uid)),
                Work::Patch(work) => {
                    work.objects.retain(|task| !task.uid.as_ref().is_some_and(|uid| applied.contains(uid)))
                }
                Work::Apply(_) | Work::Sequence(_) => {}
            }
        }
        pruning.unmanaged.retain(|unmanaged| !applied.contains(&unmanaged.uid));
        pruning.nodes.retain(|node| match &node.work {
            Work::Delete(work) => !work.objects.is_empty() || !work.collections.is_empty(),
            Work::Patch(work) => !work.objects.is_empty(),
            Work::Apply(_) | Work::Sequence(_) => true,
        });
    }
}

impl Deployment<'_> {
    pub(super) fn existing<'s>(&'s self, finder: &Finder<'s>, problems: &mut Problems) -> Existing<'s> {
        let label = self.request.release.label_value();
        let mut existing =
            Existing { actions: Vec::with_capacity(self.request.manifests.len()), ..Existing::default() };
        let (deleted, unserved) = (self.request.deleted(), self.request.unserved());
        let none = Annotations::default();
        for (at, manifest) in self.request.manifests.iter().enumerate() {
            let key = &manifest.key;
            let state = match self.is_served(&key.kind) {
                true => finder.state(&key.kind, key.namespace.as_deref(), &key.name),
                false => State::NotServed,
            };
            if deleted.contains(&at) {
                let key = self.recorded_as(key);
                let requested = self.requested(key, state, &label, &mut existing, problems);
                existing.deletions.extend(requested.map(|requested| (at, requested)));
                existing.actions.push(None);
                existing.treatments.push(Treatment::default());
                continue;
            }
            if unserved.contains(&(&key.kind, &manifest.api_version)) {
                existing.unserved.insert(at);
                existing.actions.push(None);
                existing.treatments.push(Treatment::default());
                continue;
            }
            let annotations = self.annotations.get(at).unwrap_or(&none);
            let action = match state {
                State::Found(seen) => {
                    existing.objects.insert(key, seen.object);
                    self.found(manifest, seen.object, annotations, &label, &mut existing, problems)
                }
                State::Gone | State::NotServed => {
                    let mut treatment = existing.honoured.read(key, annotations, &[]);
                    treatment.skip_health_check &= may_skip(&key.kind);
                    existing.treatments.push(treatment);
                    existing.create(key)
                }
                State::Open(problem) => {
                    problems.add(problem);
                    existing.treatments.push(Treatment::default());
                    None
                }
            };
            existing.actions.push(action);
        }
        for (key, _) in self.request.dropped_deletions() {
            let state = match self.is_served(&key.kind) {
                true => finder.state(&key.kind, key.namespace.as_deref(), &key.name),
                false => State::NotServed,
            };
            existing.dropped.extend(self.dropped_deletion(key, state));
        }
        existing
    }

    /// Adds how an existing object is to be treated by its annotations: those of the manifest replace the live ones, as in the
    /// write. Returns what to do with the object.
    fn found(
        &self,
        manifest: &Manifest,
        object: &Observed,
        annotations: &Annotations,
        label: &str,
        existing: &mut Existing<'_>,
        problems: &mut Problems,
    ) -> Option<ApplyAction> {
        let (key, all) = (&manifest.key, object.annotations.with(annotations));
        if self.is_left_to_other_item(manifest, object) {
            self.give_up(key, object, label, existing);
        }
        let mut treatment = existing.honoured.read(key, &all, &MATTER);
        treatment.skip_health_check &= may_skip(&key.kind);
        let mut honour = |annotation| existing.honoured.add(annotation, key, all.is_only_live(annotation, annotations));
        if treatment.unmanaged {
            honour(Annotation::Mode);
            self.give_up(key, object, label, existing);
            existing.treatments.push(treatment);
            return None;
        }
        let may_recreate = treatment.recreate.is_some();
        treatment.recreate = treatment.recreate.and_then(|_| all.recreation(&key.kind));
        let action = self.action(manifest, object, treatment, label, &mut existing.notes, problems);
        match action {
            Some(ApplyAction::Update | ApplyAction::Recreate) if treatment.recreate.is_some() => {
                honour(Annotation::DeleteOnInvalidUpdate)
            }
            Some(ApplyAction::Update) if may_recreate => existing.honoured.add_not_recreated(key),
            Some(ApplyAction::Unchanged) if treatment.ignore => honour(Annotation::Ignore),
            _ => {}
        }
        if treatment.skip_health_check && action.is_some() {
            let only_live = all.is_only_live(Annotation::SkipHealthCheck, annotations);
            existing.honoured.add(Annotation::SkipHealthCheck, key, only_live);
        }
        existing.treatments.push(treatment);
        action
    }

    /// Whether an object is left to another DeployItem, whose label it carries.
    fn is_left_to_other_item(&self, manifest: &Manifest, object: &Observed) -> bool {
        self.directives(&manifest.key).policy == ManifestPolicy::Fallback
            && !is_of_same_item(manifest, object)
            && is_of_other_item(object, Some(self.request.release))
    }

    /// Gives up an object that the release no longer manages, if it belongs to the release in any way.
    pub(super) fn give_up(&self, key: &ObjectKey, object: &Observed, label: &str, existing: &mut Existing<'_>) {
        let is_recorded = self.request.inventory.is_some_and(|inventory| inventory.entries.contains_key(key));
        if is_recorded || object.carries(label) {
            existing.unmanaged.push(Unmanaged { object: key.clone(), uid: object.uid.clone() });
        }
    }

    /// Returns what to do with an existing object; none after a problem, or if the object is left to another client.
    fn action(
        &self,
        manifest: &Manifest,
        object: &Observed,
        treatment: Treatment,
        label: &str,
        notes: &mut Vec<Note>,
        problems: &mut Problems,
    ) -> Option<ApplyAction> {
        let key = &manifest.key;
        let directives = self.directives(key);
        let entry = self.request.inventory.and_then(|inventory| inventory.entries.get(key));
        let ours = self.is_ours(entry, object, label);
        let is_left = || !ours && !is_of_same_item(manifest, object) || self.is_left_to_other_item(manifest, object);
        if directives.policy == ManifestPolicy::Fallback && is_left() {
            notes.push(NoteKind::Fallback { object: key.clone() }.into());
            return None;
        }
        if directives.leave_others && !ours {
            notes.push(NoteKind::CreateOnly { object: key.clone() }.into());
            return None;
        }
        let refusal = if ours { None } else { self.refusal(key, object, label) };
        let problem = match refusal {
            Some(problem) => problem,
            // An earlier apply may have deleted it to recreate it. In a graph only what depends on it has to wait.
            None if object.deleting && (ours && treatment.recreate.is_some() || self.request.graph.is_some()) => {
                return Some(ApplyAction::Recreate);
            }
            None if object.deleting => Problem::BeingDeleted { object: key.clone() },
            // It does not get the label, so that a record beside it could not claim it.
            None if treatment.ignore && !ours && self.request.record_here => {
                notes.push(NoteKind::CreateOnly { object: key.clone() }.into());
                return None;
            }
            None if directives.policy == ManifestPolicy::Immutable || treatment.ignore => {
                return Some(ApplyAction::Unchanged);
            }
            None if !ours => return Some(ApplyAction::Adopt),
            None if entry.is_some_and(|e| self.is_unchanged(e, object, manifest, &directives)) => {
                return Some(ApplyAction::Unchanged);
            }
            None => return Some(ApplyAction::Update),
        };
        problems.add(problem);
        None
    }

    /// Whether an object is as the last apply left it, apart from its status. The digest of the manifest is compared last,
    /// since it is expensive.
    ///
    /// The fingerprint counts for server-side apply only. The other strategies compare the whole object before they write.
    fn is_unchanged(&self, entry: &Entry, object: &Observed, manifest: &Manifest, directives: &Directives) -> bool {
        let same_version = entry.resource_version.as_ref() == Some(&object.resource_version);
        let same_state = || {
            let seen = object.tracked.as_ref().map(|tracked| &tracked.fingerprint);
            self.request.strategy == UpdateStrategy::ServerSide && seen.is_some() && entry.fingerprint.as_ref() == seen
        };
        entry.uid.as_ref() == Some(&object.uid)
            && (same_version || same_state())
            && entry.digest == directives.digest(manifest)
    }

    /// Whether an object belongs to the release: the record names it, and it carries the label. Where there is no record,
    /// the label alone tells what a lost one named.
    pub(super) fn is_ours(&self, entry: Option<&Entry>, object: &Observed, label: &str) -> bool {
        match object.labels.get(RELEASE_LABEL) {
            Some(holder) => holder == label && (entry.is_some() || self.request.inventory.is_none()),
            None => {
                let believed = |entry: &Entry| entry.unlabelled && entry.uid.as_ref() == Some(&object.uid);
                !self.request.record_here && entry.is_some_and(believed)
            }
        }
    }

    /// Returns why an object that is not ours must not be taken over.
    pub(super) fn refusal(&self, key: &ObjectKey, object: &Observed, label: &str) -> Option<Problem> {
        let (object_key, other) = (|| key.clone(), object.labels.get(RELEASE_LABEL).filter(|holder| *holder != label));
        if let Some(other) = other.filter(|other| !self.gone.contains(*other)) {
            return Some(Problem::OtherRelease { object: object_key(), release: ReleaseName::shown(other) });
        }
        let recorded = || {
            let entry = self.request.inventory.and_then(|inventory| inventory.entries.get(key));
            entry.is_some_and(|entry| entry.uid.as_ref() == Some(&object.uid))
        };
        let former = other.map(|other| ReleaseName::shown(other));
        match object.labels.contains_key(RELEASE_LABEL) {
            _ if self.request.adopt || self.directives(key).adopt => None,
            true if former.is_none() => Some(Problem::Unrecorded { object: object_key() }),
            false if recorded() => Some(Problem::Unlabelled { object: object_key() }),
            _ => Some(Problem::Unowned { object: object_key(), former }),
        }
    }
}
