//! The progress of an item, for people on call: the condition [`CONDITION`] contains which group of how many is being worked
//! on, how many of its objects remain, and what holds them up.
//!
//! [`ItemProgress`] puts the engine's [`Progress`] into words, and [`Pace`] limits how often they are written: a run that
//! ends at once writes none.

use std::fmt::Write as _;

use billhook_engine::{Blocker, Event, Goal, Hold, NodeProgress, NodeState, Progress, Status, blocker_texts};
use billhook_objects::ObjectKey;
use billhook_plan::text::list;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::{api::Condition, text::quote};

mod pace;
mod summary;

pub use pace::{Pace, Reports, while_running};
pub(crate) use summary::message;
use summary::objects;

/// The type of the condition with the progress of an item. It is `True` while the item is being worked on; then
/// `False`, with how the work ended as its reason.
pub const CONDITION: &str = "billhook.dev/Progressing";

/// How many objects a message names; the others are counted.
const NAMED: usize = 3;

/// How far the work on an item has come.
#[derive(Clone, Debug, Default)]
pub struct ItemProgress {
    run: Progress,
    /// The reason and message of the condition while the work is something other than a run of the engine.
    awaited: Option<(&'static str, String)>,
}

/// How many objects of a run are held up, by what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldCounts {
    /// By finalizers.
    pub finalizer: usize,
    /// Because they are not ready.
    pub readiness: usize,
    /// Because a request failed.
    pub refused: usize,
}

/// The progress of an item as its status contains it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether the item is still being worked on.
    pub running: bool,
    /// The reason of the condition.
    pub reason: &'static str,
    /// The message of the condition.
    pub message: String,
}

impl ItemProgress {
    /// Describes work other than a run of the engine.
    pub fn awaiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self { awaited: Some((reason, message.into())), ..Self::default() }
    }

    /// Updates the state with the next event of the engine.
    pub fn fold(&mut self, event: &Event) {
        self.run.fold(event);
    }

    /// Returns the reason of the condition: what the run does, what it waits for, or how it ended.
    pub fn reason(&self) -> &'static str {
        let ended = self.run.summary.as_ref().map(|summary| summary.status);
        match (ended, self.run.current()) {
            (Some(Status::Done), _) => "Succeeded",
            (Some(Status::Failed), _) => "Failed",
            (Some(Status::TimedOut), _) => "TimedOut",
            (Some(Status::Interrupted | Status::NotStarted), _) => "Interrupted",
            _ if !self.run.unavailable.is_empty() => "ServerAway",
            _ if let Some((reason, _)) = self.awaited => reason,
            (None, None) => "Preparing",
            (None, Some((_, node))) => node_reason(node, self.deletes()),
        }
    }

    /// Returns the message of the condition: where the run is and what holds it up, or how it ended.
    pub fn message(&self) -> String {
        if let Some(summary) = &self.run.summary {
            return message(summary, self.deletes(), NAMED);
        }
        let mut message = match self.run.current() {
            _ if let Some((_, message)) = &self.awaited => message.clone(),
            None => "computing the plan".to_owned(),
            Some((at, node)) => format!("{}: {}", self.place(at), node_message(node)),
        };
        for (cluster, reason) in &self.run.unavailable {
            let of = cluster.as_ref().map(|name| format!(" of target {name}")).unwrap_or_default();
            let _ = write!(message, "; the API server{of} is unavailable: {}", quote(reason));
        }
        message
    }

    /// Returns what the status of the item is to contain.
    pub fn report(&self) -> Report {
        Report { running: self.run.summary.is_none(), reason: self.reason(), message: self.message() }
    }

    /// Counts the objects of running groups that are held up, by what.
    pub fn hold_counts(&self) -> HoldCounts {
        let running = self.run.nodes.iter().filter(|node| node.state == NodeState::Running);
        running.flat_map(|node| node.held.values()).fold(HoldCounts::default(), |mut counts, hold| {
            *match hold {
                Hold::Finalizers(_) | Hold::Blocked(_) => &mut counts.finalizer,
                Hold::NotReady(_) | Hold::Failed(_) => &mut counts.readiness,
                Hold::Refused { .. } => &mut counts.refused,
            } += 1;
            counts
        })
    }

    /// `group 2 of 3, namespaced-resources`.
    pub(crate) fn place(&self, node: usize) -> String {
        let title = self.run.nodes.get(node).map(|node| node.title.as_str()).unwrap_or_default();
        format!("group {} of {}, {title}", node + 1, self.run.nodes.len())
    }

    /// Returns how many objects a group has.
    pub(crate) fn total(&self, node: usize) -> usize {
        self.run.nodes.get(node).map_or(0, |node| node.total)
    }

    /// Whether the run is a deletion.
    pub(crate) fn deletes(&self) -> bool {
        self.run.deletes()
    }
}

