//! What is behind the Services and addresses of a copied cluster, if it is assumed to work: nothing is called.

use serde_json::{Value, json};

use super::{
    address,
    memory::{Answer, Reply},
};
use crate::{kinds::ResourceId, object::text, state::State, store::ObjectId};

/// Returns the answer of a backend that works, or why it cannot be reached: a webhook allows the request, and a conversion changes
/// nothing but the version.
pub(super) fn answer(state: &State, client: &Value, query: &str, review: &Value) -> Answer {
    if client["url"].is_null()
        && let Err((url, why)) = service(state, &client["service"])
    {
        return Err(format!("Post \"{url}{query}\": {why}"));
    }
    let request = &review["request"];
    let response = match review["kind"].as_str() {
        Some("ConversionReview") => {
            let mut objects = request["objects"].clone();
            for object in objects.as_array_mut().into_iter().flatten() {
                object["apiVersion"] = request["desiredAPIVersion"].clone();
            }
            json!({"uid": "", "result": {"status": "Success"}, "convertedObjects": objects})
        }
        _ => json!({"uid": "", "allowed": true}),
    };
    let review = json!({"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response});
    Ok(Reply { uid: String::new(), review })
}

/// Returns the URL of a Service and why it cannot be reached, unless it has an endpoint.
fn service(state: &State, reference: &Value) -> Result<(), (String, String)> {
    let (namespace, name) = (text(reference, "namespace"), text(reference, "name"));
    let number = reference["port"].as_i64().unwrap_or(443);
    let (url, missing) = address::of_service(state, reference);
    let Some(service) = state.store.get(&ResourceId::new("", "services"), namespace, name) else {
        return Err((url, missing));
    };
    let spec = &service.value()["spec"];
    if spec["type"] == "ExternalName" {
        return Ok(());
    }
    let mut ports = spec["ports"].as_array().into_iter().flatten();
    let Some(port) = ports.find(|port| port["port"] == number) else {
        return Err((url, format!("no service port {number} found for service {name:?}")));
    };
    match has_endpoint(state, namespace, name, text(port, "name")) {
        true => Ok(()),
        false => Err((url, format!("no endpoints available for service {name:?}"))),
    }
}

/// Returns whether a Service has a ready endpoint. Those of Pods that do not exist any more are none.
pub(crate) fn has_endpoint(state: &State, namespace: &str, name: &str, port: &str) -> bool {
    let resource = ResourceId::new("discovery.k8s.io", "endpointslices");
    let mut slices = state
        .store
        .list(&resource, Some(namespace))
        .filter(|slice| slice.label("kubernetes.io/service-name") == Some(name));
    let pods = ResourceId::new("", "pods");
    let exists = |endpoint: &Value| {
        let target = &endpoint["targetRef"];
        let pod = || ObjectId::new(&pods, namespace, text(target, "name"));
        target["kind"] != "Pod" || state.store.get_id(&pod()).is_some_and(|pod| !pod.deleting)
    };
    slices.any(|slice| {
        let slice = slice.value();
        let mut ports = slice["ports"].as_array().into_iter().flatten();
        let mut endpoints = slice["endpoints"].as_array().into_iter().flatten();
        ports.any(|known| text(known, "name") == port)
            && endpoints.any(|endpoint| endpoint["conditions"]["ready"] != false && exists(endpoint))
    })
}
