//! The driver of a watch: sends the requests of its [`Machine`] and feeds it the answers.

use std::sync::Arc;

use billhook_plan::Query;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{
    change::{Change, Known},
    check::{Checks, next_verdict},
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
    /// What to do before the next request.
    effect: Option<Effect>,
}

impl<S: Shape> Driver<S> {
    pub(super) fn new(cluster: &Cluster, query: &Query, known: Known) -> Self {
        let machine = Machine::new(query, known, Arc::clone(&cluster.inner.deletes));
        Self { cluster: cluster.clone(), machine, events: None, checks: Checks::new(), effect: None }
    }

    /// Returns the next change; none when the kind is gone.
    pub(super) async fn next(&mut self) -> Option<Change<S>> {
        loop {
            // All changes are reported before a pause, which may be long if the server asked for it.
            if let Some(change) = self.machine.objects.changes.pop_front() {
                return Some(change);
            }
            if self.machine.state() == State::Ended {
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
        let by_reads = self.machine.polls_by_reads(Instant::now());
        let found =
            if by_reads { self.read_known().await } else { self.cluster.fetch(&self.machine.query, false).await };
        Input::Polled { by_reads, found }
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
