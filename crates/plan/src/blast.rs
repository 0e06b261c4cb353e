//! The blast radius of a deletion: the contents of deleted Namespaces and the instances of deleted CRDs.

use std::collections::{BTreeMap, HashMap, HashSet};

use billhook_objects::{Catalog, GroupKind, ObjectKey, ReleaseName, ResourceType, Scope, Uid, wellknown};

use crate::{
    Catalogs, Collection, Counts, ListFailure, Listed, Listing, NoteKind, Observed, Operation, Owner, Plan, Query,
    Resource, Select, Snapshot, Uncovered, UncoveredCause, UncoveredNote, UnreadableNote,
    groups::{is_crd, own_of_every_namespace},
    inventory::INVENTORY_LABEL,
    queries::{QuerySet, all_of, kind_of_crd, spread},
};

/// Returns the queries for the contents of the Namespaces and CRDs that a plan deletes, without the plan's own queries.
pub fn blast_queries(plan: &Plan, catalogs: &Catalogs) -> Vec<Query> {
    let mut queries = QuerySet::default();
    for (cluster, containers) in containers(plan) {
        let Some(catalog) = catalogs.get(cluster) else { continue };
        for kind in containers.crds.keys().filter_map(|name| kind_of_crd(catalog, name)) {
            if !is_covered(plan, cluster, &kind.kind) {
                queries.add(all_of(cluster, kind));
            }
        }
        let namespaces: Vec<Option<&str>> = containers.namespaces.keys().map(|name| Some(*name)).collect();
        if !namespaces.is_empty() {
            for kind in catalog.iter().filter(|kind| holds_content(kind, catalog)) {
                queries.extend(spread(cluster, &Resource::of(kind, None), &namespaces, &Select::All));
            }
        }
    }
    queries.into_vec().into_iter().filter(|query| !plan.queries.contains(query)).collect()
}

/// Notes the contents that the release did not create, or that annotations keep, from the answers to the plan's own queries and
/// to [`blast_queries`].
///
/// Namespaces and CRDs that are being deleted already are left out, since their contents will be deleted with or without this plan.
pub fn add_blast_notes(plan: &mut Plan, snapshot: &Snapshot, release: Option<&ReleaseName>) {
    read_uncovered(plan, snapshot);
    let kept =
        plan.uncovered.iter().filter(|uncovered| uncovered.deleted_with.is_some() && uncovered.cause.is_annotation());
    let mut kept: Counts = kept.map(|uncovered| &uncovered.object.kind).collect();
    let mut notes = Vec::new();
    for (cluster, containers) in containers(plan) {
        let listings: Vec<&Listing> =
            snapshot.listings.iter().filter(|listing| listing.query.cluster.as_deref() == cluster).collect();
        notes.extend(unreadable(&listings, &containers));
        notes.extend(Contents::of(plan, cluster, &listings, release).foreign(
            &containers,
            &listings,
            release.is_some(),
            &mut kept,
        ));
    }
    if kept.total() > 0 {
        notes.push(NoteKind::Uncovered(UncoveredNote::KeptDeletedWithContainer { counts: kept }));
    }
    let cleans = plan.operation == Operation::Clean;
    plan.add_notes(notes.into_iter().map(|note| match note {
        NoteKind::ForeignObjects { object, counts, .. } if cleans => NoteKind::Contained { object, counts }.into(),
        note => note.into(),
    }));
}

/// Corrects why objects are not deleted that the plan has left without reading their annotations.
fn read_uncovered(plan: &mut Plan, snapshot: &Snapshot) {
    let is_unread = |left: &&mut Uncovered| left.deleted_with.is_some() && left.cause == UncoveredCause::NoGroup;
    let mut unread: HashMap<_, _> =
        plan.uncovered.iter_mut().filter(is_unread).map(|left| (left.object.clone(), left)).collect();
    if unread.is_empty() {
        return;
    }
    for Listing { query, found } in snapshot.listings.iter().filter(|listing| listing.query.cluster.is_none()) {
        let Listed::Items { items, .. } = found else { continue };
        for item in items {
            let Some(annotation) = item.annotations.treatment().kept_by() else { continue };
            if let Some(left) = unread.get_mut(&item.key(&query.resource.kind)) {
                left.cause = UncoveredCause::kept_by(annotation);
            }
        }
    }
}

