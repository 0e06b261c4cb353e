//! The driver of a watch: sends the requests of its [`Machine`] and feeds it the answers.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use billhook_plan::Query;
use futures::future::join_all;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    change::{Change, Known},
    check::{Checks, next_verdict},
    events::Events,
    machine::{Effect, Input, Machine, Pause, State},
    objects::Key,
};
use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::Shape,
    error::ErrorKind,
    list::{Found, PER_OBJECT},
    request::{Call, Failure},
    url,
    watch_slots::Poller,
};

/// After how many seconds the server ends a watch.
const SERVER_TIMEOUT: &str = "290";
/// How many objects are read at a time.
const READS: usize = 64;

pub(super) struct Driver<S> {
    cluster: Cluster,
    machine: Machine<S>,
    /// The open watch, while the machine is streaming.
    events: Option<Events>,
    /// The slot of a watch of metadata, from before it is opened.
    slot: Option<OwnedSemaphorePermit>,
    poller: Poller,
    checks: Checks<S>,
    /// What to do before the next request.
    effect: Option<Effect>,
    /// Where it tells whether the objects are known as they are now.
    current: Option<Arc<AtomicBool>>,
}

impl<S: Shape> Driver<S> {
    pub(super) fn new(cluster: &Cluster, query: &Query, known: Known) -> Self {
        let mut machine = Machine::new(query, known, Arc::clone(&cluster.inner.deletes));
        machine.objects.limit = cluster.inner.options.list_limit / PER_OBJECT;
        Self {
            machine,
            events: None,
            slot: None,
            poller: cluster.inner.watches.poller(),
            checks: Checks::new(),
            effect: None,
            current: None,
            cluster: cluster.clone(),
        }
    }

    /// Lets it tell whether the objects are known as they are now.
    pub(super) fn telling(self, current: Arc<AtomicBool>) -> Self {
        Self { current: Some(current), ..self }
    }

    /// Returns whether [`split`](Self::split) is to replace the watch.
    pub(super) fn is_split(&self) -> bool {
        matches!(self.machine.state(), State::Split)
    }

    /// Returns one watch for each namespace, and one that polls the namespaces for which no slot is free.
    pub(super) fn split(self) -> Vec<Self> {
        let Self { cluster, mut machine, checks, .. } = self;
        // A doubt that was not resolved is raised again by a list.
        let resumes = checks.is_empty() && machine.objects.doubts.is_empty();
        let version = Some(machine.resource_version().to_owned()).filter(|version| resumes && !version.is_empty());
        let mut objects = machine.objects.take_known();
        let mut known = |is_part: &dyn Fn(&str) -> bool| Known {
            resource_version: version.clone(),
            objects: objects.extract_if(.., |(namespace, ..)| namespace.as_deref().is_some_and(is_part)).collect(),
        };
        let query = &machine.query;
        let mut slots = cluster.inner.watches.slots(query.namespaces.len());
        let (watched, polled) = query.namespaces.split_at(slots.len());
        let watch = |namespace: &String| {
            let known = known(&|of| of == namespace);
            Self { slot: slots.pop(), ..Self::new(&cluster, &query.within(namespace), known) }
        };
        let mut parts: Vec<Self> = watched.iter().map(watch).collect();
        if !polled.is_empty() {
            let mut rest = Self::new(&cluster, &query.among(polled.to_vec()), known(&|_| true));
            rest.machine.poll(&machine.split_reason, Instant::now());
            parts.push(rest);
        }
        parts
    }

    /// Returns the next change; none when the kind is gone.
    pub(super) async fn next(&mut self) -> Option<Change<S>> {
        loop {
            // All changes are reported before a pause, which may be long if the server asked for it.
            if let Some(change) = self.machine.objects.changes.pop_front() {
                return Some(change);
            }
            if let (Some(current), Some(is_current)) = (&self.current, self.machine.is_current()) {
                current.store(is_current, Ordering::Relaxed);
            }
            if matches!(self.machine.state(), State::Ended | State::Split) {
                return None;
            }
            let input = match self.effect.take() {
                None => self.step().await,
                Some(Effect::Discover(error)) => {
                    Input::Discovered(self.cluster.why_not_served(&self.machine.query.resource, error).await)
                }
                Some(Effect::CancelChecks(pause)) => {
                    self.checks.clear();
                    self.effect = Some(Effect::Pause(pause));
                    continue;
                }
                Some(Effect::Pause(pause)) => {
                    sleep(match pause {
                        Pause::For(duration) => duration,
                        Pause::Backoff(attempt) => self.cluster.backoff(attempt),
                    })
                    .await;
                    continue;
                }
            };
            self.effect = self.machine.on(input, Instant::now());
            if !matches!(self.machine.state(), State::Streaming { .. }) {
                self.events = None;
            }
            if matches!(self.machine.state(), State::Polling { .. }) {
                self.slot = None;
            } else {
                self.poller.pause(0);
            }
        }
    }

