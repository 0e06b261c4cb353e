//! A fake server: a closure answers each request.

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use billhook_cluster::{Cluster, Options};
use billhook_objects::GroupKind;
use billhook_plan::{Query, Resource, Select};
use futures::{StreamExt as _, future::BoxFuture, stream, stream::BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame};
use serde_json::{Value, json};
use tokio::{sync::mpsc, time::Instant};

pub(crate) struct Req {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: BTreeMap<String, String>,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Value,
    pub(crate) text: String,
}

impl Req {
    pub(crate) fn is_watch(&self) -> bool {
        self.query.contains_key("watch")
    }

    pub(crate) fn query(&self, key: &str) -> &str {
        self.query.get(key).map_or("", String::as_str)
    }
}

pub(crate) enum Answer {
    Json(u16, Value),
    Text(u16, &'static str),
    /// 429 with `Retry-After`.
    Busy(u64),
    Refused,
    Reset,
    Hang,
    /// Answers after a delay.
    Late(Duration, Box<Answer>),
    Lines(mpsc::UnboundedReceiver<Value>),
    /// An answer with this code that never ends; the bytes that were read of it are counted.
    Endless(u16, Arc<AtomicUsize>),
}

pub(crate) fn ok(value: Value) -> Answer {
    Answer::Json(200, value)
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> Answer {
    let body = json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message});
    Answer::Json(code, body)
}

/// Returns the 404 for an object.
pub(crate) fn missing(kind: &str, name: &str) -> Answer {
    Answer::Json(
        404,
        json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
            "message": format!("{kind} {name:?} not found"), "details": {"name": name, "kind": kind}}),
    )
}

/// Returns a discovery document: the core group serves ConfigMaps in these versions.
pub(crate) fn discovery(versions: &[&str]) -> Answer {
    let resource = json!({"resource": "configmaps", "responseKind": {"kind": "ConfigMap"}, "scope": "Namespaced"});
    let versions = versions.iter().map(|version| json!({"version": version, "resources": [resource]}));
    let group = json!({"metadata": {}, "versions": versions.collect::<Vec<_>>()});
    ok(json!({"kind": "APIGroupDiscoveryList", "items": [group]}))
}

/// The requests, with their times since the start.
#[derive(Clone)]
pub(crate) struct Log {
    start: Instant,
    lines: Arc<Mutex<Vec<(Duration, String)>>>,
}

impl Log {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().iter().map(|(_, line)| line.clone()).collect()
    }

    /// Returns the time since the start.
    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn times(&self) -> Vec<Duration> {
        self.lines.lock().unwrap().iter().map(|(at, _)| *at).collect()
    }
}

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Frames = StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>;

pub(crate) fn cluster(handler: impl FnMut(Req) -> Answer + Send + 'static) -> (Cluster, Log) {
    cluster_with(Options { page_size: 500, ..Options::default() }, handler)
}

pub(crate) fn cluster_with(options: Options, handler: impl FnMut(Req) -> Answer + Send + 'static) -> (Cluster, Log) {
    let log = Log { start: Instant::now(), lines: Arc::default() };
    let handler = Arc::new(Mutex::new(handler));
    let seen = log.clone();
    let service = tower::service_fn(
        move |request: Request<kube::client::Body>| -> BoxFuture<'static, Result<Response<Frames>, BoxError>> {
            let (handler, seen) = (Arc::clone(&handler), seen.clone());
            Box::pin(async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let line = format!("{} {}", parts.method, parts.uri);
                seen.lines.lock().unwrap().push((seen.start.elapsed(), line));
                let query = parts.uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
                let request = Req {
                    method: parts.method.to_string(),
                    path: parts.uri.path().to_owned(),
                    query: query.map(|(k, v)| (k.to_owned(), unescape(v))).collect(),
                    headers: parts.headers,
                    body: serde_json::from_slice(&body).unwrap_or_default(),
                    text: String::from_utf8_lossy(&body).into_owned(),
                };
                let answer = handler.lock().unwrap()(request);
                respond(answer).await
            })
        },
    );
    (Cluster::from_client(kube::Client::new(service, "default"), options), log)
}

fn unescape(text: &str) -> String {
    text.replace("%3D", "=").replace("%2C", ",").replace("%2F", "/").replace("%21", "!")
}

async fn respond(answer: Answer) -> Result<Response<Frames>, BoxError> {
    let whole = |code: u16, text: String| {
        let frames = stream::iter([Ok(Frame::data(Bytes::from(text)))]).boxed();
        Response::builder().status(code).body(StreamBody::new(frames)).unwrap()
    };
    Ok(match answer {
        Answer::Json(code, value) => whole(code, value.to_string()),
        Answer::Text(code, text) => whole(code, text.to_owned()),
        Answer::Busy(seconds) => {
            let mut response = whole(429, String::new());
            response.headers_mut().insert("retry-after", seconds.into());
            response
        }
        Answer::Refused => return Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
        Answer::Reset => return Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
        Answer::Hang => std::future::pending().await,
        Answer::Late(after, answer) => {
            tokio::time::sleep(after).await;
            return Box::pin(respond(*answer)).await;
        }
        Answer::Endless(code, read) => {
            let frames = stream::repeat_with(move || {
                read.fetch_add(1000, Ordering::Relaxed);
                Ok(Frame::data(Bytes::from_static(&[b' '; 1000])))
            });
            Response::builder().status(code).body(StreamBody::new(frames.boxed())).unwrap()
        }
        Answer::Lines(lines) => {
            let frames = stream::unfold(lines, async |mut lines| {
                let line = lines.recv().await?;
                // A null breaks the connection.
                let frame = if line.is_null() {
                    Err(io::Error::from(io::ErrorKind::ConnectionReset))
                } else {
                    Ok(Frame::data(Bytes::from(format!("{line}\n"))))
                };
                Some((frame, lines))
            });
            Response::builder().status(200).body(StreamBody::new(frames.boxed())).unwrap()
        }
    })
}

pub(crate) fn configmaps() -> Resource {
    Resource {
        kind: GroupKind::new("", "ConfigMap"),
        version: "v1".into(),
        plural: "configmaps".into(),
        namespaced: true,
    }
}

pub(crate) fn query(namespace: Option<&str>, select: Select) -> Query {
    Query {
        cluster: None,
        resource: configmaps(),
        namespace: namespace.map(str::to_owned),
        select,
        namespaces: Vec::new(),
    }
}

/// Makes an object in namespace `a`.
pub(crate) fn object(name: &str, uid: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "a", "uid": uid, "resourceVersion": version.to_string()}})
}

pub(crate) fn page(version: u64, items: Vec<Value>) -> Value {
    json!({"kind": "PartialObjectMetadataList", "metadata": {"resourceVersion": version.to_string()}, "items": items})
}

pub(crate) fn event(kind: &str, object: &Value) -> Value {
    json!({"type": kind, "object": object})
}