/// Notes the lists that failed, so that contents may be deleted unseen.
fn unreadable(listings: &[&Listing], containers: &Containers<'_>) -> Option<NoteKind> {
    let matters = |query: &Query| {
        let inside = |namespace: &String| containers.namespaces.contains_key(namespace.as_str());
        query.select == Select::All
            && (containers.crds.contains_key(query.resource.crd().name.as_str())
                || query.namespace.iter().chain(&query.namespaces).any(inside))
    };
    let failed = |Listing { query, found }: &&Listing| match found {
        Listed::Failed(reason) if matters(query) => Some(ListFailure { list: query.scope(), reason: reason.clone() }),
        _ => None,
    };
    let mut failures: Vec<_> = listings.iter().filter_map(failed).collect();
    failures.sort();
    (!failures.is_empty()).then_some(NoteKind::Unreadable(UnreadableNote::Contents { failures }))
}

/// Adds a dangerous note if a plan deletes more than `limit` objects, those in deleted Namespaces and CRDs included.
pub fn limit_deletions(plan: &mut Plan, limit: usize) {
    let is_contained = |left: &&Uncovered| left.deleted_with.is_some() && !left.cause.is_annotation();
    let contained = plan.uncovered.iter().filter(is_contained).count();
    let foreign = plan.notes.iter().map(|note| match &note.kind {
        NoteKind::ForeignObjects { counts, .. } => counts.total(),
        NoteKind::Uncovered(UncoveredNote::KeptDeletedWithContainer { counts }) => counts.total(),
        _ => 0,
    });
    let deletions = plan.deletions() + contained + foreign.sum::<usize>();
    if deletions > limit {
        plan.add_notes([NoteKind::TooManyDeletions { deletions, limit }.into()]);
    }
}

/// The Namespaces and CRDs that a plan deletes, by name.
#[derive(Default)]
struct Containers<'a> {
    namespaces: BTreeMap<&'a str, &'a ObjectKey>,
    crds: BTreeMap<&'a str, &'a ObjectKey>,
}

fn containers(plan: &Plan) -> BTreeMap<Option<&str>, Containers<'_>> {
    let namespace = wellknown::namespace();
    let mut found: BTreeMap<_, Containers<'_>> = BTreeMap::new();
    for (cluster, key, ..) in plan.deleted().filter(|(.., deleting)| !deleting) {
        if key.kind == namespace {
            found.entry(cluster).or_default().namespaces.insert(&key.name, key);
        } else if is_crd(&key.kind) {
            found.entry(cluster).or_default().crds.insert(&key.name, key);
        }
    }
    found
}

/// Returns the collections of a plan on one cluster, with their queries.
fn collections<'a>(plan: &'a Plan, cluster: Option<&'a str>) -> impl Iterator<Item = (&'a Collection, &'a Query)> {
    plan.delete_nodes()
        .filter(move |(node, _)| node.cluster.as_deref() == cluster)
        .flat_map(|(_, work)| &work.collections)
        .filter_map(|collection| Some((collection, plan.queries.get(collection.query)?)))
}

/// Whether a collection of the plan contains all objects of a kind.
fn is_covered(plan: &Plan, cluster: Option<&str>, kind: &GroupKind) -> bool {
    collections(plan, cluster).any(|(collection, query)| {
        let Collection { names, namespaces, label_selector, excluded, .. } = collection;
        query.resource.kind == *kind
            && query.namespace.is_none()
            && names.is_empty()
            && namespaces.is_empty()
            && label_selector.is_empty()
            && excluded.is_empty()
    })
}

