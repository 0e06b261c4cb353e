//! What a client should know before it deletes an object.
//!
//! Watches keep the metadata of what would be deleted with it, and the evidence about controllers is read again from time to time.
//! A question is answered from that, and sends no request.

mod alike;

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

use self::alike::{Chosen, choose};
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
    pub foreseen: Vec<Expected>,
    /// What is deleted with the object, at least. What other objects in a Namespace own is not counted.
    pub contents: Counts,
    /// Kinds of objects that may be deleted with it and could not be read.
    pub unread: Vec<GroupKind>,
    /// Whether something else is not known, or no longer: not read yet, or not readable.
    pub incomplete: bool,
}

/// Something that is foreseen of objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// What it is. It names some of the objects.
    pub what: Foreseen,
    /// How many objects it is about.
    pub count: usize,
}

#[derive(Default)]
struct State {
    catalog: Arc<Catalog>,
    /// What is watched.
    kinds: BTreeMap<GroupKind, Kind>,
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
/// An object that may hang.
type Item<'a> = (&'a GroupKind, &'a Place, &'a Details);
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
        let (catalog, objects) = self.read(|state| (Arc::clone(&state.catalog), state.everything()));
        let steps = Steps::new([&[] as &[usize]]);
        let (now, answers) = evidence(cluster, |now| Foresight::new(objects, steps, &catalog, now).brief()).await;
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
    fn prospect<'a>(&'a self, target: &ObjectKey) -> Prospect {
        let Some(reference) = reference(&self.catalog, target) else {
            return Prospect { incomplete: true, ..Prospect::default() };
        };
        let (is_namespace, is_crd) = (target.kind == wellknown::namespace(), target.kind == wellknown::crd());
        let is_inside = |kind: &GroupKind| match self.catalog.get(kind) {
            Some(served) if is_namespace => served.scope == Scope::Namespaced,
            Some(served) => is_crd && wellknown::crd_of(&served.plural, &served.kind) == *target,
            None => false,
        };
        let inside = || self.kinds.iter().filter(|(kind, _)| is_inside(kind));
        let within = |of_kind: &'a Kind| if is_namespace { of_kind.within(&target.name) } else { of_kind.all() };
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
        let (steps, step, chosen) = match is_container {
            true => {
                let inside = inside().flat_map(|(kind, of_kind)| hanging(kind, within(of_kind)));
                (vec![Vec::new()], 0, choose(inside))
            }
            false => {
                let all = self.kinds.iter().flat_map(|(kind, of_kind)| hanging(kind, of_kind.all()));
                (vec![Vec::new(), vec![0]], 1, choose(all))
            }
        };
        let Chosen { objects, left_out } = chosen;
        let counts: HashMap<&Uid, usize> =
            objects.iter().map(|((.., details), count)| (&details.uid, *count)).collect();
        let mut objects: Vec<ToDelete> =
            objects.iter().filter_map(|(object, _)| self.to_delete(step, *object, true)).collect();
        objects.push(deleted);
        let steps = Steps::new(steps.iter().map(Vec::as_slice));
        let mut foresight = Foresight::new(objects, steps, &self.catalog, self.now).brief();
        let is_open = self.answer(&mut foresight);
        let mut foreseen = foresight.foreseen();
        if !is_container {
            foreseen.retain(|one| matches!(one, Foreseen::ControllerFirst { .. }));
        }
        let count = |object: &ObjectRef| object.uid.as_ref().and_then(|uid| counts.get(uid)).copied().unwrap_or(1);
        let expected = |what: Foreseen| Expected { count: what.objects().iter().map(count).sum(), what };
        let contained = |(kind, of_kind): (&GroupKind, &'a Kind)| {
            let is_counted = |(place, seen): &(&Place, &Seen)| !seen.is_owned && !is_own(kind, &place.1);
            let count = if is_crd { of_kind.objects.len() } else { within(of_kind).filter(is_counted).count() };
            (count > 0).then(|| (kind.clone(), count))
        };
        let is_behind = is_container && inside().any(|(_, of_kind)| !of_kind.is_complete);
        let is_unknown = left_out > 0 || foresight.unexamined() > 0 || !foresight.unread().is_empty();
        Prospect {
            foreseen: foreseen.into_iter().map(expected).collect(),
            contents: Counts::from(inside().filter_map(contained).collect::<Vec<_>>()),
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

    /// Returns what evidence is read about: every Namespace, and what stands for the objects that may hang.
    fn everything<'a>(&'a self) -> Vec<ToDelete> {
        let (namespaces, others): (Vec<_>, Vec<_>) =
            self.kinds.iter().partition(|(kind, _)| **kind == wellknown::namespace());
        let detailed = |(kind, of_kind): (&'a GroupKind, &'a Kind)| {
            of_kind.all().filter_map(move |(place, seen)| Some((kind, place, seen.details.as_deref()?)))
        };
        let others = choose(others.into_iter().flat_map(|(kind, of_kind)| hanging(kind, of_kind.all())));
        let others = others.objects.into_iter().map(|(object, _)| object);
        let all = namespaces.into_iter().flat_map(detailed).chain(others);
        all.filter_map(|object| self.to_delete(0, object, false)).collect()
    }

    fn to_delete(&self, step: usize, (kind, place, details): Item<'_>, contained: bool) -> Option<ToDelete> {
        let (namespace, name) = place;
        let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let object = reference(&self.catalog, &ObjectKey::new(kind.clone(), namespace, name.as_str()))?;
        Some(ToDelete {
            object: ObjectRef { uid: Some(details.uid.clone()), ..object },
            step,
            contained,
            labels: details.labels.clone(),
            finalizers: details.finalizers.clone(),
            forced: Vec::new(),
        })
    }
}

/// Returns those of these objects whose deletion may hang.
fn hanging<'a>(kind: &'a GroupKind, objects: Objects<'a>) -> impl Iterator<Item = Item<'a>> {
    let details = |seen: &'a Seen| seen.details.as_deref().filter(|details| !details.finalizers.is_empty());
    objects.filter_map(move |(place, seen)| Some((kind, place, details(seen)?)))
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

    fn within(&self, namespace: &str) -> Objects<'_> {
        let (from, namespace) = ((namespace.to_owned(), String::new()), namespace.to_owned());
        Box::new(self.objects.range(from..).take_while(move |((of_object, _), _)| *of_object == namespace))
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
