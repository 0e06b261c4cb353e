//! The handle on a sandbox, and its clients.

use std::{fmt, io, sync::Arc, time::Duration};

use axum::body::Body;
use http::Request;
use serde_json::Value;

use crate::{
    call::User,
    faults::Faults,
    kinds::ResourceId,
    options::Options,
    server::{self, Served},
    shared::Shared,
};

/// A Kubernetes API server in memory. Clones are handles on the same one; it ends with the last of them.
#[derive(Clone)]
pub struct Sandbox {
    shared: Arc<Shared>,
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
        Self { shared: Shared::start(options) }
    }

    /// A client in memory, without a socket, for this user. Faults know it by `name`; an empty name is nobody's.
    pub fn client(&self, user: User, name: impl Into<String>) -> kube::Client {
        let (shared, name) = (Arc::clone(&self.shared), name.into());
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (shared, user, name) = (Arc::clone(&shared), user.clone(), name.clone());
            async move { server::respond(&shared, request.map(Body::new), Some(user), name).await }
        });
        kube::Client::new(service, "default")
    }

    /// Serves on a free loopback port until what it hands back is dropped.
    ///
    /// # Errors
    ///
    /// When no port can be had.
    pub async fn serve(&self) -> io::Result<Served> {
        Served::start(&self.shared, 0).await
    }

    /// Serves on this loopback port.
    ///
    /// # Errors
    ///
    /// When the port cannot be had.
    pub async fn serve_at(&self, port: u16) -> io::Result<Served> {
        Served::start(&self.shared, port).await
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
        self.shared.lock().store.compact();
    }

    /// How many objects there are.
    pub fn count(&self) -> usize {
        self.shared.lock().store.len()
    }

    /// An object as it is kept; the group of `v1` is empty, as is the namespace of what has none.
    pub fn object(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<Value> {
        let state = self.shared.lock();
        let stored = state.store.get(&ResourceId::new(group, plural), namespace, name)?;
        Some(stored.value())
    }

    /// All objects as they are kept.
    pub fn objects(&self) -> Vec<Value> {
        self.shared.lock().store.all().map(|stored| stored.value()).collect()
    }
}
