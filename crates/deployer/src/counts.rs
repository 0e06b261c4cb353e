//! Keeps shards of different counts from working at the same time, because their shares of the items overlap.
//!
//! The name of a shard's Lease contains the count. A shard first acquires its Lease, then looks for Leases of another count: of two
//! shards that start at the same time, at least one sees the other.

use std::{collections::HashMap, time::Duration};

use billhook_cluster::{Cluster, Error, LeaseOptions};
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

use crate::shard::Shard;

/// The Leases of other counts as they were last seen.
#[derive(Default)]
pub(crate) struct OtherCounts {
    /// The version of each Lease, and when it was first seen.
    seen: HashMap<String, (String, Instant)>,
}

impl OtherCounts {
    /// Returns a Lease that a shard of another count holds, if there is one. As in leader election, a Lease is over once it has not
    /// changed for its duration by the clock of this process.
    ///
    /// # Errors
    ///
    /// When the Leases cannot be listed.
    pub(crate) async fn working(
        &mut self,
        home: &Cluster,
        lease: &LeaseOptions,
        shard: Shard,
    ) -> Result<Option<String>, Error> {
        let found = home.leases(&lease.namespace).await?;
        let (now, mut working, mut seen) = (Instant::now(), None, HashMap::new());
        for other in found.into_iter().filter(|other| shard.excludes(&other.name) && !other.holder.is_empty()) {
            let known = self.seen.get(&other.name).filter(|(version, _)| *version == other.resource_version);
            let since = known.map_or(now, |(_, since)| *since);
            if now < since + other.duration.max(lease.lease_duration) {
                working.get_or_insert_with(|| other.name.clone());
            }
            seen.insert(other.name, (other.resource_version, since));
        }
        self.seen = seen;
        Ok(working)
    }
}

/// Returns the pause before the next look, which differs between processes so that two of them do not wait for each other forever.
pub(crate) fn pause(lease: &LeaseOptions) -> Duration {
    let digest = Sha256::digest(&lease.identity);
    lease.retry_period.mul_f64(1.0 + f64::from(digest.first().copied().unwrap_or_default()) / 256.0)
}

#[cfg(test)]
mod tests {
    use billhook_cluster::Options;
    use billhook_sandbox::{Sandbox, User};
    use tokio::time::sleep;

    use super::*;

    fn options(name: &str, identity: &str) -> LeaseOptions {
        LeaseOptions::new("default", name, identity)
    }

    #[tokio::test(start_paused = true)]
    async fn a_shard_of_another_count_is_seen_until_its_lease_is_released_or_over() {
        let sandbox = Sandbox::start(billhook_sandbox::Options::default());
        let home = Cluster::from_client(sandbox.client(User::admin(), "a"), Options::default());
        let (own, shard) = (options("billhook-controller-0-of-3", "own"), "0/3".parse().unwrap_or_default());
        let mut others = OtherCounts::default();
        let mut working = async || others.working(&home, &own, shard).await.unwrap();
        let _same_count = home.acquire(&options("billhook-controller-2-of-3", "c")).await;
        let _foreign = home.acquire(&options("other-controller", "d")).await;
        assert_eq!(working().await, None);
        let held = home.acquire(&options("billhook-controller-1-of-2", "a")).await;
        for _ in 0..10 {
            assert_eq!(working().await.as_deref(), Some("billhook-controller-1-of-2"));
            sleep(Duration::from_secs(10)).await;
        }
        held.release().await;
        assert_eq!(working().await, None);
        drop(home.acquire(&options("billhook-controller", "b")).await);
        assert_eq!(working().await.as_deref(), Some("billhook-controller"));
        sleep(Duration::from_secs(14)).await;
        assert!(working().await.is_some());
        sleep(Duration::from_secs(1)).await;
        assert_eq!(working().await, None);
    }
}
