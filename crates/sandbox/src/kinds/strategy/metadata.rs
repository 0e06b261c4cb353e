//! Rules for the metadata of all kinds.

use serde_json::{Map, Value};

use super::{
    Kind,
    fields::{items, text},
};
use crate::{
    names::{self, Check},
    object::{is_deleting, meta, meta_list},
    status::Cause,
};

const ANNOTATIONS: usize = 256 * 1024;

pub(super) fn validate(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut wrong = Vec::new();
    match old {
        None => name(kind, object, &mut wrong),
        Some(old) => unchanged(object, old, &mut wrong),
    }
    let metadata = &object["metadata"];
    labels(&metadata["labels"], "metadata.labels", &mut wrong);
    annotations(&metadata["annotations"], "metadata.annotations", &mut wrong);
    owners(&metadata["ownerReferences"], &mut wrong);
    finalizers(kind, object, &mut wrong);
    wrong
}

/// Reports a field that has changed as immutable.
pub(super) fn immutable(field: &str, new: &Value, old: &Value, wrong: &mut Vec<Cause>) {
    if new != old {
        wrong.push(Cause::invalid(field, new, "field is immutable"));
    }
}

/// Reports what a check finds as invalid values.
pub(super) fn check(check: Check, field: &str, value: &str, wrong: &mut Vec<Cause>) {
    wrong.extend(check(value).iter().map(|found| Cause::invalid(field, &value.into(), found)));
}

fn name(kind: &Kind, object: &Value, wrong: &mut Vec<Cause>) {
    let name = meta(object, "name");
    if name.is_empty() {
        wrong.push(Cause::required("metadata.name", "name or generateName is required"));
        return;
    }
    let rule: Check = match (kind.group(), &*kind.id.plural) {
        ("", "namespaces" | "services") | ("apps", "statefulsets") => names::dns_label,
        ("rbac.authorization.k8s.io" | "apiregistration.k8s.io", _) => names::path_segment,
        // Event names are derived from other objects and only have to be valid path segments.
        ("" | "events.k8s.io", "events") => names::path_segment,
        _ => names::dns_subdomain,
    };
    let start = meta(object, "generateName");
    if !start.is_empty() {
        // A trailing hyphen will not end the name, so it is checked with a letter at its end.
        let masked = start.strip_suffix('-').and_then(|rest| rest.char_indices().next_back());
        let masked = masked.map_or_else(|| start.to_owned(), |(last, _)| format!("{}a", &start[..last]));
        for found in rule(&masked) {
            wrong.push(Cause::invalid("metadata.generateName", &start.into(), &found));
        }
    }
    check(rule, "metadata.name", name, wrong);
    if kind.is("batch", "cronjobs") && name.len() > 52 {
        wrong.push(Cause::invalid("metadata.name", &name.into(), "must be no more than 52 characters"));
    }
    if kind.is("apiregistration.k8s.io", "apiservices") {
        let required = format!("{}.{}", text(&object["spec"], "version"), text(&object["spec"], "group"));
        if name != required {
            let detail = format!("must be `spec.version+\".\"+spec.group`: {}", Value::from(required));
            wrong.push(Cause::invalid("metadata.name", &name.into(), &detail));
        }
    }
}

fn unchanged(object: &Value, old: &Value, wrong: &mut Vec<Cause>) {
    if is_deleting(old) {
        let mut new: Vec<&str> = meta_list(object, "finalizers").collect();
        new.retain(|name| meta_list(old, "finalizers").all(|known| known != *name));
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            let new: Vec<String> = new.into_iter().map(|name| Value::from(name).to_string()).collect();
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                new.join(", ")
            );
            wrong.push(Cause::forbidden("metadata.finalizers", &detail));
        }
    }
    for field in ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        immutable(&format!("metadata.{field}"), &object["metadata"][field], &old["metadata"][field], wrong);
    }
}

pub(super) fn labels(labels: &Value, field: &str, wrong: &mut Vec<Cause>) {
    for (key, value) in labels.as_object().into_iter().flatten() {
        check(names::label_key, field, key, wrong);
        check(names::label_value, field, value.as_str().unwrap_or_default(), wrong);
    }
}

pub(super) fn annotations(annotations: &Value, field: &str, wrong: &mut Vec<Cause>) {
    let annotations = annotations.as_object();
    for key in annotations.into_iter().flat_map(Map::keys) {
        // Keys of annotations are checked without regard to case.
        let found = names::label_key(&key.to_lowercase());
        wrong.extend(found.iter().map(|found| Cause::invalid(field, &key.as_str().into(), found)));
    }
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if annotations.into_iter().flatten().map(size).sum::<usize>() > ANNOTATIONS {
        wrong.push(too_long(field, ANNOTATIONS));
    }
}

pub(super) fn too_long(field: &str, limit: usize) -> Cause {
    Cause::new("FieldValueTooLong", field, "Too long", &format!("may not be more than {limit} bytes"))
}

/// Checks the owner references. Kubernetes reports their fields without an index.
fn owners(references: &Value, wrong: &mut Vec<Cause>) {
    const FIELD: &str = "metadata.ownerReferences";
    let mut controller: Option<String> = None;
    for reference in items(references) {
        let api_version = text(reference, "apiVersion");
        let version = api_version.rsplit('/').next().unwrap_or_default();
        for (field, detail) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if text(reference, field).is_empty() || (field == "apiVersion" && version.is_empty()) {
                wrong.push(Cause::invalid(format!("{FIELD}.{field}"), &text(reference, field).into(), detail));
            }
        }
        if api_version == "v1" && reference["kind"] == "Event" {
            wrong.push(Cause::invalid(FIELD, reference, "/v1, Kind=Event is disallowed from being an owner"));
        }
        if reference["controller"] == true {
            let name = format!("{}/{}", text(reference, "kind"), text(reference, "name"));
            match &controller {
                None => controller = Some(name),
                Some(first) => {
                    let detail = format!(
                        "Only one reference can have Controller set to true. \
                         Found \"true\" in references for {first} and {name}"
                    );
                    wrong.push(Cause::invalid(FIELD, references, &detail));
                }
            }
        }
    }
}

fn finalizers(kind: &Kind, object: &Value, wrong: &mut Vec<Cause>) {
    const FIELD: &str = "metadata.finalizers";
    let has = |wanted: &str| meta_list(object, "finalizers").any(|name| name == wanted);
    for name in meta_list(object, "finalizers") {
        check(names::label_key, FIELD, name, wrong);
    }
    if has("orphan") && has("foregroundDeletion") {
        let detail = "finalizer orphan and foregroundDeletion cannot be both set";
        wrong.push(Cause::invalid(FIELD, &object["metadata"]["finalizers"], detail));
    }
    if !wants_qualified_finalizers(kind) {
        return;
    }
    for (index, name) in meta_list(object, "finalizers").enumerate() {
        qualified_finalizer(&format!("{FIELD}[{index}]"), name, wrong);
    }
}

pub(super) fn qualified_finalizer(field: &str, name: &str, wrong: &mut Vec<Cause>) {
    if !name.contains('/') && !matches!(name, "kubernetes" | "orphan" | "foregroundDeletion") {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        wrong.push(Cause::invalid(field, &name.into(), detail));
    }
}

/// Returns whether finalizers must be qualified with a domain. For custom resources the API server only warns, and some
/// groups do not check it at all.
fn wants_qualified_finalizers(kind: &Kind) -> bool {
    let spared = [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "coordination.k8s.io",
        "events.k8s.io",
        "node.k8s.io",
        "policy",
    ];
    kind.crd.is_none() && !spared.contains(&kind.group()) && !kind.is("", "events")
}
