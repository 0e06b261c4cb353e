//! The HTTP endpoints of the commands that keep running.

use std::net::SocketAddr;

use billhook_endpoints::{Probes, Scrape, router, serve};
use tokio::{net::TcpListener, runtime::Handle, task::JoinHandle};
use tokio_util::sync::CancellationToken;

use crate::error::{CommandError, Exit};

/// A server that runs until its token is cancelled.
pub(crate) struct Server {
    /// The address that it listens at.
    pub(crate) address: SocketAddr,
    task: JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// Starts to serve at an address.
    pub(crate) async fn start(
        address: SocketAddr,
        scrape: Scrape,
        probes: Probes,
        stop: &CancellationToken,
    ) -> Result<Self, CommandError> {
        let failed = |error| CommandError::new(Exit::Failed, format!("failed to listen on {address}: {error}"));
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let task = tokio::spawn(serve(listener, router(scrape, probes), stop.clone().cancelled_owned()));
        Ok(Self { address, task })
    }

    /// Starts to serve at an address in another runtime, so that it answers while this one is busy.
    pub(crate) async fn start_apart(
        runtime: &Handle,
        address: SocketAddr,
        scrape: Scrape,
        probes: Probes,
        stop: &CancellationToken,
    ) -> Result<Self, CommandError> {
        let stop = stop.clone();
        let started = runtime.spawn(async move { Self::start(address, scrape, probes, &stop).await }).await;
        started.unwrap_or_else(|error| {
            Err(CommandError::new(Exit::Failed, format!("failed to listen on {address}: {error}")))
        })
    }

    /// Waits until it has ended, after its token was cancelled.
    pub(crate) async fn ended(self) {
        let _ended = self.task.await;
    }
}
