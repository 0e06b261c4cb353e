//! An order of deletion in which what others need is deleted after them.

use std::collections::{BTreeMap, BTreeSet};

use billhook_objects::{ApiVersion, Catalog, GroupKind, ObjectKey, wellknown};
use billhook_policy::{DeletionGroup, Members, Policy, ResourceSelector};

use crate::{DeleteTask, Plan, groups::is_crd};

/// Objects that must be gone before others are deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Before {
    /// The objects. Those that the plan does not name are deleted with their Namespace or CRD.
    pub objects: Vec<ObjectKey>,
    /// What they need.
    pub parts: Vec<ObjectKey>,
}

/// Puts groups before those of a policy: instances of custom resources and what needs a controller, then webhooks and
/// APIServices, then workloads. Namespaced objects such as ServiceAccounts, cluster-scoped ones and CRDs remain in the groups of
/// the policy.
///
/// The groups contain objects that the plan deletes, with the settings of their own groups; and objects that would be deleted
/// with their Namespace or CRD, if they must be gone earlier. A policy that begins with these groups remains as it is.
#[must_use]
pub fn safe_policy(policy: &Policy, plan: &Plan, before: &[Before], catalog: &Catalog) -> Policy {
    let order = Order { policy, plan, before, catalog };
    let first: Vec<DeletionGroup> = order.groups();
    if begins_with(policy, &first) {
        return policy.clone();
    }
    let count = first.len();
    let later = policy.deletion.iter().cloned().map(|group| {
        let after = group.after.as_ref().map(|after| (0..count).chain(after.iter().map(|at| at + count)).collect());
        DeletionGroup { after, ..group }
    });
    Policy { deletion: first.into_iter().chain(later).collect(), ..policy.clone() }
}

/// Returns whether the first groups of a policy select the same with the same settings, one after the other.
fn begins_with(policy: &Policy, first: &[DeletionGroup]) -> bool {
    let bare = |group: &DeletionGroup| DeletionGroup { title: String::new(), path: String::new(), ..group.clone() };
    policy.deletion.len() >= first.len()
        && first.iter().zip(&policy.deletion).all(|(group, own)| bare(group) == bare(own))
}

/// The groups that come first, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// Instances of custom resources, and other objects that need a controller, by levels of what needs what.
    Instances(usize),
    Fronts,
    Workloads,
}

struct Order<'a> {
    policy: &'a Policy,
    plan: &'a Plan,
    before: &'a [Before],
    catalog: &'a Catalog,
}

