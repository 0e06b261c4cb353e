//! What watches, lists and reads show of the objects of a node: objects appear, change, are being deleted, and are gone.

use billhook_cluster::{Change, ErrorKind, resource_version::is_older};
use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{Observed, QueryId};

use super::{
    machine::{Emptiness, Machine},
    messages::Timer,
    objects::{Object, State},
};
use crate::{
    Event,
    retry::{Failure, MAX_PAUSE, recreation_pause},
};

impl Machine<'_> {
    pub(super) fn list_answered(&mut self, index: usize, answer: Result<Vec<Observed>, Failure>) {
        let query = self.work.collections[index].query;
        match answer {
            Ok(mut found) => {
                // A watch may report them later.
                for late in found.extract_if(.., |object| self.is_late(object)).collect::<Vec<_>>() {
                    self.ignore(late.key(self.kind(query)), late);
                }
                found.retain(|object| !self.is_stranded(&object.key(self.kind(query)), &object.uid));
                // It is not listing any more if an object was added to it since: then this answer is too old.
                let is_empty = found.is_empty() && self.collections[index] == Emptiness::Listing;
                self.collections[index] = if is_empty { Emptiness::Confirmed } else { Emptiness::Unknown };
                for object in found {
                    self.observed(query, object.key(self.kind(query)), object);
                }
            }
            // A kind that is not served has no objects.
            Err(Failure { kind: ErrorKind::NotServed, .. }) => self.collections[index] = Emptiness::Confirmed,
            Err(failure) => {
                // Where listing is forbidden, the watch or the single reads have to suffice.
                let retried = failure.kind != ErrorKind::Forbidden;
                let reason = format!("{}: {}", self.kind(query), failure.message);
                if self.failed_lists.insert(reason.clone()) {
                    self.emit(Event::ListFailed { node: self.node, reason, retried });
                }
                if retried {
                    self.set_timer(Timer::List(index), MAX_PAUSE);
                } else {
                    self.collections[index] = Emptiness::Confirmed;
                }
            }
        }
    }

    pub(super) fn changed(&mut self, query: QueryId, change: Change) {
        match change {
            Change::Present(object) => {
                let (key, uid) = (object.key(self.kind(query)), object.uid.clone());
                self.observed(query, key.clone(), object);
                if let Some(object) = self.objects.present(&key, &uid) {
                    object.watched = true;
                }
            }
            Change::Gone { namespace, name, uid } => {
                let key = ObjectKey { kind: self.kind(query).clone(), namespace, name };
                if self.ignored.get(&key) == Some(&uid) {
                    self.ignored.remove(&key);
                }
                self.gone(&key, &uid);
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

    /// A watch, a list or a read shows an object.
    pub(super) fn observed(&mut self, query: QueryId, key: ObjectKey, found: Observed) {
        let tracked = self.objects.get_mut(&key);
        if self.instance_queries.contains(&query) && tracked.as_ref().is_none_or(|object| object.instance) {
            return self.instance_observed(query, key, found);
        }
        match tracked {
            Some(object) if object.uid == found.uid => {
                // A watch may be behind a read.
                if !matches!(object.state, State::Gone | State::Stranded)
                    && !is_older(&found.resource_version, &object.resource_version)
                {
                    (object.annotations, object.resource_version) = (found.annotations, found.resource_version);
                    self.settle(&key);
                    self.set_finalizers(&key, found.finalizers);
                    if found.deleting {
                        self.deleting(&key, found.deleted_at);
                    }
                }
            }

            // A watch reports the old object gone before it shows a new one. This one may be behind the watch of another
            // query or behind a read, and then show an even older object: only a read can tell.
            Some(object) if object.state != State::Gone && !object.replaced => self.read(key),
            Some(_) => {
                self.objects.set_state(&key, State::Gone);
                self.settle(&key);
                self.appeared(key, found);
            }
            None => self.appeared(key, found),
        }
    }

    /// An object has a name that no present object of the group has. It is deleted too if a collection contains it, or
    /// if it replaced an object of the group and carries the release's label. Any other replacement remains.
    fn appeared(&mut self, key: ObjectKey, found: Observed) {
        let contains = |query: QueryId| *self.kind(query) == key.kind;
        let collection = self.work.collections.iter().find(|c| contains(c.query) && c.contains(&found));
        if collection.is_some() && self.is_late(&found) {
            return self.ignore(key, found);
        }
        let is_ours = self.label.is_some_and(|label| found.carries(label));
        let replaced = self.objects.get_mut(&key);
        let query = collection.map(|c| c.query).or(replaced.as_ref().filter(|_| is_ours).map(|object| object.query));
        match (query, replaced) {
            (Some(query), replaced) => {
                let mut object = Object::new(found.uid, query, found.finalizers);
                (object.annotations, object.resource_version) = (found.annotations, found.resource_version);
                if let Some(replaced) = replaced {
                    (object.instances, object.recreated) = (replaced.instances, replaced.recreated);
                    (object.recreations, object.creator) = (replaced.recreations + 1, replaced.creator.take());
                }
                self.insert(key.clone(), object);
                self.emit(Event::Appeared { node: self.node, object: key.clone() });
                self.delete_in_time(key);
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

    /// Returns whether an object was created too late for the collections of the node.
    fn is_late(&self, object: &Observed) -> bool {
        self.latest.is_some_and(|latest| object.created_at.is_some_and(|created| created > latest))
    }

    fn ignore(&mut self, key: ObjectKey, found: Observed) {
        if self.ignored.insert(key.clone(), found.uid.clone()).is_none_or(|uid| uid != found.uid) {
            self.emit(Event::Ignored { node: self.node, object: key });
        }
    }

    /// Queues the DELETE of an object that has appeared. One that is recreated again and again is deleted less and less
    /// often: a controller that competes with the deletion must not be driven.
    fn delete_in_time(&mut self, key: ObjectKey) {
        let Some(object) = self.objects.get(&key) else { return };
        let (recreations, uid) = (object.recreations, object.uid.clone());
        if recreations < 2 {
            return self.queue.push_back(key);
        }
        self.recreated_again(&key);
        self.set_timer(Timer::Again(key, uid), recreation_pause(recreations));
    }

    /// An object carries a `deletionTimestamp`.
    pub(super) fn deleting(&mut self, key: &ObjectKey, deleted_at: Option<i64>) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.deleted_at = deleted_at.or(object.deleted_at);
        // Another client has requested the deletion of an object that is kept: nothing is forced.
        match object.state {
            State::Kept => return,
            State::Queued | State::Refused { .. } if object.annotations.treatment().is_kept() => {
                return self.keep(key.clone());
            }
            _ => {}
        }
        if object.state == State::Deleting {
            self.finalize_after(key);
            if self.objects.get(key).is_some_and(Object::is_forced) {
                self.force(key);
            }
            return;
        }
        let (finalizers, uid) = (object.finalizers.clone(), object.uid.clone());
        self.objects.set_state(key, State::Deleting);
        self.emit(Event::Deleting { node: self.node, object: key.clone(), finalizers });
        self.force_after(key.clone(), uid.clone(), deleted_at);
        self.finalize_after(key);
        self.release_snapshot_after(key, uid, deleted_at);
        self.start_looking(key);
    }

    /// The API server has confirmed that an object is gone.
    pub(super) fn gone(&mut self, key: &ObjectKey, uid: &Uid) {
        let Some(object) = self.objects.present(key, uid).filter(|object| !object.replaced) else { return };
        let is_member = !object.instance;
        self.objects.set_state(key, State::Gone);
        self.settle(key);
        if is_member {
            self.result.gone.push(key.clone());
            self.emit(Event::Gone { node: self.node, object: key.clone(), uid: uid.clone() });
        }
    }
}
