//! The groups of a policy with their kinds resolved: which objects are members of which.

use std::{collections::BTreeMap, sync::LazyLock};

use billhook_objects::{Catalog, GroupKind, KindName, ObjectKey, ResolveError, ResourceType, wellknown};
use billhook_policy::{Members, ResourceClass, ResourceSelector};

use crate::error::Problems;

/// An entry of `resources` or `excludedResources` whose kind the cluster serves.
pub(crate) struct Entry<'a> {
    pub(crate) resource: &'a ResourceType,
    pub(crate) selector: &'a ResourceSelector,
}

impl Entry<'_> {
    fn matches(&self, key: &ObjectKey, labels: &BTreeMap<String, String>) -> bool {
        // Objects match by group and kind; the version only says how to talk to them (contract, dialect 1).
        self.resource.kind == key.kind && self.selector.matches(key.namespace.as_deref(), &key.name, labels)
    }

    fn may_match(&self, key: &ObjectKey) -> bool {
        let selector = self.selector;
        self.resource.kind == key.kind
            && (selector.names.is_empty() || selector.names.contains(&key.name))
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
    /// What to say of kinds that the cluster does not serve.
    pub(crate) not_served: Vec<String>,
}

impl<'a> Matcher<'a> {
    /// Resolves the kinds of a group. One that is not served is a note, an ambiguous one a problem.
    pub(crate) fn resolve(
        members: &'a Members,
        excluded: &'a [ResourceSelector],
        catalog: &'a Catalog,
        place: &str,
        problems: &mut Problems,
    ) -> Self {
        let mut not_served = Vec::new();
        let mut resolve = |selectors: &'a [ResourceSelector]| -> Vec<Entry<'a>> {
            selectors
                .iter()
                .filter_map(|selector| match catalog.resolve(&selector.kind_name()) {
                    Ok(resource) => Some(Entry { resource, selector }),
                    Err(error @ ResolveError::Ambiguous { .. }) => {
                        problems.input(format!("{place}: {error}"));
                        None
                    }
                    Err(error @ ResolveError::NotServed { .. }) => {
                        not_served.push(format!("{place}: {}", describe(&error, catalog)));
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

    /// Whether an object with these labels is a member.
    pub(crate) fn judge(&self, key: &ObjectKey, labels: &BTreeMap<String, String>) -> Verdict {
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

    /// Whether an object is a member if its labels, which are not known yet, let it.
    pub(crate) fn may_match(&self, key: &ObjectKey) -> bool {
        match &self.members {
            Resolved::Class(class) => in_class(*class, key),
            Resolved::Resources(entries) => entries.iter().any(|entry| entry.may_match(key)),
        }
    }

    /// The entries with `deleteAllResources`.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Entry<'a>> {
        let entries = if let Resolved::Resources(entries) = &self.members { entries.as_slice() } else { &[] };
        entries.iter().filter(|entry| entry.selector.all)
    }

    /// Whether it is a group of selectors, some of which the cluster knows.
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

/// What a user can do about a kind that is not served.
pub(crate) fn describe(error: &ResolveError, catalog: &Catalog) -> String {
    let ResolveError::NotServed { name, elsewhere } = error else { return error.to_string() };
    let candidates: Vec<String> = elsewhere
        .iter()
        .filter_map(|kind| catalog.get(kind))
        .map(|t| format!("apiVersion: {} for {}", t.api_version(None), t.kind))
        .collect();
    let hint =
        if candidates.is_empty() { near(name, catalog) } else { Some(format!("write {}", candidates.join(" or "))) };
    format!("the cluster does not serve {name}{}", hint.map(|hint| format!("; {hint}")).unwrap_or_default())
}

/// The kind of the same group that a misspelt name most likely stands for.
fn near(name: &KindName, catalog: &Catalog) -> Option<String> {
    let kinds = catalog.iter().filter(|t| t.kind.group == name.group).map(|t| t.kind.kind.as_str());
    billhook_policy::nearest(&name.name, kinds).map(|kind| format!("did you mean {kind}?"))
}

/// How a group is called in messages: its path, or its title where a default added it.
pub(crate) fn place<'a>(path: &'a str, title: &'a str) -> &'a str {
    if path.is_empty() { title } else { path }
}

/// Whether a kind is that of CustomResourceDefinitions.
pub(crate) fn is_crd(kind: &GroupKind) -> bool {
    static CRD: LazyLock<GroupKind> = LazyLock::new(wellknown::crd);
    *kind == *CRD
}

/// Whether an object is a Namespace that is never deleted.
pub(crate) fn is_protected(key: &ObjectKey) -> bool {
    key.kind.is("", "Namespace") && wellknown::is_protected_namespace(&key.name)
}
