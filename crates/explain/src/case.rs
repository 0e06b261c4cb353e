//! What rules see: the evidence so far. What they look at and is not known yet becomes the next round of queries.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use billhook_objects::{Catalog, GroupKind, Resource, ResourceType, wellknown};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Access, Answer, Content, Failure, ObjectRef, Options, Probe, Query,
    kinds::{self, Builtin},
    object,
};

/// The size of the page of a list.
const PAGE: u32 = 500;
/// The size of the page of a list of which the first page does not show what is looked for.
const LONG_PAGE: u32 = 10_000;

/// An answer, and when it was given.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    pub(crate) at: Timestamp,
    /// Shared, because the diagnoses of many objects learn the same lists.
    pub(crate) answer: Arc<Answer>,
}

/// All answers, the first and the last for each query.
pub(crate) type Answers = BTreeMap<Query, Vec<Observation>>;

/// How soon a query is sent, if the budget does not suffice for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// What the subject says.
    Subject,
    /// What it waits for.
    Cause,
    /// Who is in charge, and whether that party works.
    Controller,
    /// What makes a message more precise.
    Detail,
}

/// An object, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Seen<'a> {
    /// Not read, or not yet.
    Unknown,
    /// It does not exist.
    Missing,
    /// Its kind is not served.
    NotServed,
    /// It cannot be read.
    Failed(&'a Failure),
    /// It exists.
    There(&'a Value),
}

impl<'a> Seen<'a> {
    pub(crate) fn value(self) -> Option<&'a Value> {
        if let Self::There(value) = self { Some(value) } else { None }
    }

    pub(crate) fn is_missing(self) -> bool {
        matches!(self, Self::Missing)
    }
}

/// A list, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    /// Not read, or not yet.
    Unknown,
    /// The kind is not served.
    NotServed,
    /// It cannot be read.
    Failed(&'a Failure),
    /// These objects, and whether there are no others.
    Items(&'a [Value], bool),
}

impl<'a> Found<'a> {
    /// Returns the objects that are known.
    pub(crate) fn items(self) -> &'a [Value] {
        if let Self::Items(items, _) = self { items } else { &[] }
    }

    /// Returns whether all objects are known.
    pub(crate) fn is_complete(self) -> bool {
        matches!(self, Self::Items(_, true) | Self::NotServed)
    }
}

/// The evidence, as rules see it.
pub(crate) struct Case<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) options: Options,
    pub(crate) now: Timestamp,
    answers: &'a Answers,
    needs: RefCell<BTreeMap<Query, Priority>>,
    again: RefCell<BTreeSet<Query>>,
}

impl<'a> Case<'a> {
    pub(crate) fn new(catalog: &'a Catalog, options: Options, now: Timestamp, answers: &'a Answers) -> Self {
        Self { catalog, options, now, answers, needs: RefCell::default(), again: RefCell::default() }
    }

    /// Returns what rules have looked at without an answer, the most important first.
    pub(crate) fn into_needs(self) -> Vec<Query> {
        let mut needs: Vec<_> =
            self.needs.into_inner().into_iter().map(|(query, priority)| (priority, query)).collect();
        needs.sort();
        needs.into_iter().map(|(_, query)| query).collect()
    }

    /// Returns the queries whose second answer would tell more.
    pub(crate) fn into_again(self) -> Vec<Query> {
        self.again.into_inner().into_iter().collect()
    }

