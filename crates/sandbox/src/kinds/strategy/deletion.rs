//! How the deletion of certain kinds differs.

use serde_json::{Value, json};

use super::{
    Kind,
    fields::{items, put, text},
};
use crate::object::{is_deleting, meta_list, metadata_mut};

/// The finalizer that holds a CRD until its instances are deleted.
pub(crate) const CRD_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// The longest grace period, a hundred years.
const MAX_GRACE: i64 = 100 * 365 * 24 * 3600;

impl Kind {
    /// Returns whether objects of the kind are deleted after a grace period.
    pub(crate) fn is_graceful(&self) -> bool {
        self.is("", "pods")
    }

    /// Returns the grace period of an object in seconds. Only a Pod that is assigned to a node and has not finished
    /// gets one.
    pub(crate) fn grace_period(&self, object: &Value, requested: Option<i64>) -> i64 {
        let finished = matches!(text(&object["status"], "phase"), "Failed" | "Succeeded");
        if !self.is_graceful() || text(&object["spec"], "nodeName").is_empty() || finished {
            return 0;
        }
        let of_pod = object["spec"]["terminationGracePeriodSeconds"].as_i64();
        let grace = requested.or(of_pod).unwrap_or(30);
        // Kubernetes treats a negative period as one second.
        if grace < 0 { 1 } else { grace.min(MAX_GRACE) }
    }

    /// Returns whether another DELETE changes nothing: for a Pod in its grace period, unless the new period is shorter,
    /// and for a Namespace that its controller still has to empty.
    pub(crate) fn is_deletion_pending(&self, object: &Value, requested: Option<i64>) -> bool {
        let current = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        let in_grace_period = current > 0 && requested.is_none_or(|grace| grace >= current);
        is_deleting(object) && (in_grace_period || self.has_spec_finalizers(object))
    }

    /// Returns whether `spec.finalizers` holds an object, as it does with Namespaces.
    pub(crate) fn has_spec_finalizers(&self, object: &Value) -> bool {
        self.is("", "namespaces") && items(&object["spec"]["finalizers"]).next().is_some()
    }

    /// Adapts an object that has just received its `deletionTimestamp`.
    pub(crate) fn prepare_delete(&self, object: &mut Value, now: &str) {
        if self.is("apiextensions.k8s.io", "customresourcedefinitions") {
            return mark_definition(object, now);
        }
        let generation = object["metadata"]["generation"].as_i64().unwrap_or(0);
        let metadata = metadata_mut(object);
        if generation > 0 {
            metadata.insert("generation".to_owned(), (generation + 1).into());
        }
        if self.is("", "namespaces") {
            metadata.remove("deletionGracePeriodSeconds");
            put(object, &["status", "phase"], "Terminating");
        }
    }

    /// Returns whether the first DELETE of an object ignores the requested propagation.
    pub(crate) fn defers_propagation(&self) -> bool {
        self.is("apiextensions.k8s.io", "customresourcedefinitions")
    }

    /// Returns whether a DELETE without a propagation policy orphans the dependents.
    pub(crate) fn orphans_by_default(&self) -> bool {
        self.is("", "replicationcontrollers") || self.is("batch", "jobs")
    }

    /// Returns whether the garbage collector handles the kind.
    pub(crate) fn is_collected(&self) -> bool {
        !self.is("", "events") && !self.is("events.k8s.io", "events")
    }

    /// Returns whether a DELETE that removes an object returns the object instead of a `Status`.
    pub(crate) fn returns_deleted(&self) -> bool {
        match (self.group(), &*self.id.plural) {
            ("storage.k8s.io", _) => true,
            ("", plural) => matches!(
                plural,
                "pods"
                    | "persistentvolumes"
                    | "persistentvolumeclaims"
                    | "podtemplates"
                    | "resourcequotas"
                    | "serviceaccounts"
                    | "services"
            ),
            _ => false,
        }
    }

    /// Returns whether one request can delete a collection.
    pub(crate) fn allows_delete_collection(&self) -> bool {
        !self.is("", "namespaces")
    }
}

/// Adds the finalizer that holds a CRD until its instances are deleted, and the condition that announces their
/// deletion.
fn mark_definition(object: &mut Value, now: &str) {
    let mut finalizers: Vec<Value> = meta_list(object, "finalizers").map(Value::from).collect();
    if !finalizers.iter().any(|known| known == CRD_CLEANUP) {
        finalizers.push(CRD_CLEANUP.into());
    }
    let metadata = metadata_mut(object);
    metadata.insert("finalizers".to_owned(), finalizers.into());
    metadata.remove("deletionGracePeriodSeconds");
    let condition = json!({
        "type": "Terminating", "status": "True", "lastTransitionTime": now,
        "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
    });
    match &mut object["status"]["conditions"] {
        Value::Array(conditions) => conditions.push(condition),
        none => *none = json!([condition]),
    }
}
