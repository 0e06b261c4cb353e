//! The lock of a release: one operation at a time.
//!
//! The write of the head that starts an operation names its holder, and the write that ends it removes the lock, so that a
//! short operation sends no request for it. The holder of a longer one renews the lock, and stops in time when it cannot.
//!
//! No clock of another process is trusted: how old a lock is follows from two times of the server, when the head was last
//! written and when it was read. A controller that holds a Lease names it in its locks instead of renewing each of them.
//!
//! A lock that is taken over says how long its former holder may go on. Nothing starts before somebody has waited for that: not
//! even an operation of the process that took it, or of the next holder of its Lease.

use std::{
    collections::hash_map::RandomState,
    future::pending,
    hash::{BuildHasher as _, Hasher as _},
    time::Duration,
};

use billhook_objects::{
    ObjectKey, ReleaseName,
    wellknown::{self, FIELD_MANAGER},
};
use billhook_plan::{Inventory, Locked, Resource};
use k8s_openapi::ByteString;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::{
    format::{self, Head, Lock},
    secret::{Secret, Token, encoding_failed},
    store::{InventoryStore, WRITES, changed, is_conflict},
};
use crate::{
    counts::Verb,
    decode::META,
    error::{Error, ErrorKind},
    fence::Fence,
    lease::{HeldLease, LeaseAge},
    request::Call,
    tenure::{Moment, Renew, Tenure, Timing},
    url,
};

/// How long a lock lasts without a renewal.
pub const LOCK_DURATION: Duration = Duration::from_secs(30);
/// The holder stops earlier than that, so that no request is in flight when another command takes the lock over.
const TIMING: Timing =
    Timing { limit: Duration::from_secs(20), every: Duration::from_secs(10), retry: Duration::from_secs(2) };
/// How long a write of the lock may take, so that there is time for another try before the lock is lost.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
/// Both times that give the age of a lock are in whole seconds.
const RESOLUTION: Duration = Duration::from_secs(2);

/// Who locks releases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    name: String,
    pid: u32,
    /// Distinguishes operations, even of one process.
    id: String,
    lease: Option<HeldLease>,
}

impl Holder {
    /// Makes a holder for one operation: a name for people, such as `user@host`, and the number of the process. With a Lease,
    /// all requests must be behind the fence of its leadership.
    pub fn new(name: impl Into<String>, pid: u32, lease: Option<HeldLease>) -> Self {
        // Every state has other random keys.
        let id = format!("{:016x}", RandomState::new().build_hasher().finish());
        Self { name: name.into(), pid, id, lease }
    }

    fn lock(&self, operation: &str, since: Option<String>) -> Lock {
        Lock {
            operation: operation.to_owned(),
            holder: self.name.clone(),
            pid: self.pid,
            id: self.id.clone(),
            since,
            duration_seconds: LOCK_DURATION.as_secs(),
            renewals: 0,
            former_seconds: None,
            lease: self.lease.clone(),
        }
    }

    /// Returns whether this operation has taken a lock, or the controller whose Lease is held now.
    fn owns(&self, lock: &Lock) -> bool {
        let same = |lease: &HeldLease, own: &HeldLease| (&lease.namespace, &lease.name) == (&own.namespace, &own.name);
        lock.id == self.id || lock.lease.as_ref().zip(self.lease.as_ref()).is_some_and(|(lease, own)| same(lease, own))
    }
}

/// The result of a try to start an operation.
#[derive(Debug)]
pub enum Begun {
    /// The release is locked for the caller.
    Held(HeldLock),
    /// Another operation works on the release. Nothing was written.
    Locked(Locked),
}

/// The result of a try to take a lock over before it expires.
#[derive(Debug)]
pub enum TakeOver {
    /// No other operation works on the release.
    Free,
    /// A controller works on it, and its Lease is still renewed.
    Refused(Locked),
    /// It was taken.
    Taken(Box<TakenOver>),
}

/// A lock that was taken over, and whose former holder may not have stopped yet.
#[derive(Debug)]
pub struct TakenOver {
    /// The operation of the former holder.
    pub from: Locked,
    /// How long that may go on.
    pub wait: Duration,
    renewal: Renewal,
}

