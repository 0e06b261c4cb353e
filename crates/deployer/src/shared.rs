//! State that the work on all items shares.

use std::{path::PathBuf, sync::Arc, time::Duration};

use billhook_cluster::{Cluster, LeaseOptions};
use jiff::Timestamp;

use crate::{
    api::DeployerInformation,
    events::Recorder,
    helms::Helms,
    metrics::Metrics,
    mode::Mode,
    shard::Shard,
    target::{Connect, ConnectionRules, Targets},
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
    /// The path of the helm program.
    pub helm: PathBuf,
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
}

impl Shared {
    /// Returns `status.deployer` of the items that this replica reconciles.
    pub(crate) fn information(&self) -> DeployerInformation {
        DeployerInformation {
            identity: self.options.identity.clone(),
            name: NAME.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}
