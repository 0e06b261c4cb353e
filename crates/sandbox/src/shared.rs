//! What all handles and connections of a sandbox share, and the task that runs its controllers.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    controllers,
    faults::Faults,
    options::Options,
    state::State,
    status::ApiError,
    webhooks::{Call, Memory, call_all},
};

/// The time limit of a request that calls webhooks, that of the API server: `requestTimeoutUpperBound`.
const LIMIT: Duration = Duration::from_secs(34);

pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) faults: Faults,
    /// Wakes the controllers after a request.
    wake: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Creates the initial objects of a cluster and starts the controllers.
    pub(crate) fn start(options: Options) -> Arc<Self> {
        let mut state = State::new(options);
        controllers::bootstrap(&mut state);
        let wake = Arc::new(Notify::new());
        let shared = Arc::new_cyclic(|shared: &Weak<Self>| {
            let task = tokio::spawn(control(shared.clone(), Arc::clone(&wake)));
            Self { state: Mutex::new(state), faults: Faults::default(), wake, task: task.abort_handle() }
        });
        shared.wake();
        shared
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes a step under the lock and returns its result with the warnings of webhooks.
    ///
    /// A step that waits for webhooks has no effect: they are called without the lock, and the step is repeated with their
    /// answers.
    pub(crate) async fn step<T>(
        &self,
        mut act: impl FnMut(&mut State) -> Result<T, ApiError>,
    ) -> (Result<T, ApiError>, Vec<String>) {
        let (mut memory, mut end) = (Memory::default(), None);
        loop {
            let (result, calls) = self.attempt(&mut memory, &mut act);
            if calls.is_empty() {
                return (result, memory.warnings);
            }
            let end = *end.get_or_insert_with(|| Instant::now() + LIMIT);
            let Ok(answers) = timeout_at(end, call_all(calls)).await else {
                let why = "request did not complete within requested timeout - context deadline exceeded";
                return (Err(ApiError::timeout(why)), Vec::new());
            };
            memory.learn(answers);
        }
    }

    /// Takes a step and returns its result, or the calls for which it waits.
    fn attempt<T>(
        &self,
        memory: &mut Memory,
        act: &mut impl FnMut(&mut State) -> Result<T, ApiError>,
    ) -> (Result<T, ApiError>, Vec<(Call, String)>) {
        let mut state = self.lock();
        std::mem::swap(state.memory.get_mut(), memory);
        let result = act(&mut state);
        std::mem::swap(state.memory.get_mut(), memory);
        (result, with_uids(&mut state, memory))
    }
}

/// Returns the calls that a request waits for, each with a UID for its review.
fn with_uids(state: &mut State, memory: &mut Memory) -> Vec<(Call, String)> {
    memory.take_wanted().into_iter().map(|call| (call, state.ids.uid())).collect()
}

/// Runs the controllers whenever work is due, until the sandbox is dropped.
async fn control(shared: Weak<Shared>, wake: Arc<Notify>) {
    // The calls of webhooks for the work of controllers.
    let mut calls = JoinSet::new();
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else {
                // The sandbox is not constructed yet, or is being dropped, which aborts this task.
                wake.notified().await;
                continue;
            };
            let mut state = shared.lock();
            controllers::run_due(&mut state, Instant::now());
            for mut waiting in std::mem::take(&mut state.controllers.waiting) {
                let wanted = with_uids(&mut state, &mut waiting.memory);
                calls.spawn(async move {
                    let answers = call_all(wanted).await;
                    waiting.memory.learn(answers);
                    waiting
                });
            }
            state.controllers.next()
        };
        let due = async {
            match next {
                Some(next) => sleep_until(next).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = due => {}
            () = wake.notified() => {}
            Some(Ok(waiting)) = calls.join_next() => {
                if let Some(shared) = shared.upgrade() {
                    shared.lock().controllers.resume(waiting, Instant::now());
                }
            }
        }
    }
}
