//! What the nodes of a run share, and what each hands back.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use billhook_cluster::{Error, Known};
use billhook_objects::{Manifest, ObjectKey, Uid};
use billhook_plan::{Listed, Listing, Plan, QueryId};
use tokio::time::Instant;

use crate::{Blocker, Clusters, Event, FinalizersRemoved, RunOptions, Status};

/// How many requests are handed to the cluster's own limiter; more would only hold memory, and go out after a Ctrl-C.
pub(crate) const WINDOW: usize = 64;
/// How long requests under way may still take once the user has interrupted.
pub(crate) const GRACE: Duration = Duration::from_secs(2);
/// The longest pause before something that was refused for the moment is tried again.
pub(crate) const MAX_PAUSE: Duration = Duration::from_secs(15);

/// How long to wait before what was refused for the moment is tried again: longer each time, and as long as the server
/// wishes.
pub(crate) fn pause(attempts: u32, error: &Error) -> Duration {
    let own = Duration::from_millis(500 << attempts.min(5)).min(MAX_PAUSE);
    own.max(error.retry_after().unwrap_or_default())
}

/// What all nodes of a run share.
pub(crate) struct Context<'a> {
    pub plan: &'a Plan,
    pub clusters: &'a Clusters,
    pub manifests: &'a BTreeMap<ObjectKey, Manifest>,
    /// The value of the release's label; none where manifests alone name the objects.
    pub label: Option<String>,
    pub options: &'a RunOptions,
    pub deadline: Option<Instant>,
    pub listings: HashMap<QueryId, &'a Listing>,
}

impl<'a> Context<'a> {
    /// What the snapshot knows of a query, as the start of its watch.
    pub fn known(&self, query: QueryId) -> Known {
        match self.listings.get(&query).map(|listing| &listing.found) {
            Some(Listed::Items { resource_version, items }) => Known {
                resource_version: resource_version.clone(),
                objects: items.iter().map(|o| (o.namespace.clone(), o.name.clone(), o.uid.clone())).collect(),
            },
            _ => Known::default(),
        }
    }

    pub fn emit(&self, event: Event) {
        (self.options.sink)(event);
    }

    /// When a node must have ended: its own limit or that of the whole run, whichever comes first.
    pub fn deadline(&self, node: usize) -> Option<Instant> {
        let own = self.plan.nodes[node].timeout.and_then(|limit| Instant::now().checked_add(limit.0));
        match (own, self.deadline) {
            (Some(own), Some(all)) => Some(own.min(all)),
            (own, all) => own.or(all),
        }
    }
}

/// How a node ended.
pub(crate) struct NodeResult {
    pub status: Status,
    /// What is not done, with what the node itself knows of the reason.
    pub left: Vec<(ObjectKey, Option<Blocker>)>,
    pub gone: Vec<ObjectKey>,
    pub applied: Vec<AppliedObject>,
    pub unchanged: usize,
    pub finalizers_removed: Vec<FinalizersRemoved>,
    pub recreated: Vec<ObjectKey>,
}

impl NodeResult {
    pub fn new(status: Status) -> Self {
        Self {
            status,
            left: Vec::new(),
            gone: Vec::new(),
            applied: Vec::new(),
            unchanged: 0,
            finalizers_removed: Vec::new(),
            recreated: Vec::new(),
        }
    }
}

/// What our own write returned: remembered, so that applying it again unchanged costs nothing.
pub(crate) struct AppliedObject {
    pub object: ObjectKey,
    pub uid: Uid,
    pub resource_version: String,
    /// Whether the write changed anything.
    pub changed: bool,
}

pub(crate) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Waits for a moment that may never come.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
