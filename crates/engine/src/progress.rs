//! The state of a run, folded from its events.

use std::collections::BTreeMap;

use billhook_objects::ObjectKey;
use billhook_plan::Operation;

use crate::{ApplyResult, Blocker, Event, Goal, Status, Summary};

/// The state of a run. Every front end renders this value; none folds the events itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// What the plan does; `None` before [`Event::Started`].
    pub operation: Option<Operation>,
    /// The release, as `namespace/name`.
    pub release: Option<String>,
    /// The nodes of the plan, in its order.
    pub nodes: Vec<NodeProgress>,
    /// The targets whose API server is unavailable, each with the reason; `None` is the release's own cluster.
    pub unavailable: BTreeMap<Option<String>, String>,
    /// How the run ended.
    pub summary: Option<Summary>,
}

/// The state of a node of the plan.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeProgress {
    /// The title.
    pub title: String,
    /// Whether the node has started or ended.
    pub state: NodeState,
    /// What its objects are to become.
    pub goal: Goal,
    /// How many objects it has, including those that appeared during a deletion.
    pub total: usize,
    /// How many objects were applied, by what the request did.
    pub applied: BTreeMap<ApplyResult, usize>,
    /// How many objects became ready.
    pub ready: usize,
    /// How many objects are gone.
    pub gone: usize,
    /// How many objects are being deleted without that the node waits for them.
    pub requested: usize,
    /// The objects that something holds up.
    pub held: BTreeMap<ObjectKey, Hold>,
}

/// Whether a node has started or ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It has not started.
    Pending,
    /// It is being carried out.
    Running,
    /// It has ended.
    Ended {
        /// How it ended.
        status: Status,
        /// How long it took, in milliseconds.
        elapsed_ms: u64,
    },
}

/// What keeps an object from reaching the goal of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The object is being deleted and has these finalizers.
    Finalizers(Vec<String>),
    /// This keeps the object from being gone.
    Blocked(Vec<Blocker>),
    /// The object is not ready, for this reason.
    NotReady(String),
    /// The object failed and will not become ready by itself, for this reason.
    Failed(String),
    /// A request for the object failed.
    Refused {
        /// The error.
        message: String,
        /// Whether the engine retries the request.
        retried: bool,
        /// The finalizers that held the object before: removing them by force may be what failed.
        finalizers: Vec<String>,
    },
}

impl Progress {
    /// Updates the state with the next event of the run.
    pub fn fold(&mut self, event: &Event) {
        match event {
            Event::Started { operation, release, nodes, goals, .. } => {
                let goal = |node| goals.get(node).copied().unwrap_or_else(|| Goal::of(*operation));
                let node = |(at, (title, total)): (usize, &(String, usize))| NodeProgress::new(title, goal(at), *total);
                *self = Self {
                    operation: Some(*operation),
                    release: release.clone(),
                    nodes: nodes.iter().enumerate().map(node).collect(),
                    ..Self::default()
                };
            }
            Event::ServerAway { cluster, reason } => {
                self.unavailable.insert(cluster.clone(), reason.clone());
            }
            Event::ServerBack { cluster } => {
                self.unavailable.remove(cluster);
            }
            Event::Finished(summary) => self.summary = Some((**summary).clone()),
            _ => {
                if let Some(node) = event.node().and_then(|node| self.nodes.get_mut(node)) {
                    node.fold(event);
                }
            }
        }
    }

    /// Whether the run is a deletion.
    pub fn deletes(&self) -> bool {
        matches!(self.operation, Some(Operation::Delete | Operation::Clean))
    }

    /// Counts the objects of all nodes that were applied, by what the request did.
    pub fn applied(&self) -> BTreeMap<ApplyResult, usize> {
        let mut sum = BTreeMap::new();
        for (result, number) in self.nodes.iter().flat_map(|node| &node.applied) {
            *sum.entry(*result).or_default() += number;
        }
        sum
    }

    /// Returns the first node that is running, or else the last one that ended, with its index.
    pub fn current(&self) -> Option<(usize, &NodeProgress)> {
        let nodes = || self.nodes.iter().enumerate();
        let running = nodes().find(|(_, node)| node.state == NodeState::Running);
        running.or_else(|| nodes().rfind(|(_, node)| node.state != NodeState::Pending))
    }
}

impl NodeProgress {
    fn new(title: &str, goal: Goal, total: usize) -> Self {
        Self {
            title: title.to_owned(),
            state: NodeState::Pending,
            goal,
            total,
            applied: BTreeMap::new(),
            ready: 0,
            gone: 0,
            requested: 0,
            held: BTreeMap::new(),
        }
    }

    /// Counts the objects that have reached the goal.
    pub fn reached(&self) -> usize {
        match self.goal {
            Goal::Applied | Goal::Patched => self.applied.values().sum(),
            Goal::Ready => self.ready,
            Goal::Gone => self.gone,
            Goal::Done => self.applied.values().sum::<usize>() + self.requested + self.gone,
        }
    }

