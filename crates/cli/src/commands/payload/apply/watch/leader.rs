//! The Lease of a watched payload: one process at a time makes passes.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use billhook_cluster::{Cluster, Error, ErrorKind, Leadership, LeaseOptions, NotHeld};
use billhook_objects::ReleaseName;
use serde_json::json;

use crate::{
    error::{CommandError, Exit},
    log::Log,
    session::Session,
};

/// Returns the Lease of a payload, which is in the namespace of its record.
pub(super) fn lease(session: &Session, release: &ReleaseName) -> LeaseOptions {
    let name = format!("billhook-payload-{}", release.name());
    // Pods in the network of their node have its host name, and the first process of each has the same number.
    let random = RandomState::new().build_hasher().finish();
    let identity = format!("{}_{}_{random:016x}", session.host(), std::process::id());
    LeaseOptions::new(release.namespace(), name, identity)
}

/// Waits until this process holds the Lease. Tells once what it waits for.
///
/// # Errors
///
/// When it cannot be acquired without a change by a person.
pub(super) async fn acquire(cluster: Cluster, lease: LeaseOptions, log: Log) -> Result<Leadership, CommandError> {
    let mut told = None;
    let give_up = |why: NotHeld<'_>| {
        let of_lease = format!("Lease {}/{}", lease.namespace, lease.name);
        let (text, failure) = match why {
            NotHeld::ByAnother(holder) => (format!("standing by: {holder} is the leader ({of_lease})"), None),
            NotHeld::Failed(error) => (format!("failed to {error}; retrying"), Some(error)),
        };
        if let Some(error) = failure.and_then(|error| lasting(error, &lease)) {
            return Some(error);
        }
        if told.as_ref() != Some(&text) {
            match failure {
                None => log.say("watch-standby", json!({}), &text),
                Some(_) => log.warn("watch-standby", json!({}), &text),
            }
            told = Some(text);
        }
        None
    };
    cluster.acquire_unless(&lease, give_up).await
}

/// Returns the error of a failure that waiting does not change.
fn lasting(error: &Error, lease: &LeaseOptions) -> Option<CommandError> {
    let namespace = &lease.namespace;
    if error.status().is_some_and(|status| status.code == 404 && status.kind == "namespaces") {
        let problem = format!("the namespace {namespace}, which holds the record of the payload, does not exist");
        let hint = format!("create it with kubectl create namespace {namespace}, or choose another one with -n");
        return Some(CommandError::new(Exit::Failed, problem).hint(hint));
    }
    let failed = || CommandError::failed(Exit::Failed, error);
    match error.kind() {
        ErrorKind::Forbidden => Some(failed().hint(format!(
            "allow get, create and update of leases.coordination.k8s.io in the namespace {namespace}: with --watch, a Lease \
             elects the one process that makes passes"
        ))),
        ErrorKind::Denied | ErrorKind::Refused | ErrorKind::Invalid | ErrorKind::NotServed => Some(failed()),
        _ if error.code() == Some(401) => Some(failed()),
        _ => None,
    }
}
