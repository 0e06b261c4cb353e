//! A node that deletes: DELETE with the UID that was seen, then the watch's word that the object is gone.

use std::{
    collections::{BTreeMap, HashSet, VecDeque},
    pin::Pin,
    time::Duration,
};

use billhook_cluster::{Change, Cluster, DeleteAnswer, DeleteOptions, Error, ErrorKind, Known, RemoveAnswer};
use billhook_objects::{ObjectKey, Uid, wellknown};
use billhook_plan::{DeleteWork, Observed, Query, QueryId, Resource};
use futures::{
    FutureExt as _, Stream, StreamExt as _,
    stream::{FuturesUnordered, SelectAll},
};
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::time::DelayQueue;

use crate::{
    Blocker, Event, FinalizersRemoved, RefusedBy, Status,
    node::{Context, GRACE, MAX_PAUSE, NodeResult, WINDOW, pause, until},
};

mod force;

/// The longest that a timer can run; a force stage that is due later never is.
const MAX_TIMER: Duration = Duration::from_secs(365 * 24 * 3600);

/// One object of the node.
struct Object {
    uid: Uid,
    query: QueryId,
    state: State,
    finalizers: Vec<String>,
    instances: Option<QueryId>,
    attempts: u32,
    /// The force stage of this object has begun.
    forced: bool,
    /// Whether a request of the force stage is under way.
    forcing: Forcing,
    /// What a request of the force stage was last refused with.
    said: String,
    /// It is no member of the group, but an instance that a CRD under the force stage takes along.
    instance: bool,
}

/// Whether a request of an object's force stage is under way.
#[derive(Clone, Copy, PartialEq)]
enum Forcing {
    Idle,
    Running,
    /// Something changed while it ran: the stage looks again when the answer is there.
    Again,
}

#[derive(PartialEq)]
enum State {
    /// No DELETE was sent, or it is to be sent again.
    Queued,
    /// A DELETE is under way, or was answered without a `deletionTimestamp`.
    Sent,
    /// The object carries a `deletionTimestamp`.
    Deleting,
    /// The API server refused the DELETE, for good or until the next try.
    Refused { message: String, by: RefusedBy, last: bool },
    /// The API server has said that it is gone.
    Gone,
}

/// The answer to a request of this node.
enum Answer {
    Delete(ObjectKey, Uid, Result<DeleteAnswer, Error>),
    Strip(ObjectKey, Result<RemoveAnswer, Error>),
    Look(ObjectKey, QueryId, Result<Option<Observed>, Error>),
    Namespace(ObjectKey, Result<Option<Value>, Error>),
    Confirm(usize, Result<Vec<Observed>, Error>),
}

/// Whether a collection was seen to be empty.
#[derive(Clone, Copy, PartialEq)]
enum Confirmed {
    No,
    Asked,
    Yes,
}

/// What a timer is for.
enum Due {
    /// A DELETE that was refused for the moment is sent again.
    Retry(ObjectKey, Uid),
    /// The force stage of an object begins, or goes on.
    Force(ObjectKey, Uid),
    /// Who stands under a name is asked again.
    Look(ObjectKey),
    /// A collection is listed once more.
    Confirm(usize),
}

type Request<'a> = Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;
type Watch = Pin<Box<dyn Stream<Item = (QueryId, Change)> + Send>>;

struct Deletion<'a> {
    context: &'a Context<'a>,
    node: usize,
    work: &'a DeleteWork,
    cluster: &'a Cluster,
    objects: BTreeMap<ObjectKey, Object>,
    queue: VecDeque<ObjectKey>,
    /// How many members of the group are not gone.
    remaining: usize,
    /// How many of these were refused for good.
    refused: usize,
    /// Names under which another object stands, of which it is not known yet whose it is.
    looking: HashSet<ObjectKey>,
    /// The user has interrupted: nothing more is sent.
    stopping: bool,
    requests: FuturesUnordered<Request<'a>>,
    watches: SelectAll<Watch>,
    /// Queries whose objects are the instances of a CRD under a force stage.
    instance_queries: HashSet<QueryId>,
    timers: DelayQueue<Due>,
    /// Queries whose watch is cut off from the server.
    away: HashSet<QueryId>,
    /// The last word on each collection, listed after all known objects were gone.
    confirmed: Vec<Confirmed>,
    result: NodeResult,
}

