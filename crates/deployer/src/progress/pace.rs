//! When a progress is worth a request.

use std::{
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook_engine::Sink;
use futures::future::{Either, select};
use tokio::{sync::watch, time::Instant};

use super::{Progress, Report};
use crate::{events::RunEvents, metrics::Metrics};

/// How often the status of an item is written while it is worked on.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Nothing is written before this has passed: most runs are over by then.
    pub first: Duration,
    /// The least time between two writes.
    pub every: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { first: Duration::from_secs(2), every: Duration::from_secs(5) }
    }
}

/// What there is to write of a progress, at its pace.
#[derive(Debug)]
pub struct Reports {
    progress: watch::Receiver<Progress>,
    every: Duration,
    due: Instant,
    written: Option<Report>,
}

impl Reports {
    /// Begins now.
    pub fn new(progress: watch::Receiver<Progress>, pace: Pace) -> Self {
        Self { progress, every: pace.every, due: Instant::now() + pace.first, written: None }
    }

    /// The next report that differs from the last, when it may be written; none once the progress is over.
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

/// Runs something and writes its reports beside it. A write that is under way when the run ends is waited for, so that it
/// cannot overtake what is written next.
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

/// Where the events of a run go: to its progress, to Kubernetes Events and to the counters.
pub fn sink(progress: watch::Sender<Progress>, events: RunEvents, metrics: Metrics) -> Sink {
    let events = Mutex::new(events);
    Arc::new(move |event| {
        progress.send_modify(|progress| progress.see(&event));
        events.lock().unwrap_or_else(PoisonError::into_inner).see(&event, &progress.borrow());
        metrics.see(&event);
    })
}
