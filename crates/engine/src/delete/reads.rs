//! Single reads, for what no watch shows: which object has a name now, and whether an object that no watch knows is gone.

use billhook_cluster::ErrorKind;
use billhook_objects::{ObjectKey, Uid};
use billhook_plan::Observed;

use super::{
    machine::Machine,
    messages::{Request, Timer},
    objects::{Object, State},
};
use crate::{
    node::GRACE,
    retry::{Failure, MAX_PAUSE, backoff},
};

impl Machine<'_> {
    /// Reads which object has a name now.
    pub(super) fn read(&mut self, key: ObjectKey) {
        let Some(Object { uid, query, .. }) = self.objects.get(&key) else { return };
        let (uid, query) = (uid.clone(), *query);
        self.reading.insert(key.clone(), uid.clone());
        self.send(Request::Read(key, uid, query));
    }

    /// An object is being deleted. If only a list or a read has found it, it is read after a growing pause until it is gone:
    /// a watch that polls, or that lists again after a gap, may never see it.
    pub(super) fn confirm_later(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key).filter(|object| is_unconfirmed(object)) else { return };
        if std::mem::replace(&mut object.waits_for_read, true) {
            return;
        }
        object.reads += 1;
        let (after, uid) = (backoff(object.reads + 1), object.uid.clone());
        self.set_timer(Timer::Confirm(key.clone(), uid), after);
    }

    /// Reads an object that no watch has shown meanwhile.
    pub(super) fn confirm(&mut self, key: ObjectKey) {
        if self.objects.get(&key).is_some_and(is_unconfirmed) && !self.reading.contains_key(&key) {
            self.read(key);
        }
    }

    pub(super) fn read_answered(&mut self, key: ObjectKey, uid: &Uid, answer: Result<Option<Observed>, Failure>) {
        let is_latest = self.reading.get(&key) == Some(uid);
        let found = match answer {
            Ok(found) => found,
            Err(failure) if is_latest => return self.read_failed(key, uid, failure),
            Err(_) => return,
        };
        if is_latest {
            self.reading.remove(&key);
        }
        // If a watch has shown another object since, it is ahead of this answer.
        let Some(object) = self.objects.get(&key).filter(|object| object.uid == *uid) else { return };
        let query = object.query;
        if found.as_ref().is_none_or(|found| found.uid != *uid) {
            self.gone(&key, uid);
        }
        if let Some(found) = found {
            self.observed(query, key.clone(), found);
        }
        self.confirm_later(&key);
        self.delete_read(key);
    }

    fn read_failed(&mut self, key: ObjectKey, uid: &Uid, failure: Failure) {
        let object = self.objects.get(&key).filter(|object| object.uid == *uid);
        // Nothing depends on the answer any more.
        if object.is_none_or(|object| object.state == State::Gone && !object.replaced && failure.is_rejection()) {
            self.reading.remove(&key);
        } else if failure.is_rejection() && object.is_some_and(|object| object.state == State::Queued) {
            // What is known of it decides.
            self.reading.remove(&key);
            if let Some(object) = self.objects.get_mut(&key) {
                object.unreadable = true;
            }
            self.delete_read(key);
        } else if failure.is_rejection() {
            self.unreadable.insert(key.clone(), failure);
            self.set_timer(Timer::Unreadable(key), GRACE);
        } else {
            if failure.kind != ErrorKind::Stopped || !self.is_stopping() {
                self.report(&key, &failure, true);
            }
            self.set_timer(Timer::Read(key), MAX_PAUSE);
        }
    }

    /// Gives up on a name that may not be read: whether its object is gone, or belongs to the group, is unknown.
    pub(super) fn give_up_reading(&mut self, key: &ObjectKey) {
        let Some(failure) = self.unreadable.remove(key) else { return };
        self.reading.remove(key);
        // The answer to its next DELETE will tell.
        if self.objects.get(key).is_none_or(|o| matches!(o.state, State::Queued | State::Refused { .. })) {
            return;
        }
        self.report(key, &failure, false);
        self.objects.set_state(key, State::Refused { message: failure.message, by: failure.by, retried: false });
    }

    /// The watch has shown what became of a name that may not be read.
    pub(super) fn settle(&mut self, key: &ObjectKey) {
        if self.unreadable.remove(key).is_some() {
            self.reading.remove(key);
        }
    }
}

/// Returns whether a DELETE of the object was sent, and no watch will report it gone.
fn is_unconfirmed(object: &Object) -> bool {
    !object.watched && matches!(object.state, State::Requested | State::Deleting)
}
