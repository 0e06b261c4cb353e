//! Which object is worked on when: a synchronous core, `on(input) -> effects`, without I/O and without a clock.
//!
//! An object is worked on by one attempt at a time. Force deletions have slots of their own, so that deletions that hang do
//! not delay them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use billhook_cluster::resource_version::is_older;

use crate::{
    dispatch::{Action, Decision, Skip, Step, decide},
    gardener::Cluster,
    object::{ExtensionObject, Key},
    trigger::{Considered, Mode, Request, cluster_name},
};

/// The pause before the first retry; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before a retry.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// The longest pause that an actuator can set. The shortest one is [`FIRST_PAUSE`].
const LONGEST_SET_PAUSE: Duration = Duration::from_secs(3600);

/// Which objects a controller handles, and how.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    pub(crate) kind: String,
    pub(crate) finalizer: String,
    pub(crate) kind_types: Vec<String>,
    pub(crate) classes: Vec<String>,
    pub(crate) mode: Mode,
    /// How many attempts run at once: this many of force deletions, and this many of all others.
    pub(crate) concurrency: usize,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Input {
    /// The watch shows this version of an object.
    Object(Box<ExtensionObject>),
    /// The object is gone.
    Gone(Key),
    /// The watch shows this version of a Cluster.
    Cluster(Box<Cluster>),
    /// The Cluster of this name is gone.
    ClusterGone(String),
    /// An attempt has ended.
    Ended(Key, End),
    /// The pause of an object is over.
    Timer(Key),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct End {
    /// The version that its last write returned.
    pub(crate) version: Option<String>,
    /// Whether it has removed the operation annotation.
    pub(crate) stripped: bool,
    pub(crate) result: EndResult,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EndResult {
    Done,
    /// The actuator or a request failed.
    Failed {
        /// The pause that the actuator wants.
        pause: Option<Duration>,
    },
    /// It was cancelled before or during the call of the actuator.
    Cancelled,
    /// The object has changed before the actuator was called.
    Outdated,
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Start an attempt.
    Start(Box<Start>),
    /// Cancel the attempt, as far as it calls the actuator.
    Cancel(Key),
    /// Send [`Input::Timer`] after a pause, in place of an earlier one.
    SetTimer(Key, Duration),
    ClearTimer(Key),
}

/// An attempt to start.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) object: Arc<ExtensionObject>,
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) decision: Decision,
}

/// The slots for one class of attempts.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Key>,
    running: usize,
}

/// The index of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneId {
    Normal = 0,
    Force = 1,
}

impl LaneId {
    fn of(step: Step) -> Self {
        match step {
            Step::Run(run) if run.action == Action::ForceDelete => Self::Force,
            _ => Self::Normal,
        }
    }
}

#[derive(Debug)]
struct Entry {
    object: Arc<ExtensionObject>,
    /// Whether it is gone, while an attempt is still running.
    gone: bool,
    considered: Option<Considered>,
    /// Whether an attempt is to start.
    due: bool,
    /// The lane in which it waits for a slot.
    waiting: Option<LaneId>,
    running: Option<Running>,
    /// Whether a timer runs.
    pausing: bool,
    failures: u32,
    /// The version that our last write returned. Older versions from the watch are ignored.
    written: Option<String>,
    /// The version that an attempt found outdated.
    outdated: Option<String>,
}

#[derive(Debug)]
struct Running {
    lane: LaneId,
    action: Option<Action>,
    /// The version of the object that it started with.
    version: String,
    cancelled: bool,
}

impl Entry {
    fn new(object: ExtensionObject) -> Self {
        Self {
            object: Arc::new(object),
            gone: false,
            considered: None,
            due: false,
            waiting: None,
            running: None,
            pausing: false,
            failures: 0,
            written: None,
            outdated: None,
        }
    }

    /// Forgets what is known of an object that is gone, and cancels the attempt on it.
    fn forget(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        (self.considered, self.due) = (None, false);
        (self.written, self.outdated) = (None, None);
        self.stop_pausing(key, effects);
        if let Some(running) = self.running.as_mut().filter(|running| !running.cancelled) {
            running.cancelled = true;
            effects.push(Effect::Cancel(key.clone()));
        }
    }

    /// Notes that the operation annotation was removed, so that the same one asks again.
    fn forget_operation(&mut self) {
        if let Some(considered) = &mut self.considered {
            considered.request.forget_operation();
        }
    }

