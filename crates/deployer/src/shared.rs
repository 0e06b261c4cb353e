//! State that the work on all items shares.

use std::{sync::Arc, time::Duration};

use billhook_charts::Helm;
use billhook_cluster::{Cluster, LeaseOptions, Term};
use billhook_policy::LabelSelector;
use jiff::Timestamp;

use crate::{
    api::{DeployItem, DeployerInformation},
    crashes::Places,
    error::ItemFailure,
    events::Recorder,
    helms::Helms,
    metrics::Metrics,
    mode::Mode,
    shard::Shard,
    target::{Connect, ConnectionRules, TargetSelector, Targets},
};

/// The controller's name in the status of items.
pub const NAME: &str = "billhook";

/// The configuration of a controller.
#[derive(Clone)]
pub struct ControllerOptions {
    /// What triggers the work on an item.
    pub mode: Mode,
    /// The namespaces whose items are handled; all if empty.
    pub namespaces: Vec<String>,
    /// Handles the items of the namespaces with these labels instead, from when they get them until they lose them.
    pub namespace_selector: Option<LabelSelector>,
    /// The identity of this replica in Leases and in the status of items.
    pub identity: String,
    /// The part of the items that this controller handles.
    pub shard: Shard,
    /// Creates a cluster from the kubeconfig of a Target.
    pub connect: Connect,
    /// Where the authors of Targets and items may let the controller connect to.
    pub connections: ConnectionRules,
    /// Returns the current time.
    pub now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The helm program.
    pub helm: Helm,
    /// Which Targets are handled; all if empty.
    pub target_selectors: Vec<TargetSelector>,
    /// The metrics that the controller updates.
    pub metrics: Metrics,
    /// The Lease for leader election; without one, this replica always works.
    pub leader_election: Option<LeaseOptions>,
    /// How many items are worked on at the same time at most, those that wait for other parties included.
    pub max_items: usize,
    /// How long running work may go on after the controller was asked to stop.
    pub grace: Duration,
}

/// State that the work on all items shares while this replica leads.
pub(crate) struct Shared {
    pub home: Cluster,
    pub targets: Targets,
    pub options: ControllerOptions,
    pub metrics: Metrics,
    pub events: Recorder,
    pub helms: Helms,
    /// The term of the Lease; none without leader election.
    pub term: Option<Term>,
    /// The last sign of life of the former leader, if it was killed.
    pub crash: Option<Timestamp>,
    /// The places for work on items that may have killed it.
    pub places: Places,
}

impl Shared {
    /// Returns whether this controller handles an item, by the selectors of Targets. An item without a Target, or whose Target
    /// does not exist, is handled; the answer is none while its Target is not known yet.
    pub(crate) fn is_selected(&self, item: &DeployItem) -> Option<bool> {
        let selectors = &self.options.target_selectors;
        let name = item.spec.target.as_ref().map(|target| target.name.as_str()).filter(|name| !name.is_empty());
        match name.filter(|_| !selectors.is_empty()) {
            Some(name) => {
                self.targets.is_selected(item.metadata.namespace.as_deref().unwrap_or_default(), name, selectors)
            }
            None => Some(true),
        }
    }

    /// Like [`is_selected`](Self::is_selected), but reads a Target that is not known yet.
    ///
    /// # Errors
    ///
    /// When the Target cannot be read.
    pub(crate) async fn find_selected(&self, item: &DeployItem) -> Result<bool, ItemFailure> {
        if let Some(selected) = self.is_selected(item) {
            return Ok(selected);
        }
        let name = item.spec.target.as_ref().map(|target| target.name.as_str()).unwrap_or_default();
        self.targets.learn(item.metadata.namespace.as_deref().unwrap_or_default(), name).await?;
        Ok(self.is_selected(item).unwrap_or(true))
    }

    /// Returns `status.deployer` of the items that this replica reconciles.
    pub(crate) fn information(&self) -> DeployerInformation {
        DeployerInformation {
            identity: self.options.identity.clone(),
            name: NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}
