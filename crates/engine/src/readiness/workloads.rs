//! The rules for workloads: those of `kubectl rollout status`, in `pkg/polymorphichelpers/rollout_status.go` of
//! `k8s.io/kubectl` v0.36.3, with two differences.
//!
//! Replicas beyond the desired number must be gone, also after a Deployment or StatefulSet was only scaled down: what
//! follows in the release may delete what they still use. kubectl checks this only for old replicas of Deployments.
//!
//! kubectl rejects `OnDelete`: it has no rollout to wait for. The controller creates missing Pods, but the update is the
//! user's next step: only a Pod that the user deletes is replaced. A command that waited for updated Pods would always
//! reach its time limit, so all Pods must exist and be ready, whichever revision they have.

use super::{verdict::Readiness, view::View};

pub(super) fn deployment(object: &View) -> Readiness {
    let status = &object.status;
    if object.is_stale() {
        return Readiness::not_observed();
    }
    if let Some(condition) = status.condition("Progressing")
        && condition.reason == "ProgressDeadlineExceeded"
    {
        return Readiness::Failed(condition.explain("progress deadline exceeded"));
    }
    let wanted = wanted(object);
    let rollout = at_least(wanted, status.updated_replicas, "updated")
        .and_then(|()| no_surplus(object))
        .and_then(|()| at_least(wanted, status.available_replicas, "available"));
    match rollout {
        // kubectl waits here too, but does not say that nothing happens until the user resumes the rollout.
        Err(reason) if object.spec.paused == Some(true) => Readiness::NotYet(format!("paused: {reason}")),
        rollout => rollout.map_err(|reason| with_failure(object, reason)).into(),
    }
}

/// Adds why the controller cannot create or delete Pods, such as an exceeded quota.
fn with_failure(object: &View, reason: String) -> String {
    match object.status.condition("ReplicaFailure").filter(|condition| condition.is_true()) {
        Some(failure) => failure.explain(&reason),
        None => reason,
    }
}

pub(super) fn stateful_set(object: &View) -> Readiness {
    if object.is_stale() {
        return Readiness::not_observed();
    }
    let wanted = wanted(object);
    let strategy = object.spec.update_strategy.as_ref();
    let partition = strategy.and_then(|strategy| strategy.rolling_update.as_ref()?.partition).unwrap_or(0);
    // Pods with an ordinal below the partition keep their revision.
    let to_update = if is_on_delete(object) { 0 } else { wanted.saturating_sub(partition) };
    at_least(wanted, object.status.ready_replicas, "ready")
        .and_then(|()| at_least(to_update, object.status.updated_replicas, "updated"))
        .and_then(|()| no_surplus(object))
        .into()
}

/// `maxUnavailable` limits how many Pods are replaced at once. An update is complete when all Pods are available.
pub(super) fn daemon_set(object: &View) -> Readiness {
    let status = &object.status;
    if object.is_stale() {
        return Readiness::not_observed();
    }
    let wanted = status.desired_number_scheduled.unwrap_or(0);
    let to_update = if is_on_delete(object) { 0 } else { wanted };
    at_least(to_update, status.updated_number_scheduled, "updated")
        .and_then(|()| at_least(wanted, status.number_available, "available"))
        .into()
}

/// `kubectl rollout status` has no rule for a ReplicaSet or ReplicationController, which replaces no Pods.
pub(super) fn replica_set(object: &View) -> Readiness {
    if object.is_stale() {
        return Readiness::not_observed();
    }
    let replicas = at_least(wanted(object), object.status.available_replicas, "available");
    replicas.and_then(|()| no_surplus(object)).map_err(|reason| with_failure(object, reason)).into()
}

fn wanted(object: &View) -> i64 {
    object.spec.replicas.unwrap_or(1)
}

fn is_on_delete(object: &View) -> bool {
    object.spec.update_strategy.as_ref().is_some_and(|strategy| strategy.r#type == "OnDelete")
}

/// Returns what is missing unless there are at least so many replicas in this state.
fn at_least(wanted: i64, count: Option<i64>, state: &str) -> Result<(), String> {
    let count = count.unwrap_or(0);
    if count < wanted { Err(format!("{count} of {wanted} {state}")) } else { Ok(()) }
}

fn no_surplus(object: &View) -> Result<(), String> {
    let surplus = object.status.replicas.unwrap_or(0).saturating_sub(wanted(object));
    if surplus > 0 { Err(format!("old replicas still running: {surplus}")) } else { Ok(()) }
}
