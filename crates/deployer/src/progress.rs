//! How far a run is, for somebody on call: which group of how many, how many objects are left in it, and what holds them.
//!
//! [`Progress`] is fed with every event of the engine and says it in a sentence; [`Pace`] decides when that sentence is
//! worth a request: a run that is over at once never writes one. It is written as the condition [`CONDITION`].

use std::{collections::BTreeMap, fmt, fmt::Write as _};

use billhook_engine::{Event, Status};
use billhook_objects::ObjectKey;
use billhook_plan::Operation;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::api::Condition;

mod pace;
mod summary;

pub use pace::{Pace, Reports, sink, while_running};
use summary::objects;
pub(crate) use summary::{clip, count, list, message};

/// The type of the condition that says how far the item is. `True` as long as it is worked on; then `False`, with the reason
/// `Succeeded`, `Failed`, `TimedOut` or `Interrupted` and what is left.
pub const CONDITION: &str = "billhook.dev/Progressing";

/// How many objects a message names; the others are counted.
const NAMED: usize = 3;
/// The longest text that a message quotes of what somebody else said, in bytes.
const QUOTED: usize = 256;

/// How far a run is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    deletes: bool,
    groups: Vec<Group>,
    /// Which API servers do not answer, by the name of the target, and why.
    away: BTreeMap<Option<String>, String>,
    ended: Option<(Status, String)>,
    /// What is waited for where no plan is carried out: why in one word, and for people.
    awaited: Option<(&'static str, String)>,
}

/// A node of the plan.
#[derive(Clone, Debug, Default)]
struct Group {
    title: String,
    total: usize,
    /// How many objects are applied, or gone.
    done: usize,
    ready: usize,
    deletes: bool,
    begun: bool,
    ended: bool,
    held: BTreeMap<ObjectKey, Hold>,
}

/// What keeps an object from being done.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hold {
    Finalizers(Vec<String>),
    NotReady(String),
    Refused(String),
}

/// How many objects of a run are held, by what: the values of a gauge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// By finalizers.
    pub finalizer: usize,
    /// Because they are not ready.
    pub readiness: usize,
    /// Because the API server refuses the request.
    pub refused: usize,
}

/// A progress as it is written to the status of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether the run goes on.
    pub running: bool,
    /// Why, in one word.
    pub reason: &'static str,
    /// Why, for people.
    pub message: String,
}

impl Progress {
    /// Something that is no plan is waited for.
    pub fn awaiting(reason: &'static str, message: impl Into<String>) -> Self {
        Self { awaited: Some((reason, message.into())), ..Self::default() }
    }

    /// Takes note of an event.
    pub fn see(&mut self, event: &Event) {
        match event {
            Event::Started { operation, nodes, .. } => {
                self.deletes = *operation == Operation::Delete;
                let group = |(title, total): &(String, usize)| Group {
                    title: title.clone(),
                    total: *total,
                    deletes: self.deletes,
                    ..Group::default()
                };
                self.groups = nodes.iter().map(group).collect();
            }
            Event::ServerAway { cluster, reason } => {
                self.away.insert(cluster.clone(), clip(reason, QUOTED));
            }
            Event::ServerBack { cluster } => {
                self.away.remove(cluster);
            }
            Event::Finished(summary) => {
                self.ended = Some((summary.status, summary::message(summary, self.deletes, NAMED)))
            }
            Event::NodeStarted { node, .. }
            | Event::Applied { node, .. }
            | Event::Ready { node, .. }
            | Event::Waiting { node, .. }
            | Event::Deleting { node, .. }
            | Event::Gone { node, .. }
            | Event::Appeared { node, .. }
            | Event::Recreated { node, .. }
            | Event::FinalizersRemoved { node, .. }
            | Event::Refused { node, .. }
            | Event::NodeFinished { node, .. } => {
                if let Some(group) = self.groups.get_mut(*node) {
                    group.see(event);
                }
            }
            _ => {}
        }
    }

