//! What will be deleted, and when.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use billhook_objects::{GroupKind, Labels};
use serde_json::{Value, json};

use crate::{ObjectRef, case::Case, kinds, object};

/// An object that will be deleted.
#[derive(Clone, Debug)]
pub struct ToDelete {
    /// The object, with its UID.
    pub object: ObjectRef,
    /// The step that deletes it: that of its Namespace or CRD, if it is deleted with it.
    pub step: usize,
    /// Whether it is deleted with its Namespace or CRD only.
    pub contained: bool,
    /// Its labels.
    pub labels: Labels,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Those of its finalizers that are removed by force some time after the deletion.
    pub forced: Vec<String>,
}

impl ToDelete {
    /// Returns its metadata, as far as it is known without a request.
    pub(super) fn value(&self) -> Value {
        let labels: BTreeMap<&String, &String> = self.labels.iter().collect();
        let uid = self.object.uid.as_ref().map(|uid| uid.as_str());
        json!({"metadata": {"name": self.object.name, "namespace": self.object.namespace, "uid": uid, "labels": labels,
            "finalizers": self.finalizers}})
    }
}

/// The order of the steps of a deletion.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    /// Of each step those that are done before it starts.
    before: Vec<BTreeSet<usize>>,
}

impl Steps {
    /// Takes the steps that each one comes after. A step comes after earlier ones only.
    pub fn new<'a>(after: impl IntoIterator<Item = &'a [usize]>) -> Self {
        let mut before: Vec<BTreeSet<usize>> = Vec::new();
        for steps in after {
            let mut all: BTreeSet<usize> = steps.iter().copied().collect();
            all.extend(steps.iter().filter_map(|step| before.get(*step)).flatten());
            before.push(all);
        }
        Self { before }
    }

    /// Returns whether a step starts only when another one is done.
    pub(super) fn is_after(&self, step: usize, other: usize) -> bool {
        self.before.get(step).is_some_and(|before| before.contains(&other))
    }
}

type Key<'a> = (&'a str, &'a str, Option<&'a str>, &'a str);

/// When objects will be deleted.
pub(super) struct Fates<'a> {
    pub(super) objects: &'a [ToDelete],
    steps: &'a Steps,
    named: HashMap<Key<'a>, usize>,
    owners: HashMap<&'a str, &'a ToDelete>,
    namespaces: BTreeMap<&'a str, usize>,
    crds: BTreeMap<&'a str, usize>,
    /// The namespaces in which something is deleted.
    places: BTreeSet<&'a str>,
}

impl<'a> Fates<'a> {
    pub(super) fn new(objects: &'a [ToDelete], steps: &'a Steps) -> Self {
        let of_kind = |kind: &'static kinds::Builtin| {
            let found = objects.iter().filter(move |one| !one.contained && kind.is(&one.object));
            found.map(|one| (one.object.name.as_str(), one.step)).collect()
        };
        let named = |one: &'a ToDelete| (key(&one.object), one.step);
        let owner = |one: &'a ToDelete| Some((one.object.uid.as_ref()?.as_str(), one));
        Self {
            objects,
            steps,
            named: objects.iter().map(named).collect(),
            owners: objects.iter().filter_map(owner).collect(),
            namespaces: of_kind(&kinds::NAMESPACE),
            crds: of_kind(&kinds::CRD),
            places: objects.iter().filter_map(|one| one.object.namespace.as_deref()).collect(),
        }
    }

    /// Returns the steps that delete an object: its own, and that of its Namespace.
    pub(super) fn of(&self, object: &ObjectRef) -> Vec<usize> {
        let with_namespace = object.namespace.as_deref().and_then(|namespace| self.namespaces.get(namespace));
        self.named.get(&key(object)).into_iter().chain(with_namespace).copied().collect()
    }

    /// Returns the owners of an object that are deleted.
    pub(super) fn owners_of(&self, value: &Value) -> Vec<&'a ToDelete> {
        let owners = object::list(value, "/metadata/ownerReferences").filter_map(|owner| object::text(owner, "/uid"));
        owners.filter_map(|uid| self.owners.get(uid).copied()).collect()
    }

    /// Returns the steps that delete an object, those of its owners included.
    pub(super) fn of_live(&self, object: &ObjectRef, value: &Value) -> Vec<usize> {
        let owners = self.owners_of(value).into_iter().map(|owner| owner.step);
        self.of(object).into_iter().chain(owners).collect()
    }

    /// Returns the step that deletes the CRD of a kind, by its name.
    pub(super) fn of_crd(&self, name: &str) -> Option<usize> {
        self.crds.get(name).copied()
    }

    /// Returns whether something in a namespace is deleted, or the namespace itself.
    pub(super) fn touches(&self, namespace: &str) -> bool {
        self.places.contains(namespace) || self.namespaces.contains_key(namespace)
    }

    /// Returns whether one of these steps may run before another one is done.
    pub(super) fn is_early(&self, steps: &[usize], than: usize) -> bool {
        steps.iter().any(|step| !self.steps.is_after(*step, than))
    }

    /// Returns whether a step starts only when one of these is done.
    pub(super) fn is_after(&self, step: usize, others: &[usize]) -> bool {
        others.iter().any(|other| self.steps.is_after(step, *other))
    }
}

