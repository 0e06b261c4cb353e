//! The modes of the controller: whether Landscaper or the item itself triggers the work.

use crate::{
    api::{DeployItem, GROUP},
    trigger::Trigger,
};

/// Selects what triggers the work on items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Decides for each item: `Landscaper` for an item that an Execution owns, `Standalone` for any other. Items of an
    /// Execution whose Landscaper no longer runs need `Standalone`.
    #[default]
    Auto,
    /// Landscaper's execution controller triggers the work, by `status.jobID`.
    Landscaper,
    /// Generations, operation annotations and schedules of the items trigger the work.
    Standalone,
}

/// The kind that owns the DeployItems that Landscaper creates.
const EXECUTION: &str = "Execution";

impl Mode {
    /// Returns what triggers the work on an item.
    ///
    /// `Auto` decides by the item's owner, because a running Landscaper cannot be detected: its controllers hold no Lease
    /// (`LeaderElection: false` in `cmd/landscaper-controller` of gardener/landscaper), and their health checks may be in
    /// another cluster.
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
