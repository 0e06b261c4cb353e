//! What has become of the objects of a rehearsal.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use billhook_explain::ObjectRef;
use billhook_objects::{ApiVersion, ObjectKey, wellknown};
use billhook_plan::to_save;
use serde::Serialize;
use serde_json::Value;

/// An object that is deleted although it does not belong to the release.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Other {
    pub(crate) object: ObjectKey,
    /// What it is deleted with; none if a collection of the policy selects it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) with: Option<ObjectKey>,
}

/// Returns the objects that are deleted and do not belong to the release, without what Kubernetes creates again by itself, and
/// without what somebody else is deleting already, itself or with its Namespace or CRD, unless the plan deletes it, too.
pub(super) fn others(
    before: &[Value],
    after: &[Value],
    own: &HashSet<String>,
    planned: &HashSet<String>,
) -> Vec<Other> {
    let left: HashSet<&str> = after.iter().map(uid).collect();
    let gone: Vec<&Value> = before.iter().filter(|object| !left.contains(uid(object))).collect();
    let containers: BTreeSet<ObjectKey> = gone.iter().filter_map(|object| key(object)).filter(is_container).collect();
    let by_uid: HashMap<&str, &Value> = gone.iter().map(|object| (uid(object), *object)).collect();
    let mut definitions: BTreeMap<(&str, &str), ObjectKey> = BTreeMap::new();
    for object in &gone {
        if let Some(key) = key(object).filter(|key| key.kind == wellknown::crd()) {
            let spec = &object["spec"];
            let kind = spec["names"]["kind"].as_str().unwrap_or_default();
            definitions.insert((spec["group"].as_str().unwrap_or_default(), kind), key);
        }
    }
    let is_going = |object: &Value| is_deleting(object) && !planned.contains(uid(object));
    let going: HashSet<ObjectKey> =
        gone.iter().filter(|object| is_going(object)).filter_map(|object| key(object)).collect();
    let is_foreign =
        |object: &&&Value| !own.contains(uid(object)) && !is_going(object) && to_save((**object).clone()).is_some();
    let foreign = gone.iter().filter(is_foreign);
    let mut others: Vec<Other> = foreign
        .filter_map(|object| {
            let object_key = key(object)?;
            let namespace = object_key.namespace.as_deref();
            let namespace = namespace.map(|name| ObjectKey::new(wellknown::namespace(), None, name));
            let definition = definitions.get(&(object_key.kind.group.as_str(), object_key.kind.kind.as_str())).cloned();
            let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            let mut owners = owners.filter_map(|owner| key(by_uid.get(owner["uid"].as_str()?)?));
            let container = namespace.filter(|key| containers.contains(key)).or(definition);
            if container.as_ref().is_some_and(|key| going.contains(key)) {
                return None;
            }
            let with = container.or_else(|| owners.next());
            Some(Other { object: object_key, with })
        })
        .collect();
    others.sort();
    others
}

fn is_container(key: &ObjectKey) -> bool {
    key.kind == wellknown::namespace()
}

/// Returns the objects that are deleted and remain: Namespaces and CRDs first, which explain others. Those that were being deleted
/// before only if the plan deletes them, too.
pub(super) fn remaining(before: &[Value], after: &[Value], planned: &HashSet<String>) -> Vec<ObjectRef> {
    let deleting: HashSet<&str> = before.iter().filter(|object| is_deleting(object)).map(uid).collect();
    let is_meant =
        |object: &&Value| is_deleting(object) && (planned.contains(uid(object)) || !deleting.contains(uid(object)));
    let mut found: Vec<ObjectRef> = after.iter().filter(is_meant).filter_map(ObjectRef::of).collect();
    let rank = |object: &ObjectRef| {
        let kind = object.group_kind();
        (kind != wellknown::namespace(), kind != wellknown::crd())
    };
    found.sort_by(|a, b| (rank(a), a).cmp(&(rank(b), b)));
    found
}

/// Returns whether an object may be deleted, or hold something. Of those of the cluster, most do neither.
pub(super) fn matters(object: &Value) -> bool {
    let metadata = &object["metadata"];
    let is_own = metadata["labels"].get(wellknown::RELEASE_LABEL).is_some();
    let is_tied = ["finalizers", "ownerReferences"].iter().any(|field| metadata.get(field).is_some());
    metadata.get("namespace").is_some() || is_own || is_tied
}

/// Returns whether an object is being deleted and has finalizers.
pub(super) fn is_held(object: &Value) -> bool {
    is_deleting(object) && object["metadata"]["finalizers"].as_array().is_some_and(|all| !all.is_empty())
}

fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

fn key(object: &Value) -> Option<ObjectKey> {
    let version = ApiVersion::parse(object["apiVersion"].as_str()?).ok()?;
    let kind = billhook_objects::GroupKind::new(version.group(), object["kind"].as_str()?);
    let metadata = &object["metadata"];
    Some(ObjectKey::new(kind, metadata["namespace"].as_str(), metadata["name"].as_str()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_are_deleting_already_is_not_deleted_too() {
        let object = |kind: &str, namespace: Option<&str>, name: &str, is_deleting: bool| {
            let time = is_deleting.then_some("2026-01-01T00:00:00Z");
            json!({"apiVersion": "v1", "kind": kind, "metadata":
                {"namespace": namespace, "name": name, "uid": name, "deletionTimestamp": time}})
        };
        let before = [
            object("Namespace", None, "ours", false),
            object("Secret", Some("ours"), "with-ours", false),
            object("Secret", Some("ours"), "deleted-by-another", true),
            object("Secret", Some("ours"), "own", false),
            object("Namespace", None, "theirs", true),
            object("ConfigMap", Some("theirs"), "with-theirs", false),
            object("ConfigMap", Some("app"), "deleted-and-selected", true),
            object("ConfigMap", Some("app"), "selected", false),
        ];
        let set = |uids: &[&str]| uids.iter().map(|uid| (*uid).to_owned()).collect::<HashSet<_>>();
        let planned = set(&["ours", "own", "deleted-and-selected", "selected"]);
        let found: Vec<_> = others(&before, &[], &set(&["ours", "own"]), &planned)
            .iter()
            .map(|other| (other.object.to_string(), other.with.as_ref().map(ToString::to_string)))
            .collect();
        let expected = [
            ("ConfigMap/app/deleted-and-selected", None),
            ("ConfigMap/app/selected", None),
            ("Secret/ours/with-ours", Some("Namespace/ours")),
        ];
        assert_eq!(found, expected.map(|(object, with)| (object.to_owned(), with.map(str::to_owned))));
    }
}
