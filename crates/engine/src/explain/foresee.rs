//! What a plan's deletions will hang at: runs the rounds of a foresight, and makes notes of what is foreseen.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use billhook_cluster::Cluster;
use billhook_explain::{Answer, Foreseen, Foresight, ObjectRef, Query, ResponsibleState, Steps, ToDelete};
use billhook_objects::{Catalog, GroupKind, ObjectKey, Uid, wellknown};
use billhook_plan::{Before, Counts, DeleteTask, DeleteWork, Listed, Note, NoteKind, Observed, Plan, Snapshot, Work};
use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use super::{causes::reference, now, rounds::Rounds};

/// How many requests may be sent to look ahead.
const REQUESTS: usize = 100;
/// How long that may take: a plan must not wait for a cluster in which much is broken.
const PATIENCE: Duration = Duration::from_secs(20);
/// How many objects a note names.
const NAMED: usize = 10;

/// Looks ahead of the deletions in one cluster. What it has read answers for several plans.
pub(crate) struct Lookout<'a> {
    rounds: Rounds<'a>,
    catalog: &'a Catalog,
    until: Instant,
}

impl<'a> Lookout<'a> {
    pub(crate) fn new(cluster: &'a Cluster, catalog: &'a Catalog) -> Self {
        Self { rounds: Rounds::new(cluster, REQUESTS), catalog, until: Instant::now() + PATIENCE }
    }

    /// Adds notes on what will hang or be lost to a plan, and returns what must be gone before what. Sends no request if the plan
    /// deletes neither objects with finalizers nor volumes, nor what the deletion of others needs.
    pub(crate) async fn foresee(&mut self, plan: &mut Plan, snapshot: &Snapshot) -> Vec<Before> {
        let objects = to_delete(plan, snapshot, self.catalog);
        let steps = Steps::new(plan.nodes.iter().map(|node| node.after.as_slice()));
        let mut foresight = [Foresight::new(objects, steps, self.catalog, now(self.rounds.cluster))];
        let is_done = timeout_at(self.until, self.rounds.run(&mut foresight)).await.is_ok();
        let [foresight] = foresight;
        let foreseen = foresight.foreseen();
        let mut unread: BTreeSet<String> =
            foresight.unread().into_iter().map(|unread| format!("{} ({})", unread.what, unread.why)).collect();
        unread.extend(self.rounds.left_out().map(|left| format!("{} ({})", left.what, left.why)));
        if !is_done {
            unread.insert(format!("further requests (the time limit of {}s is reached)", PATIENCE.as_secs()));
        }
        let before = foreseen.iter().filter_map(before).collect();
        let mut notes: Vec<Note> = foreseen.into_iter().map(|one| note(one).into()).collect();
        let unexamined = foresight.unexamined();
        if !unread.is_empty() || unexamined > 0 {
            notes.push(NoteKind::NotForeseen { unread: unread.into_iter().collect(), unexamined }.into());
        }
        plan.add_notes(notes);
        before
    }
}

/// Reads the evidence that a foresight asks for, and returns it with the time of the server's clock.
pub(crate) async fn evidence<'a>(
    cluster: &Cluster,
    foresight: impl FnOnce(Timestamp) -> Foresight<'a>,
) -> (Timestamp, Vec<(Query, Arc<Answer>)>) {
    let mut foresight = [foresight(now(cluster))];
    let mut rounds = Rounds::new(cluster, REQUESTS);
    let _is_done = tokio::time::timeout(PATIENCE, rounds.run(&mut foresight)).await;
    let [foresight] = foresight;
    (now(cluster), foresight.into_answers())
}

/// Reads all evidence that a foresight asks for: in a copy of a cluster, requests cost little.
pub(crate) async fn look_ahead<'a>(
    cluster: &Cluster,
    foresight: impl FnOnce(Timestamp) -> Foresight<'a>,
) -> Foresight<'a> {
    let mut foresight = [foresight(now(cluster))];
    Rounds::new(cluster, usize::MAX).run(&mut foresight).await;
    let [foresight] = foresight;
    foresight
}

