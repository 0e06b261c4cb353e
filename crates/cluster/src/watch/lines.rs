//! The body of a watch, line by line.

use http_body_util::BodyExt as _;
use kube::client::Body;

type Broken = Box<dyn std::error::Error + Send + Sync>;

/// Splits a body into lines. Dropping it ends the request.
pub(super) struct Lines {
    body: Body,
    buffer: Vec<u8>,
    /// What lies before this was handed out already.
    start: usize,
    /// No line end lies before this.
    searched: usize,
}

impl Lines {
    pub(super) fn new(body: Body) -> Self {
        Self { body, buffer: Vec::new(), start: 0, searched: 0 }
    }

    /// The next line without its end; none at the end of the body. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, Broken> {
        loop {
            if let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
                let (start, end) = (self.start, self.searched + length);
                self.start = end + 1;
                self.searched = self.start;
                return Ok(Some(&self.buffer[start..end]));
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            self.searched = self.buffer.len();
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(error.into()),
                // What comes without a line end was cut off.
                None => return Ok(None),
            }
        }
    }
}
