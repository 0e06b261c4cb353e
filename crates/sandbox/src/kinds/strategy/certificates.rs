//! CertificateSigningRequests: what the server sets, and who may change which part of the status.
//!
//! The signature of a request is not verified, and no controller signs.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

use super::fields::{is_unset, items, items_mut, text};
use crate::{call::User, object::texts, status::Cause};

const APPROVAL: [&str; 2] = ["Approved", "Denied"];
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Records who requests a certificate.
pub(super) fn prepare_create(object: &mut Value, user: &User) {
    if let Some(spec) = object["spec"].as_object_mut() {
        for field in ["uid", "extra"] {
            spec.remove(field);
        }
        spec.insert("username".to_owned(), user.name.as_str().into());
        spec.insert("groups".to_owned(), user.groups.as_slice().into());
    }
}

/// Sets the times of conditions, and keeps the approval in writes of the status.
pub(super) fn prepare_part(subresource: &str, object: &mut Value, old: &Value, now: &str) {
    let known = &old["status"]["conditions"];
    let count = |name: &Value, object: &Value| {
        items(&object["status"]["conditions"]).filter(|condition| condition["type"] == *name).count()
    };
    let keeps = APPROVAL.map(|name| count(&name.into(), object) == count(&name.into(), old));
    for condition in items_mut(object["status"].get_mut("conditions")).filter(|condition| condition.is_object()) {
        let name = condition["type"].clone();
        let kept = subresource == "status" && APPROVAL.iter().zip(keeps).any(|(known, keeps)| keeps && name == *known);
        if let Some(known) = items(known).find(|known| kept && known["type"] == name) {
            *condition = known.clone();
            continue;
        }
        if is_unset(&condition["lastUpdateTime"]) {
            condition["lastUpdateTime"] = now.into();
        }
        if is_unset(&condition["lastTransitionTime"]) {
            let same = items(known).find(|known| known["type"] == name && known["status"] == condition["status"]);
            let time = same.map(|known| &known["lastTransitionTime"]).filter(|time| !is_unset(time));
            condition["lastTransitionTime"] = time.cloned().unwrap_or_else(|| now.into());
        }
    }
}

/// Checks a request.
pub(super) fn validate(object: &Value, wrong: &mut Vec<Cause>) {
    let spec = &object["spec"];
    let pem = STANDARD.decode(text(spec, "request")).unwrap_or_default();
    if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE REQUEST-----") {
        wrong.push(Cause::invalid("spec.request", &spec["request"], "PEM block type must be CERTIFICATE REQUEST"));
    }
    if is_unset(&spec["usages"]) {
        wrong.push(Cause::required("spec.usages", ""));
    }
    for (index, usage) in texts(&spec["usages"]).iter().enumerate() {
        if !USAGES.contains(&usage.as_str()) {
            let field = format!("spec.usages[{index}]");
            wrong.push(Cause::unsupported(field, &usage.as_str().into(), &USAGES.map(str::to_owned)));
        }
    }
    match text(spec, "signerName") {
        "" => wrong.push(Cause::required("spec.signerName", "")),
        name if !name.contains('/') => {
            let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            wrong.push(Cause::invalid("spec.signerName", &name.into(), detail));
        }
        _ => {}
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        wrong.push(Cause::invalid("spec.expirationSeconds", &seconds.into(), detail));
    }
    conditions(&object["status"]["conditions"], wrong);
}

fn conditions(conditions: &Value, wrong: &mut Vec<Cause>) {
    let at = |index: usize, field: &str| format!("status.conditions[{index}].{field}");
    let mut seen: Vec<&str> = Vec::new();
    for (index, condition) in items(conditions).enumerate() {
        let name = text(condition, "type");
        if name.is_empty() {
            wrong.push(Cause::required(at(index, "type"), ""));
        }
        let only_true = APPROVAL.contains(&name) || name == "Failed";
        let allowed: &[&str] = if only_true { &["True"] } else { &["False", "True", "Unknown"] };
        match text(condition, "status") {
            "" => wrong.push(Cause::required(at(index, "status"), "")),
            status if !allowed.contains(&status) => {
                let allowed: Vec<String> = allowed.iter().map(|&status| status.to_owned()).collect();
                wrong.push(Cause::unsupported(at(index, "status"), &status.into(), &allowed));
            }
            _ => {}
        }
        if APPROVAL.contains(&name) && seen.iter().any(|known| APPROVAL.contains(known) && *known != name) {
            let detail = "Approved and Denied conditions are mutually exclusive";
            wrong.push(Cause::invalid("status.conditions", &name.into(), detail));
        }
        if seen.contains(&name) {
            wrong.push(Cause::duplicate(at(index, "type"), &name.into()));
        }
        seen.push(name);
    }
}

