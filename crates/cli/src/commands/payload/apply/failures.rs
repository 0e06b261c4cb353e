//! What failed in a pass, in the words of the reference.

use std::collections::{BTreeMap, BTreeSet};

use billhook_engine::{Incomplete, Status, Summary};
use billhook_objects::ObjectKey;
use billhook_payload::{Decisions, Payload, messages};
use billhook_plan::{Failed, Failure, Failures, RequestedDeletion};

/// The manifests that a pass counts, with their positions.
pub(super) struct Words<'a> {
    positions: BTreeMap<&'a ObjectKey, usize>,
    deleted: BTreeSet<&'a ObjectKey>,
}

impl<'a> Words<'a> {
    pub(super) fn new(payload: &'a Payload, decisions: &Decisions, deletions: &'a [RequestedDeletion]) -> Self {
        let counting = decisions.counting().enumerate();
        Self {
            positions: counting.map(|(n, at)| (&payload.entries[at].manifest.key, n + 1)).collect(),
            deleted: deletions.iter().map(|deletion| &deletion.object).collect(),
        }
    }

    /// Returns how many manifests count.
    pub(super) fn total(&self) -> usize {
        self.positions.len()
    }

    /// Returns the position of an object, counted from 1.
    fn position(&self, object: &ObjectKey) -> usize {
        let unplaced = ObjectKey { namespace: None, ..object.clone() };
        self.positions.get(object).or_else(|| self.positions.get(&unplaced)).copied().unwrap_or_default()
    }

    /// Returns a line for each failure, in the order of the payload.
    pub(super) fn failures<'f>(&self, all: impl IntoIterator<Item = Failed<'f>>) -> Vec<String> {
        let line = |Failed { object, error, code }: Failed<'_>| {
            let at = self.position(object);
            let line = match (code, self.deleted.contains(object)) {
                // The reference prints what it finds of an unhealthy object alone.
                (Some(_), _) => error.to_owned(),
                (None, true) => self.could_not_update(object, &messages::delete_failed(object, error)),
                (None, false) => self.could_not_update(object, error),
            };
            (at, line)
        };
        let mut lines: Vec<(usize, String)> = all.into_iter().map(line).collect();
        lines.sort();
        lines.into_iter().map(|(_, line)| line).collect()
    }

    fn could_not_update(&self, object: &ObjectKey, cause: &str) -> String {
        messages::could_not_update(object, self.position(object), self.total(), cause)
    }

    /// Returns the lines of what a record keeps of the failures.
    pub(super) fn recorded(&self, failures: &Failures) -> Vec<String> {
        let mut lines = self.failures(failures.objects.iter().map(Failure::as_failed));
        lines.extend((failures.omitted > 0).then(|| format!("{} more errors", failures.omitted)));
        lines
    }

    /// Returns the lines to print after a pass.
    pub(super) fn explain(&self, summary: &Summary) -> Vec<String> {
        let mut lines = self.failures(summary.failures());
        let incomplete = |incomplete: &Incomplete| {
            let first = &incomplete.object;
            messages::incomplete(incomplete.nodes, first, self.position(first), self.total())
        };
        let interrupted = summary.incomplete.as_deref().filter(|_| summary.status == Status::Interrupted);
        lines.extend(interrupted.map(incomplete));
        lines
    }
}
