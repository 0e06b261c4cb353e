//! What the time limit of an operation prevents.

use std::time::Duration;

use billhook_policy::GoDuration;

use crate::{Node, Note, NoteKind, Plan, Work};

/// Warns of groups whose force stage would start only after the time limit of the operation.
pub fn warn_of_limit(plan: &mut Plan, limit: Duration) {
    let limit = GoDuration(limit);
    let beyond = |node: &Node| {
        let Work::Delete(work) = &node.work else { return None };
        let after = work.force.as_ref()?.after;
        (after > limit).then(|| NoteKind::ForceBeyondLimit { title: node.title.clone(), after, limit }.into())
    };
    let notes: Vec<Note> = plan.nodes.iter().filter_map(beyond).collect();
    plan.add_notes(notes);
}
