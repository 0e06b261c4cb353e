//! The handle on one cluster.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use billhook_hosts::HostRules;
use billhook_objects::GroupKind;
use tokio::time::Instant;

use crate::{
    bearer::Bearer,
    client,
    counts::{Counters, RequestCounts},
    error::{Error, ErrorKind},
    fence::Fence,
    limiter::Limiter,
    recent_deletes::RecentDeletes,
    recent_names::RecentNames,
    shared_answer::SharedAnswer,
    watch_slots::WatchSlots,
};

/// How long after an outage the rights and kinds of a server may still be incomplete.
const STARTUP: Duration = Duration::from_secs(10);

/// How a [`Cluster`] sends its requests.
#[derive(Clone, Debug)]
pub struct Options {
    /// The time limit of one request. It does not apply to watches.
    pub request_timeout: Duration,
    /// How many requests may be in flight at once, watches excluded.
    pub max_in_flight: usize,
    /// How many objects a page of a list holds.
    pub page_size: u32,
    /// How many bytes an answer may have, and all answers that are being read at the same time. A page of a list that is
    /// larger is requested with fewer objects.
    pub answer_limit: usize,
    /// How many bytes all pages of a list may have.
    pub list_limit: usize,
    /// How long a request with a transient failure is retried, counted from its first failure. Until the server has
    /// answered for the first time it is at most five seconds, so that a wrong address is reported soon.
    pub patience: Duration,
    /// Set if somebody else chooses the server, such as the author of a Target: the rules about its host. Errors then do not
    /// quote answers that are not from an API server.
    pub foreign: Option<Arc<HostRules>>,
    /// The token of all requests, in place of the credentials of the configuration.
    pub bearer: Option<Bearer>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(30),
            max_in_flight: 64,
            page_size: 1000,
            answer_limit: 512 << 20,
            list_limit: usize::MAX,
            patience: Duration::from_secs(60),
            foreign: None,
            bearer: None,
        }
    }
}

impl Options {
    /// Returns the options for a server that somebody else chooses, by rules about its host: its answers are small enough that
    /// many such servers fit into the memory of one process.
    pub fn foreign(rules: Arc<HostRules>) -> Self {
        Self { page_size: 500, answer_limit: 16 << 20, list_limit: 64 << 20, foreign: Some(rules), ..Self::default() }
    }
}

/// A cluster, or any service with the same API. Clones share connections, limits and counters.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<Inner>,
    pub(crate) fences: Vec<Fence>,
    /// Whether a list that is up to half a minute old tells which objects do not exist.
    pub(crate) uses_recent_names: bool,
}

/// The versions in which a kind is served, the preferred one first; none where discovery cannot tell.
pub(crate) type ServedVersions = Option<Vec<String>>;

