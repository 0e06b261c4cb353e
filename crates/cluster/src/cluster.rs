//! The handle on one cluster.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use billhook_objects::Uid;
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    error::{Error, ErrorKind},
    gone::Answers,
    inventory::InventoryStore,
    limiter::Limiter,
    transport::{Call, Verb},
};

/// What came of a DELETE that names a UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// It is on its way.
    Sent,
    /// The server said that nothing holds the object: it is gone, or about to be.
    Removed,
}

/// How long it is remembered what came of a DELETE. A watch needs it when the event comes, which is at once; where it is
/// forgotten, the watch asks the server.
const ASKED_KEPT: Duration = Duration::from_secs(60);

/// What came of the DELETEs that were sent from here of late, and when that was noted.
struct Asks {
    all: HashMap<Uid, (Instant, Asked)>,
    swept: Instant,
}

/// How a [`Cluster`] sends its requests.
#[derive(Clone, Debug)]
pub struct Options {
    /// How long one request may take; watches are not bound by it.
    pub request_timeout: Duration,
    /// How many requests may be in flight at once; watches do not count.
    pub max_in_flight: usize,
    /// How many objects a page of a list holds.
    pub page_size: u32,
    /// How long a request that fails for the moment is sent again, counted from its first failure. As long as the
    /// server has never answered it is at most five seconds: a wrong address should not take a minute to say so.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(30),
            max_in_flight: 64,
            page_size: 1000,
            patience: Duration::from_secs(60),
        }
    }
}

/// A cluster, or any service that answers like one. Clones share connections, limits and counters.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) inner: Arc<Inner>,
    pub(crate) fence: Option<Fence>,
}

/// Says before each request whether it may still be sent: what a process does that must not act any more once another one
/// has taken its place.
#[derive(Clone)]
pub struct Fence(Arc<dyn Fn() -> bool + Send + Sync>);

impl Fence {
    /// A fence that asks this function.
    pub fn new(may_send: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(may_send))
    }

    /// A fence that lets everything pass.
    pub fn open() -> Self {
        Self::new(|| true)
    }

    pub(crate) fn lets_pass(&self) -> bool {
        (self.0)()
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&self.lets_pass()).finish()
    }
}

pub(crate) struct Inner {
    pub(crate) client: kube::Client,
    pub(crate) options: Options,
    pub(crate) limiter: Arc<Limiter>,
    pub(crate) counts: [AtomicU64; Verb::ALL.len()],
    /// How many requests were answered with which code, by verb.
    responses: Mutex<BTreeMap<(&'static str, u16), u64>>,
    /// Whether the server has answered anything yet.
    pub(crate) reached: AtomicBool,
    /// When a request last found the server away.
    pub(crate) outage: Mutex<Option<Instant>>,
    jitter: AtomicU64,
    asked: Mutex<Asks>,
    /// In which versions kinds were served when a 404 made it doubtful.
    pub(crate) served: tokio::sync::Mutex<Answers>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("options", &self.inner.options).finish_non_exhaustive()
    }
}

impl Cluster {
    /// Makes a client for a cluster; no request is sent yet.
    ///
    /// The configuration's own retries are switched off: [`Options::patience`] takes their place.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be used: certificates that cannot be read, an unknown proxy.
    pub fn connect(mut config: kube::Config, options: Options) -> Result<Self, Error> {
        config.default_retry = false;
        let client = crate::connect::client(config).map_err(|source| {
            Error::new("use the cluster's configuration", ErrorKind::Other)
                .because("it does not make a client")
                .with_source(source)
        })?;
        Ok(Self::from_client(client, options))
    }

    /// Uses a client over any service, for example one in memory.
    pub fn from_client(client: kube::Client, options: Options) -> Self {
        let inner = Inner {
            client,
            limiter: Limiter::new(options.max_in_flight),
            options,
            counts: Default::default(),
            responses: Mutex::default(),
            reached: AtomicBool::new(false),
            outage: Mutex::new(None),
            jitter: AtomicU64::new(0),
            asked: Mutex::new(Asks { all: HashMap::new(), swept: Instant::now() }),
            served: tokio::sync::Mutex::default(),
        };
        Self { inner: Arc::new(inner), fence: None }
    }

    /// The same cluster, whose requests are only sent as long as the fence lets them pass; those that it does not are
    /// failures that do not pass.
    #[must_use]
    pub fn fenced(&self, fence: Fence) -> Self {
        Self { inner: Arc::clone(&self.inner), fence: Some(fence) }
    }

    /// Seeds the jitter of the pauses between tries; without a seed it is 0, and every run has the same pauses.
    pub fn seed(&self, seed: u64) {
        self.inner.jitter.store(seed, Ordering::Relaxed);
    }

