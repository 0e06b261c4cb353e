//! Selects the lists for the objects of a plan: as few as possible, and none that returns much more than those objects.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use billhook_objects::{Catalog, GroupKind, ObjectKey, ReleaseName, ResourceType, wellknown::RELEASE_LABEL};

use crate::{
    Query, Resource, Select,
    find::{Finder, State},
};

/// In up to this many namespaces a kind is listed and watched one by one, which needs only namespaced rights.
const FEW_NAMESPACES: usize = 4;

/// More objects than this are listed rather than read one by one.
const MANY_READS: usize = 64;

/// Queries in the order of their first use, each once.
#[derive(Default)]
pub(crate) struct QuerySet {
    list: Vec<Query>,
    seen: HashSet<Query>,
}

impl QuerySet {
    pub(crate) fn add(&mut self, query: Query) {
        if !self.seen.contains(&query) {
            self.seen.insert(query.clone());
            self.list.push(query);
        }
    }

    pub(crate) fn into_vec(self) -> Vec<Query> {
        self.list
    }
}

impl Extend<Query> for QuerySet {
    fn extend<I: IntoIterator<Item = Query>>(&mut self, queries: I) {
        queries.into_iter().for_each(|query| self.add(query));
    }
}

/// Returns the `labelSelector` for a release's objects.
pub(crate) fn release_selector(release: &ReleaseName) -> String {
    format!("{RELEASE_LABEL}={}", release.label_value())
}

/// The objects of one kind to look up, by namespace; sorted, so that their order in the input does not matter.
pub(crate) struct KindObjects {
    pub(crate) resource: Resource,
    pub(crate) namespaces: BTreeMap<Option<String>, BTreeSet<String>>,
}

/// Objects by kind. Two versions of one kind are one query, in the cluster's preferred one of those versions.
pub(crate) struct ByKind {
    pub(crate) kinds: Vec<(GroupKind, KindObjects)>,
    /// Kinds that the catalog does not contain, and how many objects there are of each.
    pub(crate) unknown: BTreeMap<GroupKind, usize>,
}

#[derive(Default)]
struct Grouped<'a> {
    versions: BTreeSet<&'a str>,
    namespaces: BTreeMap<Option<&'a str>, BTreeSet<&'a str>>,
    count: usize,
}

impl ByKind {
    pub(crate) fn of<'a>(objects: impl Iterator<Item = (&'a ObjectKey, &'a str)>, catalog: &Catalog) -> Self {
        let mut grouped: BTreeMap<&GroupKind, Grouped<'_>> = BTreeMap::new();
        for (key, version) in objects {
            let group = grouped.entry(&key.kind).or_default();
            group.count += 1;
            group.versions.insert(version);
            group.namespaces.entry(key.namespace.as_deref()).or_default().insert(&key.name);
        }
        let (mut kinds, mut unknown) = (Vec::with_capacity(grouped.len()), BTreeMap::new());
        let owned = |names: BTreeSet<&str>| names.into_iter().map(str::to_owned).collect();
        for (kind, Grouped { versions, namespaces, count }) in grouped {
            if let Some(served) = catalog.get(kind) {
                let version = served.versions.iter().find(|v| versions.contains(v.as_str()));
                let resource = Resource::of(served, version.map(String::as_str));
                let namespaces = namespaces.into_iter().map(|(ns, names)| (ns.map(str::to_owned), owned(names)));
                kinds.push((kind.clone(), KindObjects { resource, namespaces: namespaces.collect() }));
            } else {
                unknown.insert(kind.clone(), count);
            }
        }
        Self { kinds, unknown }
    }

    /// Returns the second round of queries: objects that the first round did not settle, by name.
    pub(crate) fn missing(&self, finder: &Finder<'_>) -> Vec<Query> {
        let mut queries = Vec::new();
        for (kind, objects) in &self.kinds {
            let mut open = Vec::new();
            for (namespace, names) in &objects.namespaces {
                let is_open = |name: &&String| matches!(finder.state(kind, namespace.as_deref(), name), State::Open(_));
                let names: Vec<String> = names.iter().filter(is_open).cloned().collect();
                if !names.is_empty() {
                    open.push((namespace.as_deref(), names));
                }
            }
            queries.extend(objects.by_name(open));
        }
        queries
    }
}

