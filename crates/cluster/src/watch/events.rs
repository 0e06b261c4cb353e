//! The events of a watch, read from its body line by line.

use http_body_util::BodyExt as _;
use kube::client::Body;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{decode::Shape, error::Status};

/// An event of a watch.
#[derive(Debug)]
pub(super) enum Event<S> {
    /// An object was added or modified.
    Present(S),
    /// An object was deleted, or is no longer selected.
    Deleted(S),
    /// Every earlier event was sent: the watch can continue from this `resourceVersion`.
    Bookmark(Option<String>),
    /// The server ended the watch.
    Error(Status),
    /// An event of an object that cannot be decoded.
    UnreadableObject,
    /// The line is not an event.
    Garbage,
}

/// The body of a watch. Dropping it ends the request.
pub(super) struct Events {
    body: Body,
    buffer: Vec<u8>,
    /// The lines before this were returned already.
    start: usize,
    /// There is no line end between `start` and this.
    searched: usize,
    /// The maximum size of what was read but not returned: an event and what follows it.
    limit: usize,
}

type Broken = Box<dyn std::error::Error + Send + Sync>;

impl Events {
    pub(super) fn new(body: Body, limit: usize) -> Self {
        Self { body, buffer: Vec::new(), start: 0, searched: 0, limit }
    }

    /// Returns the next event; none at the end of the body. Dropping the future loses nothing.
    pub(super) async fn next<S: Shape>(&mut self) -> Result<Option<Event<S>>, Broken> {
        Ok(self.line().await?.map(parse))
    }

    async fn line(&mut self) -> Result<Option<&[u8]>, Broken> {
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
                        if self.buffer.len() + data.len() > self.limit {
                            return Err(format!("an event has more than {} MiB", self.limit >> 20).into());
                        }
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(error.into()),
                // A last line without a line end was cut off.
                None => return Ok(None),
            }
        }
    }
}

fn parse<S: Shape>(line: &[u8]) -> Event<S> {
    #[derive(Deserialize)]
    struct Line<'a> {
        #[serde(rename = "type")]
        kind: &'a str,
        #[serde(borrow)]
        object: &'a RawValue,
    }
    let Ok(Line { kind, object }) = serde_json::from_slice(line) else { return Event::Garbage };
    match kind {
        "ERROR" => Event::Error(Status::event(object.get())),
        "BOOKMARK" => Event::Bookmark(bookmark(object.get())),
        kind => match serde_json::from_str(object.get()) {
            Ok(object) if kind == "DELETED" => Event::Deleted(object),
            Ok(object) => Event::Present(object),
            Err(_) => Event::UnreadableObject,
        },
    }
}

/// A bookmark has no name or UID, so that it is not decoded as an object.
fn bookmark(object: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: Metadata,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    serde_json::from_str::<Bookmark>(object).ok().map(|bookmark| bookmark.metadata.resource_version)
}
