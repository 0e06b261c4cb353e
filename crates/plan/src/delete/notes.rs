//! Notes on a deletion.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use billhook_objects::{GroupKind, ObjectKey, wellknown};

use crate::{
    Counts, DeleteTask, Listed, NotServedNote, Note, NoteKind, Operation, OrderNote, Plan, Query, Select,
    UncoveredNote, UnreadableNote, UnservedKind, Work,
    find::{Answer, Index},
    groups::{containers_of, is_crd, own_of_every_namespace},
    queries::release_selector,
};

use super::{
    assigned::{Assigned, Pick},
    deletion::{Deletion, ResolvedGroup},
};

impl Deletion<'_> {
    /// Adds the notes on the groups, and those on the plan that was built of them.
    pub(super) fn add_notes(
        &self,
        plan: &mut Plan,
        mut notes: Vec<NoteKind>,
        not_served: BTreeMap<GroupKind, usize>,
        index: &Index<'_>,
    ) {
        for (kind, count) in not_served {
            let unavailable = self.orphaned.contains(&kind);
            let counts = Counts::from((kind, count));
            notes.push(match unavailable {
                true => NoteKind::Unreadable(UnreadableNote::UnavailableApi { counts }),
                false => NoteKind::NotServed(NotServedNote::Objects { counts }),
            });
        }
        if self.rescoped.total() > 0 {
            notes.push(NoteKind::ScopeChanged { counts: self.rescoped.clone() });
        }
        self.note_uncovered(plan, &mut notes);
        let mut finalizers = HashMap::new();
        for node in &plan.nodes {
            let Work::Delete(work) = &node.work else { continue };
            if let Some(force) = &work.force {
                let (title, finalizers) = (node.title.clone(), force.finalizers.clone());
                notes.push(NoteKind::ForceStage {
                    title,
                    finalizers,
                    after: force.after,
                    end_grace_period: force.end_grace_period,
                });
            }
            work.objects.iter().for_each(|task| count_finalizers(task, &mut finalizers));
        }
        notes.extend(finalizers.into_iter().map(|((finalizer, kind, deleting), count)| NoteKind::Finalizers {
            finalizer: finalizer.to_owned(),
            deleting,
            counts: Counts::from((kind.clone(), count)),
        }));
        notes.extend(single_reads(plan, index));
        self.note_unavailable_apis(plan, &mut notes);
        plan.add_notes(notes.into_iter().map(Note::from));
    }

    /// Marks uncovered objects whose Namespace or CRD is deleted, and counts the others.
    fn note_uncovered(&self, plan: &mut Plan, notes: &mut Vec<NoteKind>) {
        let mut containers: HashSet<ObjectKey> = HashSet::new();
        for node in plan.nodes.iter().filter(|node| node.cluster.is_none()) {
            let Work::Delete(work) = &node.work else { continue };
            let keys = work.objects.iter().map(|task| &task.object);
            let containing = keys.filter(|key| key.kind == wellknown::namespace() || is_crd(&key.kind));
            containers.extend(containing.cloned());
        }
        let container = |key: &ObjectKey| containers_of(key, self.catalog()).find(|key| containers.contains(key));
        let (mut remaining, mut deleted) = (Counts::default(), Counts::default());
        for uncovered in &mut plan.uncovered {
            uncovered.deleted_with = if containers.is_empty() { None } else { container(&uncovered.object) };
            match uncovered.deleted_with {
                None => remaining.add(&uncovered.object.kind),
                // They are noted with the contents of the Namespace or CRD.
                Some(_) if uncovered.cause.is_annotation() => {}
                Some(_) => deleted.add(&uncovered.object.kind),
            }
        }
        if remaining.total() > 0 {
            notes.push(NoteKind::Uncovered(UncoveredNote::Remaining { counts: remaining }));
        }
        if deleted.total() > 0 {
            notes.push(NoteKind::Uncovered(UncoveredNote::DeletedWithContainer { counts: deleted }));
        }
    }

    /// Notes unavailable aggregated APIs: a Namespace cannot finish deleting while one is unavailable, unless its
    /// APIService is deleted before.
    fn note_unavailable_apis(&self, plan: &Plan, notes: &mut Vec<NoteKind>) {
        let clusters: BTreeSet<Option<&str>> = plan.nodes.iter().map(|node| node.cluster.as_deref()).collect();
        for cluster in clusters {
            let Some(catalog) = self.request.catalogs.get(cluster).filter(|catalog| !catalog.stale.is_empty()) else {
                continue;
            };
            let first_node = |wanted: &dyn Fn(&ObjectKey) -> bool| {
                plan.nodes.iter().position(|node| {
                    let Work::Delete(work) = &node.work else { return false };
                    node.cluster.as_deref() == cluster && work.objects.iter().any(|task| wanted(&task.object))
                })
            };
            let Some(first) = first_node(&|key| key.kind.is("", "Namespace")) else { continue };
            let is_deleted = |gv: &String| {
                let name = gv.split_once('/').map(|(group, version)| format!("{version}.{group}"));
                let service = |key: &ObjectKey| {
                    key.kind.is("apiregistration.k8s.io", "APIService") && Some(&key.name) == name.as_ref()
                };
                first_node(&service).is_some_and(|node| node <= first)
            };
            let (gone, dead): (Vec<String>, Vec<String>) = catalog.stale.iter().cloned().partition(is_deleted);
            for (apis, deleted) in [(dead, false), (gone, true)] {
                if !apis.is_empty() {
                    let cluster = cluster.map(str::to_owned);
                    notes.push(NoteKind::DeadApiService { cluster, apis, deleted });
                }
            }
        }
    }

    /// Notes objects that carry the release's label and are not in its record: copies, or what a lost record named.
    pub(super) fn note_unrecorded(&self, index: &Index<'_>, assigned: &mut Assigned<'_>) {
        let Some(release) = self.request.release.filter(|_| self.request.operation == Operation::Delete) else {
            return;
        };
        let label = Select::Labels(release_selector(release));
        let keys = self.request.objects.iter().map(|wanted| &wanted.key);
        let known: HashSet<_> = keys.map(|key| (&key.kind, key.namespace.as_deref(), key.name.as_str())).collect();
        let mut counts = Counts::default();
        for query in self.queries().iter().filter(|query| query.select == label) {
            let Ok(Answer::Items(query, items)) = index.items(query) else { continue };
            let kind = &query.resource.kind;
            let unrecorded = items.iter().filter(|item| {
                let known = known.contains(&(kind, item.namespace.as_deref(), item.name.as_str()));
                !known && !assigned.taken.contains(&item.uid)
            });
            unrecorded.for_each(|_| counts.add(kind));
        }
        if counts.total() > 0 {
            assigned.notes.push(NoteKind::Order(OrderNote::Unrecorded { counts }).into());
        }
    }
}

