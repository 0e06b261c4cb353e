//! Metrics that are read where they are, when somebody asks for them.

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

use crate::progress::{Held, Progress};

/// Responses by verb and code.
type Responses = BTreeMap<(&'static str, u16), u64>;

/// What is read at each scrape.
#[derive(Debug, Default)]
pub(super) struct Sources(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    runs: Vec<watch::Receiver<Progress>>,
    clusters: BTreeMap<u64, Cluster>,
    next: u64,
    /// The responses of clusters that are no longer read: a counter must not fall.
    former: Responses,
}

/// A cluster whose requests are counted.
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

    pub(super) fn follow(&self, progress: watch::Receiver<Progress>) {
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
    /// Runs whose sender is gone are over.
    fn forget(&mut self) {
        self.runs.retain(|run| run.has_changed().is_ok());
    }

    fn held(&self) -> Held {
        self.runs.iter().fold(Held::default(), |sum, run| {
            let held = run.borrow().held();
            Held {
                finalizer: sum.finalizer + held.finalizer,
                readiness: sum.readiness + held.readiness,
                refused: sum.refused + held.refused,
            }
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
        let (held, responses) = {
            let mut state = self.state();
            state.forget();
            (state.held(), state.responses())
        };
        let help = "Objects that are waited for, by what holds them";
        let mut waiting = encoder.encode_descriptor("objects_waiting", help, None, MetricType::Gauge)?;
        for (blocker, number) in
            [("finalizer", held.finalizer), ("readiness", held.readiness), ("refused", held.refused)]
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