    /// Sends the request of the machine's state. Pending checks come first, unless an open watch can continue meanwhile:
    /// every doubt is resolved before the next list is compared.
    async fn step(&mut self) -> Input<S> {
        let Self { cluster, machine, events, checks, .. } = self;
        let idle = machine.idle_limit();
        let verdict = next_verdict(checks, &mut machine.objects.doubts, cluster, &machine.query);
        if let Some(events) = events {
            return tokio::select! {
                biased;
                Some(verdict) = verdict => Input::Checked(verdict),
                event = timeout(idle, events.next()) => match event {
                    Ok(Ok(Some(event))) => Input::Event(event),
                    Ok(Ok(None) | Err(_)) | Err(_) => Input::Closed,
                },
            };
        }
        if let Some(verdict) = verdict.await {
            return Input::Checked(verdict);
        }
        match self.machine.state() {
            State::Connecting => self.open().await,
            State::Polling { .. } => self.poll().await,
            State::Streaming { .. } | State::Split | State::Ended => Input::Closed,
            State::Listing => match self.cluster.fetch(&self.machine.query, false).await {
                Ok(found) => Input::Listed(found),
                Err(error) => Input::Failed(Failure::of(&self.cluster, error)),
            },
        }
    }

    async fn open(&mut self) -> Input<S> {
        if S::PROVES_GONE && self.slot.is_none() {
            self.slot = self.cluster.inner.watches.slot();
            if self.slot.is_none() {
                return Input::NoSlot;
            }
        }
        let resource = &self.machine.query.resource;
        let (labels, fields) = self.machine.objects.selectors();
        let parameters = [
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", SERVER_TIMEOUT),
            ("resourceVersion", self.machine.resource_version()),
            ("labelSelector", labels),
            ("fieldSelector", fields.as_str()),
        ];
        let url = url::with_query(&url::collection(resource, self.machine.query.namespace.as_deref()), &parameters);
        let call = Call::new(Verb::Watch, format!("watch {}", resource.kind), url).accept(S::ITEM);
        match self.cluster.open(&call).await {
            Ok(body) => {
                self.events = Some(Events::new(body, self.cluster.inner.options.answer_limit));
                Input::Opened
            }
            Err(failure) => Input::Failed(failure),
        }
    }

    async fn poll(&mut self) -> Input<S> {
        let now = Instant::now();
        let requests = if self.machine.polls_by_reads(now) { self.machine.objects.keys().len() } else { 1 };
        sleep_until(self.machine.poll_at(now).max(now + self.poller.pause(requests))).await;
        let by_reads = self.machine.polls_by_reads(Instant::now());
        if by_reads {
            return self.read_known().await;
        }
        Input::Polled { by_reads, found: self.cluster.fetch(&self.machine.query, false).await, unread: Vec::new() }
    }

    /// Reads the known objects one by one. One that may not be read does not hide what became of the others.
    async fn read_known(&mut self) -> Input<S> {
        let (resource, mut items, mut unread) = (&self.machine.query.resource, Vec::new(), Vec::new());
        let keys: Vec<_> = self.machine.objects.keys().collect();
        for keys in keys.chunks(READS) {
            let reads = keys.iter().map(|key| {
                let (namespace, name): &Key = key;
                self.cluster.fetch_one::<S>(resource, namespace.as_deref(), name, false)
            });
            for (key, read) in keys.iter().zip(join_all(reads).await) {
                match read {
                    Ok(found) => items.extend(found),
                    Err(error) if *error.kind() == ErrorKind::Forbidden => unread.push(((*key).clone(), error)),
                    Err(error) => return Input::Polled { by_reads: true, found: Err(error), unread: Vec::new() },
                }
            }
        }
        Input::Polled { by_reads: true, found: Ok(Found { resource_version: None, items }), unread }
    }
}
