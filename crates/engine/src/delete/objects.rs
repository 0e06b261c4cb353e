//! The objects that a deletion tracks, with running counts of those that remain.

use std::{collections::BTreeMap, time::Duration};

use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{Annotation, Annotations, QueryId, Uncovered, UncoveredCause};

use crate::{Blocker, RefusedBy, retry::Retries};

/// One object: a member of the group, or an instance of a CRD in it.
pub(super) struct Object {
    pub uid: Uid,
    pub query: QueryId,
    pub state: State,
    pub finalizers: Vec<String>,
    /// Its annotations and version when it was last seen.
    pub annotations: Annotations,
    pub resource_version: String,
    /// How often its DELETE was refused because it had changed.
    pub conflicts: u32,
    /// It may not be read, so that it is deleted in any version.
    pub unreadable: bool,
    /// Its `deletionTimestamp`, if it is known.
    pub deleted_at: Option<i64>,
    /// For a CRD under a force stage: the query that lists its instances.
    pub instances: Option<QueryId>,
    /// The tries of its DELETE, and what was last reported of it.
    pub retries: Retries,
    /// A DELETE whose answer was lost may have taken effect.
    pub requested: bool,
    /// A watch knows it, and will report it gone. A list or a read may find an object that no watch ever sees.
    pub watched: bool,
    /// How often it was to be read to confirm that it is gone, and whether it is waiting for that.
    pub reads: u32,
    pub waits_for_read: bool,
    /// The force stage that the group has for this object has begun.
    pub forced: bool,
    /// The time of its annotation that was waited for last, and whether it has passed.
    pub finalize_after: Option<Duration>,
    pub finalized: bool,
    /// Of a VolumeSnapshotContent: the time has passed after which it is annotated.
    pub releases_snapshot: bool,
    pub force_request: ForceRequest,
    /// An instance that is deleted along with its CRD. It is no member of the group, so the group does not wait for it.
    pub instance: bool,
    /// Its replacement under the same name was reported and remains.
    pub recreated: bool,
    /// A DELETE has shown that it is gone and that another object has its name.
    pub replaced: bool,
    /// How often it was recreated during the deletion, and by which field manager.
    pub recreations: u32,
    pub creator: Option<String>,
    /// The DELETE that ends the grace period was accepted.
    pub grace_ended: bool,
    /// What is known of what keeps it from being gone, while it is being deleted.
    pub seen: Vec<Blocker>,
    /// The round in which it was last looked at, and whether it has changed since.
    pub last_look: u32,
    pub changed: bool,
}

impl Object {
    pub fn new(uid: Uid, query: QueryId, finalizers: Vec<String>) -> Self {
        Self {
            uid,
            query,
            state: State::Queued,
            finalizers,
            annotations: Annotations::default(),
            resource_version: String::new(),
            conflicts: 0,
            unreadable: false,
            deleted_at: None,
            instances: None,
            retries: Retries::default(),
            requested: false,
            watched: false,
            reads: 0,
            waits_for_read: false,
            forced: false,
            finalize_after: None,
            finalized: false,
            releases_snapshot: false,
            force_request: ForceRequest::None,
            instance: false,
            recreated: false,
            replaced: false,
            recreations: 0,
            creator: None,
            grace_ended: false,
            seen: Vec::new(),
            last_look: 0,
            changed: false,
        }
    }

    /// Returns what is known of what keeps it from being gone.
    pub fn blockers(&self) -> Vec<Blocker> {
        let recreated = Blocker::Recreated { times: self.recreations, manager: self.creator.clone() };
        self.seen.iter().cloned().chain((self.recreations > 1).then_some(recreated)).collect()
    }

    /// Whether a force stage of this object has begun.
    pub fn is_forced(&self) -> bool {
        self.forced || self.finalized || self.releases_snapshot
    }

    /// Returns why it is not deleted, or not waited for.
    pub fn kept_because(&self) -> UncoveredCause {
        if self.state == State::Stranded {
            return UncoveredCause::NamespaceGone;
        }
        // The annotation may have been removed again since.
        UncoveredCause::kept_by(self.annotations.treatment().kept_by().unwrap_or(Annotation::KeepObject))
    }

    /// Returns what this object adds to the counts.
    fn counts(&self) -> Counts {
        let member = !self.instance;
        Counts {
            remaining: usize::from(member && !matches!(self.state, State::Gone | State::Kept | State::Stranded)),
            refused: usize::from(member && matches!(self.state, State::Refused { retried: false, .. })),
        }
    }
}

