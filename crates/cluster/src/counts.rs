//! Counts of the requests that were sent, and of how they ended.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use http::Method;

/// The verb of a request, as in the API server's audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
}

impl Verb {
    const ALL: [Self; 7] = [Self::Get, Self::List, Self::Watch, Self::Create, Self::Update, Self::Patch, Self::Delete];

    fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
        }
    }

    pub(crate) fn method(self) -> Method {
        match self {
            Self::Get | Self::List | Self::Watch => Method::GET,
            Self::Create => Method::POST,
            Self::Update => Method::PUT,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }
}

/// How many requests were sent, by the verbs of the API server's audit log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Single reads, including discovery.
    pub get: u64,
    /// Pages of lists.
    pub list: u64,
    /// Watches opened.
    pub watch: u64,
    /// POSTs.
    pub create: u64,
    /// PUTs.
    pub update: u64,
    /// PATCHes, including server-side apply.
    pub patch: u64,
    /// DELETEs.
    pub delete: u64,
}

impl RequestCounts {
    /// Returns the sum over all verbs.
    pub fn total(&self) -> u64 {
        self.by_verb().iter().map(|(_, count)| count).sum()
    }

    /// Returns each verb with its count, in a fixed order.
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

tokio::task_local! {
    /// How many requests the current work has sent.
    static SENT: Arc<AtomicU64>;
}

/// Does some work, and returns how many requests it sent to any cluster, retries included. Those of tasks that it spawns are
/// not counted.
pub async fn count_requests<T>(work: impl Future<Output = T>) -> (T, u64) {
    let sent = Arc::new(AtomicU64::new(0));
    let done = SENT.scope(Arc::clone(&sent), work).await;
    (done, sent.load(Ordering::Relaxed))
}

/// The running counts of a cluster.
#[derive(Default)]
pub(crate) struct Counters {
    sent: [AtomicU64; Verb::ALL.len()],
    /// How many requests ended with which HTTP status, by verb; 0 stands for no answer.
    ended: Mutex<BTreeMap<(&'static str, u16), u64>>,
}

impl Counters {
    pub(crate) fn sent(&self, verb: Verb) {
        self.sent[verb as usize].fetch_add(1, Ordering::Relaxed);
        let _outside = SENT.try_with(|sent| sent.fetch_add(1, Ordering::Relaxed));
    }

    /// Removes a request from the count, because it never left this machine.
    pub(crate) fn not_sent(&self, verb: Verb) {
        self.sent[verb as usize].fetch_sub(1, Ordering::Relaxed);
        let _outside = SENT.try_with(|sent| sent.fetch_sub(1, Ordering::Relaxed));
    }

    pub(crate) fn ended(&self, verb: Verb, code: u16) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        *ended.entry((verb.as_str(), code)).or_default() += 1;
    }

    pub(crate) fn requests(&self) -> RequestCounts {
        let [get, list, watch, create, update, patch, delete] =
            Verb::ALL.map(|verb| self.sent[verb as usize].load(Ordering::Relaxed));
        RequestCounts { get, list, watch, create, update, patch, delete }
    }

    pub(crate) fn responses(&self) -> BTreeMap<(&'static str, u16), u64> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