/// Deletes the objects of a node and waits until the API server has said of each that it is gone.
pub(crate) async fn run_delete<'a>(
    context: &'a Context<'a>,
    cluster: &'a Cluster,
    node: usize,
    work: &'a DeleteWork,
) -> NodeResult {
    let mut deletion = Deletion {
        context,
        node,
        work,
        cluster,
        objects: BTreeMap::new(),
        queue: VecDeque::with_capacity(work.objects.len()),
        remaining: 0,
        refused: 0,
        looking: HashSet::new(),
        stopping: false,
        requests: FuturesUnordered::new(),
        watches: SelectAll::new(),
        instance_queries: HashSet::new(),
        timers: DelayQueue::new(),
        away: HashSet::new(),
        confirmed: work.collections.iter().map(|_| Confirmed::No).collect(),
        result: NodeResult::new(Status::Done),
    };
    let mut queries = HashSet::new();
    for task in &work.objects {
        queries.insert(task.query);
        deletion.insert(task.object.clone(), task.uid.clone(), task.query, task.instances, &task.finalizers);
    }
    queries.extend(work.collections.iter().map(|collection| collection.query));
    for query in queries {
        deletion.watch(query, context.known(query));
    }
    let status = deletion.run().await;
    deletion.finish(status)
}

impl<'a> Deletion<'a> {
    async fn run(&mut self) -> Status {
        let deadline = self.context.deadline(self.node);
        let stop = &self.context.options.stop;
        let mut stop_at = None;
        loop {
            if stop_at.is_none() {
                self.send();
            }
            if self.requests.is_empty() {
                if stop_at.is_some() {
                    return Status::Interrupted;
                }
                if let Some(status) = self.ended() {
                    return status;
                }
            }
            tokio::select! {
                () = stop.cancelled(), if stop_at.is_none() => {
                    self.stopping = true;
                    stop_at = Some(Instant::now() + GRACE);
                }
                () = until(stop_at), if stop_at.is_some() => return Status::Interrupted,
                () = until(deadline), if stop_at.is_none() => return Status::TimedOut,
                Some(answer) = self.requests.next() => self.answered(answer),
                Some((query, change)) = self.watches.next() => self.changed(query, change),
                Some(due) = self.timers.next() => self.due(due.into_inner()),
            }
        }
    }

    /// Whether the node has ended, once no request is under way; sends what is needed to be sure of it.
    fn ended(&mut self) -> Option<Status> {
        if self.remaining > 0 || !self.looking.is_empty() {
            return (self.remaining > 0 && self.refused == self.remaining).then_some(Status::Failed);
        }
        for index in 0..self.confirmed.len() {
            if self.confirmed[index] == Confirmed::No {
                self.confirm(index);
            }
        }
        self.confirmed.iter().all(|confirmed| *confirmed == Confirmed::Yes).then_some(Status::Done)
    }

    /// Lists a collection once more: the watch has shown all that was known to be gone, this shows that nothing is there.
    fn confirm(&mut self, index: usize) {
        self.confirmed[index] = Confirmed::Asked;
        let (cluster, query) = (self.cluster, &self.context.plan.queries[self.work.collections[index].query]);
        let collection = &self.work.collections[index];
        let found = async move { cluster.find(query, &|object| collection.contains(object)).await };
        self.requests.push(found.map(move |found| Answer::Confirm(index, found)).boxed());
    }

