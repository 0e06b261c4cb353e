//! The objects and their recent history: one revision counter, a table per resource, and a history per table.
//!
//! The history serves watches and continued lists. It is bounded: requests for older revisions receive 410.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    ops::Bound,
    sync::Arc,
};

use serde_json::Value;
use tokio::sync::watch;

use crate::{kinds::ResourceId, object::Stored};

/// The key of an object. The namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ObjectId {
    pub(crate) resource: ResourceId,
    pub(crate) namespace: Box<str>,
    pub(crate) name: Box<str>,
}

impl ObjectId {
    pub(crate) fn new(resource: &ResourceId, namespace: &str, name: &str) -> Self {
        Self { resource: resource.clone(), namespace: namespace.into(), name: name.into() }
    }
}

/// A change of one object.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    /// The state before the change; none for a new object.
    pub(crate) before: Option<Arc<Stored>>,
    /// The state after the change; none for a removed object.
    pub(crate) after: Option<Arc<Stored>>,
    /// The last state. That of a removed object has the revision of its removal.
    pub(crate) last: Arc<Stored>,
}

type Key = (Box<str>, Box<str>);

/// Changes in order, oldest first.
pub(crate) type Changes<'a> = std::collections::vec_deque::Iter<'a, Change>;

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Table {
    objects: BTreeMap<Key, Arc<Stored>>,
    changes: VecDeque<Change>,
    /// The revision up to which changes have been dropped.
    pub(crate) compacted: u64,
    /// The revision of the last change that has been dropped.
    lost: u64,
    /// Incremented when the resource is no longer served, which ends the watches of earlier epochs.
    pub(crate) epoch: u64,
    changed: watch::Sender<u64>,
}

impl Table {
    fn new() -> Self {
        let changed = watch::Sender::new(0);
        Self { objects: BTreeMap::new(), changes: VecDeque::new(), compacted: 0, lost: 0, epoch: 0, changed }
    }

    /// Returns the changes after a revision; none if some of them have been dropped.
    pub(crate) fn changes_after(&self, revision: u64) -> Option<Changes<'_>> {
        if revision < self.compacted { None } else { Some(self.changes_since(revision)) }
    }

    /// Returns the changes for a watch that has seen everything up to a revision; none if a change that it has not seen
    /// has been dropped.
    pub(crate) fn changes_behind(&self, revision: u64) -> Option<Changes<'_>> {
        if revision < self.lost { None } else { Some(self.changes_since(revision)) }
    }

    fn changes_since(&self, revision: u64) -> Changes<'_> {
        let from = self.changes.partition_point(|change| change.revision <= revision);
        self.changes.range(from..)
    }

    /// Returns a channel that announces changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Returns the objects of a namespace, or all, by namespace and name.
    pub(crate) fn list<'a>(&'a self, namespace: Option<&'a str>) -> impl Iterator<Item = &'a Arc<Stored>> {
        self.list_after(namespace, None)
    }

    /// Returns the objects after a key.
    pub(crate) fn list_after<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<(&str, &str)>,
    ) -> impl Iterator<Item = &'a Arc<Stored>> + use<'a> {
        let from = match (after, namespace) {
            (Some((namespace, name)), _) => Bound::Excluded((namespace.into(), name.into())),
            (None, Some(namespace)) => Bound::Included((namespace.into(), "".into())),
            (None, None) => Bound::Unbounded,
        };
        let range = self.objects.range::<Key, _>((from, Bound::Unbounded));
        range
            .take_while(move |((at, _), _)| namespace.is_none_or(|namespace| namespace == &**at))
            .map(|(_, object)| object)
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.objects.get(&(namespace.into(), name.into()))
    }

    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }
}

/// All objects.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    /// How many changes of each resource are kept.
    history: usize,
    tables: BTreeMap<ResourceId, Table>,
    /// The objects that name an owner with this UID.
    dependents: HashMap<Box<str>, BTreeSet<ObjectId>>,
    uids: HashMap<Box<str>, ObjectId>,
    /// The objects that cannot be decoded.
    corrupt: BTreeSet<ObjectId>,
}

