//! The force stage: it removes finalizers from objects that already carry a `deletionTimestamp`.

use std::time::Duration;

use billhook_cluster::{DeleteAnswer, ErrorKind, RemoveAnswer};
use billhook_objects::{ObjectKey, Uid, wellknown};
use billhook_plan::{Observed, QueryId};
use billhook_policy::Force;
use serde_json::Value;

use super::{
    machine::Machine,
    messages::{Effect, Request, Timer},
    objects::{ForceRequest, Object, State},
};
use crate::{
    Event,
    blockers::Looked,
    retry::{Failure, MAX_PAUSE},
};

impl Machine<'_> {
    /// Returns those of an object's finalizers that its force stages remove: that of its group, and that of its annotation.
    ///
    /// A CRD's cleanup finalizer is never among them: without it the API server deletes the CRD but keeps its instances
    /// in storage, and they reappear with the next CRD of that name. Nor is `orphan`: the garbage collector would delete
    /// the dependents that it protects. `foregroundDeletion` is if the policy names it, or if it had time to take effect.
    fn removable(&self, object: &Object, finalizers: &[String]) -> Vec<String> {
        let force = self.work.force.as_ref().filter(|_| object.forced);
        let by_group = |name: &String, force: &Force| match name.as_str() {
            wellknown::FOREGROUND_FINALIZER => force.finalizers.contains(name) || !force.after.0.is_zero(),
            _ => force.finalizers.is_empty() || force.finalizers.contains(name),
        };
        let is_removable = |name: &&String| {
            let is_named = object.finalized || force.is_some_and(|force| by_group(name, force));
            is_named && !wellknown::is_never_removed(name)
        };
        finalizers.iter().filter(is_removable).cloned().collect()
    }

    /// Queues the next request of an object's force stage.
    pub(super) fn force(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key).filter(|object| object.state == State::Deleting) else { return };
        match object.force_request {
            ForceRequest::None => {
                object.force_request = ForceRequest::Queued;
                self.force_queue.push_back(key.clone());
            }
            ForceRequest::InFlight => object.force_request = ForceRequest::Outdated,
            ForceRequest::Queued | ForceRequest::Outdated => {}
        }
    }

    /// Sends the next request of an object's force stage, if it needs one now.
    pub(super) fn send_next_force(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key) else { return };
        if object.force_request == ForceRequest::Queued {
            object.force_request = ForceRequest::None;
        }
        if object.state != State::Deleting || object.force_request != ForceRequest::None {
            return;
        }
        let (uid, query, present) = (object.uid.clone(), object.query, object.finalizers.clone());
        let (forced, grace_ended) = (object.forced, object.grace_ended);
        if let Some(instances) = object.instances.filter(|_| forced) {
            self.watch_instances(instances);
        }
        let remove = self.objects.get(key).map(|object| self.removable(object, &present)).unwrap_or_default();
        let ends_grace_period = forced && self.work.force.as_ref().is_some_and(|force| force.end_grace_period);
        if ends_grace_period && !grace_ended && key.kind == wellknown::pod() {
            self.send_force(Request::EndGrace(key.clone(), uid, query), key);
        } else if !remove.is_empty() {
            self.send_force(Request::RemoveFinalizers { key: key.clone(), uid, query, present, remove }, key);
        } else if self.holds_snapshot(key) {
            self.send_force(Request::ReleaseSnapshot(key.clone(), uid, query), key);
        } else if key.kind == wellknown::namespace() {
            self.send_force(Request::ReadNamespace(key.clone(), uid, query), key);
        }
    }

    fn send_force(&mut self, request: Request, key: &ObjectKey) {
        if let Some(object) = self.objects.get_mut(key) {
            object.force_request = ForceRequest::InFlight;
        }
        self.send(request);
    }

    pub(super) fn end_grace_answered(&mut self, key: ObjectKey, uid: Uid, answer: Result<DeleteAnswer, Failure>) {
        let Some((object, _)) = self.force_answered(&key, &uid) else { return };
        match answer {
            Ok(DeleteAnswer::Accepted { finalizers, .. }) => {
                (object.grace_ended, object.finalizers) = (true, finalizers);
                self.emit(Event::GracePeriodEnded { node: self.node(), object: key.clone() });
                self.force(&key);
            }
            Ok(DeleteAnswer::Done) => object.grace_ended = true,
            Ok(DeleteAnswer::NotFound) => self.gone(&key, &uid),
            Ok(DeleteAnswer::OtherUid) => self.replaced(key, &uid),
            // Only a precondition about the version is answered so.
            Ok(DeleteAnswer::Changed) => self.read(key),
            Err(failure) => self.force_failed(key, uid, &failure),
        }
    }

    pub(super) fn remove_answered(&mut self, key: ObjectKey, uid: Uid, answer: Result<RemoveAnswer, Failure>) {
        if let Ok(RemoveAnswer::Removed(finalizers)) = &answer {
            self.finalizers_removed(key.clone(), finalizers.clone());
        }
        let Some((object, outdated)) = self.force_answered(&key, &uid) else { return };
        match answer {
            Ok(RemoveAnswer::Removed(finalizers)) => {
                let left =
                    object.finalizers.iter().filter(|finalizer| !finalizers.contains(finalizer)).cloned().collect();
                self.forget_finalizers(&key, left);
                self.force(&key);
            }
            // The watch has shown it since: there is nothing to read.
            Ok(RemoveAnswer::Changed | RemoveAnswer::Gone | RemoveAnswer::NothingToDo) if outdated => self.force(&key),
            Ok(RemoveAnswer::Changed) => self.read(key),
            // The API server also answers so if the namespace of the object does not exist.
            Ok(RemoveAnswer::Gone) => self.look_up_namespace_of(&key),
            Ok(RemoveAnswer::NothingToDo) => {}
            Err(failure) => self.force_failed(key, uid, &failure),
        }
    }

    /// Removes the entries of a Namespace's `spec.finalizers` once it is empty, or if the policy names `kubernetes`. What
    /// else keeps the Namespace is reported.
    pub(super) fn namespace_answered(&mut self, key: ObjectKey, uid: Uid, answer: Result<Option<Value>, Failure>) {
        let named = |finalizer: &String| finalizer == wellknown::NAMESPACE_FINALIZER;
        let is_named = self.work.force.as_ref().is_some_and(|force| force.finalizers.iter().any(named));
        let Some((object, outdated)) = self.force_answered(&key, &uid) else { return };
        let is_named = is_named && object.forced;
        if let Ok(Some(namespace)) = &answer {
            self.set_seen(&key, Looked::at(namespace).blockers);
        }
        match answer {
            Ok(Some(namespace)) if is_named || is_emptied(&namespace) => {
                let finalizers = spec_finalizers(&namespace);
                let object = self.objects.get(&key);
                let remove = object.map(|object| self.removable(object, &finalizers)).unwrap_or_default();
                if !remove.is_empty() {
                    self.send_force(Request::FinalizeNamespace(key.clone(), uid, remove), &key);
                }
            }
            // Each change of its status is a change of the watch, which reads it again.
            Ok(_) if outdated => self.force(&key),
            Ok(_) => {}
            Err(failure) => self.force_failed(key, uid, &failure),
        }
    }

    /// Returns the object that a request was about, and whether it changed while the request was in flight. Returns
    /// nothing if another object has its name now.
    pub(super) fn force_answered(&mut self, key: &ObjectKey, uid: &Uid) -> Option<(&mut Object, bool)> {
        let object = self.objects.get_mut(key).filter(|object| object.uid == *uid)?;
        let outdated = std::mem::replace(&mut object.force_request, ForceRequest::None) == ForceRequest::Outdated;
        Some((object, outdated))
    }

    pub(super) fn force_failed(&mut self, key: ObjectKey, uid: Uid, failure: &Failure) {
        if self.is_stopping() && failure.kind == ErrorKind::Stopped {
            return;
        }
        self.report(&key, failure, true);
        self.set_timer(Timer::ForceAgain(key, uid), MAX_PAUSE);
    }

    /// A CRD is deleted together with its instances, so what holds it is their finalizers. The stage of each instance counts
    /// from its own `deletionTimestamp`.
    pub(super) fn instance_observed(&mut self, query: QueryId, key: ObjectKey, found: Observed) {
        if !found.deleting {
            return;
        }
        match self.objects.get_mut(&key) {
            Some(object) if object.uid == found.uid => {
                object.finalizers = found.finalizers;
                if object.is_forced() {
                    self.force(&key);
                }
            }
            _ => {
                let object = Object::new(found.uid.clone(), query, found.finalizers);
                self.objects.insert(key.clone(), Object { state: State::Deleting, instance: true, ..object });
                self.force_after(key, found.uid, found.deleted_at);
            }
        }
    }

    /// Starts the time after which the force stage of an object begins, if the group has one.
    pub(super) fn force_after(&mut self, key: ObjectKey, uid: Uid, deleted_at: Option<i64>) {
        if let Some(force) = &self.work.force {
            let timer = Timer::Force(key, uid);
            self.effects.push(Effect::ForceAfter { timer, after: force.after.0, deleted_at });
        }
    }

    /// Starts the time after which the annotation of an object that is being deleted lets its finalizers be removed, if it has
    /// changed. An earlier time does not count any more.
    pub(super) fn finalize_after(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key) else { return };
        let after = object.annotations.treatment().finalize_after.map(|after| after.0);
        if object.finalize_after == after {
            return;
        }
        (object.finalize_after, object.finalized) = (after, false);
        if let Some(after) = after {
            let (timer, deleted_at) = (Timer::Finalize(key.clone(), object.uid.clone(), after), object.deleted_at);
            self.effects.push(Effect::ForceAfter { timer, after, deleted_at });
        }
    }

    /// The time of an object's annotation has passed, unless it has changed since.
    pub(super) fn finalize(&mut self, key: &ObjectKey, uid: &Uid, after: Duration) {
        if let Some(object) = self.objects.present(key, uid).filter(|object| object.finalize_after == Some(after)) {
            object.finalized = true;
            self.force(key);
        }
    }
}

