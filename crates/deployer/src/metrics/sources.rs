//! Metrics that are computed when Prometheus scrapes them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use billhook_cluster::Cluster;
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
};
use tokio::sync::watch;

use crate::progress::{HoldCounts, ItemProgress};

/// Responses by verb and code.
type Responses = BTreeMap<(&'static str, u16), u64>;

/// What a scrape reads.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    runs: Vec<watch::Receiver<ItemProgress>>,
    clusters: BTreeMap<u64, Cluster>,
    next: u64,
    /// The responses of clusters that are no longer counted: a counter must not decrease.
    former: Responses,
}

/// A cluster whose responses are counted until this is dropped.
#[derive(Debug)]
pub struct CountedCluster {
    sources: Arc<Sources>,
    id: u64,
}

impl Drop for CountedCluster {
    fn drop(&mut self) {
        let mut state = self.sources.state();
        if let Some(cluster) = state.clusters.remove(&self.id) {
            add(&mut state.former, cluster.responses());
        }
    }
}

impl Sources {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn follow(&self, progress: watch::Receiver<ItemProgress>) {
        let mut state = self.state();
        state.forget();
        state.runs.push(progress);
    }

    pub(super) fn count(sources: &Arc<Self>, cluster: Cluster) -> CountedCluster {
        let mut state = sources.state();
        let id = state.next;
        state.next += 1;
        state.clusters.insert(id, cluster);
        CountedCluster { sources: Arc::clone(sources), id }
    }
}

impl State {
    /// Drops the runs that have ended: their sender no longer exists.
    fn forget(&mut self) {
        self.runs.retain(|run| run.has_changed().is_ok());
    }

    fn hold_counts(&self) -> HoldCounts {
        self.runs.iter().map(|run| run.borrow().hold_counts()).fold(HoldCounts::default(), |sum, counts| HoldCounts {
            finalizer: sum.finalizer + counts.finalizer,
            readiness: sum.readiness + counts.readiness,
            refused: sum.refused + counts.refused,
        })
    }

    fn responses(&self) -> Responses {
        let mut sum = self.former.clone();
        self.clusters.values().for_each(|cluster| add(&mut sum, cluster.responses()));
        sum
    }
}

fn add(sum: &mut Responses, responses: Responses) {
    for (what, number) in responses {
        *sum.entry(what).or_default() += number;
    }
}

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let (counts, responses) = {
            let mut state = self.state();
            state.forget();
            (state.hold_counts(), state.responses())
        };
        let help = "Objects that running operations wait for, by what holds them up";
        let mut waiting = encoder.encode_descriptor("objects_waiting", help, None, MetricType::Gauge)?;
        for (blocker, number) in
            [("finalizer", counts.finalizer), ("readiness", counts.readiness), ("refused", counts.refused)]
        {
            let number = ConstGauge::new(i64::try_from(number).unwrap_or(i64::MAX));
            number.encode(waiting.encode_family(&[("blocker", blocker)])?)?;
        }
        let mut requests =
            encoder.encode_descriptor("api_requests", "Requests to API servers", None, MetricType::Counter)?;
        for ((verb, code), number) in responses {
            let code = if code == 0 { "<error>".to_owned() } else { code.to_string() };
            let labels = [("verb", verb.to_owned()), ("code", code)];
            ConstCounter::new(number).encode(requests.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
