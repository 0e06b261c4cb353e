//! The HTTP endpoints of a process that keeps running: `/metrics`, `/healthz` and `/readyz`.

mod pulse;

use std::{fmt, io, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use futures::FutureExt as _;
pub use pulse::Pulse;
use tokio::net::TcpListener;

/// How long open requests may take after the server was stopped.
const GRACE: Duration = Duration::from_secs(2);
/// The content type of OpenMetrics text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Fails with the problem that makes the probe fail.
pub type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// Returns all metrics as OpenMetrics text.
pub type Scrape = Arc<dyn Fn() -> Result<String, fmt::Error> + Send + Sync>;

/// The kubelet's probes.
#[derive(Clone)]
pub struct Probes {
    /// Liveness: if it fails, the kubelet restarts the process.
    pub live: Probe,
    /// Readiness: the process has reached its cluster, whether it leads or is on standby.
    pub ready: Probe,
}

/// Returns a router with the endpoints.
pub fn router(scrape: Scrape, probes: Probes) -> Router {
    let probe = |probe: Probe| {
        get(move || async move {
            match probe() {
                Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
                Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
            }
        })
    };
    let scrape = move || async move {
        match scrape() {
            Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    };
    Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz", probe(probes.live))
        .route("/readyz", probe(probes.ready))
}

/// Serves the endpoints until `stop` is ready, then waits at most two seconds for open requests.
///
/// # Errors
///
/// When the listener fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let stop = stop.shared();
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.clone());
    let late = async {
        stop.await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = served.into_future() => ended,
        () = late => Ok(()),
    }
}

#[cfg(test)]
mod tests;
