//! Leader election by a Lease, with the semantics of client-go's `tools/leaderelection`.
//!
//! No process trusts the clock of another one. A candidate takes the Lease over when it has not seen it change for the
//! holder's lease duration by its own clock. The holder stops earlier, when it could not renew the Lease for the renew
//! deadline. The times in the Lease are only informative.

use std::{convert::Infallible, sync::Arc, time::Duration};

use billhook_objects::{GroupKind, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use jiff::Timestamp;
use k8s_openapi::{
    List,
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    cluster::Cluster,
    counts::Verb,
    error::{Error, ErrorKind},
    fence::Fence,
    request::Call,
    tenure::{Moment, Renew, Tenure, Timing},
    url,
};

/// The jitter of a candidate's pauses: they take 1 to 2.2 retry periods, as in client-go.
const JITTER: f64 = 1.2;

/// The Lease to acquire, the identity of its holder, and the timing.
///
/// A renew deadline beyond the lease duration is cut to the lease duration.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The identity of this process. A Lease that it already holds is acquired at once, so that no two processes may use
    /// the same identity at one time.
    pub identity: String,
    /// How long another candidate must not see the Lease change before it takes it over. Default: 15 s.
    pub lease_duration: Duration,
    /// How long the holder leads without a renewal; less than the lease duration. Default: 10 s.
    pub renew_deadline: Duration,
    /// The pause between tries. Default: 2 s.
    pub retry_period: Duration,
    /// Tells the times that are written into the Lease. Default: the system's clock.
    pub clock: Clock,
}

/// Tells the current time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Makes a clock of a function.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Clock").field(&(self.0)()).finish()
    }
}

impl LeaseOptions {
    /// Makes options with the durations that client-go's documentation recommends.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            clock: Clock::new(now),
        }
    }

    /// Returns the Lease with this process as its holder.
    pub fn held(&self) -> HeldLease {
        HeldLease { namespace: self.namespace.clone(), name: self.name.clone(), holder_identity: self.identity.clone() }
    }

    /// Checks the durations by the rules of client-go (`NewLeaderElector`).
    ///
    /// # Errors
    ///
    /// Returns the first rule that they break.
    pub fn check(&self) -> Result<(), String> {
        let Self { lease_duration, renew_deadline, retry_period, .. } = self;
        if retry_period.is_zero() {
            return Err("the retry period must be longer than 0s".to_owned());
        }
        if *lease_duration < Duration::from_secs(1) {
            return Err("the lease duration must be at least 1s".to_owned());
        }
        if lease_duration <= renew_deadline {
            return Err(format!(
                "the lease duration ({lease_duration:?}) must be longer than the renew deadline ({renew_deadline:?})"
            ));
        }
        if *renew_deadline <= retry_period.mul_f64(JITTER) {
            return Err(format!(
                "the renew deadline ({renew_deadline:?}) must be longer than {JITTER} retry periods ({retry_period:?})"
            ));
        }
        Ok(())
    }

    fn deadline(&self) -> Duration {
        self.renew_deadline.min(self.lease_duration)
    }
}

/// One period in which a process holds a Lease, from its acquisition until another process acquires it, or the same one again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The UID of the Lease.
    pub lease: String,
    /// The number of transitions of the Lease (`spec.leaseTransitions`), which grows with each acquisition.
    pub transitions: i32,
}

/// The process that held a Lease before and has not released it: it was killed or frozen, or had no connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// Its identity.
    pub identity: String,
    /// When it last renewed the Lease, by its own clock.
    pub renewed: Option<Timestamp>,
}

/// A Lease that this process holds. A background task renews it until this value is dropped; then it expires, whereas
/// [`release`](Self::release) frees it at once.
#[derive(Debug)]
pub struct Leadership {
    tenure: Tenure<Elector>,
    limit: Duration,
    term: Option<Term>,
    predecessor: Option<Predecessor>,
}

impl Leadership {
    /// Returns the term that began with this leadership; none if the answer of the server did not tell it.
    pub fn term(&self) -> Option<&Term> {
        self.term.as_ref()
    }

    /// Returns the process that held the Lease before, unless it has released it.
    pub fn predecessor(&self) -> Option<&Predecessor> {
        self.predecessor.as_ref()
    }

    /// Returns a fence that lets requests pass while the Lease is held: until the renew deadline after the last successful
    /// renewal was sent, by the local clock alone.
    pub fn fence(&self) -> Fence {
        self.tenure.fence("this process is no longer the leader")
    }

    /// Waits until the Lease is no longer held.
    pub async fn lost(&mut self) {
        self.tenure.lost().await;
    }

