//! Objects whose namespace does not exist any more: it was finalized by force while they were in it. The API server rejects every
//! write of such an object, so that nobody can remove its finalizers. The cleaning of a cluster deletes it but does not wait for
//! it, as in Gardener (`IgnoreUnknownNamespaces` in gardener/gardener, pkg/utils/kubernetes/client).

use std::collections::{BTreeSet, HashMap, HashSet};

use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{Operation, UncoveredCause};

use super::{
    machine::Machine,
    messages::Request,
    objects::{Object, State},
};
use crate::{Event, retry::Failure};

/// How many namespaces are looked up each time.
const AT_ONCE: usize = 8;

/// Which namespaces were looked up.
#[derive(Default)]
pub(super) struct Lookups {
    /// The round in which each was looked up last.
    rounds: HashMap<String, u32>,
    in_flight: HashSet<String>,
}

impl Machine<'_> {
    /// Returns whether an object is held by finalizers that nobody could remove if its namespace did not exist.
    pub(super) fn may_be_stranded(&self, key: &ObjectKey) -> bool {
        let is_held =
            |object: &Object| object.state == State::Deleting && !object.finalizers.is_empty() && !object.instance;
        self.plan.operation == Operation::Clean && key.namespace.is_some() && self.objects.get(key).is_some_and(is_held)
    }

    /// Returns whether an object is not waited for because its namespace does not exist any more.
    pub(super) fn is_stranded(&self, key: &ObjectKey, uid: &Uid) -> bool {
        self.objects.get(key).is_some_and(|object| object.state == State::Stranded && object.uid == *uid)
    }

    /// Looks up some of the namespaces of held objects, those first that were looked up longest ago. Returns whether there are any.
    pub(super) fn look_up_namespaces(&mut self) -> bool {
        let held = self.objects.iter().map(|(key, _)| key).filter(|key| self.may_be_stranded(key));
        let names: BTreeSet<&String> = held.filter_map(|key| key.namespace.as_ref()).collect();
        let mut names: Vec<String> = names.into_iter().cloned().collect();
        let rounds = &self.looks.namespaces.rounds;
        names.sort_by_key(|name| rounds.get(name).copied().unwrap_or_default());
        for name in names.iter().take(AT_ONCE) {
            self.look_up_namespace(name);
        }
        !names.is_empty()
    }

    /// Looks up the namespace of an object that may be stranded.
    pub(super) fn look_up_namespace_of(&mut self, key: &ObjectKey) {
        if let Some(name) = key.namespace.as_ref().filter(|_| self.may_be_stranded(key)) {
            self.look_up_namespace(name);
        }
    }

    fn look_up_namespace(&mut self, name: &str) {
        let Lookups { rounds, in_flight } = &mut self.looks.namespaces;
        rounds.insert(name.to_owned(), self.looks.round);
        if in_flight.insert(name.to_owned()) {
            self.send_aside(Request::Namespace(name.to_owned()));
        }
    }

    /// A namespace was looked up. What failed is tried again in a later round.
    pub(super) fn namespace_looked_up(&mut self, name: &str, exists: &Result<bool, Failure>) {
        self.looks.namespaces.in_flight.remove(name);
        if !matches!(exists, Ok(false)) {
            return;
        }
        let of_namespace = self.objects.iter().map(|(key, _)| key).filter(|key| key.namespace.as_deref() == Some(name));
        let stranded: Vec<ObjectKey> = of_namespace.filter(|key| self.may_be_stranded(key)).cloned().collect();
        for key in stranded {
            self.objects.set_state(&key, State::Stranded);
            self.settle(&key);
            self.emit(Event::Kept { node: self.node(), object: key, cause: UncoveredCause::NamespaceGone });
        }
    }
}
