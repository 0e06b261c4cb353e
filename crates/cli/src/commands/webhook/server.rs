//! HTTPS with limits, and with a certificate that can be replaced.

use std::{sync::Arc, time::Duration};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use rustls::ServerConfig;
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// What clients may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The number of connections; further ones wait until one of them ends.
    connections: usize,
    /// How long a TLS handshake may take.
    handshake: Duration,
    /// How long a client may take to send the headers of its next request.
    headers: Duration,
    /// How long the last requests may take after the server was stopped.
    grace: Duration,
}

/// The limits of the command.
pub(super) const LIMITS: Limits = Limits {
    // An API server uses a connection for each concurrent request, and executes at most 600 requests at once by default.
    connections: 1024,
    handshake: Duration::from_secs(10),
    // API servers keep idle connections for 90 s. If this end closed them first, a review that is sent at that moment would
    // fail: Go does not repeat a POST.
    headers: Duration::from_secs(120),
    grace: Duration::from_secs(10),
};

/// How long to wait after a connection could not be accepted, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves a router until it is stopped, then finishes the requests that were begun. Each connection uses the configuration that
/// is current when it is accepted, so that a new certificate does not affect open connections.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    configs: watch::Receiver<Arc<ServerConfig>>,
    limits: Limits,
    stop: CancellationToken,
) {
    let connections = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.headers);
    let accept = async || {
        // It is never closed.
        let slot = Arc::clone(&connections).acquire_owned().await;
        (slot, listener.accept().await)
    };
    while let Some((slot, accepted)) = stop.run_until_cancelled(accept()).await {
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                sleep(PAUSE).await;
                continue;
            }
        };
        // An answer is small and must be sent at once.
        let _delayed = stream.set_nodelay(true);
        let acceptor = TlsAcceptor::from(Arc::clone(&configs.borrow()));
        let (http, service, watcher) = (http.clone(), TowerToHyperService::new(router.clone()), graceful.watcher());
        tokio::spawn(async move {
            let _slot = slot;
            let stream = match timeout(limits.handshake, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => return tracing::debug!("TLS handshake timed out"),
            };
            let connection = http.serve_connection(TokioIo::new(stream), service);
            if let Err(error) = watcher.watch(connection).await {
                tracing::debug!(%error, "connection failed");
            }
        });
    }
    drop(listener);
    if timeout(limits.grace, graceful.shutdown()).await.is_err() {
        tracing::warn!("requests were still running when the webhook ended");
    }
}

#[cfg(test)]
mod tests;