    /// Releases the Lease, so that another candidate need not wait until it expires. The work that it guards must have
    /// ended. If the server does not answer within the renew deadline, the Lease expires.
    pub async fn release(self) {
        let release = async {
            match self.tenure.end().await {
                Some((mut elector, _)) => elector.release().await,
                None => Ok(()),
            }
        };
        match timeout(self.limit, release).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the Lease was not released and will expire"),
            Err(_) => tracing::warn!("the Lease was not released in time and will expire"),
        }
    }
}

/// A Lease that a controller holds, in the locks of the releases that it works on. Whoever holds it next continues the
/// controller's work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldLease {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The identity of its holder.
    pub holder_identity: String,
}

/// A Lease in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLease {
    /// Its name.
    pub name: String,
    /// The identity of its holder; empty if it was released.
    pub holder: String,
    /// How long it is held without a renewal.
    pub duration: Duration,
    /// Its version, which each renewal changes.
    pub resource_version: String,
    /// The term of its holder, or of the last one.
    pub term: Term,
}

/// How long ago the holder of a Lease renewed it.
pub(crate) enum LeaseAge {
    /// Another process holds it, or it was released.
    OfAnother,
    /// It does not exist.
    Missing,
    /// It cannot be read, or the server does not tell the times.
    Unknown,
    Known(Duration),
}

impl Cluster {
    /// Reads how long ago a Lease was renewed, by the server's clock.
    pub(crate) async fn lease_age(&self, lease: &HeldLease) -> Result<LeaseAge, Error> {
        let what = format!("read Lease {}/{}", lease.namespace, lease.name);
        let url = url::object(&leases(), Some(&lease.namespace), &lease.name);
        let reply = match self.send(&Call::get(what, url)).await {
            Ok(reply) => reply,
            Err(error) if error.object_not_found() => return Ok(LeaseAge::Missing),
            Err(error) if *error.kind() == ErrorKind::Forbidden => return Ok(LeaseAge::Unknown),
            Err(error) => return Err(error),
        };
        let found: Lease = reply.json()?;
        if found.spec.is_none_or(|spec| holder(&spec) != lease.holder_identity) {
            return Ok(LeaseAge::OfAnother);
        }
        let managed = found.metadata.managed_fields.unwrap_or_default();
        let ours = managed.into_iter().filter(|fields| fields.manager.as_deref() == Some(FIELD_MANAGER));
        let renewed = ours.filter_map(|fields| fields.time).map(|time| time.0).max();
        Ok(match renewed.zip(reply.date()) {
            Some((renewed, now)) => {
                LeaseAge::Known(Duration::try_from(now.duration_since(renewed)).unwrap_or_default())
            }
            None => LeaseAge::Unknown,
        })
    }

    /// Lists the Leases of a namespace, as they are now.
    ///
    /// # Errors
    ///
    /// When the request fails.
    pub async fn leases(&self, namespace: &str) -> Result<Vec<ListedLease>, Error> {
        let what = format!("list the Leases in namespace {namespace}");
        let reply = self.send(&Call::new(Verb::List, what, url::collection(&leases(), Some(namespace)))).await?;
        let listed = |lease: Lease| {
            let spec = lease.spec.unwrap_or_default();
            let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            ListedLease {
                name: lease.metadata.name.unwrap_or_default(),
                holder: spec.holder_identity.unwrap_or_default(),
                duration: Duration::from_secs(seconds.unwrap_or_default()),
                resource_version: lease.metadata.resource_version.unwrap_or_default(),
                term: Term {
                    lease: lease.metadata.uid.unwrap_or_default(),
                    transitions: spec.lease_transitions.unwrap_or_default(),
                },
            }
        };
        Ok(reply.json::<List<Lease>>()?.items.into_iter().map(listed).collect())
    }

