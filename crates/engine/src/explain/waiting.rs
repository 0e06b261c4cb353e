//! The root causes that a run names while it waits for deletions: for people who watch it, and for the conditions of DeployItems.

use std::{
    convert::Infallible,
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use billhook_cluster::Cluster;
use billhook_objects::ObjectKey;
use billhook_plan::{Plan, Work};
use tokio::time::{Instant, sleep, sleep_until};

use super::causes::{Blocked, add_within, is_of_deletion};
use crate::{Blocker, Event, Hold, NodeState, Progress, RunOptions, Sink, blockers};

/// How long nothing may progress before root causes are looked for. Most deletions are done sooner, and send nothing for it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a root cause is not looked for again.
const PAUSE: Duration = Duration::from_secs(60);
/// How many requests are sent each time, with those for the kinds of the cluster.
const REQUESTS: usize = 28;
/// How many objects are told about: those that front ends name.
const NAMED: usize = 20;

/// What a run is waiting for.
pub(crate) struct Waiting {
    state: Arc<Mutex<State>>,
    sink: Sink,
}

struct State {
    progress: Progress,
    moved: Instant,
}

/// An object of a node that something holds.
type Held = (usize, ObjectKey, Vec<Blocker>);

impl Waiting {
    /// Follows the events of a run that was announced: returns the options with which to run it.
    pub(crate) fn new(announced: &Event, options: &RunOptions) -> (Self, RunOptions) {
        let mut progress = Progress::default();
        progress.fold(announced);
        let state = Arc::new(Mutex::new(State { progress, moved: Instant::now() }));
        let waiting = Self { state: Arc::clone(&state), sink: Arc::clone(&options.sink) };
        let sink = Arc::clone(&options.sink);
        let followed = Arc::new(move |event: Event| {
            lock(&state).fold(&event);
            sink(event);
        });
        (waiting, RunOptions { sink: followed, ..options.clone() })
    }

    /// Names the root causes of what a run waits for, whenever nothing has progressed for some time.
    pub(crate) async fn name_causes(&self, plan: &Plan, cluster: &Cluster) -> Infallible {
        let is_own = |node: &billhook_plan::Node| node.cluster.is_none() && matches!(node.work, Work::Delete(_));
        if !plan.nodes.iter().any(is_own) {
            return pending().await;
        }
        loop {
            let due = lock(&self.state).moved + PATIENCE;
            if due > Instant::now() {
                sleep_until(due).await;
                continue;
            }
            // What another cluster holds is explained by its own objects, which this run may not read.
            let of_own = |node: usize| plan.nodes.get(node).is_some_and(is_own);
            let held = lock(&self.state).held(of_own);
            if held.is_empty() {
                sleep(PATIENCE).await;
                continue;
            }
            let mut explained = held.clone();
            let blocked: Vec<Blocked<'_>> = explained.iter_mut().map(|(_, key, blockers)| (&*key, blockers)).collect();
            add_within(cluster, blocked, Instant::now() + blockers::PATIENCE, REQUESTS).await;
            for ((node, object, before), (_, _, after)) in held.into_iter().zip(explained) {
                let mut state = lock(&self.state);
                if after != before && state.is_news(node, &object, &before, &after) {
                    let event = Event::Blocked { node, object, blockers: after };
                    state.progress.fold(&event);
                    drop(state);
                    (self.sink)(event);
                }
            }
            sleep(PAUSE).await;
        }
    }
}

impl State {
    fn fold(&mut self, event: &Event) {
        self.progress.fold(event);
        let waits = matches!(
            event,
            Event::Blocked { .. }
                | Event::Waiting { .. }
                | Event::Refused { .. }
                | Event::ListFailed { .. }
                | Event::PollOnly { .. }
        );
        if !waits {
            self.moved = Instant::now();
        }
    }

    /// Returns the first objects that something holds, without what is known of their root causes.
    fn held(&self, is_meant: impl Fn(usize) -> bool) -> Vec<Held> {
        let running = self.progress.nodes.iter().enumerate();
        let running = running.filter(|(at, node)| node.state == NodeState::Running && is_meant(*at));
        let held = running.flat_map(|(at, node)| node.held.iter().map(move |(key, hold)| (at, key, hold)));
        let of_deletion = held.filter_map(|(at, key, hold)| Some((at, key.clone(), own(hold)?)));
        of_deletion.take(NAMED).collect()
    }

    /// Returns whether an object is still held as before, and what is known of that is not told yet.
    fn is_news(&self, node: usize, object: &ObjectKey, before: &[Blocker], after: &[Blocker]) -> bool {
        let hold = self.progress.nodes.get(node).and_then(|node| node.held.get(object));
        let is_told = matches!(hold, Some(Hold::Blocked(told)) if told == after);
        !is_told && hold.and_then(own).is_some_and(|own| own == before)
    }
}

/// Returns what an object itself says about its deletion; none if it says something else.
fn own(hold: &Hold) -> Option<Vec<Blocker>> {
    let mut own = match hold {
        Hold::Finalizers(finalizers) => {
            let finalizer = |name: &String| Blocker::Finalizer { finalizer: name.clone(), manager: None };
            finalizers.iter().map(finalizer).collect()
        }
        Hold::Blocked(blockers) => blockers.clone(),
        Hold::NotReady(_) | Hold::Failed(_) | Hold::Refused { .. } => return None,
    };
    own.retain(|blocker| !matches!(blocker, Blocker::RootCause { .. }));
    own.iter().all(is_of_deletion).then_some(own)
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