pub(crate) struct Inner {
    pub(crate) client: kube::Client,
    pub(crate) options: Options,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) counters: Counters,
    /// How many bytes of answers are being read.
    pub(crate) reading: AtomicUsize,
    /// Whether the server has answered anything yet.
    pub(crate) reached: AtomicBool,
    /// Whether the last request that ended got an answer.
    answers: Mutex<Option<bool>>,
    /// The server's time in seconds since 1970, and when an answer last told it.
    server_time: Mutex<Option<(i64, Instant)>>,
    /// When a request last found the server unreachable.
    outage: Mutex<Option<Instant>>,
    jitter: AtomicU64,
    pub(crate) deletes: Arc<RecentDeletes>,
    pub(crate) watches: WatchSlots,
    pub(crate) names: RecentNames,
    /// The answers of discovery for the kinds whose requests got an ambiguous 404.
    pub(crate) served: Mutex<HashMap<GroupKind, Arc<SharedAnswer<ServedVersions>>>>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Makes a client for a cluster without sending a request.
    ///
    /// The configuration's own retries are disabled: [`Options::patience`] replaces them.
    ///
    /// # Errors
    ///
    /// When the configuration is unusable, for example because of an unreadable certificate or an unknown proxy, or when
    /// [`Options::foreign`] denies the host.
    pub fn connect(config: kube::Config, options: Options) -> Result<Self, Error> {
        let fail = || Error::new("use the cluster's configuration", ErrorKind::Other);
        if let Some(rules) = &options.foreign {
            // The client does not resolve addresses.
            let host = config.cluster_url.host().unwrap_or_default();
            rules.check(host, None).map_err(|denied| fail().because("the host is denied").with_source(denied))?;
        }
        let client = client::connect_within(config, options.foreign.clone(), options.bearer.clone())
            .map_err(|source| fail().because("no client can be made from it").with_source(source))?;
        Ok(Self::from_client(client, options))
    }

    /// Uses a client over any service, for example one in memory.
    pub fn from_client(client: kube::Client, options: Options) -> Self {
        let inner = Inner {
            client,
            limiter: Limiter::new(options.max_in_flight),
            options,
            counters: Counters::default(),
            reading: AtomicUsize::new(0),
            reached: AtomicBool::new(false),
            answers: Mutex::new(None),
            server_time: Mutex::new(None),
            outage: Mutex::new(None),
            jitter: AtomicU64::new(0),
            deletes: Arc::new(RecentDeletes::new()),
            watches: WatchSlots::default(),
            names: RecentNames::default(),
            served: Mutex::default(),
        };
        Self { inner: Arc::new(inner), fences: Vec::new(), uses_recent_names: false }
    }

    /// Returns the same cluster behind one more fence: a request that a fence stops fails with [`ErrorKind::Stopped`] and is
    /// not retried.
    #[must_use]
    pub fn fenced(&self, fence: Fence) -> Self {
        let mut fenced = self.clone();
        fenced.fences.push(fence);
        fenced
    }

    /// Returns the same cluster for a caller that creates objects which probably do not exist, and whose writes require that: where
    /// a few names are looked up, a list of their namespace that all such callers share tells which of them do not exist. It is up
    /// to half a minute old, and knows what was created by this cluster since. Namespaces with very many objects are not listed.
    #[must_use]
    pub fn with_recent_names(&self) -> Self {
        Self { uses_recent_names: true, ..self.clone() }
    }

    /// Seeds the jitter of the pauses between retries. The default seed is 0, so every run has the same pauses.
    pub fn seed(&self, seed: u64) {
        self.inner.jitter.store(seed, Ordering::Relaxed);
    }

    /// Returns how many requests were sent so far, retries included.
    pub fn requests(&self) -> RequestCounts {
        self.inner.counters.requests()
    }

    /// Returns how many requests ended with which HTTP status, by verb as in [`RequestCounts::by_verb`].
    ///
    /// Status 0 stands for requests without an answer: those that timed out, were cancelled, or found no server. The
    /// latter are not in [`requests`](Self::requests).
    pub fn responses(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.inner.counters.responses()
    }

    /// Returns a number in 0..1 from a repeatable sequence (splitmix64).
    pub(crate) fn jitter(&self) -> f64 {
        let mut z = self.inner.jitter.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        f64::from(u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }

    /// Returns the pause before retry `attempt` (from 0): 50 ms, doubled each time up to 2 s, minus up to half of it.
    pub(crate) fn backoff(&self, attempt: u32) -> Duration {
        let full = Duration::from_millis(50 << attempt.min(6)).min(Duration::from_secs(2));
        full.mul_f64(1.0 - self.jitter() / 2.0)
    }

    /// Returns whether the last request got an answer, whatever it was; none before the first one has ended. Requests that
    /// were cancelled do not count.
    pub fn answers(&self) -> Option<bool> {
        *self.inner.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn note_answer(&self, answered: bool) {
        *self.inner.answers.lock().unwrap_or_else(PoisonError::into_inner) = Some(answered);
    }

    /// Notes what the server's clock showed when it sent an answer.
    pub(crate) fn note_time(&self, seconds: i64) {
        *self.inner.server_time.lock().unwrap_or_else(PoisonError::into_inner) = Some((seconds, Instant::now()));
    }

    /// Returns how many seconds ago a time was that the server has written into an object; negative if it is in the future.
    /// None before the server has told its time. The answer is at most a second above the truth, the resolution of both
    /// times, and lower if the server's answers were delayed.
    pub fn seconds_since(&self, server_time: i64) -> Option<f64> {
        let noted = *self.inner.server_time.lock().unwrap_or_else(PoisonError::into_inner);
        let (seconds, at) = noted?;
        let whole = i32::try_from(seconds.saturating_sub(server_time)).unwrap_or(i32::MAX);
        Some(f64::from(whole) + at.elapsed().as_secs_f64())
    }

    /// Returns what the server's clock shows, in seconds since 1970; none before the server has told its time.
    pub fn server_time(&self) -> Option<i64> {
        let noted = *self.inner.server_time.lock().unwrap_or_else(PoisonError::into_inner);
        noted.map(|(seconds, at)| seconds.saturating_add(i64::try_from(at.elapsed().as_secs()).unwrap_or(i64::MAX)))
    }

    pub(crate) fn note_outage(&self) {
        *self.inner.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Returns whether the server was unreachable a moment ago. While it starts it has loaded neither all rights nor
    /// all kinds, so that a 401 or 403 from it is transient.
    pub(crate) fn just_came_back(&self) -> bool {
        let outage = *self.inner.outage.lock().unwrap_or_else(PoisonError::into_inner);
        outage.is_some_and(|at| at.elapsed() < STARTUP)
    }
}
