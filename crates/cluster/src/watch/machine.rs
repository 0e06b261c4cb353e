//! The state machine of a watch: decides without I/O what an answer means, what to report, and which request is next.

use std::{collections::HashSet, sync::Arc, time::Duration};

use billhook_plan::{Query, Select};
use tokio::time::Instant;

use super::{
    change::{Change, Known},
    events::Event,
    objects::{Key, Objects, Verdict},
};
use crate::{
    decode::Shape,
    error::{Error, ErrorKind},
    list::Found,
    not_found::NotServed,
    recent_deletes::RecentDeletes,
    request::Failure,
};

/// How long a watch may be silent: longer than the server keeps it open.
const IDLE: Duration = Duration::from_secs(310);
/// The same if the server sends bookmarks, which it does about once a minute.
const IDLE_WITH_BOOKMARKS: Duration = Duration::from_secs(130);
/// A watch that lived this long, or had an event, was healthy: the next one may be opened at once.
const HEALTHY: Duration = Duration::from_secs(5);
/// A 404 is confirmed by a second one after this pause: an API server may lag behind another one that served the kind.
const CONFIRM: Duration = Duration::from_millis(200);
/// This many 404s in a row are an outage if discovery still lists the kind.
const MAX_NOT_FOUND: u32 = 5;
const POLL_MIN: Duration = Duration::from_millis(200);
const POLL_MAX: Duration = Duration::from_secs(2);
/// The first and the longest pause before a forbidden request is retried: an administrator may grant the right.
const FORBIDDEN_MIN: Duration = Duration::from_secs(1);
const FORBIDDEN_MAX: Duration = Duration::from_secs(30);

/// What a watch is doing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum State {
    /// Opens a watch at the known `resourceVersion`.
    Connecting,
    /// Reads events.
    Streaming {
        since: Instant,
        /// Whether the server sends bookmarks.
        bookmarks: bool,
        /// Whether there was any event.
        heard: bool,
    },
    /// Lists, because changes may have been missed.
    Listing,
    /// Lists or reads at intervals, because watching is forbidden.
    Polling {
        /// The pause before the next poll.
        pause: Duration,
        /// Whether listing is forbidden, too.
        list_forbidden: bool,
    },
    /// One watch for each namespace of the query replaces this one, which is forbidden.
    Split,
    /// The kind is gone.
    Ended,
}

/// The outcome of what the driver did.
pub(super) enum Input<S> {
    Opened,
    Event(Event<S>),
    /// Too many watches are open already.
    NoSlot,
    /// The server ended the watch, the connection broke, or nothing arrived for too long.
    Closed,
    Listed(Found<S>),
    /// A list failed, or a watch could not be opened.
    Failed(Failure),
    /// A poll was answered or failed; `by_reads` if it read the known objects one by one instead of listing. The `unread`
    /// ones may not be read.
    Polled {
        by_reads: bool,
        found: Result<Found<S>, Error>,
        unread: Vec<(Key, Error)>,
    },
    /// Discovery has explained a 404.
    Discovered(NotServed),
    Checked(Verdict<S>),
}

/// What the driver does before the next request of the state.
#[derive(Debug)]
pub(super) enum Effect {
    Pause(Pause),
    /// Cancels the checks in flight, whose doubts a list will raise again, and pauses.
    CancelChecks(Pause),
    /// Asks discovery for the reason of a 404.
    Discover(Error),
}

#[derive(Debug, PartialEq)]
pub(super) enum Pause {
    For(Duration),
    /// With jitter, longer with each attempt.
    Backoff(u32),
}

/// When a forbidden list or watch is retried.
#[derive(Clone, Copy)]
struct Forbidden {
    retry_at: Instant,
    pause: Duration,
}

/// A watch of the objects of one query.
pub(super) struct Machine<S> {
    pub(super) query: Query,
    pub(super) objects: Objects<S>,
    state: State,
    /// Where the watch continues.
    resource_version: String,
    /// Whether an outage was reported.
    away: bool,
    /// Set until a watch is opened again.
    forbidden: Option<Forbidden>,
    /// What was reported since then to be forbidden.
    reported: HashSet<String>,
    /// Whether the watch is replaced by one for each namespace of the query where it is forbidden.
    splits: bool,
    /// Why it was replaced.
    pub(super) split_reason: String,
    /// Consecutive failures.
    failures: u32,
    /// Consecutive 404s for the kind.
    not_found: u32,
}

