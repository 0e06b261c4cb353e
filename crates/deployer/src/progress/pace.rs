//! How often the progress of an item is written to its status.

use std::{pin::pin, time::Duration};

use futures::future::{Either, select};
use tokio::{sync::watch, time::Instant};

use super::{ItemProgress, Report};

/// How often the status of an item is written while the item is being worked on.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time before the first write: most runs end sooner.
    pub first: Duration,
    /// The shortest time between two writes.
    pub every: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: Duration::from_secs(2), every: Duration::from_secs(5) }
    }
}

/// Reports of the progress of an item, at a limited pace.
#[derive(Debug)]
pub struct Reports {
    progress: watch::Receiver<ItemProgress>,
    every: Duration,
    due: Instant,
    written: Option<Report>,
}

impl Reports {
    /// Starts the clock.
    pub fn new(progress: watch::Receiver<ItemProgress>, pace: Pace) -> Self {
        Self { progress, every: pace.every, due: Instant::now() + pace.first, written: None }
    }

    /// Waits until the next report may be written and differs from the last one; returns `None` once the run has ended.
    pub async fn next(&mut self) -> Option<Report> {
        loop {
            tokio::time::sleep_until(self.due).await;
            let report = self.progress.borrow_and_update().report();
            if !report.running {
                return None;
            }
            if self.written.as_ref() != Some(&report) {
                self.due = Instant::now() + self.every;
                self.written = Some(report.clone());
                return Some(report);
            }
            self.progress.changed().await.ok()?;
        }
    }
}

/// Writes reports during a run. Waits for a write that is in progress when the run ends: it must not overtake the write
/// that follows.
pub async fn while_running<T, W: Future<Output = ()>>(
    run: impl Future<Output = T>,
    mut reports: Reports,
    mut write: impl FnMut(Report) -> W,
) -> T {
    let mut run = pin!(run);
    loop {
        let report = match select(run.as_mut(), pin!(reports.next())).await {
            Either::Left((outcome, _)) => return outcome,
            Either::Right((Some(report), _)) => report,
            Either::Right((None, _)) => return run.await,
        };
        if let Either::Left((outcome, writing)) = select(run.as_mut(), pin!(write(report))).await {
            writing.await;
            return outcome;
        }
    }
}