impl KindObjects {
    /// Returns the first round of queries for this kind: by the release's label where `labelled` expects all objects of a
    /// namespace to carry it, else by name. Namespaces that are `covered` by another list are skipped.
    pub(crate) fn queries(
        &self,
        label: Option<&str>,
        labelled: impl Fn(Option<&str>, &BTreeSet<String>) -> bool,
        covered: impl Fn(Option<&str>) -> bool,
    ) -> Vec<Query> {
        let (mut by_name, mut by_label) = (Vec::new(), Vec::new());
        let namespaces = self.namespaces.iter().map(|(namespace, names)| (namespace.as_deref(), names));
        for (namespace, names) in namespaces.filter(|(namespace, _)| !covered(*namespace)) {
            if label.is_some() && labelled(namespace, names) {
                by_label.push(namespace);
            } else {
                by_name.push((namespace, names.iter().cloned().collect()));
            }
        }
        let mut queries = self.by_name(by_name);
        if let Some(label) = label {
            queries.extend(spread(None, &self.resource, &by_label, &Select::Labels(label.to_owned())));
        }
        queries
    }

    /// Returns one query by name for each namespace if they are few, else one across all of them.
    fn by_name(&self, names: Vec<(Option<&str>, Vec<String>)>) -> Vec<Query> {
        if names.len() <= FEW_NAMESPACES {
            return names.into_iter().map(|(namespace, names)| self.query(namespace, Select::Names(names))).collect();
        }
        let named = |(namespace, names): (Option<&str>, Vec<String>)| Some((namespace?.to_owned(), names));
        let objects: BTreeMap<String, Vec<String>> = names.into_iter().filter_map(named).collect();
        let namespaces = objects.keys().cloned().collect();
        vec![Query { namespaces, ..self.query(None, Select::Objects(objects)) }]
    }

    /// Returns the queries for objects of this kind that probably do not exist, and of which a list by label tells nothing: single
    /// reads if they are few.
    pub(crate) fn reads(&self) -> Vec<Query> {
        let select = |names: &BTreeSet<String>| {
            let all = names.iter().cloned().collect();
            if names.len() > MANY_READS { Select::Names(all) } else { Select::Reads(all) }
        };
        self.namespaces.iter().map(|(namespace, names)| self.query(namespace.as_deref(), select(names))).collect()
    }

    fn query(&self, namespace: Option<&str>, select: Select) -> Query {
        let resource = self.resource.clone();
        Query { cluster: None, resource, namespace: namespace.map(str::to_owned), select, namespaces: Vec::new() }
    }
}

/// Returns one query for each namespace if they are few, else one across all of these (sorted) namespaces.
pub(crate) fn spread(
    cluster: Option<&str>,
    resource: &Resource,
    namespaces: &[Option<&str>],
    select: &Select,
) -> Vec<Query> {
    let query = |namespace: Option<&str>, namespaces: Vec<String>| Query {
        cluster: cluster.map(str::to_owned),
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        select: select.clone(),
        namespaces,
    };
    if namespaces.len() <= FEW_NAMESPACES {
        return namespaces.iter().map(|namespace| query(*namespace, Vec::new())).collect();
    }
    vec![query(None, namespaces.iter().flatten().map(|ns| (*ns).to_owned()).collect())]
}

/// Returns the query for all objects of a kind, in its preferred version.
pub(crate) fn all_of(cluster: Option<&str>, kind: &ResourceType) -> Query {
    Query {
        cluster: cluster.map(str::to_owned),
        resource: Resource::of(kind, None),
        namespace: None,
        select: Select::All,
        namespaces: Vec::new(),
    }
}

/// Returns the kind that the CRD of a name, `plural.group`, defines.
pub(crate) fn kind_of_crd<'a>(catalog: &'a Catalog, crd: &str) -> Option<&'a ResourceType> {
    let (plural, group) = crd.split_once('.')?;
    catalog.iter().find(|kind| kind.plural == plural && kind.kind.group == group)
}