impl Order<'_> {
    fn groups(&self) -> Vec<DeletionGroup> {
        let levels = self.levels();
        let mut layers: BTreeMap<(Layer, usize, bool), Vec<ResourceSelector>> = BTreeMap::new();
        for ((at, kind), tasks) in self.tasks() {
            let needing: Vec<&ObjectKey> =
                tasks.iter().map(|task| &task.object).filter(|key| self.needs(key)).collect();
            let level = levels.get(kind).copied().unwrap_or_default();
            let (layer, names) = match layer_of(kind) {
                Some(Layer::Instances(_)) => (Layer::Instances(level), Vec::new()),
                _ if !needing.is_empty() && !is_container(kind) => (Layer::Instances(level), needing),
                Some(layer) => (layer, Vec::new()),
                None => continue,
            };
            let Some(group) = self.policy.deletion.get(at) else { continue };
            for selector in self.selectors(group, kind, &names) {
                layers.entry((layer, at, selector.all)).or_default().push(selector);
            }
            // Of workloads with and without such finalizers, the others are deleted with the workloads.
            if let (false, Some(rest)) = (names.is_empty(), layer_of(kind)) {
                for selector in self.selectors(group, kind, &[]) {
                    layers.entry((rest, at, selector.all)).or_default().push(selector);
                }
            }
        }
        let own = usize::MAX;
        for (kind, selector) in self.contained() {
            let level = levels.get(&kind).copied().unwrap_or_default();
            layers.entry((Layer::Instances(level), own, true)).or_default().push(selector);
        }
        let group = |((_, at, _), selectors): ((Layer, usize, bool), Vec<ResourceSelector>)| {
            let members = Members::Resources(selectors);
            let title = title(&members);
            match self.policy.deletion.get(at) {
                Some(group) => DeletionGroup { title, path: String::new(), members, after: None, ..group.clone() },
                None => DeletionGroup::new(title, members),
            }
        };
        layers.into_iter().map(group).collect()
    }

    /// Returns what the plan deletes in the release's own cluster, by the group of the policy and the kind. The Namespace that
    /// holds the inventory is deleted last in every order.
    fn tasks(&self) -> BTreeMap<(usize, &GroupKind), Vec<&DeleteTask>> {
        let mut tasks: BTreeMap<(usize, &GroupKind), Vec<&DeleteTask>> = BTreeMap::new();
        for (node, work) in self.plan.delete_nodes().filter(|(node, _)| node.cluster.is_none()) {
            let is_own = |group: &DeletionGroup| group.path == node.path && group.title == node.title;
            let Some(at) = self.policy.deletion.iter().position(is_own) else { continue };
            for task in &work.objects {
                tasks.entry((at, &task.object.kind)).or_default().push(task);
            }
        }
        tasks
    }

    fn needs(&self, key: &ObjectKey) -> bool {
        self.before.iter().any(|before| before.objects.binary_search(key).is_ok())
    }

    /// Returns the selectors of a group for a kind, or for some objects of it.
    fn selectors(&self, group: &DeletionGroup, kind: &GroupKind, names: &[&ObjectKey]) -> Vec<ResourceSelector> {
        let own: Vec<&ResourceSelector> = match &group.members {
            Members::Class(_) => Vec::new(),
            Members::Resources(selectors) => selectors
                .iter()
                .filter(|selector| self.catalog.resolve(&selector.kind_name()).is_ok_and(|served| served.kind == *kind))
                .collect(),
        };
        if names.is_empty() && !own.is_empty() {
            return own.into_iter().cloned().collect();
        }
        let Some(selector) = self.selector(kind) else { return Vec::new() };
        let all = own.iter().any(|selector| selector.all);
        if names.is_empty() {
            return vec![selector];
        }
        let mut places: BTreeMap<Option<&String>, Vec<String>> = BTreeMap::new();
        for key in names {
            places.entry(key.namespace.as_ref()).or_default().push(key.name.clone());
        }
        let in_place = |(namespace, names): (Option<&String>, Vec<String>)| ResourceSelector {
            names,
            namespaces: namespace.into_iter().cloned().collect(),
            all,
            ..selector.clone()
        };
        places.into_iter().map(in_place).collect()
    }

    fn selector(&self, kind: &GroupKind) -> Option<ResourceSelector> {
        let api_version: ApiVersion = self.catalog.get(kind)?.api_version(None);
        let kind = kind.kind.clone();
        let (names, namespaces, label_selector) = Default::default();
        Some(ResourceSelector { api_version, kind, names, namespaces, label_selector, all: false })
    }

    /// Returns selectors for the objects that are deleted with their Namespace or CRD, but must be gone earlier.
    fn contained(&self) -> Vec<(GroupKind, ResourceSelector)> {
        let deleted: BTreeSet<&ObjectKey> = self.plan.deleted().map(|(_, key, ..)| key).collect();
        let mut kinds: BTreeMap<&GroupKind, BTreeSet<&str>> = BTreeMap::new();
        for key in self.before.iter().flat_map(|before| &before.objects).filter(|key| !deleted.contains(key)) {
            kinds.entry(&key.kind).or_default().extend(key.namespace.as_deref());
        }
        let selector = |(kind, places): (&GroupKind, BTreeSet<&str>)| {
            let crd = self.catalog.get(kind).map(|served| wellknown::crd_of(&served.plural, &served.kind));
            let with_crd = crd.is_some_and(|crd| deleted.contains(&crd));
            let mut selector = self.selector(kind)?;
            if !with_crd {
                let is_deleted = |name: &&str| deleted.contains(&ObjectKey::new(wellknown::namespace(), None, *name));
                selector.namespaces = places.into_iter().filter(is_deleted).map(str::to_owned).collect();
            }
            let is_bound = with_crd || !selector.namespaces.is_empty();
            is_bound.then_some((kind.clone(), ResourceSelector { all: true, ..selector }))
        };
        kinds.into_iter().filter_map(selector).collect()
    }

    /// Returns the level of each kind with objects that need others: a kind comes after all whose objects need one of it.
    fn levels(&self) -> BTreeMap<&GroupKind, usize> {
        let mut levels: BTreeMap<&GroupKind, usize> = BTreeMap::new();
        let mut edges: BTreeSet<(&GroupKind, &GroupKind)> = BTreeSet::new();
        for Before { objects, parts } in self.before {
            for object in objects {
                levels.insert(&object.kind, 0);
                edges.extend(parts.iter().map(|part| (&object.kind, &part.kind)));
            }
        }
        edges.retain(|(kind, part)| kind != part);
        // Kinds that need each other have no order; the bound ends the search.
        for _ in 0..=levels.len() {
            let mut is_stable = true;
            for (kind, part) in &edges {
                let above = levels.get(kind).copied().unwrap_or_default() + 1;
                let level = levels.entry(part).or_default();
                if *level < above && above <= edges.len() {
                    (*level, is_stable) = (above, false);
                }
            }
            if is_stable {
                break;
            }
        }
        levels
    }
}

fn layer_of(kind: &GroupKind) -> Option<Layer> {
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("apiregistration.k8s.io", "APIService")
        | ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            Some(Layer::Fronts)
        }
        ("apps" | "batch", _) | ("", "Pod" | "ReplicationController") => Some(Layer::Workloads),
        (group, _) if !wellknown::is_built_in(group) => Some(Layer::Instances(0)),
        _ => None,
    }
}

/// Returns whether objects are deleted with objects of a kind, or whether it has its place in the order anyway.
fn is_container(kind: &GroupKind) -> bool {
    *kind == wellknown::namespace() || is_crd(kind) || layer_of(kind) == Some(Layer::Fronts)
}

fn title(members: &Members) -> String {
    const SHOWN: usize = 5;
    let Members::Resources(selectors) = members else { return String::new() };
    let names = selectors.iter().map(|selector| {
        let all = if selector.all { "all " } else { "" };
        format!("{all}{}", selector.kind_name())
    });
    let names: BTreeSet<String> = names.collect();
    let more = names.len().saturating_sub(SHOWN);
    let shown: Vec<String> = names.into_iter().take(SHOWN).collect();
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}
