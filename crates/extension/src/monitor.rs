//! The metrics and probes of the controllers of a process.
//!
//! | metric | type | labels |
//! |---|---|---|
//! | `billhook_extension_calls_total` | counter | `kind`, `type`, `action` (`reconcile`, `delete`, `force-delete`, `migrate`, `restore`), `result` (`succeeded`, `failed`, `cancelled`) |
//! | `billhook_extension_call_duration_seconds` | histogram | `kind`, `type`, `action` |
//! | `billhook_extension_waiting` | gauge: objects that wait for a slot | `kind`, `type` |
//! | `billhook_extension_leader` | gauge, 1 or 0, of a controller with leader election | `kind`, `type` |
//!
//! `type` are the types that the controller handles, with commas between them.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

#[cfg(feature = "serve")]
use billhook_endpoints::Probes;
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

use crate::dispatch::Action;

type Labels<const N: usize> = [(&'static str, String); N];

/// The metrics and probes of the controllers of a process. Clones share them.
///
/// A process with several controllers gives one monitor to all of them, with
/// [`Controller::monitor`](crate::Controller::monitor). They are told apart by their kinds and types.
#[derive(Clone)]
pub struct Monitor {
    inner: Arc<Inner>,
}

struct Inner {
    registry: Registry,
    calls: Family<Labels<4>, Counter>,
    durations: Family<Labels<3>, Histogram>,
    waiting: Family<Labels<2>, Gauge>,
    leader: Family<Labels<2>, Gauge>,
    states: Mutex<BTreeMap<Name, State>>,
}

/// What tells the controllers of a process apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    kind: String,
    types: String,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.kind, self.types)
    }
}

/// A monitor as one controller uses it.
#[derive(Clone)]
pub(crate) struct Reporter {
    monitor: Monitor,
    name: Name,
}

/// The state of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// The seed has not answered yet.
    Starting,
    /// It works or waits for its turn to lead.
    Running,
    /// It has ended with an error.
    Failed(String),
}

impl Default for Monitor {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("states", &self.inner.states).finish_non_exhaustive()
    }
}

impl Monitor {
    /// Creates a monitor without controllers.
    pub fn new() -> Self {
        // From 10 ms to three quarters of an hour.
        let buckets = || Histogram::new(exponential_buckets(0.01, 4.0, 10));
        let mut inner = Inner {
            registry: Registry::with_prefix("billhook_extension"),
            calls: Family::default(),
            durations: Family::new_with_constructor(buckets),
            waiting: Family::default(),
            leader: Family::default(),
            states: Mutex::default(),
        };
        let Inner { registry, calls, durations, waiting, leader, .. } = &mut inner;
        registry.register("calls", "Calls of the actuator that have ended", calls.clone());
        registry.register("call_duration_seconds", "Duration of the calls of the actuator", durations.clone());
        registry.register("waiting", "Objects that wait for a slot", waiting.clone());
        registry.register("leader", "Whether this process is the leader", leader.clone());
        Self { inner: Arc::new(inner) }
    }

    /// Serves `/metrics`, `/healthz` ([`live`](Self::live)) and `/readyz` ([`ready`](Self::ready)) until `stop` is ready, then
    /// waits at most two seconds for open requests.
    ///
    /// # Errors
    ///
    /// When the listener fails.
    #[cfg(feature = "serve")]
    pub async fn serve(
        &self,
        listener: tokio::net::TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        billhook_endpoints::serve(listener, self.router(), stop).await
    }

    #[cfg(feature = "serve")]
    fn router(&self) -> axum::Router {
        let (scraped, live, ready) = (self.clone(), self.clone(), self.clone());
        let probes = Probes { live: Arc::new(move || live.live()), ready: Arc::new(move || ready.ready()) };
        billhook_endpoints::router(Arc::new(move || scraped.metrics()), probes)
    }

    /// Checks that the process need not be restarted.
    ///
    /// # Errors
    ///
    /// When a controller has ended with an error, which is named.
    pub fn live(&self) -> Result<(), String> {
        self.probe(|state| !matches!(state, State::Failed(_)))
    }

    /// Checks that the seed has answered each controller. A replica that waits for its turn to lead is ready.
    ///
    /// # Errors
    ///
    /// When it has not, or when a controller has ended with an error; each is named.
    pub fn ready(&self) -> Result<(), String> {
        self.probe(|state| *state == State::Running)
    }