    fn insert(&mut self, key: ObjectKey, uid: Uid, query: QueryId, instances: Option<QueryId>, finalizers: &[String]) {
        let object = Object {
            uid,
            query,
            state: State::Queued,
            finalizers: finalizers.to_vec(),
            instances,
            attempts: 0,
            forced: false,
            forcing: Forcing::Idle,
            said: String::new(),
            instance: false,
        };
        self.queue.push_back(key.clone());
        if self.objects.insert(key, object).is_none_or(|old| old.instance || old.state == State::Gone) {
            self.remaining += 1;
        }
        // Whatever was said of its being empty is no longer so.
        for (confirmed, collection) in self.confirmed.iter_mut().zip(&self.work.collections) {
            if collection.query == query {
                *confirmed = Confirmed::No;
            }
        }
    }

    /// Sets the state of an object, and keeps count.
    fn set_state(&mut self, key: &ObjectKey, state: State) {
        let Some(object) = self.objects.get_mut(key) else { return };
        let counts = |state: &State| usize::from(matches!(state, State::Refused { last: true, .. }));
        if !object.instance {
            self.refused = self.refused + counts(&state) - counts(&object.state);
            self.remaining -= usize::from(state == State::Gone && object.state != State::Gone);
        }
        object.state = state;
    }

    fn watch(&mut self, query: QueryId, known: Known) {
        let stream = self.cluster.watch(&self.context.plan.queries[query], known);
        self.watches.push(Box::pin(stream.map(move |change| (query, change))));
    }

