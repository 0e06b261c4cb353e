//! Writes a policy as the file that reads as the same policy.

use billhook_objects::yaml;
use serde_json::{Map, Value, json};

use crate::{DeletionGroup, Members, Policy, Propagation, ResourceSelector};

/// Writes the groups of a deletion, and those of an update unless these are the default ones.
///
/// # Errors
///
/// When a group has a setting that policy files do not have: returns the title of the group.
pub fn write_policy(policy: &Policy) -> Result<String, String> {
    let groups = |groups: &[DeletionGroup]| groups.iter().map(group).collect::<Result<Vec<_>, _>>();
    let mut file = Map::new();
    file.insert("deletionGroups".to_owned(), groups(&policy.deletion)?.into());
    if policy.during_update != DeletionGroup::defaults() {
        file.insert("deletionGroupsDuringUpdate".to_owned(), groups(&policy.during_update)?.into());
    }
    Ok(yaml::write(&file.into()))
}

fn group(group: &DeletionGroup) -> Result<Value, String> {
    let mut fields = Map::new();
    let mut set = |name: &str, value: Value| drop(fields.insert(name.to_owned(), value));
    let kind = match &group.members {
        Members::Class(class) => {
            set("type", class.as_str().into());
            "predefinedResourceGroup"
        }
        Members::Resources(selectors) => {
            let all = selectors.iter().any(|selector| selector.all);
            if selectors.iter().any(|selector| selector.all != all) {
                return Err(group.title.clone());
            }
            set("resources", selectors.iter().map(selector).collect());
            if all {
                set("deleteAllResources", true.into());
            }
            "customResourceGroup"
        }
    };
    if let Some(force) = &group.force {
        set("forceDelete", true.into());
        if !force.after.0.is_zero() {
            set("forceAfter", force.after.to_string().into());
        }
        if !force.finalizers.is_empty() {
            set("finalizers", json!(force.finalizers));
        }
        if force.end_grace_period {
            set("gracePeriodSeconds", 0.into());
        }
    }
    if let Some(propagation) = group.propagation {
        let name = match propagation {
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
            Propagation::Orphan => "Orphan",
        };
        set("propagationPolicy", name.into());
    }
    if let Some(timeout) = group.timeout {
        set("timeout", timeout.to_string().into());
    }
    if let Some(target) = &group.target {
        set("targetName", target.as_str().into());
    }
    if !group.excluded.is_empty() {
        set("excludedResources", group.excluded.iter().map(selector).collect());
    }
    // What a file has no field for; a chain of groups needs no `after`.
    let is_written = group.after.is_none()
        && group.grace_period.is_none()
        && group.new_objects.is_none()
        && group.release_snapshots.is_none()
        && group.before_delete.is_none()
        && group.retries.is_empty();
    if is_written { Ok(json!({ kind: fields })) } else { Err(group.title.clone()) }
}

fn selector(selector: &ResourceSelector) -> Value {
    let mut fields = json!({"apiVersion": selector.api_version.to_string(), "kind": selector.kind});
    if !selector.names.is_empty() {
        fields["names"] = json!(selector.names);
    }
    if !selector.namespaces.is_empty() {
        fields["namespaces"] = json!(selector.namespaces);
    }
    if !selector.label_selector.is_empty() {
        fields["labelSelector"] = json!(selector.label_selector);
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read_policy_file;

    const FILE: &str = "
deletionGroups:
- customResourceGroup:
    deleteAllResources: true
    targetName: edge
    resources:
    - {apiVersion: shop.example/v1, kind: Database, namespaces: [a, b], labelSelector: {matchLabels: {tier: web}}}
    - {apiVersion: v1, kind: configmaps, names: [x]}
- customResourceGroup:
    resources: [{apiVersion: apps/v1, kind: Deployment}]
    excludedResources: [{apiVersion: apps/v1, kind: Deployment, labelSelector: {matchExpressions: [{key: keep, operator: Exists}]}}]
- predefinedResourceGroup: {type: namespaced-resources, forceDelete: true, forceAfter: 5m, finalizers: [a.example/f], gracePeriodSeconds: 0}
- predefinedResourceGroup: {type: cluster-scoped-resources, propagationPolicy: Foreground, timeout: 90s}
- predefinedResourceGroup: {type: crds, forceDelete: true}
deletionGroupsDuringUpdate:
- predefinedResourceGroup: {type: empty}
";

    #[test]
    fn what_is_written_reads_as_the_same_policy() {
        for text in [FILE, "deletionGroups: []"] {
            let (policy, _) = read_policy_file(text, &"policy.yaml".into()).unwrap();
            let written = write_policy(&policy).unwrap();
            let (read, warnings) = read_policy_file(&written, &"policy.yaml".into()).unwrap();
            // Only the default groups, which are written like others, have no path.
            let plain = |groups: &[DeletionGroup]| -> Vec<DeletionGroup> {
                groups.iter().cloned().map(|group| DeletionGroup { path: String::new(), ..group }).collect()
            };
            assert_eq!(plain(&read.deletion), plain(&policy.deletion), "{written}");
            assert_eq!(plain(&read.during_update), plain(&policy.during_update), "{written}");
            assert!(warnings.is_empty(), "{warnings:?}");
        }
    }

    #[test]
    fn a_group_that_a_file_cannot_describe_is_named() {
        let mut policy = Policy::default();
        policy.deletion[1].retries = vec!["5s".parse().unwrap()];
        assert_eq!(write_policy(&policy), Err("cluster-scoped-resources".to_owned()));
    }
}
