//! What a process holds for a limited time and renews: a Lease, or the lock of a release.
//!
//! The holder stops at a time limit after its last renewal was sent, by its own clock alone; others take over later. So a
//! process that was frozen or disconnected stops without an answer of any server.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{error::Error, fence::Fence};

/// Something that can be renewed.
pub(crate) trait Renew: Send + 'static {
    /// Renews it once, and returns whether it is still held.
    fn renew(&mut self) -> impl Future<Output = Result<bool, Error>> + Send;
}

/// When something is renewed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// How long it is held after a renewal was sent.
    pub(crate) limit: Duration,
    /// The pause between renewals.
    pub(crate) every: Duration,
    /// The pause after a failed renewal.
    pub(crate) retry: Duration,
}

/// A time by tokio's clock, which stands still while the machine is suspended, and how long it was suspended until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    at: Instant,
    suspended: Duration,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { at: Instant::now(), suspended: suspended() }
    }

    /// Returns the time since then, in which the machine may have been suspended.
    pub(crate) fn elapsed(self) -> Duration {
        self.until(Self::now())
    }

    fn until(self, now: Self) -> Duration {
        now.at.saturating_duration_since(self.at) + now.suspended.saturating_sub(self.suspended)
    }
}

/// Returns for how long the machine was suspended since it booted.
#[cfg(target_os = "linux")]
fn suspended() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let read = |clock| Duration::try_from(clock_gettime(clock)).unwrap_or_default();
    let running = read(ClockId::Monotonic);
    read(ClockId::Boottime).saturating_sub(running)
}

/// Other systems do not tell.
#[cfg(not(target_os = "linux"))]
fn suspended() -> Duration {
    Duration::ZERO
}

/// Something that is held. A background task renews it until this value is dropped.
#[derive(Debug)]
pub(crate) struct Tenure<R> {
    limit: Duration,
    /// When its last renewal was sent; none if it is lost.
    renewed: watch::Receiver<Option<Moment>>,
    /// Its end stops the task.
    stop: oneshot::Sender<()>,
    task: JoinHandle<R>,
}

/// Returns whether it is held when its last renewal was sent at this time.
fn is_held(renewed: Option<Moment>, limit: Duration) -> bool {
    renewed.is_some_and(|sent| sent.elapsed() < limit)
}

impl<R: Renew> Tenure<R> {
    /// Starts to renew what was last renewed by a request that was sent at this time.
    pub(crate) fn start(sent: Moment, timing: Timing, held: R) -> Self {
        let (sender, renewed) = watch::channel(Some(sent));
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(keep(held, sent, timing, sender, stopped));
        Self { limit: timing.limit, renewed, stop, task }
    }

    /// Returns a fence that lets requests pass while it is held, and otherwise fails them with this message.
    pub(crate) fn fence(&self, lost: impl Into<Arc<str>>) -> Fence {
        let (renewed, limit) = (self.renewed.clone(), self.limit);
        Fence::new(lost, move || is_held(*renewed.borrow(), limit))
    }

    /// Waits until it is lost.
    pub(crate) async fn lost(&mut self) {
        loop {
            let renewed = *self.renewed.borrow_and_update();
            let Some(sent) = renewed.filter(|_| is_held(renewed, self.limit)) else { return };
            let until = sent.at + self.limit;
            if let Ok(Err(_)) = timeout_at(until, self.renewed.changed()).await {
                // The task has ended without a renewal.
                sleep_until(until).await;
            }
        }
    }

    /// Stops the renewals, after the one in flight, and returns what was held and whether it still is.
    pub(crate) async fn end(self) -> Option<(R, bool)> {
        drop(self.stop);
        let held = self.task.await.ok()?;
        let renewed = *self.renewed.borrow();
        Some((held, is_held(renewed, self.limit)))
    }
}

/// Renews until it is lost. An answer after the limit is ignored: another process may hold it by then.
async fn keep<R: Renew>(
    mut held: R,
    mut sent: Moment,
    timing: Timing,
    renewed: watch::Sender<Option<Moment>>,
    mut stopped: oneshot::Receiver<()>,
) -> R {
    let mut next = sent.at + timing.every;
    loop {
        tokio::select! {
            () = sleep_until(next) => {}
            _ = &mut stopped => return held,
        }
        if sent.elapsed() >= timing.limit {
            tracing::warn!("not renewed in time");
            return held;
        }
        let started = Moment::now();
        let answer = timeout_at(sent.at + timing.limit, held.renew()).await;
        if sent.elapsed() >= timing.limit {
            tracing::warn!("not renewed in time");
            return held;
        }
        next = Instant::now() + timing.retry;
        match answer {
            Ok(Ok(true)) => {
                sent = started;
                renewed.send_replace(Some(sent));
                next = sent.at + timing.every;
            }
            Ok(Ok(false)) => {
                tracing::warn!("another process took over");
                renewed.send_replace(None);
                return held;
            }
            Ok(Err(error)) => tracing::debug!(%error, "not renewed; retrying"),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_in_which_the_machine_was_suspended_counts() {
        let seconds = Duration::from_secs;
        let start = Moment { at: Instant::now(), suspended: seconds(100) };
        assert_eq!(start.until(Moment { suspended: seconds(120), ..start }), seconds(20));
        assert_eq!(start.until(Moment { at: start.at + seconds(5), suspended: seconds(107) }), seconds(12));
        let start = Moment::now();
        assert!(is_held(Some(start), seconds(20)) && !is_held(None, seconds(20)));
        tokio::time::advance(seconds(20)).await;
        assert!(!is_held(Some(start), seconds(20)));
    }
}
