//! Builds the nodes of a deletion: a chain with one node for each group.

use std::collections::HashMap;

use billhook_objects::wellknown;
use billhook_policy::DeletionGroup;

use crate::{
    Barrier, DeleteTask, DeleteWork, Node, Note, NoteKind, PatchTask, PatchWork, Plan, Query, QueryId, UnreadableNote,
    Work,
    find::{Answer, Index},
    groups::is_crd,
};

use super::{
    assigned::{Assigned, Pick},
    deletion::{Deletion, ResolvedGroup},
    notes::note_group,
};

/// The queries that the nodes use, in the order of their first use.
#[derive(Default)]
struct Numbers<'a> {
    // Queries are compared by their address in the snapshot, since one may hold thousands of names.
    ids: HashMap<*const Query, QueryId>,
    list: Vec<&'a Query>,
}

impl<'a> Numbers<'a> {
    fn of(&mut self, query: &'a Query) -> QueryId {
        *self.ids.entry(std::ptr::from_ref(query)).or_insert_with(|| {
            self.list.push(query);
            self.list.len() - 1
        })
    }
}

impl Deletion<'_> {
    pub(super) fn build<'s>(&'s self, assigned: Assigned<'s>, index: &Index<'s>) -> Plan {
        let mut plan = Plan::new(self.request.operation, self.request.release);
        let mut numbers = Numbers::default();
        let mut group_notes = Vec::new();
        let Assigned { groups, last, patches, uncovered, unmanaged, notes, honoured, not_served, taken: _ } = assigned;
        plan.uncovered = uncovered;
        plan.unmanaged = unmanaged;
        plan.notes = notes;
        plan.notes.extend(honoured.into_notes().map(Note::from));
        plan.append_patches("patches before deletion", patches);
        // Of each group the nodes that must be done before what follows it: those of the groups before it if it has none.
        let mut ends: Vec<Vec<usize>> = Vec::new();
        for (at, (group, picks)) in self.groups.iter().zip(groups).enumerate() {
            let has_last = last.as_ref().is_some_and(|(of, _)| *of == at);
            note_group(group, &picks, has_last, index, &mut group_notes);
            let mut after = match &group.policy.after {
                Some(groups) => groups.iter().filter_map(|group| ends.get(*group)).flatten().copied().collect(),
                None => plan.last(),
            };
            after.sort_unstable();
            after.dedup();
            let node = self.add_node(group, picks, after.clone(), &mut plan, &mut numbers, index);
            ends.push(node.map_or(after, |node| vec![node]));
        }
        if let Some((at, pick)) = last {
            self.add_last(&self.groups[at], pick, &mut plan, &mut numbers, index);
        }
        plan.queries = numbers.list.iter().map(|query| (*query).clone()).collect();
        self.add_notes(&mut plan, group_notes, not_served, index);
        plan
    }

    /// Adds the nodes of a group after others, and returns the last one; none if there is nothing to delete.
    fn add_node<'s>(
        &'s self,
        group: &'s ResolvedGroup<'s>,
        picks: Vec<Pick<'s>>,
        mut after: Vec<usize>,
        plan: &mut Plan,
        numbers: &mut Numbers<'s>,
        index: &Index<'s>,
    ) -> Option<usize> {
        let served: Vec<_> = group.drafts.iter().filter(|draft| draft.is_served(index)).collect();
        if picks.is_empty() && served.is_empty() {
            return None;
        }
        if let Some(patches) = patches(group, &picks) {
            after = vec![plan.append_after(after, patches)];
        }
        let objects = self.tasks(group, picks, plan, numbers, index);
        let mut collections = Vec::with_capacity(served.len());
        for draft in served {
            if let Ok(Answer::Items(query, _)) = index.items(&draft.query) {
                let mut collection = draft.collection.clone();
                collection.query = numbers.of(query);
                collections.push(collection);
            }
        }
        let work = self.work(group, DeleteWork { objects, collections, ..DeleteWork::default() });
        Some(plan.append_after(after, node(group, group.policy.title.clone(), work)))
    }

    /// Adds the Namespace that holds the inventory. It is deleted when everything else is gone, so that the inventory
    /// outlives the objects it records.
    fn add_last<'s>(
        &'s self,
        group: &'s ResolvedGroup<'s>,
        pick: Pick<'s>,
        plan: &mut Plan,
        numbers: &mut Numbers<'s>,
        index: &Index<'s>,
    ) {
        plan.notes.push(NoteKind::InventoryLast { object: pick.key.clone() }.into());
        let title = format!("namespace {} (holds the inventory)", pick.key.name);
        let objects = self.tasks(group, vec![pick], plan, numbers, index);
        let work = self.work(group, DeleteWork { objects, ..DeleteWork::default() });
        plan.append(node(group, title, work));
    }

    fn work(&self, group: &ResolvedGroup<'_>, work: DeleteWork) -> Work {
        let DeletionGroup { force, propagation, grace_period, new_objects, release_snapshots, retries, .. } =
            group.policy;
        let snapshots = wellknown::volume_snapshot_content();
        let has_snapshots = group.drafts.iter().any(|draft| draft.query.resource.kind == snapshots);
        Work::Delete(DeleteWork {
            force: force.clone(),
            propagation: propagation.unwrap_or(self.request.propagation),
            grace_period: *grace_period,
            new_objects: *new_objects,
            release_snapshots: release_snapshots.filter(|_| has_snapshots),
            retries: retries.clone(),
            ..work
        })
    }

    fn tasks<'s>(
        &'s self,
        group: &'s ResolvedGroup<'s>,
        mut picks: Vec<Pick<'s>>,
        plan: &mut Plan,
        numbers: &mut Numbers<'s>,
        index: &Index<'s>,
    ) -> Vec<DeleteTask> {
        picks.sort_unstable_by(|a, b| (&a.key, &a.object.uid).cmp(&(&b.key, &b.object.uid)));
        let mut tasks = Vec::with_capacity(picks.len());
        for Pick { key, object, query, .. } in picks {
            let query = numbers.of(query);
            let instances = if is_crd(&key.kind) { self.instances(group, &key.name) } else { None };
            let instances = instances.and_then(|query| readable(query, plan, index)).map(|query| numbers.of(query));
            tasks.push(DeleteTask {
                object: key,
                uid: object.uid.clone(),
                resource_version: object.resource_version.clone(),
                query,
                finalizers: object.finalizers.clone(),
                deleting: object.deleting,
                annotations: object.annotations.clone(),
                instances,
            });
        }
        tasks
    }
}

