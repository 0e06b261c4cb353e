//! What stops the requests of a process that another one may have replaced.

use std::{fmt, sync::Arc};

/// A check before each request whether it may still be sent, for a process that another one may replace. That of a request with
/// a body, as all writes have, is repeated when the connection takes the body.
#[derive(Clone)]
pub struct Fence {
    may_send: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Why requests fail when they may not be sent.
    pub(crate) why: Arc<str>,
}

impl Fence {
    /// Makes a fence that calls this function before each request. Requests that it stops fail with this message.
    pub fn new(why: impl Into<Arc<str>>, may_send: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { may_send: Arc::new(may_send), why: why.into() }
    }

    /// Makes a fence that lets every request pass.
    pub fn open() -> Self {
        Self::new("", || true)
    }

    /// Returns whether a request may be sent now, for clients other than a [`Cluster`](crate::Cluster).
    pub fn lets_pass(&self) -> bool {
        (self.may_send)()
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Fence").field(&self.lets_pass()).finish()
    }
}
