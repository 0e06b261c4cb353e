//! The controller: it watches DeployItems, decides which are due, and works on each in a task of its own.

use std::{
    collections::HashMap,
    panic::AssertUnwindSafe,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use billhook_cluster::{Cluster, Error, Fence, LeaseOptions, ObjectChange, resource_version::is_older};
use billhook_plan::{Query, Resource, Select};
use billhook_policy::parse_configuration;
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered},
};
use jiff::Timestamp;
use tokio::task::JoinSet;
use tokio_util::{
    sync::CancellationToken,
    time::{DelayQueue, delay_queue},
};

use crate::{
    api::{DeployItem, DeployerInformation, Phase, Target},
    charts::Helms,
    events::Recorder,
    item::deploy_items,
    metrics::Metrics,
    mode::Mode,
    reconcile::{self, Ended, Halt},
    schedule::Schedule,
    serve::Probes,
    shard::Shard,
    slots::{Slot, Slots, hold},
    target::{Connect, Targets, targets},
    trigger::{self, Due, Operation, Trigger},
};

/// The name under which the controller appears in the status of items.
pub const NAME: &str = "billhook";
/// The types of items that are handled here.
pub const TYPES: [&str; 2] = ["landscaper.gardener.cloud/kubernetes-manifest", "landscaper.gardener.cloud/helm"];
/// The first pause before an item is tried again; it doubles up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// The longest pause before an item is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The longest wait for a time that an item names.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// How a controller works.
#[derive(Clone)]
pub struct ControllerOptions {
    /// Who says when there is work.
    pub mode: Mode,
    /// The namespaces whose items are handled; all where there is none.
    pub namespaces: Vec<String>,
    /// Which replica this is: in Leases and in the status of items.
    pub identity: String,
    /// Which part of the items is handled.
    pub shard: Shard,
    /// Makes a cluster of a Target's configuration.
    pub connect: Connect,
    /// The time of day.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The helm program.
    pub helm: PathBuf,
    /// What is measured.
    pub metrics: Metrics,
    /// The Lease that the one replica holds that works; without one this replica always does.
    pub leader_election: Option<LeaseOptions>,
}

/// Why a controller ended.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The home cluster does not serve DeployItems.
    #[error(
        "find the kind DeployItem of landscaper.gardener.cloud/v1alpha1: install the CRDs of deploy/crds, or Landscaper's own"
    )]
    NoKind,
    /// A request failed for good.
    #[error(transparent)]
    Cluster(#[from] Error),
}

/// What the work on all items shares.
pub(crate) struct Shared {
    pub home: Cluster,
    pub targets: Targets,
    pub options: ControllerOptions,
    pub metrics: Metrics,
    pub events: Recorder,
    pub helms: Helms,
}

