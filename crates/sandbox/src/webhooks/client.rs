//! The HTTP client for webhooks.

use std::{error::Error, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use kube::client::ConfigExt as _;
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::Value;
use tokio::sync::oneshot;

use super::memory::{Answer, Call, Reply};

/// The path of the UID in a review. The answer repeats it.
const UID: &str = "/request/uid";

/// The size limit of answers, that of the API server's own requests.
const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Makes calls, all at once. Each has a UID.
///
/// They run on a thread with its own runtime: there, time passes even while that of the sandbox is paused, and tokio does
/// not advance a paused clock meanwhile. Dropping the future ends the calls.
pub(crate) async fn call_all(calls: Vec<(Call, String)>) -> Vec<(Call, Answer)> {
    let (alive, dropped) = oneshot::channel::<()>();
    let work = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => return calls.into_iter().map(|(call, _)| (call, Err(error.to_string()))).collect(),
        };
        let calls = calls.into_iter().map(|(call, uid)| async move {
            let answer = answer(&call, uid).await;
            (call, answer)
        });
        runtime.block_on(async {
            tokio::select! {
                answers = join_all(calls) => answers,
                _ = dropped => Vec::new(),
            }
        })
    };
    let answers = tokio::task::spawn_blocking(work).await.unwrap_or_default();
    drop(alive);
    answers
}

/// Makes a call. Errors have the texts of Go, which users know from Kubernetes.
async fn answer(call: &Call, uid: String) -> Answer {
    let failed = |why: &str| format!("Post \"{}\": {why}", call.url);
    let limit = Duration::from_secs(call.seconds);
    let sent = tokio::time::timeout(limit, send(call, &uid)).await;
    let response = match sent {
        Err(_) => return Err(failed("context deadline exceeded")),
        Ok(Err(error)) => return Err(failed(&explain(&*error, &call.url))),
        Ok(Ok(answer)) => answer,
    };
    if !response.status().is_success() {
        let kind = response.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_text = kind.is_some_and(|kind| kind.starts_with("text/"));
        let said = String::from_utf8_lossy(response.body());
        return Err(rejection(response.status(), if is_text { said.trim() } else { "unknown" }));
    }
    match serde_json::from_slice(response.body()) {
        Ok(review) => Ok(Reply { uid, review }),
        Err(error) => Err(format!("couldn't get version/kind; json parse error: {error}")),
    }
}

async fn send(call: &Call, uid: &str) -> Result<Response<Bytes>, Box<dyn Error + Send + Sync>> {
    let mut review: Value = serde_json::from_str(&call.review)?;
    if let Some(slot) = review.pointer_mut(UID) {
        *slot = uid.into();
    }
    let url: http::Uri = call.url.parse()?;
    let mut config = kube::Config::new(url.clone());
    if !call.ca_bundle.is_empty() {
        let pem = STANDARD.decode(&call.ca_bundle)?;
        let certificates = CertificateDer::pem_slice_iter(&pem).map(|one| one.map(|one| one.to_vec()));
        config.root_cert = Some(certificates.collect::<Result<_, _>>()?);
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // Fails only if another thread has just installed one.
        let _already = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(config.rustls_https_connector_with_connector(connector)?);
    let request = Request::post(url)
        .header(header::CONTENT_TYPE, "application/json")
        .header(header::ACCEPT, "application/json, */*")
        .header(header::USER_AGENT, "kube-apiserver-admission")
        .body(Full::new(Bytes::from(review.to_string())))?;
    let (head, body) = client.request(request).await?.into_parts();
    Ok(Response::from_parts(head, Limited::new(body, MAX_BYTES).collect().await?.to_bytes()))
}

/// Returns the error of a connection as Go words it.
fn explain(error: &(dyn Error + 'static), url: &str) -> String {
    let (mut causes, mut next) = (vec![error], error.source());
    while let Some(cause) = next {
        causes.push(cause);
        next = cause.source();
    }
    let authority = url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let is_refusal = |cause: &&(dyn Error + 'static)| {
        let io = cause.downcast_ref::<std::io::Error>();
        io.is_some_and(|io| io.kind() == std::io::ErrorKind::ConnectionRefused)
    };
    if causes.iter().any(is_refusal) {
        return format!("dial tcp {authority}: connect: connection refused");
    }
    let last = causes.last().map(ToString::to_string).unwrap_or_default();
    if last.contains("UnknownIssuer") {
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned();
    }
    if last.contains("certificate") {
        return format!("tls: failed to verify certificate: x509: {last}");
    }
    last
}

/// Returns the error for an answer with another code than 200, as client-go words it (`NewGenericServerResponse`).
fn rejection(status: StatusCode, said: &str) -> String {
    let fixed = match status.as_u16() {
        400 => "the server rejected our request for an unknown reason",
        401 => "the server has asked for the client to provide credentials",
        403 | 415 => said,
        404 => "the server could not find the requested resource",
        405 => "the server does not allow this method on the requested resource",
        409 => "the server reported a conflict",
        422 => "the server rejected our request due to an error in our request",
        429 => "the server has received too many requests and has asked us to try again later",
        503 => "the server is currently unable to handle the request",
        504 => {
            "the server was unable to return a response in the time allotted, but may still be processing the request"
        }
        500.. => return format!("an error on the server ({said:?}) has prevented the request from succeeding"),
        code => {
            return format!("the server responded with the status code {code} but did not return more information");
        }
    };
    fixed.to_owned()
}
