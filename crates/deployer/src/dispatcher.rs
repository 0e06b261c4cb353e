//! The dispatcher: watches DeployItems and Targets, decides which items are due, and starts a task for each.

use std::{
    collections::{HashMap, hash_map::Entry},
    panic::AssertUnwindSafe,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use billhook_cluster::{Cluster, ObjectChange, resource_version::is_older};
use billhook_objects::{GroupKind, Labels};
use billhook_plan::{Query, Resource, Select};
use billhook_policy::LabelSelector;
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered, SelectAll},
};
use jiff::Timestamp;
use serde::Deserialize;
use tokio::{task::JoinSet, time::Instant};
use tokio_util::{
    sync::CancellationToken,
    time::{DelayQueue, delay_queue},
};

use crate::{
    api::{DeployItem, Phase, Target, TargetSpec},
    crashes,
    halt::Halt,
    item::deploy_items,
    known::KnownItem,
    metrics::ItemGauges,
    reconcile::{self, Outcome},
    retry,
    shared::Shared,
    slots::{MAX_HOLD, Permits, Slots, hold_slot},
    target::targets,
    trigger::{self, Due, OperationAnnotation, Trigger},
};

/// The types of items that this controller handles.
pub const TYPES: [&str; 2] = ["landscaper.gardener.cloud/kubernetes-manifest", "landscaper.gardener.cloud/helm"];
/// The longest wait for the next time of a schedule; more would not fit into a timer. The item is then checked again.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// How long work may take to stop: helm gets [`STOP_GRACE`](billhook_charts::STOP_GRACE) to end its operation.
const STOP_LIMIT: Duration = billhook_charts::STOP_GRACE.saturating_add(Duration::from_secs(2));

/// The namespace and name of an item or Target.
type Key = (String, String);

/// What the dispatcher knows of an item.
#[derive(Default)]
struct ItemState {
    /// What is kept of the newest version of the object; `None` once it is deleted.
    object: Option<Arc<KnownItem>>,
    /// The task that works on the item.
    running: Option<Running>,
    /// The version that our last write returned. Older versions from the watch are ignored.
    written: Option<String>,
    /// The UID of the object without our finalizer: there is nothing left to do but wait for its deletion.
    released: Option<String>,
    /// Whether the item waits for its permits.
    queued: bool,
    /// The timer after which the item is considered again.
    delay: Option<delay_queue::Key>,
    /// The number of consecutive attempts that failed.
    attempts: u32,
    /// Since when there is work to do.
    due: Option<Instant>,
    /// Whether the former leader was killed while it worked on the item, which was not tried since.
    suspected: bool,
}

/// A task that works on an item.
struct Running {
    halt: Halt,
    uid: Option<String>,
    generation: Option<i64>,
    /// The job, if Landscaper has requested one.
    job: Option<String>,
    deletion: bool,
    /// Whether the deletion leaves the item's objects in the cluster.
    without_uninstall: bool,
}

/// Starts and stops the work on items during one period of leadership.
pub(crate) struct Dispatcher {
    shared: Arc<Shared>,
    items: HashMap<Key, ItemState>,
    /// The specifications of deleted Targets that tasks still use.
    former_targets: HashMap<Key, TargetSpec>,
    delays: DelayQueue<Key>,
    /// The due items that wait for their permits.
    queue: FuturesUnordered<BoxFuture<'static, (Key, Option<Permits>)>>,
    slots: Slots,
    tasks: JoinSet<(Key, Outcome)>,
    /// Whether no more work starts.
    is_draining: bool,
    changes: SelectAll<BoxStream<'static, Change>>,
    /// Tell whether the objects are known as they are now.
    caches: Vec<Arc<AtomicBool>>,
    /// The selected namespaces. Each token ends the watches.
    selected: HashMap<String, CancellationToken>,
}

/// A change that the watches report.
enum Change {
    Item(Box<KnownItem>),
    ItemDeleted(Key),
    Target(Box<Target>),
    TargetDeleted(Key),
    /// A namespace is selected, or no longer.
    Namespace(String, bool),
    /// A watch has ended, because its kind is no longer served.
    WatchEnded,
}

/// Whether an item is deployed to a Target.
fn uses((key, state): (&Key, &ItemState), (namespace, target): &Key) -> bool {
    let named = state.object.as_deref().and_then(|object| object.spec.target.as_ref());
    key.0 == *namespace && named.is_some_and(|named| named.name == *target)
}

