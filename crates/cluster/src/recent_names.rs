//! The names of the objects in a namespace, from a list that several callers share for a while.
//!
//! Many small releases that are deployed to one namespace would each ask for the same absent objects. A name that the list does not
//! contain may have been used since, so this is for callers whose writes require that the object does not exist.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use billhook_objects::{GroupKind, ObjectKey};
use tokio::time::Instant;

use crate::shared_answer::SharedAnswer;

/// How long a list is used.
pub(crate) const AGE: Duration = Duration::from_secs(30);
/// How long a failure is shared.
const FAILURE_AGE: Duration = Duration::from_secs(2);

/// The kind and the namespace of a list.
type Place = (GroupKind, Option<String>);

/// The names in a namespace; none if they are too many, or may not be listed.
pub(crate) type Listed = SharedAnswer<Option<Arc<Names>>>;

/// The names of the objects of one kind in a namespace.
#[derive(Debug)]
pub(crate) struct Names {
    /// The version of the list.
    pub(crate) resource_version: Option<String>,
    names: Mutex<HashSet<Box<str>>>,
}

impl Names {
    pub(crate) fn new(resource_version: Option<String>, names: impl Iterator<Item = Box<str>>) -> Self {
        Self { resource_version, names: Mutex::new(names.collect()) }
    }

    pub(crate) fn contain(&self, name: &str) -> bool {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }
}

/// The lists of a cluster.
#[derive(Default)]
pub(crate) struct RecentNames(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    /// With the time at which each was last used.
    lists: HashMap<Place, (Instant, Arc<Listed>)>,
    /// The newest answers, to which our own creations are added.
    known: HashMap<Place, Arc<Names>>,
}

impl RecentNames {
    /// Returns the list of a place. Those that were not used for a while are dropped.
    pub(crate) fn list(&self, kind: &GroupKind, namespace: Option<&str>) -> Arc<Listed> {
        let now = Instant::now();
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Lists { lists, known } = &mut *lists;
        lists.retain(|_, (used, _)| now.duration_since(*used) < AGE);
        known.retain(|place, _| lists.contains_key(place));
        let place = (kind.clone(), namespace.map(str::to_owned));
        let (used, list) = lists.entry(place).or_insert_with(|| (now, Arc::new(SharedAnswer::new(FAILURE_AGE))));
        *used = now;
        Arc::clone(list)
    }

    /// Notes the answer to a list.
    pub(crate) fn listed(&self, kind: &GroupKind, namespace: Option<&str>, names: &Arc<Names>) {
        let mut lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lists.known.insert((kind.clone(), namespace.map(str::to_owned)), Arc::clone(names));
    }

    /// Notes that we have created an object.
    pub(crate) fn created(&self, key: &ObjectKey) {
        let lists = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lists.known.is_empty() {
            return;
        }
        if let Some(names) = lists.known.get(&(key.kind.clone(), key.namespace.clone())) {
            names.names.lock().unwrap_or_else(PoisonError::into_inner).insert(key.name.as_str().into());
        }
    }
}
