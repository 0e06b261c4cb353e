//! What a client should know before it deletes an object.
//!
//! Watches keep the metadata of what would be deleted with it, and the evidence about controllers is read again from time to time.
//! A question is answered from that, and sends no request.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use billhook_cluster::{Change, Cluster, Known};
use billhook_explain::{Answer, Foreseen, Foresight, ObjectRef, Query as Evidence, Steps, ToDelete};
use billhook_objects::{Catalog, GroupKind, Labels, ObjectKey, Resource, ResourceType, Scope, Uid, wellknown};
use billhook_plan::{Counts, Listed, Observed, Query, Select};
use futures::{StreamExt as _, stream::SelectAll};
use jiff::Timestamp;
use tokio::time::sleep;

use crate::explain::{evidence, reference};

/// How long evidence is used.
const REFRESH: Duration = Duration::from_secs(30);
/// The pause before a failed discovery is repeated, and after CRDs have changed, which come in groups.
const PAUSE: Duration = Duration::from_secs(2);
/// How many kinds are watched.
const KINDS: usize = 240;
/// Kinds that describe others, change often, or are deleted with their owners.
const LEFT_OUT: [&str; 7] = ["Event", "Lease", "EndpointSlice", "Endpoints", "Pod", "ReplicaSet", "ControllerRevision"];

/// What is known of a cluster.
#[derive(Default)]
pub struct Outlook {
    state: RwLock<State>,
}

/// What will happen if an object is deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prospect {
    /// What will hang, be lost or be left.
    pub foreseen: Vec<Foreseen>,
    /// What is deleted with the object, without what other objects own.
    pub contents: Counts,
    /// Whether some of it is not known: not read yet, or not readable.
    pub incomplete: bool,
}

#[derive(Default)]
struct State {
    catalog: Arc<Catalog>,
    kinds: HashMap<GroupKind, Kind>,
    answers: Vec<(Evidence, Arc<Answer>)>,
    now: Timestamp,
    /// Whether evidence was read since the watches began.
    is_informed: bool,
}

/// The objects of a kind, by namespace and name.
#[derive(Default)]
struct Kind {
    objects: BTreeMap<(String, String), Seen>,
    /// Whether all are known.
    is_complete: bool,
}

struct Seen {
    uid: Uid,
    labels: Labels,
    finalizers: Vec<String>,
    is_owned: bool,
}

impl Outlook {
    /// Keeps what is known current until it is dropped.
    pub async fn follow(&self, cluster: &Cluster) -> std::convert::Infallible {
        loop {
            match cluster.catalog().await {
                Ok(catalog) => self.follow_kinds(cluster, Arc::new(catalog)).await,
                Err(error) => tracing::warn!(%error, "failed to discover the kinds of the cluster"),
            }
            sleep(PAUSE).await;
        }
    }

    /// Watches the kinds of a catalog until CRDs change.
    async fn follow_kinds(&self, cluster: &Cluster, catalog: Arc<Catalog>) {
        let queries = queries(&catalog);
        self.change(|state| *state = State { catalog: Arc::clone(&catalog), ..State::default() });
        let mut watches = SelectAll::new();
        for listing in cluster.snapshot(&queries).await {
            let kind = listing.query.resource.kind.clone();
            let mut known = Known::default();
            if let Listed::Items { resource_version, items } = listing.found {
                known.objects =
                    items.iter().map(|item| (item.namespace.clone(), item.name.clone(), item.uid.clone())).collect();
                known.resource_version = resource_version;
                self.change(|state| {
                    let of_kind = state.kinds.entry(kind.clone()).or_default();
                    of_kind.is_complete = true;
                    items.into_iter().for_each(|item| of_kind.insert(item));
                });
            }
            watches.push(cluster.watch(&listing.query, known).map(move |change| (kind.clone(), change)).boxed());
        }
        let informing = async {
            loop {
                self.inform(cluster, &catalog).await;
                sleep(REFRESH).await;
            }
        };
        let watching = async {
            while let Some((kind, change)) = watches.next().await {
                if self.saw(&kind, change) && kind == wellknown::crd() {
                    break;
                }
            }
        };
        tokio::select! {
            () = informing => {}
            () = watching => {}
        }
    }

    /// Reads the evidence about everything that may hang.
    async fn inform(&self, cluster: &Cluster, catalog: &Catalog) {
        let objects = self.read(|state| {
            let is_asked = |kind: &GroupKind, seen: &Seen| *kind == wellknown::namespace() || seen.matters(kind);
            state.to_delete(0, &is_asked, false)
        });
        let steps = Steps::new([&[] as &[usize]]);
        let (now, answers) = evidence(cluster, |now| Foresight::new(objects, steps, catalog, now)).await;
        self.change(|state| (state.answers, state.now, state.is_informed) = (answers, now, true));
    }

