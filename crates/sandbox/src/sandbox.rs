//! The handle on a sandbox, its clients, and the task in which its controllers act.

use std::{
    fmt, io,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use axum::body::Body;
use http::Request;
use serde_json::Value;
use tokio::{sync::Notify, task::AbortHandle, time::Instant};

use crate::{
    call::User,
    controllers,
    faults::Faults,
    kinds::ResourceId,
    options::Options,
    server::{self, Served},
    state::State,
};

/// A Kubernetes API server in memory. Clones are handles on the same one; it ends with the last of them.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    state: Mutex<State>,
    faults: Faults,
    /// Something happened on which the controllers may have to act.
    wake: Arc<Notify>,
    task: AbortHandle,
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("objects", &self.count()).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Starts a server with what a new cluster holds, and its controllers.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn start(options: Options) -> Self {
        let mut state = State::new(options);
        controllers::bootstrap(&mut state);
        let wake = Arc::new(Notify::new());
        let shared = Arc::new_cyclic(|shared: &Weak<Shared>| {
            let task = tokio::spawn(control(shared.clone(), Arc::clone(&wake)));
            Shared { state: Mutex::new(state), faults: Faults::default(), wake, task: task.abort_handle() }
        });
        shared.wake.notify_one();
        Self { shared }
    }

    /// A client in memory, without a socket, for this user. Faults know it by `name`; an empty name is nobody's.
    pub fn client(&self, user: User, name: impl Into<String>) -> kube::Client {
        let (sandbox, name) = (self.clone(), name.into());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (sandbox, user, name) = (sandbox.clone(), user.clone(), name.clone());
            async move { server::respond(&sandbox, request.map(Body::new), Some(user), name).await }
        });
        kube::Client::new(service, "default")
    }

    /// Serves on a free loopback port until what it hands back is dropped.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn serve(&self) -> io::Result<Served> {
        Served::start(self, 0).await
    }

    /// Serves on this loopback port.
    ///
    /// # Errors
    ///
    /// When the port cannot be had.
    pub async fn serve_at(&self, port: u16) -> io::Result<Served> {
        Served::start(self, port).await
    }

    /// The faults, of which there are none at first.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Lets the server be away for a time: every request breaks, and all watches are cut.
    pub fn take_away(&self, time: Duration) {
        self.shared.faults.take_away(time);
    }

    /// Forgets the history, as etcd's compaction does: watches that are behind get 410.
    pub fn compact(&self) {
        self.lock().store.compact();
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.lock().store.len()
    }

    /// An object as it is kept; the group of `v1` is empty, as is the namespace of what has none.
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.lock();
        let stored = state.store.get(&ResourceId::new(group, plural), namespace, name)?;
        Some(stored.value())
    }

    /// All objects as they are kept.
    pub fn objects(&self) -> Vec<Value> {
        self.lock().store.all().map(|stored| stored.value()).collect()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn wake(&self) {
        self.shared.wake.notify_one();
    }
}

/// Lets the controllers act when it is time, until the sandbox is gone.
async fn control(shared: Weak<Shared>, wake: Arc<Notify>) {
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else {
                // The handle is being made, or is gone, and then this task is ended.
                wake.notified().await;
                continue;
            };
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
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
