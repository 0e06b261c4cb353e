//! What a deletion writes into the inventory, until it deletes the inventory itself.

use billhook_cluster::Error;
use billhook_objects::{ObjectKey, ReleaseName, wellknown};
use billhook_plan::{Failures, Phase, Plan};

use super::{NotWritten, Origin, Record, deleted, in_time, is_unwritable, not_written};
use crate::{Clusters, Status, operation::error::OperationError, run::Outcome};

impl Record {
    /// Marks the release as being deleted, and locks it.
    pub(in crate::operation) async fn begin_delete(
        &mut self,
        clusters: &Clusters,
        plan: &Plan,
    ) -> Result<(), OperationError> {
        let changes_nothing = plan.nodes.is_empty() && plan.unmanaged.is_empty();
        match self.origin {
            // Deleting a retained release again changes nothing.
            Origin::Stored if self.is_retained() && changes_nothing && !self.is_locked() => return Ok(()),
            Origin::Stored | Origin::Inherited => {}
            // Collections may be deleted without any record, and a head that an operation has left is.
            Origin::New | Origin::Swept if !changes_nothing || self.token.is_some() => {}
            // There is nothing to record.
            Origin::New | Origin::Swept => return Ok(()),
        }
        // A policy that is given for the deletion of a retained release is not recorded. The recorded one stays done with.
        if !self.is_retained() {
            self.inventory.phase = Phase::Deleting;
        }
        // What is applied after the deletion is an installation.
        self.inventory.history.clear();
        self.inventory.deleted.clear();
        self.inventory.failures = Failures::default();
        match self.begin(clusters, "delete", true).await {
            // A record that is not stored may have no place to be written to. Its objects are found again: by a sweep, or by
            // what an earlier deployer knows.
            Err(OperationError::Cluster(error)) if self.origin != Origin::Stored && is_unwritable(&error) => Ok(()),
            begun => begun,
        }
    }

    /// Writes what a deletion has left. If everything that the policy covers is gone, deletes the inventory, unless objects
    /// remain that it is to `retain`. Returns whether it retains any.
    pub(in crate::operation) async fn end_delete(
        mut self,
        clusters: &Clusters,
        plan: &Plan,
        outcome: &Outcome,
        retain: bool,
    ) -> Result<bool, NotWritten> {
        let locked = self.end_lock().await?;
        if self.token.is_none() && self.origin != Origin::Swept {
            return Ok(false);
        }
        self.dirty |= locked;
        let release = self.inventory.release.clone();
        let lost = self.inventory.swept;
        let before = self.inventory.phase;
        let done = outcome.summary.status == Status::Done;
        self.forget(plan, outcome, |_| true);
        let retains = done && retain && !self.inventory.entries.is_empty();
        let remains = retains || (done && retain && self.inventory.backup.is_some());
        if remains {
            self.inventory.phase = if retains { Phase::Retained } else { Phase::Deleted };
            self.dirty |= before != self.inventory.phase;
        }
        let written = match self.token.clone() {
            _ if remains && !self.dirty => Ok(()),
            _ if remains => self.save(clusters).await,
            Some(token) if done => clusters.inventory().remove(&release, token).await,
            Some(_) => in_time(outcome, self.save(clusters)).await,
            None => Ok(()),
        };
        match written {
            // The inventory was deleted with its Namespace. The remaining objects carry the release's label.
            Err(error) if unwritable(clusters, plan, &release, lost, &error) => Ok(false),
            written => written.map(|()| retains).map_err(not_written),
        }
    }
}

/// Whether an inventory cannot be written because its Namespace is gone, or about to be.
fn unwritable(clusters: &Clusters, plan: &Plan, release: &ReleaseName, lost: bool, error: &Error) -> bool {
    let namespace = ObjectKey::new(wellknown::namespace(), None, release.namespace());
    is_unwritable(error) && (lost || !clusters.record_here() || deleted(plan).contains(&namespace))
}
