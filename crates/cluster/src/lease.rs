//! Leader election by a Lease, with the semantics of client-go's `tools/leaderelection`.
//!
//! Nobody trusts another one's clock: a candidate takes the Lease over once it has not seen it change for the holder's
//! lease duration by its own clock, and the holder stops earlier, once it has not been able to renew it for the renew
//! deadline. The times in the Lease are for people and for [`Cluster::lease_is_fresh`].

use std::time::Duration;

use billhook_objects::{GroupKind, wellknown::FIELD_MANAGER};
use billhook_plan::Resource;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout, timeout_at},
};

use crate::{
    cluster::{Cluster, Fence},
    error::{Error, ErrorKind},
    path,
    transport::{Call, Verb},
};

/// By how much a candidate's pauses vary: 1 to 2.2 retry periods, as in client-go.
const JITTER: f64 = 1.2;

/// Which Lease is to be held, and by whom.
///
/// Where the renew deadline is not shorter than the lease duration, the lease duration takes its place.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Who asks. A Lease that this identity holds already is taken at once, so no two processes that run at the same
    /// time may share it.
    pub identity: String,
    /// How long the others wait, without having seen the Lease change, before they take it over. 15 s.
    pub lease_duration: Duration,
    /// How long the holder leads without having been able to renew it; less than the lease duration. 10 s.
    pub renew_deadline: Duration,
    /// How long to pause between tries. 2 s.
    pub retry_period: Duration,
}

impl LeaseOptions {
    /// Options with the durations that client-go's documentation recommends.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, identity: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }

    fn deadline(&self) -> Duration {
        self.renew_deadline.min(self.lease_duration)
    }
}

/// A Lease that is held, and renewed in the background until this is dropped. A dropped one runs out; one that is
/// [released](Self::release) is free at once.
#[derive(Debug)]
pub struct Leadership {
    elector: Elector,
    /// Until when it is held for certain; in the past where it is lost.
    until: watch::Receiver<Instant>,
    task: JoinHandle<()>,
}

impl Leadership {
    /// Whether the Lease is held: it was renewed less than the renew deadline ago, counted from when the renewal was
    /// sent. That is judged by the clock alone, here and now. Once it says no it never says yes again.
    pub fn is_held(&self) -> bool {
        Instant::now() < *self.until.borrow()
    }

    /// Lets requests pass as long as the Lease is held.
    pub fn fence(&self) -> Fence {
        let until = self.until.clone();
        Fence::new(move || Instant::now() < *until.borrow())
    }

    /// Waits until the Lease is not held any more.
    pub async fn lost(&mut self) {
        loop {
            let until = *self.until.borrow_and_update();
            if Instant::now() >= until {
                return;
            }
            if let Ok(Err(_)) = timeout_at(until, self.until.changed()).await {
                // Nobody renews it any more.
                sleep_until(until).await;
            }
        }
    }

    /// Gives the Lease back, so that another candidate need not wait for it to run out. What it guards must have ended
    /// before. Where the server does not take it back within the renew deadline, it runs out.
    pub async fn release(mut self) {
        self.task.abort();
        // A renewal that is still under way loses to the version that is read after it.
        (&mut self.task).await.ok();
        let limit = self.elector.options.deadline();
        match timeout(limit, self.elector.release()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the Lease is not released and will run out"),
            Err(_) => tracing::warn!("the Lease is not released in time and will run out"),
        }
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Cluster {
    /// Waits until it holds the Lease, which is created where there is none. What goes wrong is logged and tried again.
    pub async fn acquire(&self, options: &LeaseOptions) -> Leadership {
        let mut elector = Elector { cluster: self.clone(), options: options.clone(), lease: None, seen: None };
        loop {
            let started = Instant::now();
            match elector.acquire().await {
                Ok(true) if started.elapsed() < options.deadline() => {
                    break lead(elector, started + options.deadline());
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the Lease is not acquired; trying again"),
            }
            sleep(options.retry_period.mul_f64(1.0 + JITTER * self.jitter())).await;
        }
    }

    /// Whether a Lease has a holder that renewed it less than its duration ago, by the clock of this machine: a guess,
    /// where clocks differ. A Lease that is not there is not fresh.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub async fn lease_is_fresh(&self, namespace: &str, name: &str) -> Result<bool, Error> {
        let url = path::object(&leases(), Some(namespace), name);
        let lease: Lease = match self.send(&Call::get(format!("read Lease {namespace}/{name}"), url)).await {
            Ok(reply) => reply.json()?,
            Err(error) if error.object_not_found() => return Ok(false),
            Err(error) => return Err(error),
        };
        let spec = lease.spec.unwrap_or_default();
        let (Some(MicroTime(renewed)), false) = (&spec.renew_time, holder(&spec).is_empty()) else { return Ok(false) };
        let age = now().duration_since(*renewed);
        Ok(age < SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or_default().into()))
    }
}

/// Renews a Lease that was just acquired.
fn lead(elector: Elector, until: Instant) -> Leadership {
    let (sender, until) = watch::channel(until);
    let task = tokio::spawn(keep(elector.clone(), sender));
    Leadership { elector, until, task }
}

/// Renews until it is lost. What answers too late does not count: the Lease may be another one's by then.
async fn keep(mut elector: Elector, until: watch::Sender<Instant>) {
    loop {
        sleep(elector.options.retry_period).await;
        let deadline = *until.borrow();
        let started = Instant::now();
        let renewed = timeout_at(deadline, elector.renew()).await;
        if Instant::now() >= deadline {
            tracing::warn!("the Lease was not renewed in time");
            return;
        }
        match renewed {
            Ok(Ok(true)) => until.send_replace(started + elector.options.deadline()),
            Ok(Ok(false)) => {
                tracing::warn!("another holder has the Lease");
                until.send_replace(started);
                return;
            }
            Ok(Err(error)) => {
                tracing::debug!(%error, "the Lease is not renewed; trying again");
                deadline
            }
            Err(_) => deadline,
        };
    }
}

/// What a Lease said, and when it was first seen to say so.
#[derive(Clone, Debug)]
struct Seen {
    spec: LeaseSpec,
    at: Instant,
}

#[derive(Clone, Debug)]
struct Elector {
    cluster: Cluster,
    options: LeaseOptions,
    /// The Lease as it was last written from here.
    lease: Option<Lease>,
    seen: Option<Seen>,
}

impl Elector {
    /// Tries to get the Lease: whether it is held now.
    async fn acquire(&mut self) -> Result<bool, Error> {
        let asked = Instant::now();
        let lease = self.read().await?;
        if let Some(lease) = &lease {
            let spec = lease.spec.clone().unwrap_or_default();
            if self.seen.as_ref().is_none_or(|seen| seen.spec != spec) {
                self.seen = Some(Seen { spec, at: Instant::now() });
            }
        }
        // A Lease that somebody deletes is still its holder's, who will create it anew.
        if self.seen.as_ref().is_some_and(|seen| self.is_held_by_another(seen, asked)) {
            return Ok(false);
        }
        match self.write(lease).await {
            Err(error) if error.code() == Some(409) => Ok(false),
            written => written.map(|()| true),
        }
    }