/// Returns the task that works on an item if it uses a Target, that of the item or one that its policy names.
fn running_on<'s>((key, state): (&Key, &'s ItemState), target: &Key) -> Option<&'s Running> {
    let uses_target =
        |running: &&Running| uses((key, state), target) || (key.0 == target.0 && running.halt.uses(&target.1));
    state.running.as_ref().filter(uses_target)
}

impl Dispatcher {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        let mut caches = Vec::new();
        let mut cache = || {
            caches.push(Arc::<AtomicBool>::default());
            caches.last().cloned().unwrap_or_default()
        };
        let mut changes = SelectAll::new();
        match (&shared.options.namespace_selector, shared.options.namespaces.as_slice()) {
            (Some(selector), _) => changes.push(namespaces(&shared.home, selector.clone(), cache())),
            (None, []) => changes.extend(watches(&shared.home, None, &mut cache)),
            (None, some) => changes.extend(some.iter().flat_map(|name| watches(&shared.home, Some(name), &mut cache))),
        }
        Self {
            slots: Slots::new(shared.options.max_items),
            shared,
            items: HashMap::new(),
            former_targets: HashMap::new(),
            delays: DelayQueue::new(),
            queue: FuturesUnordered::new(),
            tasks: JoinSet::new(),
            is_draining: false,
            changes,
            caches,
            selected: HashMap::new(),
        }
    }

    /// Returns what tells whether the objects are known as they are now. In selected namespaces the rights may still be missing,
    /// which must not count against the others.
    pub(crate) fn caches(&self) -> Vec<Arc<AtomicBool>> {
        self.caches.clone()
    }

    /// Runs until a watch ends.
    pub(crate) async fn run(&mut self) {
        while self.step().await {}
    }

    /// Handles what happens next; returns whether there may be more.
    async fn step(&mut self) -> bool {
        tokio::select! {
            Some(change) = self.changes.next() => match change {
                Change::WatchEnded => return false,
                change => self.handle(change),
            },
            Some(joined) = self.tasks.join_next() => {
                if let Ok((key, outcome)) = joined {
                    self.finish(&key, outcome);
                }
            }
            Some(expired) = self.delays.next() => {
                let key = expired.into_inner();
                if let Some(state) = self.items.get_mut(&key) {
                    state.delay = None;
                }
                self.consider(&key, None);
            }
            Some((key, permits)) = self.queue.next() => {
                if let Some(state) = self.items.get_mut(&key) {
                    state.queued = false;
                }
                self.consider(&key, permits);
            }
            else => return false,
        }
        true
    }

    /// Starts no more work, and waits until the running work has ended. After the grace period it is asked to stop.
    pub(crate) async fn drain(&mut self, grace: Duration) {
        self.is_draining = true;
        // What waits for its turn is not running yet.
        self.shared.places.close();
        self.shared.helms.releases.close();
        let ended = async {
            while !self.tasks.is_empty() && self.step().await {}
            // A watch may have ended first.
            while self.tasks.join_next().await.is_some() {}
        };
        if tokio::time::timeout(grace, ended).await.is_ok() {
            return;
        }
        self.items.values().filter_map(|state| state.running.as_ref()).for_each(|running| running.halt.token.cancel());
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_LIMIT, ended).await.is_err() {
            tracing::warn!(tasks = self.tasks.len(), "work did not stop in time; the next leader resumes it");
        }
    }

    /// Aborts all tasks; the next leader resumes their work from the record. Resets the metrics of the items.
    pub(crate) async fn shut_down(mut self) {
        self.tasks.shutdown().await;
        for state in self.items.values() {
            self.shared.metrics.phase_changed(phase(state), None);
        }
        self.shared.metrics.clear();
    }

    fn handle(&mut self, change: Change) {
        match change {
            Change::Item(item) => {
                let key = key_of(&item.metadata);
                if !self.shared.options.shard.holds(&key.0, &key.1) {
                    return;
                }
                if !TYPES.contains(&item.spec.r#type.as_str()) {
                    // Its type may have changed.
                    return self.handle(Change::ItemDeleted(key));
                }
                let state = self.items.entry(key.clone()).or_default();
                if state.object.is_none() {
                    state.suspected = self.shared.crash.is_some() && crashes::is_unfinished(&item);
                }
                if state.object.as_ref().is_none_or(|known| is_triggered(known, &item)) {
                    // The new version may not have the problem of the old one.
                    state.attempts = 0;
                }
                let before = phase(state);
                state.object = Some(Arc::from(item));
                self.shared.metrics.phase_changed(before, phase(state));
                self.consider(&key, None);
            }
            Change::ItemDeleted(key) => {
                let Some(state) = self.items.get_mut(&key) else { return };
                self.shared.metrics.phase_changed(phase(state), None);
                state.object = None;
                if let Some(running) = &state.running {
                    running.halt.token.cancel();
                    self.show(&key);
                } else {
                    self.remove(&key);
                }
            }
            Change::Target(target) => {
                let (key, spec) = (key_of(&target.metadata), target.spec.clone());
                self.shared.metrics.add_target(&key);
                let former = self.former_targets.remove(&key);
                let before = self.shared.targets.insert(*target).or(former);
                if before.as_ref() != Some(&spec) {
                    self.restart_items_of(&key, before.is_some());
                }
                if !self.shared.options.target_selectors.is_empty() {
                    // Its labels may have changed.
                    let users: Vec<_> =
                        self.items.iter().filter(|item| uses(*item, &key)).map(|(key, _)| key.clone()).collect();
                    users.iter().for_each(|key| self.consider(key, None));
                }
            }
            Change::TargetDeleted(key) => {
                self.shared.metrics.remove_target(&key);
                // Its tasks go on, unless it is recreated with another specification.
                let former = self.shared.targets.remove(&key.0, &key.1);
                self.former_targets.retain(|key, _| self.items.iter().any(|item| running_on(item, key).is_some()));
                if self.items.iter().any(|item| running_on(item, &key).is_some()) {
                    self.former_targets.extend(former.map(|former| (key, former)));
                }
            }
            Change::Namespace(name, true) => {
                let Entry::Vacant(vacant) = self.selected.entry(name) else { return };
                let watches = watches(&self.shared.home, Some(vacant.key()), &mut Arc::default);
                let stop = vacant.insert(CancellationToken::new());
                self.changes.extend(watches.map(|watch| watch.take_until(stop.clone().cancelled_owned()).boxed()));
            }
            Change::Namespace(name, false) => {
                let Some(stop) = self.selected.remove(&name) else { return };
                stop.cancel();
                let items: Vec<_> = self.items.keys().filter(|key| key.0 == name).cloned().collect();
                items.into_iter().for_each(|key| self.handle(Change::ItemDeleted(key)));
                let targets = self.shared.targets.names(&name);
                targets.into_iter().for_each(|target| self.handle(Change::TargetDeleted((name.clone(), target))));
            }
            Change::WatchEnded => {}
        }
    }

    /// Restarts the work on items whose Target was created or changed: items that wait for a retry are retried now, and
    /// tasks that use the old Target are stopped.
    fn restart_items_of(&mut self, target: &Key, changed: bool) {
        let mut waiting = Vec::new();
        for (key, state) in &self.items {
            match &state.running {
                None if state.attempts > 0 && uses((key, state), target) => waiting.push(key.clone()),
                Some(_) if changed => {
                    running_on((key, state), target).into_iter().for_each(|running| running.halt.token.cancel());
                }
                _ => {}
            }
        }
        for key in waiting {
            self.set_delay(&key, None);
            self.consider(&key, None);
        }
    }

    /// Starts the work that is due for an item as soon as it has its permits, and stops work that is obsolete.
    fn consider(&mut self, key: &Key, permits: Option<Permits>) {
        self.decide(key, permits);
        self.show(key);
    }

    fn decide(&mut self, key: &Key, permits: Option<Permits>) {
        let Some(state) = self.items.get_mut(key) else { return };
        let Some(object) = state.object.clone() else { return };
        let versions = object.metadata.resource_version.as_deref().zip(state.written.as_deref());
        let released = state.released.is_some() && state.released == object.metadata.uid;
        if released || versions.is_some_and(|(seen, written)| is_older(seen, written)) {
            return;
        }
        let trigger = self.shared.options.mode.trigger(&object);
        if let Some(running) = &state.running {
            let changed = object.metadata.generation != running.generation;
            let deletion = trigger::is_deleted(&object) && !running.deletion;
            let finished = object.status.as_ref().and_then(|status| status.job_id_finished.as_ref());
            if trigger::operation(&object) == Some(OperationAnnotation::Interrupt) {
                running.halt.interrupt();
            } else if running.job.is_some() && running.job.as_ref() == finished {
                // Landscaper has interrupted the job, and its status is to remain; or we have written the result ourselves.
                running.halt.token.cancel();
            } else if running.deletion && trigger::is_deleted_without_uninstall(&object) && !running.without_uninstall {
                running.halt.token.cancel();
            } else if (changed || deletion) && trigger == Trigger::Generations {
                // A new version or a deletion does not wait for the deployment of the old version.
                running.halt.token.cancel();
            }
            return;
        }
        if self.is_draining || self.shared.is_selected(&object) == Some(false) {
            return;
        }
        let now = (self.shared.options.now)();
        let due = trigger::due(&object, trigger, object.schedule(trigger), now);
        state.due = match due {
            Due::Nothing | Due::At(_) | Due::EndCondition => None,
            Due::Interrupt | Due::Reconcile(_) | Due::Delete(_) => state.due.or_else(|| due_since(&object, now)),
        };
        match due {
            Due::Nothing => {
                state.attempts = 0;
                self.set_delay(key, None);
            }
            Due::At(time) => {
                state.attempts = 0;
                let pause = Duration::try_from(time.duration_since(now)).unwrap_or_default();
                self.set_delay(key, Some(pause));
            }
            // It only writes to the item, so it needs none.
            Due::Interrupt => self.start(key, object, Due::Interrupt, None),
            // The item waits for its next retry.
            _ if state.delay.is_some() && state.attempts > 0 => {}
            // As above.
            Due::EndCondition => self.start(key, object, due, None),
            due if permits.is_some() => self.start(key, object, due, permits),
            _ if state.queued => {}
            _ => {
                state.queued = true;
                let (key, permits) = (key.clone(), self.slots.acquire(&object, object.size));
                self.queue.push(permits.map(|permits| (key, permits)).boxed());
            }
        }
    }

    fn start(&mut self, key: &Key, object: Arc<KnownItem>, due: Due, permits: Option<Permits>) {
        self.set_delay(key, None);
        let Some(state) = self.items.get_mut(key) else { return };
        let (halt, failed) = (Halt::default(), state.attempts);
        let deletion = matches!(due, Due::Delete(_));
        let without_uninstall = trigger::is_deleted_without_uninstall(&object);
        let (uid, generation) = (object.metadata.uid.clone(), object.metadata.generation);
        let job = object.status.as_ref().filter(|status| status.job_id != status.job_id_finished);
        let job = job.and_then(|status| status.job_id.clone());
        let suspicion = crashes::suspicion(
            &object,
            self.shared.crash.filter(|_| state.suspected),
            trigger::operation(&object).is_some(),
        );
        state.running = Some(Running { halt: halt.clone(), uid, generation, job, deletion, without_uninstall });
        let work = AssertUnwindSafe(reconcile::work(Arc::clone(&self.shared), object, due, failed, halt, suspicion))
            .catch_unwind()
            .boxed();
        // A suspect has to wait for its own place.
        let permits = permits.filter(|_| suspicion.is_none());
        let (start, place) = permits.map(|permits| (permits.start, permits.place)).unzip();
        let key = key.clone();
        self.tasks.spawn(async move {
            let _place = place;
            let outcome = hold_slot(start, MAX_HOLD, work).await.unwrap_or_else(|_panic| {
                tracing::error!(namespace = %key.0, name = %key.1, "internal error (a bug in billhook); retrying this item");
                Outcome::Retry { version: None, pause: retry::pause(failed, None) }
            });
            (key, outcome)
        });
    }

    fn finish(&mut self, key: &Key, outcome: Outcome) {
        let Some(state) = self.items.get_mut(key) else { return };
        let running = state.running.take();
        // The process has survived it.
        state.suspected &= !running.as_ref().is_some_and(|running| running.halt.was_tried());
        let done = matches!(outcome, Outcome::Done(_) | Outcome::FinalizerRemoved);
        let (retry, version) = match outcome {
            Outcome::Done(version) | Outcome::Halted(version) => (None, version),
            Outcome::FinalizerRemoved => {
                state.released = running.and_then(|running| running.uid);
                (None, None)
            }
            Outcome::Retry { version, pause } => (Some(pause), version),
        };
        state.written = version.or(state.written.take());
        if state.object.is_none() {
            self.remove(key);
            return;
        }
        if let Some(pause) = retry {
            state.attempts += 1;
            self.set_delay(key, Some(pause));
            self.show(key);
        } else {
            state.attempts = 0;
            if done {
                state.due = None;
            }
            self.consider(key, None);
        }
    }

    /// Shows the state of an item in the metrics.
    fn show(&self, key: &Key) {
        let shown =
            self.items.get(key).and_then(|state| Some((state, state.object.as_ref()?))).map(|(state, object)| {
                let waits = state.running.is_none() && state.due.is_some();
                ItemGauges {
                    kind: TYPES
                        .iter()
                        .find(|name| **name == object.spec.r#type)
                        .and_then(|name| name.rsplit('/').next())
                        .unwrap_or_default(),
                    target: object.spec.target.as_ref().map(|target| target.name.clone()).unwrap_or_default(),
                    failing: matches!(phase(state), Some(Phase::Failed | Phase::DeleteFailed)),
                    waiting: state.due,
                    queued: waits && (state.queued || state.delay.is_some()),
                }
            });
        self.shared.metrics.set_item(key, shown);
    }

    /// Sets the time after which an item is considered again; none removes the timer.
    fn set_delay(&mut self, key: &Key, pause: Option<Duration>) {
        let Some(state) = self.items.get_mut(key) else { return };
        if let Some(delay) = state.delay.take() {
            self.delays.remove(&delay);
        }
        state.delay = pause.map(|pause| self.delays.insert(key.clone(), pause.min(LONGEST_WAIT)));
    }

    fn remove(&mut self, key: &Key) {
        self.set_delay(key, None);
        self.items.remove(key);
        self.show(key);
    }
}

