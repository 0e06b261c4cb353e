//! What a client should know before it deletes an object.
//!
//! Watches keep the metadata of what would be deleted with it, and the evidence about controllers is read again from time to time.
//! A question is answered from that, and sends no request.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use billhook_cluster::{Change, Cluster, Known};
use billhook_explain::{Answer, Content, Foreseen, Foresight, ObjectRef, Query as Evidence, Steps, ToDelete};
use billhook_objects::{Catalog, GroupKind, Labels, ObjectKey, Resource, ResourceType, Scope, Uid, wellknown};
use billhook_plan::{Counts, Listed, Observed, Query, Select};
use futures::{
    Stream, StreamExt as _,
    channel::mpsc::{UnboundedSender, unbounded},
    stream::{BoxStream, SelectAll, unfold},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::sleep};

use crate::explain::{Bulk, Group, evidence, reference};

/// How long evidence is used, and after what time kinds are looked for that could not be read.
const REFRESH: Duration = Duration::from_secs(30);
/// The pause after CRDs have changed, which come in groups and are not served at once.
const PAUSE: Duration = Duration::from_secs(2);
/// How many pages of a list of all namespaces are read.
const PAGES: usize = 20;
/// How many kinds are watched.
const KINDS: usize = 240;
/// Kinds that describe others, change often, or are deleted with their owners.
const LEFT_OUT: [&str; 7] = ["Event", "Lease", "EndpointSlice", "Endpoints", "Pod", "ReplicaSet", "ControllerRevision"];

/// What is known of a cluster.
#[derive(Default)]
pub struct Outlook {
    secrets: bool,
    state: RwLock<State>,
}

/// What will happen if an object is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prospect {
    /// What will hang, be lost or be left.
    pub foreseen: Vec<Foreseen>,
    /// What is deleted with the object, at least. What other objects in a Namespace own is not counted.
    pub contents: Counts,
    /// Kinds of objects that may be deleted with it and could not be read.
    pub unread: Vec<GroupKind>,
    /// Whether something else is not known, or no longer: not read yet, or not readable.
    pub incomplete: bool,
}

#[derive(Default)]
struct State {
    catalog: Arc<Catalog>,
    /// What is watched.
    kinds: HashMap<GroupKind, Kind>,
    /// What could not be listed or watched.
    unread: BTreeSet<GroupKind>,
    /// Whether all kinds of the cluster are known.
    is_discovered: bool,
    answers: HashMap<Evidence, Arc<Answer>>,
    /// Answers about single objects, by their kind and finalizers.
    samples: HashMap<Alike, Arc<Answer>>,
    /// Lists of all namespaces, for questions about one.
    bulks: BTreeMap<Group, Bulk>,
    now: Timestamp,
    /// Whether evidence was read.
    is_informed: bool,
}

/// The objects of a kind, by namespace and name.
#[derive(Default)]
struct Kind {
    objects: BTreeMap<Place, Seen>,
    /// Whether all are known.
    is_complete: bool,
}

type Place = (String, String);
/// The kind of objects, and their finalizers.
type Alike = (Resource, Vec<String>);

struct Seen {
    is_owned: bool,
    /// Of those that may hang.
    details: Option<Box<Details>>,
}

struct Details {
    uid: Uid,
    labels: Labels,
    finalizers: Vec<String>,
}

type Changes = BoxStream<'static, (GroupKind, Change)>;

impl Outlook {
    /// Starts without knowledge. Secrets are watched only if asked for, because RBAC cannot restrict that to their metadata.
    pub fn new(secrets: bool) -> Self {
        Self { secrets, state: RwLock::default() }
    }

    /// Keeps what is known current until it is dropped.
    pub async fn follow(&self, cluster: &Cluster) -> std::convert::Infallible {
        let (watches, mut added) = unbounded();
        let crds_changed = Notify::new();
        let reading = async {
            loop {
                self.discover(cluster, &watches).await;
                self.inform(cluster).await;
                tokio::select! {
                    () = sleep(REFRESH) => {}
                    () = crds_changed.notified() => sleep(PAUSE).await,
                }
            }
        };
        let watching = async {
            let mut all: SelectAll<Changes> = SelectAll::new();
            loop {
                tokio::select! {
                    Some(watch) = added.next() => all.push(watch),
                    Some((kind, change)) = all.next(), if !all.is_empty() => {
                        if self.saw(&kind, change) && kind == wellknown::crd() {
                            crds_changed.notify_one();
                        }
                    }
                }
            }
        };
        tokio::select! {
            never = reading => never,
            never = watching => never,
        }
    }

