//! Stopping the work on an item before it is complete.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    api::ErrorCode,
    error::{ItemFailure, TIMED_OUT},
};

/// Why the work on an item stopped before it was complete.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It failed.
    Failed(ItemFailure),
    /// The controller is stopping, or the item has changed; nothing is written to the status.
    Halted,
}

impl<E: Into<ItemFailure>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// A handle that stops the work on an item, and holds the reason.
#[derive(Clone, Default)]
pub(crate) struct Halt {
    pub token: CancellationToken,
    interrupted: Arc<AtomicBool>,
    /// The names of the Targets that the work uses.
    targets: Arc<Mutex<BTreeSet<String>>>,
}

impl Halt {
    /// Stops the work because of the operation annotation `interrupt`: the item fails.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.token.cancel();
    }

    /// Runs work that can be dropped at any point, until it is stopped or the item's time limit is reached. `activity`
    /// completes the message "time limit reached while …".
    pub(crate) async fn stoppable<T>(
        &self,
        deadline: Option<Instant>,
        activity: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        tokio::select! {
            done = work => Ok(done),
            () = self.token.cancelled() => Err(Stop::Halted),
            () = until(deadline) => {
                let message = format!("time limit reached while {activity}");
                Err(Stop::Failed(ItemFailure::new(TIMED_OUT, message, ErrorCode::Timeout)))
            }
        }
    }

    /// Notes that the work uses a Target, so that it is stopped when that changes.
    pub(crate) fn note_target(&self, name: &str) {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    /// Whether the work uses a Target.
    pub(crate) fn uses(&self, target: &str) -> bool {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).contains(target)
    }

    pub(crate) fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Waits until a time, or forever.
pub(crate) async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
