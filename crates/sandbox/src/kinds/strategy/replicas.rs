//! Validation of the numbers of replicas in the status of workloads.

use serde_json::Value;

use super::Kind;
use crate::status::Cause;

pub(super) fn validate(kind: &Kind, object: &Value, wrong: &mut Vec<Cause>) {
    let (parts, ready): (&[&str], _) = match (kind.group(), &*kind.id.plural) {
        ("apps", "deployments") => (&["updatedReplicas", "readyReplicas", "availableReplicas"][..], "readyReplicas"),
        ("apps", "replicasets") | ("", "replicationcontrollers") => {
            (&["fullyLabeledReplicas", "readyReplicas", "availableReplicas"][..], "readyReplicas")
        }
        ("apps", "statefulsets") => {
            (&["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"][..], "status.readyReplicas")
        }
        _ => return,
    };
    let status = &object["status"];
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let mut invalid = |field: &str, detail: &str| {
        wrong.push(Cause::invalid(format!("status.{field}"), &number(field).into(), detail));
    };
    for field in ["replicas"].iter().chain(parts).filter(|field| number(field) < 0) {
        invalid(field, "must be greater than or equal to 0");
    }
    for field in parts.iter().filter(|field| number(field) > number("replicas")) {
        invalid(field, "cannot be greater than status.replicas");
    }
    if number("availableReplicas") > number("readyReplicas") {
        invalid("availableReplicas", &format!("cannot be greater than {ready}"));
    }
}
