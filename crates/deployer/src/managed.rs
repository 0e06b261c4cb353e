//! `status.providerStatus`: the resources of an item in the form of Landscaper's deployers, so that items can migrate from
//! them and back. It is a copy of our record, and is ignored once the record exists.

use std::collections::BTreeMap;

use billhook_cluster::{Cluster, Error};
use billhook_engine::Inherited;
use billhook_objects::{ApiVersion, Catalog, GroupKind, Manifest, ObjectKey, Uid};
use billhook_plan::{ApplyAction, Directives, Plan, Resource, Work, before_delete};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::api::DeployItem;

/// The maximum size of the managed resources.
const MAX_SIZE: usize = 512 * 1024;
/// The maximum size of an object: etcd does not store a larger one.
const MAX_OBJECT: usize = 1536 * 1024;
/// What else the status of an item may need: twelve errors and three conditions, with messages of 16 KiB.
const OTHERS: usize = 256 * 1024;
/// What a UID adds to a resource.
const UID: usize = r#","uid":"00000000-0000-0000-0000-000000000000""#.len();

/// The field of a provider status that names our record. It is set only by billhook, which labels all objects of the item.
const RECORD: &str = "record";

/// The field of a provider status that names the release if helm deployed it.
pub(crate) const HELM_RELEASE: &str = "helmRelease";

/// Returns whether helm deployed an item; `None` if the provider status does not say, as after Landscaper.
pub(crate) fn is_by_helm(provider_status: Option<&Value>) -> Option<bool> {
    let status = provider_status?;
    let has = |field| status.get(field).is_some();
    (has(RECORD) || has(HELM_RELEASE)).then(|| has(HELM_RELEASE))
}

/// A managed resource. In `v1alpha1` of the manifest deployer it is the reference itself.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ManagedResource {
    #[serde(default)]
    annotate_before_delete: BTreeMap<String, String>,
    patch_before_delete: Option<Value>,
    #[serde(default)]
    policy: String,
    resource: Option<Reference>,
    #[serde(flatten)]
    bare: Option<Reference>,
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Reference {
    api_version: String,
    kind: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uid: Option<String>,
}

/// Returns the objects of an item according to its provider status. They matter if there is no record: after a migration
/// from Landscaper, or if the record was lost.
///
/// Landscaper identifies objects by name, so its resources without UIDs get those of the current objects. Objects that billhook
/// deployed are recognized by their label instead, since others may be able to edit the status.
///
/// # Errors
///
/// When such an object cannot be read.
pub(crate) async fn inherited(
    provider_status: Option<&Value>,
    cluster: &Cluster,
    catalog: &Catalog,
) -> Result<Vec<Inherited>, Error> {
    let mut inherited = read(provider_status);
    if provider_status.is_some_and(|status| status.get(RECORD).is_some()) {
        inherited.iter_mut().for_each(|entry| entry.uid = None);
        return Ok(inherited);
    }
    for entry in inherited.iter_mut().filter(|entry| entry.uid.is_none()) {
        let Some(kind) = catalog.get(&entry.key.kind) else { continue };
        let resource = Resource::of(kind, Some(entry.api_version.version()));
        entry.uid = cluster.get_meta(&resource, &entry.key).await?.map(|found| found.uid);
    }
    Ok(inherited)
}

/// Reads the managed resources. Skips entries that cannot be parsed: users cannot correct a status, and one bad entry must
/// not block the item forever.
fn read(provider_status: Option<&Value>) -> Vec<Inherited> {
    let resources = provider_status.and_then(|status| status.get("managedResources")).and_then(Value::as_array);
    let entry = |value: &Value| {
        let managed: ManagedResource = serde_json::from_value(value.clone()).ok()?;
        let reference = managed.resource.or(managed.bare)?;
        let api_version = ApiVersion::parse(&reference.api_version).ok()?;
        let kind = GroupKind::new(api_version.group(), &reference.kind);
        let namespace = reference.namespace.filter(|namespace| !namespace.is_empty());
        Some(Inherited {
            key: ObjectKey::new(kind, namespace.as_deref(), reference.name),
            api_version,
            uid: reference.uid.filter(|uid| !uid.is_empty()).map(Uid::new),
            before_delete: before_delete(&managed.annotate_before_delete, managed.patch_before_delete.as_ref()),
            keep: managed.policy == "keep",
            fallback: managed.policy == "fallback",
        })
    };
    resources.into_iter().flatten().filter_map(entry).collect()
}

/// Returns how large the managed resources of an item may be: the API server rejects a status that makes the object too large, and an
/// item whose status cannot be written never ends.
pub(crate) fn room(item: &DeployItem) -> usize {
    let text = |value: Result<String, serde_json::Error>| value.map_or(0, |text| text.len());
    let taken = text(serde_json::to_string(&item.metadata)) + text(serde_json::to_string(&item.spec));
    MAX_OBJECT.saturating_sub(OTHERS + taken).min(MAX_SIZE)
}

/// Returns the first of these values that fit into this size with their UIDs.
fn fitting(values: impl Iterator<Item = Value>, room: usize) -> Vec<Value> {
    let mut size = 0;
    let fits = |value: &Value| {
        size += value.to_string().len() + UID + 1;
        size <= room
    };
    values.take_while(fits).collect()
}