impl<S: Shape> Machine<S> {
    pub(super) fn new(query: &Query, mut known: Known, deletes: Arc<RecentDeletes>) -> Self {
        let resource_version = known.resource_version.take();
        Self {
            state: if resource_version.is_some() { State::Connecting } else { State::Listing },
            resource_version: resource_version.unwrap_or_default(),
            objects: Objects::new(query, known, deletes),
            query: query.clone(),
            away: false,
            forbidden: None,
            reported: HashSet::new(),
            splits: !query.namespaces.is_empty(),
            split_reason: String::new(),
            failures: 0,
            not_found: 0,
        }
    }

    pub(super) fn state(&self) -> State {
        self.state
    }

    pub(super) fn resource_version(&self) -> &str {
        &self.resource_version
    }

    /// Returns whether the objects are known as they are now; none while that is open, such as between two watches.
    pub(super) fn is_current(&self) -> Option<bool> {
        match self.state {
            State::Streaming { .. } => Some(true),
            State::Ended => Some(false),
            _ if self.away || self.forbidden.is_some() => Some(false),
            _ => None,
        }
    }

    /// Returns how long a silent watch is kept open.
    pub(super) fn idle_limit(&self) -> Duration {
        match self.state {
            State::Streaming { bookmarks: true, .. } => IDLE_WITH_BOOKMARKS,
            _ => IDLE,
        }
    }

    /// Returns when the next poll is due.
    pub(super) fn poll_at(&self, now: Instant) -> Instant {
        match (self.state, self.forbidden) {
            // Single reads find no new objects, so they are useless to a caller that wants all objects.
            (State::Polling { list_forbidden: true, .. }, Some(forbidden))
                if !self.is_named() && !S::PROVES_GONE && self.query.namespaces.is_empty() =>
            {
                forbidden.retry_at
            }
            (State::Polling { pause, .. }, _) => now + pause,
            _ => now,
        }
    }

    /// Returns whether to poll by reading the known objects one by one instead of listing, which takes a request for each
    /// of the query's namespaces or for each name.
    pub(super) fn polls_by_reads(&self, now: Instant) -> bool {
        let State::Polling { list_forbidden, .. } = self.state else { return false };
        let lists_much = !self.query.namespaces.is_empty() || (list_forbidden && !self.is_named());
        lists_much && !self.is_retry_due(now)
    }

    /// Polls from the start, because the watch is forbidden.
    pub(super) fn poll(&mut self, reason: &str, now: Instant) {
        self.splits = false;
        self.fall_back(reason.to_owned(), false, now);
    }

    fn is_retry_due(&self, now: Instant) -> bool {
        self.forbidden.is_none_or(|forbidden| forbidden.retry_at <= now)
    }

    fn is_named(&self) -> bool {
        matches!(self.query.select, Select::Names(_) | Select::Reads(_) | Select::Objects(_))
    }

    /// Handles an input: changes the state, and adds changes and doubts to [`objects`](Self::objects).
    pub(super) fn on(&mut self, input: Input<S>, now: Instant) -> Option<Effect> {
        match input {
            Input::Opened => {
                // PollOnly was reported, so Back must be reported, too.
                self.away |= self.forbidden.take().is_some();
                self.reported.clear();
                self.answered();
                self.state = State::Streaming { since: now, bookmarks: false, heard: false };
                None
            }
            Input::Event(event) => self.event(event, now),
            Input::Closed => self.closed(State::Connecting, now),
            Input::NoSlot => {
                self.postpone_retry(now);
                self.state = State::Polling { pause: POLL_MAX, list_forbidden: false };
                None
            }
            Input::Listed(found) => {
                self.answered();
                self.objects.listed(found.items);
                match found.resource_version {
                    Some(version) => self.connect(version),
                    None => self.fall_back(format!("listing {} is not permitted", self.query.resource.kind), true, now),
                }
                None
            }
            Input::Failed(failure) => self.failed(failure, now),
            Input::Polled { by_reads, found, unread } => self.polled(by_reads, found, unread, now),
            Input::Discovered(reason) => self.discovered(reason),
            Input::Checked(verdict) => {
                // Nothing proves that the object is gone: it remains known, and a list will raise the doubt again.
                let error = self.objects.checked(verdict).err()?;
                tracing::debug!(%error, "cannot tell yet whether an object is gone");
                self.objects.doubts.clear();
                if !matches!(self.state, State::Polling { .. }) {
                    self.state = State::Listing;
                }
                Some(Effect::CancelChecks(self.next_pause(error.retry_after())))
            }
        }
    }