/// Returns the node that patches the objects of a group before they are deleted.
fn patches(group: &ResolvedGroup<'_>, picks: &[Pick<'_>]) -> Option<Node> {
    let patch = group.policy.before_delete.as_ref().filter(|_| !picks.is_empty())?;
    let task = |Pick { key, object, query, .. }: &Pick<'_>| {
        PatchTask::new(key.clone(), query.resource.clone(), Some(object.uid.clone()), patch.clone())
    };
    let mut objects: Vec<_> = picks.iter().map(task).collect();
    objects.sort_unstable_by(|a, b| a.object.cmp(&b.object));
    let work = PatchWork { objects, retries: group.policy.retries.clone() };
    let title = format!("{}: patches before deletion", group.policy.title);
    Some(Node { timeout: group.policy.timeout, ..Node::of_patches(&title, work) })
}

fn node(group: &ResolvedGroup<'_>, title: String, work: Work) -> Node {
    Node {
        title,
        path: group.policy.path.clone(),
        after: Vec::new(),
        cluster: group.policy.target.clone(),
        work,
        barrier: Barrier::Gone,
        timeout: group.policy.timeout,
    }
}

/// Returns the query for a CRD's instances if it was answered. If it failed, adds a note, since the force stage cannot
/// reach the instances.
fn readable<'s>(query: Query, plan: &mut Plan, index: &Index<'s>) -> Option<&'s Query> {
    match index.items(&query) {
        Ok(Answer::Items(query, _)) => Some(query),
        Ok(Answer::NotServed) => None,
        Err(failure) => {
            plan.notes.push(NoteKind::Unreadable(UnreadableNote::Instances { failure }).into());
            None
        }
    }
}
