//! A thread with a runtime of its own, for what must not wait for the work of the main thread.

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::error::{CommandError, Exit};

/// The thread, which ends when this is dropped.
pub(crate) struct Thread {
    /// Its runtime.
    pub(crate) runtime: Handle,
    _stop: DropGuard,
}

impl Thread {
    /// Starts a thread of this name.
    pub(crate) fn start(name: &str) -> Result<Self, CommandError> {
        let failed = |error| CommandError::new(Exit::Failed, format!("failed to start the thread {name}: {error}"));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone().cancelled_owned();
        let run = move || {
            runtime.block_on(stopped);
            runtime.shutdown_background();
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { runtime: handle, _stop: stop.drop_guard() })
    }
}
