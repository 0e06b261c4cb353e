//! A server of webhooks, which answer as their paths say.
//!
//! It has its own runtime: that of a sandbox has a paused clock.

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::Bytes,
    http::{StatusCode, Uri},
    response::{IntoResponse as _, Response},
    serve::Listener,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Serves the webhooks until the process ends. Returns the names that sequences use for them.
pub fn serve() -> Result<BTreeMap<String, Value>> {
    let certificate = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    let key = PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![certificate.cert.der().clone()], key.into())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).context("bind a port for webhooks")?;
    let url = format!("https://{}", listener.local_addr()?);
    let listener = Tls { listener, acceptor: TlsAcceptor::from(Arc::new(config)) };
    let router = Router::new().fallback(answer);
    std::thread::spawn(move || runtime.block_on(async { axum::serve(listener, router).await }));
    let ca = STANDARD.encode(certificate.cert.pem());
    Ok(BTreeMap::from([("HOOK".to_owned(), url.into()), ("CA".to_owned(), ca.into())]))
}

struct Tls {
    listener: TcpListener,
    acceptor: TlsAcceptor,
}

impl Listener for Tls {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let Ok((stream, address)) = self.listener.accept().await else { continue };
            // A client that does not trust the certificate closes the connection.
            if let Ok(stream) = self.acceptor.accept(stream).await {
                return (stream, address);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

async fn answer(uri: Uri, body: Bytes) -> Response {
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let steps: Vec<&str> = uri.path().split('/').skip(1).collect();
    match *steps.as_slice() {
        ["broken"] => (StatusCode::INTERNAL_SERVER_ERROR, "out of order").into_response(),
        ["missing"] => StatusCode::NOT_FOUND.into_response(),
        ["silent"] => std::future::pending().await,
        ["convert", how] => converted(&review, how).into_response(),
        _ => reviewed(&review, &steps).into_response(),
    }
}

/// Answers an admission review.
fn reviewed(review: &Value, steps: &[&str]) -> String {
    let request = &review["request"];
    let mut response = json!({"uid": request["uid"], "allowed": true});
    let deny = |status: Value| json!({"uid": request["uid"], "allowed": false, "status": status});
    let patch = |operations: Value| {
        let patch = STANDARD.encode(operations.to_string());
        json!({"uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch})
    };
    match *steps {
        ["deny"] => response = deny(json!({"message": "not today", "reason": "Forbidden", "code": 403})),
        ["deny", "silently"] => response = json!({"uid": request["uid"], "allowed": false}),
        ["deny", "oddly"] => {
            let details = json!({"causes": [{"field": "spec.x", "message": "is odd", "reason": "Odd"}]});
            response = deny(json!({"reason": "Odd", "code": 200, "status": "Success", "details": details}));
        }
        ["describe"] => response = deny(json!({"message": describe(request).to_string()})),
        ["warn"] => response["warnings"] = json!(["first", "second \"quoted\""]),
        ["stranger"] => response["uid"] = "another".into(),
        // Adds the annotation, or one more to it.
        ["count", name] => {
            let known = request["object"]["metadata"]["annotations"][name].as_str();
            let count = known.and_then(|known| known.parse::<u32>().ok()).unwrap_or_default() + 1;
            response = patch(annotate(request, name, &count.to_string()));
        }
        ["mark", name] => response = patch(annotate(request, name, "yes")),
        ["label", name] => {
            let path = format!("/metadata/labels/{name}");
            let mut operations = vec![json!({"op": "add", "path": path, "value": "yes"})];
            if request["object"]["metadata"]["labels"].is_null() {
                operations.insert(0, json!({"op": "add", "path": "/metadata/labels", "value": {}}));
            }
            response = patch(operations.into());
        }
        ["spoil"] => response = patch(json!([{"op": "add", "path": "/data", "value": {"a b": "c"}}])),
        ["unpatchable"] => response = patch(json!([{"op": "remove", "path": "/nowhere/at/all"}])),
        ["typeless"] => response["patch"] = STANDARD.encode("[]").into(),
        _ => {}
    }
    json!({"kind": "AdmissionReview", "apiVersion": review["apiVersion"], "response": response}).to_string()
}

/// Returns the operations that set an annotation.
fn annotate(request: &Value, name: &str, value: &str) -> Value {
    let mut operations = vec![json!({"op": "add", "path": format!("/metadata/annotations/{name}"), "value": value})];
    if request["object"]["metadata"]["annotations"].is_null() {
        operations.insert(0, json!({"op": "add", "path": "/metadata/annotations", "value": {}}));
    }
    operations.into()
}

/// Returns what a webhook sees of a request.
fn describe(request: &Value) -> Value {
    let has = |path: &str| request.pointer(path).is_some_and(|value| !value.is_null() && value != "");
    let mut said = json!({
        "hasUid": has("/object/metadata/uid"), "hasCreation": has("/object/metadata/creationTimestamp"),
        "hasFields": has("/object/metadata/managedFields"), "hasObject": has("/object"), "hasOld": has("/oldObject"),
        "objectName": request["object"]["metadata"]["name"], "objectVersion": request["object"]["apiVersion"],
        "data": request["object"]["data"], "oldData": request["oldObject"]["data"],
    });
    for field in [
        "kind",
        "resource",
        "requestKind",
        "requestResource",
        "subResource",
        "requestSubResource",
        "name",
        "namespace",
        "operation",
        "dryRun",
        "options",
    ] {
        said[field] = request[field].clone();
    }
    said
}

/// Answers a conversion review: version 1 has `spec.host` and `spec.port`, version 2 `spec.address`.
fn converted(review: &Value, how: &str) -> String {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let convert = |object: &Value| {
        let mut object = object.clone();
        let spec = object["spec"].clone();
        object["spec"] = match spec["address"].as_str().and_then(|address| address.rsplit_once(':')) {
            Some((host, port)) if wanted.ends_with("/v1") => json!({"host": host, "port": port}),
            None if wanted.ends_with("/v2") => {
                let text = |field: &str| spec[field].as_str().unwrap_or_default();
                json!({"address": format!("{}:{}", text("host"), text("port"))})
            }
            _ => spec,
        };
        object["apiVersion"] = wanted.into();
        match how {
            "rename" => object["metadata"]["name"] = "other".into(),
            "mark" => object["metadata"]["annotations"] = json!({"converted": wanted}),
            _ => {}
        }
        object
    };
    let objects: Vec<Value> = request["objects"].as_array().into_iter().flatten().map(convert).collect();
    let response = match how {
        "fail" => json!({"uid": request["uid"], "result": {"status": "Failed", "message": "cannot convert"}}),
        "none" => json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": []}),
        _ => json!({"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}),
    };
    json!({"kind": "ConversionReview", "apiVersion": review["apiVersion"], "response": response}).to_string()
}
