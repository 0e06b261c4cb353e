//! Who says when there is work on an item: Landscaper, or the item itself.

use crate::{
    api::{DeployItem, GROUP},
    trigger::Trigger,
};

/// How a controller finds its work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Item by item: one that belongs to an Execution of a Landscaper is worked on when that sets a job, every other one by
    /// itself. An item of which nobody is left to set jobs waits; `Standalone` takes it up.
    #[default]
    Auto,
    /// By `status.jobID`, which Landscaper's execution controller sets.
    Landscaper,
    /// By the items' own generations, operations and schedules.
    Standalone,
}

/// The kind that makes DeployItems in Landscaper.
const EXECUTION: &str = "Execution";

impl Mode {
    /// What starts the work on an item.
    ///
    /// Landscaper's controllers hold no Lease (`LeaderElection: false` in gardener/landscaper `cmd/landscaper-controller`), and
    /// their health checks may lie in another cluster: an item's owner is what tells.
    pub(crate) fn trigger(self, item: &DeployItem) -> Trigger {
        match self {
            Self::Landscaper => Trigger::Jobs,
            Self::Standalone => Trigger::Generations,
            Self::Auto => {
                let owners = item.metadata.owner_references.iter().flatten();
                let group = |api_version: &str| api_version.split_once('/').is_some_and(|(group, _)| group == GROUP);
                let mut executions = owners.filter(|owner| owner.kind == EXECUTION && group(&owner.api_version));
                if executions.next().is_some() { Trigger::Jobs } else { Trigger::Generations }
            }
        }
    }
}
