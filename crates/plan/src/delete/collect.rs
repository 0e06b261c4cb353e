//! `deleteAllResources`: what a collection contains, and what it never contains.

use std::collections::BTreeMap;

use billhook_objects::{GroupKind, ObjectKey, wellknown};
use billhook_policy::{DeletionGroup, LabelSelector};

use crate::{
    Collection, DeleteRequest, Exclusion, Listed, Observed, Operation, Query, Resource, Select,
    find::{Answer, Index},
    groups::{Entry, Matcher, own_of_every_namespace},
    inventory::INVENTORY_LABEL,
    queries::spread,
};

/// A collection whose query has no index yet.
pub(super) struct Draft {
    pub(super) query: Query,
    pub(super) collection: Collection,
}

impl Draft {
    /// Returns the objects that the snapshot shows in the collection.
    pub(super) fn items<'a>(&self, index: &Index<'a>) -> impl Iterator<Item = (&'a Query, &'a Observed)> {
        self.listed(index).filter(|(_, item)| self.collection.contains(item))
    }

    /// Returns the objects that the collection would contain without their annotations.
    pub(super) fn kept<'a>(&self, index: &Index<'a>) -> impl Iterator<Item = (ObjectKey, &'a Observed)> {
        let kept = self.listed(index).filter(|(_, item)| !item.annotations.is_empty());
        let kept = kept.filter(|(_, item)| self.collection.selects(item) && !self.collection.contains(item));
        kept.map(|(query, item)| (item.key(&query.resource.kind), item))
    }

    fn listed<'a>(&self, index: &Index<'a>) -> impl Iterator<Item = (&'a Query, &'a Observed)> + use<'a> {
        let found = match index.items(&self.query) {
            Ok(Answer::Items(query, items)) => Some((query, items)),
            _ => None,
        };
        found.into_iter().flat_map(|(query, items)| items.iter().map(move |item| (query, item)))
    }

    pub(super) fn shows_all_of(&self, namespace: Option<&str>) -> bool {
        self.query.select == Select::All && self.query.covers(namespace)
    }

    pub(super) fn is_served(&self, index: &Index<'_>) -> bool {
        !matches!(index.get(&self.query).map(|listing| &listing.found), Some(Listed::NotServed))
    }
}

/// Returns the collections of a group: one for each query of each entry with `deleteAllResources`.
pub(super) fn drafts(group: &DeletionGroup, matcher: &Matcher<'_>, request: &DeleteRequest<'_>) -> Vec<Draft> {
    let mut drafts = Vec::new();
    for entry in matcher.all() {
        let selector = entry.selector;
        let kind = &entry.resource.kind;
        let mut excluded: Vec<Exclusion> =
            matcher.excluded.iter().filter(|e| e.resource.kind == *kind).map(exclusion).collect();
        excluded.extend(always_excluded(kind, group.target.is_none(), request));
        for query in queries(group, entry) {
            let collection = Collection {
                query: 0,
                names: selector.names.clone(),
                namespaces: selector.namespaces.clone(),
                label_selector: selector.label_selector.clone(),
                excluded: excluded.clone(),
            };
            drafts.push(Draft { query, collection });
        }
    }
    drafts
}

/// Returns the queries of an entry. They never select single names, since they must show objects that appear later too.
fn queries(group: &DeletionGroup, entry: &Entry<'_>) -> Vec<Query> {
    let selector = entry.selector;
    let select = match selector.label_selector.is_empty() {
        true => Select::All,
        false => Select::Labels(selector.label_selector.to_query()),
    };
    let mut namespaces: Vec<Option<&str>> = selector.namespaces.iter().map(|ns| Some(ns.as_str())).collect();
    namespaces.sort_unstable();
    namespaces.dedup();
    if namespaces.is_empty() {
        namespaces.push(None);
    }
    let resource = Resource::of(&entry.resource, Some(selector.api_version.version()));
    if !resource.namespaced && !selector.namespaces.is_empty() {
        // A cluster-scoped object has no namespace, so this selects nothing.
        return Vec::new();
    }
    spread(group.target.as_deref(), &resource, &namespaces, &select)
}

fn exclusion(entry: &Entry<'_>) -> Exclusion {
    let selector = entry.selector;
    Exclusion {
        names: selector.names.clone(),
        namespaces: selector.namespaces.clone(),
        label_selector: selector.label_selector.clone(),
        ..Exclusion::default()
    }
}

/// Returns what every collection excludes, regardless of the policy.
fn always_excluded(kind: &GroupKind, own_cluster: bool, request: &DeleteRequest<'_>) -> Vec<Exclusion> {
    let mut excluded = Vec::new();
    if let Some(name) = own_of_every_namespace(kind) {
        excluded.push(named(name));
    }
    if kind.is("", "Secret") {
        let label_selector = LabelSelector::exists(INVENTORY_LABEL);
        excluded.push(Exclusion { label_selector, ..Exclusion::default() });
    }
    if *kind == wellknown::namespace() {
        // `default` and `kube-*` are never deleted; the prefix also covers those that appear later.
        let (names, name_prefixes) = (vec!["default".to_owned()], vec!["kube-".to_owned()]);
        excluded.push(Exclusion { names, name_prefixes, ..Exclusion::default() });
        let holds_record = own_cluster && request.record_here;
        excluded.extend(request.release.filter(|_| holds_record).map(|release| named(release.namespace())));
    }
    let kept = request.objects.iter().filter(|wanted| own_cluster && wanted.keep && wanted.key.kind == *kind);
    excluded.extend(kept.map(|wanted| Exclusion {
        namespaces: wanted.key.namespace.iter().cloned().collect(),
        ..named(&wanted.key.name)
    }));
    if let Some(release) = request.release.filter(|_| request.operation == Operation::Apply) {
        // An update prunes only what the new version does not contain. Its own objects carry the label.
        let match_labels = BTreeMap::from([(wellknown::RELEASE_LABEL.to_owned(), release.label_value())]);
        let label_selector = LabelSelector { match_labels, ..LabelSelector::default() };
        excluded.push(Exclusion { label_selector, ..Exclusion::default() });
    }
    excluded
}

fn named(name: &str) -> Exclusion {
    Exclusion { names: vec![name.to_owned()], ..Exclusion::default() }
}
