//! The availability of APIServices. None with a Service is available, unless a server is put behind it that answers with `ok`.

use serde_json::Value;
use tokio::time::Instant;

use super::{
    objects::{Next, Step, edit_status, id, load, objects},
    work::Task,
};
use crate::{
    conditions::{self, Condition},
    kinds::ResourceId,
    state::State,
    store::ObjectId,
    webhooks::has_endpoint,
};

const GROUP: &str = "apiregistration.k8s.io";
const CONTROLLER: &str = "kube-aggregator";

fn api_service(name: &str) -> ObjectId {
    id(GROUP, "apiservices", "", name)
}

/// Adds work on all APIServices that refer to a Service.
pub(super) fn of_service(state: &mut State, namespace: &str, name: &str, now: Instant) -> Step {
    let resource = ResourceId::new(GROUP, "apiservices");
    let all = state.store.list(&resource, None);
    let points = |object: &Value| {
        let service = &object["spec"]["service"];
        service["namespace"] == namespace && service["name"] == name
    };
    let found: Vec<_> = all.filter(|object| points(&object.value())).map(|object| object.name.clone()).collect();
    for name in found {
        state.controllers.add_named(Task::ApiService, "", &name, now);
    }
    Ok(Next::Done)
}

pub(super) fn sync(state: &mut State, name: &str) -> Step {
    let Some(object) = load(state, &api_service(name)) else { return Ok(Next::Done) };
    if !object["spec"]["service"].is_object() {
        return Ok(Next::Done);
    }
    if state.options.assume_backends && is_reachable(state, &object["spec"]) {
        return Ok(Next::Done);
    }
    let found = unavailable(state, &object["spec"]);
    let available = found.is_none();
    let (reason, message) = found.unwrap_or_else(|| ("Passed", "all checks passed".to_owned()));
    let now = state.clock.text();
    edit_status(state, &api_service(name), CONTROLLER, |object| {
        let condition = Condition { name: "Available", status: available, reason, message: &message };
        conditions::set(&mut object["status"], &condition, &now);
    })?;
    Ok(Next::Done)
}

/// Returns whether the Service of an APIService has an endpoint, and so is assumed to be as available as it was when it was copied.
pub(crate) fn is_reachable(state: &State, spec: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&spec["service"]["namespace"]), text(&spec["service"]["name"]));
    let number = spec["service"]["port"].as_i64().unwrap_or(443);
    let Some(service) = load(state, &id("", "services", &namespace, &name)) else { return false };
    let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
    service["spec"]["type"] == "ExternalName"
        || ports
            .find(|port| port["port"] == number)
            .is_some_and(|port| has_endpoint(state, &namespace, &name, &text(&port["name"])))
}

/// Returns the reason and message for the first thing that is missing; none if a server answers.
fn unavailable(state: &State, spec: &Value) -> Option<(&'static str, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (namespace, name) = (text(&spec["service"]["namespace"]), text(&spec["service"]["name"]));
    let number = spec["service"]["port"].as_i64().unwrap_or(443);
    let Some(service) = load(state, &id("", "services", &namespace, &name)) else {
        return Some(("ServiceNotFound", format!("service/{name} in {namespace:?} is not present")));
    };
    if service["spec"]["type"] == "ClusterIP" {
        let mut ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let Some(port) = ports.find(|port| port["port"] == number) else {
            let message = format!("service/{name} in {namespace:?} is not listening on port {number}");
            return Some(("ServicePortError", message));
        };
        let mut slices = objects(state, "discovery.k8s.io", "endpointslices", &namespace);
        slices.retain(|slice| slice.label("kubernetes.io/service-name") == Some(&name));
        if slices.is_empty() {
            let message = format!("cannot find endpointslices for service/{name} in {namespace:?}");
            return Some(("EndpointsNotFound", message));
        }
        let port = text(&port["name"]);
        if !slices.iter().any(|slice| lists_endpoint(&slice.value(), &port)) {
            let what = format!("endpointslices for service/{name} in {namespace:?}");
            return Some(("MissingEndpoints", format!("{what} have no addresses with port name {port:?}")));
        }
    }
    if state.answering.contains(&(namespace.as_str().into(), name.as_str().into())) {
        return None;
    }
    let host = match text(&service["spec"]["clusterIP"]) {
        address if address.is_empty() || address == "None" => format!("{name}.{namespace}.svc"),
        address => address,
    };
    let url = format!("https://{host}:{number}/apis/{}/{}", text(&spec["group"]), text(&spec["version"]));
    let why = format!("Get {url:?}: context deadline exceeded");
    Some(("FailedDiscoveryCheck", format!("failing or missing response from {url}: {why}")))
}

/// Returns whether a slice has a ready endpoint and a port of this name.
fn lists_endpoint(slice: &Value, port: &str) -> bool {
    let items = |field: &str| slice[field].as_array().into_iter().flatten();
    items("ports").any(|known| known["name"].as_str().unwrap_or_default() == port)
        && items("endpoints").any(|endpoint| endpoint["conditions"]["ready"] != false)
}
