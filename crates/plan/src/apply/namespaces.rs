//! Namespaces that the release uses, does not contain, and that may not exist.

use std::collections::BTreeSet;

use billhook_objects::wellknown;

use crate::{
    MissingNamespaces, Problem, Query, Resource, Select,
    find::{Answer, Index},
    problem::Problems,
};

use super::deployment::Deployment;

/// Up to this many namespaces are read one by one: the release may have objects of their kind, which a list by label shows.
const FEW_READS: usize = 8;

impl Deployment<'_> {
    /// Returns the query for namespaces in which the first round found no object, if there are any.
    pub(super) fn namespace_query(&self, index: &Index<'_>) -> Option<Query> {
        if self.request.missing_namespaces == MissingNamespaces::Leave {
            return None;
        }
        let kind = wellknown::namespace();
        let manifests = || self.request.applied().map(|(_, manifest)| &manifest.key);
        let contained: BTreeSet<_> = manifests().filter(|key| key.kind == kind).map(|key| &*key.name).collect();
        let items =
            self.queries().iter().filter(|query| query.cluster.is_none()).filter_map(|query| {
                if let Ok(Answer::Items(_, items)) = index.items(query) { Some(items) } else { None }
            });
        let found: BTreeSet<_> = items.flatten().filter_map(|item| item.namespace.as_deref()).collect();
        let of_record = self.request.record_here.then(|| self.request.release.namespace());
        let used: BTreeSet<_> = manifests().filter_map(|key| key.namespace.as_deref()).chain(of_record).collect();
        let unsure = used.into_iter().filter(|n| *n != "default" && !contained.contains(n) && !found.contains(n));
        let names: Vec<String> = unsure.map(str::to_owned).collect();
        let (resource, namespaces) = (Resource::namespaces(), Vec::new());
        let query = |select| Query { cluster: None, resource, namespace: None, select, namespaces };
        match names.len() {
            0 => None,
            1..=FEW_READS => Some(query(Select::Reads(names))),
            _ => Some(query(Select::Names(names))),
        }
    }

    /// Returns the namespaces to create. Without the right to read namespaces all are assumed to exist, since one may still
    /// have the right to write into them.
    pub(super) fn missing_namespaces(&self, index: &Index<'_>, problems: &mut Problems) -> Vec<String> {
        let Some(query) = self.namespace_query(index) else { return Vec::new() };
        let Ok(Answer::Items(_, items)) = index.items(&query) else { return Vec::new() };
        let (Select::Names(names) | Select::Reads(names)) = &query.select else { return Vec::new() };
        for item in items.iter().filter(|item| item.deleting) {
            problems.add(Problem::BeingDeleted { object: item.key(&query.resource.kind) });
        }
        let missing = names.iter().filter(|name| items.iter().all(|item| item.name != **name)).cloned();
        if self.request.missing_namespaces != MissingNamespaces::Refuse {
            return missing.collect();
        }
        missing.for_each(|namespace| problems.add(Problem::MissingNamespace { namespace }));
        Vec::new()
    }
}
