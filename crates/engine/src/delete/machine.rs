//! The synchronous core of a deletion: it takes inputs, returns effects, and holds every decision.
//!
//! It knows no client, no clock and no task, so that `tests` runs it without a cluster. The driver in
//! the parent module carries the effects out and returns their answers as inputs.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque},
    time::Duration,
    vec,
};

use billhook_cluster::{DeleteAnswer, ErrorKind};
use billhook_objects::{GroupKind, ObjectKey, Uid};
use billhook_plan::{DeleteWork, Plan, QueryId};
use billhook_policy::GoDuration;

use super::{
    messages::{Answer, Effect, Input, Request, Timer},
    objects::{Object, Objects, State},
    reasons::Looks,
};
use crate::{
    Blocker, Event, FinalizersRemoved, Status,
    node::{GRACE, NodeResult, WINDOW, Written},
    retry::{Failure, Next, Policy, conflict_pause},
};

/// Whether a collection is known to be empty.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Emptiness {
    Unknown,
    /// It is being listed, or will be once a timer expires.
    Listing,
    Confirmed,
}

/// A node that deletes. It ends when the API server has confirmed of each object that it is gone.
pub(super) struct Machine<'a> {
    pub(super) plan: &'a Plan,
    pub(super) node: usize,
    pub(super) work: &'a DeleteWork,
    /// The value of the release's label; none if the objects come from manifests alone.
    pub(super) label: Option<&'a str>,
    /// What the nodes before it have written of its objects, until it starts.
    written: Written,
    pub(super) objects: Objects,
    pub(super) queue: VecDeque<ObjectKey>,
    /// Objects whose force stage may have a request to send.
    pub(super) force_queue: VecDeque<ObjectKey>,
    /// Objects to read, unless a watch shows them or their end first.
    unconfirmed: VecDeque<ObjectKey>,
    /// How many requests are in flight.
    in_flight: usize,
    /// Names that are being read, because it is unknown which object has them now, each with the UID of the known one.
    pub(super) reading: HashMap<ObjectKey, Uid>,
    /// Those of them that may not be read: only the watch can still show which object has the name.
    pub(super) unreadable: HashMap<ObjectKey, Failure>,
    pub(super) looks: Looks,
    /// The collections of the node, each listed once all known objects are gone: the watch confirms what it saw, only a
    /// list confirms that there is nothing else.
    pub(super) collections: Vec<Emptiness>,
    /// Why lists of collections failed, so that each reason is reported once.
    pub(super) failed_lists: HashSet<String>,
    /// Queries whose objects are the instances of a CRD under a force stage.
    pub(super) instance_queries: HashSet<QueryId>,
    /// Queries whose watch cannot reach the API server.
    pub(super) away: HashSet<QueryId>,
    /// Objects of collections that were created later than this, in seconds since 1970 by the server's clock, are ignored.
    pub(super) latest: Option<i64>,
    /// Those of them that exist, each with its UID.
    pub(super) ignored: BTreeMap<ObjectKey, Uid>,
    stopping: bool,
    ended: bool,
    pub(super) effects: Vec<Effect>,
    pub(super) result: NodeResult,
}

impl<'a> Machine<'a> {
    pub fn new(plan: &'a Plan, node: usize, work: &'a DeleteWork, label: Option<&'a str>) -> Self {
        Self {
            plan,
            node,
            work,
            label,
            written: Written::default(),
            objects: Objects::default(),
            queue: VecDeque::with_capacity(work.objects.len()),
            force_queue: VecDeque::new(),
            unconfirmed: VecDeque::new(),
            in_flight: 0,
            reading: HashMap::new(),
            unreadable: HashMap::new(),
            looks: Looks::default(),
            collections: work.collections.iter().map(|_| Emptiness::Unknown).collect(),
            failed_lists: HashSet::new(),
            instance_queries: HashSet::new(),
            away: HashSet::new(),
            latest: None,
            ignored: BTreeMap::new(),
            stopping: false,
            ended: false,
            effects: Vec::new(),
            result: NodeResult::new(Status::Done),
        }
    }

    /// Ignores objects that are created later than the node says, if it starts at this time by the server's clock.
    pub fn ignore_later(&mut self, start: Option<i64>) {
        let seconds = |limit: GoDuration| i64::try_from(limit.0.as_secs()).unwrap_or(i64::MAX);
        self.latest = self.work.new_objects.and_then(|limit| Some(start?.saturating_add(seconds(limit))));
    }

    /// Sets what the nodes before it have written of its objects.
    #[must_use]
    pub fn after(self, written: Written) -> Self {
        Self { written, ..self }
    }

