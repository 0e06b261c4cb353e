use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, routing::get};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use tokio_util::sync::CancellationToken;

use super::{LIMITS, Limits, serve};

/// A server that runs.
struct Served {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    stop: CancellationToken,
    task: JoinHandle<()>,
    _configs: watch::Sender<Arc<ServerConfig>>,
}

impl Served {
    async fn start(router: Router, limits: Limits) -> Self {
        let generated = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let certificate = generated.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(generated.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (configs, config) = watch::channel(Arc::new(config));
        let stop = CancellationToken::new();
        let task = tokio::spawn(serve(listener, router, config, limits, stop.clone()));
        Self { address, certificate, stop, task, _configs: configs }
    }

    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from("localhost").unwrap(), stream).await
    }
}

/// Returns a router with `/ok`, and `/wait`, which reports that a request began and ends it when it is told so.
fn router() -> (Router, Arc<Notify>, Arc<Notify>) {
    let (began, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (reports, ends) = (Arc::clone(&began), Arc::clone(&end));
    let wait = async move || {
        reports.notify_one();
        ends.notified().await;
        "done"
    };
    (Router::new().route("/ok", get(|| async { "done" })).route("/wait", get(wait)), began, end)
}

async fn send(stream: &mut TlsStream<TcpStream>, path: &str) {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
}

/// Reads until an answer has ended.
async fn answer(stream: &mut TlsStream<TcpStream>) -> String {
    let mut text = String::new();
    while !text.ends_with("done") {
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).await.unwrap();
        assert_ne!(read, 0, "closed after {text:?}");
        text += str::from_utf8(&bytes[..read]).unwrap();
    }
    text
}

/// Returns how long the other end keeps a connection open.
async fn kept_open(mut stream: impl AsyncRead + Unpin) -> Duration {
    let since = Instant::now();
    tokio::time::pause();
    // The other end may close it without notice.
    let _closed = stream.read_to_end(&mut Vec::new()).await;
    tokio::time::resume();
    since.elapsed()
}

#[tokio::test]
async fn clients_that_send_nothing_are_disconnected() {
    let served = Served::start(router().0, LIMITS).await;
    let second = Duration::from_secs(1);
    let lasts = |limit: Duration| limit - second..limit + second;
    let silent = TcpStream::connect(served.address).await.unwrap();
    let kept = kept_open(silent).await;
    assert!(lasts(LIMITS.handshake).contains(&kept), "{kept:?}");

    let mut slow = served.connect().await.unwrap();
    slow.write_all(b"GET /ok HTTP/1.1\r\nHost: ").await.unwrap();
    let kept = kept_open(slow).await;
    assert!(lasts(LIMITS.headers).contains(&kept), "{kept:?}");

    let mut idle = served.connect().await.unwrap();
    send(&mut idle, "/ok").await;
    answer(&mut idle).await;
    let kept = kept_open(idle).await;
    // Longer than the 90 s for which an API server may use an idle connection again.
    assert!(lasts(LIMITS.headers).contains(&kept) && kept > Duration::from_secs(90), "{kept:?}");
}

#[tokio::test]
async fn connections_above_the_limit_wait() {
    let served = Served::start(router().0, Limits { connections: 1, ..LIMITS }).await;
    let mut first = served.connect().await.unwrap();
    let mut second = std::pin::pin!(served.connect());
    tokio::time::pause();
    assert!(timeout(Duration::from_secs(60), &mut second).await.is_err());
    tokio::time::resume();
    send(&mut first, "/ok").await;
    answer(&mut first).await;
    drop(first);
    let mut second = second.await.unwrap();
    send(&mut second, "/ok").await;
    assert!(answer(&mut second).await.starts_with("HTTP/1.1 200 OK\r\n"));
}

#[tokio::test]
async fn a_stopped_server_finishes_its_requests() {
    let (router, began, end) = router();
    let served = Served::start(router, LIMITS).await;
    let (mut idle, mut busy) = (served.connect().await.unwrap(), served.connect().await.unwrap());
    send(&mut idle, "/ok").await;
    answer(&mut idle).await;
    send(&mut busy, "/wait").await;
    began.notified().await;

    served.stop.cancel();
    let _closed = idle.read_to_end(&mut Vec::new()).await;
    let refused = served.connect().await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    assert!(!served.task.is_finished());

    end.notify_one();
    let answer = answer(&mut busy).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("connection: close\r\n"), "{answer}");
    served.task.await.unwrap();
}

#[tokio::test]
async fn a_stopped_server_does_not_wait_forever() {
    let (router, began, _end) = router();
    let served = Served::start(router, LIMITS).await;
    let mut busy = served.connect().await.unwrap();
    send(&mut busy, "/wait").await;
    began.notified().await;
    tokio::time::pause();
    let since = Instant::now();
    served.stop.cancel();
    served.task.await.unwrap();
    assert_eq!(since.elapsed().as_secs(), LIMITS.grace.as_secs());
}
