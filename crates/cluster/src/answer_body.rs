//! The bodies of answers, read up to a limit: a server that sends without end costs a bounded amount of memory.

use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use kube::client::Body;

/// How many answers of the largest size may be read from a server at the same time.
const AT_ONCE: usize = 4;

/// Why an answer was not read to its end.
pub(crate) enum Unread {
    /// The connection broke.
    Broken(kube::Error),
    /// It is larger than the limit.
    TooLarge,
    /// It and the other answers of the server that are being read are too large together.
    TooMany,
}

/// The number of bytes that one answer adds to those that are being read.
struct Share<'a> {
    all: &'a AtomicUsize,
    bytes: usize,
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reads a body of at most `limit` bytes. `reading` counts the bytes of all answers of the server that are being read.
pub(crate) async fn read(mut body: Body, limit: usize, reading: &AtomicUsize) -> Result<Bytes, Unread> {
    let (mut first, mut rest) = (Bytes::new(), Vec::new());
    let mut share = Share { all: reading, bytes: 0 };
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(Unread::Broken)?.into_data() else { continue };
        share.bytes += data.len();
        let all = reading.fetch_add(data.len(), Ordering::Relaxed) + data.len();
        if share.bytes > limit {
            return Err(Unread::TooLarge);
        }
        if all > limit.saturating_mul(AT_ONCE) {
            return Err(Unread::TooMany);
        }
        // Most answers have one frame, which need not be copied.
        if first.is_empty() && rest.is_empty() {
            first = data;
        } else {
            rest.extend_from_slice(&std::mem::take(&mut first));
            rest.extend_from_slice(&data);
        }
    }
    Ok(if rest.is_empty() { first } else { rest.into() })
}
