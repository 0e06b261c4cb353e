//! The objects that a watch knows, and what an event, a list or a check means for each of them.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use billhook_objects::Uid;
use billhook_plan::{Query, Select};

use super::change::{Change, Known};
use crate::{
    decode::{Id, Shape},
    error::Error,
    recent_deletes::{DeleteOutcome, RecentDeletes},
    resource_version::is_older,
};

/// A namespace and a name. Boxed strings, because there may be ten thousand.
pub(super) type Key = (Option<Box<str>>, Box<str>);

/// An object that may be gone.
#[derive(Debug)]
pub(super) struct Doubt {
    pub(super) key: Key,
    pub(super) uid: Uid,
    /// Whether it had no finalizers when it was last seen: then the answer to its DELETE is enough.
    pub(super) no_finalizers: bool,
    /// The UID that now has its name, according to an event.
    replaced_by: Option<Uid>,
}

/// The result of checking an object: which object has its name now, if any.
pub(super) struct Verdict<S> {
    pub(super) doubt: Doubt,
    pub(super) found: Result<Option<S>, Error>,
}

/// The UID and version of a known object. The version is unknown for objects that the caller of the watch named.
struct Version {
    uid: Uid,
    resource_version: Option<Box<str>>,
}

/// Which objects belong to the query.
#[derive(Debug, PartialEq, Eq)]
enum Filter {
    All,
    /// Those of the query, by name or by namespace.
    Query(Box<Query>),
    /// The server evaluates the selector in all namespaces, and sends DELETED also for an object that only lost its labels.
    /// This side evaluates the namespaces.
    Selector {
        selector: String,
        query: Box<Query>,
    },
    /// This side evaluates the selector, so that DELETED means gone. The price is the events of all other objects, so it
    /// is done within one namespace only.
    Label {
        label: String,
        value: String,
    },
}

impl Filter {
    fn new(query: &Query, proves_gone: bool) -> Self {
        match &query.select {
            Select::All if query.namespaces.is_empty() => Self::All,
            Select::All | Select::Names(_) | Select::Reads(_) | Select::Objects(_) => {
                Self::Query(Box::new(query.clone()))
            }
            Select::Labels(selector) => {
                let everywhere = query.resource.namespaced && query.namespace.is_none();
                let plain = |text: &str| !text.contains(['=', ',', '!', ' ', '(']);
                match selector.split_once('=').filter(|_| proves_gone && !everywhere) {
                    Some((label, value)) if plain(label) && plain(value) => {
                        Self::Label { label: label.to_owned(), value: value.to_owned() }
                    }
                    _ => Self::Selector { selector: selector.clone(), query: Box::new(query.clone()) },
                }
            }
        }
    }
}

/// The objects of a query, as far as the watch knows them.
pub(super) struct Objects<S> {
    filter: Filter,
    known: HashMap<Key, Version>,
    /// The names of objects that are gone, under [`Filter::Label`]: an object recreated under such a name is reported.
    former: HashSet<Key>,
    /// How many objects may be known. Those that a server invents beyond that are ignored.
    pub(super) limit: usize,
    deletes: Arc<RecentDeletes>,
    /// Changes to report.
    pub(super) changes: VecDeque<Change<S>>,
    /// Objects to check. Each remains known until its check has ended.
    pub(super) doubts: VecDeque<Doubt>,
}

fn key(id: &Id<'_>) -> Key {
    (id.namespace.map(Box::from), id.name.into())
}

fn gone<S>((namespace, name): Key, uid: Uid) -> Change<S> {
    Change::Gone { namespace: namespace.map(String::from), name: name.into(), uid }
}

impl<S: Shape> Objects<S> {
    pub(super) fn new(query: &Query, known: Known, deletes: Arc<RecentDeletes>) -> Self {
        let known = known.objects.into_iter().map(|(namespace, name, uid)| {
            ((namespace.map(String::into_boxed_str), name.into_boxed_str()), Version { uid, resource_version: None })
        });
        Self {
            filter: Filter::new(query, S::PROVES_GONE),
            known: known.collect(),
            former: HashSet::new(),
            limit: usize::MAX,
            deletes,
            changes: VecDeque::new(),
            doubts: VecDeque::new(),
        }
    }

    /// Returns the `labelSelector` and the `fieldSelector` of the watch request.
    pub(super) fn selectors(&self) -> (&str, String) {
        match &self.filter {
            Filter::Selector { selector, .. } => (selector, String::new()),
            Filter::Query(query) => {
                ("", query.select.only_name().map_or_else(String::new, |n| format!("metadata.name={n}")))
            }
            Filter::All | Filter::Label { .. } => ("", String::new()),
        }
    }

    pub(super) fn keys(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.known.keys()
    }

    /// Takes the known objects: namespace, name and UID.
    pub(super) fn take_known(&mut self) -> Vec<(Option<String>, String, Uid)> {
        let known = std::mem::take(&mut self.known).into_iter();
        known.map(|((namespace, name), version)| (namespace.map(String::from), name.into(), version.uid)).collect()
    }

    fn is_wanted(&self, object: &S) -> bool {
        let meta = object.meta();
        match &self.filter {
            Filter::All => true,
            Filter::Selector { query, .. } => query.covers(meta.namespace.as_deref()),
            Filter::Query(query) => {
                let namespace = meta.namespace.as_deref();
                query.select.names(namespace, &meta.name).unwrap_or_else(|| query.covers(namespace))
            }
            Filter::Label { label, value } => {
                let is_known = |key: Key| self.known.contains_key(&key) || self.former.contains(&key);
                meta.labels.get(label) == Some(value) || is_known(key(&object.id()))
            }
        }
    }