    fn event(&mut self, event: Event<S>, now: Instant) -> Option<Effect> {
        match event {
            Event::Present(object) => {
                object.id().resource_version.clone_into(&mut self.resource_version);
                self.objects.present(object);
            }
            Event::Deleted(object) => {
                object.id().resource_version.clone_into(&mut self.resource_version);
                self.objects.deleted(&object);
            }
            Event::Bookmark(version) => {
                if let Some(version) = version {
                    self.resource_version = version;
                }
                if let State::Streaming { bookmarks, .. } = &mut self.state {
                    *bookmarks = true;
                }
            }
            Event::Error(status) if status.code == 410 => return self.closed(State::Listing, now),
            Event::Error(status) => {
                tracing::debug!(code = status.code, message = %status.message, "a watch ended with an error");
                return self.closed(State::Connecting, now);
            }
            // The list shows what the object is now.
            Event::UnreadableObject => return self.closed(State::Listing, now),
            Event::Garbage => return self.closed(State::Connecting, now),
        }
        if let State::Streaming { heard, .. } = &mut self.state {
            *heard = true;
        }
        None
    }

    /// Ends a watch; the second unhealthy one in a row, and each after it, is followed by a pause.
    fn closed(&mut self, next: State, now: Instant) -> Option<Effect> {
        let healthy = matches!(self.state, State::Streaming { since, heard, .. } if heard || now - since >= HEALTHY);
        self.state = next;
        if healthy {
            self.failures = 0;
            return None;
        }
        self.failures += 1;
        (self.failures > 1).then(|| Effect::Pause(Pause::Backoff(self.failures - 2)))
    }

    fn connect(&mut self, resource_version: String) {
        self.resource_version = resource_version;
        self.state = State::Connecting;
    }

    fn failed(&mut self, failure: Failure, now: Instant) -> Option<Effect> {
        let is_transient = failure.is_transient();
        let code = failure.error.code().filter(|_| !is_transient);
        if code == Some(404) {
            return Some(self.kind_not_found(failure.error));
        }
        self.not_found = 0;
        match code {
            Some(410) => self.closed(State::Listing, now),
            // Forbidden, or a kind that does not support watches.
            Some(403 | 405) => {
                let list_forbidden = self.state == State::Listing;
                self.splits &= code == Some(403);
                self.fall_back(failure.error.to_string(), list_forbidden, now);
                None
            }
            _ => {
                self.report_away(&failure.error);
                Some(Effect::Pause(self.next_pause(failure.error.retry_after())))
            }
        }
    }

    /// Handles a 404 for the kind: the first one is retried after a pause, the next ones are explained by discovery.
    fn kind_not_found(&mut self, error: Error) -> Effect {
        if self.not_found > 0 {
            return Effect::Discover(error);
        }
        self.not_found = 1;
        Effect::Pause(Pause::For(CONFIRM))
    }