    /// Lets it wait in a lane, and in no other.
    fn wait(&mut self, lane: Option<LaneId>, key: &Key, lanes: &mut [Lane; 2]) {
        if self.waiting == lane {
            return;
        }
        if let Some(former) = std::mem::replace(&mut self.waiting, lane) {
            lanes[former as usize].waiting.retain(|waiting| waiting != key);
        }
        if let Some(lane) = lane {
            lanes[lane as usize].waiting.push_back(key.clone());
        }
    }

    fn stop_pausing(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        self.failures = 0;
        if std::mem::take(&mut self.pausing) {
            effects.push(Effect::ClearTimer(key.clone()));
        }
    }

    /// Returns whether the API server has a newer version than the watch has shown so far.
    fn is_outdated(&self) -> bool {
        let seen = &self.object.resource_version;
        let known = [&self.written, &self.outdated].into_iter().flatten();
        self.outdated.as_ref() == Some(seen) || known.into_iter().any(|version| is_older(seen, version))
    }
}

/// All objects of a controller and the Clusters of the seed.
#[derive(Debug)]
pub(crate) struct Queue {
    rules: Rules,
    entries: BTreeMap<Key, Entry>,
    clusters: HashMap<String, Arc<Cluster>>,
    no_cluster: Arc<Cluster>,
    lanes: [Lane; 2],
}

