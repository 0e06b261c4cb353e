//! What is worth knowing before a deletion is carried out.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use billhook_objects::{GroupKind, ObjectKey, Uid, wellknown};

use crate::{
    DeleteTask, Listed, Note, NoteCode, Operation, Plan, Severity, Work,
    counts::Counts,
    find::{Finder, Index},
    groups::is_crd,
    queries::release_selector,
};

use super::{Scene, assign::Assigned, collect::own_of_every_namespace};

pub(crate) fn warning(code: NoteCode, message: impl Into<String>) -> Note {
    Note::new(Severity::Warning, code, message)
}

pub(crate) fn info(code: NoteCode, message: impl Into<String>) -> Note {
    Note::new(Severity::Info, code, message)
}

/// What is known of the groups before their objects are moved into nodes.
pub(super) struct Facts {
    empty: Vec<bool>,
    system: Vec<Counts>,
}

impl Facts {
    pub(super) fn of(assigned: &Assigned<'_>, scene: &Scene<'_>) -> Self {
        let last = assigned.last.as_ref().map(|(at, _)| *at);
        let empty =
            assigned.groups.iter().enumerate().map(|(at, picks)| picks.is_empty() && last != Some(at)).collect();
        let system = assigned.groups.iter().zip(&scene.groups).map(|(picks, group)| {
            // Where a selector names the namespace, the user has said so.
            let said = |namespace: &str| {
                let names = |e: &crate::groups::Entry<'_>| e.selector.namespaces.iter().any(|ns| ns == namespace);
                group.matcher.all().any(names)
            };
            let reached = picks
                .iter()
                .filter(|pick| !pick.named)
                .filter(|pick| pick.key.namespace.as_ref().is_some_and(|ns| ns.starts_with("kube-") && !said(ns)));
            reached.map(|pick| &pick.key.kind).collect()
        });
        Self { empty, system: system.collect() }
    }
}

pub(super) fn add(
    scene: &Scene<'_>,
    plan: &mut Plan,
    facts: Facts,
    not_served: BTreeMap<GroupKind, usize>,
    index: &Index<'_>,
) {
    groups(scene, plan, facts, index);
    kinds_not_served(scene, plan, not_served);
    covered_after_all(scene, plan);
    let (mut found, mut graceful) = (Vec::new(), Finalizers::new());
    for node in &plan.nodes {
        let Work::Delete(work) = &node.work else { continue };
        if let Some(force) = &work.force {
            found.push(warning(NoteCode::ForceStage, force_message(&node.title, force)));
        }
        work.objects.iter().for_each(|task| count_finalizers(task, &mut graceful));
    }
    found.extend(finalizers(graceful));
    found.extend(single_reads(plan, index));
    found.extend(dead_services(scene, plan));
    plan.notes.extend(found);
    plan.sort_notes();
}

fn groups(scene: &Scene<'_>, plan: &mut Plan, facts: Facts, index: &Index<'_>) {
    for ((group, empty), system) in scene.groups.iter().zip(facts.empty).zip(facts.system) {
        let (place, title) = (group.place(), &group.policy.title);
        let not_served = group.matcher.not_served.iter();
        plan.notes.extend(not_served.map(|message| warning(NoteCode::NotServed, message.clone())));
        for draft in group.drafts.iter().filter(|draft| !draft.is_served(index)) {
            let message = format!("{place}: the cluster does not serve {} any more", draft.query.describe());
            plan.notes.push(warning(NoteCode::NotServed, message));
        }
        if empty && group.drafts.is_empty() && group.matcher.has_entries() {
            plan.notes.push(info(NoteCode::Order, format!("{place} ({title}) matches nothing")));
        }
        if system.total() > 0 {
            let message =
                format!("{place} ({title}) deletes {} in namespaces of the system: {system}", system.objects());
            let note = Note::new(Severity::Dangerous, NoteCode::SystemNamespace, message);
            plan.notes.push(note.counting(system.into_vec()));
        }
        let kinds: BTreeSet<_> = group.drafts.iter().map(|draft| &draft.query.resource.kind).collect();
        for (kind, name) in kinds.into_iter().filter_map(|kind| Some((kind, own_of_every_namespace(kind)?))) {
            let message = format!("{place}: {kind}/{name} is left out: Kubernetes puts it into every namespace anew");
            plan.notes.push(info(NoteCode::Order, message));
        }
    }
}