    fn discovered(&mut self, reason: NotServed) -> Option<Effect> {
        match reason {
            NotServed::Anywhere => {
                self.answered();
                self.objects.all_gone();
                self.objects.changes.push_back(Change::KindGone);
                self.state = State::Ended;
                None
            }
            NotServed::InThisVersion { other } => {
                self.query.resource.version = other;
                self.not_found = 0;
                if !matches!(self.state, State::Polling { .. }) {
                    self.state = State::Listing;
                }
                None
            }
            // Discovery may lag behind the deletion of a CRD.
            NotServed::Unclear(_) if self.not_found < MAX_NOT_FOUND => {
                self.not_found += 1;
                Some(Effect::Pause(Pause::For(CONFIRM)))
            }
            NotServed::Unclear(error) => {
                self.report_away(&error);
                Some(Effect::Pause(self.next_pause(None)))
            }
        }
    }

    fn polled(
        &mut self,
        by_reads: bool,
        found: Result<Found<S>, Error>,
        unread: Vec<(Key, Error)>,
        now: Instant,
    ) -> Option<Effect> {
        let State::Polling { pause, mut list_forbidden } = self.state else { return None };
        match found {
            Ok(found) => {
                self.answered();
                if let Some((_, error)) = unread.first() {
                    self.report_poll_only(error.to_string());
                }
                self.objects.read(found.items, unread.iter().map(|(key, _)| key));
                list_forbidden = found.resource_version.is_none();
                if let Some(version) = found.resource_version.filter(|_| self.is_retry_due(now)) {
                    self.connect(version);
                    return None;
                }
            }
            Err(error) if *error.kind() == ErrorKind::Forbidden && !by_reads && !self.is_named() => {
                self.report_poll_only(error.to_string());
                list_forbidden = true;
                self.postpone_retry(now);
            }
            Err(error) if *error.kind() == ErrorKind::NotServed => return Some(self.kind_not_found(error)),
            Err(error) => self.report_away(&error),
        }
        let slower = pause.mul_f64(1.5).min(POLL_MAX);
        let pause = if self.objects.changes.is_empty() { slower } else { POLL_MIN };
        self.state = State::Polling { pause, list_forbidden };
        None
    }

    /// Replaces the forbidden watch by one for each namespace, or by polling.
    fn fall_back(&mut self, message: String, list_forbidden: bool, now: Instant) {
        if self.splits {
            self.answered();
            (self.split_reason, self.state) = (message, State::Split);
            return;
        }
        let pause = if self.forbidden.is_none() { POLL_MIN } else { POLL_MAX };
        self.report_poll_only(message);
        self.postpone_retry(now);
        self.state = State::Polling { pause, list_forbidden };
    }

    /// Postpones the retry of a forbidden request, longer each time.
    fn postpone_retry(&mut self, now: Instant) {
        let pause = self.forbidden.map_or(FORBIDDEN_MIN, |forbidden| (forbidden.pause * 2).min(FORBIDDEN_MAX));
        self.forbidden = Some(Forbidden { retry_at: now + pause, pause });
    }

    fn next_pause(&mut self, retry_after: Option<Duration>) -> Pause {
        let attempt = self.failures;
        self.failures += 1;
        retry_after.map_or(Pause::Backoff(attempt), Pause::For)
    }

    /// Reports once that a right is missing, to watch or even to poll.
    fn report_poll_only(&mut self, message: String) {
        if self.reported.insert(message.clone()) {
            self.objects.changes.push_back(Change::PollOnly(message));
        }
    }

    fn report_away(&mut self, error: &Error) {
        if !self.away {
            self.away = true;
            self.objects.changes.push_back(Change::Away(error.to_string()));
        }
    }

    fn answered(&mut self) {
        self.not_found = 0;
        if self.away {
            self.away = false;
            self.objects.changes.push_back(Change::Back);
        }
    }
}

#[cfg(test)]
mod tests {
    use billhook_objects::{GroupKind, Uid};
    use billhook_plan::Resource;

    use super::*;
    use crate::{decode::Meta, error::Status};

    fn machine(select: Select) -> Machine<Meta> {
        let kind = GroupKind::new("", "ConfigMap");
        let resource = Resource { kind, version: "v1".into(), plural: "configmaps".into(), namespaced: true };
        let namespace = Some("a".to_owned());
        let query = Query { cluster: None, resource, namespace, select, namespaces: Vec::new() };
        let objects = vec![(Some("a".to_owned()), "x".to_owned(), Uid::new("1"))];
        let known = Known { resource_version: Some("10".into()), objects };
        Machine::new(&query, known, Arc::new(RecentDeletes::new()))
    }

