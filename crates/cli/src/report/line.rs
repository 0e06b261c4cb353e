//! An event as a line of text.

use std::time::Duration;

use billhook_engine::{ApplyResult, Event, NodeProgress, NodeState, Progress, Status};
use billhook_objects::ObjectKey;
use billhook_plan::UncoveredCause;

use crate::{
    output::Paint,
    render::{count, duration, list, object},
};

use super::hold::held;

/// More groups than this are not shown one by one.
pub(super) const MANY: usize = 20;
/// How many groups a reminder names.
const REMINDED: usize = 10;

/// The kind of a line, which decides where it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Something was done: standard output.
    Result,
    /// Something is in progress: standard error, unless a live view shows it.
    Progress,
    /// Something that the user must always see: standard error.
    Note,
}

/// A line of output.
pub(super) struct Line {
    pub(super) stream: Stream,
    pub(super) text: String,
}

/// Returns the line for an event, if it has one, after the progress was updated with it. `out` and `err` paint standard
/// output and standard error.
pub(super) fn line(event: &Event, progress: &Progress, (out, err): (Paint, Paint)) -> Option<Line> {
    let nodes = progress.nodes.len();
    let (stream, text) = match event {
        // The summary follows the last event, and objects that are not ready are only mentioned after a while.
        Event::Started { .. } | Event::Waiting { .. } | Event::Blocked { .. } | Event::Finished(_) => return None,
        Event::NamespaceCreated { object: key } => (Stream::Result, format!("{} {}", out.good("created"), object(key))),
        // With many groups, one with a single object is only worth a line if it fails: the object has its own.
        Event::NodeStarted { objects: 0..=1, .. }
        | Event::NodeFinished { objects: 0..=1, status: Status::Done, .. }
            if nodes > MANY =>
        {
            return None;
        }
        Event::NodeStarted { node, title, objects } => {
            let group = group(*node, nodes, title);
            (Stream::Progress, err.dim(&format!("{group}: {}", count(*objects, "object"))))
        }
        Event::Applied { object: key, result, .. } => {
            let verb = verb(*result);
            let verb = if *result == ApplyResult::Unchanged { out.dim(verb) } else { out.good(verb) };
            (Stream::Result, format!("{verb} {}", object(key)))
        }
        Event::Ready { object: key, .. } => (Stream::Result, format!("{} {}", out.good("ready"), object(key))),
        Event::Gone { object: key, .. } => (Stream::Result, format!("{} {}", out.good("deleted"), object(key))),
        Event::FinalizersRemoved { object: key, finalizers, .. } => {
            let finalizers = list("finalizer", finalizers);
            (Stream::Result, format!("{} {finalizers} from {}", out.warn("force-removed"), object(key)))
        }
        Event::GracePeriodEnded { object: key, .. } => {
            let what = "without waiting for its node";
            (Stream::Result, format!("{} {} {what}", out.warn("force-deleted"), object(key)))
        }
        Event::Deleting { object: key, finalizers, .. } => {
            let waits = match &finalizers[..] {
                [] => String::new(),
                finalizers => format!(" (waiting for {})", list("finalizer", finalizers)),
            };
            (Stream::Progress, format!("{} {}{waits}", err.warn("deleting"), object(key)))
        }
        Event::Appeared { object: key, .. } => {
            (Stream::Note, format!("{} {}: it will be deleted too", err.warn("appeared"), object(key)))
        }
        Event::Recreated { object: key, .. } => {
            let why = "another client recreated it, and it no longer belongs to the release";
            (Stream::Note, format!("{} {}: {why}", err.warn("kept"), object(key)))
        }
        Event::Ignored { object: key, .. } => {
            (Stream::Note, format!("{} {}: it was created too late for this stage", err.warn("ignored"), object(key)))
        }
        Event::Kept { object: key, cause: UncoveredCause::NamespaceGone, .. } => {
            let why = "its namespace does not exist any more, so that its finalizers cannot be removed";
            (Stream::Note, format!("{} {}: {why}", err.warn("ignored"), object(key)))
        }
        Event::Kept { object: key, .. } => {
            let why = "it was annotated to be kept after the plan was made";
            (Stream::Note, format!("{} {}: {why}", err.warn("kept"), object(key)))
        }
        Event::SnapshotReleased { object: key, .. } => {
            let what = "annotated, so that the CSI sidecar deletes its snapshot";
            (Stream::Result, format!("{} {}: {what}", out.warn("released"), object(key)))
        }
        Event::Refused { object: key, message, retried: true, .. } => {
            (Stream::Note, format!("{} {}: {message} (retrying)", err.warn("failed"), object(key)))
        }
        Event::Refused { object: key, message, .. } | Event::Failed { object: key, reason: message, .. } => {
            (Stream::Note, format!("{} {}: {message}", err.bad("failed"), object(key)))
        }
        Event::ServerAway { cluster, reason } => {
            let what = err.warn("API server unavailable");
            (Stream::Note, format!("{what}{}: {reason}; waiting for it to recover", of(cluster.as_deref())))
        }
        Event::ServerBack { cluster } => {
            (Stream::Note, format!("{}{}", err.good("API server available again"), of(cluster.as_deref())))
        }
        Event::PollOnly { reason, .. } => {
            (Stream::Note, format!("{} instead of watching: {reason}", err.warn("polling")))
        }
        Event::ListFailed { reason, retried, .. } => {
            let retried = if *retried { " (retrying)" } else { "" };
            (Stream::Note, format!("{} {reason}{retried}", err.warn("failed to list")))
        }
        Event::NodeFinished { node, title, status, objects, elapsed_ms } => {
            let group = err.dim(&group(*node, nodes, title));
            let elapsed = duration(Duration::from_millis(*elapsed_ms));
            let reached = match progress.nodes.get(*node) {
                Some(node) if *status == Status::Done => count(node.reached(), "object"),
                Some(node) => reached(node),
                None => count(*objects, "object"),
            };
            (Stream::Progress, format!("{group}: {}, {reached} after {elapsed}", ended(*status, err)))
        }
    };
    Some(Line { stream, text })
}

