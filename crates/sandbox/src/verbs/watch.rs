//! Watches: initial events, changes and bookmarks.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::Instant;

use super::{list_options, read::Form};
use crate::{
    call::{self, Call},
    conversion::readable,
    kinds::Kind,
    object::Stored,
    selector::Selector,
    state::State,
    status::ApiError,
};

/// The maximum timeout. tokio's clock cannot represent every `i64` of seconds.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 24 * 3600);

/// The timeout of a watch that requests none: half an hour, the default of the API server's `--min-request-timeout`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(1800);

/// A watch and its progress.
#[derive(Debug)]
pub(crate) struct Watch {
    kind: Arc<Kind>,
    /// The version of the request, as an index of the kind's versions.
    version: usize,
    api_version: String,
    namespace: Option<String>,
    selector: Selector,
    form: Form,
    /// The revision up to which all changes have been sent.
    revision: u64,
    epoch: u64,
    /// Whether the initial events are still to be sent, and whether a bookmark has to follow them.
    initial: Option<bool>,
    bookmarks: Option<Duration>,
    next_bookmark: Instant,
    ends: Instant,
    ended: bool,
    /// Whether the watch has sent something. From then on, only history that it has not seen yet can expire for it.
    running: bool,
}

impl Watch {
    /// Starts a watch.
    pub(crate) fn new(
        state: &mut State,
        kind: &Arc<Kind>,
        version: usize,
        namespace: Option<&str>,
        selector: Selector,
        call: &Call,
    ) -> Result<Self, ApiError> {
        let form = Form::of(call.accept())?;
        let now = Instant::now();
        let bookmarks = call.flag("allowWatchBookmarks");
        let initial_events = call.text("sendInitialEvents").map(|text| text == "true");
        list_options::check(call, true)?;
        let text = call.text("resourceVersion").unwrap_or("0");
        let revision = list_options::revision(text).map_err(ApiError::unnamed)?;
        let initial = match initial_events {
            Some(true) => Some(true),
            Some(false) => None,
            None => (revision == 0).then_some(false),
        };
        let timeout = call.text("timeoutSeconds").map(call::number).transpose()?.map(Duration::from_secs);
        let every = state.options.bookmarks;
        Ok(Self {
            api_version: kind.api_version(&kind.versions[version].name),
            version,
            epoch: state.store.table(kind.table()).epoch,
            revision: if initial.is_some() || revision == 0 { state.store.revision() } else { revision },
            kind: Arc::clone(kind),
            namespace: namespace.map(str::to_owned),
            selector,
            form,
            initial,
            bookmarks: bookmarks.then_some(every),
            next_bookmark: now + every,
            ends: now + timeout.filter(|timeout| !timeout.is_zero()).unwrap_or(DEFAULT_TIMEOUT).min(MAX_TIMEOUT),
            ended: false,
            running: false,
        })
    }

    /// Returns when the watch has something to send even if nothing changes.
    pub(crate) fn due(&self) -> Instant {
        if self.bookmarks.is_some() { self.next_bookmark.min(self.ends) } else { self.ends }
    }

    /// Returns whether the watch has sent everything.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Returns a channel that announces changes.
    pub(crate) fn subscribe(&self, state: &mut State) -> tokio::sync::watch::Receiver<u64> {
        state.store.table(self.kind.table()).subscribe()
    }

