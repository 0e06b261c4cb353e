//! The cleaning of a cluster, or of the namespace of a control plane. There is no release, and so no record and no lock: what
//! exists is all that counts, and a DELETE or a removal of finalizers changes nothing if another process was faster.

use std::{collections::BTreeMap, sync::Arc};

use billhook_objects::{Catalog, GroupKind, ObjectKey, wellknown};
use billhook_plan::{
    CleanRequest, Deletion, ListFailure, Listed, Plan, PlanError, Problem, Query, Resource, Select, Snapshot, Spared,
};
use billhook_policy::{LabelSelector, Policy, control_plane};
use serde::Deserialize;

use super::{
    error::OperationError,
    read::{add_contents, catalog, catalogs},
    record::finish,
};
use crate::{Clusters, CodedError, RunOptions, Status, Summary, run::Outcome};

/// What Gardener calls objects that remain after the cleaning of a cluster. The code allows the force deletion of a shoot.
const CODE: &str = "ERR_CLEANUP_CLUSTER_RESOURCES";

/// How many of the remaining objects the message names.
const NAMED: usize = 20;

/// What to clean.
pub enum CleanSubject {
    /// The whole cluster, in these stages, except objects with certain labels, system namespaces, and what Kubernetes itself
    /// creates.
    Cluster {
        /// The stages.
        stages: Policy,
        /// Objects that any of these matches are left.
        exclude: Vec<LabelSelector>,
    },
    /// The namespace of a control plane on a seed of Gardener, by force.
    ControlPlane {
        /// The namespace.
        namespace: String,
    },
}

/// A planned cleaning.
pub struct PreparedClean {
    /// The plan. It has no nodes if there is nothing to delete.
    pub plan: Plan,
    snapshot: Snapshot,
    /// Whether objects that remain have a code.
    whole_cluster: bool,
}

/// Plans a cleaning. It sends only lists.
///
/// # Errors
///
/// When the stages do not fit the cluster, the namespace is one of the system, or the cluster cannot be read.
pub async fn prepare_clean(clusters: &Clusters, subject: CleanSubject) -> Result<PreparedClean, OperationError> {
    let own = catalog(clusters, None).await?;
    let (policy, spared) = match subject {
        CleanSubject::Cluster { stages, exclude } => (stages, Some(Spared { labels: exclude })),
        CleanSubject::ControlPlane { namespace } => {
            let object = ObjectKey::new(wellknown::namespace(), None, namespace.as_str());
            if wellknown::is_protected_namespace(&namespace) {
                return Err(PlanError::from(Problem::SystemNamespace { object }).into());
            }
            (control_plane(&namespace, &of_shoot(clusters, &own, &namespace).await?), None)
        }
    };
    let catalogs = catalogs(clusters, own, &policy.deletion).await?;
    let request = CleanRequest { groups: &policy.deletion, catalogs: catalogs.clone(), spared: spared.as_ref() };
    let mut deletion = Deletion::clean(request)?;
    let mut snapshot = clusters.snapshot(deletion.queries()).await;
    snapshot.listings.extend(clusters.snapshot(&deletion.missing(&snapshot)).await.listings);
    let mut plan = deletion.plan(&snapshot)?;
    add_contents(clusters, &plan, &catalogs, &mut snapshot).await;
    if let Some(spared) = &spared {
        snapshot.listings.extend(clusters.snapshot(&deletion.owner_queries()).await.listings);
        plan = deletion.plan_without(spared, plan, &snapshot)?;
    }
    plan.continue_on_failure = spared.is_none();
    billhook_plan::add_blast_notes(&mut plan, &snapshot, None);
    if plan.deletions() == 0 {
        plan.nodes.clear();
        // They say why nothing is deleted.
        plan.notes.retain(|note| note.is_omission() || note.is_kept());
    }
    Ok(PreparedClean { plan, snapshot, whole_cluster: spared.is_some() })
}

/// A ManagedResource, as far as it is read.
#[derive(Deserialize)]
struct ManagedResource {
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
}

#[derive(Default, Deserialize)]
struct Spec {
    class: Option<String>,
}

/// Returns the names of the ManagedResources of the shoot's class in the namespace of its control plane.
async fn of_shoot(clusters: &Clusters, catalog: &Arc<Catalog>, namespace: &str) -> Result<Vec<String>, OperationError> {
    let kind = GroupKind::new("resources.gardener.cloud", "ManagedResource");
    let Some(served) = catalog.get(&kind) else { return Ok(Vec::new()) };
    let query = Query {
        cluster: None,
        resource: Resource::of(served, None),
        namespace: Some(namespace.to_owned()),
        select: Select::All,
        namespaces: Vec::new(),
    };
    let (listings, found) = clusters.own.details::<ManagedResource>(&query, true).await;
    for listing in listings {
        if let Listed::Failed(reason) = listing.found {
            let failure = ListFailure { list: query.scope(), reason };
            return Err(PlanError::from(Problem::ListFailed(failure)).into());
        }
    }
    let of_shoot = found.into_iter().filter(|(_, managed)| managed.spec.class.is_none());
    let mut names: Vec<_> = of_shoot.map(|(_, managed)| managed.metadata.name).collect();
    names.sort_unstable();
    Ok(names)
}

/// Runs a planned cleaning. Everything that fails is in the summary.
pub async fn clean(clusters: &Clusters, prepared: PreparedClean, options: &RunOptions) -> Summary {
    let PreparedClean { plan, snapshot, whole_cluster } = prepared;
    crate::run::announce(&plan, options);
    let mut outcome = crate::run::run(&plan, &snapshot, clusters, &BTreeMap::new(), None, options).await;
    if whole_cluster && outcome.summary.status == Status::TimedOut {
        outcome.summary.error = remaining(&outcome);
    }
    finish(outcome, Ok(()), clusters, options)
}

/// Returns the error of a cleaning that left objects.
fn remaining(outcome: &Outcome) -> Option<Box<CodedError>> {
    let left = &outcome.summary.left;
    let mut names: Vec<_> = left.iter().take(NAMED).map(|left| left.object.to_string()).collect();
    if left.len() > NAMED {
        names.push(format!("and {} more", left.len() - NAMED));
    }
    let message = format!("remaining objects are still present: [{}]", names.join(", "));
    (!left.is_empty()).then(|| Box::new(CodedError { code: CODE.to_owned(), message }))
}
