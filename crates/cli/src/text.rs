//! What the command line adds to the texts of notes and problems: the flag, the edit or the command that helps.

use std::time::Duration;

pub(crate) use billhook_explain::quoted;
use billhook_plan::{BackupNote, Locked, Note, NoteKind, Problem, Severity, UncoveredNote, text::seconds};

/// The flag that answers all dangerous notes but one.
pub(crate) const YES: &str = "--yes";

/// Returns the flag that answers a dangerous note: without it, the plan is not carried out.
pub(crate) fn answer(note: &Note) -> Option<&'static str> {
    match (note.severity, &note.kind) {
        (Severity::Dangerous, NoteKind::TooManyDeletions { .. }) => Some("--max-deletions"),
        (Severity::Dangerous, _) => Some(YES),
        _ => None,
    }
}

/// Returns the text of a note, with the flag that concerns it.
pub(crate) fn note(note: &Note) -> String {
    let flag = match &note.kind {
        NoteKind::Unlabelled { deleted: false, .. } => "delete it with --yes",
        _ if let Some(flag) = answer(note) => flag,
        NoteKind::Uncovered(UncoveredNote::NotPruned { .. }) => "--prune=false",
        NoteKind::ForceBeyondLimit { .. } => "--timeout",
        NoteKind::Backup(BackupNote::LostWithNamespace { .. }) => "save the objects as files with --backup-dir",
        NoteKind::Backup(BackupNote::Saves { .. }) => "--backup=false deletes without it",
        _ if note.is_about_order() => "--order safe",
        NoteKind::FinalizerController { controller: Some(_), .. } => "repair it first; billhook why shows how",
        NoteKind::PolicyLost => "choose the policy with --policy",
        NoteKind::NamespaceCreated { .. } => "--create-namespace",
        _ => return note.to_string(),
    };
    format!("{note} ({flag})")
}

/// Returns how a release is named on the command line, whatever the namespace of the context is.
pub(crate) fn argument(namespace: &str, name: &str) -> String {
    format!("{name} -n {namespace}")
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
        Problem::BackupLost { .. } => "save the objects as files with --backup-dir DIR",
        Problem::NotRestorable { .. } => "apply its CustomResourceDefinition first",
        Problem::Unowned { .. } => "adopt existing objects with --adopt",
        Problem::Unlabelled { .. } | Problem::Unrecorded { .. } => {
            "check the object and the record; adopt it, or prune it, with --adopt"
        }
        Problem::BeingDeleted { .. } => "run the command again once it is gone; billhook status shows what blocks it",
        Problem::Locked(Locked { lease: Some(_), expires_in: Some(_), .. }) => {
            "run the command again when the controller has finished, or stop the controller"
        }
        Problem::Outdated { .. } => "run the command again, so that it sees the change",
        Problem::Locked(_) => {
            "run the command again when the other operation has finished, or stop it and take over with --take-over"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns what happens when the lock of another operation is taken over: it may still send requests for that long.
pub(crate) fn taken_over(locked: &Locked, wait: Duration) -> String {
    let taken = format!("took over release {} from another operation: {}", locked.release, locked.holder());
    if wait.is_zero() { taken } else { format!("{taken}; waiting {} until it has stopped", seconds(wait)) }
}

/// What to do after a command that ended without removing the lock of the release.
pub(crate) const RESUME_UNLOCKED: &str =
    "run the same command again to resume when the lock of the release has expired, in about 30s";

/// What the second Ctrl-C prints.
pub const INTERRUPTED_TWICE: &str = "interrupted twice: stopped immediately; a release that the command locked remains locked \
     for about 30s; run the same command again after that to resume";

/// What to do about a conflict with other field managers.
pub(crate) const TAKE_OVER: &str = "use --force-conflicts to take over the fields from their managers";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_taken_over_names_its_holder_and_how_long_it_is_waited_for() {
        let locked = Locked {
            release: billhook_objects::ReleaseName::new("shop", "web").unwrap(),
            operation: "apply".into(),
            holder: "host".into(),
            pid: 7,
            since: Some("2026-11-22T22:00:00Z".into()),
            expires_in: None,
            lease: None,
        };
        let taken =
            "took over release shop/web from another operation: apply by host (process 7) since 2026-11-22T22:00:00Z";
        assert_eq!(taken_over(&locked, Duration::ZERO), taken);
        let waiting = taken_over(&locked, Duration::from_millis(20_100));
        assert_eq!(waiting, format!("{taken}; waiting 21s until it has stopped"));
    }
    #[test]
    fn the_texts_say_how_long_a_lock_lasts() {
        let lasts = format!("about {}", seconds(billhook_cluster::LOCK_DURATION));
        assert!(RESUME_UNLOCKED.contains(&lasts) && INTERRUPTED_TWICE.contains(&lasts), "{lasts}");
    }
}