impl Store {
    pub(crate) fn new(history: usize) -> Self {
        Self {
            revision: 1,
            history,
            tables: BTreeMap::new(),
            dependents: HashMap::new(),
            uids: HashMap::new(),
            corrupt: BTreeSet::new(),
        }
    }

    /// Returns the revision of the last change.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the table of a resource; none if it never had one.
    pub(crate) fn peek(&self, resource: &ResourceId) -> Option<&Table> {
        self.tables.get(resource)
    }

    /// Returns the table of a resource.
    pub(crate) fn table(&mut self, resource: &ResourceId) -> &Table {
        self.table_mut(resource)
    }

    /// Starts the history of a resource. Nothing is known about the time before it was served.
    pub(crate) fn begin(&mut self, resource: &ResourceId) {
        let revision = self.revision;
        let table = self.table_mut(resource);
        if table.objects.is_empty() {
            table.compacted = revision;
        }
    }

    fn table_mut(&mut self, resource: &ResourceId) -> &mut Table {
        self.tables.entry(resource.clone()).or_insert_with(Table::new)
    }

    pub(crate) fn get(&self, resource: &ResourceId, namespace: &str, name: &str) -> Option<&Arc<Stored>> {
        self.tables.get(resource)?.get(namespace, name)
    }

    pub(crate) fn get_id(&self, id: &ObjectId) -> Option<&Arc<Stored>> {
        self.get(&id.resource, &id.namespace, &id.name)
    }

    /// Makes an object unreadable. Returns whether it exists.
    pub(crate) fn corrupt(&mut self, resource: &ResourceId, namespace: &str, name: &str) -> bool {
        let exists = self.get(resource, namespace, name).is_some();
        if exists {
            self.corrupt.insert(ObjectId::new(resource, namespace, name));
        }
        exists
    }

    /// Returns whether an object of a list cannot be decoded.
    pub(crate) fn is_corrupt(&self, resource: &ResourceId, namespace: Option<&str>, name: Option<&str>) -> bool {
        let of = |id: &ObjectId| {
            id.resource == *resource
                && namespace.is_none_or(|namespace| namespace == &*id.namespace)
                && name.is_none_or(|name| name == &*id.name)
        };
        self.corrupt.iter().any(of)
    }

    /// Returns the key of the object with a UID.
    pub(crate) fn find_uid(&self, uid: &str) -> Option<&ObjectId> {
        self.uids.get(uid)
    }

    pub(crate) fn list<'a>(
        &'a self,
        resource: &ResourceId,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Stored>> {
        self.tables.get(resource).into_iter().flat_map(move |table| table.list(namespace))
    }

