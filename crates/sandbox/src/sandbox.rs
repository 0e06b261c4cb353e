//! The public handle of a sandbox and its clients.

use std::{fmt, io, sync::Arc, time::Duration};

use axum::body::Body;
use http::Request;
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    call::User,
    faults::Faults,
    kinds::ResourceId,
    options::Options,
    server::{self, Served},
    shared::Shared,
};

/// A Kubernetes API server in memory. Clones refer to the same server, which stops when the last one is dropped.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sandbox").field("objects", &self.count()).finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Starts a server with the initial objects of a cluster, and its controllers.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn start(options: Options) -> Self {
        Self { shared: Shared::start(options) }
    }

    /// Returns a client for a user that works in memory, without a socket. Faults select it by `name`, unless that is
    /// empty.
    pub fn client(&self, user: User, name: impl Into<String>) -> kube::Client {
        let (shared, name) = (Arc::clone(&self.shared), name.into());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (shared, user, name) = (Arc::clone(&shared), user.clone(), name.clone());
            async move { server::respond(&shared, request.map(Body::new), Some(user), name).await }
        });
        kube::Client::new(service, "default")
    }

    /// Serves on a free loopback port until the result is dropped.
    ///
    /// # Errors
    ///
    /// Fails if no port is available.
    pub async fn serve(&self) -> io::Result<Served> {
        Served::start(&self.shared, 0).await
    }

    /// Serves on a loopback port.
    ///
    /// # Errors
    ///
    /// Fails if the port is not available.
    pub async fn serve_at(&self, port: u16) -> io::Result<Served> {
        Served::start(&self.shared, port).await
    }

    /// Returns the faults. Initially there are none.
    pub fn faults(&self) -> &Faults {
        &self.shared.faults
    }

    /// Makes the server unavailable for a time: all connections fail, including open watches.
    pub fn take_away(&self, time: Duration) {
        self.shared.faults.take_away(time);
    }

    /// Drops the history, like etcd's compaction: watches that are behind receive 410.
    pub fn compact(&self) {
        self.shared.lock().store.compact();
    }

    /// Pauses the controllers of kube-controller-manager, as if it had ended, or starts them again. What the API server does itself
    /// goes on.
    pub fn pause_controllers(&self, pause: bool) {
        self.shared.lock().controllers.pause(pause, Instant::now());
        self.shared.wake();
    }

    /// Makes an object unreadable, as if a text that is no object had been written to etcd in its place: requests that read it, and
    /// lists that contain it, are answered with 500. Returns whether the object exists.
    pub fn corrupt(&self, group: &str, plural: &str, namespace: &str, name: &str) -> bool {
        self.shared.lock().store.corrupt(&ResourceId::new(group, plural), namespace, name)
    }

    /// Puts a server behind a Service that answers every request with 200 and `ok`, so that APIServices that name the Service are
    /// available and have no documents.
    pub fn answer_ok(&self, namespace: &str, service: &str) {
        let mut state = self.shared.lock();
        state.answering.insert((namespace.into(), service.into()));
        state.controllers.reconsider_api_services(namespace, service, Instant::now());
        drop(state);
        self.shared.wake();
    }

    /// Returns the number of objects.
    pub fn count(&self) -> usize {
        self.shared.lock().store.len()
    }

    /// Returns an object as it is stored. The group of `v1` is empty, and so is the namespace of cluster-scoped
    /// objects.
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.shared.lock();
        let stored = state.store.get(&ResourceId::new(group, plural), namespace, name)?;
        Some(stored.value())
    }

    /// Returns all objects as they are stored.
    pub fn objects(&self) -> Vec<Value> {
        self.shared.lock().store.all().map(|stored| stored.value()).collect()
    }
}
