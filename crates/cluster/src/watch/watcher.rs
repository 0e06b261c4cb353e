//! The state of one watch.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use billhook_objects::Uid;
use billhook_plan::{Query, Select};
use futures::future::join_all;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};

use super::{Known, lines::Lines};
use crate::{
    cluster::Cluster,
    error::{Error, ErrorKind, Status},
    path,
    transport::{Call, Failure, Verb},
    wire::{Id, Shape},
};

/// When the server ends a watch by itself, in seconds.
const SERVER_TIMEOUT: &str = "290";
/// When a watch that says nothing is given up: later than the server would end it.
const IDLE: Duration = Duration::from_secs(310);
/// The same where the server sends bookmarks, which it does about once a minute.
const IDLE_WITH_BOOKMARKS: Duration = Duration::from_secs(130);
/// A watch that lived so long, or said something, was a good one: the next may be opened at once.
const GOOD: Duration = Duration::from_secs(5);
/// A 404 counts when it is said again after this: an API server may lag behind another that made the kind.
const CONFIRM: Duration = Duration::from_millis(200);
const POLL_MIN: Duration = Duration::from_millis(200);
const POLL_MAX: Duration = Duration::from_secs(2);

/// What is seen, before it is translated for the caller.
pub(super) enum Raw<S> {
    Present(S),
    Gone { namespace: Option<String>, name: String, uid: Uid },
    KindGone,
    Away(String),
    Back,
    PollOnly(String),
}

/// A namespace and a name. Boxed strings: there may be ten thousand.
type Key = (Option<Box<str>>, Box<str>);

/// Which object, and in which version; the version is not known of what the caller knew.
struct Version {
    uid: Uid,
    resource_version: Option<Box<str>>,
}

enum Mode {
    Connect,
    Stream { lines: Lines, since: Instant, bookmarks: bool, spoke: bool },
    List,
    Poll { pause: Duration, reads: bool },
    End,
}

pub(super) struct Watcher<S> {
    cluster: Cluster,
    query: Query,
    resource_version: String,
    known: HashMap<Key, Version>,
    /// What went while it was watched without the server's selector: who comes back under such a name is said, too.
    former: HashSet<Key>,
    queue: VecDeque<Raw<S>>,
    mode: Mode,
    away: bool,
    /// How often in a row it was to no avail.
    attempts: u32,
    not_served: bool,
}

#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: BookmarkMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BookmarkMeta {
    resource_version: String,
}

fn key(id: &Id<'_>) -> Key {
    (id.namespace.map(Box::from), id.name.into())
}

fn gone<S>((namespace, name): Key, uid: Uid) -> Raw<S> {
    Raw::Gone { namespace: namespace.map(String::from), name: name.into(), uid }
}

impl<S: Shape> Watcher<S> {
    pub(super) fn new(cluster: Cluster, query: Query, known: Known) -> Self {
        let objects = known.objects.into_iter().map(|(namespace, name, uid)| {
            ((namespace.map(String::into_boxed_str), name.into_boxed_str()), Version { uid, resource_version: None })
        });
        Self {
            cluster,
            query,
            mode: if known.resource_version.is_some() { Mode::Connect } else { Mode::List },
            resource_version: known.resource_version.unwrap_or_default(),
            known: objects.collect(),
            former: HashSet::new(),
            queue: VecDeque::new(),
            away: false,
            attempts: 0,
            not_served: false,
        }
    }

    pub(super) async fn next(&mut self) -> Option<Raw<S>> {
        loop {
            if let Some(raw) = self.queue.pop_front() {
                return Some(raw);
            }
            if matches!(self.mode, Mode::End) {
                return None;
            }
            self.step().await;
        }
    }

    async fn step(&mut self) {
        match &mut self.mode {
            Mode::Connect => self.connect().await,
            Mode::List => self.list().await,
            Mode::Poll { .. } => self.poll().await,
            Mode::End => {}
            Mode::Stream { lines, bookmarks, .. } => {
                let idle = if *bookmarks { IDLE_WITH_BOOKMARKS } else { IDLE };
                match timeout(idle, lines.next()).await {
                    Ok(Ok(Some(line))) => {
                        // The line borrows from the mode, and what it says may change the mode.
                        let line = String::from_utf8_lossy(line).into_owned();
                        self.event(&line).await;
                    }
                    // The server ended it, or the connection broke: where it stopped is known.
                    Ok(Ok(None) | Err(_)) | Err(_) => self.ended().await,
                }
            }
        }
    }

    /// What happened since is not known: a list will tell.
    async fn expired(&mut self) {
        self.ended().await;
        self.mode = Mode::List;
    }

    async fn ended(&mut self) {
        let good = matches!(&self.mode, Mode::Stream { since, spoke, .. } if *spoke || since.elapsed() >= GOOD);
        self.mode = Mode::Connect;
        if good {
            self.attempts = 0;
        } else {
            self.attempts += 1;
            if self.attempts > 1 {
                sleep(self.cluster.backoff(self.attempts - 2)).await;
            }
        }
    }

