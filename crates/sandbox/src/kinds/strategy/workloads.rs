//! Validation of Pods and of the workloads that create them.
//!
//! Checked are the containers, their names and images, and that selectors match the labels of templates. Volumes,
//! ports, probes, resources and everything else are only checked against the schema.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Kind,
    fields::{is_unset, items, text},
    metadata::{annotations, check, labels},
};
use crate::{names, selector::label_selector_matches, status::Cause};

pub(super) fn validate(kind: &Kind, object: &Value, wrong: &mut Vec<Cause>) {
    let spec = &object["spec"];
    match (kind.group(), &*kind.id.plural) {
        ("", "pods") => pod_spec(spec, "spec", wrong),
        ("", "podtemplates") => template(&object["template"], "template", wrong),
        ("", "replicationcontrollers") => {
            if spec["selector"].as_object().is_none_or(|selector| selector.is_empty()) {
                wrong.push(Cause::required("spec.selector", ""));
            }
            template(&spec["template"], "spec.template", wrong);
        }
        ("apps", "deployments" | "replicasets") => controller(spec, "deployment", wrong),
        ("apps", "daemonsets") => controller(spec, "daemonset", wrong),
        ("apps", "statefulsets") => controller(spec, "statefulset", wrong),
        ("batch", "jobs") => {
            labels_match(spec, wrong);
            job(spec, "spec", wrong);
        }
        ("batch", "cronjobs") => {
            if is_unset(&spec["schedule"]) {
                wrong.push(Cause::required("spec.schedule", ""));
            }
            job(&spec["jobTemplate"]["spec"], "spec.jobTemplate.spec", wrong);
        }
        _ => {}
    }
}

fn controller(spec: &Value, noun: &str, wrong: &mut Vec<Cause>) {
    if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
        wrong.push(Cause::invalid("spec.replicas", &spec["replicas"], "must be greater than or equal to 0"));
    }
    let selector = &spec["selector"];
    // Kubernetes rejects a DaemonSet without a selector only because the labels do not match.
    if selector.is_null() && noun != "daemonset" {
        wrong.push(Cause::required("spec.selector", ""));
    }
    let empty = |field: &str| match &selector[field] {
        Value::Object(labels) => labels.is_empty(),
        other => is_unset(other),
    };
    if selector.is_object() && empty("matchLabels") && empty("matchExpressions") {
        wrong.push(Cause::invalid("spec.selector", selector, &format!("empty selector is invalid for {noun}")));
    }
    labels(&selector["matchLabels"], "spec.selector.matchLabels", wrong);
    labels_match(spec, wrong);
    template(&spec["template"], "spec.template", wrong);
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if policy.is_string() && policy != "Always" {
        wrong.push(Cause::unsupported("spec.template.spec.restartPolicy", policy, &["Always".to_owned()]));
    }
}

/// Checks that the selector matches the labels of the template; a missing selector matches nothing.
fn labels_match(spec: &Value, wrong: &mut Vec<Cause>) {
    let labels = &spec["template"]["metadata"]["labels"];
    let selector = &spec["selector"];
    if selector.is_null() || !label_selector_matches(selector, &|key| labels[key].as_str()) {
        let detail = "`selector` does not match template `labels`";
        wrong.push(Cause::invalid("spec.template.metadata.labels", labels, detail));
    }
}

fn template(template: &Value, field: &str, wrong: &mut Vec<Cause>) {
    labels(&template["metadata"]["labels"], &format!("{field}.labels"), wrong);
    annotations(&template["metadata"]["annotations"], &format!("{field}.annotations"), wrong);
    pod_spec(&template["spec"], &format!("{field}.spec"), wrong);
}

fn job(spec: &Value, field: &str, wrong: &mut Vec<Cause>) {
    for count in ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"] {
        if spec[count].as_i64().is_some_and(|value| value < 0) {
            wrong.push(Cause::invalid(format!("{field}.{count}"), &spec[count], "must be greater than or equal to 0"));
        }
    }
    if spec["completionMode"] == "Indexed" && spec["completions"].is_null() {
        wrong.push(Cause::required(format!("{field}.completions"), "when completion mode is Indexed"));
    }
    template(&spec["template"], &format!("{field}.template"), wrong);
    // `Always` is the default and counts as unset, and a missing Pod spec gets no default.
    if matches!(text(&spec["template"]["spec"], "restartPolicy"), "" | "Always") {
        let detail = "valid values: \"OnFailure\", \"Never\"";
        wrong.push(Cause::required(format!("{field}.template.spec.restartPolicy"), detail));
    }
}

fn pod_spec(spec: &Value, field: &str, wrong: &mut Vec<Cause>) {
    if is_unset(&spec["containers"]) {
        wrong.push(Cause::required(format!("{field}.containers"), ""));
    }
    let mut seen = BTreeSet::new();
    for list in ["containers", "initContainers"] {
        for (index, container) in items(&spec[list]).enumerate() {
            let field = format!("{field}.{list}[{index}]");
            let name = text(container, "name");
            if name.is_empty() {
                wrong.push(Cause::required(format!("{field}.name"), ""));
            } else {
                check(names::dns_label, &format!("{field}.name"), name, wrong);
            }
            let image = text(container, "image");
            if image.is_empty() {
                wrong.push(Cause::required(format!("{field}.image"), ""));
            } else if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                wrong.push(Cause::invalid(format!("{field}.image"), &image.into(), detail));
            }
            if !name.is_empty() && !seen.insert(name) {
                wrong.push(Cause::duplicate(format!("{field}.name"), &name.into()));
            }
        }
    }
    let one_of = |name: &str, known: &[&str], wrong: &mut Vec<Cause>| {
        if spec[name].as_str().is_some_and(|value| !known.contains(&value)) {
            let known: Vec<String> = known.iter().map(|&known| known.to_owned()).collect();
            wrong.push(Cause::unsupported(format!("{field}.{name}"), &spec[name], &known));
        }
    };
    one_of("restartPolicy", &["Always", "OnFailure", "Never"], wrong);
    one_of("dnsPolicy", &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"], wrong);
}
