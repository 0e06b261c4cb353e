//! What only the API server or a controller sets on an object, so that a new one must not have it.

use billhook_objects::{GroupKind, wellknown};
use serde_json::{Map, Value};

/// Metadata that the API server sets.
const METADATA: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Finalizers that Kubernetes sets by itself.
const FINALIZERS: [&str; 7] = [
    wellknown::CRD_CLEANUP_FINALIZER,
    wellknown::FOREGROUND_FINALIZER,
    wellknown::ORPHAN_FINALIZER,
    "batch.kubernetes.io/job-tracking",
    "kubernetes.io/pv-protection",
    "kubernetes.io/pvc-protection",
    "service.kubernetes.io/load-balancer-cleanup",
];

/// Annotations that controllers of Kubernetes set, and that describe the old object.
const ANNOTATIONS: [&str; 9] = [
    "batch.kubernetes.io/job-tracking",
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "kubernetes.io/service-account.uid",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.beta.kubernetes.io/storage-provisioner",
    "volume.kubernetes.io/selected-node",
    "volume.kubernetes.io/storage-provisioner",
];

/// Labels of the Pods of a Job that name the old Job.
const JOB_LABELS: [&str; 4] =
    ["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name", "controller-uid", "job-name"];

/// Returns the kind of an object.
pub(super) fn kind_of(object: &Value) -> GroupKind {
    let group = object["apiVersion"].as_str().and_then(|text| text.split_once('/')).map_or("", |(group, _)| group);
    GroupKind::new(group, object["kind"].as_str().unwrap_or_default())
}

/// Removes what a new object must not have. Returns the status of a custom resource, which its controller may need; the object
/// keeps it, too, because not every kind has a subresource for it.
pub(super) fn strip(object: &mut Value) -> Option<Value> {
    let kind = kind_of(object);
    let status = object.get("status").cloned();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        strip_metadata(metadata);
    }
    let built_in = wellknown::is_built_in(&kind.group);
    if let Some(object) = object.as_object_mut().filter(|_| built_in) {
        object.remove("status");
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => remove(object, "/spec", &["finalizers"]),
        ("", "PersistentVolume") => remove(object, "/spec/claimRef", &["resourceVersion", "uid"]),
        ("", "Pod") => strip_pod(object),
        ("", "Secret") if object["type"] == "kubernetes.io/service-account-token" => {
            remove(object, "/data", &["ca.crt", "namespace", "token"]);
        }
        ("", "ServiceAccount") => strip_account(object),
        ("batch", "Job") => strip_job(object),
        _ => {}
    }
    // Serializers of older clients write it into templates.
    remove_null(object, "/spec/template/metadata");
    remove_null(object, "/spec/jobTemplate/metadata");
    remove_null(object, "/spec/jobTemplate/spec/template/metadata");
    status.filter(|_| !built_in)
}

/// Removes the volume that was bound to a claim by a controller, and is not restored with it.
pub(super) fn unbind(claim: &mut Value) {
    remove(claim, "/spec", &["volumeName"]);
}

fn strip_metadata(metadata: &mut Map<String, Value>) {
    METADATA.iter().for_each(|field| drop(metadata.remove(*field)));
    if let Some(finalizers) = metadata.get_mut("finalizers").and_then(Value::as_array_mut) {
        finalizers.retain(|finalizer| finalizer.as_str().is_none_or(|name| !FINALIZERS.contains(&name)));
    }
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        ANNOTATIONS.iter().for_each(|name| drop(annotations.remove(*name)));
    }
    metadata
        .retain(|field, value| !matches!(field.as_str(), "annotations" | "finalizers" | "labels") || !is_empty(value));
}

fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

/// Removes what the API server and the scheduler add to a Pod.
fn strip_pod(pod: &mut Value) {
    remove(pod, "/spec", &["ephemeralContainers", "nodeName", "priority"]);
    let is_token = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("kube-api-access-"));
    let lists = [("/spec/volumes", ""), ("/spec/containers", "volumeMounts"), ("/spec/initContainers", "volumeMounts")];
    for (path, inner) in lists {
        let Some(list) = pod.pointer_mut(path).and_then(Value::as_array_mut) else { continue };
        if inner.is_empty() {
            list.retain(|volume| !is_token(&volume["name"]));
        }
        for mounts in list.iter_mut().filter_map(|item| item.get_mut(inner)).filter_map(Value::as_array_mut) {
            mounts.retain(|mount| !is_token(&mount["name"]));
        }
    }
}

