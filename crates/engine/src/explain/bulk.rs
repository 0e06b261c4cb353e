//! One list that answers many queries: reads of objects of one kind, lists of it in many namespaces, Events about many objects,
//! and questions about a right for many objects.

use std::collections::{BTreeMap, BTreeSet};

use billhook_cluster::{Cluster, Place};
use billhook_explain::{Access, Answer, Content, Query};
use billhook_objects::Resource;
use jiff::Timestamp;
use serde_json::Value;

use super::now;

/// The selector of the Events that are evidence, and the one of a query.
const WARNINGS: &str = "type=Warning";
const ABOUT: &str = "involvedObject.uid=";
/// How many objects of a kind that are not being deleted are kept of a list of all.
const KEPT: usize = 2000;

/// Queries that one request can answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    /// Objects of a kind.
    Objects(Resource, Content),
    /// The Events about objects.
    Events(Resource),
    /// A right of a user on all objects of a kind.
    Right(String, String, Resource),
}

impl Group {
    /// Returns the group of a query, if it has one.
    pub(crate) fn of(query: &Query) -> Option<Self> {
        match query {
            Query::Get { resource, content, .. } => Some(Self::Objects(resource.clone(), *content)),
            Query::List { resource, fields, .. } if fields.starts_with(ABOUT) => Some(Self::Events(resource.clone())),
            Query::List { resource, namespace: Some(_), fields, content, .. } if fields.is_empty() => {
                Some(Self::Objects(resource.clone(), *content))
            }
            Query::Access(Access { user, verb, resource, .. }) => {
                Some(Self::Right(user.clone(), verb.clone(), resource.clone()))
            }
            Query::List { .. } | Query::Discovery(_) | Query::Probe(_) => None,
        }
    }

    /// Returns the group of whole objects, which answers what only needs metadata.
    pub(super) fn whole(query: &Query) -> Option<Self> {
        match Self::of(query)? {
            Self::Objects(resource, Content::Metadata) => Some(Self::Objects(resource, Content::Full)),
            _ => None,
        }
    }

    /// Returns the namespace of a query of this group; an empty text for a query without one.
    pub(super) fn namespace_of(&self, query: &Query) -> Option<String> {
        let (Query::Get { namespace, .. } | Query::List { namespace, .. }) = query else { return None };
        (Self::of(query).as_ref() == Some(self)).then(|| namespace.clone().unwrap_or_default())
    }

    /// Reads what answers the queries of the group, by some requests at most, and returns how many were sent. If all queries
    /// are of one namespace, only that is read.
    pub(crate) async fn read(
        &self,
        cluster: &Cluster,
        namespaces: &BTreeSet<String>,
        requests: usize,
    ) -> (Option<Bulk>, usize) {
        let only = namespaces.iter().next().filter(|first| namespaces.len() == 1 && !first.is_empty());
        let only = only.map(String::as_str);
        let place = match self {
            Self::Objects(resource, content) => Place { resource, namespace: only, fields: "", content: *content },
            Self::Events(resource) => Place { resource, namespace: only, fields: WARNINGS, content: Content::Full },
            Self::Right(user, verb, resource) => return (may_all(cluster, user, verb, resource).await, 1),
        };
        let (answer, sent) = cluster.look_at_all(&place, requests, |_| true).await;
        (Bulk::new(now(cluster), only, answer), sent)
    }
}

/// Asks for a right on all objects of a kind. One who has it has it on each; for others each object must be asked.
async fn may_all(cluster: &Cluster, user: &str, verb: &str, resource: &Resource) -> Option<Bulk> {
    let access = Access {
        user: user.to_owned(),
        verb: verb.to_owned(),
        resource: resource.clone(),
        namespace: None,
        name: String::new(),
    };
    let answer = cluster.look(&Query::Access(access)).await;
    let allowed = matches!(answer, Answer::Allowed(true, _));
    allowed.then(|| Bulk { at: now(cluster), only: None, read: Read::Right(answer) })
}

/// What a list showed.
pub(crate) struct Bulk {
    pub(super) at: Timestamp,
    /// The namespace that was listed; none for all.
    only: Option<String>,
    read: Read,
}

enum Read {
    /// The objects by namespace and name, and whether these are all.
    Objects(BTreeMap<String, BTreeMap<String, Value>>, bool),
    Right(Answer),
}

impl Bulk {
    /// Sorts the objects of a list; none if it could not be read.
    pub(super) fn new(at: Timestamp, only: Option<&str>, answer: Answer) -> Option<Self> {
        let Answer::Objects { items, complete } = answer else { return None };
        let mut objects: BTreeMap<String, BTreeMap<String, Value>> = BTreeMap::new();
        for item in items {
            let text = |key: &str| item["metadata"][key].as_str().unwrap_or_default().to_owned();
            objects.entry(text("namespace")).or_default().insert(text("name"), item);
        }
        Some(Self { at, only: only.map(str::to_owned), read: Read::Objects(objects, complete) })
    }

    /// Answers a query of the group; none if the list does not tell.
    pub(crate) fn answer(&self, query: &Query) -> Option<Answer> {
        let (objects, complete) = match &self.read {
            Read::Objects(objects, complete) => (objects, *complete),
            Read::Right(answer) => return Some(answer.clone()),
        };
        let covers = |namespace: &str| self.only.as_deref().is_none_or(|only| only == namespace);
        match query {
            Query::Get { namespace, name, .. } => {
                let namespace = namespace.as_deref().unwrap_or_default();
                let found = objects.get(namespace).and_then(|named| named.get(name));
                let missing = || (complete && covers(namespace)).then_some(Answer::Missing);
                found.map(|object| Answer::Object(object.clone())).or_else(missing)
            }
            Query::List { namespace: Some(namespace), fields, .. } if complete && covers(namespace) => {
                let items = objects.get(namespace).into_iter().flat_map(BTreeMap::values);
                let about = fields.strip_prefix(ABOUT);
                let is_meant = |item: &&Value| about.is_none_or(|uid| item["involvedObject"]["uid"] == *uid);
                Some(Answer::Objects { items: items.filter(is_meant).cloned().collect(), complete })
            }
            _ => None,
        }
    }
}

/// Returns whether an object of a list of all is kept: it is being deleted, or one of the first others.
pub(super) fn keeper() -> impl Fn(&Value) -> bool {
    let others = std::cell::Cell::new(0);
    move |object| {
        if is_deleting(object) {
            return true;
        }
        others.set(others.get() + 1);
        others.get() <= KEPT
    }
}

/// Returns whether an object is being deleted.
pub(super) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}
