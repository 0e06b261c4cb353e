//! Admission webhooks, which never answer here, so that every call fails.

use serde_json::Value;

use super::{
    AdmissionRequest,
    expression::{Scope, conditions},
    matching,
};
use crate::{
    kinds::ResourceId,
    state::State,
    status::{ApiError, Cause},
};

/// Calls the webhooks of one kind of configuration. Like the API server, it calls mutating webhooks one after another
/// and decides about all validating ones before the first call.
pub(super) fn admit(state: &State, request: &AdmissionRequest<'_>, configurations: &str) -> Result<(), ApiError> {
    if request.is_admission_configuration() {
        return Ok(());
    }
    let mutating = configurations.starts_with("mutating");
    let mut together = Vec::new();
    for configuration in state.store.list(&ResourceId::new("admissionregistration.k8s.io", configurations), None) {
        for webhook in configuration.value()["webhooks"].as_array().into_iter().flatten() {
            if !is_called(state, request, webhook)? {
                continue;
            }
            if mutating {
                call(state, request, webhook)?;
            } else {
                together.push(webhook.clone());
            }
        }
    }
    together.iter().try_for_each(|webhook| call(state, request, webhook))
}

fn is_called(state: &State, request: &AdmissionRequest<'_>, webhook: &Value) -> Result<bool, ApiError> {
    if !matching::selected(state, request, webhook) {
        return Ok(false);
    }
    let Some(version) = matching::matched_version(request, &webhook["rules"], &webhook["matchPolicy"]) else {
        return Ok(false);
    };
    if webhook["matchConditions"].as_array().is_none_or(Vec::is_empty) {
        return Ok(true);
    }
    let scope = Scope::new(request, version);
    match conditions(&scope, &webhook["matchConditions"]) {
        Err(failure) if failure.not_modelled => Err(failure.into_error()),
        Err(_) if ignores(webhook) => Ok(false),
        Err(failure) => Err(ApiError::forbidden(&request.kind.resource(), request.name, &failure.message)),
        Ok(matches) => Ok(matches),
    }
}

fn ignores(webhook: &Value) -> bool {
    webhook["failurePolicy"] == "Ignore"
}

fn call(state: &State, request: &AdmissionRequest<'_>, webhook: &Value) -> Result<(), ApiError> {
    let name = webhook["name"].as_str().unwrap_or_default();
    let failed = |why: &str| {
        let refused = internal(&format!("failed calling webhook {name:?}: {why}"));
        if ignores(webhook) { Ok(()) } else { Err(refused) }
    };
    if request.dry_run {
        match webhook["sideEffects"].as_str() {
            Some("None" | "NoneOnDryRun") => {}
            None => return failed("Webhook SideEffects is nil"),
            Some(_) => {
                let message = format!("admission webhook {name:?} does not support dry run");
                return Err(ApiError::bad_request(message));
            }
        }
    }
    let seconds = webhook["timeoutSeconds"].as_i64().unwrap_or(10);
    let (url, why) = unreachable(state, &webhook["clientConfig"]);
    failed(&format!("failed to call webhook: Post \"{url}?timeout={seconds}s\": {why}"))
}

/// Returns the URL of a webhook and why it cannot be reached.
fn unreachable(state: &State, client: &Value) -> (String, String) {
    if let Some(url) = client["url"].as_str() {
        let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        return (format!("{scheme}://{host}/{path}"), refused(host));
    }
    let service = &client["service"];
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    let (namespace, name, port) = (text("namespace"), text("name"), service["port"].as_i64().unwrap_or(443));
    let path = text("path").trim_start_matches('/');
    let url = format!("https://{name}.{namespace}.svc:{port}/{path}");
    let Some(service) = state.store.get(&ResourceId::new("", "services"), namespace, name) else {
        return (url, format!("service {name:?} not found"));
    };
    let spec = &service.value()["spec"];
    let why = match (spec["type"].as_str(), spec["clusterIP"].as_str()) {
        (Some("ExternalName"), _) => refused(spec["externalName"].as_str().unwrap_or_default()),
        (_, Some("None")) => "cannot route to service with ClusterIP \"None\"".to_owned(),
        _ if spec["ports"].as_array().into_iter().flatten().all(|known| known["port"] != port) => {
            format!("no service port {port} found for service {name:?}")
        }
        (_, Some(ip)) if !ip.is_empty() => refused(&format!("{}:{port}", bracketed(ip))),
        _ => format!("no endpoints available for service {name:?}"),
    };
    (url, why)
}

/// Returns the error of a connection: no name resolves, and no address accepts connections.
fn refused(host: &str) -> String {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => (name, port),
        _ => (host, "443"),
    };
    match name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>() {
        Ok(_) => format!("dial tcp {name}:{port}: connect: connection refused"),
        Err(_) => format!("dial tcp: lookup {name}: no such host"),
    }
}

fn bracketed(ip: &str) -> String {
    if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() }
}