fn all(resource: Resource, namespace: Option<&str>) -> Query {
    let (cluster, namespace) = (None, namespace.map(str::to_owned));
    Query { cluster, resource, namespace, select: Select::All, namespaces: Vec::new() }
}

/// Watches the Targets and the items of a namespace, or of all. `cache` makes what tells whether they are known as they are now.
fn watches(
    home: &Cluster,
    namespace: Option<&str>,
    cache: &mut impl FnMut() -> Arc<AtomicBool>,
) -> [BoxStream<'static, Change>; 2] {
    let items = home.watch_objects_telling::<KnownItem>(&all(deploy_items(), namespace), cache());
    let items = items.map(|change| match change {
        ObjectChange::Present(item) => Change::Item(Box::new(item)),
        ObjectChange::Gone(key) => Change::ItemDeleted((key.namespace.unwrap_or_default(), key.name)),
    });
    let targets = home.watch_objects_telling::<Target>(&all(targets(), namespace), cache());
    let targets = targets.map(|change| match change {
        ObjectChange::Present(target) => Change::Target(Box::new(target)),
        ObjectChange::Gone(key) => Change::TargetDeleted((key.namespace.unwrap_or_default(), key.name)),
    });
    let ended = || futures::stream::iter([Change::WatchEnded]);
    [targets.chain(ended()).boxed(), items.chain(ended()).boxed()]
}

