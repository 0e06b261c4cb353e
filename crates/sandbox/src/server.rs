//! Requests over HTTP: authentication, faults and answers.

use std::{io, net::Ipv4Addr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::State as Extracted, response::IntoResponse as _};
use bytes::Bytes;
use futures::stream;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header};
use hyper::server::conn::http1;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use jiff::fmt::rfc2822;
use serde_json::json;
use tokio::{
    net::TcpListener,
    task::{AbortHandle, JoinSet},
    time::sleep,
};

use crate::{
    authorization,
    call::{Call, User},
    dispatch::{self, Answer},
    faults::{Cut, Fate},
    shared::Shared,
    status::ApiError,
    verbs::Watch,
};

/// The size limit of request bodies, that of the API server.
const MAX_BYTES: usize = 3 * 1024 * 1024;

/// Answers a request; an error breaks the connection. Without a user, the headers identify the sender.
pub(crate) async fn respond(
    shared: &Arc<Shared>,
    request: Request<Body>,
    user: Option<User>,
    client: String,
) -> io::Result<Response<Body>> {
    let mut response = answer(shared, request, user, client).await?;
    // The clock of the objects' timestamps, not the system's, which an HTTP server would use.
    let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&shared.lock().clock.now());
    if let Some(date) = date.ok().and_then(|date| HeaderValue::try_from(date).ok()) {
        response.headers_mut().insert(header::DATE, date);
    }
    Ok(response)
}

async fn answer(
    shared: &Arc<Shared>,
    request: Request<Body>,
    user: Option<User>,
    client: String,
) -> io::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let read = async {
        let user = authenticate(shared, user, &parts.headers)?;
        let body = axum::body::to_bytes(body, MAX_BYTES)
            .await
            .map_err(|_| ApiError::too_large("Request entity too large: limit is 3145728"))?;
        let mut call = Call::new(user, client, parts.method, &parts.uri, parts.headers, body)?;
        call.user = authorization::impersonate(&shared.lock(), &call)?;
        Ok(call)
    };
    let call = match read.await {
        Ok(call) => call,
        Err(error) => return Ok(refusal(&error)),
    };
    let fate = shared.faults.meet(&call).await;
    match fate {
        Fate::Refuse(error) => return Ok(refusal(&error)),
        Fate::Away => return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the sandbox is unavailable")),
        Fate::Break => return Err(broken()),
        Fate::Never => return std::future::pending().await,
        Fate::Answer | Fate::RefuseAfter(_) | Fate::BreakAfter | Fate::NeverAfter => {}
    }
    let (answer, warnings) = shared.step(|state| dispatch::answer(state, &call)).await;
    shared.wake();
    match fate {
        Fate::RefuseAfter(error) => Ok(refusal(&error)),
        Fate::BreakAfter => Err(broken()),
        Fate::NeverAfter => {
            shared.faults.kill(&call.client);
            std::future::pending().await
        }
        _ => Ok(match answer {
            Ok(Answer::Body { status, content_type, body, warnings: own }) => {
                written(status, content_type, body, &[own, warnings].concat())
            }
            Ok(Answer::Watch(watch)) => watched(shared, *watch, &call),
            Err(error) => warned(refusal(&error), &warnings),
        }),
    }
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "the sandbox broke the connection")
}

/// Returns the sender of a request, whom the token identifies.
fn authenticate(shared: &Arc<Shared>, known: Option<User>, headers: &HeaderMap) -> Result<User, ApiError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let state = shared.lock();
    match (known, text("authorization").and_then(|value| value.strip_prefix("Bearer "))) {
        (Some(user), _) => Ok(user),
        // kubectl sends no credentials without TLS.
        (None, None) => Ok(User::admin()),
        (None, Some(token)) => match authorization::user_of_token(&state, token, &[]) {
            Some((user, _)) => Ok(user),
            None => Err(ApiError::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")),
        },
    }
}

fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = if error.plain {
        written(error.code, "text/plain; charset=utf-8", format!("{}\n", error.message), &[])
    } else {
        written(error.code, "application/json", error.body().to_string(), &[])
    };
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn written(status: StatusCode, content_type: &'static str, body: String, warnings: &[String]) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    warned(response, warnings)
}