    fn fold(&mut self, event: &Event) {
        match event {
            Event::NodeStarted { objects, .. } => (self.state, self.total) = (NodeState::Running, *objects),
            Event::NodeFinished { status, elapsed_ms, .. } => {
                self.state = NodeState::Ended { status: *status, elapsed_ms: *elapsed_ms };
            }
            Event::Applied { object, result, .. } => {
                self.aims(if *result == ApplyResult::Patched { Goal::Patched } else { Goal::Applied });
                *self.applied.entry(*result).or_default() += 1;
                self.held.remove(object);
            }
            Event::Ready { object, .. } => {
                self.waits_for_readiness();
                self.ready += 1;
                self.held.remove(object);
            }
            Event::Waiting { object, reason, .. } => {
                self.waits_for_readiness();
                self.hold(object, Some(Hold::NotReady(reason.clone())));
            }
            Event::Failed { object, reason, .. } => {
                self.waits_for_readiness();
                self.hold(object, Some(Hold::Failed(reason.clone())));
            }
            Event::Refused { object, message, retried, .. } => {
                let finalizers = self.finalizers(object);
                self.hold(object, Some(Hold::Refused { message: message.clone(), retried: *retried, finalizers }));
            }
            Event::Deleting { .. }
            | Event::Blocked { .. }
            | Event::Gone { .. }
            | Event::Appeared { .. }
            | Event::Recreated { .. }
            | Event::Kept { .. }
            | Event::FinalizersRemoved { .. } => self.fold_deletion(event),
            // They change nothing that is shown, or are not about one node.
            Event::Started { .. }
            | Event::ServerAway { .. }
            | Event::ServerBack { .. }
            | Event::Finished(_)
            | Event::NamespaceCreated { .. }
            | Event::PollOnly { .. }
            | Event::ListFailed { .. }
            | Event::Ignored { .. }
            | Event::SnapshotReleased { .. }
            | Event::GracePeriodEnded { .. } => {}
        }
    }

    /// Folds an event about an object that is deleted.
    fn fold_deletion(&mut self, event: &Event) {
        match event {
            Event::Deleting { object, .. } if self.goal == Goal::Done => {
                self.requested += 1;
                self.held.remove(object);
            }
            Event::Deleting { object, finalizers, .. } => {
                self.goal = Goal::Gone;
                self.hold(object, Hold::by_finalizers(finalizers.clone()));
            }
            Event::Blocked { object, blockers, .. } => self.hold(object, Hold::of(blockers)),
            Event::Gone { object, .. } => {
                self.aims(Goal::Gone);
                self.gone += 1;
                self.held.remove(object);
            }
            Event::Appeared { .. } => {
                self.goal = Goal::Gone;
                self.total += 1;
            }
            Event::Kept { object, .. } => {
                self.total = self.total.saturating_sub(1);
                self.held.remove(object);
            }
            Event::FinalizersRemoved { object, finalizers: removed, .. } => {
                let mut remaining = self.finalizers(object);
                remaining.retain(|finalizer| !removed.contains(finalizer));
                self.hold(object, Hold::by_finalizers(remaining));
            }
            Event::Recreated { object, .. } => drop(self.held.remove(object)),
            _ => {}
        }
    }

    /// Sets what holds an object; nothing any more if it is none.
    fn hold(&mut self, object: &ObjectKey, hold: Option<Hold>) {
        match hold {
            Some(hold) => drop(self.held.insert(object.clone(), hold)),
            None => drop(self.held.remove(object)),
        }
    }

    /// Returns the finalizers that hold an object, which is not held by them any more.
    fn finalizers(&mut self, object: &ObjectKey) -> Vec<String> {
        self.held.remove(object).map(Hold::into_finalizers).unwrap_or_default()
    }

    /// Takes the goal from an event, unless the node has several.
    fn aims(&mut self, goal: Goal) {
        if self.goal != Goal::Done {
            self.goal = goal;
        }
    }

    fn waits_for_readiness(&mut self) {
        if self.applied.is_empty() {
            self.aims(Goal::Ready);
        }
    }
}

impl Hold {
    /// Returns what finalizers hold; none if there are none.
    fn by_finalizers(finalizers: Vec<String>) -> Option<Self> {
        (!finalizers.is_empty()).then_some(Self::Finalizers(finalizers))
    }

    /// Returns what blockers hold; none if there are none.
    fn of(blockers: &[Blocker]) -> Option<Self> {
        let all: Option<Vec<_>> = blockers.iter().cloned().map(Blocker::into_finalizer).collect();
        let hold = all.map_or_else(|| Self::Blocked(blockers.to_vec()), Self::Finalizers);
        (!blockers.is_empty()).then_some(hold)
    }

    fn into_finalizers(self) -> Vec<String> {
        match self {
            Self::Finalizers(finalizers) | Self::Refused { finalizers, .. } => finalizers,
            Self::Blocked(blockers) => blockers.into_iter().filter_map(Blocker::into_finalizer).collect(),
            Self::NotReady(_) | Self::Failed(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
