//! What failed in a pass, in the words of the reference.

use std::collections::{BTreeMap, BTreeSet};

use billhook_engine::{Incomplete, Status, Summary};
use billhook_objects::ObjectKey;
use billhook_payload::{Decisions, Payload, cluster_version::TaskError, messages};
use billhook_plan::{Failed, Failure, Failures, RequestedDeletion};

use crate::render::place;

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

    /// Returns the errors of failures, in the order of the payload.
    fn errors<'f>(&self, all: impl IntoIterator<Item = Failed<'f>>) -> Vec<TaskError> {
        let mut errors: Vec<(usize, TaskError)> =
            all.into_iter().map(|failed| (self.position(failed.object), self.error(failed))).collect();
        errors.sort();
        errors.into_iter().map(|(_, error)| error).collect()
    }

    fn error(&self, Failed { object, error, code }: Failed<'_>) -> TaskError {
        match (code, self.deleted.contains(object)) {
            // The reference prints what it finds of an unhealthy object alone.
            (Some(code), _) => TaskError { message: error.to_owned(), reason: code.to_owned(), name: place(object) },
            (None, true) => TaskError::new(self.could_not_update(object, &messages::delete_failed(object, error))),
            (None, false) => TaskError::new(self.could_not_update(object, error)),
        }
    }

    fn could_not_update(&self, object: &ObjectKey, cause: &str) -> String {
        messages::could_not_update(object, self.position(object), self.total(), cause)
    }

    /// Returns the errors that a record keeps.
    pub(super) fn recorded(&self, failures: &Failures) -> Vec<TaskError> {
        let mut errors = self.errors(failures.objects.iter().map(Failure::as_failed));
        errors.extend((failures.omitted > 0).then(|| TaskError::new(format!("{} more errors", failures.omitted))));
        errors
    }

    /// Returns the lines to print after a pass.
    pub(super) fn explain(&self, summary: &Summary) -> Vec<String> {
        let mut lines: Vec<_> = self.errors(summary.failures()).into_iter().map(|error| error.message).collect();
        let incomplete = |incomplete: &Incomplete| {
            let first = &incomplete.object;
            messages::incomplete(incomplete.nodes, first, self.position(first), self.total())
        };
        let interrupted = summary.incomplete.as_deref().filter(|_| summary.status == Status::Interrupted);
        lines.extend(interrupted.map(incomplete));
        lines
    }
}
