//! What keeps objects from being gone, while the node waits for them.
//!
//! The watch shows finalizers as they change. The conditions of Namespaces and CRDs, the node of a Pod and the dependents of a
//! workload are not part of the metadata: a few of these objects are read at intervals, those first that have changed.

use std::time::Duration;

use billhook_objects::{ObjectKey, Uid, wellknown};

use super::{
    machine::Machine,
    messages::{Request, Timer},
    namespaces::Lookups,
    objects::{Object, State},
};
use crate::{
    Blocker, Event,
    blockers::{EXTENSIONS, Looked},
    dependents,
    retry::Failure,
};

/// How often objects are looked at. Most are gone before the first time, so that short deletions send no such request.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many objects are looked at each time.
const AT_ONCE: usize = 8;

/// The rounds of looking.
#[derive(Default)]
pub(super) struct Looks {
    pub(super) round: u32,
    /// Whether the timer of the next round is running.
    waiting: bool,
    pub(super) namespaces: Lookups,
}

impl Machine<'_> {
    /// Begins to look at an object that carries a `deletionTimestamp` now.
    pub(super) fn start_looking(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.seen = object.finalizers.iter().map(|finalizer| held_by(finalizer)).collect();
        if is_looked_at(key, object) || self.may_be_stranded(key) {
            self.wait_for_next_look();
        }
    }

    fn wait_for_next_look(&mut self) {
        if !std::mem::replace(&mut self.looks.waiting, true) {
            self.set_timer(Timer::Look, INTERVAL);
        }
    }

    /// Reads some of the objects that are waited for.
    pub(super) fn look_again(&mut self) {
        self.looks.waiting = false;
        self.looks.round += 1;
        let looks_up = self.look_up_namespaces();
        let mut due: Vec<_> = self.objects.iter().filter(|(key, object)| is_looked_at(key, object)).collect();
        if due.is_empty() && !looks_up {
            return;
        }
        due.sort_by_key(|(_, object)| (!object.changed, object.last_look));
        let due: Vec<_> = due.iter().take(AT_ONCE).map(|(key, o)| ((*key).clone(), o.uid.clone(), o.query)).collect();
        for (key, uid, query) in due {
            if let Some(object) = self.objects.get_mut(&key) {
                (object.last_look, object.changed) = (self.looks.round, false);
            }
            self.send_aside(Request::Look(key, uid, query));
        }
        self.wait_for_next_look();
    }

    /// An object was looked at. What failed is tried again in the next round.
    pub(super) fn looked(&mut self, key: &ObjectKey, uid: &Uid, answer: Result<Option<Looked>, Failure>) {
        let Ok(Some(found)) = answer else { return };
        let Some(object) = self.objects.present(key, uid) else { return };
        if object.recreations > 1 && object.creator.is_none() {
            object.creator = found.creator;
            if object.creator.is_some() {
                self.emit_blocked(key);
            }
        }
        self.set_seen(key, found.blockers);
    }

    /// Notes what an object says about its deletion, and reports it if it is new.
    pub(super) fn set_seen(&mut self, key: &ObjectKey, seen: Vec<Blocker>) {
        let Some(object) = self.objects.get_mut(key).filter(|object| object.state == State::Deleting) else { return };
        if object.seen != seen {
            object.seen = seen;
            self.emit_blocked(key);
        }
    }

    /// The watch shows the finalizers of an object.
    pub(super) fn set_finalizers(&mut self, key: &ObjectKey, finalizers: Vec<String>) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.changed = true;
        let is_deleting = object.state == State::Deleting;
        if object.finalizers != finalizers {
            self.forget_finalizers(key, finalizers);
            if is_deleting {
                self.emit_blocked(key);
            }
        }
    }

    /// Replaces the finalizers of an object, so that those it does not have any more are not blamed.
    pub(super) fn forget_finalizers(&mut self, key: &ObjectKey, finalizers: Vec<String>) {
        let Some(object) = self.objects.get_mut(key) else { return };
        let old = std::mem::replace(&mut object.finalizers, finalizers);
        let new = &object.finalizers;
        object.seen.retain(|blocker| match blocker {
            Blocker::Finalizer { finalizer, .. } => !old.contains(finalizer) || new.contains(finalizer),
            _ => true,
        });
        object.seen.extend(new.iter().filter(|finalizer| !old.contains(finalizer)).map(|finalizer| held_by(finalizer)));
    }

    /// An object that was deleted was recreated once more.
    pub(super) fn recreated_again(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get(key) else { return };
        let (uid, query, is_known) = (object.uid.clone(), object.query, object.creator.is_some());
        self.emit_blocked(key);
        if !is_known {
            self.send_aside(Request::Look(key.clone(), uid, query));
        }
    }

    fn emit_blocked(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get(key) else { return };
        let blockers = object.blockers();
        self.emit(Event::Blocked { node: self.node(), object: key.clone(), blockers });
    }
}

fn held_by(finalizer: &str) -> Blocker {
    Blocker::Finalizer { finalizer: finalizer.to_owned(), manager: None }
}

fn in_foreground(object: &Object) -> bool {
    object.finalizers.iter().any(|finalizer| finalizer == wellknown::FOREGROUND_FINALIZER)
}

/// Returns whether more than the metadata of an object tells what it waits for.
fn is_looked_at(key: &ObjectKey, object: &Object) -> bool {
    let tells = key.kind == wellknown::namespace()
        || key.kind == wellknown::crd()
        || (key.kind == wellknown::pod() && object.finalizers.is_empty())
        || key.kind.group == EXTENSIONS
        || (dependents::created_by(&key.kind).is_some() && in_foreground(object));
    tells && !object.instance && object.state == State::Deleting
}
