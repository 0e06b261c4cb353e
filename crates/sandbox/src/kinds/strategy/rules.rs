//! Validation of Kubernetes' own kinds beyond their schemas, limited to rules that a client is likely to meet.

use serde_json::Value;

use super::{
    Kind, certificates,
    fields::{is_unset, items, text},
    metadata::{check, qualified_finalizer, too_long},
    workloads,
};
use crate::{names, status::Cause};

/// The size limit for the data of a ConfigMap or Secret.
const DATA: usize = 1024 * 1024;
const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn validate(kind: &Kind, object: &Value, wrong: &mut Vec<Cause>) {
    let spec = &object["spec"];
    match (kind.group(), &*kind.id.plural) {
        ("", "configmaps") => config_map(object, wrong),
        ("", "namespaces") => namespace(spec, wrong),
        ("", "secrets") => secret(object, wrong),
        ("", "services") => service(spec, wrong),
        ("", "persistentvolumeclaims") => claim(spec, wrong),
        ("", "persistentvolumes") => volume(spec, wrong),
        ("apiregistration.k8s.io", "apiservices") => api_service(spec, wrong),
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations" | "validatingwebhookconfigurations") => {
            webhooks(&object["webhooks"], wrong);
        }
        ("autoscaling", "horizontalpodautoscalers") => autoscaler(spec, wrong),
        ("certificates.k8s.io", "certificatesigningrequests") => certificates::validate(object, wrong),
        ("networking.k8s.io", "ingresses") if is_unset(&spec["rules"]) && is_unset(&spec["defaultBackend"]) => {
            let detail = "either `defaultBackend` or `rules` must be specified";
            wrong.push(Cause::invalid("spec", &Value::Null, detail));
        }
        ("policy", "poddisruptionbudgets") if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() => {
            wrong.push(Cause::invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"));
        }
        (RBAC, "roles" | "clusterroles") => role(kind, object, wrong),
        (RBAC, "rolebindings" | "clusterrolebindings") => role_binding(kind, object, wrong),
        ("storage.k8s.io", "storageclasses") => required(object, "provisioner", "", wrong),
        _ => workloads::validate(kind, object, wrong),
    }
}

fn required(object: &Value, field: &str, prefix: &str, wrong: &mut Vec<Cause>) {
    if is_unset(&object[field]) {
        wrong.push(Cause::required(format!("{prefix}{field}"), ""));
    }
}

fn unsupported(field: &str, value: &Value, supported: &[&str], wrong: &mut Vec<Cause>) {
    let value = if value.is_null() { &Value::from("") } else { value };
    if !supported.iter().any(|known| value == known) {
        let supported: Vec<String> = supported.iter().map(|&known| known.to_owned()).collect();
        wrong.push(Cause::unsupported(field, value, &supported));
    }
}

fn namespace(spec: &Value, wrong: &mut Vec<Cause>) {
    for (index, name) in items(&spec["finalizers"]).filter_map(Value::as_str).enumerate() {
        let field = format!("spec.finalizers[{index}]");
        check(names::label_key, &field, name, wrong);
        qualified_finalizer(&field, name, wrong);
    }
}

/// Returns the number of bytes that a base64 text encodes.
fn decoded(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default().trim_end_matches('=');
    text.len() * 3 / 4
}

