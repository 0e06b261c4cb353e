//! Limits the open watches of a cluster, and the pace of the polls that replace watches.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many watches of metadata are open at a time, each with its connection. Programs often may open 1,024 files only.
const OPEN: usize = 256;
/// How many of them replace one watch across all namespaces.
const OF_ONE: usize = 64;
/// The share of time of one polled object: all polls together send at most 200 requests per second.
const PER_READ: Duration = Duration::from_millis(5);

/// What the watches of a cluster share.
#[derive(Debug)]
pub(crate) struct WatchSlots {
    slots: Arc<Semaphore>,
    polled: Arc<AtomicUsize>,
}

impl Default for WatchSlots {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(OPEN)), polled: Arc::default() }
    }
}

impl WatchSlots {
    /// Takes the slot of one watch, if one is free.
    pub(crate) fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Takes slots for up to this many watches that replace one.
    pub(crate) fn slots(&self, wanted: usize) -> Vec<OwnedSemaphorePermit> {
        (0..wanted.min(OF_ONE)).map_while(|_| self.slot()).collect()
    }

    pub(crate) fn poller(&self) -> Poller {
        Poller { all: Arc::clone(&self.polled), own: 0 }
    }
}

/// How many requests one watch sends for each poll, counted with those of the others.
pub(crate) struct Poller {
    all: Arc<AtomicUsize>,
    own: usize,
}

impl Poller {
    /// Sets the number of requests of a poll, and returns the shortest pause before it.
    pub(crate) fn pause(&mut self, requests: usize) -> Duration {
        self.all.fetch_add(requests, Ordering::Relaxed);
        let all = self.all.fetch_sub(self.own, Ordering::Relaxed) - self.own;
        self.own = requests;
        PER_READ * u32::try_from(all).unwrap_or(u32::MAX)
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.all.fetch_sub(self.own, Ordering::Relaxed);
    }
}
