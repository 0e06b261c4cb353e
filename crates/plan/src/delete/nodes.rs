//! The nodes of a deletion: a chain, one a group.

use std::collections::HashMap;

use crate::{
    Barrier, DeleteTask, DeleteWork, Listed, Node, NoteCode, Plan, Query, QueryId, Work, find::Answer, find::Index,
    groups::is_crd,
};

use super::{
    Group, Scene,
    assign::{Assigned, Pick},
    notes,
};

/// The queries that the nodes use, in the order of their first use.
#[derive(Default)]
struct Numbers<'a> {
    // Queries are told apart by where they lie in the snapshot: one may hold thousands of names.
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

impl Scene<'_> {
    pub(super) fn build<'s>(&'s self, assigned: Assigned<'s>, index: &Index<'s>) -> Plan {
        let mut plan = Plan::new(self.request.operation, self.request.release);
        let mut numbers = Numbers::default();
        let facts = notes::Facts::of(&assigned, self);
        let Assigned { groups, last, patches, uncovered, notes, not_served } = assigned;
        plan.uncovered = uncovered;
        plan.notes = notes;
        plan.add_patches("before deletion", patches);
        for (group, picks) in self.groups.iter().zip(groups) {
            self.add_node(group, picks, &mut plan, &mut numbers, index);
        }
        if let Some((at, pick)) = last {
            self.add_last(&self.groups[at], pick, &mut plan, &mut numbers, index);
        }
        plan.queries = numbers.list.iter().map(|query| (*query).clone()).collect();
        notes::add(self, &mut plan, facts, not_served, index);
        plan
    }

    fn add_node<'s>(
        &'s self,
        group: &'s Group<'s>,
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
        plan.nodes.push(self.node(group, group.policy.title.clone(), work, plan));
    }

    /// The Namespace that holds the inventory goes when all else is gone: the record outlives what it records.
    fn add_last<'s>(
        &'s self,
        group: &'s Group<'s>,
        pick: Pick<'s>,
        plan: &mut Plan,
        numbers: &mut Numbers<'s>,
        index: &Index<'s>,
    ) {
        let message = format!("{} holds the inventory of the release: it goes last", pick.key);
        let note = crate::Note::new(crate::Severity::Info, NoteCode::InventoryLast, message);
        plan.notes.push(note.about(pick.key.clone()));
        let title = format!("namespace {} with the inventory", pick.key.name);
        let objects = self.tasks(group, vec![pick], plan, numbers, index);
        let work = self.work(group, DeleteWork { objects, ..DeleteWork::default() });
        plan.nodes.push(self.node(group, title, work, plan));
    }

    fn work(&self, group: &Group<'_>, work: DeleteWork) -> Work {
        let propagation = group.policy.propagation.unwrap_or(self.request.propagation);
        Work::Delete(DeleteWork { force: group.policy.force.clone(), propagation, ..work })
    }

    fn node(&self, group: &Group<'_>, title: String, work: Work, plan: &Plan) -> Node {
        Node {
            title,
            path: group.policy.path.clone(),
            after: plan.nodes.len().checked_sub(1).into_iter().collect(),
            cluster: group.policy.target.clone(),
            work,
            barrier: Barrier::Gone,
            timeout: group.policy.timeout,
        }
    }

    fn tasks<'s>(
        &'s self,
        group: &'s Group<'s>,
        mut picks: Vec<Pick<'s>>,
        plan: &mut Plan,
        numbers: &mut Numbers<'s>,
        index: &Index<'s>,
    ) -> Vec<DeleteTask> {
        picks.sort_unstable_by(|a, b| (&a.key, &a.object.uid).cmp(&(&b.key, &b.object.uid)));
        let mut tasks = Vec::with_capacity(picks.len());
        for Pick { key, object, query, .. } in picks {
            let query = numbers.of(query);
            let instances = if is_crd(&key.kind) { group.instances(&key.name) } else { None };
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

/// The query of a CRD's instances, where it was answered; else a note, as the force stage cannot reach them.
fn readable<'s>(query: Query, plan: &mut Plan, index: &Index<'s>) -> Option<&'s Query> {
    match index.get(&query) {
        Some(listing) if matches!(listing.found, Listed::Items { .. }) => Some(&listing.query),
        Some(listing) if listing.found == Listed::NotServed => None,
        _ => {
            let why = index.items(&query).err().unwrap_or_default();
            let message = format!("the force stage does not reach the instances: list {}: {why}", query.describe());
            plan.notes.push(notes::warning(NoteCode::Unreadable, message));
            None
        }
    }
}
