//! The HTTP endpoints of the commands that keep running.

use std::net::SocketAddr;

use billhook_endpoints::{Probes, Scrape, router, serve};
use tokio::{net::TcpListener, task::JoinHandle};
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

    /// Waits until it has ended, after its token was cancelled.
    pub(crate) async fn ended(self) {
        let _ended = self.task.await;
    }
}