impl TakenOver {
    /// Waits until the former holder has certainly stopped, and notes that in the lock. Returns whether the lock is still held.
    ///
    /// # Errors
    ///
    /// When a request fails.
    pub async fn wait(mut self) -> Result<bool, Error> {
        sleep(self.wait).await;
        self.renewal.renew().await
    }
}

/// The lock of a release that this process holds. It is renewed until this value is dropped.
#[derive(Debug)]
pub struct HeldLock(Held);

#[derive(Debug)]
enum Held {
    Renewed(Tenure<Renewal>),
    /// The Lease of the controller is renewed instead.
    ByLease(Box<Token>),
}

impl HeldLock {
    /// Returns a fence that lets requests pass while the lock is held.
    pub fn fence(&self) -> Fence {
        match &self.0 {
            Held::Renewed(tenure) => tenure.fence("the lock of the release was lost"),
            Held::ByLease(_) => Fence::open(),
        }
    }

    /// Waits until the lock is lost.
    pub async fn lost(&mut self) {
        match &mut self.0 {
            Held::Renewed(tenure) => tenure.lost().await,
            Held::ByLease(_) => pending().await,
        }
    }

    /// Stops the renewals, and returns what the write that removes the lock must present; none if the lock was lost.
    pub async fn end(self) -> Option<Token> {
        match self.0 {
            Held::Renewed(tenure) => tenure.end().await.filter(|(_, held)| *held).map(|(renewal, _)| renewal.token),
            Held::ByLease(token) => Some(*token),
        }
    }
}

/// A lock to renew.
#[derive(Clone, Debug)]
struct Renewal {
    store: InventoryStore,
    release: ReleaseName,
    token: Token,
    may_vanish: bool,
}

impl Renew for Renewal {
    async fn renew(&mut self) -> Result<bool, Error> {
        let what = format!("renew the lock of release {}", self.release);
        // Another client may have changed other fields of the Secret, or the answer of the last renewal was lost.
        for _ in 0..WRITES {
            let Some(lock) = self.token.head.lock.clone() else { return Ok(false) };
            let id = lock.id.clone();
            let next = Lock { renewals: lock.renewals + 1, former_seconds: None, ..lock };
            match self.store.write_lock(&what, &self.release, &self.token, next).await {
                Ok(token) => {
                    self.token = token;
                    return Ok(true);
                }
                Err(error) if error.object_not_found() => return self.vanished().await,
                Err(error) if error.code() != Some(409) => return Err(error),
                Err(_) => {}
            }
            match self.store.head(&self.release).await? {
                None => return self.vanished().await,
                Some(now) if now.head.lock.as_ref().is_some_and(|lock| lock.id == id) => self.token = now,
                Some(_) => return Ok(false),
            }
        }
        Err(changed(&what))
    }
}

impl Renewal {
    /// Returns whether a missing record was deleted with its namespace. Then nobody else can write one.
    async fn vanished(&self) -> Result<bool, Error> {
        if !self.may_vanish {
            return Ok(false);
        }
        let key = ObjectKey::new(wellknown::namespace(), None, self.release.namespace());
        let namespace = self.store.cluster.get_meta(&Resource::namespaces(), &key).await?;
        Ok(namespace.is_none_or(|namespace| namespace.deleting))
    }
}

impl Token {
    /// Returns how long the former holder of a lock that was taken over may still send requests; none once it has stopped.
    fn former_left(&self) -> Option<Duration> {
        let former = Duration::from_secs(self.head.lock.as_ref()?.former_seconds?);
        let left = (former + RESOLUTION).saturating_sub(self.age().unwrap_or_default());
        (!left.is_zero()).then_some(left)
    }

    /// Returns whether an operation has locked the release, even if its lock has expired.
    pub fn is_locked(&self) -> bool {
        self.head.lock.is_some()
    }

    /// Returns whether this holder has locked the release, and no former holder may go on.
    pub fn is_locked_by(&self, holder: &Holder) -> bool {
        self.former_left().is_none() && self.head.lock.as_ref().is_some_and(|lock| lock.id == holder.id)
    }
}

