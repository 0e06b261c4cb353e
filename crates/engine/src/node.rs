//! What the nodes of a run share, and what each returns.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use billhook_cluster::Known;
use billhook_objects::{Manifest, ObjectKey, Uid};
use billhook_plan::{Annotations, Fingerprint, Listed, Listing, Plan, QueryId, Uncovered};
use tokio::{sync::Semaphore, time::Instant};

use crate::{Blocker, Clusters, Event, FinalizersRemoved, RunOptions, Status, awaited::Awaited};

/// How many requests a node has in flight. The cluster's own limiter queues them, so more would only use memory, and
/// would still be sent after Ctrl-C.
pub(crate) const WINDOW: usize = 64;
/// How long a node waits for requests in flight after Ctrl-C.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// What all nodes of a run share.
pub(crate) struct Context<'a> {
    pub plan: &'a Plan,
    pub clusters: &'a Clusters,
    pub manifests: &'a BTreeMap<ObjectKey, Manifest>,
    /// The value of the release's label; none if the objects come from manifests alone.
    pub label: Option<String>,
    pub options: &'a RunOptions,
    pub deadline: Option<Instant>,
    pub listings: HashMap<QueryId, &'a Listing>,
    /// The objects that sequences wait for.
    pub awaited: Awaited,
    /// How many more requests sequences may have in flight: [`WINDOW`] at a time.
    pub turns: Semaphore,
}

impl<'a> Context<'a> {
    /// Returns what the snapshot found for a query, from where its watch continues.
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

    /// Returns the deadline of a node that starts now: its own or that of the whole run, whichever comes first.
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
    /// The objects that are not done, each with the reason if the node itself knows it.
    pub left: Vec<(ObjectKey, Option<Blocker>)>,
    /// What was last seen of what keeps some of them.
    pub seen: BTreeMap<ObjectKey, Vec<Blocker>>,
    pub gone: Vec<ObjectKey>,
    /// The objects whose deletion the API server has accepted, and that the node does not wait for.
    pub requested: Vec<ObjectKey>,
    pub applied: Vec<AppliedObject>,
    pub unchanged: usize,
    /// Objects that were to be created, and that another client has created meanwhile, to which they are left.
    pub left_to_others: Vec<ObjectKey>,
    pub finalizers_removed: Vec<FinalizersRemoved>,
    pub recreated: Vec<ObjectKey>,
    /// The objects that were created too late for the collections of the node.
    pub ignored: Vec<ObjectKey>,
    /// The objects that it did not delete because of their annotations.
    pub kept: Vec<Uncovered>,
}

impl NodeResult {
    pub fn new(status: Status) -> Self {
        Self {
            status,
            left: Vec::new(),
            seen: BTreeMap::new(),
            gone: Vec::new(),
            requested: Vec::new(),
            applied: Vec::new(),
            unchanged: 0,
            left_to_others: Vec::new(),
            finalizers_removed: Vec::new(),
            recreated: Vec::new(),
            ignored: Vec::new(),
            kept: Vec::new(),
        }
    }
}

/// What the run has written, by object.
pub(crate) type Written = BTreeMap<ObjectKey, AppliedObject>;

/// What our own write returned. The inventory keeps it, so that applying the same manifest again sends no request.
#[derive(Clone)]
pub(crate) struct AppliedObject {
    pub object: ObjectKey,
    pub uid: Uid,
    pub resource_version: String,
    /// Its annotations, as far as they matter.
    pub annotations: Annotations,
    /// Its state apart from its status, after a server-side apply and the patch that follows it.
    pub fingerprint: Option<Fingerprint>,
    /// Whether the write changed anything.
    pub changed: bool,
}

pub(crate) fn millis(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Waits until a deadline, or forever if there is none.
pub(crate) async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