    fn is_held_by_another(&self, seen: &Seen, now: Instant) -> bool {
        let theirs = seen.spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = Duration::from_secs(theirs.unwrap_or_default()).max(self.options.lease_duration);
        let holder = holder(&seen.spec);
        !holder.is_empty() && holder != self.options.identity && now < seen.at + duration
    }

    /// Renews the Lease that is held: whether it still is.
    async fn renew(&mut self) -> Result<bool, Error> {
        // Mostly nobody else has written it.
        if let Some(lease) = self.lease.take() {
            match self.write(Some(lease)).await {
                Err(error) if matches!(error.code(), Some(404 | 409)) => {}
                written => return written.map(|()| true),
            }
        }
        let lease = self.read().await?;
        if lease.as_ref().is_some_and(|lease| !self.is_ours(lease)) {
            return Ok(false);
        }
        self.write(lease).await.map(|()| true)
    }

    fn is_ours(&self, lease: &Lease) -> bool {
        lease.spec.as_ref().is_some_and(|spec| holder(spec) == self.options.identity)
    }

    /// Gives it back, if it is still ours.
    async fn release(&mut self) -> Result<(), Error> {
        loop {
            let Some(mut lease) = self.read().await?.filter(|lease| self.is_ours(lease)) else { return Ok(()) };
            let now = Some(MicroTime(now()));
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

    /// Writes that it is ours: by a PUT of what was read, or a POST where there is none.
    async fn write(&mut self, lease: Option<Lease>) -> Result<(), Error> {
        let (verb, mut lease) = match lease {
            Some(lease) => (Verb::Update, lease),
            None => {
                let LeaseOptions { namespace, name, .. } = &self.options;
                let (namespace, name) = (Some(namespace.clone()), Some(name.clone()));
                let metadata = ObjectMeta { namespace, name, ..ObjectMeta::default() };
                (Verb::Create, Lease { metadata, spec: None })
            }
        };
        let goes_on = self.is_ours(&lease);
        let now = MicroTime(now());
        let seconds = self.options.lease_duration.as_millis().div_ceil(1000);
        let spec = lease.spec.get_or_insert_default();
        if !goes_on {
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

    /// Sends one request, once and past the limit of requests in flight: time is short.
    async fn send(&self, verb: Verb, body: Option<&Lease>) -> Result<Option<Lease>, Error> {
        let LeaseOptions { namespace, name, .. } = &self.options;
        let (doing, url) = match verb {
            Verb::Create => ("create", path::collection(&leases(), Some(namespace))),
            Verb::Update => ("update", path::object(&leases(), Some(namespace), name)),
            _ => ("read", path::object(&leases(), Some(namespace), name)),
        };
        let what = format!("{doing} Lease {namespace}/{name}");
        let mut call = Call::new(verb, &what, url).retry(false).urgent();
        if let Some(lease) = body {
            let json = serde_json::to_vec(lease)
                .map_err(|source| Error::new(&what, ErrorKind::Other).because("packing failed").with_source(source))?;
            call.url = path::with(&call.url, &[("fieldManager", FIELD_MANAGER)]);
            call = call.body("application/json", json);
        }
        // Half of the deadline, so that an answer that never comes leaves time for another try.
        match timeout(self.options.deadline() / 2, self.cluster.send(&call)).await {
            Ok(answer) => answer?.json().map(Some),
            Err(_) => Err(Error::new(what, ErrorKind::Timeout).because("no answer in time")),
        }
    }
}

fn holder(spec: &LeaseSpec) -> &str {
    spec.holder_identity.as_deref().unwrap_or_default()
}

fn leases() -> Resource {
    let kind = GroupKind::new("coordination.k8s.io", "Lease");
    Resource { kind, version: "v1".into(), plural: "leases".into(), namespaced: true }
}

/// The time that is written into a Lease.
#[expect(clippy::disallowed_methods, reason = "a stamp for people; what is decided here is decided by tokio's clock")]
fn now() -> Timestamp {
    Timestamp::try_from(std::time::SystemTime::now()).unwrap_or_default()
}
