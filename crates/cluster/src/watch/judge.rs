//! Objects of which a watch has not said clearly whether they are there: each is looked at, while the watch goes on.

use std::{collections::VecDeque, time::Duration};

use billhook_objects::Uid;
use billhook_plan::{Query, Select};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::sleep;

use super::watcher::Key;
use crate::{
    cluster::{Asked, Cluster},
    error::Error,
    wire::Shape,
};

/// How many objects are looked at together.
const AT_ONCE: usize = 16;
/// How often, and in which steps, the answer to a DELETE on its way is waited for: the event may overtake it.
const WAITS: usize = 8;
const WAIT: Duration = Duration::from_millis(5);
/// How often it is looked again where the server is busy, before a list is thought better.
const TRIES: u32 = 3;

/// An object in doubt.
pub(super) struct Doubt {
    pub(super) key: Key,
    pub(super) uid: Uid,
    /// Whether nothing held it when it was last seen: then the answer to its DELETE says enough.
    pub(super) bare: bool,
    /// Who an event says has its name now.
    pub(super) instead: Option<Uid>,
}

/// What was found of an object in doubt: who has its name now, if anybody.
pub(super) struct Verdict<S> {
    pub(super) doubt: Doubt,
    pub(super) found: Result<Option<S>, Error>,
}

/// The objects in doubt.
pub(super) struct Judge<S> {
    waiting: VecDeque<Doubt>,
    looking: FuturesUnordered<BoxFuture<'static, Verdict<S>>>,
}

impl<S: Shape> Judge<S> {
    pub(super) fn new() -> Self {
        Self { waiting: VecDeque::new(), looking: FuturesUnordered::new() }
    }

    pub(super) fn add(&mut self, doubt: Doubt) {
        self.waiting.push_back(doubt);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.looking.is_empty()
    }

    /// Leaves all as it is: another list will bring the doubts up again.
    pub(super) fn clear(&mut self) {
        self.waiting.clear();
        self.looking.clear();
    }

    /// The next verdict; none where there is no doubt. Dropping the future loses nothing.
    pub(super) async fn next(&mut self, cluster: &Cluster, query: &Query) -> Option<Verdict<S>> {
        while self.looking.len() < AT_ONCE
            && let Some(doubt) = self.waiting.pop_front()
        {
            self.looking.push(look(cluster.clone(), query.clone(), doubt).boxed());
        }
        self.looking.next().await
    }
}

/// By a list of one name and not by a single read: it needs no other right than the lists before, and its empty answer
/// cannot be mistaken. Where listing is forbidden a single read takes its place.
async fn look<S: Shape>(cluster: Cluster, query: Query, doubt: Doubt) -> Verdict<S> {
    if doubt.bare {
        for _ in 0..WAITS {
            match cluster.asked(&doubt.uid) {
                Some(Asked::Removed) => return Verdict { doubt, found: Ok(None) },
                Some(Asked::Sent) => sleep(WAIT).await,
                None => break,
            }
        }
    }
    let (namespace, name) = (doubt.key.0.as_deref().map(str::to_owned), doubt.key.1.to_string());
    let query = Query { namespace, namespaces: Vec::new(), select: Select::Names(vec![name]), ..query };
    let mut found = cluster.fetch::<S>(&query, false).await;
    for attempt in 0..TRIES {
        if !found.as_ref().is_err_and(Error::is_transient) {
            break;
        }
        sleep(cluster.backoff(attempt)).await;
        found = cluster.fetch::<S>(&query, false).await;
    }
    Verdict { doubt, found: found.map(|found| found.items.into_iter().next()) }
}
