//! What an update may not change besides metadata.
//!
//! The texts are shorter than Kubernetes' where these contain a diff or a value in its internal Go form.

use serde_json::{Map, Value};

use super::{
    Kind,
    fields::{is_unset, items_mut, put, text},
    metadata::immutable,
};
use crate::{conditions, object::at_path, status::Cause};

pub(super) fn validate(kind: &Kind, object: &Value, old: &Value, wrong: &mut Vec<Cause>) {
    for path in fields(kind) {
        immutable(path, at_path(object, path), at_path(old, path), wrong);
    }
    let (spec, before) = (&object["spec"], &old["spec"]);
    match (kind.group(), &*kind.id.plural) {
        ("", "configmaps") => frozen(object, old, &["data", "binaryData"], wrong),
        ("", "secrets") => frozen(object, old, &["data"], wrong),
        ("", "persistentvolumeclaims") => claim(object, old, wrong),
        ("", "persistentvolumes") if volume_source(spec) != volume_source(before) => {
            let field = "spec.persistentvolumesource";
            wrong.push(Cause::forbidden(field, "spec.persistentvolumesource is immutable after creation"));
        }
        ("", "pods") => pod(spec, before, wrong),
        ("", "services") => service(spec, before, wrong),
        ("apiextensions.k8s.io", "customresourcedefinitions") if conditions::is_true(old, "Established") => {
            for path in ["spec.scope", "spec.names.kind"] {
                immutable(path, at_path(object, path), at_path(old, path), wrong);
            }
        }
        ("apps", "statefulsets") => stateful_set(spec, before, wrong),
        ("batch", "jobs") => job(object, old, wrong),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings")
            if object["roleRef"] != old["roleRef"] =>
        {
            wrong.push(Cause::invalid("roleRef", &object["roleRef"], "cannot change roleRef"));
        }
        ("scheduling.k8s.io", "priorityclasses") if object["value"] != old["value"] => {
            wrong.push(Cause::forbidden("value", "may not be changed in an update."));
        }
        _ => {}
    }
}

/// Returns the fields that may not change and whose error says only that.
fn fields(kind: &Kind) -> &'static [&'static str] {
    match (kind.group(), &*kind.id.plural) {
        ("", "secrets") => &["type"],
        ("apiextensions.k8s.io", "customresourcedefinitions") => &["spec.group", "spec.names.plural"],
        ("apps", "controllerrevisions") => &["data"],
        ("apps", "deployments" | "replicasets" | "daemonsets") => &["spec.selector"],
        ("batch", "jobs") => &[
            "spec.selector",
            "spec.completionMode",
            "spec.podFailurePolicy",
            "spec.backoffLimitPerIndex",
            "spec.managedBy",
            "spec.successPolicy",
        ],
        ("discovery.k8s.io", "endpointslices") => &["addressType"],
        ("networking.k8s.io", "ingressclasses") => &["spec.controller"],
        ("node.k8s.io", "runtimeclasses") => &["handler"],
        ("storage.k8s.io", "storageclasses") => &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"],
        ("storage.k8s.io", "volumeattachments") => &["spec"],
        _ => &[],
    }
}

/// Checks the data of a ConfigMap or Secret that is marked `immutable`.
fn frozen(object: &Value, old: &Value, fields: &[&str], wrong: &mut Vec<Cause>) {
    const WHY: &str = "field is immutable when `immutable` is set";
    if old["immutable"] != true {
        return;
    }
    if object["immutable"] != true {
        wrong.push(Cause::forbidden("immutable", WHY));
    }
    let filled = |value: &Value| value.as_object().filter(|fields| !fields.is_empty()).cloned();
    for field in fields.iter().filter(|field| filled(&object[**field]) != filled(&old[**field])) {
        wrong.push(Cause::forbidden(*field, WHY));
    }
}

/// Returns whether two values differ apart from what may change.
fn differ(new: &Value, old: &Value, ignore: impl Fn(&mut Map<String, Value>)) -> bool {
    let strip = |value: &Value| {
        let mut value = value.as_object().cloned().unwrap_or_default();
        ignore(&mut value);
        value.retain(|_, value| !value.is_null());
        value
    };
    strip(new) != strip(old)
}

fn claim(object: &Value, old: &Value, wrong: &mut Vec<Cause>) {
    let bound = object["status"]["phase"] == "Bound";
    let once = ["volumeName", "storageClassName"].map(|name| (name, is_unset(&old["spec"][name])));
    let changed = differ(&object["spec"], &old["spec"], |spec| {
        for (name, _) in once.iter().filter(|(_, was_unset)| *was_unset) {
            spec.remove(*name);
        }
        if bound {
            spec.remove("volumeAttributesClassName");
            if let Some(resources) = spec.get_mut("resources") {
                put(resources, &["requests", "storage"], Value::Null);
            }
        }
    });
    if changed {
        let why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound \
                   claims";
        wrong.push(Cause::forbidden("spec", why));
    }
}

/// Returns whether a field of a PersistentVolume is its volume source.
pub(super) fn is_volume_source(field: &str) -> bool {
    let others = [
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    ];
    !others.contains(&field)
}

fn volume_source(spec: &Value) -> Vec<(&String, &Value)> {
    spec.as_object()
        .into_iter()
        .flatten()
        .filter(|(field, value)| is_volume_source(field) && !value.is_null())
        .collect()
}

fn pod(spec: &Value, before: &Value, wrong: &mut Vec<Cause>) {
    let tolerations = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let added = tolerations(before).iter().all(|toleration| tolerations(spec).contains(toleration));
    let changed = differ(spec, before, |spec| {
        for list in ["containers", "initContainers"] {
            items_mut(spec.get_mut(list)).for_each(|container| put(container, &["image"], Value::Null));
        }
        for field in ["activeDeadlineSeconds", "tolerations"] {
            spec.remove(field);
        }
    });
    if changed || !added {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                   existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        wrong.push(Cause::forbidden("spec", why));
    }
}

fn service(spec: &Value, before: &Value, wrong: &mut Vec<Cause>) {
    let external = |spec: &Value| text(spec, "type") == "ExternalName";
    if !external(spec)
        && !external(before)
        && !is_unset(&before["clusterIP"])
        && spec["clusterIP"] != before["clusterIP"]
    {
        wrong.push(Cause::invalid("spec.clusterIPs[0]", &spec["clusterIPs"], "may not change once set"));
    }
}

fn stateful_set(spec: &Value, before: &Value, wrong: &mut Vec<Cause>) {
    let changed = differ(spec, before, |spec| {
        for field in [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ] {
            spec.remove(field);
        }
    });
    if changed {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        wrong.push(Cause::forbidden("spec", why));
    }
}

fn job(object: &Value, old: &Value, wrong: &mut Vec<Cause>) {
    let (spec, before) = (&object["spec"], &old["spec"]);
    let together = spec["completionMode"] == "Indexed" && spec["completions"] == spec["parallelism"];
    if !together {
        immutable("spec.completions", &spec["completions"], &before["completions"], wrong);
    }
    // A Job that has not started may still change where its Pods are scheduled. Which part of the template changes is
    // not checked.
    if before["suspend"] != true || !old["status"]["startTime"].is_null() {
        immutable("spec.template", &spec["template"], &before["template"], wrong);
    }
}