fn kinds_not_served(scene: &Scene<'_>, plan: &mut Plan, not_served: BTreeMap<GroupKind, usize>) {
    for (kind, count) in not_served {
        let note = if scene.orphaned.contains(&kind) {
            let objects = if count == 1 { "1 object goes".into() } else { format!("{count} objects go") };
            let message = format!("the API of {kind} does not answer: {objects} with the APIService");
            warning(NoteCode::Unreadable, message)
        } else {
            let objects = if count == 1 { "1 object counts".into() } else { format!("{count} objects count") };
            info(NoteCode::NotServed, format!("the cluster does not serve {kind} (any more): {objects} as gone"))
        };
        plan.notes.push(note.counting(vec![(kind, count)]));
    }
}

/// What no group covers stays, unless the Namespace or the CRD that it needs goes.
fn covered_after_all(scene: &Scene<'_>, plan: &mut Plan) {
    let mut containers: HashSet<ObjectKey> = HashSet::new();
    for node in plan.nodes.iter().filter(|node| node.cluster.is_none()) {
        let Work::Delete(work) = &node.work else { continue };
        let keys = work.objects.iter().map(|task| &task.object);
        let containing = keys.filter(|key| key.kind == wellknown::namespace() || is_crd(&key.kind));
        containers.extend(containing.cloned());
    }
    let holder = |key: &ObjectKey| {
        let namespace = key.namespace.as_deref().map(|ns| ObjectKey::new(wellknown::namespace(), None, ns));
        let served = scene.catalog.get(&key.kind);
        let crd = served.map(|t| ObjectKey::new(wellknown::crd(), None, format!("{}.{}", t.plural, t.kind.group)));
        namespace.into_iter().chain(crd).find(|key| containers.contains(key))
    };
    let (mut stay, mut go) = (Counts::default(), Counts::default());
    for uncovered in &mut plan.uncovered {
        let key = &uncovered.object;
        if let Some(holder) = (!containers.is_empty()).then(|| holder(key)).flatten() {
            uncovered.reason.push_str(&format!(", but it goes with {holder}"));
            go.add(&key.kind);
        } else {
            stay.add(&key.kind);
        }
    }
    if stay.total() > 0 {
        let verb = if stay.total() == 1 { "stays" } else { "stay" };
        let message = format!("{} of the release {verb}: {stay}", stay.objects());
        plan.notes.push(info(NoteCode::Uncovered, message).counting(stay.into_vec()));
    }
    if go.total() > 0 {
        let message =
            format!("{} that no group covers cannot outlast a Namespace or CRD that goes: {go}", go.objects());
        plan.notes.push(warning(NoteCode::Uncovered, message).counting(go.into_vec()));
    }
}

fn force_message(title: &str, force: &billhook_policy::Force) -> String {
    let which = match force.finalizers.as_slice() {
        [] => "all finalizers".to_owned(),
        [one] => format!("the finalizer {one}"),
        many => format!("the finalizers {}", many.join(", ")),
    };
    let when = if force.after.0.is_zero() { "at once".to_owned() } else { format!("after {}", force.after) };
    format!("{title}: {which} will be removed by force from objects that are being deleted, {when}")
}

type Finalizers = BTreeMap<(String, GroupKind, bool), usize>;

fn count_finalizers(task: &DeleteTask, found: &mut Finalizers) {
    // The API server's own on a CRD only says that its instances go first.
    for finalizer in task.finalizers.iter().filter(|f| *f != wellknown::CRD_CLEANUP_FINALIZER) {
        *found.entry((finalizer.clone(), task.object.kind.clone(), task.deleting)).or_default() += 1;
    }
}

fn finalizers(found: Finalizers) -> impl Iterator<Item = Note> {
    found.into_iter().map(|((finalizer, kind, deleting), count)| {
        let verb = if count == 1 { "carries" } else { "carry" };
        let note = if deleting {
            let message = format!("{count} {kind} already being deleted still {verb} the finalizer {finalizer}");
            warning(NoteCode::Finalizers, message)
        } else {
            info(NoteCode::Finalizers, format!("{count} {kind} {verb} the finalizer {finalizer}"))
        };
        note.counting(vec![(kind, count)])
    })
}