/// Whether objects of a kind are deleted with their Namespace and matter. Events only describe other objects, and what
/// cannot be deleted (such as metrics) is not stored.
fn holds_content(kind: &ResourceType, catalog: &Catalog) -> bool {
    let is_event = kind.kind.kind == "Event" && matches!(kind.kind.group.as_str(), "" | "events.k8s.io");
    kind.scope == Scope::Namespaced
        && !is_event
        && !kind.plural.contains('/')
        && kind.supports("list")
        && kind.supports("delete")
        && !catalog.stale.contains(&kind.api_version(None).to_string())
}

/// A listed object.
struct Item<'a> {
    kind: &'a GroupKind,
    object: &'a Observed,
}

/// All listed objects of one cluster, and which of them are not foreign.
struct Contents<'a> {
    items: BTreeMap<&'a Uid, Item<'a>>,
    own: HashSet<&'a Uid>,
}

impl<'a> Contents<'a> {
    fn of(plan: &'a Plan, cluster: Option<&'a str>, listings: &[&'a Listing], release: Option<&ReleaseName>) -> Self {
        let mut items = BTreeMap::new();
        for Listing { query, found } in listings {
            let Listed::Items { items: objects, .. } = found else { continue };
            // An object that two API groups serve is listed twice, with one UID.
            for object in objects {
                items.entry(&object.uid).or_insert(Item { kind: &query.resource.kind, object });
            }
        }
        let mut own: HashSet<&Uid> = plan.deleted().map(|(_, _, uid, _)| uid).collect();
        let mut taken: HashMap<&GroupKind, Vec<(&Collection, &Query)>> = HashMap::new();
        for (collection, query) in collections(plan, cluster) {
            taken.entry(&query.resource.kind).or_default().push((collection, query));
        }
        let recorded = recorded(plan, cluster);
        let is_own = |item: &Item<'_>| {
            let taken = taken.get(item.kind).into_iter().flatten();
            recorded.contains(&(item.kind, item.object.namespace.as_deref(), item.object.name.as_str()))
                || is_kubernetes_own(item)
                || release.is_some_and(|release| is_inventory_of(release, item))
                || taken.into_iter().any(|(collection, query)| {
                    (query.namespace.is_none() || query.namespace == item.object.namespace)
                        && collection.contains(item.object)
                })
        };
        own.extend(items.iter().filter(|(_, item)| is_own(item)).map(|(uid, _)| *uid));
        let mut contents = Self { items, own };
        contents.add_endpoints(plan);
        contents.add_garbage(listings);
        contents.add_owned();
        contents
    }

    /// Adds the Endpoints of own Services: they have the name of the Service and no owner.
    fn add_endpoints(&mut self, plan: &Plan) {
        let mut services: HashSet<(Option<&str>, &str)> = HashSet::new();
        let of_plan = plan.deleted().map(|(_, key, ..)| key).filter(|key| key.kind.is("", "Service"));
        services.extend(of_plan.map(|key| (key.namespace.as_deref(), key.name.as_str())));
        let items = self.items.iter().filter(|(uid, item)| item.kind.is("", "Service") && self.own.contains(*uid));
        services.extend(items.map(|(_, item)| (item.object.namespace.as_deref(), item.object.name.as_str())));
        let endpoints = self.items.iter().filter(|(_, item)| {
            item.kind.is("", "Endpoints")
                && services.contains(&(item.object.namespace.as_deref(), item.object.name.as_str()))
        });
        let endpoints: Vec<&Uid> = endpoints.map(|(uid, _)| *uid).collect();
        self.own.extend(endpoints);
    }

