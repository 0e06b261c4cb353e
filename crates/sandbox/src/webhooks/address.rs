//! The addresses of webhooks.

use std::net::IpAddr;

use http::Uri;
use serde_json::Value;

use crate::{kinds::ResourceId, object::text, state::State};

/// Returns the URL of a webhook on loopback; otherwise the URL as errors name it, and why it cannot be reached.
pub(super) fn of(state: &State, client: &Value) -> Result<String, (String, String)> {
    let Some(url) = client["url"].as_str() else { return Err(of_service(state, &client["service"])) };
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    if is_loopback(host) {
        let bare = url.split("://").nth(1).is_some_and(|rest| !rest.contains('/'));
        return Ok(if bare { format!("{url}/") } else { url.to_owned() });
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("https", url));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    Err((format!("{scheme}://{host}/{path}"), refused(host)))
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Returns the URL of a Service, and why it cannot be reached: nothing runs here.
pub(super) fn of_service(state: &State, service: &Value) -> (String, String) {
    let (namespace, name) = (text(service, "namespace"), text(service, "name"));
    let (port, path) = (service["port"].as_i64().unwrap_or(443), text(service, "path").trim_start_matches('/'));
    let url = format!("https://{name}.{namespace}.svc:{port}/{path}");
    let Some(service) = state.store.get(&ResourceId::new("", "services"), namespace, name) else {
        return (url, format!("service {name:?} not found"));
    };
    let spec = &service.value()["spec"];
    let why = match (spec["type"].as_str(), spec["clusterIP"].as_str()) {
        (Some("ExternalName"), _) => refused(text(spec, "externalName")),
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
    match name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(_) => format!("dial tcp {name}:{port}: connect: connection refused"),
        Err(_) => format!("dial tcp: lookup {name}: no such host"),
    }
}

fn bracketed(ip: &str) -> String {
    if ip.contains(':') { format!("[{ip}]") } else { ip.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_recognized() {
        for host in ["localhost", "127.0.0.1", "127.8.0.1", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["", "localhost.example.com", "10.0.0.1", "[::2]", "0.0.0.0"] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