impl Queue {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            entries: BTreeMap::new(),
            clusters: HashMap::new(),
            no_cluster: Arc::default(),
            lanes: [Lane::default(), Lane::default()],
        }
    }

    /// Returns how many objects wait for a slot.
    pub(crate) fn waiting(&self) -> usize {
        self.lanes.iter().map(|lane| lane.waiting.len()).sum()
    }

    pub(crate) fn on(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Object(object) if self.handles(&object) => self.seen(*object, &mut effects),
            // Its type or class may have changed.
            Input::Object(object) => self.gone(&object.key, &mut effects),
            Input::Gone(key) => self.gone(&key, &mut effects),
            Input::Cluster(cluster) => {
                let name = cluster.name().to_owned();
                self.clusters.insert(name.clone(), Arc::from(cluster));
                for key in self.of_namespace(name) {
                    self.consider(&key, &mut effects);
                }
            }
            Input::ClusterGone(name) => drop(self.clusters.remove(&name)),
            Input::Ended(key, end) => self.ended(&key, end, &mut effects),
            Input::Timer(key) => {
                if let Some(entry) = self.entries.get_mut(&key) {
                    (entry.pausing, entry.due) = (false, true);
                    self.consider(&key, &mut effects);
                }
            }
        }
        self.fill(LaneId::Force, &mut effects);
        self.fill(LaneId::Normal, &mut effects);
        effects
    }

    fn handles(&self, object: &ExtensionObject) -> bool {
        self.rules.kind_types.contains(&object.kind_type) && self.rules.classes.contains(&object.class)
    }

    fn of_namespace(&self, namespace: String) -> Vec<Key> {
        let first = Key { namespace: Some(namespace), name: String::new() };
        let keys = self.entries.range(&first..).map(|(key, _)| key);
        keys.take_while(|key| key.namespace == first.namespace).cloned().collect()
    }

    fn seen(&mut self, object: ExtensionObject, effects: &mut Vec<Effect>) {
        let key = object.key.clone();
        match self.entries.get_mut(&key) {
            Some(entry) => {
                if entry.object.uid != object.uid {
                    entry.forget(&key, effects);
                    entry.wait(None, &key, &mut self.lanes);
                }
                if object.operation.is_none() {
                    entry.forget_operation();
                }
                (entry.object, entry.gone) = (Arc::new(object), false);
            }
            None => drop(self.entries.insert(key.clone(), Entry::new(object))),
        }
        self.consider(&key, effects);
    }

    fn gone(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        entry.forget(key, effects);
        entry.wait(None, key, &mut self.lanes);
        entry.gone = true;
        if entry.running.is_none() {
            self.entries.remove(key);
        }
    }

    fn ended(&mut self, key: &Key, end: End, effects: &mut Vec<Effect>) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Some(running) = entry.running.take() else { return };
        self.lanes[running.lane as usize].running -= 1;
        if entry.gone {
            self.entries.remove(key);
            return;
        }
        entry.written = end.version.or(entry.written.take());
        if end.stripped {
            entry.forget_operation();
        }
        match end.result {
            EndResult::Done => entry.failures = 0,
            EndResult::Cancelled => entry.due = true,
            EndResult::Outdated => {
                entry.due = true;
                entry.outdated = Some(running.version);
            }
            EndResult::Failed { pause } => {
                let doubled = FIRST_PAUSE.saturating_mul(1 << entry.failures.min(10)).min(LONGEST_PAUSE);
                entry.failures = entry.failures.saturating_add(1);
                // What has changed during the attempt is tried at once.
                if !entry.due {
                    entry.pausing = true;
                    let set = pause.map(|pause| pause.clamp(FIRST_PAUSE, LONGEST_SET_PAUSE));
                    effects.push(Effect::SetTimer(key.clone(), set.unwrap_or(doubled)));
                }
            }
        }
        self.consider(key, effects);
    }

    /// Decides whether an object is due, and lets it wait for a slot.
    fn consider(&mut self, key: &Key, effects: &mut Vec<Effect>) {
        let Some((cluster, decision)) = self.decision(key) else { return };
        let Some(entry) = self.entries.get_mut(key) else { return };
        let next = decision.action();
        let request = Request::of(&entry.object, &cluster);
        if self.rules.mode.asks(entry.considered.as_ref(), &entry.object, &request, next, entry.pausing) {
            entry.due = true;
            entry.stop_pausing(key, effects);
        }
        if let Some(running) = &mut entry.running {
            let is_cancelled = matches!(running.action, Some(Action::Reconcile | Action::Restore | Action::Delete));
            if next == Some(Action::ForceDelete) && is_cancelled && !running.cancelled {
                running.cancelled = true;
                effects.push(Effect::Cancel(key.clone()));
            }
            return;
        }
        let lane = match decision.step {
            _ if !entry.due => {
                entry.considered.get_or_insert(Considered { request, action: None });
                None
            }
            // It remains due until the Shoot is no longer failed.
            Step::Skip(skip @ Skip::ShootFailed) => {
                tracing::debug!(object = %key, "waiting: {skip}");
                None
            }
            Step::Skip(skip) if !decision.strip => {
                tracing::info!(object = %key, "nothing to do: {skip}");
                entry.due = false;
                entry.considered = Some(Considered { request, action: None });
                None
            }
            step => Some(LaneId::of(step)),
        };
        entry.wait(lane, key, &mut self.lanes);
    }

    /// Decides what to do with an object; none if that cannot be told yet. An object whose Cluster is not known is considered
    /// when it is.
    fn decision(&self, key: &Key) -> Option<(Arc<Cluster>, Decision)> {
        let entry = self.entries.get(key).filter(|entry| !entry.gone && !entry.is_outdated())?;
        let cluster = match cluster_name(&entry.object) {
            None => &self.no_cluster,
            Some(name) => {
                let found = self.clusters.get(name);
                if found.is_none() {
                    tracing::debug!(object = %key, "waiting: the Cluster {name} does not exist or is not known yet");
                }
                found?
            }
        };
        Some((Arc::clone(cluster), decide(&entry.object, cluster, &self.rules.kind, &self.rules.finalizer)))
    }

    /// Starts attempts as long as slots are free.
    fn fill(&mut self, lane: LaneId, effects: &mut Vec<Effect>) {
        while self.lanes[lane as usize].running < self.rules.concurrency {
            let Some(key) = self.lanes[lane as usize].waiting.pop_front() else { return };
            if let Some(start) = self.start(&key, lane) {
                self.lanes[lane as usize].running += 1;
                effects.push(Effect::Start(Box::new(start)));
            }
        }
    }

    /// Starts an attempt on an object that has waited in this lane; none if its Cluster is gone meanwhile. Then it remains due.
    fn start(&mut self, key: &Key, lane: LaneId) -> Option<Start> {
        self.entries.get_mut(key)?.waiting = None;
        let (cluster, decision) = self.decision(key)?;
        let entry = self.entries.get_mut(key)?;
        let object = Arc::clone(&entry.object);
        let request = Request::of(&object, &cluster);
        let (action, version) = (decision.action(), object.resource_version.clone());
        entry.due = false;
        entry.considered = Some(Considered { request, action });
        entry.running = Some(Running { lane, action, version, cancelled: false });
        Some(Start { object, cluster, decision })
    }
}

#[cfg(test)]
mod tests;
