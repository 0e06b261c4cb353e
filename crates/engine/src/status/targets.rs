//! What the groups of a release's policy select in other clusters, as a deletion would find it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_cluster::Cluster;
use billhook_plan::{Catalogs, DeleteRequest, DeleteTask, Deletion, Inventory, Operation, Snapshot, Unlabelled, Work};
use billhook_policy::{DeletionGroup, Propagation};
use futures::future::join_all;
use serde::Serialize;

use crate::{Blocker, Clusters, OperationError};

use super::{ObjectState, ObjectStatus};

/// Another cluster that the policy of a release names.
#[derive(Clone, Debug, Serialize)]
pub struct TargetStatus {
    /// The `targetName`.
    pub target: String,
    /// What was found there.
    #[serde(flatten)]
    pub state: TargetState,
}

/// What was found in another cluster.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum TargetState {
    /// What the groups select.
    Read {
        /// The groups for this cluster, in their order.
        groups: Vec<TargetGroup>,
    },
    /// The caller has not named the cluster.
    NotGiven,
    /// The cluster could not be read.
    Unreadable {
        /// Why.
        reason: String,
    },
}

/// What a group selects in another cluster.
#[derive(Clone, Debug, Serialize)]
pub struct TargetGroup {
    /// The title of the group.
    pub group: String,
    /// The objects that it selects at present.
    pub objects: Vec<ObjectStatus>,
}

/// Reads each cluster that the policy names and `clusters` contains.
pub(super) async fn read(clusters: &Clusters, inventory: &Inventory) -> Vec<TargetStatus> {
    let groups = &inventory.policy.deletion;
    let names: BTreeSet<&String> = groups.iter().filter_map(|group| group.target.as_ref()).collect();
    let read = names.into_iter().map(async |name| {
        let state = match clusters.targets.get(name) {
            None => TargetState::NotGiven,
            Some(cluster) => match selected(clusters, cluster, name, inventory).await {
                Ok(groups) => TargetState::Read { groups },
                Err(OperationError::Cluster(error)) => TargetState::Unreadable { reason: format!("failed to {error}") },
                Err(error) => TargetState::Unreadable { reason: error.to_string() },
            },
        };
        TargetStatus { target: name.clone(), state }
    });
    join_all(read).await
}

async fn selected(
    clusters: &Clusters,
    cluster: &Cluster,
    name: &String,
    inventory: &Inventory,
) -> Result<Vec<TargetGroup>, OperationError> {
    let catalog = Arc::new(cluster.catalog().await?);
    let of_target = |group: &&DeletionGroup| group.target.as_ref() == Some(name);
    let groups: Vec<_> = inventory.policy.deletion.iter().filter(of_target).cloned().collect();
    let deletion = Deletion::new(DeleteRequest {
        release: Some(&inventory.release),
        objects: Vec::new(),
        groups: &groups,
        catalogs: Catalogs { targets: BTreeMap::from([(name.clone(), catalog)]), ..Catalogs::default() },
        propagation: Propagation::Background,
        operation: Operation::Delete,
        record_here: clusters.record_here(),
        unlabelled: Unlabelled::Leave,
    })?;
    let mut snapshot: Snapshot = clusters.snapshot(deletion.queries()).await;
    snapshot.listings.extend(clusters.snapshot(&deletion.missing(&snapshot)).await.listings);
    let nodes = deletion.plan(&snapshot)?.nodes.into_iter().filter(|node| node.cluster.is_some());
    let group = |node: billhook_plan::Node| match node.work {
        Work::Delete(work) => {
            Some(TargetGroup { group: node.title, objects: work.objects.into_iter().map(status).collect() })
        }
        Work::Apply(_) | Work::Patch(_) | Work::Sequence(_) => None,
    };
    Ok(nodes.filter_map(group).collect())
}

fn status(task: DeleteTask) -> ObjectStatus {
    let finalizer = |finalizer: &String| Blocker::Finalizer { finalizer: finalizer.clone(), manager: None };
    ObjectStatus {
        object: task.object,
        uid: Some(task.uid),
        state: if task.deleting { ObjectState::Deleting } else { ObjectState::Present },
        readiness: None,
        blockers: if task.deleting { task.finalizers.iter().map(finalizer).collect() } else { Vec::new() },
        finalizers: task.finalizers,
        deleted_at: None,
        deletion_requested: false,
    }
}