/// Checks what a write through a subresource changes.
pub(super) fn validate_part(subresource: &str, object: &Value, old: &Value, wrong: &mut Vec<Cause>) {
    let of = |object: &Value, name: &str| -> Vec<Value> {
        items(&object["status"]["conditions"]).filter(|condition| condition["type"] == name).cloned().collect()
    };
    let mut forbid = |field: &str, why: String| wrong.push(Cause::forbidden(field, &why));
    for name in ["Approved", "Denied", "Failed"] {
        let (new, before) = (of(object, name).len(), of(old, name).len());
        if new < before {
            forbid("status.conditions", format!("updates may not remove a condition of type {name:?}"));
        } else if new > before && subresource != "approval" && name != "Failed" {
            forbid("status.conditions", format!("updates may not add a condition of type {name:?}"));
        }
    }
    let [new, before] = [object, old].map(|object| text(&object["status"], "certificate"));
    if new != before && !before.is_empty() {
        forbid("status.certificate", "updates may not modify existing certificate content".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn request(conditions: Value) -> Value {
        json!({
            "spec": {
                "request": STANDARD.encode("-----BEGIN CERTIFICATE REQUEST-----"), "usages": ["client auth"],
                "signerName": "example.com/signer",
            },
            "status": {"conditions": conditions},
        })
    }

    fn check(object: &Value, expected: &[&str]) {
        let mut wrong = Vec::new();
        validate(object, &mut wrong);
        let found: Vec<_> = wrong.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn requests_are_checked() {
        check(&request(json!([])), &[]);
        check(&request(json!([{"type": "Approved", "status": "True"}])), &[]);
        check(
            &request(json!([{"type": "Denied", "status": "False"}, {"type": "Denied"}])),
            &[
                r#"status.conditions[0].status: Unsupported value: "False": supported values: "True""#,
                "status.conditions[1].status: Required value",
                r#"status.conditions[1].type: Duplicate value: "Denied""#,
            ],
        );
        let both = json!([{"type": "Approved", "status": "True"}, {"type": "Denied", "status": "True"}]);
        check(
            &request(both),
            &[r#"status.conditions: Invalid value: "Denied": Approved and Denied conditions are mutually exclusive"#],
        );
        let mut wrong = request(json!([]));
        wrong["spec"] = json!({"request": "", "signerName": "signer", "expirationSeconds": 1});
        check(
            &wrong,
            &[
                r#"spec.request: Invalid value: "": PEM block type must be CERTIFICATE REQUEST"#,
                "spec.usages: Required value",
                r#"spec.signerName: Invalid value: "signer": must be a fully qualified domain and path of the form 'example.com/signer-name'"#,
                "spec.expirationSeconds: Invalid value: 1: may not specify a duration less than 600 seconds (10 minutes)",
            ],
        );
    }

    #[test]
    fn only_the_approval_may_approve() {
        let (old, new) = (request(json!([])), request(json!([{"type": "Approved", "status": "True"}])));
        let found = |subresource: &str, new: &Value, old: &Value| {
            let mut wrong = Vec::new();
            validate_part(subresource, new, old, &mut wrong);
            wrong.into_iter().map(|cause| cause.message).collect::<Vec<_>>()
        };
        assert_eq!(found("approval", &new, &old), [""; 0]);
        assert_eq!(found("status", &new, &old), [r#"Forbidden: updates may not add a condition of type "Approved""#]);
        assert_eq!(
            found("approval", &old, &new),
            [r#"Forbidden: updates may not remove a condition of type "Approved""#]
        );
    }

    #[test]
    fn conditions_get_times() {
        let old =
            request(json!([{"type": "Approved", "status": "True", "lastUpdateTime": "a", "lastTransitionTime": "a"}]));
        let sent = json!([{"type": "Approved", "status": "True", "reason": "x"}, {"type": "Other", "status": "True"}]);
        let mut object = request(sent);
        prepare_part("status", &mut object, &old, "b");
        let kept = &old["status"]["conditions"][0];
        let other = json!({"type": "Other", "status": "True", "lastUpdateTime": "b", "lastTransitionTime": "b"});
        assert_eq!(object["status"]["conditions"], json!([kept, other]));
        let mut object = request(json!([{"type": "Approved", "status": "True", "reason": "x"}]));
        prepare_part("approval", &mut object, &old, "b");
        let renewed = json!({
            "type": "Approved", "status": "True", "reason": "x", "lastUpdateTime": "b", "lastTransitionTime": "a",
        });
        assert_eq!(object["status"]["conditions"], json!([renewed]));
    }
}