    /// Processes an input and returns its effects in order.
    pub fn on(&mut self, input: Input) -> vec::Drain<'_, Effect> {
        match input {
            Input::Start => self.start(),
            Input::Answer(answer) => {
                self.in_flight -= usize::from(answer.is_awaited());
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

    pub fn node(&self) -> usize {
        self.node
    }

    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns how the node ended, with the objects that are left.
    pub fn into_result(mut self) -> NodeResult {
        // Which objects have these names now is unknown, and whether they belong to the release.
        let object = |key: &ObjectKey| self.objects.get(key);
        let is_gone = |key: &&ObjectKey| object(key).is_some_and(|object| object.state == State::Gone);
        self.result.ignored = self.ignored.into_keys().collect();
        let unknown: BTreeSet<_> = self.reading.keys().filter(is_gone).cloned().collect();
        // Of several objects that had one name after another, the last one counts.
        let remains =
            |key: &ObjectKey| unknown.contains(key) || object(key).is_some_and(|object| object.state != State::Gone);
        self.result.gone.retain(|key| !remains(key));
        self.result.left.extend(unknown.into_iter().map(|key| (key, Some(Blocker::Unconfirmed))));
        self.result.kept = self.objects.kept().collect();
        for (key, blocker, seen) in self.objects.left() {
            if !seen.is_empty() {
                self.result.seen.insert(key.clone(), seen);
            }
            self.result.left.push((key, blocker));
        }
        self.result
    }

    fn end(&mut self, status: Status) {
        self.ended = true;
        self.result.status = status;
    }

    fn start(&mut self) {
        let written = std::mem::take(&mut self.written);
        let mut queries: BTreeSet<_> = self.work.collections.iter().map(|collection| collection.query).collect();
        for task in &self.work.objects {
            queries.insert(task.query);
            let object = Object::new(task.uid.clone(), task.query, task.finalizers.clone());
            let written = written.get(&task.object).filter(|written| written.uid == task.uid);
            // The version of our own write has its annotations, too: another client may have set them before it.
            let (annotations, version) = match written {
                Some(written) => (&written.annotations, &written.resource_version),
                None => (&task.annotations, &task.resource_version),
            };
            let object = Object {
                instances: task.instances,
                // The snapshot showed it, and the watch continues from there.
                watched: true,
                annotations: annotations.clone(),
                resource_version: version.clone(),
                ..object
            };
            self.insert(task.object.clone(), object);
            self.queue.push_back(task.object.clone());
        }
        self.effects.extend(queries.into_iter().map(|query| Effect::Watch { query, from_snapshot: true }));
    }

    /// Sends as many DELETEs, requests of force stages and reads as may be in flight, and ends the node once there is
    /// nothing left to do.
    fn advance(&mut self) {
        while !self.stopping && self.in_flight < WINDOW {
            if let Some(key) = self.queue.pop_front() {
                self.delete(key);
            } else if let Some(key) = self.force_queue.pop_front() {
                self.send_next_force(&key);
            } else if let Some(key) = self.unconfirmed.pop_front() {
                self.confirm(key);
            } else {
                break;
            }
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

    /// Sends a request that the node does not wait for.
    pub(super) fn send_aside(&mut self, request: Request) {
        if !self.stopping {
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

    pub(super) fn emit(&mut self, event: Event) {
        self.effects.push(Effect::Emit(event));
    }

    pub(super) fn kind(&self, query: QueryId) -> &'a GroupKind {
        &self.plan.queries[query].resource.kind
    }

    /// Adds an object to the group.
    pub(super) fn insert(&mut self, key: ObjectKey, object: Object) {
        self.set_emptiness(object.query, Emptiness::Unknown);
        self.objects.insert(key, object);
    }

    /// Sets the emptiness of the collections of a query.
    pub(super) fn set_emptiness(&mut self, query: QueryId, emptiness: Emptiness) {
        for (current, collection) in self.collections.iter_mut().zip(&self.work.collections) {
            if collection.query == query {
                *current = emptiness;
            }
        }
    }

    fn delete(&mut self, key: ObjectKey) {
        let Some(object) = self.objects.get(&key).filter(|object| object.state == State::Queued) else { return };
        if object.annotations.treatment().is_kept() {
            return self.keep(key);
        }
        let version = if object.unreadable { String::new() } else { object.resource_version.clone() };
        let (uid, query) = (object.uid.clone(), object.query);
        self.objects.set_state(&key, State::Requested);
        self.send(Request::Delete(key, uid, query, version));
    }

    /// Leaves an object because of its annotations.
    pub(super) fn keep(&mut self, key: ObjectKey) {
        let Some(object) = self.objects.get(&key) else { return };
        let cause = object.kept_because();
        self.objects.set_state(&key, State::Kept);
        self.emit(Event::Kept { node: self.node, object: key, cause });
    }

    /// An object was not deleted because it has changed since it was seen: its annotations may keep it now. One that keeps
    /// changing is read and deleted again until the version that was read is still the newest.
    fn changed_before_delete(&mut self, key: ObjectKey) {
        let Some(object) = self.objects.get_mut(&key).filter(|object| object.state == State::Requested) else { return };
        object.conflicts += 1;
        let (pause, uid) = (conflict_pause(object.conflicts), object.uid.clone());
        self.objects.set_state(&key, State::Queued);
        if pause.is_zero() {
            return self.read(key);
        }
        self.reading.insert(key.clone(), uid);
        self.set_timer(Timer::Read(key), pause);
    }

    /// Sends the DELETE of an object whose newest version was read, or may not be read: before all others, so that it changes
    /// as little as possible in between.
    pub(super) fn delete_read(&mut self, key: ObjectKey) {
        if self.objects.get(&key).is_some_and(|object| object.state == State::Queued && object.conflicts > 0) {
            self.queue.push_front(key);
        }
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Delete(key, uid, answer) => self.delete_answered(key, &uid, answer),
            Answer::EndGrace(key, uid, answer) => self.end_grace_answered(key, uid, answer),
            Answer::Remove(key, uid, answer) => self.remove_answered(key, uid, answer),
            Answer::Read(key, uid, answer) => self.read_answered(key, &uid, answer),
            Answer::ReadNamespace(key, uid, answer) => self.namespace_answered(key, uid, answer),
            Answer::List(index, answer) => self.list_answered(index, answer),
            Answer::Look(key, uid, answer) => self.looked(&key, &uid, answer),
            Answer::Namespace(name, answer) => self.namespace_looked_up(&name, &answer),
            Answer::ReleaseSnapshot(key, uid, answer) => self.snapshot_released(key, uid, answer),
        }
    }

    fn delete_answered(&mut self, key: ObjectKey, uid: &Uid, answer: Result<DeleteAnswer, Failure>) {
        let Some(object) = self.objects.present(&key, uid) else { return };
        match answer {
            Ok(DeleteAnswer::Accepted { finalizers, deletion: true, deleted_at }) => {
                // The watch may have reported a newer state already.
                if object.state != State::Deleting {
                    object.finalizers = finalizers;
                    self.deleting(&key, deleted_at);
                }
                self.confirm_later(&key);
            }
            // It was removed at once: the watch confirms it.
            Ok(DeleteAnswer::Accepted { .. } | DeleteAnswer::Done) => self.confirm_later(&key),
            Ok(DeleteAnswer::NotFound) => self.gone(&key, uid),
            Ok(DeleteAnswer::OtherUid) => self.replaced(key, uid),
            Ok(DeleteAnswer::Changed) => self.changed_before_delete(key),
            Err(failure) => {
                object.requested |= failure.is_unknown;
                if failure.kind != ErrorKind::Stopped || !self.stopping {
                    self.delete_failed(key, failure);
                } else if object.state == State::Requested {
                    // Its last try was never sent.
                    self.objects.set_state(&key, State::Queued);
                }
            }
        }
    }

    /// Another object has the name of one that is gone. It may belong to the group, too.
    pub(super) fn replaced(&mut self, key: ObjectKey, uid: &Uid) {
        self.gone(&key, uid);
        if let Some(object) = self.objects.get_mut(&key) {
            object.replaced = true;
        }
        self.read(key);
    }

    fn delete_failed(&mut self, key: ObjectKey, failure: Failure) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        if object.state == State::Deleting && !failure.is_rejection() {
            // The watch shows that the DELETE took effect; only its answer was lost.
            return self.confirm_later(&key);
        }
        let uid = object.uid.clone();
        let next = object.retries.next(&failure, Policy::deletions(&self.work.retries), None);
        let retried = matches!(next, Next::Again(_));
        self.report(&key, &failure, retried);
        self.objects.set_state(&key, State::Refused { message: failure.message, by: failure.by, retried });
        if let Next::Again(after) = next {
            self.set_timer(Timer::Retry(key, uid), after);
        }
    }

    /// Reports that a request failed, unless the previous request for the object failed with the same message.
    pub(super) fn report(&mut self, key: &ObjectKey, failure: &Failure, retried: bool) {
        if self.objects.get_mut(key).is_some_and(|object| object.retries.is_new(&failure.message)) {
            self.emit(failure.event(self.node, key.clone(), retried));
        }
    }

    pub(super) fn cluster(&self) -> Option<String> {
        self.plan.nodes[self.node].cluster.clone()
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
            Timer::Again(key, uid) => {
                if self.objects.present(&key, &uid).is_some() {
                    self.queue.push_back(key);
                }
            }
            Timer::Confirm(key, uid) => {
                if let Some(object) = self.objects.present(&key, &uid) {
                    object.waits_for_read = false;
                    self.unconfirmed.push_back(key);
                }
            }
            Timer::Unreadable(key) => self.give_up_reading(&key),
            Timer::Look => self.look_again(),
            Timer::Force(key, uid) => {
                if let Some(object) = self.objects.present(&key, &uid) {
                    object.forced = true;
                    self.force(&key);
                }
            }
            Timer::Finalize(key, uid, after) => self.finalize(&key, &uid, after),
            Timer::ReleaseSnapshot(key, uid) => self.release_snapshot(&key, &uid),
            Timer::ForceAgain(key, uid) => {
                if self.objects.present(&key, &uid).is_some_and(|object| object.is_forced()) {
                    self.force(&key);
                }
            }
            Timer::Read(key) if self.reading.contains_key(&key) => self.read(key),
            Timer::Read(_) => {}
            Timer::List(index) if self.collections[index] == Emptiness::Listing => {
                self.collections[index] = Emptiness::Unknown;
            }
            Timer::List(_) => {}
            Timer::Grace => self.end(Status::Interrupted),
        }
    }
}