/// Removes the token Secrets that a controller has created for a ServiceAccount.
fn strip_account(account: &mut Value) {
    let prefix = format!("{}-token-", account["metadata"]["name"].as_str().unwrap_or_default());
    if let Some(secrets) = account.get_mut("secrets").and_then(Value::as_array_mut) {
        secrets.retain(|secret| secret["name"].as_str().is_none_or(|name| !name.starts_with(&prefix)));
    }
}

/// Removes the selector that the API server has made from the UID of a Job.
fn strip_job(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    remove(job, "/spec", &["selector"]);
    remove(job, "/spec/template/metadata/labels", &JOB_LABELS);
    remove(job, "/metadata/labels", &JOB_LABELS);
}

fn remove(object: &mut Value, path: &str, fields: &[&str]) {
    if let Some(map) = object.pointer_mut(path).and_then(Value::as_object_mut) {
        fields.iter().for_each(|field| drop(map.remove(*field)));
    }
}

fn remove_null(object: &mut Value, path: &str) {
    if object.pointer(path).is_some_and(|metadata| metadata["creationTimestamp"].is_null()) {
        remove(object, path, &["creationTimestamp"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(mut object: Value, expected: Value, status: Option<Value>) {
        assert_eq!(strip(&mut object), status);
        assert_eq!(object, expected);
    }

    #[test]
    fn what_the_api_server_sets_is_removed() {
        check(
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "metadata": {
                "name": "a", "namespace": "n", "uid": "1", "resourceVersion": "2", "generation": 3,
                "creationTimestamp": "x", "deletionTimestamp": "x", "deletionGracePeriodSeconds": 0, "managedFields": [],
                "ownerReferences": [{}], "selfLink": "/", "labels": {}, "annotations": {"mine": "1"},
                "finalizers": ["shop.example/backup", "foregroundDeletion", "orphan"]}}),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "metadata": {
                "name": "a", "namespace": "n", "annotations": {"mine": "1"}, "finalizers": ["shop.example/backup"]}}),
            None,
        );
    }

    #[test]
    fn only_custom_resources_keep_their_status() {
        check(
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a",
                "annotations": {"deployment.kubernetes.io/revision": "4"}}, "status": {"replicas": 1},
                "spec": {"template": {"metadata": {"creationTimestamp": null, "labels": {"a": "b"}}}}}),
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
                "spec": {"template": {"metadata": {"labels": {"a": "b"}}}}}),
            None,
        );
        let custom = json!({"apiVersion": "shop.example/v1", "kind": "Database", "metadata": {"name": "a"}, "status": {"id": 7}});
        check(custom.clone(), custom, Some(json!({"id": 7})));
    }

    #[test]
    fn what_belongs_to_the_old_object_is_removed() {
        check(
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "labels": {"job-name": "a"}}, "spec": {
                "selector": {"matchLabels": {"controller-uid": "1"}},
                "template": {"metadata": {"labels": {"controller-uid": "1", "app": "a"}}}}}),
            json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "labels": {}}, "spec": {
                "template": {"metadata": {"labels": {"app": "a"}}}}}),
            None,
        );
        let manual = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {
            "manualSelector": true, "selector": {"matchLabels": {"app": "a"}}}});
        check(manual.clone(), manual, None);
        check(
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations": {
                "kubernetes.io/service-account.name": "b", "kubernetes.io/service-account.uid": "1"}},
                "type": "kubernetes.io/service-account-token", "data": {"token": "x", "ca.crt": "y", "other": "z"}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "annotations": {
                "kubernetes.io/service-account.name": "b"}},
                "type": "kubernetes.io/service-account-token", "data": {"other": "z"}}),
            None,
        );
        check(
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"}, "spec": {
                "claimRef": {"namespace": "n", "name": "c", "uid": "1", "resourceVersion": "2"}}}),
            json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "a"}, "spec": {
                "claimRef": {"namespace": "n", "name": "c"}}}),
            None,
        );
        check(
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"nodeName": "n", "priority": 0,
                "volumes": [{"name": "kube-api-access-x"}, {"name": "v"}],
                "containers": [{"name": "c", "volumeMounts": [{"name": "kube-api-access-x"}, {"name": "v"}]}]}}),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {
                "volumes": [{"name": "v"}], "containers": [{"name": "c", "volumeMounts": [{"name": "v"}]}]}}),
            None,
        );
        check(
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}}),
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {}}),
            None,
        );
        check(
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"},
                "secrets": [{"name": "a-token-x"}, {"name": "mine"}]}),
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}, "secrets": [{"name": "mine"}]}),
            None,
        );
    }
}
