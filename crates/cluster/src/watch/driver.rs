//! The driver of a watch: sends the requests of its [`Machine`] and feeds it the answers.

use std::sync::Arc;

use billhook_plan::Query;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    change::{Change, Known},
    check::Checks,
    events::Events,
    machine::{Effect, Input, Machine, Pause, State},
};
use crate::{
    cluster::Cluster,
    counts::Verb,
    decode::Shape,
    error::Error,
    list::Found,
    request::{Call, Failure},
    url,
};

/// After how many seconds the server ends a watch.
const SERVER_TIMEOUT: &str = "290";

pub(super) struct Driver<S> {
    cluster: Cluster,
    machine: Machine<S>,
    /// The open watch, while the machine is streaming.
    events: Option<Events>,
    checks: Checks<S>,
}

impl<S: Shape> Driver<S> {
    pub(super) fn new(cluster: &Cluster, query: &Query, known: Known) -> Self {
        let machine = Machine::new(query, known, Arc::clone(&cluster.inner.deletes));
        Self { cluster: cluster.clone(), machine, events: None, checks: Checks::new() }
    }

    /// Returns the next change; none when the kind is gone.
    pub(super) async fn next(&mut self) -> Option<Change<S>> {
        loop {
            if let Some(change) = self.machine.objects.changes.pop_front() {
                return Some(change);
            }
            if self.machine.state() == State::Ended {
                return None;
            }
            let input = self.step().await;
            self.feed(input).await;
        }
    }

    async fn feed(&mut self, mut input: Input<S>) {
        loop {
            let effect = self.machine.on(input, Instant::now());
            if !matches!(self.machine.state(), State::Streaming { .. }) {
                self.events = None;
            }
            match effect {
                None => return,
                Some(Effect::Pause(pause)) => return self.pause(pause).await,
                Some(Effect::CancelChecks(pause)) => {
                    self.checks.clear();
                    return self.pause(pause).await;
                }
                Some(Effect::Discover(error)) => {
                    let reason = self.cluster.why_not_served(&self.machine.query.resource, error).await;
                    input = Input::Discovered(reason);
                }
            }
        }
    }

    async fn pause(&mut self, pause: Pause) {
        sleep(match pause {
            Pause::For(duration) => duration,
            Pause::Backoff(attempt) => self.cluster.backoff(attempt),
        })
        .await;
    }

    /// Sends the request of the machine's state. Pending checks come first, unless an open watch can continue meanwhile:
    /// every doubt is resolved before the next list is compared.
    async fn step(&mut self) -> Input<S> {
        let Self { cluster, machine: Machine { query, objects, .. }, events, checks } = self;
        let in_doubt = !(objects.doubts.is_empty() && checks.is_empty());
        if let Some(events) = events {
            let idle = self.machine.idle_limit();
            let doubts = &mut self.machine.objects.doubts;
            let event = tokio::select! {
                biased;
                Some(verdict) = checks.next(doubts, cluster, &self.machine.query), if in_doubt => {
                    return Input::Checked(verdict);
                }
                event = timeout(idle, events.next()) => event,
            };
            return match event {
                Ok(Ok(Some(event))) => Input::Event(event),
                Ok(Ok(None) | Err(_)) | Err(_) => Input::Closed,
            };
        }
        if let Some(verdict) = checks.next(&mut objects.doubts, cluster, query).await {
            return Input::Checked(verdict);
        }
        match self.machine.state() {
            State::Connecting => self.open().await,
            State::Polling { .. } => self.poll().await,
            State::Streaming { .. } | State::Ended => Input::Closed,
            State::Listing => match self.cluster.fetch(&self.machine.query, false).await {
                Ok(found) => Input::Listed(found),
                Err(error) => Input::Failed(Failure::of(&self.cluster, error)),
            },
        }
    }

    async fn open(&mut self) -> Input<S> {
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
                self.events = Some(Events::new(body));
                Input::Opened
            }
            Err(failure) => Input::Failed(failure),
        }
    }

    async fn poll(&mut self) -> Input<S> {
        sleep_until(self.machine.poll_at(Instant::now())).await;
        let poll = self.machine.poll(Instant::now());
        let found =
            if poll.by_reads { self.read_known().await } else { self.cluster.fetch(&self.machine.query, false).await };
        Input::Polled(poll, found)
    }

    /// Reads the known objects one by one.
    async fn read_known(&mut self) -> Result<Found<S>, Error> {
        let reads = self.machine.objects.keys().map(|(namespace, name)| {
            self.cluster.fetch_one::<S>(&self.machine.query.resource, namespace.as_deref(), name, false)
        });
        let items = futures::future::try_join_all(reads).await?.into_iter().flatten().collect();
        Ok(Found { resource_version: None, items })
    }
}