    /// Returns the newest answer to a query, and asks it if there is none.
    fn ask(&self, query: Query, priority: Priority) -> Option<&'a Answer> {
        let known = self.answers.get(&query).and_then(|all| all.last()).map(|observation| &*observation.answer);
        if known.is_none() {
            let mut needs = self.needs.borrow_mut();
            let soonest = needs.entry(query).or_insert(priority);
            *soonest = priority.min(*soonest);
        }
        known
    }

    /// Looks at an object, whatever its kind.
    pub(crate) fn get(&self, object: &ObjectRef, priority: Priority) -> Seen<'a> {
        match self.resource(object) {
            Some(resource) => self.read(resource, object.namespace.as_deref(), &object.name, Content::Full, priority),
            None => Seen::NotServed,
        }
    }

    /// Looks at the metadata of an object: enough to tell whether it exists, and all that is read of a Secret.
    pub(crate) fn get_metadata(&self, object: &ObjectRef, priority: Priority) -> Seen<'a> {
        match self.resource(object) {
            Some(resource) => {
                self.read(resource, object.namespace.as_deref(), &object.name, Content::Metadata, priority)
            }
            None => Seen::NotServed,
        }
    }

    /// Looks at an object of a built-in kind.
    pub(crate) fn builtin(&self, kind: &Builtin, namespace: Option<&str>, name: &str, priority: Priority) -> Seen<'a> {
        self.read(kind.resource(), namespace, name, Content::Full, priority)
    }

    fn read(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
        content: Content,
        priority: Priority,
    ) -> Seen<'a> {
        match self.ask(get(resource, namespace, name, content), priority) {
            Some(Answer::Object(value)) => Seen::There(value),
            Some(Answer::Missing) => Seen::Missing,
            Some(Answer::NotServed) => Seen::NotServed,
            Some(Answer::Failed(failure)) => Seen::Failed(failure),
            _ => Seen::Unknown,
        }
    }

    /// Looks at a list of whole objects of a built-in kind.
    pub(crate) fn list(&self, kind: &Builtin, namespace: Option<&str>, priority: Priority) -> Found<'a> {
        self.list_of(kind.resource(), namespace, Content::Full, priority)
    }

    /// Looks at a list of whole objects in all namespaces that a `fieldSelector` selects.
    pub(crate) fn list_where(&self, kind: &Builtin, fields: &str, priority: Priority) -> Found<'a> {
        let (resource, fields) = (kind.resource(), fields.to_owned());
        self.found(Query::List { resource, namespace: None, fields, limit: PAGE, content: Content::Full }, priority)
    }

    /// Looks at a list of whole objects, and at more of it if none on its first page is wanted.
    pub(crate) fn list_until(
        &self,
        kind: &Builtin,
        namespace: Option<&str>,
        priority: Priority,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Found<'a> {
        let first = self.list(kind, namespace, priority);
        if !matches!(first, Found::Items(items, false) if !items.iter().any(is_wanted)) {
            return first;
        }
        let (resource, namespace) = (kind.resource(), namespace.map(str::to_owned));
        let more = Query::List { resource, namespace, fields: String::new(), limit: LONG_PAGE, content: Content::Full };
        match self.found(more, priority) {
            more @ Found::Items(..) => more,
            _ => first,
        }
    }

    /// Looks at a list.
    pub(crate) fn list_of(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        content: Content,
        priority: Priority,
    ) -> Found<'a> {
        let namespace = namespace.filter(|_| resource.namespaced).map(str::to_owned);
        self.found(Query::List { resource, namespace, fields: String::new(), limit: PAGE, content }, priority)
    }

    fn found(&self, query: Query, priority: Priority) -> Found<'a> {
        match self.ask(query, priority) {
            Some(Answer::Objects { items, complete }) => Found::Items(items, *complete),
            Some(Answer::NotServed) => Found::NotServed,
            Some(Answer::Failed(failure)) => Found::Failed(failure),
            _ => Found::Unknown,
        }
    }

    /// Looks at the Events about an object that warn, the newest first.
    pub(crate) fn warnings(&self, object: &Value) -> Vec<&'a Value> {
        let uid = object::uid(object);
        if uid.is_empty() {
            return Vec::new();
        }
        let namespace = object::namespace(object).unwrap_or("default").to_owned();
        let fields = format!("involvedObject.uid={uid}");
        let query = Query::List {
            resource: kinds::EVENT.resource(),
            namespace: Some(namespace),
            fields,
            limit: PAGE,
            content: Content::Full,
        };
        let items = self.found(query, Priority::Detail).items();
        let mut warnings: Vec<_> =
            items.iter().filter(|event| object::text(event, "/type") == Some("Warning")).collect();
        warnings.sort_by_key(|event| std::cmp::Reverse(happened_at(event)));
        warnings
    }

    /// Looks at a discovery document.
    pub(crate) fn discovery(&self, path: String) -> Option<&'a Answer> {
        self.ask(Query::Discovery(path), Priority::Cause)
    }

    /// Returns whether a user has a right; none if that is not known.
    pub(crate) fn may(&self, access: Access) -> Option<bool> {
        match self.ask(Query::Access(access), Priority::Controller) {
            Some(Answer::Allowed(allowed, _)) => Some(*allowed),
            _ => None,
        }
    }

    /// Returns how a dry run was rejected. Dry runs are sent only if the options allow it.
    pub(crate) fn rejection(&self, probe: Probe) -> Option<&'a Failure> {
        if !self.options.probe {
            return None;
        }
        match self.ask(Query::Probe(probe), Priority::Cause) {
            Some(Answer::Failed(failure)) => Some(failure),
            _ => None,
        }
    }

    /// Returns an earlier answer to the read of an object, and when it was given. If there is none, a second look would help.
    pub(crate) fn before(&self, object: &ObjectRef) -> Option<(Timestamp, Seen<'a>)> {
        let resource = self.resource(object)?;
        let query = get(resource, object.namespace.as_deref(), &object.name, Content::Full);
        let all = self.answers.get(&query)?;
        if let [first, _, ..] = all.as_slice() {
            let seen = if let Answer::Object(value) = &*first.answer { Seen::There(value) } else { Seen::Unknown };
            return Some((first.at, seen));
        }
        self.again.borrow_mut().insert(query);
        None
    }

    /// Returns how to address an object; none if its kind is not served.
    pub(crate) fn resource(&self, object: &ObjectRef) -> Option<Resource> {
        let served = self.catalog.get(&object.group_kind())?;
        Some(Resource::of(served, Some(object.api_version.version())))
    }

    /// Returns the kind of a plural and group, such as `widgets` and `shop.example`.
    pub(crate) fn kind_of(&self, plural: &str, group: &str) -> Option<&'a ResourceType> {
        self.catalog.iter().find(|kind| kind.plural == plural && kind.kind.group == group)
    }

    /// Returns a kind by its name alone, if only one group has it; the core group comes first.
    pub(crate) fn kind_named(&self, name: &str) -> Option<&'a ResourceType> {
        let core = self.catalog.get(&GroupKind::new("", name));
        let mut others = self.catalog.iter().filter(|kind| kind.kind.kind == name);
        core.or_else(|| others.next().filter(|_| others.next().is_none()))
    }

    /// Returns the CustomResourceDefinition of a kind, if it may have one: the groups of built-in kinds have no dot, or end with
    /// `.k8s.io` and are no CRDs' unless they are approved, which the read tells.
    pub(crate) fn crd_of(&self, object: &ObjectRef) -> Option<ObjectRef> {
        let kind = self.catalog.get(&object.group_kind())?;
        let group = &kind.kind.group;
        is_custom(group).then(|| kinds::CRD.named(None, format!("{}.{group}", kind.plural)))
    }

    /// Returns how many seconds ago a time was.
    pub(crate) fn seconds_since(&self, time: Timestamp) -> i64 {
        self.now.as_second() - time.as_second()
    }

    /// Returns how many seconds ago the deletion of an object was requested.
    pub(crate) fn age_of_deletion(&self, object: &Value) -> i64 {
        object::deleted_at(object).map_or(0, |at| self.seconds_since(at))
    }
}

/// Returns whether the kinds of a group may be those of CRDs.
pub(crate) fn is_custom(group: &str) -> bool {
    group.contains('.') && !wellknown::is_built_in(group)
}

fn get(resource: Resource, namespace: Option<&str>, name: &str, content: Content) -> Query {
    let namespace = namespace.filter(|_| resource.namespaced).map(str::to_owned);
    // The content of a Secret is never evidence.
    let content = if resource.kind.is("", "Secret") { Content::Metadata } else { content };
    Query::Get { resource, namespace, name: name.to_owned(), content }
}

/// Returns when an Event last happened.
pub(crate) fn happened_at(event: &Value) -> Option<Timestamp> {
    let paths = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/firstTimestamp"];
    paths.iter().find_map(|path| object::time(event, path))
}
