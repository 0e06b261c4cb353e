//! The limit of requests in flight: additive increase, multiplicative decrease.
//!
//! There is no throttle by time. A 429 of the API server's priority and fairness, or a request that times out, means that
//! the server is busy and halves the limit. A full window of answers raises it by one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// The initial limit: 32 requests over HTTP/1.1 saturate the server on a small machine.
const START: usize = 32;
/// The lowest limit.
const FLOOR: usize = 2;
/// Rejections within this time count once.
const BURST: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Limiter {
    slots: Arc<Semaphore>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    limit: usize,
    max: usize,
    /// How many slots are to be dropped when their requests end.
    debt: usize,
    successes: usize,
    last_cut: Option<Instant>,
}

impl Limiter {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let max = max.max(1);
        let limit = START.min(max);
        let state = State { limit, max, debt: 0, successes: 0, last_cut: None };
        Arc::new(Self { slots: Arc::new(Semaphore::new(limit)), state: Mutex::new(state) })
    }

    /// Waits for a slot.
    pub(crate) async fn acquire(self: &Arc<Self>) -> Slot {
        // The semaphore is never closed. Without a permit the request would merely not be counted.
        let permit = Arc::clone(&self.slots).acquire_owned().await.ok();
        Slot { permit, limiter: Arc::clone(self) }
    }

    /// Records that a request was answered.
    pub(crate) fn answered(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.successes += 1;
        if state.successes >= state.limit && state.limit < state.max {
            state.successes = 0;
            state.limit += 1;
            if state.debt > 0 {
                state.debt -= 1;
            } else {
                self.slots.add_permits(1);
            }
        }
    }

    /// Records that the server is busy.
    pub(crate) fn congested(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.last_cut.is_some_and(|cut| now.duration_since(cut) < BURST) {
            return;
        }
        state.last_cut = Some(now);
        state.successes = 0;
        let limit = (state.limit / 2).max(FLOOR.min(state.max));
        let surplus = state.limit - limit;
        state.limit = limit;
        state.debt += surplus - self.slots.forget_permits(surplus);
    }

    #[cfg(test)]
    fn limit(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).limit
    }
}

/// The slot of one request, returned on drop.
#[derive(Debug)]
pub(crate) struct Slot {
    permit: Option<OwnedSemaphorePermit>,
    limiter: Arc<Limiter>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut state = self.limiter.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.debt > 0
            && let Some(permit) = self.permit.take()
        {
            state.debt -= 1;
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_rejection_halves_the_limit_and_a_window_of_answers_raises_it_by_one() {
        let limiter = Limiter::new(64);
        let held = futures::future::join_all((0..32).map(|_| limiter.acquire())).await;
        limiter.congested();
        limiter.congested();
        assert_eq!(limiter.limit(), 16, "a burst counts once");
        drop(held);
        assert_eq!(limiter.slots.available_permits(), 16, "slots in flight beyond the limit are dropped");
        for _ in 0..16 {
            limiter.answered();
        }
        assert_eq!((limiter.limit(), limiter.slots.available_permits()), (17, 17));
        for _ in 0..10 {
            tokio::time::advance(BURST).await;
            limiter.congested();
        }
        assert_eq!((limiter.limit(), limiter.slots.available_permits()), (2, 2));
    }
}
