use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use axum::{Router, body::Body, http::Request};
use http_body_util::BodyExt as _;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::oneshot,
};
use tower::ServiceExt as _;

use super::{Probe, Probes, router, serve};

const METRICS: &str = "# TYPE depth gauge\ndepth 0\n# EOF\n";

fn endpoints(ready: &Arc<AtomicBool>) -> Router {
    let live: Probe = Arc::new(|| Ok(()));
    let ready = Arc::clone(ready);
    let ready: Probe =
        Arc::new(move || if ready.load(Ordering::Relaxed) { Ok(()) } else { Err("no cluster yet".to_owned()) });
    router(Arc::new(|| Ok(METRICS.to_owned())), Probes { live, ready })
}

async fn check(router: &Router, path: &str, status: u16, expected: &str) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status().as_u16(), status, "{path}");
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let text = String::from_utf8(body.to_vec()).unwrap();
    assert!(text.contains(expected), "{path}: {text}");
}

#[tokio::test]
async fn the_endpoints_answer() {
    let ready = Arc::new(AtomicBool::new(false));
    let router = endpoints(&ready);
    check(&router, "/healthz", 200, "ok").await;
    check(&router, "/readyz", 503, "no cluster yet").await;
    ready.store(true, Ordering::Relaxed);
    check(&router, "/readyz", 200, "ok").await;
    check(&router, "/metrics", 200, METRICS).await;
    check(&router, "/other", 404, "").await;
}

#[tokio::test]
async fn the_server_runs_until_it_is_stopped() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let serving = tokio::spawn(serve(listener, endpoints(&Arc::default()), stopped));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    drop(stop);
    serving.await.unwrap().unwrap();
}