    /// Adds garbage: objects whose owners are all gone. After an interrupted deletion it exists for a while, until
    /// Kubernetes collects it.
    fn add_garbage(&mut self, listings: &[&'a Listing]) {
        let mut listed: HashMap<&GroupKind, Vec<&Query>> = HashMap::new();
        for Listing { query, found } in listings {
            if query.select == Select::All && matches!(found, Listed::Items { .. }) {
                listed.entry(&query.resource.kind).or_default().push(query);
            }
        }
        let is_gone = |owner: &Owner, namespace: Option<&str>| {
            let mut lists = listed.get(&owner.kind).into_iter().flatten();
            !self.items.contains_key(&owner.uid) && lists.any(|query| query.covers(namespace))
        };
        let is_garbage = |Item { object, .. }: &Item<'_>| {
            let gone = |owner: &Owner| is_gone(owner, object.namespace.as_deref());
            !object.owners.is_empty() && object.owners.iter().all(gone)
        };
        let garbage: Vec<&Uid> = self.items.iter().filter(|(_, item)| is_garbage(item)).map(|(uid, _)| *uid).collect();
        self.own.extend(garbage);
    }

    /// Adds what own objects own, directly or not, such as ReplicaSets, Pods and EndpointSlices.
    fn add_owned(&mut self) {
        let mut dependents: HashMap<&Uid, Vec<&'a Uid>> = HashMap::new();
        for (uid, item) in &self.items {
            for owner in &item.object.owners {
                dependents.entry(&owner.uid).or_default().push(uid);
            }
        }
        let mut open: Vec<&Uid> = self.own.iter().copied().collect();
        while let Some(owner) = open.pop() {
            for dependent in dependents.get(owner).into_iter().flatten() {
                if self.own.insert(dependent) {
                    open.push(dependent);
                }
            }
        }
    }

    /// Returns one note for each container. An instance of a deleted CRD in a deleted Namespace counts for its CRD. What
    /// annotations keep is counted apart.
    fn foreign(
        &self,
        containers: &Containers<'_>,
        listings: &[&Listing],
        release: bool,
        kept: &mut Counts,
    ) -> Vec<NoteKind> {
        let resources = listings.iter().map(|listing| &listing.query.resource);
        let crds: BTreeMap<&GroupKind, &ObjectKey> = resources
            .filter_map(|resource| Some((&resource.kind, *containers.crds.get(resource.crd().name.as_str())?)))
            .collect();
        let mut counts: BTreeMap<&ObjectKey, Counts> = BTreeMap::new();
        for (_, item) in self.items.iter().filter(|(uid, _)| !self.own.contains(*uid)) {
            let namespace = item.object.namespace.as_deref();
            let container =
                crds.get(item.kind).or_else(|| namespace.and_then(|namespace| containers.namespaces.get(namespace)));
            match container {
                Some(_) if item.object.annotations.treatment().is_kept() => kept.add(item.kind),
                Some(container) => counts.entry(container).or_default().add(item.kind),
                None => {}
            }
        }
        let note = |(object, counts): (&ObjectKey, Counts)| NoteKind::ForeignObjects {
            object: object.clone(),
            counts,
            of_release: release,
        };
        counts.into_iter().map(note).collect()
    }
}

/// Returns the objects of the release on a cluster, those that the plan leaves included. The label alone makes no object one of
/// them.
fn recorded<'a>(plan: &'a Plan, cluster: Option<&str>) -> HashSet<(&'a GroupKind, Option<&'a str>, &'a str)> {
    let left = plan.uncovered.iter().map(|uncovered| &uncovered.object);
    let keys = plan.apply_tasks().map(|task| &task.object).chain(left).filter(|_| cluster.is_none());
    keys.map(|key| (&key.kind, key.namespace.as_deref(), key.name.as_str())).collect()
}

fn is_kubernetes_own(item: &Item<'_>) -> bool {
    own_of_every_namespace(item.kind).is_some_and(|name| name == item.object.name)
}

/// Whether an object is a Secret with a part of the release's own inventory.
fn is_inventory_of(release: &ReleaseName, item: &Item<'_>) -> bool {
    let Item { kind, object } = item;
    let value = release.label_value();
    kind.is("", "Secret")
        && object.namespace.as_deref() == Some(release.namespace())
        && object.labels.get(INVENTORY_LABEL).is_some_and(|of| *of == value || of == release.name())
}