    /// Returns whether a change creates or deletes an object.
    fn saw(&self, kind: &GroupKind, change: Change) -> bool {
        self.change(|state| {
            let of_kind = state.kinds.entry(kind.clone()).or_default();
            match change {
                Change::Present(object) => return of_kind.insert_new(object),
                Change::Gone { namespace, name, .. } => {
                    return of_kind.objects.remove(&(namespace.unwrap_or_default(), name)).is_some();
                }
                Change::KindGone => *of_kind = Kind::default(),
                Change::Away(_) => of_kind.is_complete = false,
                Change::Back => of_kind.is_complete = true,
                Change::PollOnly(_) => {}
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

impl State {
    fn prospect(&self, target: &ObjectKey) -> Prospect {
        let Some(reference) = reference(&self.catalog, target) else {
            return Prospect { incomplete: true, ..Prospect::default() };
        };
        let deleted = ToDelete {
            object: reference,
            step: 0,
            contained: false,
            labels: Labels::default(),
            finalizers: Vec::new(),
            forced: Vec::new(),
        };
        let is_container = target.kind == wellknown::namespace() || target.kind == wellknown::crd();
        // What a controller is needed for is deleted some time later, if at all.
        let (step, steps) = if is_container { (0, vec![Vec::new()]) } else { (1, vec![Vec::new(), vec![0]]) };
        let is_inside = |kind: &GroupKind, namespace: &str| match target.kind == wellknown::namespace() {
            true => namespace == target.name,
            false => self.catalog.get(kind).is_some_and(|kind| wellknown::crd_of(&kind.plural, &kind.kind) == *target),
        };
        let mut objects: Vec<ToDelete> = self.to_delete(step, &|kind, seen| seen.matters(kind), true);
        objects.retain(|one| {
            !is_container || is_inside(&one.object.group_kind(), one.object.namespace.as_deref().unwrap_or_default())
        });
        objects.push(deleted);
        let steps = Steps::new(steps.iter().map(Vec::as_slice));
        let mut foresight = Foresight::new(objects, steps, &self.catalog, self.now);
        foresight.learn(self.now, self.answers.iter().map(|(query, answer)| (query.clone(), Arc::clone(answer))));
        // What is not known is not asked: there is no time for it.
        let is_open = !foresight.queries().is_empty();
        let mut foreseen = foresight.foreseen();
        if !is_container {
            foreseen.retain(|one| matches!(one, Foreseen::ControllerFirst { .. }));
        }
        let mut contents = Vec::new();
        let mut is_complete = self.is_informed && !is_open;
        for (kind, of_kind) in &self.kinds {
            let inside = of_kind.objects.iter().filter(|((namespace, name), seen)| {
                is_container && !seen.is_owned && is_inside(kind, namespace) && !is_own(kind, name)
            });
            let count = inside.count();
            if count > 0 {
                contents.push((kind.clone(), count));
            }
            is_complete &= of_kind.is_complete;
        }
        Prospect { foreseen, contents: Counts::from(contents), incomplete: !is_complete }
    }

    fn to_delete(&self, step: usize, wanted: &dyn Fn(&GroupKind, &Seen) -> bool, contained: bool) -> Vec<ToDelete> {
        let mut found = Vec::new();
        for (kind, of_kind) in &self.kinds {
            for ((namespace, name), seen) in of_kind.objects.iter().filter(|(_, seen)| wanted(kind, seen)) {
                let namespace = Some(namespace.as_str()).filter(|namespace| !namespace.is_empty());
                let key = ObjectKey::new(kind.clone(), namespace, name.as_str());
                let Some(object) = reference(&self.catalog, &key) else { continue };
                found.push(ToDelete {
                    object: ObjectRef { uid: Some(seen.uid.clone()), ..object },
                    step,
                    contained,
                    labels: seen.labels.clone(),
                    finalizers: seen.finalizers.clone(),
                    forced: Vec::new(),
                });
            }
        }
        found
    }
}

impl Kind {
    fn insert(&mut self, item: Observed) {
        self.insert_new(item);
    }

    /// Returns whether the object was not known.
    fn insert_new(&mut self, item: Observed) -> bool {
        let Observed { namespace, name, uid, labels, finalizers, owners, .. } = item;
        let seen = Seen { uid, labels, finalizers, is_owned: !owners.is_empty() };
        self.objects.insert((namespace.unwrap_or_default(), name), seen).is_none()
    }
}

impl Seen {
    fn matters(&self, kind: &GroupKind) -> bool {
        *kind != wellknown::crd() && !self.finalizers.is_empty()
    }
}

/// Returns whether Kubernetes creates an object of this kind and name in every namespace.
fn is_own(kind: &GroupKind, name: &str) -> bool {
    (kind.is("", "ConfigMap") && name == "kube-root-ca.crt") || (kind.is("", "ServiceAccount") && name == "default")
}

/// Returns what is watched: all objects of the kinds that are deleted with a Namespace or CRD.
fn queries(catalog: &Catalog) -> Vec<Query> {
    let is_container = |kind: &ResourceType| kind.kind == wellknown::namespace() || kind.kind == wellknown::crd();
    let is_watched = |kind: &&ResourceType| {
        let version = kind.api_version(None).to_string();
        kind.supports("list")
            && kind.supports("watch")
            && !kind.plural.contains('/')
            && !catalog.stale.contains(&version)
            && !LEFT_OUT.contains(&kind.kind.kind.as_str())
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
    kinds.into_iter().take(KINDS).map(query).collect()
}