    async fn connect(&mut self) {
        let field = match &self.query.select {
            Select::Names(names) if names.len() == 1 => format!("metadata.name={}", names[0]),
            _ => String::new(),
        };
        let labels = match &self.query.select {
            Select::Labels(selector) if self.own_label().is_none() => selector.as_str(),
            _ => "",
        };
        let parameters = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", SERVER_TIMEOUT),
            ("resourceVersion", self.resource_version.as_str()),
            ("labelSelector", labels),
            ("fieldSelector", field.as_str()),
        ];
        let url = path::collection(&self.query.resource, self.query.namespace.as_deref());
        let what = format!("watch {}", self.query.resource.kind);
        let call = Call::new(Verb::Watch, what, path::with(&url, &parameters)).accept(S::ITEM);
        match self.cluster.open(&call).await {
            Ok(body) => {
                self.came_back();
                let lines = Lines::new(body);
                self.mode = Mode::Stream { lines, since: Instant::now(), bookmarks: false, spoke: false };
            }
            Err(failure) => self.failed(failure).await,
        }
    }

    async fn list(&mut self) {
        match self.cluster.fetch::<S>(&self.query, false).await {
            Ok(found) => {
                self.came_back();
                self.compare(found.items).await;
                match found.resource_version {
                    Some(version) => {
                        self.resource_version = version;
                        self.mode = Mode::Connect;
                    }
                    None => self.poll_only(format!("listing {} is not permitted", self.query.resource.kind), true),
                }
            }
            Err(error) => self.failed(Failure::again(&self.cluster, error)).await,
        }
    }

    /// A watch or list that was refused or did not get through.
    async fn failed(&mut self, failure: Failure) {
        let not_served = failure.error.code() == Some(404) && !failure.is_transient();
        if not_served && self.not_served {
            return self.kind_gone();
        }
        self.not_served = not_served;
        if not_served {
            return sleep(CONFIRM).await;
        }
        if !failure.is_transient() {
            match failure.error.code() {
                Some(410) => return self.expired().await,
                // Not allowed, or a kind that cannot be watched.
                Some(403 | 405) => {
                    let reads = matches!(self.mode, Mode::List);
                    return self.poll_only(failure.error.to_string(), reads);
                }
                _ => {}
            }
        }
        self.went_away(&failure.error);
        let pause = failure.retry_after.unwrap_or_else(|| self.cluster.backoff(self.attempts));
        self.attempts += 1;
        sleep(pause).await;
    }

    fn went_away(&mut self, error: &Error) {
        if !self.away {
            self.away = true;
            self.queue.push_back(Raw::Away(error.to_string()));
        }
    }

    fn came_back(&mut self) {
        self.not_served = false;
        if self.away {
            self.away = false;
            self.queue.push_back(Raw::Back);
        }
    }

    fn poll_only(&mut self, message: String, reads: bool) {
        self.queue.push_back(Raw::PollOnly(message));
        self.mode = Mode::Poll { pause: POLL_MIN, reads };
    }

    fn kind_gone(&mut self) {
        for (key, version) in self.known.drain() {
            self.queue.push_back(gone(key, version.uid));
        }
        self.queue.push_back(Raw::KindGone);
        self.mode = Mode::End;
    }

    async fn event(&mut self, line: &str) {
        let Ok(event) = serde_json::from_str::<Event<'_>>(line) else {
            // Cut off, or not an event: begin anew from where it was clear.
            return self.ended().await;
        };
        match event.kind {
            "ERROR" => {
                let status = Status::event(event.object.get());
                if status.code == 410 {
                    self.expired().await;
                } else {
                    tracing::debug!(code = status.code, message = %status.message, "a watch ended with an error");
                    self.ended().await;
                }
                return;
            }
            "BOOKMARK" => {
                if let Ok(bookmark) = serde_json::from_str::<Bookmark>(event.object.get()) {
                    self.resource_version = bookmark.metadata.resource_version;
                }
                if let Mode::Stream { bookmarks, .. } = &mut self.mode {
                    *bookmarks = true;
                }
            }
            kind => {
                let Ok(object) = serde_json::from_str::<S>(event.object.get()) else {
                    // An object that cannot be read must not be missed either.
                    return self.expired().await;
                };
                self.resource_version = object.id().resource_version.to_owned();
                if kind == "DELETED" { self.deleted(object).await } else { self.present(object) }
            }
        }
        if let Mode::Stream { spoke, .. } = &mut self.mode {
            *spoke = true;
        }
    }

    /// The label that is looked at here and not by the server, if the query can be watched so.
    ///
    /// A watch with a label selector says DELETED also of an object that merely lost the label. Without a selector
    /// DELETED means gone; the price is the changes of other objects, so it is paid within one namespace only.
    fn own_label(&self) -> Option<(&str, &str)> {
        let Select::Labels(selector) = &self.query.select else { return None };
        let everywhere = self.query.resource.namespaced && self.query.namespace.is_none();
        let (label, value) = selector.split_once('=').filter(|_| S::TELLS_GONE && !everywhere)?;
        let plain = |text: &str| !text.contains(['=', ',', '!', ' ', '(']);
        (plain(label) && plain(value)).then_some((label, value))
    }

    fn is_meant(&self, object: &S) -> bool {
        let meta = object.meta();
        match (&self.query.select, self.own_label()) {
            (Select::Names(names), _) => names.contains(&meta.name),
            (_, Some((label, value))) => {
                let known = |key: Key| self.known.contains_key(&key) || self.former.contains(&key);
                meta.labels.get(label).is_some_and(|v| v == value) || known(key(&object.id()))
            }
            (Select::All | Select::Labels(_), None) => true,
        }
    }

    fn present(&mut self, object: S) {
        if !self.is_meant(&object) {
            return;
        }
        let id = object.id();
        let key = key(&id);
        let version = Version { uid: id.uid.clone(), resource_version: Some(id.resource_version.into()) };
        match self.known.get_mut(&key) {
            Some(known) => {
                let old = std::mem::replace(known, version);
                if old.uid != known.uid {
                    self.queue.push_back(gone(key, old.uid));
                }
            }
            None => {
                self.known.insert(key, version);
            }
        }
        self.queue.push_back(Raw::Present(object));
    }

    async fn deleted(&mut self, object: S) {
        if !self.is_meant(&object) {
            return;
        }
        let id = object.id();
        let (key, uid) = (key(&id), id.uid.clone());
        if self.known.get(&key).is_some_and(|known| known.uid == uid) {
            self.known.remove(&key);
        }
        // Whoever asked for its deletion may take a DELETED for what it says where nothing held the object.
        let sure = self.own_label().is_some() || object.meta().finalizers.is_empty() && self.cluster.was_asked(&uid);
        if self.own_label().is_some() {
            self.former.insert(key.clone());
        }
        let raw = if sure { gone(key, uid) } else { judge(&self.cluster, &self.query, key, uid).await };
        self.queue.push_back(raw);
    }

    /// Compares what a list shows with what is known.
    async fn compare(&mut self, items: Vec<S>) {
        let mut missing = std::mem::take(&mut self.known);
        for object in items {
            let id = object.id();
            let key = key(&id);
            match missing.remove(&key) {
                Some(old) if old.uid == *id.uid && old.resource_version.as_deref() == Some(id.resource_version) => {
                    self.known.insert(key, old);
                    continue;
                }
                Some(old) if old.uid == *id.uid => {}
                Some(old) => self.queue.push_back(gone(key, old.uid)),
                None => {}
            }
            self.present(object);
        }
        let (cluster, query) = (&self.cluster, &self.query);
        let judged = missing.into_iter().map(|(key, version)| judge(cluster, query, key, version.uid));
        let judged: Vec<_> = join_all(judged).await;
        self.queue.extend(judged);
    }

    /// Lists, or reads what is known one by one where listing is not permitted either.
    async fn poll(&mut self) {
        let Mode::Poll { pause, reads: mut only_reads } = self.mode else { return };
        sleep(pause).await;
        let before = self.queue.len();
        let found = if only_reads && !matches!(self.query.select, Select::Names(_)) {
            reads(&self.cluster, &self.query, &self.known).await
        } else {
            self.cluster.fetch::<S>(&self.query, false).await.map(|found| found.items)
        };
        match found {
            Ok(items) => {
                self.came_back();
                self.compare(items).await;
            }
            Err(error) if error.kind == ErrorKind::Forbidden && !only_reads => only_reads = true,
            Err(error) if error.kind == ErrorKind::NotServed => {
                if self.not_served {
                    return self.kind_gone();
                }
                self.not_served = true;
            }
            Err(error) => self.went_away(&error),
        }
        let pause = if self.queue.len() > before { POLL_MIN } else { pause.mul_f64(1.5).min(POLL_MAX) };
        self.mode = Mode::Poll { pause, reads: only_reads };
    }
}

/// Reads what is known one by one.
async fn reads<S: Shape>(cluster: &Cluster, query: &Query, known: &HashMap<Key, Version>) -> Result<Vec<S>, Error> {
    let reads = known
        .keys()
        .map(|(namespace, name)| cluster.fetch_one::<S>(&query.resource, namespace.as_deref(), name, false));
    Ok(futures::future::try_join_all(reads).await?.into_iter().flatten().collect())
}

/// Whether an object that a list or watch by labels does not show any more is gone: it may merely have lost them.
async fn judge<S: Shape>(cluster: &Cluster, query: &Query, key: Key, uid: Uid) -> Raw<S> {
    if matches!(query.select, Select::Labels(_)) {
        let read = cluster.fetch_one::<S>(&query.resource, key.0.as_deref(), &key.1, true).await;
        if let Ok(Some(object)) = read
            && *object.id().uid == uid
        {
            return Raw::Present(object);
        }
    }
    gone(key, uid)
}
