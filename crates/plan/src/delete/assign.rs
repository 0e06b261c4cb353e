//! Which live object is ours, and into which group it goes.

use std::collections::{BTreeMap, HashMap, HashSet};

use billhook_objects::{GroupKind, ObjectKey, ReleaseName, Uid, wellknown};

use crate::{
    Note, NoteCode, Observed, Operation, PatchTask, PlanError, PlanErrorKind, Query, Resource, Severity, Uncovered,
    Wanted,
    error::Problems,
    find::{Answer, Finder, Index, Seen, State},
    groups::{Verdict, is_protected},
};

use super::{Scene, collect::Draft, notes};

/// An object that becomes a task.
#[derive(Clone)]
pub(super) struct Pick<'a> {
    pub(super) key: ObjectKey,
    pub(super) object: &'a Observed,
    pub(super) query: &'a Query,
    /// The release or the manifests name it; else a collection takes it.
    pub(super) named: bool,
}

/// Where every object went.
#[derive(Default)]
pub(super) struct Assigned<'a> {
    /// The tasks of each group, in the order of the groups.
    pub(super) groups: Vec<Vec<Pick<'a>>>,
    /// The Namespace that holds the inventory, and its group.
    pub(super) last: Option<(usize, Pick<'a>)>,
    /// What is patched before anything is deleted.
    pub(super) patches: Vec<PatchTask>,
    pub(super) uncovered: Vec<Uncovered>,
    pub(super) notes: Vec<Note>,
    pub(super) not_served: BTreeMap<GroupKind, usize>,
}

/// What the cluster has of the objects that are looked for.
#[derive(Default)]
struct Live<'a> {
    ours: Vec<Ours<'a>>,
    strangers: Vec<(&'a Wanted, &'a Observed)>,
}

struct Ours<'a> {
    wanted: &'a Wanted,
    seen: Seen<'a>,
    group: Option<usize>,
    /// The first group that would have it but for its exclusions.
    excluded: Option<usize>,
}