    /// Returns the events that are to be sent now, one per line. Fails only while a webhook is yet to convert objects.
    pub(crate) fn take_events(&mut self, state: &mut State) -> Result<String, ApiError> {
        let events = self.events(state);
        let objects = match readable(state, &self.kind, self.version, &events.objects) {
            // Nothing has been sent yet, so the same events are taken again.
            Err(error) if state.is_waiting() => return Err(error),
            Err(error) => {
                self.ended = true;
                return Ok(failed(&error));
            }
            Ok(objects) => objects,
        };
        let mut out = String::new();
        for (what, object) in events.types.iter().zip(objects.iter()) {
            self.event(what, object, &mut out);
        }
        self.running = true;
        self.revision = events.revision;
        if self.initial.take() == Some(true) && self.bookmarks.is_some() {
            self.bookmark(true, &mut out);
        }
        if let Some(error) = events.expired {
            out.push_str(&failed(&error));
            self.ended = true;
            return Ok(out);
        }
        let (now, epoch) = (Instant::now(), state.store.table(self.kind.table()).epoch);
        if epoch != self.epoch || now >= self.ends {
            self.ended = true;
        }
        if let Some(every) = self.bookmarks
            && now >= self.next_bookmark
            && !self.ended
        {
            self.next_bookmark = now + every;
            self.revision = self.revision.max(state.store.revision());
            self.bookmark(false, &mut out);
        }
        Ok(out)
    }

    /// Returns what has not been sent yet.
    fn events(&self, state: &mut State) -> Events {
        let now_at = state.store.revision();
        let mut events = Events { revision: self.revision, ..Events::default() };
        let table = state.store.table(self.kind.table());
        if self.initial.is_some() {
            events.revision = now_at;
            for object in table.list(self.namespace.as_deref()).filter(|object| self.selector.matches(object)) {
                events.add("ADDED", object);
            }
        }
        let from = events.revision;
        let changes = if self.running { table.changes_behind(from) } else { table.changes_after(from) };
        let Some(changes) = changes else {
            let message = format!("too old resource version: {from} ({})", table.compacted);
            events.expired = Some(ApiError::expired(message));
            return events;
        };
        let here = |object: &&Arc<Stored>| {
            self.namespace.as_deref().is_none_or(|namespace| namespace == &*object.namespace)
                && self.selector.matches(object)
        };
        for change in changes {
            events.revision = change.revision;
            let (before, after) = (change.before.as_ref().filter(here), change.after.as_ref().filter(here));
            match (before, after) {
                (None, Some(after)) => events.add("ADDED", after),
                (Some(_), Some(after)) => events.add("MODIFIED", after),
                // An object that no longer matches is deleted for this watch, at the revision at which it stopped
                // matching.
                (Some(_), None) if change.after.is_none() => events.add("DELETED", &change.last),
                (Some(before), None) => {
                    events.add("DELETED", &Arc::new(Stored::new(before.value(), change.revision)));
                }
                (None, None) => {}
            }
        }
        events
    }

    fn event(&self, what: &str, object: &Stored, out: &mut String) {
        out.push_str(r#"{"type":""#);
        out.push_str(what);
        out.push_str(r#"","object":"#);
        self.form.write(object, &self.api_version, out);
        out.push_str("}\n");
    }

    fn bookmark(&self, initial: bool, out: &mut String) {
        let (kind, version) = match self.form {
            Form::Whole | Form::Table => (self.kind.kind.as_str(), self.api_version.as_str()),
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1"),
        };
        let mut object = json!({
            "kind": kind, "apiVersion": version,
            "metadata": {"resourceVersion": self.revision.to_string()},
        });
        if initial {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        out.push_str(&format!("{{\"type\":\"BOOKMARK\",\"object\":{object}}}\n"));
    }
}

/// What a watch has to send.
#[derive(Default)]
struct Events {
    types: Vec<&'static str>,
    objects: Vec<Arc<Stored>>,
    /// The revision up to which these are all changes.
    revision: u64,
    /// Why there are no further events.
    expired: Option<ApiError>,
}

impl Events {
    fn add(&mut self, what: &'static str, object: &Arc<Stored>) {
        self.types.push(what);
        self.objects.push(Arc::clone(object));
    }
}

/// Returns an event that ends a watch with an error.
fn failed(error: &ApiError) -> String {
    format!("{{\"type\":\"ERROR\",\"object\":{}}}\n", error.body())
}
