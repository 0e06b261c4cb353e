//! The synchronous core of a deletion: it takes inputs, returns effects, and holds every decision.
//!
//! It knows no client, no clock and no task, so that `tests` runs it without a cluster. The driver in
//! the parent module carries the effects out and returns their answers as inputs.

use std::{
    collections::{BTreeSet, HashSet, VecDeque},
    time::Duration,
    vec,
};

use billhook_cluster::{Change, DeleteAnswer, ErrorKind};
use billhook_objects::{GroupKind, ObjectKey, Uid, wellknown};
use billhook_plan::{DeleteWork, Observed, Plan, QueryId};

use super::{
    messages::{Answer, Effect, Failure, Input, Request, Timer},
    objects::{Object, Objects, State},
};
use crate::{
    Event, FinalizersRemoved, Status,
    node::{GRACE, MAX_PAUSE, NodeResult, WINDOW, pause},
};

/// Whether a collection is known to be empty.
#[derive(Clone, Copy, PartialEq)]
enum Emptiness {
    Unknown,
    /// It is being listed, or will be once a timer expires.
    Listing,
    Confirmed,
}

/// A node that deletes. It ends when the API server has confirmed of each object that it is gone.
pub(super) struct Machine<'a> {
    plan: &'a Plan,
    node: usize,
    pub(super) work: &'a DeleteWork,
    /// The value of the release's label; none if the objects come from manifests alone.
    label: Option<&'a str>,
    pub(super) objects: Objects,
    queue: VecDeque<ObjectKey>,
    /// How many requests are in flight.
    in_flight: usize,
    /// Names that are being read, because it is unknown which object has them now.
    reading: HashSet<ObjectKey>,
    /// The collections of the node, each listed once all known objects are gone: the watch confirms what it saw, only a
    /// list confirms that there is nothing else.
    collections: Vec<Emptiness>,
    /// Why lists of collections failed, so that each reason is reported once.
    failed_lists: HashSet<String>,
    /// Queries whose objects are the instances of a CRD under a force stage.
    instance_queries: HashSet<QueryId>,
    /// Queries whose watch cannot reach the API server.
    away: HashSet<QueryId>,
    stopping: bool,
    ended: bool,
    effects: Vec<Effect>,
    result: NodeResult,
}

impl<'a> Machine<'a> {
    pub fn new(plan: &'a Plan, node: usize, work: &'a DeleteWork, label: Option<&'a str>) -> Self {
        Self {
            plan,
            node,
            work,
            label,
            objects: Objects::default(),
            queue: VecDeque::with_capacity(work.objects.len()),
            in_flight: 0,
            reading: HashSet::new(),
            collections: work.collections.iter().map(|_| Emptiness::Unknown).collect(),
            failed_lists: HashSet::new(),
            instance_queries: HashSet::new(),
            away: HashSet::new(),
            stopping: false,
            ended: false,
            effects: Vec::new(),
            result: NodeResult::new(Status::Done),
        }
    }

