//! The metrics for Prometheus.
//!
//! | metric | type | labels |
//! |---|---|---|
//! | `billhook_reconciles_total` | counter | `operation` (`apply`, `delete`), `result` (`done`, `failed`, `timed-out`, `interrupted`) |
//! | `billhook_reconcile_duration_seconds` | histogram | `operation`, `phase` (`prepare` to compute the plan, `run` to carry it out, `check` for custom readiness checks and exports) |
//! | `billhook_objects_deleted_total` | counter | |
//! | `billhook_finalizers_removed_total` | counter | |
//! | `billhook_objects_waiting` | gauge, of all runs together | `blocker` (`finalizer`, `readiness`, `refused`) |
//! | `billhook_queue_depth` | gauge, without items that wait for their schedule | |
//! | `billhook_items_failing` | gauge | `target_namespace`, `target`, `type` (`kubernetes-manifest`, `helm`) |
//! | `billhook_items_oldest_waiting_seconds` | gauge | `target_namespace`, `target`, `type` |
//! | `billhook_target_up` | gauge, 1 or 0 | `target_namespace`, `target` |
//! | `billhook_helm_slots`, `billhook_helm_slots_used`, `billhook_helm_slots_waiting` | gauge | `work` (`render`, `release`) |
//! | `billhook_retries_total` | counter | `operation`, `reason` |
//! | `billhook_items` | gauge | `phase` |
//! | `billhook_api_requests_total` | counter, of all clusters together | `verb`, `code` (`<error>` where there was no answer) |
//! | `billhook_events_dropped_total` | counter | |
//! | `billhook_leader` | gauge, 1 or 0 | |
//! | `billhook_shards` | gauge | |

use std::{fmt, sync::Arc, time::Duration};

use billhook_engine::{Event, Status};
use billhook_plan::Operation;
use prometheus_client::{
    encoding::text::encode,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};
use tokio::sync::watch;

use crate::{api::Phase, helms::Helms, progress::ItemProgress, target::OpenTarget};

mod board;
mod sources;

use board::Board;
pub(crate) use board::ItemGauges;
pub use sources::CountedCluster;
use sources::Sources;

type Labels<const N: usize> = [(&'static str, &'static str); N];

/// All metrics. Clones share them.
#[derive(Clone)]
pub struct Metrics {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    reconciles: Family<Labels<2>, Counter>,
    durations: Family<Labels<2>, Histogram>,
    objects_deleted: Counter,
    finalizers_removed: Counter,
    retries: Family<Labels<2>, Counter>,
    board: Arc<Board>,
    items: Family<Labels<1>, Gauge>,
    events_dropped: Counter,
    leader: Gauge,
    shards: Gauge,
    sources: Arc<Sources>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Creates all metrics, with the value zero.
    pub fn new() -> Self {
        // From 10 ms to three quarters of an hour.
        let buckets = || Histogram::new(exponential_buckets(0.01, 4.0, 10));
        let inner = Inner {
            registry: Registry::with_prefix("billhook"),
            reconciles: Family::default(),
            durations: Family::new_with_constructor(buckets),
            objects_deleted: Counter::default(),
            finalizers_removed: Counter::default(),
            retries: Family::default(),
            board: Arc::default(),
            items: Family::default(),
            events_dropped: Counter::default(),
            leader: Gauge::default(),
            shards: Gauge::default(),
            sources: Arc::default(),
        };
        Self { inner: Arc::new(inner.registered()) }
    }

    /// Counts gone objects and removed finalizers.
    pub fn event(&self, event: &Event) {
        match event {
            Event::Gone { .. } => {
                self.inner.objects_deleted.inc();
            }
            Event::FinalizersRemoved { finalizers, .. } => {
                self.inner.finalizers_removed.inc_by(u64::try_from(finalizers.len()).unwrap_or(u64::MAX));
            }
            _ => {}
        }
    }

    /// Includes a run in the gauge of waiting objects until the sender of its progress is dropped.
    pub fn follow(&self, progress: watch::Receiver<ItemProgress>) {
        self.inner.sources.follow(progress);
    }

    /// Includes a cluster in the counter of API requests. Its requests remain counted when the handle is dropped.
    #[must_use = "requests are only counted until this is dropped"]
    pub fn count_requests(&self, cluster: billhook_cluster::Cluster) -> CountedCluster {
        Sources::count(&self.inner.sources, cluster)
    }

    /// Counts a reconcile. A failure before the engine runs counts as [`Status::Failed`].
    pub fn reconciled(&self, operation: Operation, result: Status) {
        self.inner.reconciles.get_or_create(&[("operation", operation.name()), ("result", name(result))]).inc();
    }