    /// Where the run is and what holds it, in one word: the reason of a condition.
    pub fn reason(&self) -> &'static str {
        match (&self.ended, self.current()) {
            (Some((Status::Done, _)), _) => "Succeeded",
            (Some((Status::Failed, _)), _) => "Failed",
            (Some((Status::TimedOut, _)), _) => "TimedOut",
            (Some((Status::Interrupted | Status::NotStarted, _)), _) => "Interrupted",
            _ if !self.away.is_empty() => "ServerAway",
            _ if let Some((reason, _)) = self.awaited => reason,
            (None, None) => "Preparing",
            (None, Some((_, group))) => group.reason(),
        }
    }

    /// Where the run is and what holds it, for people; how it ended, once it is over.
    pub fn message(&self) -> String {
        if let Some((_, message)) = &self.ended {
            return message.clone();
        }
        let mut message = match self.current() {
            _ if let Some((_, message)) = &self.awaited => message.clone(),
            None => "the plan is being made".to_owned(),
            Some((at, group)) => {
                format!("group {} of {}, {}: {group}", at + 1, self.groups.len(), group.title)
            }
        };
        for (cluster, reason) in &self.away {
            let of = cluster.as_ref().map(|name| format!(" of target {name}")).unwrap_or_default();
            let _ = write!(message, "; the API server{of} does not answer: {reason}");
        }
        message
    }

    /// What is written to the status of the item.
    pub fn report(&self) -> Report {
        Report { running: self.ended.is_none(), reason: self.reason(), message: self.message() }
    }

    /// How many objects of the groups that are under way are held, by what.
    pub fn held(&self) -> Held {
        let running = self.groups.iter().filter(|group| group.begun && !group.ended && self.ended.is_none());
        running.flat_map(|group| group.held.values()).fold(Held::default(), |mut sum, hold| {
            *match hold {
                Hold::Finalizers(_) => &mut sum.finalizer,
                Hold::NotReady(_) => &mut sum.readiness,
                Hold::Refused(_) => &mut sum.refused,
            } += 1;
            sum
        })
    }

    /// `group 2 of 3, namespaced-resources`.
    pub(crate) fn place(&self, node: usize) -> String {
        let title = self.groups.get(node).map(|group| group.title.as_str()).unwrap_or_default();
        format!("group {} of {}, {title}", node + 1, self.groups.len())
    }

    /// How many objects a node holds by now.
    pub(crate) fn total(&self, node: usize) -> usize {
        self.groups.get(node).map_or(0, |group| group.total)
    }

    /// Whether the run is a deletion.
    pub(crate) fn deletes(&self) -> bool {
        self.deletes
    }

    /// The group that is under way, or else the one that was last.
    fn current(&self) -> Option<(usize, &Group)> {
        let running = self.groups.iter().enumerate().find(|(_, group)| group.begun && !group.ended);
        running.or_else(|| self.groups.iter().enumerate().rfind(|(_, group)| group.begun))
    }
}

impl Group {
    fn see(&mut self, event: &Event) {
        match event {
            Event::NodeStarted { objects, .. } => {
                self.begun = true;
                self.total = *objects;
            }
            Event::Applied { object, .. } => {
                self.done += 1;
                self.held.remove(object);
            }
            Event::Ready { object, .. } => {
                self.ready += 1;
                self.held.remove(object);
            }
            Event::Gone { object, .. } => {
                self.deletes = true;
                self.done += 1;
                self.held.remove(object);
            }
            Event::Recreated { object, .. } => {
                self.held.remove(object);
            }
            Event::Appeared { .. } => self.total += 1,
            Event::Waiting { object, reason, .. } => {
                self.held.insert(object.clone(), Hold::NotReady(clip(reason, QUOTED)));
            }
            Event::Refused { object, message, .. } => {
                self.held.insert(object.clone(), Hold::Refused(clip(message, QUOTED)));
            }
            Event::Deleting { object, finalizers, .. } => {
                self.deletes = true;
                if finalizers.is_empty() {
                    self.held.remove(object);
                } else {
                    self.held.insert(object.clone(), Hold::Finalizers(finalizers.clone()));
                }
            }
            Event::FinalizersRemoved { object, finalizers, .. } => {
                let left = match self.held.remove(object) {
                    Some(Hold::Finalizers(held)) => {
                        held.into_iter().filter(|name| !finalizers.contains(name)).collect()
                    }
                    _ => Vec::new(),
                };
                if !left.is_empty() {
                    self.held.insert(object.clone(), Hold::Finalizers(left));
                }
            }
            Event::NodeFinished { .. } => self.ended = true,
            _ => {}
        }
    }

    fn reason(&self) -> &'static str {
        let any = |is: fn(&Hold) -> bool| self.held.values().any(is);
        if any(|hold| matches!(hold, Hold::Refused(_))) {
            "Refused"
        } else if any(|hold| matches!(hold, Hold::Finalizers(_))) {
            "WaitingForFinalizers"
        } else if any(|hold| matches!(hold, Hold::NotReady(_))) {
            "WaitingForReadiness"
        } else if self.deletes {
            "Deleting"
        } else {
            "Applying"
        }
    }
}

/// `14 of 20 gone, 6 left: ConfigMap/a/b held by finalizer x.example/y`.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unready = self.held.values().filter(|hold| matches!(hold, Hold::NotReady(_))).count();
        match self.total.saturating_sub(self.done) {
            0 if self.deletes => write!(f, "{} of {} gone", self.done, self.total)?,
            left if self.deletes => write!(f, "{} of {} gone, {left} left", self.done, self.total)?,
            // A group that applies nothing waits for what earlier ones have applied.
            _ if self.done == 0 && self.ready + unready > 0 => write!(f, "{} of {} ready", self.ready, self.total)?,
            _ => write!(f, "{} of {} applied", self.done, self.total)?,
        }
        if unready > 0 {
            write!(f, ", {unready} not ready")?;
        }
        if !self.held.is_empty() {
            write!(f, ": {}", objects(self.held.iter(), NAMED, |(object, hold)| format!("{object} {hold}")))?;
        }
        Ok(())
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finalizers(names) => write!(f, "held by {}", list("finalizer", names)),
            Self::NotReady(reason) => write!(f, "({reason})"),
            Self::Refused(message) => write!(f, "refused: {message}"),
        }
    }
}

impl Report {
    /// The condition that says this; it keeps the time since when its status is what it is.
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