    fn query(&self, id: QueryId) -> &'a Query {
        &self.context.plan.queries[id]
    }

    fn resource(&self, id: QueryId) -> &'a Resource {
        &self.query(id).resource
    }

    fn send(&mut self) {
        while self.requests.len() < WINDOW
            && let Some(key) = self.queue.pop_front()
        {
            let Some(object) = self.objects.get_mut(&key).filter(|o| o.state == State::Queued) else { continue };
            object.state = State::Sent;
            let (cluster, uid) = (self.cluster, object.uid.clone());
            let resource = &self.context.plan.queries[object.query].resource;
            let options = DeleteOptions { uid: Some(uid.clone()), propagation: self.work.propagation, dry_run: false };
            self.requests.push(
                async move {
                    let answer = cluster.delete(resource, &key, &options).await;
                    Answer::Delete(key, uid, answer)
                }
                .boxed(),
            );
        }
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Delete(key, uid, answer) => self.deleted(key, &uid, answer),
            Answer::Strip(key, answer) => self.stripped(key, answer),
            Answer::Namespace(key, answer) => self.looked_at_namespace(key, answer),
            Answer::Look(key, query, Ok(found)) => {
                self.looking.remove(&key);
                if let Some(found) = found {
                    self.present(query, key, found);
                }
            }
            Answer::Look(key, _, Err(_)) => {
                self.timers.insert(Due::Look(key), MAX_PAUSE);
            }
            Answer::Confirm(index, answer) => self.listed(index, answer),
        }
    }

    fn listed(&mut self, index: usize, answer: Result<Vec<Observed>, Error>) {
        let collection = &self.work.collections[index];
        match answer {
            Ok(found) => {
                let kind = &self.resource(collection.query).kind;
                self.confirmed[index] = if found.is_empty() { Confirmed::Yes } else { Confirmed::No };
                for object in found {
                    self.present(collection.query, object.key(kind), object);
                }
            }
            // A kind that is gone holds nothing, and where listing is forbidden the single reads were the last word.
            Err(error) if matches!(error.kind(), ErrorKind::NotServed | ErrorKind::Forbidden) => {
                self.confirmed[index] = Confirmed::Yes;
            }
            Err(_) => {
                self.timers.insert(Due::Confirm(index), MAX_PAUSE);
            }
        }
    }

    fn deleted(&mut self, key: ObjectKey, uid: &Uid, answer: Result<DeleteAnswer, Error>) {
        let Some(object) = self.objects.get_mut(&key).filter(|o| o.uid == *uid && o.state != State::Gone) else {
            return;
        };
        match answer {
            Ok(DeleteAnswer::Accepted { finalizers, deletion: true }) => {
                // The watch may have said more recent things already.
                if object.state != State::Deleting {
                    object.finalizers = finalizers;
                    self.deleting(&key);
                }
            }
            // Removed at once: the watch says so.
            Ok(DeleteAnswer::Accepted { .. } | DeleteAnswer::Done) => {}
            Ok(DeleteAnswer::NotFound) => self.gone(&key, uid),
            Ok(DeleteAnswer::OtherUid) => {
                self.gone(&key, uid);
                self.look(key);
            }
            Err(error) => self.failed(key, &error),
        }
    }

    fn failed(&mut self, key: ObjectKey, error: &Error) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let last = matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::Refused | ErrorKind::Invalid);
        let message = error.message();
        if object.said != message {
            object.said.clone_from(&message);
            let object = key.clone();
            self.context.emit(Event::Refused { node: self.node, object, message: message.clone(), retried: !last });
        }
        if !last {
            object.attempts += 1;
            let pause = pause(object.attempts, error).min(MAX_TIMER);
            self.timers.insert(Due::Retry(key.clone(), object.uid.clone()), pause);
        }
        self.set_state(&key, State::Refused { message, by: RefusedBy::of(error), last });
    }

    /// An object is found to carry a `deletionTimestamp`.
    fn deleting(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key) else { return };
        if object.state == State::Deleting {
            if object.forced {
                self.force(key);
            }
            return;
        }
        let (finalizers, uid) = (object.finalizers.clone(), object.uid.clone());
        self.set_state(key, State::Deleting);
        self.context.emit(Event::Deleting { node: self.node, object: key.clone(), finalizers });
        if let Some(force) = &self.work.force {
            self.timers.insert(Due::Force(key.clone(), uid), force.after.0.min(MAX_TIMER));
        }
    }

    fn gone(&mut self, key: &ObjectKey, uid: &Uid) {
        let Some(object) = self.objects.get_mut(key).filter(|o| o.uid == *uid && o.state != State::Gone) else {
            return;
        };
        let instance = object.instance;
        self.set_state(key, State::Gone);
        if !instance {
            self.result.gone.push(key.clone());
            self.context.emit(Event::Gone { node: self.node, object: key.clone(), uid: uid.clone() });
        }
    }

    fn changed(&mut self, query: QueryId, change: Change) {
        let kind = &self.resource(query).kind;
        match change {
            Change::Present(object) => self.present(query, object.key(kind), object),
            Change::Gone { namespace, name, uid } => {
                self.gone(&ObjectKey { kind: kind.clone(), namespace, name }, &uid);
            }
            Change::KindGone => {
                let of_query = self.objects.iter().filter(|(_, o)| o.query == query && o.state != State::Gone);
                for (key, uid) in of_query.map(|(key, o)| (key.clone(), o.uid.clone())).collect::<Vec<_>>() {
                    self.gone(&key, &uid);
                }
                for (index, _) in self.work.collections.iter().enumerate().filter(|(_, c)| c.query == query) {
                    self.confirmed[index] = Confirmed::Yes;
                }
            }
            Change::Away(reason) => {
                if self.away.is_empty() {
                    let cluster = self.context.plan.nodes[self.node].cluster.clone();
                    self.context.emit(Event::ServerAway { cluster, reason });
                }
                self.away.insert(query);
            }
            Change::Back => {
                if self.away.remove(&query) && self.away.is_empty() {
                    let cluster = self.context.plan.nodes[self.node].cluster.clone();
                    self.context.emit(Event::ServerBack { cluster });
                }
            }
            Change::PollOnly(reason) => self.context.emit(Event::PollOnly { node: self.node, reason }),
        }
    }

    /// A list or watch shows an object.
    fn present(&mut self, query: QueryId, key: ObjectKey, found: Observed) {
        if self.instance_queries.contains(&query) && self.objects.get(&key).is_none_or(|object| object.instance) {
            return self.instance(query, key, found);
        }
        match self.objects.get_mut(&key) {
            Some(object) if object.uid == found.uid => {
                if object.state == State::Gone {
                    return;
                }
                object.finalizers = found.finalizers;
                if found.deleting {
                    self.deleting(&key);
                }
            }
            Some(object) => {
                let old = object.uid.clone();
                self.gone(&key, &old);
                self.met(&key, found);
            }
            None => self.met(&key, found),
        }
    }

    /// Another object than the one we knew stands under a name: ours again if it carries our label, or a collection
    /// covers it; else it stays.
    fn met(&mut self, key: &ObjectKey, found: Observed) {
        let of_query = |query: QueryId| self.resource(query).kind == key.kind;
        let covered = self.work.collections.iter().find(|c| of_query(c.query) && c.contains(&found)).map(|c| c.query);
        let known = self.objects.get(key);
        let labelled =
            self.context.label.as_ref().is_some_and(|l| found.labels.get(wellknown::RELEASE_LABEL) == Some(l));
        let again = known.filter(|_| labelled).map(|object| object.query);
        match covered.or(again) {
            Some(query) => {
                let instances = known.and_then(|object| object.instances);
                self.insert(key.clone(), found.uid, query, instances, &found.finalizers);
                self.context.emit(Event::Appeared { node: self.node, object: key.clone() });
            }
            None if known.is_some() => self.stays(key.clone()),
            // A label query also shows the release's objects of other groups.
            None => {}
        }
    }

    fn stays(&mut self, key: ObjectKey) {
        if !self.result.recreated.contains(&key) {
            self.context.emit(Event::Recreated { node: self.node, object: key.clone() });
            self.result.recreated.push(key);
        }
    }

    /// Asks who stands under a name.
    fn look(&mut self, key: ObjectKey) {
        let Some(object) = self.objects.get(&key) else { return };
        let (cluster, query, resource) = (self.cluster, object.query, self.resource(object.query));
        self.looking.insert(key.clone());
        self.requests.push(
            async move {
                let found = cluster.get_meta(resource, &key).await;
                Answer::Look(key, query, found)
            }
            .boxed(),
        );
    }

    fn due(&mut self, due: Due) {
        let is_same = |this: &Self, key: &ObjectKey, uid: &Uid| this.objects.get(key).is_some_and(|o| o.uid == *uid);
        match due {
            Due::Retry(key, uid) if is_same(self, &key, &uid) => {
                if matches!(self.objects[&key].state, State::Refused { last: false, .. }) {
                    self.set_state(&key, State::Queued);
                    self.queue.push_back(key);
                }
            }
            Due::Force(key, uid) if is_same(self, &key, &uid) => {
                if let Some(object) = self.objects.get_mut(&key) {
                    object.forced = true;
                    self.force(&key);
                }
            }
            Due::Retry(..) | Due::Force(..) => {}
            Due::Look(key) => self.look(key),
            Due::Confirm(index) => self.confirm(index),
        }
    }

    fn finish(mut self, status: Status) -> NodeResult {
        self.result.status = status;
        for (key, object) in self.objects.into_iter().filter(|(_, object)| !object.instance) {
            let blocker = match object.state {
                State::Gone => continue,
                State::Refused { message, by, .. } => Some(Blocker::Refused { message, by }),
                State::Queued => Some(Blocker::NotRequested),
                State::Sent | State::Deleting => None,
            };
            self.result.left.push((key, blocker));
        }
        self.result
    }

    fn removed(&mut self, object: ObjectKey, finalizers: Vec<String>) {
        let event =
            Event::FinalizersRemoved { node: self.node, object: object.clone(), finalizers: finalizers.clone() };
        self.context.emit(event);
        self.result.finalizers_removed.push(FinalizersRemoved { object, finalizers });
    }
}
