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

#[cfg(test)]
mod tests {
    use billhook_objects::GroupKind;
    use billhook_payload::{File, Settings};
    use billhook_plan::DeletionState;

    use super::*;

    #[test]
    fn a_failure_has_the_reason_of_the_reference_unless_its_object_is_not_healthy() {
        let text = |name: &str| {
            let included = "include.release.openshift.io/self-managed-high-availability";
            format!(
                "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: {name}, namespace: ns, annotations: {{{included}: \"true\"}}}}}}"
            )
        };
        let texts = ["a", "b", "c"].map(text);
        let files: Vec<_> = texts.iter().map(|text| File { path: "0000_10_a_1.yaml", text }).collect();
        let (payload, _) = Payload::read(&files);
        let decisions = Decisions::new(&payload, &Settings::default());
        let key = |name: &str| ObjectKey::new(GroupKind::new("apps", "Deployment"), Some("ns"), name);
        let deletion = RequestedDeletion {
            object: key("c"),
            state: DeletionState::ToDelete,
            recorded: true,
            requested: false,
            dropped: false,
            deleted_before: None,
        };
        let deletions = [deletion];
        let words = Words::new(&payload, &decisions, &deletions);
        let failure = |name: &str, error: &str, code: Option<&str>| Failure {
            object: key(name),
            error: error.to_owned(),
            code: code.map(str::to_owned),
        };
        let objects = vec![
            failure("c", "no", None),
            failure("b", "deployment ns/b is stuck", Some("WorkloadNotProgressing")),
            failure("a", "forbidden", None),
        ];
        let errors = words.recorded(&Failures { objects, omitted: 2 });
        let shown: Vec<_> = errors.iter().map(|error| (error.reason.as_str(), error.message.as_str())).collect();
        let deleting =
            "Could not update deployment \"ns/c\" (3 of 3): delete request for deployment \"ns/c\" failed, err=no";
        assert_eq!(
            shown,
            [
                ("UpdatePayloadFailed", "Could not update deployment \"ns/a\" (1 of 3): forbidden"),
                ("WorkloadNotProgressing", "deployment ns/b is stuck"),
                ("UpdatePayloadFailed", deleting),
                ("UpdatePayloadFailed", "2 more errors"),
            ]
        );
    }
}