    fn probe(&self, is_fine: fn(&State) -> bool) -> Result<(), String> {
        let states = self.inner.states.lock().unwrap_or_else(PoisonError::into_inner);
        let problems = states.iter().filter(|(_, state)| !is_fine(state)).map(|(name, state)| match state {
            State::Failed(problem) => format!("the controller of {name} has ended: {problem}"),
            _ => format!("the controller of {name} waits for the seed's first answer"),
        });
        let problems: Vec<String> = problems.collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Returns all metrics as OpenMetrics text.
    ///
    /// # Errors
    ///
    /// When they cannot be formatted, which is a bug.
    pub fn metrics(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.inner.registry)?;
        Ok(text)
    }

    /// Returns the monitor for the controller of a kind and types.
    pub(crate) fn reporter(&self, kind: &str, types: &[String]) -> Reporter {
        Reporter { monitor: self.clone(), name: Name { kind: kind.to_owned(), types: types.join(",") } }
    }
}

impl Reporter {
    fn labels(&self) -> Labels<2> {
        let Name { kind, types } = self.name.clone();
        [("kind", kind), ("type", types)]
    }

    pub(crate) fn set_state(&self, state: State) {
        let mut states = self.monitor.inner.states.lock().unwrap_or_else(PoisonError::into_inner);
        states.insert(self.name.clone(), state);
    }

    pub(crate) fn set_leader(&self, leader: bool) {
        self.monitor.inner.leader.get_or_create(&self.labels()).set(i64::from(leader));
    }

    pub(crate) fn set_waiting(&self, objects: usize) {
        let objects = i64::try_from(objects).unwrap_or(i64::MAX);
        self.monitor.inner.waiting.get_or_create(&self.labels()).set(objects);
    }

    /// Counts a call of the actuator.
    pub(crate) fn called(&self, action: Action, result: &'static str, time: Duration) {
        let Inner { durations, calls, .. } = &*self.monitor.inner;
        let ([kind, types], action) = (self.labels(), ("action", action.name().to_owned()));
        durations.get_or_create(&[kind.clone(), types.clone(), action.clone()]).observe(time.as_secs_f64());
        calls.get_or_create(&[kind, types, action, ("result", result.to_owned())]).inc();
    }
}

#[cfg(all(test, feature = "serve"))]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use axum::body::Body;
    use http::Request;
    use tower::ServiceExt as _;

    use super::*;

    async fn ask(monitor: &Monitor, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = monitor.router().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    fn reporter(monitor: &Monitor, types: &[&str]) -> Reporter {
        monitor.reporter("A", &types.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())
    }

    #[tokio::test]
    async fn probes_tell_which_controller_has_a_problem() {
        let monitor = Monitor::new();
        let (first, second) = (reporter(&monitor, &["x"]), reporter(&monitor, &["y", "z"]));
        first.set_state(State::Running);
        second.set_state(State::Starting);
        assert_eq!(ask(&monitor, "/healthz").await, (200, "ok\n".to_owned()));
        let waits = "the controller of A (y,z) waits for the seed's first answer\n".to_owned();
        assert_eq!(ask(&monitor, "/readyz").await, (503, waits));
        second.set_state(State::Failed("no CRD".into()));
        first.set_state(State::Running);
        assert_eq!(ask(&monitor, "/healthz").await, (503, "the controller of A (y,z) has ended: no CRD\n".to_owned()));
        second.set_state(State::Running);
        assert_eq!(ask(&monitor, "/readyz").await.0, 200);
    }

    #[tokio::test]
    async fn calls_are_counted() {
        let monitor = Monitor::new();
        let (first, second) = (reporter(&monitor, &["x"]), reporter(&monitor, &["y"]));
        first.set_leader(true);
        second.set_leader(false);
        first.set_waiting(3);
        second.set_waiting(0);
        first.called(Action::ForceDelete, "failed", Duration::from_secs(2));
        let (status, text) = ask(&monitor, "/metrics").await;
        assert_eq!(status, 200);
        for line in [
            "billhook_extension_calls_total{kind=\"A\",type=\"x\",action=\"force-delete\",result=\"failed\"} 1",
            "billhook_extension_call_duration_seconds_sum{kind=\"A\",type=\"x\",action=\"force-delete\"} 2.0",
            "billhook_extension_waiting{kind=\"A\",type=\"x\"} 3",
            "billhook_extension_leader{kind=\"A\",type=\"x\"} 1",
            "billhook_extension_leader{kind=\"A\",type=\"y\"} 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
