//! Assigns each live object of a deletion to its group.

use std::collections::HashMap;

use billhook_objects::{ObjectKey, ReleaseName, Uid, wellknown};

use crate::{
    Annotation, NoteKind, Observed, Operation, PatchTask, PlanError, Problem, Query, Resource, Uncovered,
    UncoveredCause, Unlabelled, Unmanaged, Wanted,
    deploy_item::is_of_other_item,
    find::{Answer, Finder, Index, Seen, State},
    groups::{Verdict, is_protected},
    problem::Problems,
};

use super::{
    assigned::{Assigned, Pick},
    collect::Draft,
    deletion::Deletion,
};

/// The annotations that matter to a deletion.
const MATTER: [Annotation; 3] = [Annotation::KeepObject, Annotation::Mode, Annotation::FinalizeDeletionAfter];

/// The objects under the requested names.
#[derive(Default)]
struct Found<'a> {
    ours: Vec<Ours<'a>>,
    strangers: Vec<(&'a Wanted, &'a Observed)>,
    /// Objects of the release that now carry the label of another one.
    claimed: Vec<(&'a Wanted, &'a Observed)>,
}

/// Whose an object of a wanted name is.
enum Whose {
    Ours,
    /// The record names it by its UID, but it does not carry the label of the release.
    Unlabelled,
    /// The record names it by its UID, but it carries the label of another release.
    Claimed,
    Stranger,
}

struct Ours<'a> {
    wanted: &'a Wanted,
    seen: Seen<'a>,
    /// The group that deletes it; none if nothing does.
    group: Option<usize>,
    /// Why no group deletes it, besides that none matches it.
    kept: Option<UncoveredCause>,
    /// Whether it does not carry the label of the release.
    unlabelled: bool,
}

