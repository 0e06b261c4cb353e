//! What a pass tells about deletions, in the words of the reference.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use billhook_engine::{Event, Sink, Summary};
use billhook_objects::ObjectKey;
use billhook_payload::{
    State,
    messages::{self, DeleteMessage, DeleteMessageKind, Known, Observed},
};
use billhook_plan::{DeletionState, RequestedDeletion};
use serde::Serialize;

use crate::{commands::payload::rfc3339, output::Printer, session::Session};

/// Prints the messages of the reference about deletions: what was found at once, and requests as they are sent.
pub(super) struct Told {
    printer: Printer,
    json: bool,
    /// The messages of objects whose deletion is requested.
    requests: BTreeMap<ObjectKey, DeleteMessage>,
    /// How many requests earlier passes of the process have sent, by verb.
    sent_before: BTreeMap<String, u64>,
    summary: Arc<Mutex<Option<Summary>>>,
}

/// A message as a JSON line.
#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    #[serde(flatten)]
    message: &'a DeleteMessage,
    text: String,
}

impl Told {
    pub(super) fn new(
        session: &Session,
        deletions: &[RequestedDeletion],
        state: State,
        sent_before: BTreeMap<String, u64>,
    ) -> Self {
        let mut told = Self {
            printer: session.printer.clone(),
            json: session.json(),
            requests: BTreeMap::new(),
            sent_before,
            summary: Arc::default(),
        };
        for deletion in deletions {
            let Some(message) = message(deletion, state) else { continue };
            if message.kind == DeleteMessageKind::Requested {
                told.requests.insert(message.object.clone(), message);
            } else {
                tell(&told.printer, told.json, &message);
            }
        }
        told
    }

    /// Returns a sink that prints a message for each request to delete, and keeps the summary, which counts the requests of this
    /// pass only.
    pub(super) fn tap(&self, sink: Sink) -> Sink {
        let (printer, json, requests) = (self.printer.clone(), self.json, self.requests.clone());
        let summary = Arc::clone(&self.summary);
        let sent_before = self.sent_before.clone();
        Arc::new(move |mut event| {
            if let Event::Deleting { object, .. } = &event
                && let Some(message) = requests.get(object)
            {
                tell(&printer, json, message);
            }
            if let Event::Finished(done) = &mut event {
                for (verb, sent) in &mut done.requests {
                    *sent -= sent_before.get(verb).unwrap_or(&0);
                }
                *summary.lock().unwrap_or_else(PoisonError::into_inner) = Some((**done).clone());
            }
            sink(event);
        })
    }

    pub(super) fn summary(&self) -> Option<Summary> {
        self.summary.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn tell(printer: &Printer, json: bool, message: &DeleteMessage) {
    let text = message.to_string();
    match (json, message.is_warning()) {
        (true, _) => printer.json_line(&Line { event: "payload-deletion", message, text }),
        (false, true) => printer.warn(&text),
        (false, false) => printer.err(&text),
    }
}

/// Returns the message of the reference about an object to delete.
fn message(deletion: &RequestedDeletion, state: State) -> Option<DeleteMessage> {
    let found_gone = deletion.state == DeletionState::NotFound;
    let known = match &deletion.deleted_before {
        Some(at) => Known::Completed { at },
        None if deletion.requested => Known::Requested,
        None => Known::Nothing,
    };
    let since = match deletion.state {
        DeletionState::Deleting { deleted_at } => Some(rfc3339(deleted_at)),
        _ => None,
    };
    let observed = match found_gone {
        true => Observed::NotFound,
        false => Observed::Found { deletion_timestamp: since.as_deref() },
    };
    messages::deletion(&deletion.object, known, observed, state).message
}