/// Returns an internal error, whose message the API server repeats as a cause.
fn internal(why: &str) -> ApiError {
    let cause = Cause { reason: "", field: String::new(), message: why.to_owned() };
    ApiError::internal(why).causes(vec![cause])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::{
            Operation,
            tests::{ask, put, state},
        },
        *,
    };

    /// Returns a webhook for every ConfigMap, with changes.
    fn webhook(changes: Value) -> Value {
        let mut webhook = json!({
            "name": "w.example.com", "sideEffects": "None",
            "clientConfig": {"service": {"name": "svc", "namespace": "shop", "path": "/p"}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}],
        });
        for (key, value) in changes.as_object().expect("an object") {
            webhook[key] = value.clone();
        }
        webhook
    }

    fn check(webhook: Value, dry_run: bool, expected: Result<(), (u16, &str)>) {
        let mut state = state();
        let exists = json!({
            "metadata": {"name": "exists", "namespace": "shop"},
            "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 443}]},
        });
        put(&mut state, "", "services", exists);
        let configuration = json!({"metadata": {"name": "c"}, "webhooks": [webhook]});
        let group = "admissionregistration.k8s.io";
        put(&mut state, group, "validatingwebhookconfigurations", configuration);
        let object = json!({"metadata": {"name": "a", "labels": {"app": "x"}}, "data": {"k": "v"}});
        let found = ask(&state, Operation::Create, &object, dry_run);
        let found = found.map_err(|error| (error.code.as_u16(), error.message));
        assert_eq!(found, expected.map_err(|(code, message)| (code, message.to_owned())));
    }

    #[test]
    fn called_webhooks_fail() {
        let post = |rest: &str| {
            format!(
                "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post {rest}"
            )
        };
        let fails = |changes: Value, rest: &str| check(webhook(changes), false, Err((500, &post(rest))));
        fails(json!({}), r#""https://svc.shop.svc:443/p?timeout=10s": service "svc" not found"#);
        fails(
            json!({"clientConfig": {"service": {"name": "svc", "namespace": "x", "port": 8443}}, "timeoutSeconds": 3}),
            r#""https://svc.x.svc:8443/?timeout=3s": service "svc" not found"#,
        );
        fails(
            json!({"clientConfig": {"service": {"name": "exists", "namespace": "shop", "port": 1}}}),
            r#""https://exists.shop.svc:1/?timeout=10s": no service port 1 found for service "exists""#,
        );
        fails(
            json!({"clientConfig": {"service": {"name": "exists", "namespace": "shop"}}}),
            r#""https://exists.shop.svc:443/?timeout=10s": dial tcp 10.0.0.7:443: connect: connection refused"#,
        );
        fails(
            json!({"clientConfig": {"url": "https://127.0.0.1:1/q"}}),
            r#""https://127.0.0.1:1/q?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused"#,
        );
        fails(
            json!({"clientConfig": {"url": "https://nope.example"}}),
            r#""https://nope.example/?timeout=10s": dial tcp: lookup nope.example: no such host"#,
        );
    }

    #[test]
    fn other_webhooks_do_not_fail() {
        let passes = |changes: Value| check(webhook(changes), false, Ok(()));
        passes(json!({"failurePolicy": "Ignore"}));
        passes(json!({"rules": []}));
        passes(json!({"objectSelector": {"matchLabels": {"app": "y"}}}));
        passes(json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}));
        passes(json!({"matchConditions": [{"name": "c", "expression": "object.data.k == 'w'"}]}));
        passes(json!({
            "failurePolicy": "Ignore", "matchConditions": [{"name": "c", "expression": "object.nope == 'w'"}],
        }));
        passes(json!({"matchConditions": [
            {"name": "c", "expression": "object.nope == 'w'"},
            {"name": "d", "expression": "request.operation == 'DELETE'"},
        ]}));
        let conditions = json!({"matchConditions": [
            {"name": "c", "expression": "object.spec.x == 'y'"}, {"name": "d", "expression": "object.nope == 'y'"},
        ]});
        let message = "configmaps \"a\" is forbidden: [expression 'object.spec.x == 'y'' resulted in error: no such \
                       key: spec, expression 'object.nope == 'y'' resulted in error: no such key: nope]";
        check(webhook(conditions), false, Err((403, message)));
    }

    #[test]
    fn dry_runs_require_webhooks_without_side_effects() {
        let message = "admission webhook \"w.example.com\" does not support dry run";
        for side_effects in ["Some", "Unknown"] {
            let webhook = webhook(json!({"sideEffects": side_effects, "failurePolicy": "Ignore"}));
            check(webhook, true, Err((400, message)));
        }
        check(webhook(json!({"sideEffects": "NoneOnDryRun", "failurePolicy": "Ignore"})), true, Ok(()));
        let message = "Internal error occurred: failed calling webhook \"w.example.com\": Webhook SideEffects is nil";
        check(webhook(json!({"sideEffects": null})), true, Err((500, message)));
    }

    #[test]
    fn the_first_failure_is_reported() {
        let mut state = state();
        let configuration =
            |name: &str, hook: &str| json!({"metadata": {"name": name}, "webhooks": [webhook(json!({"name": hook}))]});
        let group = "admissionregistration.k8s.io";
        put(&mut state, group, "validatingwebhookconfigurations", configuration("a", "validating"));
        let refused = |state: &State| {
            ask(state, Operation::Delete, &json!({"metadata": {"name": "a"}}), false).expect_err("refused").message
        };
        assert!(refused(&state).contains("\"validating\""));
        put(&mut state, group, "mutatingwebhookconfigurations", configuration("z", "late"));
        put(&mut state, group, "mutatingwebhookconfigurations", configuration("b", "early"));
        assert!(refused(&state).contains("\"early\""));
    }
}
