//! The end of a run: what was done, or what remains, what blocks it, and how to resume.

use std::{collections::HashMap, time::Duration};

use billhook_engine::{Blocker, FinalizersRemoved, Left, Progress, Proof, RefusedBy, Status, Summary, blocker_texts};
use billhook_plan::{Operation, Uncovered, UncoveredCause};

use crate::{
    output::Paint,
    render::{columns, count, duration, first, object, place},
    text,
};

use super::line;

/// How many objects are listed; the others are counted.
const LISTED: usize = 20;

/// The lines of a summary.
#[derive(Default)]
pub(super) struct Lines {
    /// For standard output.
    pub(super) results: Vec<String>,
    /// For standard error.
    pub(super) problems: Vec<String>,
    /// What the user can do.
    pub(super) hints: Vec<String>,
}

/// Describes how a run ended. `out` and `err` paint standard output and standard error.
pub(super) fn lines(progress: &Progress, (out, err): (Paint, Paint)) -> Lines {
    let mut lines = Lines::default();
    let Some(summary) = &progress.summary else { return lines };
    if summary.status == Status::Done {
        lines.results.push(done(progress, summary, out));
    }
    remarks(summary, &mut lines.results);
    if summary.status == Status::Done && summary.retained {
        let release = progress.release.as_deref().and_then(|release| release.split_once('/'));
        let release = release.map(|(namespace, name)| text::argument(namespace, name)).unwrap_or_default();
        lines
            .hints
            .push(format!("delete what remains with billhook delete {release} --policy FILE or --policy default"));
        lines.hints.push(format!("or keep it and drop the record with billhook forget {release}"));
    }
    if let Some(objects) = summary.backup {
        let release = progress.release.as_deref().and_then(|release| release.split_once('/'));
        let release = release.map(|(namespace, name)| text::argument(namespace, name)).unwrap_or_default();
        let backup = format!("the record holds a backup of {}", count(objects, "object"));
        lines.hints.push(format!("{backup}; create them again with billhook restore {release}"));
    }
    if summary.status != Status::Done {
        failure(progress, summary, err, &mut lines.problems);
        lines.hints.push(hint(progress, summary).to_owned());
    }
    lines
}

fn done(progress: &Progress, summary: &Summary, paint: Paint) -> String {
    let remains =
        |uncovered: &Uncovered| uncovered.deleted_with.is_none() && uncovered.cause != UncoveredCause::CreatedNamespace;
    let verb = match progress.deletes() {
        true if is_clean(progress) => "clean",
        true if progress.operation == Some(Operation::Clean) => "cleaned",
        true if progress.release.is_some() && summary.uncovered.iter().any(remains) => "retained",
        true => "deleted",
        false if progress.operation == Some(Operation::Restore) => "restored",
        false => "applied",
    };
    let what = match &progress.release {
        Some(release) => format!("release {release} {verb}"),
        None => verb.to_owned(),
    };
    format!("{}: {}", paint.good(&what), totals(progress, summary))
}

/// Whether there was nothing to clean.
fn is_clean(progress: &Progress) -> bool {
    progress.operation == Some(Operation::Clean) && progress.nodes.is_empty()
}

/// `3 created, 2 unchanged in 3.2s (24 requests)`.
fn totals(progress: &Progress, summary: &Summary) -> String {
    let requests = usize::try_from(summary.requests.values().sum::<u64>()).unwrap_or(usize::MAX);
    let elapsed = duration(Duration::from_millis(summary.elapsed_ms));
    let parts = if is_clean(progress) {
        "nothing to delete".to_owned()
    } else if progress.deletes() {
        format!("{} gone", count(summary.gone, "object"))
    } else {
        let applied = progress.applied().into_iter().map(|(result, number)| (number, line::verb(result)));
        let pruned = (summary.gone > 0).then_some((summary.gone, "pruned"));
        let requested = Some((summary.requested.len(), "to be deleted")).filter(|(number, _)| *number > 0);
        let parts: Vec<_> =
            applied.chain(pruned).chain(requested).map(|(number, what)| format!("{number} {what}")).collect();
        if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") }
    };
    format!("{parts} in {elapsed} ({})", count(requests, "request"))
}