/// Watches which namespaces have the labels of a selector. One that is being deleted keeps them, so that its items are deleted.
fn namespaces(home: &Cluster, selector: LabelSelector, current: Arc<AtomicBool>) -> BoxStream<'static, Change> {
    #[derive(Deserialize)]
    struct Namespace {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    struct Metadata {
        name: String,
        #[serde(default)]
        labels: Labels,
    }
    let kind = GroupKind::new("", "Namespace");
    let resource = Resource { kind, version: "v1".into(), plural: "namespaces".into(), namespaced: false };
    let changes = home.watch_objects_telling::<Namespace>(&all(resource, None), current);
    let changes = changes.map(move |change| match change {
        ObjectChange::Present(Namespace { metadata }) => {
            let is_selected = selector.matches(&metadata.labels);
            Change::Namespace(metadata.name, is_selected)
        }
        ObjectChange::Gone(key) => Change::Namespace(key.name, false),
    });
    changes.boxed()
}

/// Returns whether a new version of an item has another trigger than the known one.
fn is_triggered(known: &DeployItem, item: &DeployItem) -> bool {
    let job = |item: &DeployItem| item.status.as_ref().and_then(|status| status.job_id.clone());
    known.metadata.generation != item.metadata.generation
        || trigger::operation(known) != trigger::operation(item)
        || job(known) != job(item)
}

/// Returns since when an item has work to do, which an earlier leader may have begun.
fn due_since(object: &DeployItem, now: Timestamp) -> Option<Instant> {
    let status = object.status.as_ref().filter(|status| status.phase.is_some_and(|phase| !phase.is_final()));
    let begun = status.and_then(|status| status.last_reconcile_time.as_ref());
    let passed =
        begun.map_or(Duration::ZERO, |begun| Duration::try_from(now.duration_since(begun.0)).unwrap_or_default());
    let now = Instant::now();
    Some(now.checked_sub(passed).unwrap_or(now))
}

/// Returns the phase of an item as it was last seen.
fn phase(state: &ItemState) -> Option<Phase> {
    state.object.as_ref()?.status.as_ref()?.phase
}

fn key_of(metadata: &kube::core::ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

#[cfg(test)]
pub(crate) mod crowd;
#[cfg(test)]
mod tests;
