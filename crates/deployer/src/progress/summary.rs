//! How a run ended, and texts that several messages share.

use std::fmt::Write as _;

use billhook_engine::{Left, Status, Summary};

use super::QUOTED;

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
        let _ = write!(message, "; release record not written: {}", clip(error, QUOTED));
    }
    message
}

fn done(summary: &Summary, deletes: bool) -> String {
    let kept = summary.uncovered.len() + summary.recreated.len();
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
    let blockers: Vec<_> = left.blockers.iter().map(|blocker| clip(&blocker.to_string(), QUOTED)).collect();
    if blockers.is_empty() { left.object.to_string() } else { format!("{}: {}", left.object, blockers.join(", ")) }
}

/// Joins the texts of the first objects, and counts the others.
pub(super) fn objects<T>(all: impl ExactSizeIterator<Item = T>, most: usize, text: impl Fn(T) -> String) -> String {
    let more = all.len().saturating_sub(most);
    let first = all.take(most).map(text).collect::<Vec<_>>().join("; ");
    if more == 0 { first } else { format!("{first}; and {more} more") }
}

/// Formats a count: `1 object`, `3 objects`.
pub(crate) fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

/// Formats a list: `finalizer a`, `finalizers a, b`.
pub(crate) fn list(what: &str, all: &[String]) -> String {
    let s = if all.len() == 1 { "" } else { "s" };
    format!("{what}{s} {}", all.join(", "))
}

/// Puts a text on one line and cuts it to at most `most` bytes.
pub(crate) fn clip(text: &str, most: usize) -> String {
    let text = text.trim().replace(['\n', '\r'], " ");
    if text.len() <= most {
        return text;
    }
    let cut = text.floor_char_boundary(most.saturating_sub('…'.len_utf8()));
    format!("{}…", &text[..cut])
}