/// What was done by force, and what remains on purpose.
fn remarks(summary: &Summary, lines: &mut Vec<String>) {
    if !summary.finalizers_removed.is_empty() {
        lines.push(format!("finalizers removed by force from {}:", count(summary.finalizers_removed.len(), "object")));
        let row = |removed: &FinalizersRemoved| vec![object(&removed.object), removed.finalizers.join(", ")];
        lines.extend(indent(first(&summary.finalizers_removed, LISTED, row)));
    }
    if !summary.recreated.is_empty() {
        lines.push(format!("{}, recreated by another client:", remaining(summary.recreated.len(), "")));
        lines.extend(indent(first(&summary.recreated, LISTED, |key| vec![object(key)])));
    }
    if !summary.ignored.is_empty() {
        lines.push(format!("{}, created too late for the stage:", remaining(summary.ignored.len(), "")));
        lines.extend(indent(first(&summary.ignored, LISTED, |key| vec![object(key)])));
    }
    let (contained, remain): (Vec<&Uncovered>, _) = summary.uncovered.iter().partition(|u| u.deleted_with.is_some());
    let is_left =
        |uncovered: &&Uncovered| summary.left.iter().any(|l| Some(&l.object) == uncovered.deleted_with.as_ref());
    let (waiting, deleted): (Vec<&Uncovered>, _) = contained.into_iter().partition(is_left);
    let title = |uncovered: &[&Uncovered], what: &str| {
        let whose = if uncovered.len() == 1 { "its" } else { "their" };
        format!("{} {what} with {whose} Namespace or CRD:", count(uncovered.len(), "object"))
    };
    for (title, uncovered) in [
        (title(&deleted, "deleted"), &deleted),
        (title(&waiting, "to be deleted"), &waiting),
        (format!("{}:", remaining(remain.len(), "")), &remain),
    ] {
        if !uncovered.is_empty() {
            lines.push(title);
            let row = |left: &&Uncovered| vec![object(&left.object), left.reason()];
            lines.extend(indent(first(uncovered, LISTED, row)));
        }
    }
    if !summary.left_out.is_empty() {
        lines.push("left out:".to_owned());
        lines.extend(indent(first(&summary.left_out, LISTED, |note| vec![note.to_string()])));
    }
}

/// `1 object of release shop/web remains`.
fn remaining(objects: usize, of: &str) -> String {
    format!("{}{of} {}", count(objects, "object"), if objects == 1 { "remains" } else { "remain" })
}

fn failure(progress: &Progress, summary: &Summary, paint: Paint, lines: &mut Vec<String>) {
    let how = match summary.status {
        Status::TimedOut => "timed out",
        Status::Interrupted | Status::NotStarted => "interrupted",
        Status::Done | Status::Failed => "failed",
    };
    let of = progress.release.as_ref().map(|release| format!(" of release {release}")).unwrap_or_default();
    let what = match summary.left.len() {
        0 if let Some(proof) = &summary.proof => unproven(proof, &of),
        0 => format!("all objects{of} are {}", if progress.deletes() { "gone" } else { "applied" }),
        objects if progress.deletes() => remaining(objects, &of),
        1 => format!("1 object{of} is unfinished"),
        objects => format!("{objects} objects{of} are unfinished"),
    };
    lines.push(format!("{} {how}: {what}; {}", paint.bad("error:"), totals(progress, summary)));
    if let Some(error) = &summary.error {
        lines.push(format!("  {}: {}", error.code, error.message));
    }
    lines.extend(indent(blocked(&summary.blocked())));
    let not_started = |(group, objects): &(&str, usize)| {
        vec![format!("group {group} was not started: {}", count(*objects, "object"))]
    };
    lines.extend(indent(first(&summary.not_started(), LISTED, not_started)));
    if summary.lock_lost {
        lines.push(
            "  the lock of the release was lost: another operation took over, or it could not be renewed".to_owned(),
        );
    }
    if let Some(proof) = &summary.proof {
        lines.extend(indent(first(&proof.left, LISTED, |key| vec![object(key), "carries the label".to_owned()])));
        lines.extend(indent(first(&proof.unlisted, LISTED, |failure| vec![failure.to_string()])));
    }
    if let Some(error) = &summary.record_error {
        lines.push(format!("  release record not written: {error}"));
    }
}

