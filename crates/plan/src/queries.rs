//! Which lists show the objects of a plan: as few as possible, and none that costs more than what is deleted.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use billhook_objects::{Catalog, GroupKind, ObjectKey, ReleaseName, ResourceType, Scope, wellknown::RELEASE_LABEL};

use crate::{
    Query, Resource, Select,
    find::{Finder, State},
};

/// In up to this many namespaces a kind is listed by label one by one, which needs namespaced rights only.
const FEW_NAMESPACES: usize = 4;

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

impl Query {
    /// What it looks at, for messages: `configmaps in namespace web on target edge`.
    pub(crate) fn describe(&self) -> String {
        let Resource { kind, plural, .. } = &self.resource;
        let group = if kind.group.is_empty() { String::new() } else { format!(".{}", kind.group) };
        let namespace = self.namespace.as_ref().map(|ns| format!(" in namespace {ns}")).unwrap_or_default();
        let cluster = self.cluster.as_ref().map(|name| format!(" on target {name}")).unwrap_or_default();
        format!("{plural}{group}{namespace}{cluster}")
    }
}

/// The `labelSelector` that shows a release's objects.
pub(crate) fn release_selector(release: &ReleaseName) -> String {
    format!("{RELEASE_LABEL}={}", release.label_value())
}

/// The objects of one kind that are looked for, by namespace; sorted, so that their order does not matter.
pub(crate) struct KindObjects<'a> {
    pub(crate) resource: Resource,
    pub(crate) namespaces: BTreeMap<Option<&'a str>, BTreeSet<&'a str>>,
}

/// Objects by kind; two versions of one kind are one query, in the version the cluster likes best of those.
pub(crate) struct ByKind<'a> {
    pub(crate) kinds: Vec<(&'a GroupKind, KindObjects<'a>)>,
    /// Kinds that the catalog does not know, and how many objects there are of them.
    pub(crate) unknown: BTreeMap<&'a GroupKind, usize>,
}

impl<'a> ByKind<'a> {
    pub(crate) fn of(objects: impl Iterator<Item = (&'a ObjectKey, &'a str)>, catalog: &Catalog) -> Self {
        let mut grouped: BTreeMap<&GroupKind, Grouped<'_>> = BTreeMap::new();
        for (key, version) in objects {
            let group = grouped.entry(&key.kind).or_default();
            group.count += 1;
            group.versions.insert(version);
            group.namespaces.entry(key.namespace.as_deref()).or_default().insert(&key.name);
        }
        let (mut kinds, mut unknown) = (Vec::with_capacity(grouped.len()), BTreeMap::new());
        for (kind, Grouped { versions, namespaces, count }) in grouped {
            if let Some(served) = catalog.get(kind) {
                let version = served.versions.iter().find(|v| versions.contains(v.as_str()));
                let resource = Resource::of(served, version.map(String::as_str));
                kinds.push((kind, KindObjects { resource, namespaces }));
            } else {
                unknown.insert(kind, count);
            }
        }
        Self { kinds, unknown }
    }

    /// The second round: single names for what the first one left open.
    pub(crate) fn missing(&self, finder: &Finder<'_>) -> Vec<Query> {
        let mut queries = Vec::new();
        for (kind, objects) in &self.kinds {
            for (namespace, names) in &objects.namespaces {
                let open = |name: &&&str| matches!(finder.state(kind, *namespace, name), State::Open(_));
                let names: Vec<String> = names.iter().filter(open).map(|name| (*name).to_owned()).collect();
                if !names.is_empty() {
                    queries.push(objects.query(*namespace, Select::Names(names)));
                }
            }
        }
        queries
    }
}

#[derive(Default)]
struct Grouped<'a> {
    versions: BTreeSet<&'a str>,
    namespaces: BTreeMap<Option<&'a str>, BTreeSet<&'a str>>,
    count: usize,
}

impl KindObjects<'_> {
    /// The first round for this kind: by the release's label where `labelled` says that all objects of a namespace
    /// should carry it, else by name. Namespaces that are `covered` by another list are left out.
    pub(crate) fn queries(
        &self,
        label: Option<&str>,
        labelled: impl Fn(Option<&str>, &BTreeSet<&str>) -> bool,
        covered: impl Fn(Option<&str>) -> bool,
    ) -> Vec<Query> {
        let mut queries = Vec::new();
        let mut by_label = Vec::new();
        for (namespace, names) in self.namespaces.iter().filter(|(namespace, _)| !covered(**namespace)) {
            if label.is_some() && labelled(*namespace, names) {
                by_label.push(*namespace);
            } else {
                queries
                    .push(self.query(*namespace, Select::Names(names.iter().map(|name| (*name).to_owned()).collect())));
            }
        }
        if let Some(label) = label {
            queries.extend(spread(None, &self.resource, &by_label, &Select::Labels(label.to_owned())));
        }
        queries
    }

    fn query(&self, namespace: Option<&str>, select: Select) -> Query {
        let resource = self.resource.clone();
        Query { cluster: None, resource, namespace: namespace.map(str::to_owned), select, namespaces: Vec::new() }
    }
}

/// One query a namespace where they are few, else one across all that names them. All objects of a kind are always listed
/// in the namespaces that matter: across all, the answer would be as large as the cluster.
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
    if namespaces.len() <= FEW_NAMESPACES || *select == Select::All {
        return namespaces.iter().map(|namespace| query(*namespace, Vec::new())).collect();
    }
    vec![query(None, namespaces.iter().flatten().map(|ns| (*ns).to_owned()).collect())]
}

/// The list of all objects of a kind, in its preferred version.
pub(crate) fn all_of(cluster: Option<&str>, kind: &ResourceType) -> Query {
    Query {
        cluster: cluster.map(str::to_owned),
        resource: Resource::of(kind, None),
        namespace: None,
        select: Select::All,
        namespaces: Vec::new(),
    }
}

/// Kinds by the name of their CRD, `plural.group`.
pub(crate) fn by_crd_name(catalog: &Catalog) -> BTreeMap<String, &ResourceType> {
    catalog.iter().map(|t| (format!("{}.{}", t.plural, t.kind.group), t)).collect()
}

/// Notices objects whose namespace does not fit their kind.
pub(crate) fn scope_problem(key: &ObjectKey, scope: Scope) -> Option<String> {
    match (scope, &key.namespace) {
        (Scope::Namespaced, None) => Some(format!("{key}: the kind is namespaced, and no namespace is given")),
        (Scope::Cluster, Some(_)) => Some(format!("{key}: the kind is cluster-scoped, and a namespace is given")),
        _ => None,
    }
}
