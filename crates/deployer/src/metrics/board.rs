//! The items, the Targets and the slots for helm, as the last scrape finds them.
//!
//! Tenants choose the names of Targets, so the series of a Target end with it, and only the most urgent ones are shown.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, gauge::ConstGauge},
};
use tokio::time::Instant;

use crate::{fair::SlotCounts, target::OpenTarget};

/// The number of Targets that a metric shows with their names.
const NAMED: usize = 1000;
/// The labels for all other Targets together.
const OTHERS: &str = "<others>";

/// A namespace and a name.
type Key = (String, String);

/// What the metrics show of an item.
#[derive(Clone, Debug, PartialEq)]
pub struct ItemGauges {
    /// The last part of the item's type.
    pub kind: &'static str,
    /// The name of its Target.
    pub target: String,
    /// Whether its last deployment or deletion failed.
    pub failing: bool,
    /// Since when there is work to do.
    pub waiting: Option<Instant>,
    /// Whether the work waits for a slot or for its next retry.
    pub queued: bool,
}

/// The state of all items and Targets during one period of leadership.
#[derive(Default)]
pub(super) struct Board(Mutex<State>);

/// The connection of each Target, of which only those are shown that items have used; none if it could not be used.
type Targets = HashMap<Key, Option<Option<Weak<OpenTarget>>>>;

/// Counts the slots for each work of helm.
type CountHelms = Box<dyn Fn() -> [(&'static str, SlotCounts); 2] + Send>;

#[derive(Default)]
struct State {
    items: HashMap<Key, ItemGauges>,
    targets: Targets,
    helms: Option<CountHelms>,
}

/// The sums over the items of one type and Target.
#[derive(Clone, Copy, Default)]
struct Sum {
    failing: u32,
    oldest: Option<Instant>,
}

impl fmt::Debug for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Board").finish_non_exhaustive()
    }
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_item(&self, key: &Key, item: Option<ItemGauges>) {
        let mut state = self.state();
        match (item, state.items.get_mut(key)) {
            (Some(item), Some(known)) => *known = item,
            (Some(item), None) => {
                state.items.insert(key.clone(), item);
            }
            (None, _) => {
                state.items.remove(key);
            }
        }
    }

    pub(super) fn add_target(&self, key: &Key) {
        self.state().targets.entry(key.clone()).or_default();
    }

    pub(super) fn remove_target(&self, key: &Key) {
        self.state().targets.remove(key);
    }

    pub(super) fn opened(&self, key: &Key, target: Option<&Arc<OpenTarget>>) {
        if let Some(known) = self.state().targets.get_mut(key) {
            *known = Some(target.map(Arc::downgrade));
        }
    }

    pub(super) fn set_helms(&self, helms: impl Fn() -> [(&'static str, SlotCounts); 2] + Send + 'static) {
        self.state().helms = Some(Box::new(helms));
    }

    pub(super) fn clear(&self) {
        *self.state() = State::default();
    }
}

impl State {
    /// Sums up the items by namespace, Target and type.
    fn sums(&self) -> BTreeMap<(&str, &str, &'static str), Sum> {
        let mut sums: BTreeMap<_, Sum> = BTreeMap::new();
        for ((namespace, _), item) in &self.items {
            let sum = sums.entry((namespace.as_str(), item.target.as_str(), item.kind)).or_default();
            sum.failing += u32::from(item.failing);
            sum.oldest = older(sum.oldest, item.waiting);
        }
        if sums.len() <= NAMED {
            return sums;
        }
        let mut all: Vec<_> = sums.into_iter().collect();
        all.sort_by_key(|(_, sum)| (Reverse(sum.failing), sum.oldest.is_none(), sum.oldest));
        let mut named: BTreeMap<_, Sum> = BTreeMap::new();
        for (index, ((namespace, target, kind), sum)) in all.into_iter().enumerate() {
            let key = if index < NAMED { (namespace, target, kind) } else { (OTHERS, OTHERS, kind) };
            let of = named.entry(key).or_default();
            of.failing += sum.failing;
            of.oldest = older(of.oldest, sum.oldest);
        }
        named
    }

    /// Returns the Targets that items have used, those first whose API server does not answer.
    fn targets(&self) -> Vec<(bool, &Key)> {
        let up = |open: &Weak<OpenTarget>| open.upgrade().and_then(|open| open.cluster.answers());
        let mut shown: Vec<_> = (self.targets.iter())
            .filter_map(|(key, used)| Some((used.as_ref()?.as_ref().map_or(Some(false), up)?, key)))
            .collect();
        shown.sort_unstable();
        shown.truncate(NAMED);
        shown
    }
}

fn older(one: Option<Instant>, two: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(two).min()
}

impl Collector for Board {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let state = self.state();
        let queued = state.items.values().filter(|item| item.queued).count();
        let help = "DeployItems with work to do that wait for a slot or for their next retry";
        let queue = encoder.encode_descriptor("queue_depth", help, None, MetricType::Gauge)?;
        gauge(queued).encode(queue)?;
        let sums = state.sums();
        let labels = |(namespace, target, kind): &(&str, &str, &str)| {
            [("target_namespace", namespace.to_string()), ("target", target.to_string()), ("type", kind.to_string())]
        };
        let help = "DeployItems whose last deployment or deletion failed";
        let mut failing = encoder.encode_descriptor("items_failing", help, None, MetricType::Gauge)?;
        for (key, sum) in &sums {
            ConstGauge::new(i64::from(sum.failing)).encode(failing.encode_family(&labels(key))?)?;
        }
        let help = "How long the oldest DeployItem has had work to do that is not finished";
        let mut oldest = encoder.encode_descriptor("items_oldest_waiting_seconds", help, None, MetricType::Gauge)?;
        for (key, sum) in &sums {
            let seconds = sum.oldest.map_or(0.0, |since| since.elapsed().as_secs_f64());
            ConstGauge::new(seconds).encode(oldest.encode_family(&labels(key))?)?;
        }
        let help = "Whether the API server of a Target answered the last request";
        let mut up = encoder.encode_descriptor("target_up", help, None, MetricType::Gauge)?;
        for (answers, (namespace, target)) in state.targets() {
            let labels = [("target_namespace", namespace.as_str()), ("target", target.as_str())];
            ConstGauge::new(i64::from(answers)).encode(up.encode_family(&labels)?)?;
        }
        let helms = state.helms.as_ref().map(|helms| helms());
        let mut slots = |name, help, count: fn(&SlotCounts) -> usize| {
            let mut slots = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (work, counts) in helms.iter().flatten() {
                gauge(count(counts)).encode(slots.encode_family(&[("work", *work)])?)?;
            }
            Ok(())
        };
        slots("helm_slots", "How many helm programs may run at the same time", |counts| counts.slots)?;
        slots("helm_slots_used", "Helm programs that are running", |counts| counts.used)?;
        slots("helm_slots_waiting", "DeployItems that wait for a helm program", |counts| counts.waiting)
    }
}

fn gauge(number: usize) -> ConstGauge<i64> {
    ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;