impl<'a> Scene<'a> {
    pub(super) fn assign<'s>(&'s self, finder: &Finder<'s>, index: &Index<'s>) -> Result<Assigned<'s>, PlanError>
    where
        'a: 's,
    {
        let mut problems = Problems::default();
        let mut assigned = Assigned { groups: vec![Vec::new(); self.groups.len()], ..Assigned::default() };
        let live = self.look(finder, &mut assigned, &mut problems);
        self.check_collections(index, &mut problems);
        self.check_protected(&live, &mut problems);
        problems.check()?;
        let mut taken = HashSet::with_capacity(live.ours.len());
        self.collect(&live, index, &mut assigned, &mut taken);
        self.take_ours(&live, &mut assigned, &mut taken);
        assigned.patches = self.patches(&live, &taken);
        self.note_strangers(&live, &taken, &mut assigned);
        notes::unrecorded(self, finder, index, &taken, &mut assigned);
        assigned.uncovered.sort_by(|a, b| a.object.cmp(&b.object));
        assigned.uncovered.dedup();
        Ok(assigned)
    }

    fn look<'s>(&'s self, finder: &Finder<'s>, assigned: &mut Assigned<'s>, problems: &mut Problems) -> Live<'s> {
        let label = self.request.release.map(billhook_objects::ReleaseName::label_value);
        let mut live = Live::default();
        for (kind, count) in &self.objects.unknown {
            assigned.not_served.insert((*kind).clone(), *count);
        }
        for wanted in self.request.objects.iter().filter(|w| !self.objects.unknown.contains_key(&w.key.kind)) {
            let key = &wanted.key;
            match finder.state(&key.kind, key.namespace.as_deref(), &key.name) {
                State::Found(seen) if is_ours(wanted, seen.object, label.as_deref()) => {
                    let (group, excluded) = if wanted.keep { (None, None) } else { self.group_of(key, seen.object) };
                    live.ours.push(Ours { wanted, seen, group, excluded });
                }
                State::Found(seen) => live.strangers.push((wanted, seen.object)),
                State::Gone => {}
                State::NotServed => *assigned.not_served.entry(key.kind.clone()).or_default() += 1,
                State::Open(why) => problems.add(PlanErrorKind::Unreadable, why),
            }
        }
        // The order of the input must not matter, not even for an object that two kinds show.
        live.ours.sort_unstable_by_key(|ours| &ours.wanted.key);
        live
    }

    /// The first group that has an object as a member, and the first that only its exclusions keep it out of.
    fn group_of(&self, key: &ObjectKey, object: &Observed) -> (Option<usize>, Option<usize>) {
        let mut excluded = None;
        // A group with a target acts on another cluster: the release's objects are not there.
        for (at, group) in self.groups.iter().enumerate().filter(|(_, group)| group.cluster().is_none()) {
            match group.matcher.judge(key, &object.labels) {
                Verdict::Member => return (Some(at), excluded),
                Verdict::Excluded => excluded = excluded.or(Some(at)),
                Verdict::Stranger => {}
            }
        }
        (None, excluded)
    }

    /// The namespaces of the system are never deleted: a deletion that would is refused as a whole (exit 4). An update
    /// merely leaves them.
    fn check_protected(&self, live: &Live<'_>, problems: &mut Problems) {
        if self.request.operation != Operation::Delete {
            return;
        }
        let protected = live.ours.iter().filter(|ours| ours.group.is_some()).map(|ours| &ours.wanted.key);
        for key in protected.filter(|key| is_protected(key)) {
            let way_out = format!("excludedResources: [{{apiVersion: v1, kind: Namespace, names: [{}]}}]", key.name);
            let problem =
                format!("{key} belongs to the system and is never deleted; a policy leaves it out by {way_out}");
            problems.add(PlanErrorKind::Refused, problem);
        }
    }

    fn check_collections(&self, index: &Index<'_>, problems: &mut Problems) {
        for draft in self.groups.iter().flat_map(|group| &group.drafts) {
            if let Err(why) = index.items(&draft.query) {
                problems.add(PlanErrorKind::Unreadable, format!("list {}: {why}", draft.query.describe()));
            }
        }
    }

    /// Collections come first, so that an object is watched over the list that the node has anyway.
    fn collect<'s>(
        &'s self,
        live: &Live<'s>,
        index: &Index<'s>,
        assigned: &mut Assigned<'s>,
        taken: &mut HashSet<&'s Uid>,
    ) {
        let named: HashMap<&Uid, Option<usize>> = live.ours.iter().map(|o| (&o.seen.object.uid, o.group)).collect();
        for (at, group) in self.groups.iter().enumerate() {
            let is_earlier = |uid: &Uid| named.get(uid).copied().flatten().is_some_and(|group| group < at);
            for draft in &group.drafts {
                for (query, object) in draft.items(index) {
                    if !is_earlier(&object.uid) && taken.insert(&object.uid) {
                        let key = object.key(&draft.query.resource.kind);
                        let named = named.contains_key(&object.uid);
                        assigned.groups[at].push(Pick { key, object, query, named });
                    }
                }
                if let Some(pick) = self.last_of(draft, at, index)
                    && !is_earlier(&pick.object.uid)
                    && taken.insert(&pick.object.uid)
                {
                    assigned.last = Some((at, pick));
                }
            }
        }
    }

    /// A collection of Namespaces leaves out the one that holds the inventory: it goes last, if it is covered at all.
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
        let kept = self.request.objects.iter().any(|wanted| wanted.keep && wanted.key == key);
        (covered && !kept && !is_protected(&key)).then_some(Pick { key, object, query, named: false })
    }

    fn take_ours<'s>(&'s self, live: &Live<'s>, assigned: &mut Assigned<'s>, taken: &mut HashSet<&'s Uid>) {
        for Ours { wanted: Wanted { key, keep, .. }, seen, group, excluded } in &live.ours {
            if taken.contains(&seen.object.uid) {
                self.note_other_release(key, seen.object, assigned);
                continue;
            }
            let Some(group) = *group else {
                match excluded {
                    _ if *keep => assigned.leave(key, "its policy is keep"),
                    Some(at) => assigned.leave(key, &format!("excluded by {}", self.groups[*at].place())),
                    None => assigned.leave(key, "no group covers it"),
                }
                continue;
            };
            let kept = match () {
                () if is_protected(key) => Some("belongs to the system"),
                () if self.holds_inventory(key) => Some("holds the inventory of the release"),
                () => None,
            };
            if let Some(why) = kept.filter(|_| self.request.operation == Operation::Apply) {
                assigned.leave(key, &format!("it {why}"));
                let message = format!("{key} {why}: an update does not delete it");
                assigned.notes.push(notes::warning(NoteCode::ProtectedNamespace, message).about(key.clone()));
                continue;
            }
            taken.insert(&seen.object.uid);
            self.note_other_release(key, seen.object, assigned);
            let pick = Pick { key: key.clone(), object: seen.object, query: seen.query, named: true };
            match self.holds_inventory(key) {
                true => assigned.last = Some((group, pick)),
                false => assigned.groups[group].push(pick),
            }
        }
    }

    /// What the objects that go get before anything goes, each in the version that it was applied in.
    fn patches(&self, live: &Live<'_>, taken: &HashSet<&Uid>) -> Vec<PatchTask> {
        let going = live.ours.iter().filter(|ours| taken.contains(&ours.seen.object.uid));
        let patch = |Ours { wanted: Wanted { key, version, before_delete, .. }, seen, .. }: &Ours<'_>| {
            let served = self.catalog.get(&key.kind)?;
            Some(PatchTask {
                object: key.clone(),
                resource: Resource::of(served, Some(version)),
                uid: Some(seen.object.uid.clone()),
                patch: before_delete.clone()?,
            })
        };
        going.filter_map(patch).collect()
    }

    fn holds_inventory(&self, key: &ObjectKey) -> bool {
        self.request.record_here
            && key.kind.is("", "Namespace")
            && self.request.release.is_some_and(|release| release.namespace() == key.name)
    }

    fn note_other_release(&self, key: &ObjectKey, object: &Observed, assigned: &mut Assigned<'_>) {
        let Some(holder) = object.labels.get(wellknown::RELEASE_LABEL) else { return };
        if self.request.release.is_none_or(|release| release.label_value() != *holder) {
            let message = format!("{key} belongs to release {}", ReleaseName::shown(holder));
            let note = Note::new(Severity::Dangerous, NoteCode::OtherRelease, message);
            assigned.notes.push(note.about(key.clone()));
        }
    }

    fn note_strangers(&self, live: &Live<'_>, taken: &HashSet<&Uid>, assigned: &mut Assigned<'_>) {
        for (wanted, _) in live.strangers.iter().filter(|(_, object)| !taken.contains(&object.uid)) {
            let key = &wanted.key;
            let note = if wanted.uid.is_some() {
                let message =
                    format!("{key} was made anew by somebody else: it is not the release's any more and stays");
                notes::warning(NoteCode::Recreated, message)
            } else {
                let message = format!("{key} never became the release's (it does not carry its label) and stays");
                Note::new(Severity::Info, NoteCode::Recreated, message)
            };
            assigned.notes.push(note.about(key.clone()));
        }
    }
}

impl Assigned<'_> {
    fn leave(&mut self, object: &ObjectKey, reason: &str) {
        self.uncovered.push(Uncovered { object: object.clone(), reason: reason.to_owned() });
    }
}

/// Same name, other UID: ours only if it carries our label, as the old one is gone then (contract, mechanics).
fn is_ours(wanted: &Wanted, object: &Observed, label: Option<&str>) -> bool {
    let Some(label) = label else { return true };
    wanted.uid.as_ref() == Some(&object.uid)
        || object.labels.get(wellknown::RELEASE_LABEL).is_some_and(|value| value == label)
}
