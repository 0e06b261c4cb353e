//! The collections of a plan: what a node deletes beside the objects that are known by name.

use std::{collections::BTreeSet, sync::Arc};

use billhook_objects::Uid;
use billhook_policy::LabelSelector;
use serde::{Deserialize, Serialize};

use crate::Observed;

/// An index into [`Plan::queries`](crate::Plan::queries).
pub type QueryId = usize;

/// `deleteAllResources`: all objects that a query shows while the node runs and that match the filters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Collection {
    /// The query that shows the objects.
    pub query: QueryId,
    /// Only these names; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Only these namespaces; any if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Only these labels.
    #[serde(default, skip_serializing_if = "LabelSelector::is_empty")]
    pub label_selector: LabelSelector,
    /// What is left out, such as `excludedResources` of the same kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<Exclusion>,
}

/// Objects of a collection's kind that are left out of it. Empty lists mean any.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exclusion {
    /// These names; any if `name_prefixes` is empty too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Names with one of these prefixes: `kube-` also covers system namespaces that do not exist yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub name_prefixes: Vec<String>,
    /// In these namespaces; any if `namespace_prefixes` is empty too.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// In namespaces with one of these prefixes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace_prefixes: Vec<String>,
    /// With one of these owners. All collections of a plan share them.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub owners: Arc<BTreeSet<Uid>>,
    /// With these labels.
    #[serde(default, skip_serializing_if = "LabelSelector::is_empty")]
    pub label_selector: LabelSelector,
}

fn is_empty(uids: &BTreeSet<Uid>) -> bool {
    uids.is_empty()
}

impl Collection {
    /// Whether an object that the query shows belongs to the collection, and is not kept by its annotations.
    pub fn contains(&self, object: &Observed) -> bool {
        self.selects(object) && !object.annotations.treatment().is_kept()
    }

    /// Whether an object that the query shows matches the filters.
    pub(crate) fn selects(&self, object: &Observed) -> bool {
        (self.names.is_empty() || self.names.contains(&object.name))
            && within(&self.namespaces, object)
            && self.label_selector.matches(&object.labels)
            && !self.excluded.iter().any(|exclusion| exclusion.covers(object))
    }
}

impl Exclusion {
    /// Whether it leaves out an object of its collection's kind.
    pub fn covers(&self, object: &Observed) -> bool {
        let covers = |texts: &Vec<String>, prefixes: &Vec<String>, text: &String| {
            texts.contains(text) || prefixes.iter().any(|prefix| text.starts_with(prefix))
        };
        let any_name = self.names.is_empty() && self.name_prefixes.is_empty();
        let any_namespace = self.namespaces.is_empty() && self.namespace_prefixes.is_empty();
        let is_within = |namespace| covers(&self.namespaces, &self.namespace_prefixes, namespace);
        (any_name || covers(&self.names, &self.name_prefixes, &object.name))
            && (any_namespace || object.namespace.as_ref().is_some_and(is_within))
            && (self.owners.is_empty() || object.owners.iter().any(|owner| self.owners.contains(&owner.uid)))
            && self.label_selector.matches(&object.labels)
    }
}

fn within(namespaces: &[String], object: &Observed) -> bool {
    namespaces.is_empty() || object.namespace.as_ref().is_some_and(|namespace| namespaces.contains(namespace))
}
