//! Stopping the work on an item before it is complete.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    api::ErrorCode,
    error::{ItemFailure, TIMED_OUT},
};

/// How much longer than helm the work with it may take after it was stopped.
const AFTER_HELM: Duration = Duration::from_secs(1);

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
    tried: Arc<AtomicBool>,
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

    /// Runs helm until it is stopped or the item's time limit is reached. Then it cancels the token that `work` got, and waits
    /// until helm has ended: the next run on the same release must not start before.
    pub(crate) async fn stoppable_helm<F: Future>(
        &self,
        deadline: Option<Instant>,
        activity: &str,
        work: impl FnOnce(CancellationToken) -> F,
    ) -> Result<F::Output, Stop> {
        let token = CancellationToken::new();
        let mut work = pin!(work(token.clone()));
        let stopped = match self.stoppable(deadline, activity, work.as_mut()).await {
            Ok(done) => return Ok(done),
            Err(stopped) => stopped,
        };
        token.cancel();
        // What the work does besides helm, such as requests, is dropped.
        let _ended = tokio::time::timeout(billhook_charts::STOP_GRACE + AFTER_HELM, work).await;
        Err(stopped)
    }

    /// Notes that the work uses a Target, so that it is stopped when that changes.
    pub(crate) fn note_target(&self, name: &str) {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    /// Whether the work uses a Target.
    pub(crate) fn uses(&self, target: &str) -> bool {
        self.targets.lock().unwrap_or_else(PoisonError::into_inner).contains(target)
    }

    /// Notes that the work begins, after all waits for its turn.
    pub(crate) fn note_try(&self) {
        self.tried.store(true, Ordering::Relaxed);
    }

    /// Whether the work has begun.
    pub(crate) fn was_tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn helm_is_awaited_after_it_was_asked_to_stop() {
        let halt = Halt::default();
        let ended = AtomicBool::new(false);
        let deadline = Instant::now() + Duration::from_secs(60);
        let work = |stop: CancellationToken| async {
            stop.cancelled_owned().await;
            tokio::time::sleep(Duration::from_secs(3)).await;
            ended.store(true, Ordering::Relaxed);
        };
        let begun = Instant::now();
        let stopped = halt.stoppable_helm(Some(deadline), "testing", work).await;
        assert!(matches!(&stopped, Err(Stop::Failed(failure)) if failure.reason == TIMED_OUT), "{stopped:?}");
        assert_eq!((begun.elapsed().as_secs(), ended.load(Ordering::Relaxed)), (63, true));
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_does_not_stop_is_dropped() {
        let halt = Halt::default();
        halt.token.cancel();
        let begun = Instant::now();
        let stopped = halt.stoppable_helm(None, "testing", |_| std::future::pending::<()>()).await;
        assert!(matches!(stopped, Err(Stop::Halted)), "{stopped:?}");
        assert_eq!(begun.elapsed(), billhook_charts::STOP_GRACE + AFTER_HELM);
    }
}