    /// Lists and watches the kinds that are not watched yet.
    async fn discover(&self, cluster: &Cluster, watches: &UnboundedSender<Changes>) {
        let catalog = match cluster.catalog().await {
            Ok(catalog) => Arc::new(catalog),
            Err(error) => {
                tracing::warn!(%error, "failed to discover the kinds of the cluster");
                return self.change(|state| state.is_discovered = false);
            }
        };
        let mut queries = queries(&catalog, self.secrets);
        self.read(|state| queries.retain(|query| !state.kinds.contains_key(&query.resource.kind)));
        self.change(|state| {
            state.is_discovered = catalog.stale.is_empty();
            state.catalog = catalog;
            state.unread = queries.iter().map(|query| query.resource.kind.clone()).collect();
            queries.truncate(KINDS.saturating_sub(state.kinds.len()));
        });
        for listing in cluster.snapshot(&queries).await {
            let kind = listing.query.resource.kind.clone();
            // Without the right to watch, lists would have to be repeated all the time.
            let (resource_version, items) = match listing.found {
                Listed::Items { resource_version: Some(resource_version), items } => (resource_version, items),
                Listed::NotServed => {
                    self.change(|state| state.unread.remove(&kind));
                    continue;
                }
                Listed::Items { .. } | Listed::Failed(_) => continue,
            };
            let objects =
                items.iter().map(|item| (item.namespace.clone(), item.name.clone(), item.uid.clone())).collect();
            let known = Known { resource_version: Some(resource_version), objects };
            let watch = until_it_ends(cluster.watch(&listing.query, known));
            self.change(|state| {
                let mut of_kind = Kind { is_complete: true, ..Kind::default() };
                for item in items {
                    of_kind.insert(&kind, item);
                }
                state.unread.remove(&kind);
                state.kinds.insert(kind.clone(), of_kind);
            });
            // It is received as long as this runs.
            let _sent = watches.unbounded_send(watch.map(move |change| (kind.clone(), change)).boxed());
        }
    }

    /// Reads the evidence about everything that may hang.
    async fn inform(&self, cluster: &Cluster) {
        let (catalog, objects) =
            self.read(|state| (Arc::clone(&state.catalog), state.to_delete(0, state.all(), false)));
        let steps = Steps::new([&[] as &[usize]]);
        let (now, answers) = evidence(cluster, |now| Foresight::new(objects, steps, &catalog, now)).await;
        let samples = answers.iter().filter_map(sample).collect();
        // What was asked about some namespaces, reviews ask about any.
        let is_of_some = |query: &Evidence| matches!(query, Evidence::List { namespace: Some(_), .. });
        let groups: BTreeSet<Group> =
            answers.iter().filter(|(query, _)| is_of_some(query)).filter_map(|(query, _)| Group::of(query)).collect();
        let mut bulks = BTreeMap::new();
        for group in groups {
            let (bulk, _) = group.read(cluster, &BTreeSet::new(), PAGES).await;
            bulks.extend(bulk.map(|bulk| (group, bulk)));
        }
        self.change(|state| {
            (state.answers, state.samples, state.bulks) = (answers.into_iter().collect(), samples, bulks);
            (state.now, state.is_informed) = (now, true);
        });
    }

    /// Returns whether a change creates or deletes an object.
    fn saw(&self, kind: &GroupKind, change: Change) -> bool {
        self.change(|state| {
            let Some(of_kind) = state.kinds.get_mut(kind) else { return false };
            match change {
                Change::Present(object) => return of_kind.insert(kind, object),
                Change::Gone { namespace, name, .. } => {
                    return of_kind.objects.remove(&(namespace.unwrap_or_default(), name)).is_some();
                }
                Change::KindGone => drop(state.kinds.remove(kind)),
                Change::PollOnly(_) => {
                    state.kinds.remove(kind);
                    state.unread.insert(kind.clone());
                }
                Change::Away(_) => of_kind.is_complete = false,
                Change::Back => of_kind.is_complete = true,
            }
            false
        })
    }

