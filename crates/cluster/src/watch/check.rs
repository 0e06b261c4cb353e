//! Checks of single objects that a watch could not prove to be gone. The watch continues meanwhile.

use std::{collections::VecDeque, time::Duration};

use billhook_plan::{Query, Select};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::sleep;

use super::objects::{Doubt, Verdict};
use crate::{cluster::Cluster, decode::Shape, error::Error, recent_deletes::DeleteOutcome};

/// How many objects are checked at a time.
const AT_ONCE: usize = 16;
/// How often, and at which interval, to look for the answer to a pending DELETE, which the event may overtake.
const WAITS: usize = 8;
const WAIT: Duration = Duration::from_millis(5);
/// How often a check is retried while the server is busy, before the watch lists again instead.
const RETRIES: u32 = 3;

/// The checks in flight.
pub(super) type Checks<S> = FuturesUnordered<BoxFuture<'static, Verdict<S>>>;

/// Starts checks and returns the next verdict; none if there is no doubt. Dropping the future loses nothing.
pub(super) async fn next_verdict<S: Shape>(
    checks: &mut Checks<S>,
    doubts: &mut VecDeque<Doubt>,
    cluster: &Cluster,
    query: &Query,
) -> Option<Verdict<S>> {
    while checks.len() < AT_ONCE
        && let Some(doubt) = doubts.pop_front()
    {
        checks.push(check(cluster.clone(), query.clone(), doubt).boxed());
    }
    checks.next().await
}

/// Checks an object by a list of its name instead of a single read: that needs no other right than the lists before, and
/// its empty answer is unambiguous. Where listing is forbidden it becomes a single read.
async fn check<S: Shape>(cluster: Cluster, query: Query, doubt: Doubt) -> Verdict<S> {
    if doubt.no_finalizers {
        for _ in 0..WAITS {
            match cluster.inner.deletes.outcome(&doubt.uid) {
                Some(DeleteOutcome::Removed) => return Verdict { doubt, found: Ok(None) },
                Some(DeleteOutcome::Pending) => sleep(WAIT).await,
                None => break,
            }
        }
    }
    let (namespace, name) = (doubt.key.0.as_deref().map(str::to_owned), doubt.key.1.to_string());
    let query = Query { namespace, namespaces: Vec::new(), select: Select::Names(vec![name]), ..query };
    let mut found = cluster.fetch::<S>(&query, false).await;
    for attempt in 0..RETRIES {
        if !found.as_ref().is_err_and(Error::is_transient) {
            break;
        }
        sleep(cluster.backoff(attempt)).await;
        found = cluster.fetch::<S>(&query, false).await;
    }
    Verdict { doubt, found: found.map(|found| found.items.into_iter().next()) }
}