impl Shared {
    /// Who reconciles, as the status of an item says it.
    pub(crate) fn information(&self) -> DeployerInformation {
        DeployerInformation {
            identity: self.options.identity.clone(),
            name: NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// A controller of DeployItems.
pub struct Controller {
    home: Cluster,
    options: ControllerOptions,
    /// Whether the home cluster has answered.
    reached: Arc<AtomicBool>,
}

impl Controller {
    /// A controller for the DeployItems of a cluster. Nothing is requested yet.
    pub fn new(home: Cluster, options: ControllerOptions) -> Self {
        Self { home, options, reached: Arc::default() }
    }

    /// What the kubelet may ask: it is alive as long as it answers, and ready once its cluster has answered it.
    pub fn probes(&self) -> Probes {
        let reached = Arc::clone(&self.reached);
        let ready = move || match reached.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("the cluster of the DeployItems has not answered yet".to_owned()),
        };
        Probes { live: Arc::new(|| Ok(())), ready: Arc::new(ready) }
    }

    /// Works until it is stopped; as long as another replica leads, it waits.
    ///
    /// Work under way when it stops is left as it is: whoever leads next goes on with it.
    ///
    /// # Errors
    ///
    /// When the home cluster serves no DeployItems, or does not answer at the start. Missing rights are waited for.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ControllerError> {
        self.check_kinds().await?;
        self.reached.store(true, Ordering::Relaxed);
        let mut blind = false;
        while !stop.is_cancelled() {
            if blind {
                tokio::select! {
                    () = tokio::time::sleep(FIRST_PAUSE) => {}
                    () = stop.cancelled() => break,
                }
                match self.check_kinds().await {
                    // A server that does not answer is waited for where it is watched.
                    Ok(()) | Err(ControllerError::Cluster(_)) => {}
                    Err(gone) => return Err(gone),
                }
            }
            let Some(lease) = &self.options.leader_election else {
                blind = self.lead(Fence::open(), std::future::pending(), &stop).await;
                continue;
            };
            let mut leadership = tokio::select! {
                leadership = self.home.acquire(lease) => leadership,
                () = stop.cancelled() => break,
            };
            tracing::info!(lease = %lease.name, identity = %lease.identity, "leading");
            self.options.metrics.set_leader(true);
            let fence = leadership.fence();
            blind = self.lead(fence, leadership.lost(), &stop).await;
            self.options.metrics.set_leader(false);
            tracing::info!(lease = %lease.name, identity = %lease.identity, "no longer leading");
            leadership.release().await;
        }
        Ok(())
    }

    async fn check_kinds(&self) -> Result<(), ControllerError> {
        let catalog = self.home.catalog().await?;
        catalog.get(&deploy_items().kind).map(drop).ok_or(ControllerError::NoKind)
    }

    /// Works as long as this replica leads and both kinds are served. Whether it ended because one is not.
    async fn lead(&self, fence: Fence, lost: impl Future<Output = ()>, stop: &CancellationToken) -> bool {
        let home = self.home.fenced(fence.clone());
        let (options, metrics) = (self.options.clone(), self.options.metrics.clone());
        let _counted = metrics.count_requests(home.clone());
        let now = Arc::clone(&options.now);
        let (events, writer) = Recorder::new(home.clone(), options.identity.as_str(), now, metrics.events_dropped());
        let targets = Targets::new(home.clone(), Arc::clone(&options.connect), fence, metrics.clone());
        let mut loop_ =
            Loop::new(Arc::new(Shared { home, targets, options, metrics, events, helms: Helms::default() }));
        let blind = tokio::select! {
            () = loop_.run() => true,
            // It only ends when nobody records Events any more.
            () = writer.run() => false,
            () = lost => false,
            () = stop.cancelled() => false,
        };
        // Aborted tasks leave what they have requested to the record.
        loop_.tasks.shutdown().await;
        for state in loop_.items.values() {
            loop_.shared.metrics.phase_changed(phase(state), None);
        }
        blind
    }
}

type Key = (String, String);

/// What is known of an item.
#[derive(Default)]
struct State {
    /// The newest version of the object; none once it is gone.
    object: Option<Arc<DeployItem>>,
    /// What is done with it, and how that is stopped.
    running: Option<Running>,
    /// The version that our last write returned: what is older is not looked at.
    written: Option<String>,
    /// Our finalizer was taken off it: it only has to go.
    let_go: bool,
    /// Whether it waits for a slot.
    queued: bool,
    /// When it is looked at again.
    delay: Option<delay_queue::Key>,
    /// How often it was tried in a row.
    attempts: u32,
}

struct Running {
    halt: Halt,
    generation: Option<i64>,
    deletion: bool,
    /// It is a deletion that leaves the objects where they are.
    forgets: bool,
}

/// One period of leading.
struct Loop {
    shared: Arc<Shared>,
    items: HashMap<Key, State>,
    delays: DelayQueue<Key>,
    /// The items that are due, until they have a slot.
    queue: FuturesUnordered<BoxFuture<'static, (Key, Option<Slot>)>>,
    slots: Slots,
    tasks: JoinSet<(Key, Ended)>,
    changes: BoxStream<'static, Seen>,
}

/// What the watches show.
enum Seen {
    Item(Box<DeployItem>),
    ItemGone(Key),
    Target(Box<Target>),
    TargetGone(Key),
    /// A watch has ended: its kind is not served any more.
    End,
}

impl Loop {
    fn new(shared: Arc<Shared>) -> Self {
        let namespaces: Vec<Option<String>> = match shared.options.namespaces.as_slice() {
            [] => vec![None],
            some => some.iter().cloned().map(Some).collect(),
        };
        let watches = namespaces.into_iter().flat_map(|namespace| {
            let query = |resource: Resource| Query {
                cluster: None,
                resource,
                namespace: namespace.clone(),
                select: Select::All,
                namespaces: Vec::new(),
            };
            let items = shared.home.watch_objects::<DeployItem>(&query(deploy_items())).map(|change| match change {
                ObjectChange::Present(item) => Seen::Item(Box::new(item)),
                ObjectChange::Gone(key) => Seen::ItemGone((key.namespace.unwrap_or_default(), key.name)),
            });
            let targets = shared.home.watch_objects::<Target>(&query(targets())).map(|change| match change {
                ObjectChange::Present(target) => Seen::Target(Box::new(target)),
                ObjectChange::Gone(key) => Seen::TargetGone((key.namespace.unwrap_or_default(), key.name)),
            });
            let ended = || futures::stream::iter([Seen::End]);
            [targets.chain(ended()).boxed(), items.chain(ended()).boxed()]
        });
        let changes = futures::stream::select_all(watches).boxed();
        Self {
            shared,
            items: HashMap::new(),
            delays: DelayQueue::new(),
            queue: FuturesUnordered::new(),
            slots: Slots::default(),
            tasks: JoinSet::new(),
            changes,
        }
    }