    /// Waits until the Lease is acquired, and creates it if there is none. Failures are logged and retried.
    pub async fn acquire(&self, options: &LeaseOptions) -> Leadership {
        let log = |why: NotHeld<'_>| {
            if let NotHeld::Failed(error) = why {
                tracing::warn!(%error, "the Lease was not acquired; retrying");
            }
            None::<Infallible>
        };
        let Ok(leadership) = self.acquire_unless(options, log).await;
        leadership
    }

    /// Waits until the Lease is acquired, and creates it if there is none. After each try that did not succeed, `give_up`
    /// learns why, and may end the wait.
    ///
    /// # Errors
    ///
    /// Returns what `give_up` returned.
    pub async fn acquire_unless<E>(
        &self,
        options: &LeaseOptions,
        mut give_up: impl FnMut(NotHeld<'_>) -> Option<E>,
    ) -> Result<Leadership, E> {
        let (cluster, options) = (self.clone(), options.clone());
        let mut elector = Elector { cluster, options, lease: None, seen: None, predecessor: None, has_tried: false };
        let options = elector.options.clone();
        loop {
            let started = Moment::now();
            let ended = match elector.acquire().await {
                Ok(true) if started.elapsed() < options.deadline() => {
                    let (limit, pause) = (options.deadline(), options.retry_period);
                    let (term, predecessor) = (elector.term(), elector.predecessor.take());
                    let tenure = Tenure::start(started, Timing { limit, every: pause, retry: pause }, elector);
                    return Ok(Leadership { tenure, limit, term, predecessor });
                }
                Ok(_) => elector.other_holder().and_then(|holder| give_up(NotHeld::ByAnother(holder))),
                Err(error) => give_up(NotHeld::Failed(&error)),
            };
            if let Some(ended) = ended {
                return Err(ended);
            }
            sleep(options.retry_period.mul_f64(1.0 + JITTER * self.jitter())).await;
        }
    }
}