/// What the sweep at the end found: `1 object still carries the label of release shop/web`.
fn unproven(proof: &Proof, of: &str) -> String {
    match proof.left.len() {
        0 => format!("not verified that all objects{of} are gone: some kinds could not be listed"),
        objects => {
            let verb = if objects == 1 { "carries" } else { "carry" };
            format!("{} still {verb} the label{of}", count(objects, "object"))
        }
    }
}

/// Each object with what blocks it, one blocker per line.
fn blocked(left: &[&Left]) -> Vec<String> {
    let mut rows = Vec::new();
    let causes = causes(left);
    for (left, others) in causes.iter().take(LISTED) {
        let more = if *others > 0 { format!(" and {others} more") } else { String::new() };
        let (kind, name) = (left.object.kind.to_string(), place(&left.object) + &more);
        let mut blockers = blocker_texts(&left.blockers).into_iter();
        rows.push(vec![kind, name, blockers.next().unwrap_or_default()]);
        rows.extend(blockers.map(|blocker| vec![String::new(), String::new(), blocker]));
    }
    let mut lines = columns(&rows);
    let unlisted: usize = causes.iter().skip(LISTED).map(|(_, others)| others + 1).sum();
    if unlisted > 0 {
        lines.push(format!("and {unlisted} more"));
    }
    lines
}

/// Returns the objects to list, each with the number of objects of the same kind that the same blockers keep. Only if there
/// are too many to list them all are they grouped.
fn causes<'a>(left: &[&'a Left]) -> Vec<(&'a Left, usize)> {
    if left.len() <= LISTED {
        return left.iter().map(|left| (*left, 0)).collect();
    }
    let mut causes: Vec<(&Left, usize)> = Vec::new();
    let mut known = HashMap::new();
    for left in left {
        let at = *known.entry((&left.object.kind, &left.blockers)).or_insert(causes.len());
        match causes.get_mut(at) {
            Some((_, others)) => *others += 1,
            None => causes.push((left, 0)),
        }
    }
    causes
}

fn hint(progress: &Progress, summary: &Summary) -> &'static str {
    let is_conflict = |blocker: &Blocker| matches!(blocker, Blocker::Refused { by: RefusedBy::Managers, .. });
    let is_finalizer = |blocker: &Blocker| matches!(blocker, Blocker::Finalizer { .. });
    match summary.status {
        _ if summary.lock_lost => "run the same command again when no other operation works on the release",
        Status::Failed
            if progress.operation == Some(Operation::Apply)
                && summary.left.iter().flat_map(|left| &left.blockers).any(is_conflict) =>
        {
            text::TAKE_OVER
        }
        Status::Failed if summary.proof.as_ref().is_some_and(|proof| !proof.left.is_empty()) => {
            "delete what is left with --policy FILE or --policy default, or drop the label with billhook forget"
        }
        Status::Failed if summary.proof.as_ref().is_some_and(|proof| !proof.unlisted.is_empty()) => {
            "run the same command as a user who may list all kinds"
        }
        Status::Failed => "fix the problem, then run the same command again to resume",
        Status::TimedOut if summary.left.iter().flat_map(|left| &left.blockers).any(is_finalizer) => {
            "check that the controllers of these finalizers are running, then run the same command again to resume"
        }
        _ => "run the same command again to resume",
    }
}

fn indent(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| format!("  {line}")).collect()
}
