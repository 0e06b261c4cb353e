//! The metrics of a watched payload for Prometheus.
//!
//! | metric | type | labels |
//! |---|---|---|
//! | `billhook_payload_info` | gauge, 1 | `name`, `namespace`, `version` |
//! | `billhook_payload_manifests` | gauge, of the last pass | `result` (`succeeded`, `failed`, `not-run`) |
//! | `billhook_payload_deletions_pending` | gauge, after the last pass | |
//! | `billhook_payload_last_success_timestamp_seconds` | gauge, 0 before the first success | |
//! | `billhook_payload_passes_total` | counter | `result` (`done`, `failed`, `stopped`) |
//! | `billhook_payload_folder_usable` | gauge, 1 or 0 | |
//! | `billhook_leader` | gauge, 1 or 0 | |

use std::{fmt, sync::Arc};

use prometheus_client::{
    encoding::text::encode,
    metrics::{counter::Counter, family::Family, gauge::Gauge, info::Info},
    registry::{Registry, Unit},
};

use crate::commands::payload::apply::pass::Tally;

type Labels = [(&'static str, &'static str); 1];

/// All metrics. Clones share them.
#[derive(Clone)]
pub(super) struct PayloadMetrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    manifests: Family<Labels, Gauge>,
    deletions: Gauge,
    last_success: Gauge,
    passes: Family<Labels, Counter>,
    usable: Gauge,
    leader: Gauge,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassResult {
    /// Every manifest succeeded.
    Done,
    Failed,
    /// The folder has changed, or the process no longer leads, or ends.
    Stopped,
}

impl PassResult {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

impl PayloadMetrics {
    /// Creates the metrics of a version of a payload.
    pub(super) fn new(name: &str, namespace: &str, version: &str) -> Self {
        let mut inner = Inner {
            registry: Registry::with_prefix("billhook"),
            manifests: Family::default(),
            deletions: Gauge::default(),
            last_success: Gauge::default(),
            passes: Family::default(),
            usable: Gauge::default(),
            leader: Gauge::default(),
        };
        let labels = [("name", name), ("namespace", namespace), ("version", version)];
        let info = Info::new(labels.map(|(label, value)| (label, value.to_owned())).to_vec());
        let registry = &mut inner.registry;
        registry.register("payload", "The payload that is reconciled", info);
        registry.register("payload_manifests", "Manifests of the last pass by result", inner.manifests.clone());
        let help = "Objects that the last pass left to be deleted";
        registry.register("payload_deletions_pending", help, inner.deletions.clone());
        let (name, help) =
            ("payload_last_success_timestamp", "When the last pass ended in which every manifest succeeded");
        registry.register_with_unit(name, help, Unit::Seconds, inner.last_success.clone());
        registry.register("payload_passes", "Passes over the payload", inner.passes.clone());
        let help = "Whether the folder can be used as it is; otherwise the payload that was last read is reconciled";
        registry.register("payload_folder_usable", help, inner.usable.clone());
        registry.register("leader", "Whether this process is the leader", inner.leader.clone());
        Self(Arc::new(inner))
    }

    /// Counts a pass that ended at a time, in seconds since 1970.
    pub(super) fn passed(&self, result: PassResult, tally: Tally, pending: usize, now: i64) {
        self.0.passes.get_or_create(&[("result", result.name())]).inc();
        // The objects that it did not look at are not counted.
        if result == PassResult::Stopped {
            return;
        }
        for (name, number) in [("succeeded", tally.succeeded), ("failed", tally.failed), ("not-run", tally.not_run)] {
            self.0.manifests.get_or_create(&[("result", name)]).set(to_gauge(number));
        }
        if result == PassResult::Done {
            self.0.deletions.set(to_gauge(pending));
            self.0.last_success.set(now);
        }
    }

    /// Sets whether the folder can be used.
    pub(super) fn set_usable(&self, usable: bool) {
        self.0.usable.set(i64::from(usable));
    }

    /// Sets whether this process is the leader. What the passes of a former leader came to is not true any more.
    pub(super) fn set_leader(&self, leader: bool) {
        self.0.leader.set(i64::from(leader));
        if !leader {
            self.0.manifests.clear();
            self.0.deletions.set(0);
        }
    }

    /// Formats all metrics as OpenMetrics text.
    pub(super) fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}

fn to_gauge(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_tell_the_last_pass_of_the_leader() {
        let metrics = PayloadMetrics::new("payload", "shop", "4.21.0");
        let check = |lines: &[&str]| {
            let text = metrics.encode().unwrap();
            for line in lines {
                assert!(text.lines().any(|found| found == *line), "{line}: {text}");
            }
        };
        check(&[
            "billhook_payload_info{name=\"payload\",namespace=\"shop\",version=\"4.21.0\"} 1",
            "billhook_payload_last_success_timestamp_seconds 0",
            "billhook_payload_folder_usable 0",
            "billhook_leader 0",
        ]);
        metrics.set_leader(true);
        metrics.set_usable(true);
        metrics.passed(PassResult::Done, Tally { succeeded: 3, failed: 0, not_run: 0 }, 2, 1_700_000_000);
        metrics.passed(PassResult::Failed, Tally { succeeded: 1, failed: 1, not_run: 1 }, 0, 1_700_000_100);
        metrics.passed(PassResult::Stopped, Tally { succeeded: 0, failed: 0, not_run: 3 }, 0, 1_700_000_200);
        check(&[
            "billhook_leader 1",
            "billhook_payload_folder_usable 1",
            "billhook_payload_manifests{result=\"succeeded\"} 1",
            "billhook_payload_manifests{result=\"failed\"} 1",
            "billhook_payload_manifests{result=\"not-run\"} 1",
            "billhook_payload_deletions_pending 2",
            "billhook_payload_last_success_timestamp_seconds 1700000000",
            "billhook_payload_passes_total{result=\"done\"} 1",
            "billhook_payload_passes_total{result=\"failed\"} 1",
            "billhook_payload_passes_total{result=\"stopped\"} 1",
        ]);
        metrics.set_leader(false);
        check(&["billhook_leader 0", "billhook_payload_deletions_pending 0"]);
        assert!(!metrics.encode().unwrap().contains("result=\"succeeded\""));
    }
}