/// Why a candidate does not hold a Lease yet.
#[derive(Clone, Copy, Debug)]
pub enum NotHeld<'a> {
    /// The process of this identity holds it.
    ByAnother(&'a str),
    /// A request failed.
    Failed(&'a Error),
}

/// The content of a Lease, and when it was first seen.
#[derive(Clone, Debug)]
struct Seen {
    spec: LeaseSpec,
    at: Instant,
}

#[derive(Clone, Debug)]
struct Elector {
    cluster: Cluster,
    options: LeaseOptions,
    /// The Lease as this process last wrote it.
    lease: Option<Lease>,
    seen: Option<Seen>,
    /// The holder that the last acquisition has replaced.
    predecessor: Option<Predecessor>,
    /// Whether it has tried to acquire the Lease.
    has_tried: bool,
}

impl Elector {
    /// Tries to acquire the Lease, and returns whether it is held now.
    async fn acquire(&mut self) -> Result<bool, Error> {
        let asked = Instant::now();
        let lease = self.read().await?;
        if let Some(lease) = &lease {
            let spec = lease.spec.clone().unwrap_or_default();
            if self.seen.as_ref().is_none_or(|seen| seen.spec != spec) {
                self.seen = Some(Seen { spec, at: Instant::now() });
            }
        }
        // A Lease that another client deletes still belongs to its holder, who will recreate it.
        if self.seen.as_ref().is_some_and(|seen| self.is_held_by_another(seen, asked)) {
            return Ok(false);
        }
        let before = lease.as_ref().and_then(|lease| lease.spec.as_ref()).filter(|spec| !holder(spec).is_empty());
        let before = before.map(|spec| Predecessor {
            identity: holder(spec).to_owned(),
            renewed: spec.renew_time.as_ref().map(|time| time.0),
        });
        // Where the answer to an earlier try was lost, the Lease names this process, which replaced the other one then.
        let is_own = before.as_ref().is_some_and(|before| before.identity == self.options.identity);
        if !(is_own && self.has_tried) {
            self.predecessor = before;
        }
        self.has_tried = true;
        match self.write(lease, false).await {
            Err(error) if error.code() == Some(409) => Ok(false),
            written => written.map(|()| true),
        }
    }

    /// Returns the term of the Lease as this process last wrote it.
    fn term(&self) -> Option<Term> {
        let lease = self.lease.as_ref()?;
        Some(Term { lease: lease.metadata.uid.clone()?, transitions: lease.spec.as_ref()?.lease_transitions? })
    }

    fn is_held_by_another(&self, seen: &Seen, now: Instant) -> bool {
        let theirs = seen.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = Duration::from_secs(theirs.unwrap_or_default()).max(self.options.lease_duration);
        let holder = holder(&seen.spec);
        !holder.is_empty() && holder != self.options.identity && now < seen.at + duration
    }

    /// Returns the process that holds the Lease, if it is another one.
    fn other_holder(&self) -> Option<&str> {
        let seen = self.seen.as_ref().filter(|seen| self.is_held_by_another(seen, Instant::now()))?;
        Some(holder(&seen.spec))
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().is_some_and(|spec| holder(spec) == self.options.identity)
    }

    /// Releases the Lease if it is still held.
    async fn release(&mut self) -> Result<(), Error> {
        loop {
            let Some(mut lease) = self.read().await?.filter(|lease| self.is_ours(lease)) else { return Ok(()) };
            let now = Some(MicroTime((self.options.clock.0)()));
            let spec = lease.spec.get_or_insert_default();
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            spec.acquire_time.clone_from(&now);
            spec.renew_time = now;
            match self.send(Verb::Update, Some(&lease)).await {
                Err(error) if error.code() == Some(409) => sleep(self.cluster.backoff(0)).await,
                sent => return sent.map(drop),
            }
        }
    }

    /// Writes this process as the holder: by a PUT of the Lease that was read, or a POST if there is none.
    ///
    /// Each acquisition counts as a transition, also one by the identity that holds the Lease: its former process has ended, so
    /// that a new term begins.
    async fn write(&mut self, lease: Option<Lease>, renewal: bool) -> Result<(), Error> {
        let (verb, mut lease) = match lease {
            Some(lease) => (Verb::Update, lease),
            None => {
                let LeaseOptions { namespace, name, .. } = &self.options;
                let (namespace, name) = (Some(namespace.clone()), Some(name.clone()));
                let metadata = ObjectMeta { namespace, name, ..ObjectMeta::default() };
                (Verb::Create, Lease { metadata, spec: None })
            }
        };
        let renewal = renewal && self.is_ours(&lease);
        let now = MicroTime((self.options.clock.0)());
        let seconds = self.options.lease_duration.as_millis().div_ceil(1000);
        let spec = lease.spec.get_or_insert_default();
        if !renewal {
            spec.acquire_time = Some(now.clone());
            let before = spec.lease_transitions.unwrap_or_default();
            spec.lease_transitions = Some(if verb == Verb::Create { 0 } else { before.saturating_add(1) });
        }
        spec.holder_identity = Some(self.options.identity.clone());
        spec.lease_duration_seconds = Some(i32::try_from(seconds).unwrap_or(i32::MAX));
        spec.renew_time = Some(now);
        self.lease = self.send(verb, Some(&lease)).await?;
        Ok(())
    }

    async fn read(&self) -> Result<Option<Lease>, Error> {
        match self.send(Verb::Get, None).await {
            Err(error) if error.object_not_found() => Ok(None),
            answer => answer,
        }
    }

    /// Sends one request without retries, and outside the limit of requests in flight.
    async fn send(&self, verb: Verb, body: Option<&Lease>) -> Result<Option<Lease>, Error> {
        let LeaseOptions { namespace, name, .. } = &self.options;
        let (doing, url) = match verb {
            Verb::Create => ("create", url::collection(&leases(), Some(namespace))),
            Verb::Update => ("update", url::object(&leases(), Some(namespace), name)),
            _ => ("read", url::object(&leases(), Some(namespace), name)),
        };
        let what = format!("{doing} Lease {namespace}/{name}");
        let mut call = Call::new(verb, &what, url).retry(false).urgent();
        if let Some(lease) = body {
            let json = serde_json::to_vec(lease).map_err(|source| {
                Error::new(&what, ErrorKind::Other).because("the Lease cannot be encoded").with_source(source)
            })?;
            call.url = url::with_query(&call.url, &[("fieldManager", FIELD_MANAGER)]);
            call = call.body("application/json", json);
        }
        // Half of the deadline, so that a request without an answer leaves time for another try.
        match timeout(self.options.deadline() / 2, self.cluster.send(&call)).await {
            Ok(answer) => answer?.json().map(Some),
            Err(_) => Err(Error::new(what, ErrorKind::Timeout).because("no answer in time")),
        }
    }
}

impl Renew for Elector {
    async fn renew(&mut self) -> Result<bool, Error> {
        // Usually no other client has written it, so that the read is not needed.
        if let Some(lease) = self.lease.take() {
            match self.write(Some(lease), true).await {
                Err(error) if matches!(error.code(), Some(404 | 409)) => {}
                written => return written.map(|()| true),
            }
        }
        let lease = self.read().await?;
        if lease.as_ref().is_some_and(|lease| !self.is_ours(lease)) {
            return Ok(false);
        }
        self.write(lease, true).await.map(|()| true)
    }
}

fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

fn leases() -> Resource {
    let kind = GroupKind::new("coordination.k8s.io", "Lease");
    Resource { kind, version: "v1".into(), plural: "leases".into(), namespaced: true }
}

/// Returns the time of the system.
#[expect(clippy::disallowed_methods, reason = "informative only; all decisions about a Lease use tokio's clock")]
fn now() -> Timestamp {
    Timestamp::try_from(std::time::SystemTime::now()).unwrap_or_default()
}
