//! Copies what matters to a deletion from its cluster, for a rehearsal elsewhere. Only reads.
//!
//! What is copied: all objects of the namespaces in which something is deleted, the instances of CRDs that are deleted, all
//! cluster-scoped objects, and, from all namespaces, the kinds that controllers, their rights, webhooks and APIServices consist of.

mod clean;
mod scope;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use billhook_cluster::{Cluster, Error, ErrorKind, Scan};
use billhook_explain::{Custodian, Foresight, ObjectRef, Steps, ToDelete};
use billhook_objects::{Catalog, GroupKind, ObjectKey, Resource};
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::Value;

use self::{
    clean::Cleaner,
    scope::{Place, Scope},
};
use crate::{Clusters, OperationError, PreparedDelete, explain, operation::Record};

/// How many lists are read at a time.
const AT_ONCE: usize = 8;
/// How many objects of a kind are read in one namespace, or in all, in pages of this size. The CRDs of a cluster are much larger.
const PAGE: u32 = 500;
const LARGE_PAGE: u32 = 50;
const OBJECTS: usize = 50_000;
/// Of how many different finalizers of a kind it is found out who removes them.
const FINALIZERS: usize = 1000;

/// What a deletion meets in its cluster.
#[derive(Debug)]
pub struct Copy {
    /// The objects as they are, without the content of Secrets and ConfigMaps and the schemas of CRDs.
    pub objects: Vec<Value>,
    /// What could not be read, or not to its end.
    pub unread: Vec<NotRead>,
    /// The time of the server's clock.
    pub time: Timestamp,
    /// How many requests were sent for it, those of the plan included.
    pub requests: u64,
}

/// A list that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NotRead {
    /// The kind.
    pub resource: Resource,
    /// The namespace; none for all.
    pub namespace: Option<String>,
    /// Why.
    pub why: String,
    /// Whether some of the objects could be read.
    pub partly: bool,
    /// Of a list of all namespaces, those that were read one by one instead.
    pub except: BTreeSet<String>,
}

impl PreparedDelete {
    /// Returns the UIDs of the objects of the release; without one, of those that the manifests name. What collections contain
    /// belongs to others.
    pub fn own(&self) -> impl Iterator<Item = &str> {
        let entries = self.record.as_ref().map(|record| &record.inventory.entries);
        let recorded = entries.into_iter().flat_map(BTreeMap::values).filter_map(|entry| entry.uid.as_ref());
        let is_own = move |key: &ObjectKey| entries.is_none_or(|entries| entries.contains_key(key));
        let named = self.plan.deleted().filter(move |(_, key, ..)| is_own(key)).map(|(_, _, uid, _)| uid);
        recorded.chain(named).map(|uid| uid.as_str())
    }
}

