//! What all handles and connections of a sandbox share, and the task that runs its controllers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::{controllers, faults::Faults, options::Options, state::State};

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
}

/// Runs the controllers whenever work is due, until the sandbox is dropped.
async fn control(shared: Weak<Shared>, wake: Arc<Notify>) {
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else {
                // The sandbox is not constructed yet, or is being dropped, which aborts this task.
                wake.notified().await;
                continue;
            };
            let mut state = shared.lock();
            controllers::run_due(&mut state, Instant::now());
            state.controllers.next()
        };
        match next {
            Some(next) => tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = wake.notified() => {}
            },
            None => wake.notified().await,
        }
    }
}
