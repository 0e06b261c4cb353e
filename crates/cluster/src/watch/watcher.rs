//! The state of one watch.

mod objects;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    time::Duration,
};

use billhook_objects::Uid;
use billhook_plan::{Query, Select};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{Known, judge::Judge, lines::Lines};
use crate::{
    cluster::Cluster,
    error::{Error, ErrorKind, Status},
    fetch::Found,
    gone::Missing,
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
/// So many 404 in a row are an outage where discovery still knows the kind.
const LAG: u32 = 5;
const POLL_MIN: Duration = Duration::from_millis(200);
const POLL_MAX: Duration = Duration::from_secs(2);
/// The first and the longest pause before that is tried again which is not permitted: somebody may grant it.
const REFUSED_MIN: Duration = Duration::from_secs(1);
const REFUSED_MAX: Duration = Duration::from_secs(30);

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
pub(super) type Key = (Option<Box<str>>, Box<str>);

/// A list or watch that is not permitted.
struct Refused {
    /// When it is tried again.
    again: Instant,
    pause: Duration,
}

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
    /// There until a watch is opened that was not permitted before.
    refused: Option<Refused>,
    /// How often in a row it was to no avail.
    attempts: u32,
    /// How often in a row a 404 was said of the kind.
    not_served: u32,
    judge: Judge<S>,
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
    pub(super) fn new(cluster: Cluster, mut query: Query, known: Known) -> Self {
        if let Select::Names(names) = &mut query.select {
            // They are sorted already; a binary search relies on it.
            names.sort_unstable();
        }
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
            refused: None,
            attempts: 0,
            not_served: 0,
            judge: Judge::new(),
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
        if !matches!(self.mode, Mode::Stream { .. })
            && let Some(verdict) = self.judge.next(&self.cluster, &self.query).await
        {
            // No watch goes on meanwhile. What was in doubt is settled before the next list is compared.
            return self.settle(verdict).await;
        }
        match &mut self.mode {
            Mode::Connect => self.connect().await,
            Mode::List => self.list().await,
            Mode::Poll { .. } => self.poll().await,
            Mode::End => {}
            Mode::Stream { lines, bookmarks, .. } => {
                let idle = if *bookmarks { IDLE_WITH_BOOKMARKS } else { IDLE };
                let judging = !self.judge.is_idle();
                let line = tokio::select! {
                    biased;
                    Some(verdict) = self.judge.next(&self.cluster, &self.query), if judging => {
                        return self.settle(verdict).await;
                    }
                    line = timeout(idle, lines.next()) => line,
                };
                match line {
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
                // Who was told that lists take the place of the watch is told that they do so no longer.
                self.away |= self.refused.take().is_some();
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
                self.compare(found.items);
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
        if not_served && self.not_served > 0 {
            return self.unserved(failure.error).await;
        }
        self.not_served = u32::from(not_served);
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
        let pause = failure.error.retry_after.unwrap_or_else(|| self.cluster.backoff(self.attempts));
        self.attempts += 1;
        sleep(pause).await;
    }

    /// A list or watch answered 404 twice: the kind is gone, or is served in another version, or neither is true.
    async fn unserved(&mut self, error: Error) {
        match self.cluster.missing(&self.query.resource, error).await {
            Missing::Kind => {
                self.came_back();
                self.kind_gone();
            }
            Missing::Elsewhere(version) => {
                self.query.resource.version = version;
                self.not_served = 0;
                if !matches!(self.mode, Mode::Poll { .. }) {
                    self.mode = Mode::List;
                }
            }
            // The list of kinds may lag behind a CRD that went.
            Missing::Unclear(_) if self.not_served < LAG => {
                self.not_served += 1;
                sleep(CONFIRM).await;
            }
            Missing::Unclear(error) => {
                self.went_away(&error);
                let pause = self.cluster.backoff(self.attempts);
                self.attempts += 1;
                sleep(pause).await;
            }
        }
    }

    fn went_away(&mut self, error: &Error) {
        if !self.away {
            self.away = true;
            self.queue.push_back(Raw::Away(error.to_string()));
        }
    }

    fn came_back(&mut self) {
        self.not_served = 0;
        if self.away {
            self.away = false;
            self.queue.push_back(Raw::Back);
        }
    }

    fn poll_only(&mut self, message: String, reads: bool) {
        let pause = if self.refused.is_none() {
            self.queue.push_back(Raw::PollOnly(message));
            POLL_MIN
        } else {
            POLL_MAX
        };
        self.put_off();
        self.mode = Mode::Poll { pause, reads };
    }

    /// What is not permitted is tried again after a pause, longer each time.
    fn put_off(&mut self) {
        let pause = self.refused.as_ref().map_or(REFUSED_MIN, |refused| (refused.pause * 2).min(REFUSED_MAX));
        self.refused = Some(Refused { again: Instant::now() + pause, pause });
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
                if kind == "DELETED" { self.deleted(&object) } else { self.present(object) }
            }
        }
        if let Mode::Stream { spoke, .. } = &mut self.mode {
            *spoke = true;
        }
    }

    /// Lists, or reads what is known one by one where listing is not permitted either. Now and then the list, and with
    /// it the watch, is tried again.
    async fn poll(&mut self) {
        let Mode::Poll { pause, reads } = self.mode else { return };
        let named = matches!(self.query.select, Select::Names(_));
        match &self.refused {
            // Who wants to know what is there learns little from single reads of what was there.
            Some(refused) if reads && !named && !S::TELLS_GONE => sleep_until(refused.again).await,
            _ => sleep(pause).await,
        }
        let due = self.refused.as_ref().is_none_or(|refused| refused.again <= Instant::now());
        let singly = reads && !named && !due;
        let found = if singly { self.read_known().await } else { self.cluster.fetch::<S>(&self.query, false).await };
        let before = self.queue.len();
        let mut reads = reads;
        match found {
            Ok(found) => {
                self.came_back();
                self.compare(found.items);
                reads = found.resource_version.is_none();
                if due && let Some(version) = found.resource_version {
                    self.resource_version = version;
                    self.mode = Mode::Connect;
                    return;
                }
            }
            Err(error) if error.kind == ErrorKind::Forbidden && !singly && !named => {
                reads = true;
                self.put_off();
            }
            Err(error) if error.kind == ErrorKind::NotServed => {
                if self.not_served > 0 {
                    return self.unserved(error).await;
                }
                self.not_served = 1;
            }
            Err(error) => self.went_away(&error),
        }
        let pause = if self.queue.len() > before { POLL_MIN } else { pause.mul_f64(1.5).min(POLL_MAX) };
        self.mode = Mode::Poll { pause, reads };
    }

    /// Reads what is known one by one.
    async fn read_known(&mut self) -> Result<Found<S>, Error> {
        let reads = self.known.keys().map(|(namespace, name)| {
            self.cluster.fetch_one::<S>(&self.query.resource, namespace.as_deref(), name, false)
        });
        let items = futures::future::try_join_all(reads).await?.into_iter().flatten().collect();
        Ok(Found { resource_version: None, items })
    }
}