    /// Returns all objects, by resource.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Stored>> {
        self.tables.values().flat_map(|table| table.list(None))
    }

    /// Returns the objects that name an owner with this UID.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &ObjectId> {
        self.dependents.get(uid).into_iter().flatten()
    }

    /// Returns the number of objects.
    pub(crate) fn len(&self) -> usize {
        self.tables.values().map(Table::len).sum()
    }

    /// Creates or replaces an object at the next revision.
    pub(crate) fn put(&mut self, resource: &ResourceId, object: Value) -> Change {
        let stored = Stored::new(object, self.revision + 1);
        self.keep(resource, Arc::new(stored))
    }

    /// Creates or replaces an object that already has the next revision.
    pub(crate) fn keep(&mut self, resource: &ResourceId, stored: Arc<Stored>) -> Change {
        self.revision += 1;
        let key = (stored.namespace.clone(), stored.name.clone());
        let before = self.table_mut(resource).objects.insert(key, Arc::clone(&stored));
        if let Some(before) = &before {
            self.forget(resource, before);
        }
        let id = ObjectId::new(resource, &stored.namespace, &stored.name);
        for owner in &stored.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert(id.clone());
        }
        self.uids.insert(stored.uid.clone(), id);
        self.record(
            resource,
            Change { revision: self.revision, before, after: Some(Arc::clone(&stored)), last: stored },
        )
    }

    /// Removes an object at the next revision.
    pub(crate) fn remove(&mut self, resource: &ResourceId, namespace: &str, name: &str) -> Option<Change> {
        let before = self.table_mut(resource).objects.remove(&(namespace.into(), name.into()))?;
        self.revision += 1;
        self.forget(resource, &before);
        let last = Arc::new(Stored::new(before.value(), self.revision));
        Some(self.record(resource, Change { revision: self.revision, before: Some(before), after: None, last }))
    }

    fn forget(&mut self, resource: &ResourceId, before: &Stored) {
        let id = ObjectId::new(resource, &before.namespace, &before.name);
        for owner in &before.owners {
            if let Some(dependents) = self.dependents.get_mut(&owner.uid) {
                dependents.remove(&id);
                if dependents.is_empty() {
                    self.dependents.remove(&owner.uid);
                }
            }
        }
        self.uids.remove(&before.uid);
    }

    fn record(&mut self, resource: &ResourceId, change: Change) -> Change {
        let history = self.history;
        let table = self.table_mut(resource);
        table.changes.push_back(change.clone());
        while table.changes.len() > history {
            if let Some(oldest) = table.changes.pop_front() {
                (table.compacted, table.lost) = (oldest.revision, oldest.revision);
            }
        }
        table.changed.send_replace(change.revision);
        change
    }

    /// Drops the history of all tables, like etcd's compaction.
    pub(crate) fn compact(&mut self) {
        let revision = self.revision;
        for table in self.tables.values_mut() {
            table.lost = table.changes.back().map_or(table.lost, |last| last.revision);
            table.changes.clear();
            table.compacted = revision;
            // Wakes watches, so that they check their position.
            table.changed.send_replace(revision);
        }
    }

    /// Ends the watches of a resource that is no longer served. They still receive the earlier changes.
    pub(crate) fn drop_table(&mut self, resource: &ResourceId) {
        let revision = self.revision;
        let left: Vec<_> = self.list(resource, None).cloned().collect();
        for object in &left {
            self.forget(resource, object);
        }
        if let Some(table) = self.tables.get_mut(resource) {
            table.objects.clear();
            table.epoch += 1;
            table.changed.send_replace(revision);
        }
    }

    /// Returns the state of a table at an earlier revision, reconstructed from the history; none if that has been
    /// dropped.
    pub(crate) fn at(&self, resource: &ResourceId, revision: u64) -> Option<Past<'_>> {
        let Some(table) = self.tables.get(resource) else { return Some(Past { table: None, undone: BTreeMap::new() }) };
        let mut undone: BTreeMap<Key, Option<Arc<Stored>>> = BTreeMap::new();
        for change in table.changes_after(revision)? {
            let key = (change.last.namespace.clone(), change.last.name.clone());
            undone.entry(key).or_insert_with(|| change.before.clone());
        }
        Some(Past { table: Some(table), undone })
    }
}

/// A table at an earlier revision.
pub(crate) struct Past<'a> {
    table: Option<&'a Table>,
    undone: BTreeMap<Key, Option<Arc<Stored>>>,
}

impl Past<'_> {
    /// Returns the objects of a namespace, or all, after a key.
    pub(crate) fn list_after(&self, namespace: Option<&str>, after: Option<(&str, &str)>) -> Vec<Arc<Stored>> {
        let Some(table) = self.table else { return Vec::new() };
        let behind = |namespace: &str, name: &str| after.is_none_or(|after| (namespace, name) > after);
        let mut objects: BTreeMap<(&str, &str), &Arc<Stored>> =
            table.list_after(namespace, after).map(|object| ((&*object.namespace, &*object.name), object)).collect();
        for ((at, name), before) in &self.undone {
            if namespace.is_some_and(|namespace| namespace != &**at) || !behind(at, name) {
                continue;
            }
            match before {
                Some(before) => objects.insert((at, name), before),
                None => objects.remove(&(&**at, &**name)),
            };
        }
        objects.into_values().cloned().collect()
    }
}