    /// Handles an event about an object that exists.
    pub(super) fn present(&mut self, object: S) {
        if !self.is_wanted(&object) {
            return;
        }
        let id = object.id();
        let key = key(&id);
        match self.known.get(&key) {
            // A watch may start before the list, and repeats older events, even those of former objects.
            Some(known) if known.is_newer_than(id.resource_version) => return,
            Some(known) if known.uid != *id.uid && known.resource_version.is_none() => {
                let (uid, replaced_by) = (known.uid.clone(), Some(id.uid.clone()));
                return self.doubts.push_back(Doubt { key, uid, no_finalizers: false, replaced_by });
            }
            None if self.known.len().max(self.former.len()) >= self.limit => return,
            _ => {}
        }
        self.insert(key, object);
    }

    /// Makes this object the known one of its name.
    fn insert(&mut self, key: Key, object: S) {
        let id = object.id();
        let version = Version { uid: id.uid.clone(), resource_version: Some(id.resource_version.into()) };
        if let Some(old) = self.known.insert(key.clone(), version)
            && old.uid != *id.uid
        {
            self.changes.push_back(gone(key, old.uid));
        }
        self.changes.push_back(Change::Present(object));
    }

    fn remove(&mut self, key: Key, uid: Uid) {
        self.known.remove(&key);
        if matches!(self.filter, Filter::Label { .. }) {
            self.former.insert(key.clone());
        }
        self.changes.push_back(gone(key, uid));
    }

    /// Handles a DELETED event.
    pub(super) fn deleted(&mut self, object: &S) {
        if !self.is_wanted(object) {
            return;
        }
        let id = object.id();
        let (key, uid) = (key(&id), id.uid.clone());
        if self.known.get(&key).is_some_and(|known| known.uid != uid) {
            // Another object has the name already.
            return self.changes.push_back(gone(key, uid));
        }
        let no_finalizers = object.meta().finalizers.is_empty();
        let is_proved = no_finalizers && self.deletes.outcome(&uid) == Some(DeleteOutcome::Removed);
        if matches!(self.filter, Filter::Selector { .. }) && !is_proved {
            let version = Version { uid: uid.clone(), resource_version: Some(id.resource_version.into()) };
            self.known.insert(key.clone(), version);
            return self.doubts.push_back(Doubt { key, uid, no_finalizers, replaced_by: None });
        }
        self.remove(key, uid);
    }

    /// Handles the result of a check, unless the object is no longer known. An error leaves the object known, and is
    /// returned.
    pub(super) fn checked(&mut self, verdict: Verdict<S>) -> Result<(), Error> {
        let Verdict { doubt: Doubt { key, uid, replaced_by, .. }, found } = verdict;
        let Some(known) = self.known.get(&key).filter(|known| known.uid == uid) else { return Ok(()) };
        match found? {
            // The watch has reported a newer version meanwhile.
            Some(object) if known.is_newer_than(object.id().resource_version) => {}
            Some(object) if self.is_selected(&object, &uid, replaced_by.as_ref()) => self.insert(key, object),
            _ => self.remove(key, uid),
        }
        Ok(())
    }

    /// Returns whether the object that a check found belongs to the query. The server's selector may not select another
    /// object of the same name.
    fn is_selected(&self, found: &S, uid: &Uid, replaced_by: Option<&Uid>) -> bool {
        let found = found.id().uid;
        !matches!(self.filter, Filter::Selector { .. }) || found == uid || Some(found) == replaced_by
    }

    /// Handles the answers of single reads. Of the `unread` objects nothing new is known.
    pub(super) fn read<'k>(&mut self, items: Vec<S>, unread: impl Iterator<Item = &'k Key>) {
        let kept: Vec<_> = unread.filter_map(|key| self.known.remove_entry(key)).collect();
        self.listed(items);
        self.known.extend(kept);
    }

    /// Handles the answer of a list: compares it with what is known.
    pub(super) fn listed(&mut self, items: Vec<S>) {
        let mut missing = std::mem::take(&mut self.known);
        for object in items {
            let id = object.id();
            let key = key(&id);
            match missing.remove(&key) {
                Some(old) if old.uid == *id.uid && old.resource_version.as_deref() == Some(id.resource_version) => {
                    self.known.insert(key, old);
                }
                Some(old) => {
                    self.known.insert(key.clone(), old);
                    self.insert(key, object);
                }
                None if self.is_wanted(&object) => self.insert(key, object),
                None => {}
            }
        }
        for (key, Version { uid, resource_version }) in missing {
            match self.filter {
                Filter::All | Filter::Query(_) => self.changes.push_back(gone(key, uid)),
                // It may only have lost the labels.
                Filter::Selector { .. } | Filter::Label { .. } => {
                    let doubt = Doubt { key: key.clone(), uid: uid.clone(), no_finalizers: false, replaced_by: None };
                    self.doubts.push_back(doubt);
                    self.known.insert(key, Version { uid, resource_version });
                }
            }
        }
    }

    /// Reports all objects as gone, because their kind is.
    pub(super) fn all_gone(&mut self) {
        self.changes.extend(self.known.drain().map(|(key, version)| gone(key, version.uid)));
    }
}

impl Version {
    fn is_newer_than(&self, resource_version: &str) -> bool {
        self.resource_version.as_deref().is_some_and(|known| is_older(resource_version, known))
    }
}