fn warned(mut response: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = HeaderValue::from_str(&text) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// The state of an event stream.
struct Watching {
    shared: Arc<Shared>,
    watch: Watch,
    changes: tokio::sync::watch::Receiver<u64>,
    cut: Cut,
    over: bool,
}

fn watched(shared: &Arc<Shared>, watch: Watch, call: &Call) -> Response<Body> {
    let changes = watch.subscribe(&mut shared.lock());
    let cut = shared.faults.cut(call);
    let watching = Watching { shared: Arc::clone(shared), watch, changes, cut, over: false };
    let body = Body::from_stream(stream::unfold(watching, next_events));
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

async fn next_events(mut watching: Watching) -> Option<(io::Result<Bytes>, Watching)> {
    loop {
        if watching.over {
            return None;
        }
        watching.changes.mark_unchanged();
        let (events, _warnings) = watching.shared.step(|state| watching.watch.take_events(state)).await;
        watching.over = watching.watch.ended() || events.is_err();
        let events = events.unwrap_or_default();
        let events = watching.cut.pass(events);
        if !events.is_empty() {
            return Some((Ok(events.into()), watching));
        }
        if watching.over {
            return None;
        }
        let due = watching.watch.due();
        tokio::select! {
            biased;
            () = &mut watching.cut => {
                watching.over = true;
                return Some((Err(broken()), watching));
            }
            _ = watching.changes.changed() => {}
            () = tokio::time::sleep_until(due) => {}
        }
    }
}

/// A sandbox that is served on loopback until this is dropped. Then all connections end, too.
#[derive(Debug)]
pub struct Served {
    url: String,
    task: AbortHandle,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Served {
    pub(crate) async fn start(shared: &Arc<Shared>, port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(handle).with_state(Arc::clone(shared));
        let task = tokio::spawn(accept(listener, router));
        Ok(Self { url, task: task.abort_handle() })
    }

    /// Returns the URL, `http://127.0.0.1:…`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns a kubeconfig for this server. It contains no credentials, because clients send none without TLS, so
    /// requests have an administrator's rights.
    pub fn kubeconfig(&self) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": {"server": self.url}}],
            "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "admin", "namespace": "default"}}],
            "users": [{"name": "admin", "user": {}}],
        });
        format!("{config:#}\n")
    }
}

/// Serves all connections. They end with this task, unlike those of [`axum::serve`].
async fn accept(listener: TcpListener, router: Router) {
    let service = TowerToHyperService::new(router);
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let Ok((stream, _)) = accepted else {
            // The process has too many files open, or the client is gone already.
            sleep(Duration::from_millis(100)).await;
            continue;
        };
        // Events are small and must be sent at once.
        let _result = stream.set_nodelay(true);
        connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone()));
    }
}

async fn handle(Extracted(shared): Extracted<Arc<Shared>>, request: Request<Body>) -> Response<Body> {
    let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    let client = agent.split('/').next().unwrap_or_default().to_owned();
    match respond(&shared, request, None, client).await {
        Ok(response) => response,
        // A body that fails at its start closes the connection.
        Err(error) => Body::from_stream(stream::once(async { Err::<Bytes, _>(error) })).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpStream,
    };

    use super::*;
    use crate::{options::Options, sandbox::Sandbox};

    #[tokio::test(start_paused = true)]
    async fn answers_carry_the_time_of_the_objects_clock() {
        let start = "2026-01-01T00:00:00Z".parse().expect("a time");
        let sandbox = Sandbox::start(Options::default().start(start));
        tokio::time::advance(std::time::Duration::from_secs(90)).await;
        let request = Request::get("/api/v1/namespaces/default").body(Vec::new()).expect("a request");
        let response = sandbox.client(User::admin(), "").send(request.map(Into::into)).await.expect("an answer");
        assert_eq!(response.headers()[header::DATE], "Thu, 01 Jan 2026 00:01:30 GMT");
    }

    #[tokio::test]
    async fn a_dropped_server_ends_its_connections() {
        let sandbox = Sandbox::start(Options::default());
        let served = sandbox.serve().await.expect("a port");
        let address = served.url().strip_prefix("http://").expect("an address").to_owned();
        let mut watch = TcpStream::connect(&address).await.expect("a connection");
        let request = "GET /api/v1/namespaces?watch=true HTTP/1.1\r\nHost: x\r\n\r\n";
        watch.write_all(request.as_bytes()).await.expect("sent");
        let mut answer = [0; 12];
        watch.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 200");
        drop(served);
        let end = async move {
            let mut rest = Vec::new();
            // The end may be a reset.
            let _result = watch.read_to_end(&mut rest).await;
        };
        tokio::time::timeout(Duration::from_secs(30), end).await.expect("the watch ends");
        assert!(TcpStream::connect(&address).await.is_err());
    }
}