impl<'a> Deletion<'a> {
    pub(super) fn assign<'s>(&'s self, finder: &Finder<'s>, index: &Index<'s>) -> Result<Assigned<'s>, PlanError>
    where
        'a: 's,
    {
        let mut problems = Problems::default();
        let mut assigned = Assigned { groups: vec![Vec::new(); self.groups.len()], ..Assigned::default() };
        let found = self.look_up(finder, &mut assigned, &mut problems);
        self.check_collections(index, &mut problems);
        self.check_protected(&found, &mut problems);
        self.check_unlabelled(&found, &mut problems);
        problems.check()?;
        self.collect(&found, index, &mut assigned);
        self.take_ours(&found, &mut assigned);
        self.note_annotations(index, &mut assigned);
        self.keep_inventory(&mut assigned);
        assigned.patches = self.patches(&found, &assigned);
        self.note_strangers(&found, &mut assigned);
        assigned.uncovered.sort_by(|a, b| a.object.cmp(&b.object));
        assigned.uncovered.dedup();
        Ok(assigned)
    }

    fn look_up<'s>(&'s self, finder: &Finder<'s>, assigned: &mut Assigned<'s>, problems: &mut Problems) -> Found<'s> {
        let label = self.request.release.map(ReleaseName::label_value);
        let mut found = Found::default();
        for (kind, count) in &self.objects.unknown {
            assigned.not_served.insert(kind.clone(), *count);
        }
        for wanted in self.request.objects.iter().filter(|w| !self.objects.unknown.contains_key(&w.key.kind)) {
            let key = &wanted.key;
            match finder.state(&key.kind, key.namespace.as_deref(), &key.name) {
                State::Found(seen) => {
                    let whose = self.whose(wanted, seen.object, label.as_deref());
                    let unlabelled = match whose {
                        Whose::Ours => false,
                        Whose::Unlabelled => true,
                        Whose::Claimed => {
                            found.claimed.push((wanted, seen.object));
                            continue;
                        }
                        Whose::Stranger => {
                            found.strangers.push((wanted, seen.object));
                            continue;
                        }
                    };
                    let treatment = assigned.honoured.read(key, &seen.object.annotations, &MATTER);
                    if let Some(annotation) = treatment.kept_by() {
                        assigned.honoured.add(annotation, key, false);
                    }
                    if treatment.unmanaged && self.request.release.is_some() {
                        assigned.unmanaged.push(Unmanaged { object: key.clone(), uid: seen.object.uid.clone() });
                        continue;
                    }
                    let (group, kept) = if let Some(annotation) = treatment.kept_by() {
                        (None, Some(UncoveredCause::kept_by(annotation)))
                    } else if wanted.keep {
                        (None, Some(UncoveredCause::Keep))
                    } else if wanted.fallback && is_of_other_item(seen.object, self.request.release) {
                        (None, Some(UncoveredCause::Fallback))
                    } else {
                        self.group_of(key, seen.object)
                    };
                    found.ours.push(Ours { wanted, seen, group, kept, unlabelled });
                }
                State::Gone => {}
                State::NotServed => *assigned.not_served.entry(key.kind.clone()).or_default() += 1,
                State::Open(problem) => problems.add(problem),
            }
        }
        // The order of the input must not matter, not even for an object that is served under two kinds.
        found.ours.sort_unstable_by_key(|ours| &ours.wanted.key);
        assigned.unmanaged.sort_unstable();
        found
    }

    /// Returns whose an object of a wanted name is. The record and the label must both name the release, since others may be
    /// able to edit either of them. An object with another UID than the recorded one belongs to the release if it carries the
    /// label: then the recorded object is gone, and an apply created this one before it could be recorded.
    fn whose(&self, wanted: &Wanted, object: &Observed, label: Option<&str>) -> Whose {
        let Some(label) = label else { return Whose::Ours };
        let recorded = wanted.uid.as_ref() == Some(&object.uid);
        match object.labels.get(wellknown::RELEASE_LABEL) {
            Some(holder) if holder == label => Whose::Ours,
            _ if !recorded => Whose::Stranger,
            Some(_) => Whose::Claimed,
            None if wanted.unlabelled && !self.request.record_here => Whose::Ours,
            None => Whose::Unlabelled,
        }
    }

    /// Returns the first group that matches an object. If there is none, the first that would without its exclusions is the
    /// cause.
    fn group_of(&self, key: &ObjectKey, object: &Observed) -> (Option<usize>, Option<UncoveredCause>) {
        let mut excluded = None;
        // A group with a target acts on another cluster, and the release has no objects there.
        for (at, group) in self.groups.iter().enumerate().filter(|(_, group)| group.cluster().is_none()) {
            match group.matcher.judge(key, &object.labels) {
                Verdict::Member => return (Some(at), None),
                Verdict::Excluded => excluded = excluded.or(Some(at)),
                Verdict::Stranger => {}
            }
        }
        (None, excluded.map(|at| UncoveredCause::Excluded { group: self.groups[at].place().to_owned() }))
    }

    /// Rejects a deletion that would delete a system namespace. An update merely leaves it.
    fn check_protected(&self, found: &Found<'_>, problems: &mut Problems) {
        if self.request.operation != Operation::Delete {
            return;
        }
        let covered = found.ours.iter().filter(|ours| ours.group.is_some()).map(|ours| &ours.wanted.key);
        for object in covered.filter(|key| is_protected(key)) {
            problems.add(Problem::SystemNamespace { object: object.clone() });
        }
    }

    fn check_unlabelled(&self, found: &Found<'_>, problems: &mut Problems) {
        if self.request.unlabelled == Unlabelled::Refuse {
            let deleted = found.ours.iter().filter(|ours| ours.unlabelled && ours.group.is_some());
            deleted.for_each(|ours| problems.add(Problem::Unlabelled { object: ours.wanted.key.clone() }));
        }
    }

    fn check_collections(&self, index: &Index<'_>, problems: &mut Problems) {
        for draft in self.groups.iter().flat_map(|group| &group.drafts) {
            if let Err(failure) = index.items(&draft.query) {
                problems.add(Problem::ListFailed(failure));
            }
        }
    }

    /// Assigns the objects of collections. It runs first, so that an object is watched by the list that the node needs
    /// anyway.
    fn collect<'s>(&'s self, found: &Found<'s>, index: &Index<'s>, assigned: &mut Assigned<'s>) {
        let named: HashMap<&Uid, Option<usize>> = found.ours.iter().map(|o| (&o.seen.object.uid, o.group)).collect();
        for (at, group) in self.groups.iter().enumerate() {
            let is_earlier = |uid: &Uid| named.get(uid).copied().flatten().is_some_and(|group| group < at);
            for draft in &group.drafts {
                for (query, object) in draft.items(index) {
                    if !is_earlier(&object.uid) && assigned.taken.insert(&object.uid) {
                        let key = object.key(&draft.query.resource.kind);
                        let named = named.contains_key(&object.uid);
                        assigned.groups[at].push(Pick { key, object, query, named });
                    }
                }
                if let Some(pick) = self.last_of(draft, at, index)
                    && !is_earlier(&pick.object.uid)
                    && assigned.taken.insert(&pick.object.uid)
                {
                    assigned.last = Some((at, pick));
                }
            }
        }
    }

    /// Returns the Namespace that holds the inventory, if it matches a collection of Namespaces. The collection itself
    /// excludes it, since it is deleted last.
    fn last_of<'s>(&'s self, draft: &Draft, at: usize, index: &Index<'s>) -> Option<Pick<'s>> {
        let ends = self.request.operation == Operation::Delete && self.request.record_here;
        let release = self.request.release.filter(|_| ends)?;
        let Query { cluster: None, resource, .. } = &draft.query else { return None };
        if resource.kind != wellknown::namespace() {
            return None;
        }
        let Ok(Answer::Items(query, items)) = index.items(&draft.query) else { return None };
        let object = items.iter().find(|item| item.name == release.namespace())?;
        let key = object.key(&resource.kind);
        let covered = self.groups.get(at)?.matcher.judge(&key, &object.labels) == Verdict::Member;
        let kept = self.request.objects.iter().any(|wanted| wanted.keep && wanted.key == key)
            || object.annotations.treatment().is_kept();
        (covered && !kept && !is_protected(&key)).then_some(Pick { key, object, query, named: false })
    }

    fn take_ours<'s>(&'s self, found: &Found<'s>, assigned: &mut Assigned<'s>) {
        for Ours { wanted: Wanted { key, .. }, seen, group, kept, unlabelled } in &found.ours {
            if assigned.taken.contains(&seen.object.uid) {
                self.note_other_release(key, seen.object, assigned);
                continue;
            }
            let Some(group) = *group else {
                assigned.uncovered.push(Uncovered::new(key, kept.clone().unwrap_or(UncoveredCause::NoGroup)));
                continue;
            };
            let holds_inventory = self.holds_inventory(key);
            if self.request.operation == Operation::Apply && (is_protected(key) || holds_inventory) {
                let holds_inventory = !is_protected(key);
                let cause =
                    if holds_inventory { UncoveredCause::HoldsInventory } else { UncoveredCause::SystemNamespace };
                assigned.uncovered.push(Uncovered::new(key, cause));
                assigned.notes.push(NoteKind::ProtectedNamespace { object: key.clone(), holds_inventory }.into());
                continue;
            }
            if *unlabelled {
                let deleted = self.request.unlabelled == Unlabelled::Take;
                assigned.notes.push(NoteKind::Unlabelled { object: key.clone(), deleted }.into());
                if !deleted {
                    assigned.uncovered.push(Uncovered::new(key, UncoveredCause::Unlabelled));
                    continue;
                }
            }
            assigned.taken.insert(&seen.object.uid);
            if self.request.release.is_none() {
                self.note_other_release(key, seen.object, assigned);
            }
            let pick = Pick { key: key.clone(), object: seen.object, query: seen.query, named: true };
            match holds_inventory {
                true => assigned.last = Some((group, pick)),
                false => assigned.groups[group].push(pick),
            }
        }
    }

    /// Leaves the Namespace that holds the inventory if objects outside of it remain: the record has to name them.
    fn keep_inventory(&self, assigned: &mut Assigned<'_>) {
        let Some((_, Pick { key, .. })) = &assigned.last else { return };
        let remains = |left: &Uncovered| left.object.namespace.as_ref() != Some(&key.name) && left.object != *key;
        if self.request.operation == Operation::Delete && assigned.uncovered.iter().any(remains) {
            assigned.uncovered.push(Uncovered::new(key, UncoveredCause::HoldsInventory));
            assigned.last = None;
        }
    }

    /// Returns the patches that objects get before anything is deleted, each in the version the object was applied in.
    fn patches(&self, found: &Found<'_>, assigned: &Assigned<'_>) -> Vec<PatchTask> {
        let deleted = found.ours.iter().filter(|ours| assigned.taken.contains(&ours.seen.object.uid));
        let patch = |Ours { wanted: Wanted { key, version, before_delete, .. }, seen, .. }: &Ours<'_>| {
            let served = self.catalog().get(&key.kind)?;
            let (resource, uid) = (Resource::of(served, Some(version)), Some(seen.object.uid.clone()));
            Some(PatchTask::new(key.clone(), resource, uid, before_delete.as_deref().cloned()?))
        };
        deleted.filter_map(patch).collect()
    }

    /// Notes the annotations of the objects to delete, and of those that collections leave out because of theirs.
    fn note_annotations(&self, index: &Index<'_>, assigned: &mut Assigned<'_>) {
        let Assigned { groups, last, honoured, .. } = assigned;
        for Pick { key, object, .. } in groups.iter().flatten().chain(last.as_ref().map(|(_, pick)| pick)) {
            if honoured.read(key, &object.annotations, &MATTER).finalize_after.is_some() {
                honoured.add(Annotation::FinalizeDeletionAfter, key, false);
            }
        }
        for draft in self.groups.iter().flat_map(|group| &group.drafts) {
            for (key, object) in draft.kept(index) {
                if let Some(annotation) = honoured.read(&key, &object.annotations, &MATTER).kept_by() {
                    honoured.add(annotation, &key, false);
                }
            }
        }
    }

    fn holds_inventory(&self, key: &ObjectKey) -> bool {
        self.request.record_here
            && key.kind.is("", "Namespace")
            && self.request.release.is_some_and(|release| release.namespace() == key.name)
    }

    fn note_other_release(&self, key: &ObjectKey, object: &Observed, assigned: &mut Assigned<'_>) {
        let Some(holder) = object.labels.get(wellknown::RELEASE_LABEL) else { return };
        if self.request.release.is_none_or(|release| release.label_value() != *holder) {
            let release = ReleaseName::shown(holder);
            assigned.notes.push(NoteKind::OtherRelease { object: key.clone(), release, remains: false }.into());
        }
    }

    fn note_strangers(&self, found: &Found<'_>, assigned: &mut Assigned<'_>) {
        for (wanted, object) in &found.strangers {
            if !assigned.taken.contains(&object.uid) {
                let (object, was_created) = (wanted.key.clone(), wanted.uid.is_some());
                assigned.notes.push(NoteKind::Recreated { object, was_created }.into());
            }
        }
        for (wanted, object) in found.claimed.iter().filter(|(_, object)| !assigned.taken.contains(&object.uid)) {
            let release = object.labels.get(wellknown::RELEASE_LABEL).map(|holder| ReleaseName::shown(holder));
            let (object, release) = (wanted.key.clone(), release.unwrap_or_default());
            assigned.notes.push(NoteKind::OtherRelease { object, release, remains: true }.into());
        }
    }
}