    async fn run(&mut self) {
        loop {
            tokio::select! {
                Some(seen) = self.changes.next() => match seen {
                    Seen::End => return,
                    seen => self.see(seen),
                },
                Some(joined) = self.tasks.join_next() => {
                    if let Ok((key, ended)) = joined {
                        self.ended(&key, ended);
                    }
                }
                Some(expired) = self.delays.next() => {
                    let key = expired.into_inner();
                    if let Some(state) = self.items.get_mut(&key) {
                        state.delay = None;
                    }
                    self.consider(&key, None);
                }
                Some((key, slot)) = self.queue.next() => {
                    if let Some(state) = self.items.get_mut(&key) {
                        state.queued = false;
                    }
                    self.consider(&key, slot);
                }
                else => return,
            }
            self.shared.metrics.set_queue_depth(self.delays.len() + self.queue.len());
        }
    }

    fn see(&mut self, seen: Seen) {
        match seen {
            Seen::Item(mut item) => {
                let key = key_of(&item.metadata);
                if !self.shared.options.shard.holds(&key.0, &key.1) {
                    return;
                }
                if !TYPES.contains(&item.spec.r#type.as_str()) {
                    // It may have been one of ours.
                    return self.see(Seen::ItemGone(key));
                }
                slim(&mut item);
                let state = self.items.entry(key.clone()).or_default();
                // Another item of the same name begins anew.
                state.let_go &= state.object.as_ref().is_some_and(|known| known.metadata.uid == item.metadata.uid);
                if state.object.as_ref().is_none_or(|known| is_asked_anew(known, &item)) {
                    // What was wrong with the last version need not be wrong with this one.
                    state.attempts = 0;
                }
                let before = phase(state);
                state.object = Some(Arc::from(item));
                self.shared.metrics.phase_changed(before, phase(state));
                self.consider(&key, None);
            }
            Seen::ItemGone(key) => {
                let Some(state) = self.items.get_mut(&key) else { return };
                self.shared.metrics.phase_changed(phase(state), None);
                state.object = None;
                if let Some(running) = &state.running {
                    running.halt.token.cancel();
                } else {
                    self.forget(&key);
                }
            }
            Seen::Target(target) => {
                let (key, spec) = (key_of(&target.metadata), target.spec.clone());
                let before = self.shared.targets.insert(*target);
                if before.as_ref() != Some(&spec) {
                    self.begin_anew(&key, before.is_some());
                }
            }
            Seen::TargetGone(key) => self.shared.targets.remove(&key.0, &key.1),
            Seen::End => {}
        }
    }

    /// Lets the work begin anew on items whose Target has come, or has become another one: those that wait for another try
    /// do not wait any longer, and what is done with the old one is stopped.
    fn begin_anew(&mut self, (namespace, target): &Key, changed: bool) {
        let on_it = |object: &DeployItem| object.spec.target.as_ref().is_some_and(|named| named.name == *target);
        let mut waiting = Vec::new();
        for (key, state) in &mut self.items {
            if key.0 != *namespace || !state.object.as_deref().is_some_and(on_it) {
                continue;
            }
            match &state.running {
                Some(running) if changed => running.halt.token.cancel(),
                None if state.attempts > 0 => waiting.push(key.clone()),
                _ => {}
            }
        }
        for key in waiting {
            self.later(&key, None);
            self.consider(&key, None);
        }
    }