impl InventoryStore {
    /// Starts an operation: writes the record as [`save`](Self::save) does, and locks the release with it.
    ///
    /// With `may_vanish`, the lock is still held when the record was deleted with its namespace: a deletion goes on without
    /// a record.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save).
    pub async fn begin(
        &self,
        inventory: &mut Inventory,
        token: Option<Token>,
        (holder, operation): (&Holder, &str),
        may_vanish: bool,
    ) -> Result<Begun, Error> {
        let release = inventory.release.clone();
        if let Some(token) = &token
            && let Some(locked) = self.locked(&release, token, holder).await?
        {
            return Ok(Begun::Locked(locked));
        }
        let written = self.write(inventory, token, Some(holder.lock(operation, self.now.clone()))).await;
        self.begun(release, written, holder, may_vanish).await
    }

    /// Starts an operation that writes no record: locks the release, by an empty head if it has no record.
    ///
    /// # Errors
    ///
    /// As [`save`](Self::save).
    pub async fn lock(
        &self,
        release: &ReleaseName,
        token: Option<Token>,
        (holder, operation): (&Holder, &str),
    ) -> Result<Begun, Error> {
        let what = format!("lock release {release}");
        let lock = Some(holder.lock(operation, self.now.clone()));
        let written = match token {
            None => self.write_empty(&what, release, lock).await,
            Some(token) => match self.locked(release, &token, holder).await? {
                Some(locked) => return Ok(Begun::Locked(locked)),
                None => self.replace_lock(&what, release, token, lock).await,
            },
        };
        self.begun(release.clone(), written, holder, false).await
    }

