//! The controller: works on DeployItems while it is the leader and the home cluster serves their kinds.

use std::{pin::pin, sync::Arc, time::Duration};

use billhook_cluster::{Clock, Cluster, Error, ErrorKind, Fence, Leadership, LeaseOptions};
use billhook_endpoints::Probes;
use jiff::Timestamp;
use tokio::{runtime::Handle, task::JoinSet};
use tokio_util::sync::CancellationToken;

use crate::{
    counts::{OtherCounts, pause},
    crashes::Places,
    dispatcher::Dispatcher,
    events::Recorder,
    health::Health,
    helms::Helms,
    item::deploy_items,
    shared::{ControllerOptions, Shared},
    target::Targets,
};

/// The pause before the controller checks again whether the kinds are served, after a watch has ended.
const KIND_CHECK_PAUSE: Duration = Duration::from_secs(1);
/// After this time in which the loop has not turned, its Lease is not renewed any more: another replica takes over before the
/// kubelet restarts this one.
const LEASE_PATIENCE: Duration = Duration::from_secs(30);

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

/// Where the Lease is held, apart from the work, so that work that blocks its thread for some seconds does not lose it.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The runtime of another thread.
    pub runtime: Handle,
    /// The home cluster, with connections of its own.
    pub home: Cluster,
}

/// A controller of DeployItems.
pub struct Controller {
    home: Cluster,
    options: ControllerOptions,
    apart: Option<Apart>,
    health: Health,
}

impl Controller {
    /// Creates a controller for the DeployItems of a cluster. It sends no requests yet.
    pub fn new(home: Cluster, options: ControllerOptions) -> Self {
        options.metrics.set_shards(options.shard.count());
        Self { home, options, apart: None, health: Health::default() }
    }

    /// Holds the Lease in another thread.
    #[must_use]
    pub fn with_lease_apart(self, apart: Apart) -> Self {
        Self { apart: Some(apart), ..self }
    }

    /// Returns the probes for the kubelet, which may be called in any thread. The controller is live while its loop turns, and
    /// ready while it knows the DeployItems, or on standby while the home cluster answers.
    pub fn probes(&self) -> Probes {
        self.health.probes()
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
        self.health.pulse.during(self.work(&stop)).await
    }

    async fn work(&self, stop: &CancellationToken) -> Result<(), ControllerError> {
        self.check_kinds().await?;
        // Only a bug makes it fail, and the folders remain then.
        let _done = tokio::task::spawn_blocking(billhook_charts::remove_leftovers).await;
        let (mut watch_ended, mut others, mut has_led) = (false, OtherCounts::default(), false);
        let mut crash = None;
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
                watch_ended = self.lead(None, None, stop).await;
                self.options.metrics.set_leader(false);
                continue;
            };
            self.health.stand_by(self.apart.as_ref().map_or(&self.home, |apart| &apart.home));
            let mut leadership = tokio::select! {
                leadership = self.acquire(lease) => leadership,
                () = stop.cancelled() => break,
            };
            crash = self.crash_before(&leadership, has_led).or(crash);
            let other = others.working(&self.home.fenced(leadership.fence()), lease, self.options.shard).await;
            if !matches!(other, Ok(None)) {
                self.release(leadership).await;
                wait_for_others(other, lease, stop).await?;
                continue;
            }
            tracing::info!(lease = %lease.name, identity = %lease.identity, "leading");
            self.options.metrics.set_leader(true);
            has_led = true;
            watch_ended = self.lead(Some(&mut leadership), crash.take(), stop).await;
            self.options.metrics.set_leader(false);
            tracing::info!(lease = %lease.name, identity = %lease.identity, "no longer leading");
            self.release(leadership).await;
        }
        Ok(())
    }

    /// Waits until the Lease is acquired. It is renewed only while the loop turns.
    async fn acquire(&self, lease: &LeaseOptions) -> Leadership {
        let pulse = self.health.pulse.clone();
        let now = Arc::clone(&self.options.now);
        let lease = LeaseOptions { clock: Clock::new(move || now()), ..lease.clone() };
        let turns = Fence::new("the controller's loop does not turn", move || pulse.silence() < LEASE_PATIENCE);
        let Some(Apart { runtime, home }) = &self.apart else { return self.home.fenced(turns).acquire(&lease).await };
        let home = home.fenced(turns);
        apart(runtime, async move { home.acquire(&lease).await }).await
    }

    async fn release(&self, leadership: Leadership) {
        match &self.apart {
            Some(Apart { runtime, .. }) => apart(runtime, leadership.release()).await,
            None => leadership.release().await,
        }
    }

    /// Returns the last sign of life of the former leader, if it was killed. This process has not been, even if it lost its Lease.
    fn crash_before(&self, leadership: &Leadership, has_led: bool) -> Option<Timestamp> {
        let killed = leadership.predecessor().filter(|before| !has_led || before.identity != self.options.identity)?;
        tracing::warn!(identity = %killed.identity, "the former leader has not released its Lease");
        Some(killed.renewed.unwrap_or_else(|| (self.options.now)()))
    }

    async fn check_kinds(&self) -> Result<(), ControllerError> {
        let catalog = self.home.catalog().await?;
        catalog.get(&deploy_items().kind).map(drop).ok_or(ControllerError::NoKind)
    }

    /// Works while this replica leads and both kinds are served. Returns whether a watch ended, because its kind is no
    /// longer served.
    async fn lead(
        &self,
        leadership: Option<&mut Leadership>,
        crash: Option<Timestamp>,
        stop: &CancellationToken,
    ) -> bool {
        let fence = leadership.as_ref().map_or_else(Fence::open, |leadership| leadership.fence());
        let term = leadership.as_ref().and_then(|leadership| leadership.term().cloned());
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
        let helms = Helms::new(options.helm.clone(), options.connections.dialer.clone());
        metrics.follow_helms(&helms);
        let shared = Shared { home, targets, options, metrics, events, helms, term, crash, places: Places::default() };
        let grace = shared.options.grace;
        let mut dispatcher = Dispatcher::new(Arc::new(shared));
        self.health.lead(dispatcher.caches());
        let lost = async {
            match leadership {
                Some(leadership) => leadership.lost().await,
                None => std::future::pending().await,
            }
        };
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

/// Does work in another runtime; it is aborted when this is dropped.
async fn apart<T: Send + 'static>(runtime: &Handle, work: impl Future<Output = T> + Send + 'static) -> T {
    let mut task = JoinSet::new();
    task.spawn_on(work, runtime);
    match task.join_next().await {
        Some(Ok(done)) => done,
        // Only a bug ends the task: then this replica never leads again.
        _ => std::future::pending().await,
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

#[cfg(test)]
mod outage;
#[cfg(test)]
mod tests;