/// Returns what a plan deletes in the release's own cluster: what it names, what its collections contain, and what has finalizers
/// and is deleted with a Namespace or CRD.
fn to_delete(plan: &Plan, snapshot: &Snapshot, catalog: &Catalog) -> Vec<ToDelete> {
    let listed = listed(snapshot);
    let mut found: Vec<ToDelete> = Vec::new();
    let mut seen: BTreeSet<&Uid> = BTreeSet::new();
    let mut containers: BTreeMap<ObjectKey, usize> = BTreeMap::new();
    let works = plan.nodes.iter().enumerate().filter(|(_, node)| node.cluster.is_none());
    let works =
        works.filter_map(|(at, node)| if let Work::Delete(work) = &node.work { Some((at, work)) } else { None });
    for (step, work) in works {
        for task in &work.objects {
            let Some(object) = reference(catalog, &task.object) else { continue };
            seen.insert(&task.uid);
            if task.object.kind == wellknown::namespace() || task.object.kind == wellknown::crd() {
                containers.insert(task.object.clone(), step);
            }
            let labels = listed.get(&task.uid).map(|(_, seen)| seen.labels.clone()).unwrap_or_default();
            found.push(ToDelete {
                object: ObjectRef { uid: Some(task.uid.clone()), ..object },
                step,
                contained: false,
                labels,
                finalizers: task.finalizers.clone(),
                forced: forced(work, task),
            });
        }
    }
    for (kind, object) in listed.values() {
        if object.finalizers.is_empty() || seen.contains(&object.uid) || object.annotations.treatment().is_kept() {
            continue;
        }
        let key = object.key(kind);
        let Some(step) = container(&containers, &key, catalog) else { continue };
        let Some(name) = reference(catalog, &key) else { continue };
        found.push(ToDelete {
            object: ObjectRef { uid: Some(object.uid.clone()), ..name },
            step,
            contained: true,
            labels: object.labels.clone(),
            finalizers: object.finalizers.clone(),
            forced: Vec::new(),
        });
    }
    found
}

fn listed(snapshot: &Snapshot) -> HashMap<&Uid, (&GroupKind, &Observed)> {
    let mut found = HashMap::new();
    for listing in snapshot.listings.iter().filter(|listing| listing.query.cluster.is_none()) {
        let Listed::Items { items, .. } = &listing.found else { continue };
        found.extend(items.iter().map(|item| (&item.uid, (&listing.query.resource.kind, item))));
    }
    found
}

/// Returns the step that deletes the CRD or the Namespace of an object, whichever is first.
fn container(containers: &BTreeMap<ObjectKey, usize>, key: &ObjectKey, catalog: &Catalog) -> Option<usize> {
    let namespace = key.namespace.as_deref().map(|name| ObjectKey::new(wellknown::namespace(), None, name));
    let crd = catalog.get(&key.kind).map(|served| wellknown::crd_of(&served.plural, &served.kind));
    namespace.into_iter().chain(crd).filter_map(|container| containers.get(&container).copied()).min()
}

/// Returns the finalizers that a force stage removes from an object.
fn forced(work: &DeleteWork, task: &DeleteTask) -> Vec<String> {
    let all = task.annotations.treatment().finalize_after.is_some();
    let by_group = |finalizer: &&String| {
        work.force.as_ref().is_some_and(|force| force.finalizers.is_empty() || force.finalizers.contains(finalizer))
    };
    task.finalizers.iter().filter(|finalizer| all || by_group(finalizer)).cloned().collect()
}

fn key(object: &ObjectRef) -> ObjectKey {
    ObjectKey::new(object.group_kind(), object.namespace.as_deref(), object.name.clone())
}

fn keys(objects: &[ObjectRef]) -> Vec<ObjectKey> {
    let mut keys: Vec<ObjectKey> = objects.iter().map(key).collect();
    keys.sort();
    keys
}

/// Returns what must be gone before what, as far as an order can help.
fn before(foreseen: &Foreseen) -> Option<Before> {
    match foreseen {
        Foreseen::ControllerFirst { objects, parts, .. } => Some(Before { objects: keys(objects), parts: keys(parts) }),
        // Webhooks and APIServices are deleted before their backends anyway, but a CRD is not.
        Foreseen::BackendFirst { front, backend, objects, .. } if front.group_kind() == wellknown::crd() => {
            Some(Before { objects: keys(objects), parts: vec![key(backend)] })
        }
        _ => None,
    }
}

fn note(foreseen: Foreseen) -> NoteKind {
    let counted = |objects: &[ObjectRef]| {
        let mut keys = keys(objects);
        let counts: Counts = keys.iter().map(|key| &key.kind).collect();
        keys.truncate(NAMED);
        (counts, keys)
    };
    match foreseen {
        Foreseen::NotWorking { finalizer, objects, controller, state, problem } => {
            let (counts, objects) = counted(&objects);
            let controller = controller.filter(|_| state != ResponsibleState::Unknown);
            NoteKind::FinalizerController { finalizer, counts, objects, controller, problem }
        }
        Foreseen::ControllerFirst { finalizer, objects, controller, parts } => {
            let (counts, objects) = counted(&objects);
            NoteKind::ControllerFirst { finalizer, counts, objects, controller, parts: keys(&parts) }
        }
        Foreseen::BackendFirst { front, backend, objects, remains } => {
            let (counts, objects) = counted(&objects);
            NoteKind::BackendFirst { front: key(&front), backend: key(&backend), counts, objects, remains }
        }
        Foreseen::VolumeData { objects, lost } => {
            let (counts, objects) = counted(&objects);
            NoteKind::VolumeData { counts, objects, lost }
        }
        Foreseen::External { system, finalizer, objects, left } => {
            let (counts, objects) = counted(&objects);
            NoteKind::ExternalResources { system, finalizer, counts, objects, left }
        }
    }
}
