//! What the command line adds to the texts of notes and problems: the flag or the edit that helps.

use billhook_plan::{Note, NoteKind, Problem, UncoveredNote};

/// Returns the text of a note, with the flag that concerns it.
pub(crate) fn note(note: &Note) -> String {
    let flag = match &note.kind {
        NoteKind::TooManyDeletions { .. } => "--max-deletions",
        NoteKind::Uncovered(UncoveredNote::NotPruned { .. }) => "--prune=false",
        NoteKind::PolicyLost => "choose the policy with --policy",
        NoteKind::Unlabelled { deleted: false, .. } => "delete it with --yes",
        NoteKind::Unlabelled { deleted: true, .. } => "--yes",
        NoteKind::NamespaceCreated { .. } => "--create-namespace",
        _ => return note.to_string(),
    };
    format!("{note} ({flag})")
}

/// Returns what to do about problems, each hint once.
pub(crate) fn hints(problems: &[Problem]) -> Vec<String> {
    let mut hints = Vec::new();
    for hint in problems.iter().filter_map(hint) {
        if !hints.contains(&hint) {
            hints.push(hint);
        }
    }
    hints
}

fn hint(problem: &Problem) -> Option<String> {
    let hint = match problem {
        Problem::UnknownTarget { target, .. } => {
            return Some(format!("name the cluster of the target with --target {target}=KUBECONFIG"));
        }
        Problem::SystemNamespace { object } => {
            let entry = format!("{{apiVersion: v1, kind: Namespace, names: [{}]}}", object.name);
            return Some(format!("add {entry} to excludedResources of the group in the policy"));
        }
        Problem::NoLastingVersion { .. } => "let the new CRD serve one of the old versions, or use --prune=false",
        Problem::MissingNamespace { .. } => {
            "create the namespace, add it to the release, or let billhook create it with --create-namespace"
        }
        Problem::Unowned { .. } => "take over existing objects with --adopt",
        Problem::Unlabelled { .. } | Problem::Unrecorded { .. } => {
            "check the object and the record; let the release take it over, or prune it, with --adopt"
        }
        Problem::BeingDeleted { .. } => "run the command again once the object is gone",
        _ => return None,
    };
    Some(hint.to_owned())
}