/// Returns the provider status of an item with this plan and a record of this name. The objects are in the order in which they are
/// applied; those that the plan leaves to others are not managed.
pub(crate) fn provider_status(
    api_version: &str,
    (record, room): (&str, usize),
    plan: &Plan,
    manifests: &BTreeMap<ObjectKey, Manifest>,
    directives: &BTreeMap<ObjectKey, Directives>,
) -> Value {
    let none = Directives::default();
    let applied = plan
        .nodes
        .iter()
        .filter_map(|node| if let Work::Apply(work) = &node.work { Some(&work.objects) } else { None });
    let applied = applied.flatten().filter(|task| task.action != ApplyAction::Await);
    let applied = applied.filter_map(|task| Some((&task.object, manifests.get(&task.object)?)));
    let entry = |(key, manifest): (&ObjectKey, &Manifest)| {
        let directives = directives.get(key).unwrap_or(&none);
        let resource = Reference {
            api_version: manifest.api_version.to_string(),
            kind: key.kind.kind.clone(),
            name: key.name.clone(),
            namespace: key.namespace.clone(),
            uid: None,
        };
        let mut entry =
            Map::from_iter([("policy".to_owned(), json!(directives.policy)), ("resource".to_owned(), json!(resource))]);
        entry.extend(directives.before_delete.as_ref().map(|patch| ("patchBeforeDelete".to_owned(), patch.clone())));
        Value::Object(entry)
    };
    let resources = fitting(applied.map(entry), room);
    json!({ "apiVersion": api_version, "kind": "ProviderStatus", "managedResources": resources, RECORD: record })
}

/// Adds the UIDs that are known after the deployment to the managed resources of a provider status.
pub(crate) fn add_uids(provider_status: &mut Value, uids: &BTreeMap<ObjectKey, Uid>) {
    let resources = provider_status.get_mut("managedResources").and_then(Value::as_array_mut);
    for resource in resources.into_iter().flatten().filter_map(|managed| managed.get_mut("resource")) {
        let Ok(reference) = Reference::deserialize(&*resource) else { continue };
        let Ok(api_version) = ApiVersion::parse(&reference.api_version) else { continue };
        let kind = GroupKind::new(api_version.group(), &reference.kind);
        let key = ObjectKey::new(kind, reference.namespace.as_deref(), reference.name.as_str());
        if let Some(uid) = uids.get(&key) {
            resource["uid"] = json!(uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readiness::lab::Lab;

    #[test]
    fn a_large_item_lists_fewer_resources_so_that_its_status_can_be_stored() {
        for config in [1000, 500 << 10, 1000 << 10, 1200 << 10, 1500 << 10] {
            let spec = json!({"type": "t", "config": {"manifests": "x".repeat(config)}});
            let item = DeployItem::new("a", serde_json::from_value(spec).unwrap());
            let resource =
                |n: u32| json!({"resource": {"apiVersion": "v1", "kind": "ConfigMap", "name": format!("{n:05}")}});
            let mut status = json!({"managedResources": fitting((0..20_000).map(resource), room(&item))});
            let keys = (0..20_000).map(|n| ObjectKey::new(GroupKind::new("", "ConfigMap"), None, format!("{n:05}")));
            let uid = || Uid::new("2b0f6c1a-4c0c-4d8e-9d5e-000000000001");
            add_uids(&mut status, &keys.map(|key| (key, uid())).collect());
            let (size, whole) = (status.to_string().len(), serde_json::to_string(&item).unwrap().len());
            assert!(size <= MAX_SIZE + 100, "{config}: {size}");
            assert!(size < 100 || size + whole + OTHERS <= MAX_OBJECT + 100, "{config}: {size} and {whole}");
            assert_eq!(size > 400 << 10, config < 700 << 10, "{config}: {size}");
        }
    }

    #[test]
    fn uids_are_added_to_the_objects_that_have_one() {
        let resource =
            |name: &str| json!({"apiVersion": "a.example/v2", "kind": "Widget", "namespace": "a", "name": name});
        let mut status =
            json!({"managedResources": [{"resource": resource("x")}, {"resource": resource("y")}, "none"]});
        let key = ObjectKey::new(GroupKind::new("a.example", "Widget"), Some("a"), "x");
        add_uids(&mut status, &[(key, Uid::new("1"))].into());
        assert_eq!(status["managedResources"][0]["resource"]["uid"], "1");
        assert_eq!(status["managedResources"][1]["resource"], resource("y"));
    }

    #[tokio::test(start_paused = true)]
    async fn uids_beside_a_record_do_not_make_objects_ours() {
        let lab = Lab::new().await;
        let catalog = lab.clusters.own.catalog().await.unwrap();
        let resource = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "b", "uid": "1"});
        let of_another = json!({"managedResources": [{"policy": "manage", "resource": resource}]});
        let mut ours = of_another.clone();
        ours[RECORD] = json!("billhook.deployitem.a");
        for (status, uid) in [(of_another, Some(Uid::new("1"))), (ours, None)] {
            assert_eq!(inherited(Some(&status), &lab.clusters.own, &catalog).await.unwrap()[0].uid, uid, "{status}");
        }
    }

    #[test]
    fn both_versions_of_a_managed_resource_are_parsed() {
        let status = json!({"managedResources": [
            {"policy": "keep", "resource": {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "a", "name": "b", "uid": "1"},
             "annotateBeforeDelete": {"x": "y"}, "patchBeforeDelete": {"metadata": {"annotations": {"z": "1"}}, "data": null}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "name": "c"},
            {"something": "else"},
        ]});
        let found = read(Some(&status));
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].key.to_string(), "ConfigMap/a/b");
        assert!(found[0].keep && !found[1].keep);
        assert_eq!(found[0].uid, Some(Uid::new("1")));
        let patch = json!({"metadata": {"annotations": {"x": "y", "z": "1"}}, "data": null});
        assert_eq!(found[0].before_delete, Some(patch));
        assert_eq!(found[1].key.to_string(), "ClusterRole.rbac.authorization.k8s.io/c");
        assert!(read(None).is_empty());
        assert!(read(Some(&json!({"managedResources": "none"}))).is_empty());
    }
}