/// Whether a request of an object's force stage is in flight.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum ForceRequest {
    None,
    /// The stage decides what to send when a request may be sent.
    Queued,
    InFlight,
    /// The object changed after the request was sent: the stage decides again once the answer arrives.
    Outdated,
}

#[derive(PartialEq)]
pub(super) enum State {
    /// No DELETE was sent, or it will be sent again.
    Queued,
    /// A DELETE is in flight, or its answer had no `deletionTimestamp`.
    Requested,
    /// The object carries a `deletionTimestamp`.
    Deleting,
    /// The DELETE failed: for good, or until it is retried.
    Refused { message: String, by: RefusedBy, retried: bool },
    /// The API server has confirmed that it is gone.
    Gone,
    /// It is not deleted because of its annotations.
    Kept,
    /// It is being deleted, but nobody can remove its finalizers, because its namespace does not exist any more.
    Stranded,
}

/// All tracked objects. The counts change with each state, so that asking for them costs nothing.
#[derive(Default)]
pub(super) struct Objects {
    /// Boxed, because a map that grows in order is half empty.
    by_key: BTreeMap<ObjectKey, Box<Object>>,
    counts: Counts,
}

/// How many members of the group are neither gone nor kept, and how many of these were refused for good.
#[derive(Clone, Copy, Default)]
pub(super) struct Counts {
    pub remaining: usize,
    pub refused: usize,
}

impl Objects {
    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Object> {
        self.by_key.get(key).map(Box::as_ref)
    }

    /// Returns an object whose state is changed by [`Self::set_state`] only.
    pub fn get_mut(&mut self, key: &ObjectKey) -> Option<&mut Object> {
        self.by_key.get_mut(key).map(Box::as_mut)
    }

    /// Returns the object of a name if it has this UID and is not gone.
    pub fn present(&mut self, key: &ObjectKey, uid: &Uid) -> Option<&mut Object> {
        self.get_mut(key).filter(|object| object.uid == *uid && object.state != State::Gone)
    }

    /// Returns the objects of a query that are not gone.
    pub fn present_of(&self, query: QueryId) -> Vec<(ObjectKey, Uid)> {
        let present = self.by_key.iter().filter(|(_, object)| object.query == query && object.state != State::Gone);
        present.map(|(key, object)| (key.clone(), object.uid.clone())).collect()
    }

    /// Tracks an object, in place of the one that was tracked under its name.
    pub fn insert(&mut self, key: ObjectKey, object: Object) {
        let new = object.counts();
        let old = self.by_key.insert(key, Box::new(object)).map(|old| old.counts()).unwrap_or_default();
        self.recount(old, new);
    }

    pub fn set_state(&mut self, key: &ObjectKey, state: State) {
        let Some(object) = self.by_key.get_mut(key) else { return };
        let old = object.counts();
        object.state = state;
        let new = object.counts();
        self.recount(old, new);
    }

    fn recount(&mut self, old: Counts, new: Counts) {
        self.counts.remaining = self.counts.remaining + new.remaining - old.remaining;
        self.counts.refused = self.counts.refused + new.refused - old.refused;
    }

    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Object)> {
        self.by_key.iter().map(|(key, object)| (key, object.as_ref()))
    }

    /// Returns the members that are not deleted because of their annotations, or not waited for, and why.
    pub fn kept(&self) -> impl Iterator<Item = Uncovered> {
        let kept = self.by_key.iter().filter(|(_, object)| matches!(object.state, State::Kept | State::Stranded));
        kept.map(|(key, object)| Uncovered { object: key.clone(), cause: object.kept_because(), deleted_with: None })
    }

    /// Returns the members that are not gone, each with the reason if it is certain, and what was last seen of it.
    pub fn left(self) -> impl Iterator<Item = (ObjectKey, Option<Blocker>, Vec<Blocker>)> {
        self.by_key.into_iter().filter(|(_, object)| object.counts().remaining > 0).map(|(key, object)| {
            let seen = object.blockers();
            let blocker = match object.state {
                State::Refused { message, by, .. } => Some(Blocker::Refused { message, by }),
                State::Queued if object.requested => None,
                State::Queued => seen.last().cloned().or(Some(Blocker::NotRequested)),
                State::Requested | State::Deleting | State::Gone | State::Kept | State::Stranded => None,
            };
            (key, blocker, seen)
        })
    }
}
