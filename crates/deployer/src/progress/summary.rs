//! How a run ended.

use std::fmt::Write as _;

use billhook_engine::{Left, Status, Summary, blocker_texts};
use billhook_plan::text::count;

use crate::text::quote;

/// Describes how a run ended: what was done, or what remains and why. It names at most `most` objects and counts the others.
pub(crate) fn message(summary: &Summary, deletes: bool, most: usize) -> String {
    let how = match summary.status {
        Status::Done => return done(summary, deletes),
        Status::TimedOut => "time limit reached",
        Status::Failed => "failed",
        Status::Interrupted | Status::NotStarted => "interrupted",
    };
    let blocked = summary.blocked();
    let not_started = summary.left.len() - blocked.len();
    let what = if deletes { "left" } else { "not done" };
    let mut message = format!("{how}: {} {what}", count(summary.left.len(), "object"));
    if !blocked.is_empty() {
        let _ = write!(message, ": {}", objects(blocked.iter(), most, |left| one(left)));
    }
    if not_started > 0 {
        let _ = write!(message, "; {not_started} in groups that were not started");
    }
    if let Some(error) = &summary.record_error {
        let _ = write!(message, "; release record not written: {}", quote(error));
    }
    message
}

fn done(summary: &Summary, deletes: bool) -> String {
    let uncovered = summary.uncovered.iter().filter(|uncovered| uncovered.deleted_with.is_none());
    let kept = uncovered.count() + summary.recreated.len();
    let counts = if deletes {
        [(summary.gone, "gone"), (kept, "kept"), (0, "")]
    } else {
        [(summary.applied, "applied"), (summary.unchanged, "unchanged"), (summary.gone, "gone")]
    };
    let parts: Vec<_> =
        counts.iter().filter(|(number, _)| *number > 0).map(|(number, what)| format!("{number} {what}")).collect();
    if parts.is_empty() { "nothing to do".to_owned() } else { parts.join(", ") }
}

/// `ConfigMap/a/b: finalizer x.example/y (set by manager)`.
fn one(left: &Left) -> String {
    let blockers: Vec<_> = blocker_texts(&left.blockers).iter().map(|text| quote(text)).collect();
    if blockers.is_empty() { left.object.to_string() } else { format!("{}: {}", left.object, blockers.join(", ")) }
}

/// Joins the texts of the first objects, and counts the others.
pub(super) fn objects<T>(all: impl ExactSizeIterator<Item = T>, most: usize, text: impl Fn(T) -> String) -> String {
    let more = all.len().saturating_sub(most);
    let first = all.take(most).map(text).collect::<Vec<_>>().join("; ");
    if more == 0 { first } else { format!("{first}; and {more} more") }
}