    /// Returns what will happen if an object is deleted.
    pub fn prospect(&self, target: &ObjectKey) -> Prospect {
        self.read(|state| state.prospect(target))
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn read<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        read(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Ends a watch with the change after which it would only list.
fn until_it_ends(watch: impl Stream<Item = Change> + Send + 'static) -> impl Stream<Item = Change> + Send {
    unfold(Some(watch.boxed()), |watch| async {
        let mut watch = watch?;
        let change = watch.next().await?;
        let is_last = matches!(change, Change::PollOnly(_) | Change::KindGone);
        Some((change, (!is_last).then_some(watch)))
    })
}

/// Returns an answer about one object as a sample of those with the same finalizers.
fn sample((query, answer): &(Evidence, Arc<Answer>)) -> Option<(Alike, Arc<Answer>)> {
    let (Evidence::Get { resource, content: Content::Full, .. }, Answer::Object(value)) = (query, &**answer) else {
        return None;
    };
    // One that is being deleted tells more than others do.
    let metadata = value.get("metadata").filter(|metadata| metadata.get("deletionTimestamp").is_none())?;
    let finalizers = metadata.get("finalizers")?.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned);
    Some(((resource.clone(), finalizers.collect()), Arc::clone(answer)))
}

impl State {
    fn prospect(&self, target: &ObjectKey) -> Prospect {
        let Some(reference) = reference(&self.catalog, target) else {
            return Prospect { incomplete: true, ..Prospect::default() };
        };
        let (is_namespace, is_crd) = (target.kind == wellknown::namespace(), target.kind == wellknown::crd());
        let is_inside = |kind: &GroupKind| match self.catalog.get(kind) {
            Some(served) if is_namespace => served.scope == Scope::Namespaced,
            Some(served) => is_crd && wellknown::crd_of(&served.plural, &served.kind) == *target,
            None => false,
        };
        let inside = || {
            let kinds = self.kinds.iter().filter(|(kind, _)| is_inside(kind));
            kinds.flat_map(|(kind, of_kind)| {
                let all = if is_namespace { of_kind.within(&target.name) } else { of_kind.all() };
                all.map(move |(place, seen)| (kind, place, seen))
            })
        };
        let own = self.kinds.get(&target.kind).filter(|_| is_namespace);
        let own = own.and_then(|known| known.objects.get(&(String::new(), target.name.clone()))?.details.as_ref());
        let deleted = ToDelete {
            object: reference,
            step: 0,
            contained: false,
            labels: own.map(|own| own.labels.clone()).unwrap_or_default(),
            finalizers: own.map(|own| own.finalizers.clone()).unwrap_or_default(),
            forced: Vec::new(),
        };
        let is_container = is_namespace || is_crd;
        // What a controller is needed for is deleted some time later, if at all.
        let (steps, mut objects) = match is_container {
            true => (vec![Vec::new()], self.to_delete(0, inside(), true)),
            false => {
                let mut objects = self.to_delete(1, self.all(), true);
                objects.retain(|one| !one.finalizers.is_empty());
                (vec![Vec::new(), vec![0]], objects)
            }
        };
        objects.push(deleted);
        let mut foresight =
            Foresight::new(objects, Steps::new(steps.iter().map(Vec::as_slice)), &self.catalog, self.now);
        let is_open = self.answer(&mut foresight);
        let mut foreseen = foresight.foreseen();
        if !is_container {
            foreseen.retain(|one| matches!(one, Foreseen::ControllerFirst { .. }));
        }
        let mut contents: BTreeMap<&GroupKind, usize> = BTreeMap::new();
        for (kind, place, seen) in inside() {
            if is_crd || (!seen.is_owned && !is_own(kind, &place.1)) {
                *contents.entry(kind).or_default() += 1;
            }
        }
        let is_behind =
            is_container && self.kinds.iter().any(|(kind, of_kind)| is_inside(kind) && !of_kind.is_complete);
        let is_unknown = foresight.unexamined() > 0 || !foresight.unread().is_empty();
        Prospect {
            foreseen,
            contents: Counts::from(contents.into_iter().map(|(kind, count)| (kind.clone(), count)).collect::<Vec<_>>()),
            unread: self.unread.iter().filter(|kind| is_inside(kind)).cloned().collect(),
            incomplete: is_open || is_behind || is_unknown || !self.is_informed || !self.is_discovered,
        }
    }

    /// Answers what a foresight asks from what is known, and returns whether something was not known. There is no time to ask.
    fn answer(&self, foresight: &mut Foresight<'_>) -> bool {
        let mut is_open = false;
        loop {
            let asked = foresight.queries();
            let count = asked.len();
            let known: Vec<_> =
                asked.into_iter().filter_map(|query| self.known(&query).map(|answer| (query, answer))).collect();
            is_open |= known.len() < count;
            if known.is_empty() {
                return is_open;
            }
            foresight.learn(self.now, known);
        }
    }

    fn known(&self, query: &Evidence) -> Option<Arc<Answer>> {
        if let Some(answer) = self.answers.get(query) {
            return Some(Arc::clone(answer));
        }
        let Evidence::Get { resource, namespace, name, .. } = query else {
            return self.bulks.get(&Group::of(query)?)?.answer(query).map(Arc::new);
        };
        let of_kind = self.kinds.get(&resource.kind)?;
        let seen = of_kind.objects.get(&(namespace.clone().unwrap_or_default(), name.clone()))?;
        let Details { labels, finalizers, .. } = &**seen.details.as_ref()?;
        if resource.kind == wellknown::namespace() {
            let labels: BTreeMap<&String, &String> = labels.iter().collect();
            return Some(Arc::new(Answer::Object(json!({"metadata": {"name": name, "labels": labels}}))));
        }
        // One controller removes a finalizer from all objects of a kind.
        self.samples.get(&(resource.clone(), finalizers.clone())).map(Arc::clone)
    }

    /// Returns all objects.
    fn all(&self) -> impl Iterator<Item = (&GroupKind, &Place, &Seen)> {
        self.kinds.iter().flat_map(|(kind, of_kind)| of_kind.all().map(move |(place, seen)| (kind, place, seen)))
    }

    /// Returns those of these objects whose deletion may hang.
    fn to_delete<'a>(
        &self,
        step: usize,
        objects: impl Iterator<Item = (&'a GroupKind, &'a Place, &'a Seen)>,
        contained: bool,
    ) -> Vec<ToDelete> {
        let to_delete = |(kind, (namespace, name), seen): (&GroupKind, &Place, &Seen)| {
            let Details { uid, labels, finalizers } = &**seen.details.as_ref()?;
            let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
            let object = reference(&self.catalog, &ObjectKey::new(kind.clone(), namespace, name.as_str()))?;
            Some(ToDelete {
                object: ObjectRef { uid: Some(uid.clone()), ..object },
                step,
                contained,
                labels: labels.clone(),
                finalizers: finalizers.clone(),
                forced: Vec::new(),
            })
        };
        objects.filter_map(to_delete).collect()
    }
}

impl Kind {
    /// Returns whether the object was not known.
    fn insert(&mut self, kind: &GroupKind, item: Observed) -> bool {
        let Observed { namespace, name, uid, labels, finalizers, owners, .. } = item;
        let matters = *kind == wellknown::namespace() || (*kind != wellknown::crd() && !finalizers.is_empty());
        let details = matters.then(|| Box::new(Details { uid, labels, finalizers }));
        let seen = Seen { is_owned: !owners.is_empty(), details };
        self.objects.insert((namespace.unwrap_or_default(), name), seen).is_none()
    }

    fn all(&self) -> Objects<'_> {
        Box::new(self.objects.iter())
    }

    fn within<'a>(&'a self, namespace: &'a str) -> Objects<'a> {
        let from = (namespace.to_owned(), String::new());
        Box::new(self.objects.range(from..).take_while(move |((of_object, _), _)| of_object == namespace))
    }
}

type Objects<'a> = Box<dyn Iterator<Item = (&'a Place, &'a Seen)> + 'a>;

/// Returns whether Kubernetes creates an object of this kind and name in every namespace.
fn is_own(kind: &GroupKind, name: &str) -> bool {
    (kind.is("", "ConfigMap") && name == "kube-root-ca.crt") || (kind.is("", "ServiceAccount") && name == "default")
}

/// Returns what is watched: all objects of the kinds that are deleted with a Namespace or CRD.
fn queries(catalog: &Catalog, secrets: bool) -> Vec<Query> {
    let is_container = |kind: &ResourceType| kind.kind == wellknown::namespace() || kind.kind == wellknown::crd();
    let is_watched = |kind: &&ResourceType| {
        kind.supports("list")
            && kind.supports("watch")
            && !kind.plural.contains('/')
            && !LEFT_OUT.contains(&kind.kind.kind.as_str())
            && (secrets || !kind.kind.is("", "Secret"))
            && (kind.scope == Scope::Namespaced || is_container(kind) || !wellknown::is_built_in(&kind.kind.group))
    };
    let mut kinds: Vec<&ResourceType> = catalog.iter().filter(is_watched).collect();
    kinds.sort_by_key(|kind| (!is_container(kind), kind.kind.clone()));
    let mut seen = HashSet::new();
    kinds.retain(|kind| seen.insert(&kind.kind));
    let query = |kind: &ResourceType| Query {
        cluster: None,
        resource: Resource::of(kind, None),
        namespace: None,
        select: Select::All,
        namespaces: Vec::new(),
    };
    kinds.into_iter().map(query).collect()
}