    /// Processes an input and returns its effects in order.
    pub fn on(&mut self, input: Input) -> vec::Drain<'_, Effect> {
        match input {
            Input::Start => self.start(),
            Input::Answer(answer) => {
                self.in_flight -= 1;
                self.answered(answer);
            }
            Input::Change(query, change) => self.changed(query, change),
            Input::Due(timer) => self.due(timer),
            Input::Stop => {
                self.stopping = true;
                self.effects.push(Effect::Timer(Timer::Grace, GRACE));
            }
            Input::Deadline => self.end(Status::TimedOut),
        }
        if !self.ended {
            self.advance();
        }
        self.effects.drain(..)
    }

    /// Returns whether the user has stopped the node: it sends no new requests and only waits for answers in flight.
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns how the node ended, with the objects that are left.
    pub fn into_result(mut self) -> NodeResult {
        self.result.left.extend(self.objects.left());
        self.result
    }

    fn end(&mut self, status: Status) {
        self.ended = true;
        self.result.status = status;
    }

    fn start(&mut self) {
        let mut queries: BTreeSet<_> = self.work.collections.iter().map(|collection| collection.query).collect();
        for task in &self.work.objects {
            queries.insert(task.query);
            let object = Object::new(task.uid.clone(), task.query, task.finalizers.clone());
            self.insert(task.object.clone(), Object { instances: task.instances, ..object });
        }
        self.effects.extend(queries.into_iter().map(|query| Effect::Watch { query, from_snapshot: true }));
    }

    /// Sends as many DELETEs as may be in flight, and ends the node once there is nothing left to do.
    fn advance(&mut self) {
        while !self.stopping
            && self.in_flight < WINDOW
            && let Some(key) = self.queue.pop_front()
        {
            self.delete(key);
        }
        if self.in_flight > 0 {
            return;
        }
        let counts = self.objects.counts();
        if self.stopping {
            self.end(Status::Interrupted);
        } else if counts.remaining > 0 && counts.refused == counts.remaining {
            self.end(Status::Failed);
        } else if counts.remaining == 0 && self.reading.is_empty() {
            self.confirm_collections();
        }
    }

    /// Lists each collection that is not known to be empty, and ends the node if all are.
    fn confirm_collections(&mut self) {
        for index in 0..self.collections.len() {
            if self.collections[index] == Emptiness::Unknown {
                self.collections[index] = Emptiness::Listing;
                self.send(Request::List(index));
            }
        }
        if self.collections.iter().all(|emptiness| *emptiness == Emptiness::Confirmed) {
            self.end(Status::Done);
        }
    }

    /// Sends a request, unless the user has stopped the node.
    pub(super) fn send(&mut self, request: Request) {
        if !self.stopping {
            self.in_flight += 1;
            self.effects.push(Effect::Send(request));
        }
    }

    pub(super) fn set_timer(&mut self, timer: Timer, after: Duration) {
        self.effects.push(Effect::Timer(timer, after));
    }

    pub(super) fn watch_instances(&mut self, query: QueryId) {
        // Without a list of its own, the watch would miss instances whose deletion began before the snapshot.
        if self.instance_queries.insert(query) {
            self.effects.push(Effect::Watch { query, from_snapshot: false });
        }
    }

    fn emit(&mut self, event: Event) {
        self.effects.push(Effect::Emit(event));
    }

    fn kind(&self, query: QueryId) -> &'a GroupKind {
        &self.plan.queries[query].resource.kind
    }

    /// Adds an object to the group and queues its DELETE.
    fn insert(&mut self, key: ObjectKey, object: Object) {
        self.set_emptiness(object.query, Emptiness::Unknown);
        self.queue.push_back(key.clone());
        self.objects.insert(key, object);
    }

    /// Sets the emptiness of the collections of a query.
    fn set_emptiness(&mut self, query: QueryId, emptiness: Emptiness) {
        for (current, collection) in self.collections.iter_mut().zip(&self.work.collections) {
            if collection.query == query {
                *current = emptiness;
            }
        }
    }

    fn delete(&mut self, key: ObjectKey) {
        let Some(object) = self.objects.get(&key).filter(|object| object.state == State::Queued) else { return };
        let (uid, query) = (object.uid.clone(), object.query);
        self.objects.set_state(&key, State::Requested);
        self.send(Request::Delete(key, uid, query));
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Delete(key, uid, answer) => self.delete_answered(key, &uid, answer),
            Answer::Remove(key, uid, answer) => self.remove_answered(key, uid, answer),
            Answer::Read(key, uid, answer) => self.read_answered(key, &uid, answer),
            Answer::ReadNamespace(key, uid, answer) => self.namespace_answered(key, uid, answer),
            Answer::List(index, answer) => self.list_answered(index, answer),
        }
    }

    fn delete_answered(&mut self, key: ObjectKey, uid: &Uid, answer: Result<DeleteAnswer, Failure>) {
        let Some(object) = self.objects.present(&key, uid) else { return };
        match answer {
            Ok(DeleteAnswer::Accepted { finalizers, deletion: true }) => {
                // The watch may have reported a newer state already.
                if object.state != State::Deleting {
                    object.finalizers = finalizers;
                    self.deleting(&key);
                }
            }
            // It was removed at once: the watch confirms it.
            Ok(DeleteAnswer::Accepted { .. } | DeleteAnswer::Done) => {}
            Ok(DeleteAnswer::NotFound) => self.gone(&key, uid),
            Ok(DeleteAnswer::OtherUid) => {
                self.gone(&key, uid);
                self.read(key);
            }
            Err(failure) => self.delete_failed(key, failure),
        }
    }

    fn delete_failed(&mut self, key: ObjectKey, failure: Failure) {
        let retried = !matches!(failure.kind, ErrorKind::Forbidden | ErrorKind::Refused | ErrorKind::Invalid);
        if retried && self.objects.get(&key).is_some_and(|object| object.state == State::Deleting) {
            // The watch shows that the DELETE took effect; only its answer was lost.
            return;
        }
        self.report(&key, &failure.message, retried);
        if let Some(object) = self.objects.get_mut(&key).filter(|_| retried) {
            object.attempts += 1;
            let (after, uid) = (pause(object.attempts, failure.retry_after), object.uid.clone());
            self.set_timer(Timer::Retry(key.clone(), uid), after);
        }
        self.objects.set_state(&key, State::Refused { message: failure.message, by: failure.by, retried });
    }

    /// Reports that a request failed, unless the previous request for the object failed with the same message.
    pub(super) fn report(&mut self, key: &ObjectKey, message: &str, retried: bool) {
        let Some(object) = self.objects.get_mut(key).filter(|object| object.reported != message) else { return };
        message.clone_into(&mut object.reported);
        self.emit(Event::Refused { node: self.node, object: key.clone(), message: message.to_owned(), retried });
    }

    /// Reads which object has a name now.
    pub(super) fn read(&mut self, key: ObjectKey) {
        let Some(Object { uid, query, .. }) = self.objects.get(&key) else { return };
        let (uid, query) = (uid.clone(), *query);
        self.reading.insert(key.clone());
        self.send(Request::Read(key, uid, query));
    }

    fn read_answered(&mut self, key: ObjectKey, uid: &Uid, answer: Result<Option<Observed>, Failure>) {
        let found = match answer {
            Ok(found) => found,
            Err(failure) => {
                self.report(&key, &failure.message, true);
                return self.set_timer(Timer::Read(key), MAX_PAUSE);
            }
        };
        self.reading.remove(&key);
        // If a watch has shown another object since, it is ahead of this answer.
        let Some(object) = self.objects.get(&key).filter(|object| object.uid == *uid) else { return };
        let query = object.query;
        if let Some(found) = found {
            if found.uid != *uid {
                self.gone(&key, uid);
            }
            self.observed(query, key, found);
        }
    }

    fn list_answered(&mut self, index: usize, answer: Result<Vec<Observed>, Failure>) {
        let query = self.work.collections[index].query;
        match answer {
            Ok(found) => {
                // It is not listing any more if an object was added to it since: then this answer is too old.
                let is_empty = found.is_empty() && self.collections[index] == Emptiness::Listing;
                self.collections[index] = if is_empty { Emptiness::Confirmed } else { Emptiness::Unknown };
                for object in found {
                    self.observed(query, object.key(self.kind(query)), object);
                }
            }
            // A kind that is not served has no objects; where listing is forbidden, the single reads have to suffice.
            Err(Failure { kind: ErrorKind::NotServed | ErrorKind::Forbidden, .. }) => {
                self.collections[index] = Emptiness::Confirmed;
            }
            Err(failure) => {
                let reason = format!("{}: {}", self.kind(query), failure.message);
                if self.failed_lists.insert(reason.clone()) {
                    self.emit(Event::ListFailed { node: self.node, reason });
                }
                self.set_timer(Timer::List(index), MAX_PAUSE);
            }
        }
    }

    fn changed(&mut self, query: QueryId, change: Change) {
        match change {
            Change::Present(object) => self.observed(query, object.key(self.kind(query)), object),
            Change::Gone { namespace, name, uid } => {
                self.gone(&ObjectKey { kind: self.kind(query).clone(), namespace, name }, &uid);
            }
            Change::KindGone => {
                for (key, uid) in self.objects.present_of(query) {
                    self.gone(&key, &uid);
                }
                self.set_emptiness(query, Emptiness::Confirmed);
            }
            Change::Away(reason) => {
                if self.away.is_empty() {
                    self.emit(Event::ServerAway { cluster: self.cluster(), reason });
                }
                self.away.insert(query);
            }
            Change::Back => {
                if self.away.remove(&query) && self.away.is_empty() {
                    self.emit(Event::ServerBack { cluster: self.cluster() });
                }
            }
            Change::PollOnly(reason) => self.emit(Event::PollOnly { node: self.node, reason }),
        }
    }

    fn cluster(&self) -> Option<String> {
        self.plan.nodes[self.node].cluster.clone()
    }

    /// A watch, a list or a read shows an object.
    pub(super) fn observed(&mut self, query: QueryId, key: ObjectKey, found: Observed) {
        let tracked = self.objects.get_mut(&key);
        if self.instance_queries.contains(&query) && tracked.as_ref().is_none_or(|object| object.instance) {
            return self.instance_observed(query, key, found);
        }
        match tracked {
            Some(object) if object.uid == found.uid => {
                if object.state != State::Gone {
                    object.finalizers = found.finalizers;
                    if found.deleting {
                        self.deleting(&key);
                    }
                }
            }
            // A watch reports the old object gone before it shows a new one. This one may be behind the watch of another
            // query or behind a read, and then show an even older object: only a read can tell.
            Some(object) if object.state != State::Gone => self.read(key),
            Some(_) | None => self.appeared(key, found),
        }
    }

    /// An object has a name that no present object of the group has. It is deleted too if a collection contains it, or
    /// if it replaced an object of the group and carries the release's label. Any other replacement remains.
    fn appeared(&mut self, key: ObjectKey, found: Observed) {
        let contains = |query: QueryId| *self.kind(query) == key.kind;
        let collection = self.work.collections.iter().find(|c| contains(c.query) && c.contains(&found));
        let is_ours = self.label.is_some_and(|l| found.labels.get(wellknown::RELEASE_LABEL).is_some_and(|f| f == l));
        let replaced = self.objects.get_mut(&key);
        let query = collection.map(|c| c.query).or(replaced.as_ref().filter(|_| is_ours).map(|object| object.query));
        match (query, replaced) {
            (Some(query), replaced) => {
                let mut object = Object::new(found.uid, query, found.finalizers);
                if let Some(replaced) = replaced {
                    (object.instances, object.recreated) = (replaced.instances, replaced.recreated);
                }
                self.insert(key.clone(), object);
                self.emit(Event::Appeared { node: self.node, object: key });
            }
            (None, Some(replaced)) => {
                if !std::mem::replace(&mut replaced.recreated, true) {
                    self.result.recreated.push(key.clone());
                    self.emit(Event::Recreated { node: self.node, object: key });
                }
            }
            // A query by label also shows the release's objects of other groups.
            (None, None) => {}
        }
    }

    /// An object carries a `deletionTimestamp`.
    fn deleting(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get(key) else { return };
        if object.state == State::Deleting {
            if object.forced {
                self.force(key);
            }
            return;
        }
        let (finalizers, uid) = (object.finalizers.clone(), object.uid.clone());
        self.objects.set_state(key, State::Deleting);
        self.emit(Event::Deleting { node: self.node, object: key.clone(), finalizers });
        if let Some(force) = &self.work.force {
            self.set_timer(Timer::Force(key.clone(), uid), force.after.0);
        }
    }

    /// The API server has confirmed that an object is gone.
    fn gone(&mut self, key: &ObjectKey, uid: &Uid) {
        let Some(object) = self.objects.present(key, uid) else { return };
        let is_member = !object.instance;
        self.objects.set_state(key, State::Gone);
        if is_member {
            self.result.gone.push(key.clone());
            self.emit(Event::Gone { node: self.node, object: key.clone(), uid: uid.clone() });
        }
    }

    pub(super) fn finalizers_removed(&mut self, object: ObjectKey, finalizers: Vec<String>) {
        let removed = FinalizersRemoved { object: object.clone(), finalizers: finalizers.clone() };
        self.result.finalizers_removed.push(removed);
        self.emit(Event::FinalizersRemoved { node: self.node, object, finalizers });
    }

    fn due(&mut self, timer: Timer) {
        match timer {
            Timer::Retry(key, uid) => {
                let object = self.objects.present(&key, &uid);
                if object.is_some_and(|object| matches!(object.state, State::Refused { retried: true, .. })) {
                    self.objects.set_state(&key, State::Queued);
                    self.queue.push_back(key);
                }
            }
            Timer::Force(key, uid) => {
                if let Some(object) = self.objects.present(&key, &uid) {
                    object.forced = true;
                    self.force(&key);
                }
            }
            Timer::Read(key) => self.read(key),
            Timer::List(index) if self.collections[index] == Emptiness::Listing => {
                self.collections[index] = Emptiness::Unknown;
            }
            Timer::List(_) => {}
            Timer::Grace => self.end(Status::Interrupted),
        }
    }
}