    fn failure(code: u16) -> Failure {
        Failure::from(Error::answered("watch it", Status { code, ..Status::default() }))
    }

    fn pause(effect: Option<Effect>) -> Option<Pause> {
        effect.map(|effect| if let Effect::Pause(pause) = effect { pause } else { panic!("{effect:?}") })
    }

    #[test]
    fn only_a_healthy_watch_is_reopened_without_a_pause() {
        let (mut machine, start) = (machine(Select::All), Instant::now());
        for (lived, expected) in [(0, None), (0, Some(Pause::Backoff(0))), (0, Some(Pause::Backoff(1))), (5, None)] {
            assert!(machine.on(Input::Opened, start).is_none());
            assert_eq!(pause(machine.on(Input::Closed, start + Duration::from_secs(lived))), expected);
            assert_eq!(machine.state(), State::Connecting);
        }
        machine.on(Input::Opened, start);
        machine.on(Input::Event(Event::Bookmark(Some("12".into()))), start);
        assert_eq!((machine.resource_version(), machine.idle_limit()), ("12", IDLE_WITH_BOOKMARKS));
        assert!(machine.on(Input::Closed, start).is_none(), "it had an event");
    }

    #[test]
    fn a_repeated_404_is_explained_by_discovery() {
        let (mut machine, now) = (machine(Select::All), Instant::now());
        let unclear = || Input::Discovered(NotServed::Unclear(failure(404).error));
        assert_eq!(pause(machine.on(Input::Failed(failure(404)), now)), Some(Pause::For(CONFIRM)));
        assert!(matches!(machine.on(Input::Failed(failure(404)), now), Some(Effect::Discover(_))));
        for _ in 1..MAX_NOT_FOUND {
            assert_eq!(pause(machine.on(unclear(), now)), Some(Pause::For(CONFIRM)));
        }
        assert_eq!(pause(machine.on(unclear(), now)), Some(Pause::Backoff(0)));
        assert!(matches!(machine.objects.changes.pop_front(), Some(Change::Away(_))));
        assert!(machine.on(Input::Discovered(NotServed::Anywhere), now).is_none());
        let changes: Vec<_> = machine.objects.changes.drain(..).collect();
        assert!(matches!(&changes[..], [Change::Back, Change::Gone { .. }, Change::KindGone]), "{changes:?}");
        assert_eq!(machine.state(), State::Ended);
    }

    #[test]
    fn a_forbidden_watch_is_replaced_by_polls_until_its_retry_is_due() {
        let (mut machine, start) = (machine(Select::Labels("a=b".into())), Instant::now());
        assert!(machine.on(Input::Failed(failure(403)), start).is_none());
        assert!(matches!(machine.objects.changes.pop_front(), Some(Change::PollOnly(_))));
        assert_eq!(machine.state(), State::Polling { pause: POLL_MIN, list_forbidden: false });
        let listed = || {
            let found = Found { resource_version: Some("20".into()), items: Vec::new() };
            Input::Polled { by_reads: false, found: Ok(found), unread: Vec::new() }
        };
        assert!(!machine.polls_by_reads(start + POLL_MIN));
        machine.on(listed(), start + POLL_MIN);
        assert_eq!(machine.state(), State::Polling { pause: POLL_MIN.mul_f64(1.5), list_forbidden: false });
        assert_eq!(machine.objects.doubts.len(), 1, "the known object was not listed");
        machine.on(listed(), start + FORBIDDEN_MIN);
        assert_eq!((machine.state(), machine.resource_version()), (State::Connecting, "20"));
        machine.on(Input::Failed(failure(403)), start + FORBIDDEN_MIN);
        assert!(machine.objects.changes.is_empty(), "polling is reported once");
        assert!(!machine.is_retry_due(start + FORBIDDEN_MIN * 2) && machine.is_retry_due(start + FORBIDDEN_MIN * 3));
    }
}
