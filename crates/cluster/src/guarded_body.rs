//! The last check of the fences of a request: when the connection takes its body.
//!
//! After the first check, a request waits for other tasks and for a connection. A process that is frozen meanwhile, and resumes
//! after another one has replaced it, would still send it. The connection writes head and body together, right after it has
//! taken the body.

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use http::Request;
use hyper::body::{Body as HttpBody, Bytes, Frame, SizeHint};
use kube::client::Body;
use tower::BoxError;

use crate::fence::Fence;

/// The fences of a request, as an extension of it.
#[derive(Clone)]
pub(crate) struct Fences(pub(crate) Vec<Fence>);

/// The error of a body that a fence has stopped, with the fence's message. Nothing of the request was sent.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Closed(pub(crate) Arc<str>);

/// A body behind the fences of its request.
pub(crate) struct GuardedBody {
    body: Body,
    fences: Vec<Fence>,
}

/// Puts the body of a request behind its fences.
pub(crate) fn guard(request: Request<Body>) -> Request<GuardedBody> {
    let (mut parts, body) = request.into_parts();
    let fences = parts.extensions.remove::<Fences>().map(|Fences(fences)| fences).unwrap_or_default();
    Request::from_parts(parts, GuardedBody { body, fences })
}

impl HttpBody for GuardedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(fence) = self.fences.iter().find(|fence| !fence.lets_pass()) {
            return Poll::Ready(Some(Err(Closed(Arc::clone(&fence.why)).into())));
        }
        pin!(&mut self.body).poll_frame(cx).map_err(BoxError::from)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