/// Notes what the selectors of a group match. `picks` are its objects without the Namespace that is deleted last.
pub(super) fn note_group(
    group: &ResolvedGroup<'_>,
    picks: &[Pick<'_>],
    has_last: bool,
    index: &Index<'_>,
    notes: &mut Vec<NoteKind>,
) {
    let (place, title) = (|| group.place().to_owned(), || group.policy.title.clone());
    let selector = |kind: &UnservedKind| NotServedNote::Selector { group: place(), kind: kind.clone() };
    // The kinds of a group that no policy file names, such as a default stage, need not be served.
    if !group.policy.path.is_empty() {
        notes.extend(group.matcher.not_served.iter().map(|kind| NoteKind::NotServed(selector(kind))));
        for draft in group.drafts.iter().filter(|draft| !draft.is_served(index)) {
            let list = draft.query.scope();
            notes.push(NoteKind::NotServed(NotServedNote::Collection { group: place(), list }));
        }
    }
    if picks.is_empty() && !has_last && group.drafts.is_empty() && group.matcher.has_entries() {
        notes.push(NoteKind::Order(OrderNote::NoMatch { group: place(), title: title() }));
    }
    // A namespace that a selector names is deleted from on purpose.
    let is_named = |namespace: &String| group.matcher.all().any(|entry| entry.selector.namespaces.contains(namespace));
    let of_system = |pick: &&Pick<'_>| {
        let namespace = pick.key.namespace.as_ref().filter(|namespace| namespace.starts_with("kube-"));
        !pick.named && namespace.is_some_and(|namespace| !is_named(namespace))
    };
    let system: Counts = picks.iter().filter(of_system).map(|pick| &pick.key.kind).collect();
    if system.total() > 0 {
        notes.push(NoteKind::SystemNamespace { group: place(), title: title(), counts: system });
    }
    let kinds: BTreeSet<_> = group.drafts.iter().map(|draft| &draft.query.resource.kind).collect();
    for (kind, name) in kinds.into_iter().filter_map(|kind| Some((kind, own_of_every_namespace(kind)?))) {
        let (kind, name) = (kind.clone(), name.to_owned());
        notes.push(NoteKind::Order(OrderNote::LeftOut { group: place(), kind, name }));
    }
}

type Finalizers<'a> = HashMap<(&'a str, &'a GroupKind, bool), usize>;

fn count_finalizers<'a>(task: &'a DeleteTask, found: &mut Finalizers<'a>) {
    // The API server puts its own on every CRD, to delete the instances first.
    for finalizer in task.finalizers.iter().filter(|f| *f != wellknown::CRD_CLEANUP_FINALIZER) {
        *found.entry((finalizer, &task.object.kind, task.deleting)).or_default() += 1;
    }
}

/// Notes what cannot be watched: where watching is forbidden, a list has no `resourceVersion` to start from.
fn single_reads(plan: &Plan, index: &Index<'_>) -> Option<NoteKind> {
    let is_unwatchable = |query: &&Query| {
        let found = index.get(query).map(|listing| &listing.found);
        matches!(found, Some(Listed::Items { resource_version: None, .. }))
    };
    let lists: Vec<_> = plan.queries.iter().filter(is_unwatchable).map(Query::scope).collect();
    (!lists.is_empty()).then_some(NoteKind::SingleReads { lists })
}