fn key(object: &ObjectRef) -> Key<'_> {
    (object.api_version.group(), &object.kind, object.namespace.as_deref(), &object.name)
}

/// Objects with the same finalizer that one step deletes: one controller is in charge of them.
pub(super) struct Group<'a> {
    pub(super) finalizer: &'a str,
    pub(super) step: usize,
    pub(super) contained: bool,
    pub(super) forced: bool,
    pub(super) objects: Vec<&'a ToDelete>,
}

impl Group<'_> {
    pub(super) fn references(&self) -> Vec<ObjectRef> {
        self.objects.iter().map(|one| one.object.clone()).collect()
    }
}

/// In how many namespaces the controller of a kind is looked for. In more, one serves them all.
const NAMESPACES: usize = 3;

/// Groups objects by their finalizers: what the plan names before what is deleted with a Namespace or CRD. The finalizers that
/// the API server itself removes are left out.
pub(super) fn groups<'a>(objects: &'a [ToDelete]) -> Vec<Group<'a>> {
    let mut places: BTreeMap<(GroupKind, &str), BTreeSet<Option<&str>>> = BTreeMap::new();
    let is_own = |finalizer: &str| crate::known(finalizer).is_some_and(|known| known.component == "kube-apiserver");
    let finalizers: BTreeSet<&str> = objects.iter().flat_map(|one| &one.finalizers).map(String::as_str).collect();
    let own: BTreeSet<&str> = finalizers.into_iter().filter(|finalizer| is_own(finalizer)).collect();
    let finalizers =
        |one: &'a ToDelete| one.finalizers.iter().map(String::as_str).filter(|finalizer| !own.contains(finalizer));
    for one in objects {
        for finalizer in finalizers(one) {
            let place = places.entry((one.object.group_kind(), finalizer)).or_default();
            place.insert(one.object.namespace.as_deref());
        }
    }
    let mut groups: BTreeMap<_, Group<'_>> = BTreeMap::new();
    for one in objects {
        for finalizer in finalizers(one) {
            let kind = one.object.group_kind();
            let few = places.get(&(kind.clone(), finalizer)).is_some_and(|places| places.len() <= NAMESPACES);
            let place = one.object.namespace.as_deref().filter(|_| few);
            let forced = one.forced.iter().any(|known| known == finalizer);
            let key = (one.contained, kind, finalizer, one.step, forced, place);
            let new = || Group { finalizer, step: one.step, contained: one.contained, forced, objects: Vec::new() };
            groups.entry(key).or_insert_with(new).objects.push(one);
        }
    }
    groups.into_values().collect()
}

/// Returns the CRD of an object, if it may have one.
pub(super) fn crd_of(case: &Case<'_>, object: &ObjectRef) -> Option<ObjectRef> {
    case.crd_of(object)
}
