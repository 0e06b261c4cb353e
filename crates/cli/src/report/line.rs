//! One event as a line of text.

use billhook_engine::{ApplyResult, Event, Status};

use crate::{
    output::Paint,
    render::{count, duration, object},
};

/// Where a line goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// What was done: standard output.
    Result,
    /// How it goes: standard error, unless a live view shows it.
    Progress,
    /// What is worth knowing in any case: standard error.
    Note,
}

/// A line and where it goes.
pub(super) struct Line {
    pub(super) stream: Stream,
    pub(super) text: String,
}

fn result(text: String) -> Option<Line> {
    Some(Line { stream: Stream::Result, text })
}

fn progress(text: String) -> Option<Line> {
    Some(Line { stream: Stream::Progress, text })
}

fn note(text: String) -> Option<Line> {
    Some(Line { stream: Stream::Note, text })
}

/// An event as a line; none where it says nothing by itself. `paint` is that of standard output and of standard error.
pub(super) fn line(event: &Event, groups: usize, (out, err): (Paint, Paint)) -> Option<Line> {
    match event {
        Event::Started { .. } | Event::Finished(_) => None,
        Event::NodeStarted { node, title, objects } => {
            let place = group(*node, groups, title);
            progress(err.dim(&format!("{place}: {}", count(*objects, "object"))))
        }
        Event::Applied { object: key, result: what, .. } => {
            let (verb, paint): (_, fn(Paint, &str) -> String) = match what {
                ApplyResult::Created => ("created", Paint::good),
                ApplyResult::Configured => ("configured", Paint::good),
                ApplyResult::Adopted => ("adopted", Paint::good),
                ApplyResult::Patched => ("patched", Paint::good),
                ApplyResult::Unchanged => ("unchanged", Paint::dim),
            };
            result(format!("{} {}", paint(out, verb), object(key)))
        }
        Event::Ready { object: key, .. } => result(format!("{} {}", out.good("ready"), object(key))),
        Event::Gone { object: key, .. } => result(format!("{} {}", out.good("deleted"), object(key))),
        Event::FinalizersRemoved { object: key, finalizers, .. } => {
            let what = list("finalizer", finalizers);
            result(format!("{} {what} from {}", out.warn("removed by force"), object(key)))
        }
        Event::Waiting { object: key, reason, .. } => {
            progress(format!("{} {}: {reason}", err.warn("waiting for"), object(key)))
        }
        Event::Deleting { object: key, finalizers, .. } => {
            let why = if finalizers.is_empty() {
                String::new()
            } else {
                format!(" (waits for {})", list("finalizer", finalizers))
            };
            progress(format!("{} {}{why}", err.warn("deleting"), object(key)))
        }
        Event::Appeared { object: key, .. } => {
            note(format!("{} {}: it is deleted too", err.warn("appeared"), object(key)))
        }
        Event::Recreated { object: key, .. } => {
            note(format!("{} {}: somebody else has made it anew", err.warn("kept"), object(key)))
        }
        Event::Refused { object: key, message, retried, .. } => {
            let again = if *retried { " (trying again)" } else { "" };
            let word = if *retried { err.warn("refused") } else { err.bad("refused") };
            note(format!("{word} {}: {message}{again}", object(key)))
        }
        Event::ServerAway { cluster, reason } => {
            note(format!("{} {}: {reason}; waiting for it", err.warn("away"), server(cluster.as_deref())))
        }
        Event::ServerBack { cluster } => note(format!("{} {}", err.good("back"), server(cluster.as_deref()))),
        Event::PollOnly { reason, .. } => note(format!("{} {reason}", err.warn("reading one by one:"))),
        Event::NodeFinished { node, title, status, objects, elapsed_ms } => {
            let place = group(*node, groups, title);
            let took = duration(std::time::Duration::from_millis(*elapsed_ms));
            let end = ended(*status, err);
            progress(format!("{}: {end}, {} after {took}", err.dim(&place), count(*objects, "object")))
        }
    }
}

fn group(node: usize, groups: usize, title: &str) -> String {
    format!("group {}/{} {title}", node + 1, groups.max(node + 1))
}

fn server(cluster: Option<&str>) -> String {
    cluster.map_or_else(|| "the API server".to_owned(), |name| format!("the API server of target {name}"))
}

/// How a group ended.
pub(super) fn ended(status: Status, paint: Paint) -> String {
    match status {
        Status::Done => paint.good("done"),
        Status::NotStarted => paint.warn("not started"),
        Status::Interrupted => paint.warn("interrupted"),
        Status::TimedOut => paint.bad("timed out"),
        Status::Failed => paint.bad("failed"),
    }
}

/// `finalizer a`, `finalizers a, b`.
pub(super) fn list(what: &str, all: &[String]) -> String {
    let s = if all.len() == 1 { "" } else { "s" };
    format!("{what}{s} {}", all.join(", "))
}
