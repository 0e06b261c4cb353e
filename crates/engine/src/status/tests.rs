use billhook_objects::{ApiVersion, Digest, ResourceType, Scope};
use serde_json::json;

use super::*;

fn inventory(keys: &[(&str, &str, Option<&str>, &str)]) -> Inventory {
    let mut inventory = Inventory::new(ReleaseName::new("shop", "web").unwrap());
    inventory.revision = 3;
    for (group, kind, namespace, name) in keys {
        let key = ObjectKey::new(GroupKind::new(*group, *kind), *namespace, *name);
        let entry = Entry::new(ApiVersion::new(*group, "v1"), Digest::of(&serde_json::Value::Null));
        let entry = Entry { uid: Some(Uid::new("1")), ..entry };
        inventory.entries.insert(key, entry);
    }
    inventory
}

fn deleting(inventory: &Inventory, blockers: Vec<Blocker>) -> Found {
    let key = inventory.entries.keys().next().unwrap();
    let object = json!({"namespace": key.namespace, "name": key.name, "uid": "1", "resourceVersion": "1",
        "finalizers": ["a.example/x"], "deleting": true});
    Found {
        objects: BTreeMap::from([(key.clone(), serde_json::from_value(object).unwrap())]),
        details: HashMap::from([(Uid::new("1"), Detail { view: None, blockers })]),
        failed: BTreeMap::new(),
    }
}

#[test]
fn an_object_that_is_being_deleted_is_reported_with_its_blockers() {
    let inventory = inventory(&[("", "Namespace", None, "shop")]);
    let finalizer = Blocker::Finalizer { finalizer: "a.example/x".into(), manager: Some("operator".into()) };
    let status = report(&inventory, &deleting(&inventory, vec![finalizer]));
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["objects"][0]["state"], "deleting");
    assert_eq!(json["objects"][0]["finalizers"], json!(["a.example/x"]));
    assert_eq!(json["objects"][0]["blockers"][0]["manager"], "operator");
    assert_eq!((status.kinds[0].live, status.kinds[0].deleting), (1, 1));
}

#[test]
fn a_record_that_was_deleted_with_its_namespace_is_a_deletion() {
    let mut inventory = inventory(&[("", "Namespace", None, "shop")]);
    assert_eq!(report(&inventory, &Found::default()).phase, "applying");
    inventory.revision = 0;
    assert_eq!(report(&inventory, &deleting(&inventory, Vec::new())).phase, "deleting");
    assert_eq!(report(&inventory, &Found::default()).phase, "unknown");
}

#[test]
fn objects_of_an_unavailable_api_are_unreadable_and_not_missing() {
    use ObjectState::{Missing, Unreadable};
    let inventory = inventory(&[
        ("", "ConfigMap", Some("shop"), "a"),
        ("dead.example", "Widget", Some("shop"), "b"),
        ("gone.example", "Gadget", Some("shop"), "c"),
    ]);
    let mut catalog = Catalog::default();
    catalog.insert(ResourceType {
        kind: GroupKind::new("", "ConfigMap"),
        plural: "configmaps".into(),
        singular: "configmap".into(),
        short_names: Vec::new(),
        scope: Scope::Namespaced,
        versions: vec!["v1".into()],
        verbs: Vec::new(),
    });
    catalog.stale = vec!["dead.example/v1".into()];
    let (objects, unavailable) = wanted(&inventory, &catalog);
    assert_eq!(objects.iter().map(|w| w.key.name.as_str()).collect::<Vec<_>>(), ["a"]);
    let found = Found { failed: unavailable, ..Found::default() };
    let states: Vec<_> = inventory.entries.iter().map(|(key, entry)| found.state(key, entry, "web.shop")).collect();
    assert_eq!(states, [Missing, Unreadable, Missing]);
}

#[test]
fn present_objects_are_ready_by_the_rules_of_apply() {
    let inventory = inventory(&[
        ("", "ConfigMap", Some("shop"), "a"),
        ("apps", "Deployment", Some("shop"), "b"),
        ("batch", "Job", Some("shop"), "c"),
    ]);
    let failed = json!({"metadata": {"name": "c"}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}});
    let details = [json!({}), json!({"metadata": {"name": "b"}}), failed];
    let mut found = Found::default();
    for ((key, detail), uid) in inventory.entries.keys().zip(details).zip(["1", "2", "3"]) {
        let labels = json!({RELEASE_LABEL: "web.shop"});
        let object =
            json!({"namespace": "shop", "name": key.name, "uid": uid, "resourceVersion": "1", "labels": labels});
        found.objects.insert(key.clone(), serde_json::from_value(object).unwrap());
        found.details.insert(Uid::new(uid), serde_json::from_str(&detail.to_string()).unwrap());
    }
    let shown: Vec<_> = inventory.entries.iter().map(|(key, entry)| found.status(key, entry, "web.shop")).collect();
    let expected = [
        (Some(Readiness::Ready), true),
        (Some(Readiness::NotYet("0 of 1 updated".into())), false),
        (Some(Readiness::Failed("the job failed".into())), false),
    ];
    let readiness: Vec<_> = shown.iter().map(|object| (object.readiness.clone(), object.is_well())).collect();
    assert_eq!(readiness, expected);
    let status = report(&inventory, &found);
    let counts: Vec<_> = status.kinds.iter().map(|kind| (kind.live, kind.ready)).collect();
    assert_eq!(counts, [(1, 1), (1, 0), (1, 0)]);
}

#[test]
fn the_record_and_the_label_decide_what_belongs_to_the_release() {
    use ObjectState::{Claimed, Obsolete, Present, Replaced, Unlabelled};
    let inventory = inventory(&[("", "ConfigMap", Some("shop"), "a")]);
    let (key, entry) = inventory.entries.first_key_value().unwrap();
    let recorded = |uid: Option<&str>| Entry { uid: uid.map(Uid::new), ..entry.clone() };
    for (entry, label, expected) in [
        (recorded(Some("1")), Some("web.shop"), Present),
        (recorded(Some("1")), Some("db.shop"), Claimed),
        (recorded(Some("1")), None, Unlabelled),
        (Entry { unlabelled: true, ..recorded(Some("1")) }, None, Present),
        (Entry { obsolete: true, ..recorded(Some("1")) }, Some("web.shop"), Obsolete),
        (Entry { obsolete: true, ..recorded(Some("1")) }, None, Unlabelled),
        // Of another UID, the label decides: an apply may have created the object before it was recorded.
        (recorded(Some("2")), Some("web.shop"), Present),
        (recorded(Some("2")), Some("db.shop"), Replaced),
        (recorded(None), None, Replaced),
    ] {
        let labels = label.map(|label| json!({RELEASE_LABEL: label})).unwrap_or(json!({}));
        let object = json!({"namespace": "shop", "name": "a", "uid": "1", "resourceVersion": "1", "labels": labels});
        let objects = BTreeMap::from([(key.clone(), serde_json::from_value(object).unwrap())]);
        let found = Found { objects, ..Found::default() };
        assert_eq!(found.state(key, &entry, "web.shop"), expected, "{entry:?} {label:?}");
    }
}
