//! The dependents that an object waits for when it is deleted in the foreground.

use billhook_cluster::Cluster;
use billhook_objects::{GroupKind, ObjectKey, wellknown};
use billhook_plan::{Query, Resource, Select};
use billhook_policy::LabelSelector;
use serde_json::Value;

use crate::Blocker;

/// How many dependents are named.
const NAMED: usize = 3;

/// Returns the kind of the objects that a workload creates. To find the dependents of any other object, all kinds would have
/// to be listed.
pub(crate) fn created_by(kind: &GroupKind) -> Option<Resource> {
    let (kind, plural) = match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment") => (GroupKind::new("apps", "ReplicaSet"), "replicasets"),
        ("batch", "CronJob") => (GroupKind::new("batch", "Job"), "jobs"),
        ("apps", "ReplicaSet" | "StatefulSet" | "DaemonSet") | ("batch", "Job") | ("", "ReplicationController") => {
            (wellknown::pod(), "pods")
        }
        _ => return None,
    };
    Some(Resource { kind, version: "v1".to_owned(), plural: plural.to_owned(), namespaced: true })
}

/// Returns the dependents of a workload that waits for them, by its own label selector: a list of no other objects. What
/// cannot be listed is not known.
pub(crate) async fn remaining(cluster: &Cluster, key: &ObjectKey, object: &Value) -> Option<Blocker> {
    let finalizers = object.pointer("/metadata/finalizers")?.as_array()?;
    if !finalizers.iter().any(|finalizer| finalizer == wellknown::FOREGROUND_FINALIZER) {
        return None;
    }
    let resource = created_by(&key.kind)?;
    let selector: LabelSelector = serde_json::from_value(object.pointer("/spec/selector")?.clone()).ok()?;
    let (kind, uid) = (resource.kind.clone(), object.pointer("/metadata/uid")?.as_str()?);
    let (namespace, select) = (key.namespace.clone(), Select::Labels(selector.to_query()));
    let query = Query { cluster: None, resource, namespace, select, namespaces: Vec::new() };
    let found = cluster.find(&query, &|found| found.owners.iter().any(|owner| owner.uid.as_str() == uid)).await.ok()?;
    let found: Vec<_> = found.iter().map(|object| object.key(&kind)).collect();
    (!found.is_empty()).then(|| blocker(kind, &found.iter().collect::<Vec<_>>()))
}

/// Returns the dependents of one kind as a blocker.
pub(crate) fn blocker(kind: GroupKind, dependents: &[&ObjectKey]) -> Blocker {
    let names = dependents.iter().take(NAMED).map(|key| key.name.clone()).collect();
    Blocker::Dependents { kind, count: dependents.len(), names }
}
