//! The queries that show certain objects.

use std::collections::BTreeMap;

use billhook_objects::{ObjectKey, wellknown};
use billhook_plan::{Query, Resource, Select};

/// Up to how many objects of a kind are selected by name if a label selects them, too. Names need no permission to list.
const FEW_NAMES: usize = 8;
/// Up to how many namespaces have a query each; beyond that one covers all namespaces.
const FEW_NAMESPACES: usize = 16;

/// Returns the queries for objects by their names. If all of them carry the label of a release with this value, many objects
/// of a kind are selected by it instead.
pub(crate) fn by_name<'a>(
    objects: impl IntoIterator<Item = (&'a ObjectKey, &'a Resource)>,
    label: Option<&str>,
) -> Vec<Query> {
    let mut names_by_namespace: BTreeMap<&Resource, BTreeMap<Option<&str>, Vec<String>>> = BTreeMap::new();
    for (object, resource) in objects {
        let names = names_by_namespace.entry(resource).or_default().entry(object.namespace.as_deref()).or_default();
        names.push(object.name.clone());
    }
    names_by_namespace.values_mut().flat_map(BTreeMap::values_mut).for_each(|names| names.sort_unstable());
    let labels = label.map(|label| Select::Labels(format!("{}={label}", wellknown::RELEASE_LABEL)));
    let query = |resource: &Resource, namespace: Option<&str>, select: Select| Query {
        cluster: None,
        resource: resource.clone(),
        namespace: namespace.map(str::to_owned),
        select,
        namespaces: Vec::new(),
    };
    let mut queries = Vec::new();
    for (resource, namespaces) in names_by_namespace {
        if namespaces.len() > FEW_NAMESPACES {
            let named = |(namespace, names): (Option<&str>, Vec<String>)| Some((namespace?.to_owned(), names));
            let objects: BTreeMap<String, Vec<String>> = namespaces.into_iter().filter_map(named).collect();
            let namespaces = objects.keys().cloned().collect();
            let select = labels.clone().unwrap_or(Select::Objects(objects));
            queries.push(Query { namespaces, ..query(resource, None, select) });
            continue;
        }
        for (namespace, names) in namespaces {
            let by_label = labels.clone().filter(|_| names.len() > FEW_NAMES);
            queries.push(query(resource, namespace, by_label.unwrap_or(Select::Names(names))));
        }
    }
    queries
}
