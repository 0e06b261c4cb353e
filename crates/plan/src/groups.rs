//! The groups of a policy with their kinds resolved.

use std::{collections::HashSet, sync::LazyLock};

use billhook_objects::{Catalog, GroupKind, KindName, Labels, ObjectKey, ResolveError, ResourceType, wellknown};
use billhook_policy::{Members, ResourceClass, ResourceSelector};

use crate::{Problem, UnservedKind, problem::Problems};

/// An entry of `resources` or `excludedResources` whose kind the cluster serves.
pub(crate) struct Entry<'a> {
    pub(crate) resource: ResourceType,
    pub(crate) selector: &'a ResourceSelector,
    /// The names of the selector, of which there may be thousands.
    names: HashSet<&'a str>,
}

impl<'a> Entry<'a> {
    fn new(resource: &ResourceType, selector: &'a ResourceSelector) -> Self {
        let names = selector.names.iter().map(String::as_str).collect();
        Self { resource: resource.clone(), selector, names }
    }

    fn matches(&self, key: &ObjectKey, labels: &Labels) -> bool {
        self.may_match(key) && self.selector.label_selector.matches(labels)
    }

    fn may_match(&self, key: &ObjectKey) -> bool {
        let selector = self.selector;
        // Objects match by group and kind; the version only selects the URL.
        self.resource.kind == key.kind
            && (self.names.is_empty() || self.names.contains(key.name.as_str()))
            && (selector.namespaces.is_empty()
                || key.namespace.as_ref().is_some_and(|n| selector.namespaces.contains(n)))
    }
}

enum Resolved<'a> {
    Class(ResourceClass),
    Resources(Vec<Entry<'a>>),
}

/// Whether an object belongs to a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Member,
    Excluded,
    Stranger,
}

/// The members of one group.
pub(crate) struct Matcher<'a> {
    members: Resolved<'a>,
    pub(crate) excluded: Vec<Entry<'a>>,
    /// The kinds that the cluster does not serve.
    pub(crate) not_served: Vec<UnservedKind>,
}

impl<'a> Matcher<'a> {
    /// Resolves the kinds of a group. A kind that is not served is kept for a note, an ambiguous one is a problem.
    pub(crate) fn resolve(
        members: &'a Members,
        excluded: &'a [ResourceSelector],
        catalog: &Catalog,
        place: &str,
        problems: &mut Problems,
    ) -> Self {
        let mut not_served = Vec::new();
        let mut resolve = |selectors: &'a [ResourceSelector]| -> Vec<Entry<'a>> {
            selectors
                .iter()
                .filter_map(|selector| match catalog.resolve(&selector.kind_name()) {
                    Ok(resource) => Some(Entry::new(resource, selector)),
                    Err(ResolveError::Ambiguous { name, candidates }) => {
                        problems.add(Problem::AmbiguousKind { group: place.to_owned(), name, candidates });
                        None
                    }
                    Err(ResolveError::NotServed { name, elsewhere }) => {
                        not_served.push(unserved(name, &elsewhere, catalog));
                        None
                    }
                })
                .collect()
        };
        let members = match members {
            Members::Class(class) => Resolved::Class(*class),
            Members::Resources(selectors) => Resolved::Resources(resolve(selectors)),
        };
        let excluded = resolve(excluded);
        Self { members, excluded, not_served }
    }

    /// Returns whether an object with these labels is a member.
    pub(crate) fn judge(&self, key: &ObjectKey, labels: &Labels) -> Verdict {
        let member = match &self.members {
            Resolved::Class(class) => in_class(*class, key),
            Resolved::Resources(entries) => entries.iter().any(|entry| entry.matches(key, labels)),
        };
        match member {
            false => Verdict::Stranger,
            true if self.excluded.iter().any(|entry| entry.matches(key, labels)) => Verdict::Excluded,
            true => Verdict::Member,
        }
    }

    /// Whether an object may be a member, depending on its labels, which are not known yet.
    pub(crate) fn may_match(&self, key: &ObjectKey) -> bool {
        match &self.members {
            Resolved::Class(class) => in_class(*class, key),
            Resolved::Resources(entries) => entries.iter().any(|entry| entry.may_match(key)),
        }
    }

    /// Returns the entries with `deleteAllResources`.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Entry<'a>> {
        let entries = if let Resolved::Resources(entries) = &self.members { entries.as_slice() } else { &[] };
        entries.iter().filter(|entry| entry.selector.all)
    }

    /// Whether the group has selectors of kinds that the cluster serves.
    pub(crate) fn has_entries(&self) -> bool {
        matches!(&self.members, Resolved::Resources(entries) if !entries.is_empty())
    }
}

fn in_class(class: ResourceClass, key: &ObjectKey) -> bool {
    match class {
        ResourceClass::Namespaced => key.namespace.is_some(),
        ResourceClass::ClusterScoped => key.namespace.is_none() && !is_crd(&key.kind),
        ResourceClass::Crds => key.namespace.is_none() && is_crd(&key.kind),
        ResourceClass::Empty => false,
    }
}

/// Describes a kind that is not served: by the kinds of that name in other groups, or else by the most similar kind of the
/// same group.
pub(crate) fn unserved(name: KindName, elsewhere: &[GroupKind], catalog: &Catalog) -> UnservedKind {
    let served = elsewhere.iter().filter_map(|kind| catalog.get(kind));
    let elsewhere: Vec<_> = served.map(|kind| (kind.api_version(None), kind.kind.clone())).collect();
    let similar = || {
        let kinds = catalog.iter().filter(|t| t.kind.group == name.group).map(|t| t.kind.kind.as_str());
        billhook_policy::nearest(&name.name, kinds).map(str::to_owned)
    };
    let similar = if elsewhere.is_empty() { similar() } else { None };
    UnservedKind { name, elsewhere, similar }
}

/// Returns the aggregated API, as group and version, that may serve an unknown kind and is unavailable.
pub(crate) fn unavailable_api<'a>(catalog: &'a Catalog, kind: &GroupKind) -> Option<(&'a str, &'a str)> {
    catalog.stale.iter().filter_map(|gv| gv.split_once('/')).find(|(group, _)| *group == kind.group)
}

/// Returns how texts refer to a group: by its path, or by its title if it is a default group.
pub(crate) fn place<'a>(path: &'a str, title: &'a str) -> &'a str {
    if path.is_empty() { title } else { path }
}

/// Whether a kind is CustomResourceDefinition.
pub(crate) fn is_crd(kind: &GroupKind) -> bool {
    static CRD: LazyLock<GroupKind> = LazyLock::new(wellknown::crd);
    *kind == *CRD
}

/// Returns the Namespace and the CRD that an object is deleted with, whether they exist or not.
pub(crate) fn containers_of(key: &ObjectKey, catalog: &Catalog) -> impl Iterator<Item = ObjectKey> + use<> {
    let namespace = key.namespace.as_deref().map(|ns| ObjectKey::new(wellknown::namespace(), None, ns));
    namespace.into_iter().chain(catalog.get(&key.kind).map(|served| wellknown::crd_of(&served.plural, &served.kind)))
}

/// Whether an object is a Namespace that is never deleted.
pub(crate) fn is_protected(key: &ObjectKey) -> bool {
    key.kind.is("", "Namespace") && wellknown::is_protected_namespace(&key.name)
}

/// Returns the name of the object of this kind that Kubernetes creates in every namespace, and recreates at once.
pub(crate) fn own_of_every_namespace(kind: &GroupKind) -> Option<&'static str> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "ConfigMap") => Some("kube-root-ca.crt"),
        ("", "ServiceAccount") => Some("default"),
        _ => None,
    }
}