    /// Records the duration of a part of a reconcile (`prepare`, `run` or `check`).
    pub fn took(&self, operation: Operation, phase: &'static str, time: Duration) {
        let labels = [("operation", operation.name()), ("phase", phase)];
        self.inner.durations.get_or_create(&labels).observe(time.as_secs_f64());
    }

    /// Counts work that failed and is retried.
    pub(crate) fn retried(&self, operation: Operation, reason: &'static str) {
        self.inner.retries.get_or_create(&[("operation", operation.name()), ("reason", reason)]).inc();
    }

    /// Sets the state of an item; `None` removes it.
    pub(crate) fn set_item(&self, key: &(String, String), item: Option<ItemGauges>) {
        self.inner.board.set_item(key, item);
    }

    /// Adds a Target, which is shown as soon as an item uses it.
    pub(crate) fn add_target(&self, key: &(String, String)) {
        self.inner.board.add_target(key);
    }

    /// Removes a Target.
    pub(crate) fn remove_target(&self, key: &(String, String)) {
        self.inner.board.remove_target(key);
    }

    /// Sets the connection of a Target that was added, or that it cannot be used.
    pub(crate) fn opened_target(&self, key: &(String, String), open: Option<&Arc<OpenTarget>>) {
        self.inner.board.opened(key, open);
    }

    /// Shows the slots for helm.
    pub(crate) fn follow_helms(&self, helms: &Helms) {
        let (renders, releases) = (helms.renders.clone(), helms.releases.clone());
        self.inner.board.set_helms(move || [("render", renders.counts()), ("release", releases.counts())]);
    }

    /// Removes all items, Targets and slots, because another replica leads.
    pub(crate) fn clear(&self) {
        self.inner.board.clear();
    }

    /// Moves an item from one phase to another; `None` is an item that does not exist or has no phase yet.
    pub fn phase_changed(&self, before: Option<Phase>, after: Option<Phase>) {
        let items = |phase| self.inner.items.get_or_create(&[("phase", phase_name(phase))]);
        if let Some(before) = before {
            items(before).dec();
        }
        if let Some(after) = after {
            items(after).inc();
        }
    }

    /// Sets how many shards the items are divided into, each of which needs a leader.
    pub(crate) fn set_shards(&self, shards: u32) {
        self.inner.shards.set(i64::from(shards));
    }

    /// Sets whether this process is the leader.
    pub fn set_leader(&self, leader: bool) {
        self.inner.leader.set(i64::from(leader));
    }

    /// Returns the counter of Events that found the channel full.
    pub fn events_dropped(&self) -> Counter {
        self.inner.events_dropped.clone()
    }

    /// Formats all metrics as OpenMetrics text.
    ///
    /// # Errors
    ///
    /// When formatting a metric fails.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.inner.registry)?;
        Ok(text)
    }
}

impl Inner {
    fn registered(mut self) -> Self {
        let registry = &mut self.registry;
        registry.register("reconciles", "DeployItems reconciled", self.reconciles.clone());
        registry.register("reconcile_duration_seconds", "Duration of the parts of a reconcile", self.durations.clone());
        registry.register("objects_deleted", "Objects that are gone", self.objects_deleted.clone());
        let help = "Finalizers removed by force";
        registry.register("finalizers_removed", help, self.finalizers_removed.clone());
        registry.register("retries", "Failed work that is retried", self.retries.clone());
        registry.register("items", "DeployItems by phase", self.items.clone());
        registry.register(
            "events_dropped",
            "Kubernetes Events dropped because too many were waiting to be written",
            self.events_dropped.clone(),
        );
        registry.register("leader", "Whether this process is the leader", self.leader.clone());
        registry.register("shards", "Shards, each of which has a leader", self.shards.clone());
        registry.register_collector(Box::new(Arc::clone(&self.sources)));
        registry.register_collector(Box::new(Arc::clone(&self.board)));
        self
    }
}

/// Returns the name of a result, as the metrics and the log show it.
pub(crate) fn name(status: Status) -> &'static str {
    match status {
        Status::Done => "done",
        Status::NotStarted | Status::Interrupted => "interrupted",
        Status::TimedOut => "timed-out",
        Status::Failed => "failed",
    }
}

fn phase_name(phase: Phase) -> &'static str {
    match phase {
        Phase::Init => "Init",
        Phase::Progressing => "Progressing",
        Phase::Completing => "Completing",
        Phase::Succeeded => "Succeeded",
        Phase::Failed => "Failed",
        Phase::InitDelete => "InitDelete",
        Phase::Deleting => "Deleting",
        Phase::DeleteFailed => "DeleteFailed",
        Phase::Unknown => "Unknown",
    }
}

#[cfg(test)]
mod monitoring;
#[cfg(test)]
mod tests;