fn config_map(object: &Value, wrong: &mut Vec<Cause>) {
    let mut size = 0;
    for (key, value) in object["data"].as_object().into_iter().flatten() {
        check(names::config_key, &format!("data[{key}]"), key, wrong);
        if !object["binaryData"][key].is_null() {
            let detail = "duplicate of key present in binaryData";
            wrong.push(Cause::invalid(format!("data[{key}]"), &key.as_str().into(), detail));
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in object["binaryData"].as_object().into_iter().flatten() {
        check(names::config_key, &format!("binaryData[{key}]"), key, wrong);
        size += decoded(value);
    }
    if size > DATA {
        // The error belongs to no single field.
        wrong.push(too_long("[]", DATA));
    }
}

fn secret(object: &Value, wrong: &mut Vec<Cause>) {
    let data = &object["data"];
    for key in data.as_object().into_iter().flatten().map(|(key, _)| key) {
        check(names::config_key, &format!("data[{key}]"), key, wrong);
    }
    if data.as_object().into_iter().flatten().map(|(_, value)| decoded(value)).sum::<usize>() > DATA {
        wrong.push(too_long("data", DATA));
    }
    let mut require = |keys: &[&str]| {
        let missing = keys.iter().filter(|key| data[**key].is_null());
        wrong.extend(missing.map(|key| Cause::required(format!("data[{key}]"), "")));
    };
    match text(object, "type") {
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        "kubernetes.io/dockercfg" => require(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" => require(&[".dockerconfigjson"]),
        "kubernetes.io/ssh-auth" => require(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth" if data["username"].is_null() && data["password"].is_null() => {
            require(&["username", "password"]);
        }
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if is_unset(&object["metadata"]["annotations"][name]) {
                wrong.push(Cause::required(format!("metadata.annotations[{name}]"), ""));
            }
        }
        _ => {}
    }
}

fn service(spec: &Value, wrong: &mut Vec<Cause>) {
    let kind = text(spec, "type");
    if is_unset(&spec["ports"]) && kind != "ExternalName" && spec["clusterIP"] != "None" {
        wrong.push(Cause::required("spec.ports", ""));
    }
    let several = spec["ports"].as_array().is_some_and(|ports| ports.len() > 1);
    for (index, port) in items(&spec["ports"]).enumerate() {
        let field = |name: &str| format!("spec.ports[{index}].{name}");
        match text(port, "name") {
            "" if several => wrong.push(Cause::required(field("name"), "")),
            "" => {}
            name => check(names::dns_label, &field("name"), name, wrong),
        }
        for name in ["port", "targetPort"] {
            let valid = port[name].as_i64().map_or(name == "targetPort", |number| (1..=65535).contains(&number));
            if !valid {
                let value = if port[name].is_null() { &Value::from(0) } else { &port[name] };
                wrong.push(Cause::invalid(field(name), value, "must be between 1 and 65535, inclusive"));
            }
        }
        unsupported(&field("protocol"), &port["protocol"], &["SCTP", "TCP", "UDP"], wrong);
    }
    if kind == "ExternalName" {
        required(spec, "externalName", "spec.", wrong);
    }
    unsupported("spec.type", &spec["type"], &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], wrong);
}

fn claim(spec: &Value, wrong: &mut Vec<Cause>) {
    if is_unset(&spec["accessModes"]) {
        wrong.push(Cause::required("spec.accessModes", "at least 1 access mode is required"));
    }
    if is_unset(&spec["resources"]["requests"]["storage"]) {
        wrong.push(Cause::required("spec.resources[storage]", ""));
    }
}

fn volume(spec: &Value, wrong: &mut Vec<Cause>) {
    for field in ["accessModes", "capacity"] {
        required(spec, field, "spec.", wrong);
    }
    let described = spec.as_object().into_iter().flatten().any(|(field, _)| super::immutable::is_volume_source(field));
    if !described {
        wrong.push(Cause::required("spec", "must specify a volume type"));
    }
}

fn api_service(spec: &Value, wrong: &mut Vec<Cause>) {
    for (field, limit) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1000)] {
        let value = spec[field].as_i64().unwrap_or_default();
        if !(1..=limit).contains(&value) {
            let detail = format!("must be positive and less than {limit}");
            wrong.push(Cause::invalid(format!("spec.{field}"), &value.into(), &detail));
        }
    }
    if spec["service"].is_object() {
        for field in ["namespace", "name"] {
            required(&spec["service"], field, "spec.service.", wrong);
        }
    }
}

fn webhooks(webhooks: &Value, wrong: &mut Vec<Cause>) {
    for (index, webhook) in items(webhooks).enumerate() {
        let field = |name: &str| format!("webhooks[{index}].{name}");
        match text(webhook, "name") {
            "" => wrong.push(Cause::required(field("name"), "")),
            name => {
                let found = names::dns_subdomain(name);
                let few = "should be a domain with at least three segments separated by dots".to_owned();
                let found = if found.is_empty() && name.split('.').count() < 3 { vec![few] } else { found };
                if !found.is_empty() {
                    wrong.push(Cause::invalid(field("name"), &name.into(), &found.join(",")));
                }
            }
        }
        if is_unset(&webhook["admissionReviewVersions"]) {
            wrong.push(Cause::required(field("admissionReviewVersions"), "must specify one of v1, v1beta1"));
        }
        if is_unset(&webhook["sideEffects"]) {
            wrong.push(Cause::required(field("sideEffects"), "must specify one of None, NoneOnDryRun"));
        } else {
            unsupported(&field("sideEffects"), &webhook["sideEffects"], &["None", "NoneOnDryRun"], wrong);
        }
        let client = &webhook["clientConfig"];
        if client["url"].is_null() == client["service"].is_null() {
            wrong.push(Cause::required(field("clientConfig"), "exactly one of url or service is required"));
        } else if let Some(url) = client["url"].as_str() {
            webhook_url(&field("clientConfig.url"), url, wrong);
        } else {
            for name in ["name", "namespace"] {
                required(&client["service"], name, &field("clientConfig.service."), wrong);
            }
        }
        let timeout = webhook["timeoutSeconds"].as_i64().filter(|seconds| !(1..=30).contains(seconds));
        if let Some(seconds) = timeout {
            let detail = "the timeout value must be between 1 and 30 seconds";
            wrong.push(Cause::invalid(field("timeoutSeconds"), &seconds.into(), detail));
        }
    }
}