/// Where watching is forbidden, the cluster's answer has no point to go on from.
fn single_reads(plan: &Plan, index: &Index<'_>) -> Option<Note> {
    let read = |query: &&crate::Query| {
        let found = index.get(query).map(|listing| &listing.found);
        matches!(found, Some(Listed::Items { resource_version: None, .. }))
    };
    let places: Vec<String> = plan.queries.iter().filter(read).map(crate::Query::describe).collect();
    let message = || format!("single reads take the place of a list and watch: {}", crate::counts::some_of(&places));
    (!places.is_empty()).then(|| info(NoteCode::SingleReads, message()))
}

/// A Namespace is not emptied as long as an aggregated API does not answer, unless its APIService goes before.
fn dead_services(scene: &Scene<'_>, plan: &Plan) -> Vec<Note> {
    let mut notes = Vec::new();
    let clusters: BTreeSet<Option<&str>> = plan.nodes.iter().map(|node| node.cluster.as_deref()).collect();
    for cluster in clusters {
        let stale = scene.request.catalogs.get(cluster).map(|catalog| catalog.stale.as_slice()).unwrap_or_default();
        let at = |wanted: &dyn Fn(&ObjectKey) -> bool| {
            plan.nodes.iter().position(|node| {
                let Work::Delete(work) = &node.work else { return false };
                node.cluster.as_deref() == cluster && work.objects.iter().any(|task| wanted(&task.object))
            })
        };
        let Some(first) = at(&|key| key.kind.is("", "Namespace")).filter(|_| !stale.is_empty()) else { continue };
        let goes = |gv: &&String| {
            let name = gv.split_once('/').map(|(group, version)| format!("{version}.{group}"));
            let service = |key: &ObjectKey| {
                key.kind.is("apiregistration.k8s.io", "APIService") && Some(&key.name) == name.as_ref()
            };
            at(&service).is_some_and(|node| node <= first)
        };
        let (going, dead): (Vec<&String>, Vec<&String>) = stale.iter().partition(goes);
        let place = cluster.map(|name| format!(" of target {name}")).unwrap_or_default();
        if !dead.is_empty() {
            let message = format!(
                "aggregated APIs{place} do not answer, and no Namespace goes as long as they do not: {}",
                crate::counts::some_of(&dead)
            );
            notes.push(warning(NoteCode::DeadApiService, message));
        }
        if !going.is_empty() {
            let message = format!(
                "aggregated APIs{place} do not answer; their APIService is deleted no later than the first Namespace: {}",
                crate::counts::some_of(&going)
            );
            notes.push(info(NoteCode::DeadApiService, message));
        }
    }
    notes
}

/// Objects that carry the release's label and are not in its record: copied labels, a lost record.
pub(super) fn unrecorded(
    scene: &Scene<'_>,
    finder: &Finder<'_>,
    index: &Index<'_>,
    taken: &HashSet<&Uid>,
    assigned: &mut Assigned<'_>,
) {
    let Some(release) = scene.request.release.filter(|_| scene.request.operation == Operation::Delete) else { return };
    let label = crate::Select::Labels(release_selector(release));
    let known: HashSet<(&GroupKind, Option<&str>, &str)> = scene
        .request
        .objects
        .iter()
        .map(|wanted| (&wanted.key.kind, wanted.key.namespace.as_deref(), wanted.key.name.as_str()))
        .collect();
    let mut counts = Counts::default();
    for query in finder.queries().filter(|query| query.select == label) {
        let Ok(crate::find::Answer::Items(query, items)) = index.items(query) else { continue };
        let kind = &query.resource.kind;
        let strangers = items.iter().filter(|item| {
            !known.contains(&(kind, item.namespace.as_deref(), item.name.as_str())) && !taken.contains(&item.uid)
        });
        strangers.for_each(|_| counts.add(kind));
    }
    if counts.total() > 0 {
        let message =
            format!("{} that the release's record does not name carry its label and stay: {counts}", counts.objects());
        assigned.notes.push(info(NoteCode::Order, message).counting(counts.into_vec()));
    }
}