fn node_reason(node: &NodeProgress, deletes: bool) -> &'static str {
    let any = |is: fn(&Hold) -> bool| node.held.values().any(is);
    if any(|hold| matches!(hold, Hold::Refused { .. })) {
        "Refused"
    } else if any(is_of_finalizers) {
        "WaitingForFinalizers"
    } else if any(|hold| matches!(hold, Hold::NotReady(_) | Hold::Failed(_))) {
        "WaitingForReadiness"
    } else if deletes || node.goal == Goal::Gone {
        "Deleting"
    } else {
        "Applying"
    }
}

fn is_of_finalizers(hold: &Hold) -> bool {
    let is_finalizer = |blocker: &Blocker| matches!(blocker, Blocker::Finalizer { .. });
    match hold {
        Hold::Finalizers(_) => true,
        Hold::Blocked(blockers) => blockers.iter().any(is_finalizer),
        Hold::NotReady(_) | Hold::Failed(_) | Hold::Refused { .. } => false,
    }
}

/// `14 of 20 gone, 6 left: ConfigMap/a/b held by finalizer x.example/y`.
fn node_message(node: &NodeProgress) -> String {
    let reached = node.reached();
    let mut message = format!("{reached} of {} {}", node.total, node.goal);
    let left = node.total.saturating_sub(reached);
    if node.goal == Goal::Gone && left > 0 {
        let _ = write!(message, ", {left} left");
    }
    let not_ready = node.held.values().filter(|hold| matches!(hold, Hold::NotReady(_) | Hold::Failed(_))).count();
    if not_ready > 0 {
        let _ = write!(message, ", {not_ready} not ready");
    }
    if !node.held.is_empty() {
        let _ = write!(message, ": {}", objects(node.held.iter(), NAMED, |(object, hold)| held(object, hold)));
    }
    message
}

fn held(object: &ObjectKey, hold: &Hold) -> String {
    match hold {
        Hold::Finalizers(finalizers) => format!("{object} held by {}", list("finalizer", finalizers)),
        Hold::Blocked(blockers) => format!("{object}: {}", quote(&blocker_texts(blockers).join("; "))),
        Hold::NotReady(reason) => format!("{object} ({})", quote(reason)),
        Hold::Refused { message, retried: true, .. } => format!("{object} failed, retrying: {}", quote(message)),
        Hold::Refused { message, .. } | Hold::Failed(message) => format!("{object} failed: {}", quote(message)),
    }
}

impl Report {
    /// Returns the condition. It keeps the time of its last transition while its status stays the same.
    pub fn condition(&self, before: &[Condition], now: Timestamp) -> Condition {
        let status = if self.running { "True" } else { "False" };
        let same = before.iter().find(|condition| condition.r#type == CONDITION && condition.status == status);
        Condition {
            r#type: CONDITION.to_owned(),
            status: status.to_owned(),
            last_transition_time: same.map_or(Time(now), |condition| condition.last_transition_time.clone()),
            last_update_time: Time(now),
            reason: self.reason.to_owned(),
            message: self.message.clone(),
            codes: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
