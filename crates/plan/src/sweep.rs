//! Finds the objects of a release by its label alone: of one that lost its record, or to prove that nothing is left.

use std::collections::{BTreeMap, HashSet};

use billhook_objects::{Catalog, Digest, ObjectKey, ReleaseName, ResourceType, Uid};
use serde_json::Value;

use crate::{
    Entry, ListFailure, ListScope, Listed, Listing, Observed, Query, Resource, Select, queries::release_selector,
};

/// What a sweep found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Swept {
    /// The objects with the label of the release.
    pub entries: BTreeMap<ObjectKey, Entry>,
    /// What could not be listed, so that objects of the release may be left there.
    pub unlisted: Vec<ListFailure>,
}

/// Returns the queries for all objects with the label of a release: one for each kind that can be listed and deleted, across
/// all namespaces.
pub fn sweep_queries(catalog: &Catalog, release: &ReleaseName) -> Vec<Query> {
    let query = |kind: &ResourceType| Query {
        cluster: None,
        resource: Resource::of(kind, None),
        namespace: None,
        select: Select::Labels(release_selector(release)),
        namespaces: Vec::new(),
    };
    catalog.iter().filter(|kind| is_swept(kind, catalog)).map(query).collect()
}

/// Returns the queries for what can be found nevertheless where a list across all namespaces failed: in the namespace of the
/// release.
pub fn narrower_sweep(listings: &[Listing], release: &ReleaseName) -> Vec<Query> {
    let failed = listings.iter().filter(|listing| matches!(listing.found, Listed::Failed(_)));
    let queries = failed.map(|listing| &listing.query).filter(|query| query.resource.namespaced);
    queries.map(|query| Query { namespace: Some(release.namespace().to_owned()), ..query.clone() }).collect()
}

/// Whether objects of a kind may belong to a release. Events only describe other objects, and what cannot be deleted, such as
/// metrics, is a view of other objects with their labels.
fn is_swept(kind: &ResourceType, catalog: &Catalog) -> bool {
    let is_event = kind.kind.kind == "Event" && matches!(kind.kind.group.as_str(), "" | "events.k8s.io");
    !is_event
        && !kind.plural.contains('/')
        && kind.supports("list")
        && kind.supports("delete")
        && !catalog.stale.contains(&kind.api_version(None).to_string())
}

impl Swept {
    /// Evaluates the answers to [`sweep_queries`] and [`narrower_sweep`]. Dependents of objects that were found are left out: Kubernetes copies
    /// labels to some of them, and deletes them with their owners.
    pub fn new(catalog: &Catalog, listings: &[Listing]) -> Self {
        let mut found: BTreeMap<&Uid, (&Resource, &Observed)> = BTreeMap::new();
        let mut unlisted: Vec<ListFailure> = catalog.stale.iter().map(|api| unavailable(api)).collect();
        for Listing { query, found: answer } in listings {
            match answer {
                // An object that two API groups serve is listed twice, with one UID.
                Listed::Items { items, .. } => {
                    for item in items {
                        found.entry(&item.uid).or_insert((&query.resource, item));
                    }
                }
                Listed::Failed(reason) if query.namespace.is_none() => {
                    unlisted.push(ListFailure { list: query.scope(), reason: reason.clone() });
                }
                // What failed in one namespace has failed across all before.
                Listed::Failed(_) | Listed::NotServed => {}
            }
        }
        let uids: HashSet<&Uid> = found.keys().copied().collect();
        let services: HashSet<_> = found
            .values()
            .filter(|(resource, _)| resource.kind.is("", "Service"))
            .map(|(_, item)| (&item.namespace, &item.name))
            .collect();
        let is_dependent = |(resource, item): &(&Resource, &Observed)| {
            // Endpoints have the name of their Service and no owner.
            item.owners.iter().any(|owner| uids.contains(&owner.uid))
                || (resource.kind.is("", "Endpoints") && services.contains(&(&item.namespace, &item.name)))
        };
        let entry = |(resource, item): (&Resource, &Observed)| {
            let entry = Entry::new(resource.api_version(), Digest::of(&Value::Null));
            (item.key(&resource.kind), Entry { uid: Some(item.uid.clone()), ..entry })
        };
        let entries = found.into_values().filter(|found| !is_dependent(found)).map(entry).collect();
        unlisted.sort_unstable();
        unlisted.dedup();
        Self { entries, unlisted }
    }
}

fn unavailable(api: &str) -> ListFailure {
    let (group, version) = api.split_once('/').unwrap_or(("", api));
    let list = ListScope { cluster: None, group: group.to_owned(), plural: "*".to_owned(), namespace: None };
    ListFailure { list, reason: format!("the API {group}/{version} is unavailable") }
}