fn spec_finalizers(namespace: &Value) -> Vec<String> {
    let finalizers = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().filter_map(|finalizer| finalizer.as_str().map(str::to_owned)).collect()
}

/// Returns how long to wait until a force stage starts this long after the `deletionTimestamp`, which was so many seconds
/// ago by the server's clock. It never starts too early: the age may be a second above the truth. If the
/// `deletionTimestamp` is in the future (the end of a Pod's grace period), the stage starts that much later.
pub(super) fn remaining(after: Duration, age: Option<f64>) -> Duration {
    const RESOLUTION: f64 = 1.0;
    let Some(age) = age.filter(|_| !after.is_zero()) else { return after };
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    if age < -RESOLUTION {
        after.saturating_add(seconds(-age))
    } else {
        after.saturating_sub(seconds(age - RESOLUTION))
    }
}

/// Returns whether the namespace controller has seen every API and found a Namespace empty. While an aggregated API is
/// unavailable its objects are not visible, and would remain. The controller writes these conditions together after each
/// sweep; missing ones prove nothing.
fn is_emptied(namespace: &Value) -> bool {
    let conditions = namespace.pointer("/status/conditions").and_then(Value::as_array);
    let is_false = |wanted: &&str| {
        let mut conditions = conditions.into_iter().flatten();
        conditions.any(|condition| condition["type"] == *wanted && condition["status"] == "False")
    };
    [
        "NamespaceDeletionDiscoveryFailure",
        "NamespaceDeletionGroupVersionParsingFailure",
        "NamespaceDeletionContentFailure",
        "NamespaceContentRemaining",
        "NamespaceFinalizersRemaining",
    ]
    .iter()
    .all(is_false)
}
