//! Builds the nodes of a deletion: a chain with one node for each group.

use std::collections::HashMap;

use crate::{
    Barrier, DeleteTask, DeleteWork, Node, NoteKind, Plan, Query, QueryId, UnreadableNote, Work,
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
        let Assigned { groups, last, patches, uncovered, notes, not_served, taken: _ } = assigned;
        plan.uncovered = uncovered;
        plan.notes = notes;
        plan.append_patches("patches before deletion", patches);
        for (at, (group, picks)) in self.groups.iter().zip(groups).enumerate() {
            let has_last = last.as_ref().is_some_and(|(of, _)| *of == at);
            note_group(group, &picks, has_last, index, &mut group_notes);
            self.add_node(group, picks, &mut plan, &mut numbers, index);
        }
        if let Some((at, pick)) = last {
            self.add_last(&self.groups[at], pick, &mut plan, &mut numbers, index);
        }
        plan.queries = numbers.list.iter().map(|query| (*query).clone()).collect();
        self.add_notes(&mut plan, group_notes, not_served, index);
        plan
    }

    fn add_node<'s>(
        &'s self,
        group: &'s ResolvedGroup<'s>,
        picks: Vec<Pick<'s>>,
        plan: &mut Plan,
        numbers: &mut Numbers<'s>,
        index: &Index<'s>,
    ) {
        let served: Vec<_> = group.drafts.iter().filter(|draft| draft.is_served(index)).collect();
        if picks.is_empty() && served.is_empty() {
            return;
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
        plan.append(node(group, group.policy.title.clone(), work));
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
        let propagation = group.policy.propagation.unwrap_or(self.request.propagation);
        Work::Delete(DeleteWork { force: group.policy.force.clone(), propagation, ..work })
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
                query,
                finalizers: object.finalizers.clone(),
                deleting: object.deleting,
                instances,
            });
        }
        tasks
    }
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
