//! The end of a run: what was done; or what is left, what blocks it, and how to go on.

use std::{collections::BTreeMap, time::Duration};

use billhook_engine::{Blocker, Left, Status, Summary};
use billhook_plan::Operation;

use crate::{
    output::Paint,
    render::{columns, count, duration, first, object, place},
};

use super::Applied;

/// How many objects are listed one by one.
const LISTED: usize = 20;

/// The lines of a summary.
#[derive(Default)]
pub(super) struct Lines {
    /// For standard output.
    pub(super) results: Vec<String>,
    /// For standard error.
    pub(super) problems: Vec<String>,
}

/// Says how a run ended. `paint` is that of standard output and of standard error.
pub(super) fn lines(
    summary: &Summary,
    subject: &str,
    operation: Operation,
    applied: Applied,
    (out, err): (Paint, Paint),
) -> Lines {
    let mut lines = Lines::default();
    if summary.status == Status::Done {
        lines.results.push(done(summary, subject, operation, applied, out));
    }
    remarks(summary, &mut lines.results);
    if summary.status != Status::Done {
        failure(summary, subject, operation, applied, err, &mut lines.problems);
    }
    lines
}

fn done(summary: &Summary, subject: &str, operation: Operation, applied: Applied, paint: Paint) -> String {
    let verb = match operation {
        Operation::Apply => "applied",
        Operation::Delete => "deleted",
    };
    let what = format!("{subject} {verb}");
    format!("{}: {}", paint.good(what.trim()), so_far(summary, operation, applied))
}

/// `3 created, 2 unchanged in 3.2s (24 requests)`.
fn so_far(summary: &Summary, operation: Operation, applied: Applied) -> String {
    let requests = usize::try_from(summary.requests.values().sum::<u64>()).unwrap_or(usize::MAX);
    let took = duration(Duration::from_millis(summary.elapsed_ms));
    let parts = match operation {
        Operation::Delete => vec![format!("{} gone", count(summary.gone, "object"))],
        Operation::Apply => {
            let counts = [
                (applied.created, "created"),
                (applied.configured, "configured"),
                (applied.adopted, "adopted"),
                (applied.patched, "patched"),
                (summary.unchanged, "unchanged"),
                (summary.gone, "pruned"),
            ];
            counts
                .into_iter()
                .filter(|(number, _)| *number > 0)
                .map(|(number, what)| format!("{number} {what}"))
                .collect()
        }
    };
    let parts = if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") };
    format!("{parts} in {took} ({})", count(requests, "request"))
}

/// What stays and what was done by force.
fn remarks(summary: &Summary, lines: &mut Vec<String>) {
    if !summary.finalizers_removed.is_empty() {
        lines.push(format!("finalizers removed by force from {}:", count(summary.finalizers_removed.len(), "object")));
        let row =
            |removed: &billhook_engine::FinalizersRemoved| vec![object(&removed.object), removed.finalizers.join(", ")];
        lines.extend(indent(first(&summary.finalizers_removed, LISTED, row)));
    }
    if !summary.recreated.is_empty() {
        lines.push(format!("{}, made anew by somebody else:", stays(summary.recreated.len())));
        lines.extend(indent(first(&summary.recreated, LISTED, |key| vec![object(key)])));
    }
    if !summary.uncovered.is_empty() {
        lines.push(format!("{}:", stays(summary.uncovered.len())));
        let row = |left: &billhook_plan::Uncovered| vec![object(&left.object), left.reason.clone()];
        lines.extend(indent(first(&summary.uncovered, LISTED, row)));
    }
}

fn stays(number: usize) -> String {
    format!("{} {}", count(number, "object"), if number == 1 { "stays" } else { "stay" })
}

fn failure(
    summary: &Summary,
    subject: &str,
    operation: Operation,
    applied: Applied,
    paint: Paint,
    lines: &mut Vec<String>,
) {
    let how = match summary.status {
        Status::TimedOut => "timed out",
        Status::Interrupted | Status::NotStarted => "interrupted",
        Status::Done | Status::Failed => "failed",
    };
    let of = if subject.is_empty() { String::new() } else { format!(" of {subject}") };
    let what = match (operation, summary.left.len()) {
        (_, 0) => format!("nothing is left to do{of}"),
        (Operation::Delete, 1) => format!("1 object{of} is left"),
        (Operation::Delete, many) => format!("{many} objects{of} are left"),
        (Operation::Apply, 1) => format!("1 object{of} is not done"),
        (Operation::Apply, many) => format!("{many} objects{of} are not done"),
    };
    lines.push(format!("{} {how}: {what}; {}", paint.bad("error:"), so_far(summary, operation, applied)));
    let (waiting, blocked): (Vec<&Left>, Vec<&Left>) =
        summary.left.iter().partition(|left| left.blockers.as_slice() == [Blocker::NotStarted]);
    lines.extend(listed(&blocked));
    lines.extend(not_started(&waiting));
    if let Some(error) = &summary.record_error {
        lines.push(format!("  the record of the release was not written: {error}"));
    }
    lines.push(format!("{} {}", paint.good("hint:"), how_to_go_on(summary, operation)));
}

/// Each object with what blocks it, one blocker a line.
fn listed(left: &[&Left]) -> Vec<String> {
    let mut rows = Vec::new();
    for left in left.iter().take(LISTED) {
        let (kind, name) = (left.object.kind.to_string(), place(&left.object));
        let mut blockers = left.blockers.iter().map(|blocker| blocker.to_string().replace('\n', " "));
        rows.push(vec![kind, name, blockers.next().unwrap_or_default()]);
        rows.extend(blockers.map(|blocker| vec![String::new(), String::new(), blocker]));
    }
    let mut lines = columns(&rows);
    if left.len() > LISTED {
        lines.push(format!("and {} more", left.len() - LISTED));
    }
    indent(lines)
}

/// Objects whose group was never begun, counted by group.
fn not_started(left: &[&Left]) -> Vec<String> {
    let mut order = Vec::new();
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for left in left {
        let number = groups.entry(&left.group).or_default();
        if *number == 0 {
            order.push(left.group.as_str());
        }
        *number += 1;
    }
    let line = |group: &str| {
        let number = groups.get(group).copied().unwrap_or_default();
        format!("group {group} was not started: {}", count(number, "object"))
    };
    indent(order.into_iter().map(line).collect())
}

fn how_to_go_on(summary: &Summary, operation: Operation) -> &'static str {
    let conflict = |left: &Left| {
        left.blockers
            .iter()
            .any(|b| matches!(b, Blocker::Refused { message, .. } if message.contains("conflict with \"")))
    };
    match summary.status {
        Status::Failed if operation == Operation::Apply && summary.left.iter().any(conflict) => {
            "--force-conflicts takes the fields over from their managers"
        }
        Status::Failed => "once that is mended, the same call goes on where it stopped",
        _ => "the same call goes on where it stopped",
    }
}

fn indent(lines: Vec<String>) -> Vec<String> {
    lines.into_iter().map(|line| format!("  {line}")).collect()
}