/// Copies what matters to a planned deletion from the release's own cluster.
///
/// # Errors
///
/// When the kinds of the cluster or the record of the release cannot be read. Other failures are in [`Copy::unread`].
pub async fn copy_for(clusters: &Clusters, prepared: &PreparedDelete) -> Result<Copy, OperationError> {
    let cluster = &clusters.own;
    let catalog = cluster.catalog().await?;
    let release = prepared.record.as_ref().map(|record| record.inventory.release.clone());
    let scope = Scope::of(&prepared.plan, &prepared.snapshot, release.as_ref());
    let places = scope.places(&catalog);
    // Collected because the closure must not live across an await: the future would not be `Send`.
    let reads: Vec<_> = places.iter().map(|place| read(cluster, &catalog, place, &scope)).collect();
    let answers: Vec<Read> = stream::iter(reads).buffered(AT_ONCE).collect().await;
    let (mut objects, mut unread, mut seen) = (Vec::new(), Vec::new(), HashSet::new());
    for read in answers {
        unread.extend(read.unread);
        let is_new = |object: &Value| seen.insert(uid(object).to_owned());
        objects.extend(read.objects.into_iter().filter(is_new));
    }
    if let Some(record) = &prepared.record {
        read_record(cluster, record, &mut objects).await?;
    }
    unread.sort();
    let missing: BTreeSet<&GroupKind> = unread.iter().map(|one| &one.resource.kind).collect();
    Cleaner::new(&objects, &missing, &scope).clean(&mut objects);
    clean::add_namespaces(&mut objects);
    let time = cluster.server_time().and_then(|seconds| Timestamp::from_second(seconds).ok()).unwrap_or_default();
    let requests = clusters.requests().values().sum();
    Ok(Copy { objects, unread, time, requests })
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The answers to the lists of a place.
#[derive(Default)]
struct Read {
    objects: Vec<Value>,
    unread: Vec<NotRead>,
}

/// Reads a place: where a kind may not be listed in all namespaces, in those that matter.
async fn read(cluster: &Cluster, catalog: &Catalog, place: &Place, scope: &Scope) -> Read {
    let mut read = Read::default();
    let Err(error) = list(cluster, place, None, &mut read).await else { return read };
    // What no webhook converts can still be read in the version in which it is stored.
    let versions = catalog.get(&place.resource.kind).filter(|_| *error.kind() == ErrorKind::Webhook);
    let versions = versions.into_iter().flat_map(|kind| &kind.versions);
    for version in versions.filter(|version| **version != place.resource.version) {
        if list(cluster, &place.in_version(version), None, &mut read).await.is_ok() {
            return read;
        }
    }
    let mut all = not_read(place, None, &error);
    if *error.kind() == ErrorKind::Forbidden && place.resource.namespaced && place.namespace.is_none() {
        for namespace in &scope.touched {
            match list(cluster, place, Some(namespace), &mut read).await {
                Ok(()) => {
                    all.except.insert(namespace.clone());
                }
                Err(error) => read.unread.push(not_read(place, Some(namespace), &error)),
            }
        }
    }
    read.unread.push(all);
    read
}

fn not_read(place: &Place, namespace: Option<&str>, error: &Error) -> NotRead {
    let why = if *error.kind() == ErrorKind::Forbidden { "the right is missing".to_owned() } else { error.message() };
    let namespace = namespace.or(place.namespace.as_deref()).map(str::to_owned);
    NotRead { resource: place.resource.clone(), namespace, why, partly: false, except: BTreeSet::new() }
}

async fn list(cluster: &Cluster, place: &Place, namespace: Option<&str>, read: &mut Read) -> Result<(), Error> {
    let page = if place.is_large() { LARGE_PAGE } else { PAGE };
    let namespace = namespace.or(place.namespace.as_deref());
    let pages = OBJECTS / usize::try_from(page).unwrap_or(1);
    let scan = Scan { resource: &place.resource, namespace, whole: place.whole, page, pages };
    let (objects, complete) = cluster.scan(&scan, |object| place.keep(object)).await?;
    read.objects.extend(objects);
    if !complete {
        let why = format!("only the first {OBJECTS} objects were read");
        let namespace = namespace.map(str::to_owned);
        let resource = place.resource.clone();
        read.unread.push(NotRead { resource, namespace, why, partly: true, except: BTreeSet::new() });
    }
    Ok(())
}

/// Reads the Secrets that hold the record of the release, of which only the metadata was listed.
async fn read_record(cluster: &Cluster, record: &Record, objects: &mut Vec<Value>) -> Result<(), Error> {
    let release = &record.inventory.release;
    let names = record.token.iter().flat_map(|token| token.secrets(release));
    for name in names {
        let resource = Resource::secrets();
        let key = ObjectKey::new(resource.kind.clone(), Some(release.namespace()), name);
        let Some(mut secret) = cluster.get(&resource, &key).await? else { continue };
        secret["apiVersion"] = "v1".into();
        secret["kind"] = "Secret".into();
        objects.retain(|object| uid(object) != uid(&secret));
        objects.push(secret);
    }
    Ok(())
}

/// Returns who removes the finalizers of objects, by the evidence in a cluster: that of a copy, as any number of requests is sent.
/// Also returns of how many objects that was not looked for, because there are too many different finalizers.
pub async fn custodians(cluster: &Cluster, catalog: &Catalog, objects: &[Value]) -> (Vec<Custodian>, usize) {
    let mut by_kind: BTreeMap<GroupKind, Vec<ToDelete>> = BTreeMap::new();
    for object in objects {
        let finalizers = texts(&object["metadata"]["finalizers"]);
        let Some(reference) = ObjectRef::of(object).filter(|_| !finalizers.is_empty()) else { continue };
        let labels = serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default();
        let one = ToDelete { object: reference, step: 0, contained: false, labels, finalizers, forced: Vec::new() };
        by_kind.entry(one.object.group_kind()).or_default().push(one);
    }
    let steps = || Steps::new([[].as_slice()]);
    let (mut found, mut unexamined) = (Vec::new(), 0);
    for objects in by_kind.into_values() {
        let foresight = |now| Foresight::new(objects, steps(), catalog, now).examining(FINALIZERS);
        let foresight = explain::look_ahead(cluster, foresight).await;
        found.extend(foresight.custodians());
        unexamined += foresight.unexamined();
    }
    (found, unexamined)
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