    /// How many requests were really sent so far, those that were sent again included.
    pub fn requests(&self) -> RequestCounts {
        let count = |verb: Verb| self.inner.counts[verb as usize].load(Ordering::Relaxed);
        RequestCounts {
            get: count(Verb::Get),
            list: count(Verb::List),
            watch: count(Verb::Watch),
            create: count(Verb::Create),
            update: count(Verb::Update),
            patch: count(Verb::Patch),
            delete: count(Verb::Delete),
        }
    }

    /// How the requests ended so far: by verb, as [`RequestCounts::by_verb`] calls it, and HTTP status. 0 stands for those
    /// that got no answer: those that timed out or were given up, and those that found nobody listening, which
    /// [`requests`](Self::requests) does not count.
    pub fn responses(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.inner.responses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note_response(&self, verb: Verb, code: u16) {
        let mut all = self.inner.responses.lock().unwrap_or_else(PoisonError::into_inner);
        *all.entry((verb.as_str(), code)).or_default() += 1;
    }

    /// Asks for the server's version, such as `v1.36.3`.
    ///
    /// # Errors
    ///
    /// When the server does not answer.
    pub async fn version(&self) -> Result<String, Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Version {
            git_version: String,
        }
        let version: Version = self.send(&Call::get("read the server's version", "/version".into())).await?.json()?;
        Ok(version.git_version)
    }

    /// The store of the releases' records in this cluster.
    pub fn inventory(&self) -> InventoryStore {
        InventoryStore::new(self.clone())
    }

    /// A number of 0..1 with a repeatable sequence (splitmix64).
    pub(crate) fn jitter(&self) -> f64 {
        let mut z = self.inner.jitter.fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        f64::from(u32::try_from((z ^ (z >> 31)) >> 32).unwrap_or_default()) / f64::from(u32::MAX)
    }

    /// The pause before try number `attempt` (from 0): 50 ms, doubled each time, at most 2 s, less up to a half.
    pub(crate) fn backoff(&self, attempt: u32) -> Duration {
        let full = Duration::from_millis(50 << attempt.min(6)).min(Duration::from_secs(2));
        full.mul_f64(1.0 - self.jitter() / 2.0)
    }

    /// Notes what is known of a DELETE of this UID; none where it came to nothing.
    pub(crate) fn note_asked(&self, uid: &Uid, asked: Option<Asked>) {
        let (now, mut asks) = (Instant::now(), self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner));
        if now.duration_since(asks.swept) >= ASKED_KEPT {
            asks.all.retain(|_, (at, _)| now.duration_since(*at) < ASKED_KEPT);
            asks.all.shrink_to_fit();
            asks.swept = now;
        }
        match asked {
            Some(asked) => asks.all.insert(uid.clone(), (now, asked)),
            None => asks.all.remove(uid),
        };
    }

    pub(crate) fn asked(&self, uid: &Uid) -> Option<Asked> {
        self.inner.asked.lock().unwrap_or_else(PoisonError::into_inner).all.get(uid).map(|(_, asked)| *asked)
    }

    pub(crate) fn note_outage(&self) {
        *self.inner.outage.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether the server was away a moment ago: a server that has just started knows neither all its rights nor all
    /// its kinds yet, and its refusals do not count.
    pub(crate) fn just_came_back(&self) -> bool {
        let outage = *self.inner.outage.lock().unwrap_or_else(PoisonError::into_inner);
        outage.is_some_and(|at| at.elapsed() < Duration::from_secs(10))
    }
}

/// How many requests were sent, by verb as the API server's audit counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Single reads, discovery among them.
    pub get: u64,
    /// Pages of lists.
    pub list: u64,
    /// Watches opened.
    pub watch: u64,
    /// POSTs.
    pub create: u64,
    /// PUTs.
    pub update: u64,
    /// PATCHes, server-side apply among them.
    pub patch: u64,
    /// DELETEs.
    pub delete: u64,
}

impl RequestCounts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.get + self.list + self.watch + self.create + self.update + self.patch + self.delete
    }

    /// Each verb with its count, in a fixed order.
    pub fn by_verb(&self) -> [(&'static str, u64); 7] {
        [
            ("get", self.get),
            ("list", self.list),
            ("watch", self.watch),
            ("create", self.create),
            ("update", self.update),
            ("patch", self.patch),
            ("delete", self.delete),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_came_of_a_delete_is_forgotten_after_its_use() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::empty()))
        });
        let cluster = Cluster::from_client(kube::Client::new(service, "default"), Options::default());
        for number in 0..1000 {
            cluster.note_asked(&Uid::new(number.to_string()), Some(Asked::Removed));
        }
        assert_eq!(cluster.asked(&Uid::new("7")), Some(Asked::Removed));
        tokio::time::advance(ASKED_KEPT).await;
        cluster.note_asked(&Uid::new("new"), Some(Asked::Sent));
        assert_eq!(cluster.asked(&Uid::new("new")), Some(Asked::Sent));
        assert_eq!(cluster.inner.asked.lock().unwrap().all.len(), 1);
    }
}