    /// Looks at an item: starts what is due as soon as there is a slot for it, stops what is no longer wanted.
    fn consider(&mut self, key: &Key, slot: Option<Slot>) {
        let Some(state) = self.items.get_mut(key) else { return };
        let Some(object) = state.object.clone() else { return };
        let versions = object.metadata.resource_version.as_deref().zip(state.written.as_deref());
        if state.let_go || versions.is_some_and(|(seen, written)| is_older(seen, written)) {
            return;
        }
        let trigger = self.shared.options.mode.trigger(&object);
        if let Some(running) = &state.running {
            let changed = object.metadata.generation != running.generation;
            let deletion = trigger::deleting(&object) && !running.deletion;
            if trigger::operation(&object) == Some(Operation::Interrupt) {
                running.halt.interrupt();
            } else if running.deletion && trigger::is_to_forget(&object) && !running.forgets {
                running.halt.token.cancel();
            } else if (changed || deletion) && trigger == Trigger::Generations {
                // A new version, or the deletion, does not wait until the old one has succeeded.
                running.halt.token.cancel();
            }
            return;
        }
        let now = (self.shared.options.now)();
        let schedule = schedule_of(&object, trigger);
        match trigger::due(&object, trigger, schedule.as_ref(), now) {
            Due::Nothing => {
                state.attempts = 0;
                self.later(key, None);
            }
            Due::At(time) => {
                state.attempts = 0;
                let pause = Duration::try_from(time.duration_since(now)).unwrap_or_default();
                self.later(key, Some(pause));
            }
            // It asks for nothing but a word in the status.
            Due::Interrupt => self.start(key, object, Due::Interrupt, None),
            // It is being waited for.
            _ if state.delay.is_some() && state.attempts > 0 => {}
            due if slot.is_some() => self.start(key, object, due, slot),
            _ if state.queued => {}
            _ => {
                state.queued = true;
                let (key, slot) = (key.clone(), self.slots.acquire(&object));
                self.queue.push(slot.map(|slot| (key, slot)).boxed());
            }
        }
    }

    fn start(&mut self, key: &Key, object: Arc<DeployItem>, due: Due, slot: Option<Slot>) {
        self.later(key, None);
        let Some(state) = self.items.get_mut(key) else { return };
        let halt = Halt::default();
        let deletion = matches!(due, Due::Delete(_));
        let forgets = trigger::is_to_forget(&object);
        let generation = object.metadata.generation;
        state.running = Some(Running { halt: halt.clone(), generation, deletion, forgets });
        let work =
            AssertUnwindSafe(reconcile::work(Arc::clone(&self.shared), object, due, halt)).catch_unwind().boxed();
        let key = key.clone();
        self.tasks.spawn(async move {
            let ended = hold(slot, work).await.unwrap_or_else(|_panic| {
                tracing::error!(namespace = %key.0, name = %key.1, "a defect of billhook ended the work on this item; it is tried again");
                Ended::Again(None)
            });
            (key, ended)
        });
    }

    fn ended(&mut self, key: &Key, ended: Ended) {
        let Some(state) = self.items.get_mut(key) else { return };
        state.running = None;
        let (again, version) = match ended {
            Ended::Done(version) | Ended::Halted(version) => (false, version),
            Ended::LetGo => {
                state.let_go = true;
                (false, None)
            }
            Ended::Again(version) => (true, version),
        };
        state.written = version.or(state.written.take());
        if state.object.is_none() {
            self.forget(key);
            return;
        }
        if again {
            let pause = FIRST_PAUSE.saturating_mul(1 << state.attempts.min(6)).min(LONGEST_PAUSE);
            state.attempts += 1;
            self.later(key, Some(pause));
        } else {
            state.attempts = 0;
            self.consider(key, None);
        }
    }

    /// Sets when an item is looked at again.
    fn later(&mut self, key: &Key, pause: Option<Duration>) {
        let Some(state) = self.items.get_mut(key) else { return };
        if let Some(delay) = state.delay.take() {
            self.delays.remove(&delay);
        }
        // It is looked at again in any case, and far times are more than a timer can hold.
        state.delay = pause.map(|pause| self.delays.insert(key.clone(), pause.min(LONGEST_WAIT)));
    }

    fn forget(&mut self, key: &Key) {
        self.later(key, None);
        self.items.remove(key);
    }
}

/// Leaves out what nobody reads here and may be as large as the rest.
fn slim(item: &mut DeployItem) {
    item.metadata.managed_fields = None;
    if let Some(annotations) = &mut item.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// Whether an item asks for something that it has not asked for before.
fn is_asked_anew(known: &DeployItem, item: &DeployItem) -> bool {
    let job = |item: &DeployItem| item.status.as_ref().and_then(|status| status.job_id.clone());
    known.metadata.generation != item.metadata.generation
        || trigger::operation(known) != trigger::operation(item)
        || job(known) != job(item)
}

/// The phase of an item as it was last seen.
fn phase(state: &State) -> Option<Phase> {
    state.object.as_ref()?.status.as_ref()?.phase
}

fn key_of(metadata: &kube::core::ObjectMeta) -> Key {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// The schedule of an item that reconciles by itself; Landscaper has schedules of its own.
fn schedule_of(item: &DeployItem, trigger: Trigger) -> Option<Schedule> {
    if trigger == Trigger::Jobs || item.spec.config.as_ref()?.get("continuousReconcile").is_none() {
        return None;
    }
    let (configuration, _) = parse_configuration(item.spec.config.as_ref()?).ok()?;
    Schedule::try_from(&configuration.continuous_reconcile?).ok()
}
