//! The controller: works on DeployItems while it is the leader and the home cluster serves their kinds.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use billhook_cluster::{Cluster, Error, ErrorKind, Fence, LeaseOptions};
use billhook_endpoints::Probes;
use tokio_util::sync::CancellationToken;

use crate::{
    counts::{OtherCounts, pause},
    dispatcher::Dispatcher,
    events::Recorder,
    helms::Helms,
    item::deploy_items,
    shared::{ControllerOptions, Shared},
    target::Targets,
};

/// The pause before the controller checks again whether the kinds are served, after a watch has ended.
const KIND_CHECK_PAUSE: Duration = Duration::from_secs(1);

/// An error that ends a controller.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// The home cluster does not serve DeployItems.
    #[error(
        "find the kind DeployItem of landscaper.gardener.cloud/v1alpha1: install the CRDs in deploy/crds, or Landscaper's own"
    )]
    NoKind,
    /// A request failed permanently.
    #[error(transparent)]
    Cluster(#[from] Error),
}

/// A controller of DeployItems.
pub struct Controller {
    home: Cluster,
    options: ControllerOptions,
    /// Whether the home cluster has answered.
    reached: Arc<AtomicBool>,
}

impl Controller {
    /// Creates a controller for the DeployItems of a cluster. It sends no requests yet.
    pub fn new(home: Cluster, options: ControllerOptions) -> Self {
        Self { home, options, reached: Arc::default() }
    }

    /// Returns the probes for the kubelet. The controller is ready once the home cluster has answered.
    pub fn probes(&self) -> Probes {
        let reached = Arc::clone(&self.reached);
        let ready = move || match reached.load(Ordering::Relaxed) {
            true => Ok(()),
            false => Err("the home cluster has not answered yet".to_owned()),
        };
        Probes { live: Arc::new(|| Ok(())), ready: Arc::new(ready) }
    }

    /// Runs until `stop` is cancelled; waits while another replica leads. Running work then gets the grace period.
    ///
    /// Work that is unfinished after it is left as it is: the next leader resumes it.
    ///
    /// # Errors
    ///
    /// When the home cluster does not serve DeployItems, or does not answer at the start. The controller waits for missing
    /// rights.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ControllerError> {
        self.options.metrics.set_shards(self.options.shard.count());
        self.check_kinds().await?;
        self.reached.store(true, Ordering::Relaxed);
        let (mut watch_ended, mut others) = (false, OtherCounts::default());
        while !stop.is_cancelled() {
            if watch_ended {
                tokio::select! {
                    () = tokio::time::sleep(KIND_CHECK_PAUSE) => {}
                    () = stop.cancelled() => break,
                }
                match self.check_kinds().await {
                    // The watches wait for a server that does not answer.
                    Ok(()) | Err(ControllerError::Cluster(_)) => {}
                    Err(not_served) => return Err(not_served),
                }
            }
            let Some(lease) = &self.options.leader_election else {
                self.options.metrics.set_leader(true);
                watch_ended = self.lead(Fence::open(), std::future::pending(), &stop).await;
                self.options.metrics.set_leader(false);
                continue;
            };
            let mut leadership = tokio::select! {
                leadership = self.home.acquire(lease) => leadership,
                () = stop.cancelled() => break,
            };
            let other = others.working(&self.home.fenced(leadership.fence()), lease, self.options.shard).await;
            if !matches!(other, Ok(None)) {
                leadership.release().await;
                wait_for_others(other, lease, &stop).await?;
                continue;
            }
            tracing::info!(lease = %lease.name, identity = %lease.identity, "leading");
            self.options.metrics.set_leader(true);
            let fence = leadership.fence();
            watch_ended = self.lead(fence, leadership.lost(), &stop).await;
            self.options.metrics.set_leader(false);
            tracing::info!(lease = %lease.name, identity = %lease.identity, "no longer leading");
            leadership.release().await;
        }
        Ok(())
    }

    async fn check_kinds(&self) -> Result<(), ControllerError> {
        let catalog = self.home.catalog().await?;
        catalog.get(&deploy_items().kind).map(drop).ok_or(ControllerError::NoKind)
    }

    /// Works while this replica leads and both kinds are served. Returns whether a watch ended, because its kind is no
    /// longer served.
    async fn lead(&self, fence: Fence, lost: impl Future<Output = ()>, stop: &CancellationToken) -> bool {
        let home = self.home.fenced(fence.clone());
        let (options, metrics) = (self.options.clone(), self.options.metrics.clone());
        let _counted = metrics.count_requests(home.clone());
        let now = Arc::clone(&options.now);
        let (events, writer) = Recorder::new(home.clone(), options.identity.as_str(), now, metrics.events_dropped());
        let targets = Targets::new(
            home.clone(),
            Arc::clone(&options.connect),
            options.connections.clone(),
            fence,
            metrics.clone(),
        );
        let helms = Helms::new(&options.helm, options.connections.dialer.clone(), options.helm_user);
        metrics.follow_helms(&helms);
        let shared = Shared { home, targets, options, metrics, events, helms };
        let grace = shared.options.grace;
        let mut dispatcher = Dispatcher::new(Arc::new(shared));
        let mut ended = pin!(async {
            tokio::select! {
                // The writer ends only when no recorder is left.
                () = writer.run() => {}
                () = lost => {}
            }
        });
        let watch_ended = tokio::select! {
            () = dispatcher.run() => true,
            () = &mut ended => false,
            () = stop.cancelled() => {
                tokio::select! {
                    () = dispatcher.drain(grace) => {}
                    () = ended => {}
                }
                false
            }
        };
        dispatcher.shut_down().await;
        watch_ended
    }
}

/// Waits because a shard of another count works, or because the Leases could not be listed.
///
/// # Errors
///
/// When listing Leases is forbidden.
async fn wait_for_others(
    other: Result<Option<String>, Error>,
    lease: &LeaseOptions,
    stop: &CancellationToken,
) -> Result<(), ControllerError> {
    match other {
        Ok(other) => {
            let other = other.unwrap_or_default();
            tracing::warn!(lease = %lease.name, %other, "waiting: a shard of another number of shards works");
        }
        Err(error) if *error.kind() == ErrorKind::Forbidden => return Err(error.into()),
        Err(error) => tracing::warn!(%error, "the Leases of other shards are unknown; retrying"),
    }
    tokio::select! {
        () = tokio::time::sleep(pause(lease)) => {}
        () = stop.cancelled() => {}
    }
    Ok(())
}
