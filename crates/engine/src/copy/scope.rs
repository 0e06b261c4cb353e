//! What matters to a deletion, and so what is listed.

use std::collections::BTreeSet;

use billhook_objects::{Catalog, GroupKind, ReleaseName, Resource, ResourceType, Scope as Where, wellknown};
use billhook_plan::{Doomed, Listed, Plan, Snapshot};
use serde_json::{Value, json};

/// In up to this many namespaces a kind is listed one by one.
const FEW: usize = 4;

/// The kinds of all namespaces that tell who removes a finalizer and whether a request is admitted.
const EVIDENCE: [(&str, &str); 9] = [
    ("", "Service"),
    ("", "ServiceAccount"),
    ("apps", "DaemonSet"),
    ("apps", "Deployment"),
    ("apps", "StatefulSet"),
    ("coordination.k8s.io", "Lease"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
];

/// The kinds whose content no controller of the sandbox and no explanation reads, and whose content may be confidential or large.
const METADATA: [(&str, &str); 3] = [("", "ConfigMap"), ("", "Secret"), ("apps", "ControllerRevision")];

/// The Leases of nodes: there is one for each, and the conditions of the node say the same.
const NODE_LEASES: &str = "kube-node-lease";

/// What a deletion concerns.
pub(super) struct Scope {
    /// The namespaces in which something is deleted, or that are deleted, and that of the record.
    pub(super) touched: BTreeSet<String>,
    /// The names of the CRDs that are deleted.
    crds: BTreeSet<String>,
    /// Whether cluster-scoped custom resources are deleted, which may own objects in any namespace.
    owns_anywhere: bool,
}

/// A list to read.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) resource: Resource,
    /// The namespace; none for all.
    pub(super) namespace: Option<String>,
    pub(super) whole: bool,
    /// Of a list of all namespaces, those whose objects are kept; none for all.
    among: Option<BTreeSet<String>>,
}

impl Scope {
    pub(super) fn of(plan: &Plan, snapshot: &Snapshot, release: Option<&ReleaseName>) -> Self {
        let doomed = Doomed::of(plan, snapshot, release);
        let mut scope = Self {
            touched: release.map(|release| release.namespace().to_owned()).into_iter().collect(),
            crds: BTreeSet::new(),
            owns_anywhere: false,
        };
        let own = snapshot.listings.iter().filter(|listing| listing.query.cluster.is_none());
        for listing in own {
            let Listed::Items { items, .. } = &listing.found else { continue };
            for item in items.iter().filter(|item| doomed.contains(&item.uid)) {
                scope.add(&listing.query.resource.kind, item.namespace.as_deref(), &item.name);
            }
        }
        // What is read one by one is in no list of the snapshot.
        for (_, key, ..) in plan.deleted().filter(|(cluster, ..)| cluster.is_none()) {
            scope.add(&key.kind, key.namespace.as_deref(), &key.name);
        }
        scope
    }

    fn add(&mut self, kind: &GroupKind, namespace: Option<&str>, name: &str) {
        match namespace {
            Some(namespace) => {
                self.touched.insert(namespace.to_owned());
            }
            None if *kind == wellknown::namespace() => {
                self.touched.insert(name.to_owned());
            }
            None if *kind == wellknown::crd() => {
                self.crds.insert(name.to_owned());
            }
            None => self.owns_anywhere |= !wellknown::is_built_in(&kind.group),
        }
    }

    /// Returns the lists to read, those of Events left out of other namespaces.
    pub(super) fn places(&self, catalog: &Catalog) -> Vec<Place> {
        // Events are served in two groups.
        let is_wanted = |kind: &&ResourceType| kind.supports("list") && !kind.kind.is("events.k8s.io", "Event");
        catalog.iter().filter(is_wanted).flat_map(|kind| self.of_kind(kind)).collect()
    }

    fn of_kind(&self, kind: &ResourceType) -> Vec<Place> {
        let resource = Resource::of(kind, None);
        let is = |known: &[(&str, &str)]| known.iter().any(|(group, name)| kind.kind.is(group, name));
        let whole = !is(&METADATA);
        let place = |namespace: Option<&String>, among: Option<BTreeSet<String>>| Place {
            resource: resource.clone(),
            namespace: namespace.cloned(),
            whole,
            among,
        };
        let is_event = kind.kind.is("", "Event");
        let is_everywhere = kind.scope == Where::Cluster
            || is(&EVIDENCE)
            || self.crds.contains(&resource.crd().name)
            || (self.owns_anywhere && !is_event);
        if is_everywhere {
            return vec![place(None, None)];
        }
        if self.touched.len() <= FEW || is_event {
            return self.touched.iter().map(|namespace| place(Some(namespace), None)).collect();
        }
        vec![place(None, Some(self.touched.clone()))]
    }
}

impl Place {
    /// Returns the same list in another version of the kind.
    pub(super) fn in_version(&self, version: &str) -> Self {
        let resource = Resource { version: version.to_owned(), ..self.resource.clone() };
        Self { resource, ..self.clone() }
    }

    /// Returns whether the objects are large: CRDs with their schemas.
    pub(super) fn is_large(&self) -> bool {
        self.resource.kind == wellknown::crd()
    }

    /// Returns an object if it is kept, without what is never needed.
    pub(super) fn keep(&self, mut object: Value) -> Option<Value> {
        let namespace = object["metadata"]["namespace"].as_str();
        if namespace == Some(NODE_LEASES)
            || self.among.as_ref().is_some_and(|among| namespace.is_none_or(|namespace| !among.contains(namespace)))
        {
            return None;
        }
        if self.is_large() {
            without_schemas(&mut object);
        }
        only_owners_of_finalizers(&mut object);
        Some(object)
    }
}

/// Replaces the schemas of a CRD, and what refers to their fields.
fn without_schemas(crd: &mut Value) {
    let versions = crd.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
        version.retain(|field, _| !matches!(field.as_str(), "additionalPrinterColumns" | "selectableFields"));
        let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        version.insert("schema".to_owned(), open);
    }
}

/// Keeps of the managed fields who manages, and of the fields only finalizers: they tell which controller has set one.
fn only_owners_of_finalizers(object: &mut Value) {
    let entries = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut);
    for entry in entries.into_iter().flatten() {
        let finalizers = entry.pointer_mut("/fieldsV1/f:metadata/f:finalizers").map(Value::take);
        let kept = match finalizers {
            Some(finalizers) => json!({"f:metadata": {"f:finalizers": finalizers}}),
            None => json!({}),
        };
        if let Some(entry) = entry.as_object_mut() {
            entry.insert("fieldsV1".to_owned(), kept);
        }
    }
}