/// Returns the line for an object that the run has waited for for a while.
pub(super) fn waiting(key: &ObjectKey, reason: &str, paint: Paint) -> String {
    format!("{} {}: {reason}", paint.warn("waiting for"), object(key))
}

/// Returns a line for each group that is being worked on: how far it is, and what it waits for.
pub(super) fn reminders(progress: &Progress, paint: Paint) -> Vec<String> {
    let nodes = progress.nodes.iter().enumerate().filter(|(_, node)| node.state == NodeState::Running);
    let more = nodes.clone().count().saturating_sub(REMINDED);
    let line = |(at, node): (usize, &NodeProgress)| {
        let group = paint.dim(&group(at, progress.nodes.len(), &node.title));
        let reached = reached(node);
        match held(node) {
            held if held.is_empty() => format!("{group}: {reached}"),
            held => format!("{group}: {reached}; waiting for {held}"),
        }
    };
    let rest = (more > 0).then(|| format!("and {} more", count(more, "group")));
    nodes.take(REMINDED).map(line).chain(rest).collect()
}

/// Returns how many objects of a group have reached its goal: `3 of 4 ready`.
fn reached(node: &NodeProgress) -> String {
    format!("{} of {} {}", node.reached(), node.total, node.goal)
}

fn group(node: usize, nodes: usize, title: &str) -> String {
    format!("group {}/{} {title}", node + 1, nodes.max(node + 1))
}

fn of(cluster: Option<&str>) -> String {
    cluster.map(|name| format!(" (target {name})")).unwrap_or_default()
}

/// What a request to apply an object did, as a participle.
pub(super) fn verb(result: ApplyResult) -> &'static str {
    match result {
        ApplyResult::Created => "created",
        ApplyResult::Configured => "configured",
        ApplyResult::Adopted => "adopted",
        ApplyResult::Recreated => "recreated",
        ApplyResult::Patched => "patched",
        ApplyResult::Unchanged => "unchanged",
    }
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
