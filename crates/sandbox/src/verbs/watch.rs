//! Watches: initial events, changes and bookmarks.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use tokio::time::Instant;

use super::{
    list_options,
    read::{Form, readable},
};
use crate::{
    call::{self, Call},
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
        readable(kind, version)?;
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
            epoch: state.store.table(&kind.id).epoch,
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
        state.store.table(&self.kind.id).subscribe()
    }

    /// Returns the events that are to be sent now, one per line.
    pub(crate) fn take_events(&mut self, state: &mut State) -> String {
        let mut out = String::new();
        let now_at = state.store.revision();
        let table = state.store.table(&self.kind.id);
        if let Some(bookmark) = self.initial.take() {
            self.revision = now_at;
            for object in table.list(self.namespace.as_deref()).filter(|object| self.selector.matches(object)) {
                self.event("ADDED", object, &mut out);
            }
            if bookmark && self.bookmarks.is_some() {
                self.bookmark(true, &mut out);
            }
        }
        let changes =
            if self.running { table.changes_behind(self.revision) } else { table.changes_after(self.revision) };
        self.running = true;
        match changes {
            None => {
                let message = format!("too old resource version: {} ({})", self.revision, table.compacted);
                let body = ApiError::expired(message).body();
                out.push_str(&format!("{{\"type\":\"ERROR\",\"object\":{body}}}\n"));
                self.ended = true;
                return out;
            }
            Some(changes) => {
                let mut last = self.revision;
                for change in changes {
                    last = change.revision;
                    let here = |object: &&Arc<Stored>| {
                        self.namespace.as_deref().is_none_or(|namespace| namespace == &*object.namespace)
                            && self.selector.matches(object)
                    };
                    let (before, after) = (change.before.as_ref().filter(here), change.after.as_ref().filter(here));
                    match (before, after) {
                        (None, Some(after)) => self.event("ADDED", after, &mut out),
                        (Some(_), Some(after)) => self.event("MODIFIED", after, &mut out),
                        // An object that no longer matches is deleted for this watch, at the revision at which it
                        // stopped matching.
                        (Some(_), None) if change.after.is_none() => self.event("DELETED", &change.last, &mut out),
                        (Some(before), None) => {
                            let last = Stored::new(before.value(), change.revision);
                            self.event("DELETED", &last, &mut out);
                        }
                        (None, None) => {}
                    }
                }
                self.revision = last;
            }
        }
        let now = Instant::now();
        if table.epoch != self.epoch || now >= self.ends {
            self.ended = true;
        }
        if let Some(every) = self.bookmarks
            && now >= self.next_bookmark
            && !self.ended
        {
            self.next_bookmark = now + every;
            self.revision = self.revision.max(now_at);
            self.bookmark(false, &mut out);
        }
        out
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