    async fn begun(
        &self,
        release: ReleaseName,
        written: Result<Token, Error>,
        holder: &Holder,
        may_vanish: bool,
    ) -> Result<Begun, Error> {
        match written {
            Ok(token) => Ok(Begun::Held(self.hold(Renewal { store: self.clone(), release, token, may_vanish }).await)),
            Err(error) if is_conflict(&error) => {
                // Perhaps another operation has just started.
                match self.head(&release).await? {
                    Some(now) => self.locked(&release, &now, holder).await?.map(Begun::Locked).ok_or(error),
                    None => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a lock, and leaves the record as it is. An empty head is deleted.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Conflict`] if another command changed the head; other kinds if a request
    /// fails. The lock then expires.
    pub async fn unlock(&self, release: &ReleaseName, token: Token) -> Result<(), Error> {
        match token.is_empty() {
            true => self.remove(release, token).await,
            false => self.replace_lock(&format!("unlock release {release}"), release, token, None).await.map(drop),
        }
    }

    async fn hold(&self, mut renewal: Renewal) -> HeldLock {
        if renewal.token.head.lock.as_ref().is_some_and(|lock| lock.lease.is_some()) {
            return HeldLock(Held::ByLease(Box::new(renewal.token)));
        }
        let mut sent = renewal.token.at;
        if sent.elapsed() >= TIMING.every {
            // The write took long: how much of the limit is left is not known.
            let now = Moment::now();
            if matches!(renewal.renew().await, Ok(true)) {
                sent = now;
            }
        }
        HeldLock(Held::Renewed(Tenure::start(sent, TIMING, renewal)))
    }

    /// Takes the lock of a release over although it has not expired. The former holder notices that at its next renewal; until
    /// [`TakenOver::wait`] has ended, its requests must be expected, and no operation can start.
    ///
    /// # Errors
    ///
    /// When a request fails.
    pub async fn take_over(&self, release: &ReleaseName, holder: &Holder) -> Result<TakeOver, Error> {
        let what = format!("take over the lock of release {release}");
        for _ in 0..WRITES {
            let Some(token) = self.head(release).await? else { return Ok(TakeOver::Free) };
            let Some(from) = self.locked(release, &token, holder).await? else { return Ok(TakeOver::Free) };
            let most = TIMING.limit + RESOLUTION;
            let wait = match (&from.lease, from.expires_in) {
                (Some(_), Some(_)) => return Ok(TakeOver::Refused(from)),
                // Whoever took it over before waits for the same holder, and has not started anything.
                _ if let Some(left) = token.former_left() => left.min(most),
                (Some(_), None) => most,
                (None, _) => most.saturating_sub(token.age().unwrap_or_default()),
            };
            let former_seconds = Some(wait.as_millis().div_ceil(1000).try_into().unwrap_or(u64::MAX));
            let lock = Lock { former_seconds, ..holder.lock("take-over", self.now.clone()) };
            match self.write_lock(&what, release, &token, lock).await {
                Ok(token) => {
                    let renewal = Renewal { store: self.clone(), release: release.clone(), token, may_vanish: false };
                    return Ok(TakeOver::Taken(Box::new(TakenOver { from, wait, renewal })));
                }
                Err(error) if error.code() == Some(409) => {}
                Err(error) => return Err(error),
            }
        }
        Err(changed(&what))
    }

    /// Returns who works on a release, unless the lock is the caller's own or has expired. One that was taken over counts until
    /// its former holder has stopped, whoever owns it.
    ///
    /// # Errors
    ///
    /// When the Lease that the lock names cannot be read.
    pub async fn locked(&self, release: &ReleaseName, token: &Token, holder: &Holder) -> Result<Option<Locked>, Error> {
        let Some(lock) = token.head.lock.as_ref() else { return Ok(None) };
        let (is_own, waits) = (holder.owns(lock), token.former_left().is_some());
        if is_own && !waits {
            return Ok(None);
        }
        let mut lease = lock.lease.as_ref().filter(|_| !is_own);
        let age = match lease {
            None => token.age(),
            Some(of) => match self.cluster.lease_age(of).await? {
                LeaseAge::OfAnother if !waits => return Ok(None),
                LeaseAge::OfAnother => {
                    lease = None;
                    token.age()
                }
                LeaseAge::Missing => token.age(),
                LeaseAge::Unknown => None,
                LeaseAge::Known(age) => Some(age),
            },
        };
        let duration = Duration::from_secs(lock.duration_seconds);
        if !waits && age.is_some_and(|age| age >= duration) {
            return Ok(None);
        }
        Ok(Some(Locked {
            release: release.clone(),
            operation: lock.operation.clone(),
            holder: lock.holder.clone(),
            pid: lock.pid,
            since: lock.since.clone(),
            expires_in: age.map(|age| duration.saturating_sub(age)),
            lease: lease.map(|lease| format!("{}/{}", lease.namespace, lease.name)),
        }))
    }

    /// Replaces the lock alone.
    async fn replace_lock(
        &self,
        what: &str,
        release: &ReleaseName,
        mut token: Token,
        lock: Option<Lock>,
    ) -> Result<Token, Error> {
        for _ in 0..WRITES {
            let (call, head) = lock_call(what, release, &token, lock.clone())?;
            let sent = Moment::now();
            let error = match self.cluster.send(&call).await {
                Ok(answer) => return Ok(Token::written(&answer.json::<Secret>()?.metadata, head, sent)),
                Err(error) if error.code() == Some(409) => error,
                Err(error) => return Err(error),
            };
            match self.head(release).await? {
                // The try whose answer was lost has written it.
                Some(now) if error.answer_lost() && now.head == head => return Ok(now),
                // Another client has changed other fields.
                Some(now) if now.head == token.head && now.uid == token.uid => token = now,
                _ => break,
            }
        }
        Err(changed(what))
    }

    /// Replaces the lock alone. It is sent once and without waiting for other requests; after a lost answer the next try gets
    /// a conflict.
    async fn write_lock(&self, what: &str, release: &ReleaseName, token: &Token, lock: Lock) -> Result<Token, Error> {
        let (call, head) = lock_call(what, release, token, Some(lock))?;
        let sent = Moment::now();
        match timeout(LOCK_TIMEOUT, self.cluster.send(&call.retry(false).urgent())).await {
            Ok(answer) => Ok(Token::written(&answer?.json::<Secret>()?.metadata, head, sent)),
            Err(_) => Err(Error::new(what, ErrorKind::Timeout).because("no answer in time")),
        }
    }
}

/// Makes the request that replaces the lock of a head, and the head after it.
fn lock_call(what: &str, release: &ReleaseName, token: &Token, lock: Option<Lock>) -> Result<(Call, Head), Error> {
    let head = Head { lock, ..token.head.clone() };
    let json = serde_json::to_vec(&head).map_err(|source| encoding_failed(what, source))?;
    let body = json!({
        "metadata": { "uid": token.uid, "resourceVersion": token.resource_version },
        "data": { "head": ByteString(json) },
    });
    let url = url::object(&Resource::secrets(), Some(release.namespace()), &format::head_name(release));
    let url = url::with_query(&url, &[("fieldManager", FIELD_MANAGER)]);
    let call = Call::new(Verb::Patch, what, url).accept(META);
    Ok((call.body("application/merge-patch+json", body.to_string()), head))
}
