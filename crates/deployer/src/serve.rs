//! The controller's own endpoints: `/metrics`, `/healthz` (alive) and `/readyz` (ready to serve).

use std::{io, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

/// How long requests under way may still take once the end was asked for.
const GRACE: Duration = Duration::from_secs(2);
/// The content type of OpenMetrics text.
const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Says whether all is well, or what is not.
pub type Probe = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What the kubelet asks.
#[derive(Clone)]
pub struct Probes {
    /// Whether the process works; where not, it is started anew.
    pub live: Probe,
    /// Whether it does its part: it has reached its cluster, and stands by or leads.
    pub ready: Probe,
}

/// The endpoints.
pub fn router(metrics: Metrics, probes: Probes) -> Router {
    let probe = |probe: Probe| {
        get(move || async move {
            match probe() {
                Ok(()) => (StatusCode::OK, "ok\n".to_owned()),
                Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
            }
        })
    };
    let scrape = move || async move {
        match metrics.encode() {
            Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
            Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
        }
    };
    Router::new()
        .route("/metrics", get(scrape))
        .route("/healthz", probe(probes.live))
        .route("/readyz", probe(probes.ready))
}

/// Serves the endpoints until `stop` is cancelled, and then what is under way for at most two seconds.
///
/// # Errors
///
/// When the listener fails.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> io::Result<()> {
    let served = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    let late = async {
        stop.cancelled().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        ended = served.into_future() => ended,
        () = late => Ok(()),
    }
}

#[cfg(test)]
mod tests;