fn webhook_url(field: &str, url: &str, wrong: &mut Vec<Cause>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut invalid = |part: &str, detail: &str| wrong.push(Cause::invalid(field, &part.into(), detail));
    let (rest, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (scheme, rest) = rest.split_once("://").unwrap_or(("", rest));
    let authority = if scheme.is_empty() { "" } else { rest.split('/').next().unwrap_or_default() };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if !scheme.eq_ignore_ascii_case("https") {
        invalid(&scheme.to_lowercase(), &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if host.is_empty() {
        invalid("", &format!("host must be specified{FORM}"));
    }
    for (part, detail) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            invalid(part, detail);
        }
    }
}

fn autoscaler(spec: &Value, wrong: &mut Vec<Cause>) {
    let number = |field: &str| spec[field].as_i64().unwrap_or_default();
    if number("maxReplicas") < 1 {
        wrong.push(Cause::required("spec.maxReplicas", "must be set and greater than 0"));
    }
    if number("maxReplicas") < number("minReplicas") {
        let detail = "must be greater than or equal to `minReplicas`";
        wrong.push(Cause::invalid("spec.maxReplicas", &number("maxReplicas").into(), detail));
    }
    for field in ["kind", "name"] {
        required(&spec["scaleTargetRef"], field, "spec.scaleTargetRef.", wrong);
    }
}

fn role(kind: &Kind, object: &Value, wrong: &mut Vec<Cause>) {
    for (index, rule) in items(&object["rules"]).enumerate() {
        let field = |name: &str| format!("rules[{index}].{name}");
        if is_unset(&rule["verbs"]) {
            wrong.push(Cause::required(field("verbs"), "verbs must contain at least one value"));
        }
        let urls = &rule["nonResourceURLs"];
        if !is_unset(urls) {
            if kind.namespaced {
                let detail = "namespaced rules cannot apply to non-resource URLs";
                wrong.push(Cause::invalid(field("nonResourceURLs"), urls, detail));
            }
            if ["apiGroups", "resources", "resourceNames"].iter().any(|name| !is_unset(&rule[*name])) {
                let detail = "rules cannot apply to both regular resources and non-resource URLs";
                wrong.push(Cause::invalid(field("nonResourceURLs"), urls, detail));
            }
            continue;
        }
        for (name, noun) in [("apiGroups", "api group"), ("resources", "resource")] {
            if is_unset(&rule[name]) {
                let detail = format!("resource rules must supply at least one {noun}");
                wrong.push(Cause::required(field(name), &detail));
            }
        }
    }
}

fn role_binding(kind: &Kind, object: &Value, wrong: &mut Vec<Cause>) {
    let reference = &object["roleRef"];
    unsupported("roleRef.apiGroup", &reference["apiGroup"], &[RBAC], wrong);
    let kinds: &[&str] = if kind.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    unsupported("roleRef.kind", &reference["kind"], kinds, wrong);
    match text(reference, "name") {
        "" => wrong.push(Cause::required("roleRef.name", "")),
        name => check(names::path_segment, "roleRef.name", name, wrong),
    }
    for (index, subject) in items(&object["subjects"]).enumerate() {
        let field = |name: &str| format!("subjects[{index}].{name}");
        required(subject, "name", &field(""), wrong);
        match text(subject, "kind") {
            "ServiceAccount" => {
                if !is_unset(&subject["name"]) {
                    check(names::dns_subdomain, &field("name"), text(subject, "name"), wrong);
                }
                unsupported(&field("apiGroup"), &subject["apiGroup"], &[""], wrong);
                if !kind.namespaced {
                    required(subject, "namespace", &field(""), wrong);
                }
            }
            "User" | "Group" => unsupported(&field("apiGroup"), &subject["apiGroup"], &[RBAC], wrong),
            _ => unsupported(&field("kind"), &subject["kind"], &["ServiceAccount", "User", "Group"], wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_webhooks_are_checked() {
        const FORM: &str = "; desired format: https://host[/path]";
        let check = |url: &str, expected: &[&str]| {
            let mut wrong = Vec::new();
            webhook_url("url", url, &mut wrong);
            let found: Vec<_> = wrong.iter().map(|cause| cause.message.replace(FORM, "")).collect();
            assert_eq!(found, expected, "{url}");
        };
        check("https://hook.example.com:8443/check", &[]);
        check("http://x", &["Invalid value: \"http\": 'https' is the only allowed URL scheme"]);
        check(
            "hook",
            &[
                "Invalid value: \"\": 'https' is the only allowed URL scheme",
                "Invalid value: \"\": host must be specified",
            ],
        );
        check(
            "https://me@x/y?z=1#a",
            &[
                "Invalid value: \"me\": user information is not permitted in the URL",
                "Invalid value: \"a\": fragments are not permitted in the URL",
                "Invalid value: \"z=1\": query parameters are not permitted in the URL",
            ],
        );
    }
}
