//! Tests of defaults and rules against the answers of Kubernetes 1.36.3.

use serde_json::{Map, json};

use super::{
    fields::{items_mut, put, text},
    *,
};
use crate::kinds::Kinds;

fn kind_of(object: &Value) -> std::sync::Arc<Kind> {
    let group = text(object, "apiVersion").split_once('/').map_or("", |(group, _)| group);
    let kinds = Kinds::new();
    std::sync::Arc::clone(kinds.by_kind(group, text(object, "kind")).expect("a known kind"))
}

/// Adds what an object has before it is prepared: a namespace, a UID and a creation time.
fn with_metadata(object: &Value) -> Value {
    let mut object = object.clone();
    if kind_of(&object).namespaced {
        put(&mut object, &["metadata", "namespace"], "kinds-helper");
    }
    put(&mut object, &["metadata", "uid"], "UID");
    put(&mut object, &["metadata", "creationTimestamp"], "TIME");
    object
}

fn created(object: &Value) -> Value {
    let mut object = with_metadata(object);
    prepare_create(&kind_of(&object), &mut object, &User::admin());
    object
}

/// Drops fields that are empty on one side and missing on the other.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(key, value)| {
                let empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
                let no_metadata = *key == "metadata" && value.as_object().is_some_and(Map::is_empty);
                !empty && !no_metadata
            });
            fields.map(|(key, value)| (key.clone(), plain(value))).collect()
        }
        Value::Array(items) => items.iter().map(plain).collect(),
        value => value.clone(),
    }
}

/// Compares pairs of what was sent to Kubernetes 1.36.3 and what it returned, with times and addresses replaced.
#[test]
fn new_objects_get_the_defaults_of_kubernetes() {
    let pairs: Vec<Value> = serde_json::from_str(include_str!("defaults.json")).expect("pairs");
    assert_eq!(pairs.len(), 48);
    for pair in pairs {
        let mut found = created(&pair["in"]);
        for field in ["uid", "creationTimestamp"] {
            found["metadata"].as_object_mut().expect("metadata").remove(field);
        }
        if found["kind"] == "Service" && text(&found["spec"], "clusterIP").starts_with("10.0.0.") {
            assert_eq!(found["spec"]["clusterIP"], found["spec"]["clusterIPs"][0]);
            found["spec"]["clusterIP"] = "IP".into();
            found["spec"]["clusterIPs"] = json!(["IP"]);
            for port in items_mut(found["spec"].get_mut("ports")) {
                if let Some(node) = port.get_mut("nodePort") {
                    assert!((30_000..32_768).contains(&node.as_i64().expect("a number")));
                    *node = "PORT".into();
                }
            }
        }
        assert_eq!(plain(&found), plain(&pair["out"]), "{} {}", pair["in"]["kind"], pair["in"]["metadata"]["name"]);
        let wrong = rules(&kind_of(&pair["in"]), &created(&pair["in"]), None);
        assert!(wrong.is_empty(), "{wrong:?}");
    }
}

/// An object that was read can be written back unchanged.
#[test]
fn objects_written_back_remain_unchanged() {
    let pairs: Vec<Value> = serde_json::from_str(include_str!("defaults.json")).expect("pairs");
    for pair in pairs {
        let old = created(&pair["in"]);
        let mut new = old.clone();
        prepare_update(&kind_of(&old), &mut new, &old);
        assert_eq!(new, old);
        let wrong = rules(&kind_of(&old), &new, Some(&old));
        assert!(wrong.is_empty(), "{} {wrong:?}", old["kind"]);
    }
}

fn causes(wrong: &[Cause]) -> Vec<String> {
    wrong.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
}

fn check_create(object: Value, expected: &[&str]) {
    let object = created(&object);
    let wrong = causes(&rules(&kind_of(&object), &object, None));
    let same = wrong.len() == expected.len() && wrong.iter().zip(expected).all(|(a, b)| a.starts_with(b));
    assert!(same, "{object}\n{wrong:#?}");
}

#[test]
fn invalid_new_objects_are_rejected() {
    let names = "metadata.name: Invalid value: ";
    let labels_null = "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`";
    let template = "spec.template.spec.containers: Required value";
    let selector = "spec.selector: Required value";
    check_create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}}),
        &["metadata.name: Required value: name or generateName is required"],
    );
    check_create(
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a.b"}}),
        &[&format!("{names}\"a.b\": must not contain dots")],
    );
    check_create(
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "p"}, "spec": {
            "type": "Z", "ports": [{"port": 0, "protocol": "X"}, {"name": "A", "port": 70000}],
        }}),
        &[
            "spec.ports[0].name: Required value",
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            "spec.ports[0].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            "spec.ports[1].name: Invalid value: \"A\": a lowercase RFC 1123 label must consist of",
            "spec.ports[1].port: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.ports[1].targetPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.type: Unsupported value: \"Z\": supported values: \"ClusterIP\", \"ExternalName\", \"LoadBalancer\", \
         \"NodePort\"",
        ],
    );
    check_create(
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "a.b"}, "spec": {}}),
        &[&format!("{names}\"a.b\": must not contain dots"), selector, labels_null, template],
    );
    check_create(
        json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {}}),
        &[labels_null, template],
    );
    check_create(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
            "selector": {}, "template": {"spec": {"containers": [{}]}},
        }}),
        &[
            "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
            "spec.template.spec.containers[0].name: Required value",
            "spec.template.spec.containers[0].image: Required value",
        ],
    );
    check_create(
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "c"}}, "spec": {
                "restartPolicy": "Never", "containers": [{"name": "a", "image": "x"}, {"name": "a"}],
            }},
        }}),
        &[
            "spec.template.metadata.labels: Invalid value: {\"a\":\"c\"}: `selector` does not match template `labels`",
            "spec.template.spec.containers[1].image: Required value",
            "spec.template.spec.containers[1].name: Duplicate value: \"a\"",
            "spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\"",
        ],
    );
    check_create(
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "d"}, "spec": {}}),
        &[
            "spec.schedule: Required value",
            "spec.jobTemplate.spec.template.spec.containers: Required value",
            "spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"",
        ],
    );
    check_create(
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "d"}, "spec": {}}),
        &["spec.containers: Required value"],
    );
    check_create(
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"a b": "x", "k": "a"}, "binaryData": {"k": "eg=="},
            "metadata": {"name": "d", "finalizers": ["orphan", "foregroundDeletion", "x", "y/z"]},
        }),
        &[
            "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\",\"x\",\"y/z\"]: \
         finalizer orphan and foregroundDeletion cannot be both set",
            "metadata.finalizers[2]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully \
         qualified",
            "data[a b]: Invalid value: \"a b\": a valid config key must consist of",
            "data[k]: Invalid value: \"k\": duplicate of key present in binaryData",
        ],
    );
    check_create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "d", "ownerReferences": [{}]}}),
        &[
            "metadata.ownerReferences.apiVersion: Invalid value: \"\": version must not be empty",
            "metadata.ownerReferences.kind: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.name: Invalid value: \"\": must not be empty",
            "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
        ],
    );
    check_create(
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "d"}, "type": "kubernetes.io/tls"}),
        &["data[tls.crt]: Required value", "data[tls.key]: Required value"],
    );
    check_create(
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "a%b"},
            "roleRef": {"kind": "X"}, "subjects": [{"kind": "Y"}],
        }),
        &[
            "metadata.name: Invalid value: \"a%b\": may not contain '%'",
            "roleRef.kind: Unsupported value: \"X\": supported values: \"Role\", \"ClusterRole\"",
            "roleRef.name: Required value",
            "subjects[0].name: Required value",
            "subjects[0].kind: Unsupported value: \"Y\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
        ],
    );
    check_create(
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "x"},
            "spec": {"group": "a.b", "version": "v1"},
        }),
        &[
            "metadata.name: Invalid value: \"x\": must be `spec.version+\".\"+spec.group`: \"v1.a.b\"",
            "spec.groupPriorityMinimum: Invalid value: 0: must be positive and less than 20000",
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
        ],
    );
    check_create(
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {
            "name": "x", "finalizers": ["unqualified"],
        }}),
        &[],
    );
    let big = "x".repeat(1024 * 1024 + 1);
    check_create(
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"k": big}}),
        &["[]: Too long: may not be more than 1048576 bytes"],
    );
}

#[test]
fn required_fields_are_reported_once() {
    let check = |api_version: &str, kind: &str, spec: Value, expected: &[&str]| {
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": spec});
        let (kind, object) = (kind_of(&object), created(&object));
        let causes = validate(&kind, &kind.versions[0].schema, &object, None);
        assert_eq!(causes.iter().map(|cause| &*cause.field).collect::<Vec<_>>(), expected, "{object}");
    };
    let (labels, containers) = ("spec.template.metadata.labels", "spec.template.spec.containers");
    check("apps/v1", "Deployment", json!({}), &["spec.selector", labels, containers]);
    check("apps/v1", "DaemonSet", json!({}), &[labels, containers]);
    check("v1", "Pod", json!({}), &["spec.containers"]);
    check("v1", "Pod", json!({"containers": [{}]}), &["spec.containers[0].name", "spec.containers[0].image"]);
    let mounts = json!({"containers": [{"name": "a", "image": "a", "volumeMounts": [{"name": "a"}]}]});
    check("v1", "Pod", mounts, &["spec.containers[0].volumeMounts[0].mountPath"]);
}

/// Changes one of the recorded objects.
fn check_update(kind: &str, name: &str, change: &Value, expected: &[&str]) {
    let pairs: Vec<Value> = serde_json::from_str(include_str!("defaults.json")).expect("pairs");
    let pair = pairs.iter().find(|pair| pair["in"]["kind"] == kind && pair["in"]["metadata"]["name"] == name);
    let old = created(&pair.expect("a pair")["in"]);
    check_change(&old, change, expected);
}

fn check_change(old: &Value, change: &Value, expected: &[&str]) {
    let mut new = crate::patch::merge_patch(old, change).expect("a merge patch");
    prepare_update(&kind_of(old), &mut new, old);
    let wrong = causes(&rules(&kind_of(old), &new, Some(old)));
    let same = wrong.len() == expected.len() && wrong.iter().zip(expected).all(|(a, b)| a.starts_with(b));
    assert!(same, "{change}\n{wrong:#?}");
}

#[test]
fn immutable_fields_are_checked() {
    let why = "field is immutable when `immutable` is set";
    let immutable = |field: &str, value: &str| format!("{field}: Invalid value: {value}: field is immutable");
    let other =
        json!({"spec": {"selector": {"matchLabels": {"a": "c"}}, "template": {"metadata": {"labels": {"a": "c"}}}}});
    let cases = [
        ("ConfigMap", json!({"metadata": {"uid": "b"}}), vec![immutable("metadata.uid", "\"b\"")]),
        ("ConfigMap", json!({"metadata": {"labels": {"x": "y"}}}), vec![]),
        ("Secret", json!({"type": "x"}), vec![immutable("type", "\"x\"")]),
        ("Deployment", other.clone(), vec![immutable("spec.selector", "{\"matchLabels\":{\"a\":\"c\"}}")]),
        ("DaemonSet", other.clone(), vec![immutable("spec.selector", "{\"matchLabels\":{\"a\":\"c\"}}")]),
        ("StatefulSet", other, vec!["spec: Forbidden: updates to statefulset spec for fields other than".to_owned()]),
        ("StatefulSet", json!({"spec": {"replicas": 3}}), vec![]),
        ("Job", json!({"spec": {"completions": 5}}), vec![immutable("spec.completions", "5")]),
        ("Job", json!({"spec": {"parallelism": 5}}), vec![]),
        (
            "Service",
            json!({"spec": {"clusterIP": "10.0.0.255"}}),
            vec!["spec.clusterIPs[0]: Invalid value: [\"10.0.0.255\"]: may not change once set".to_owned()],
        ),
        ("Service", json!({"spec": {"clusterIP": null, "clusterIPs": null}}), vec![]),
        ("Service", json!({"spec": {"ports": null}}), vec!["spec.ports: Required value".to_owned()]),
        ("PersistentVolumeClaim", json!({"spec": {"storageClassName": "x"}}), vec![]),
        (
            "PersistentVolumeClaim",
            json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}}),
            vec!["spec: Forbidden: spec is immutable after creation except resources.requests and".to_owned()],
        ),
        ("Pod", json!({"spec": {"hostname": "x"}}), vec!["spec: Forbidden: pod updates may not change".to_owned()]),
        ("Pod", json!({"metadata": {"annotations": {"a": "b"}}}), vec![]),
    ];
    for (kind, change, expected) in cases {
        check_update(kind, "a", &change, &expected.iter().map(String::as_str).collect::<Vec<_>>());
    }
    check_update("RoleBinding", "a:b", &json!({"roleRef": {"name": "x"}}), &["roleRef: Invalid value: "]);
    let value = json!({"value": 5});
    check_update("PriorityClass", "kinds-helper", &value, &["value: Forbidden: may not be changed in an update."]);
    let frozen = created(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "immutable": true, "data": {"a": "b"},
    }));
    check_change(&frozen, &json!({"metadata": {"labels": {"a": "b"}}}), &[]);
    check_change(
        &frozen,
        &json!({"immutable": false, "data": {"a": "c"}}),
        &[&format!("immutable: Forbidden: {why}"), &format!("data: Forbidden: {why}")],
    );
}

#[test]
fn no_finalizers_are_added_during_deletion() {
    let mut old = created(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "finalizers": ["a/b"]},
    }));
    old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    check_change(
        &old,
        &json!({"metadata": {"finalizers": ["a/b", "orphan", "c/d"]}}),
        &["metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{\"c/d\", \"orphan\"}"],
    );
    check_change(&old, &json!({"metadata": {"finalizers": null}}), &[]);
    check_change(
        &old,
        &json!({"metadata": {"deletionTimestamp": null}}),
        &["metadata.deletionTimestamp: Invalid value: null: field is immutable"],
    );
}

#[test]
fn namespaces_keep_finalizers_and_name_label() {
    let old = created(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}));
    let mut new = old.clone();
    new["spec"]["finalizers"] = json!([]);
    new["metadata"]["labels"] = Value::Null;
    prepare_update(&kind_of(&old), &mut new, &old);
    assert_eq!(new, old);
}

#[test]
fn services_keep_their_addresses() {
    let spec = json!({"type": "NodePort", "ports": [{"port": 80}, {"port": 81, "name": "x"}]});
    let object = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": spec});
    let old = created(&object);
    let mut new = with_metadata(&object);
    prepare_update(&kind_of(&old), &mut new, &old);
    assert_eq!(new["spec"], old["spec"]);
    new["spec"]["type"] = "ClusterIP".into();
    prepare_update(&kind_of(&old), &mut new, &old);
    assert!(new["spec"]["ports"][0].get("nodePort").is_none());
}

/// The schema rejects objects of the wrong shape; the strategy must not fail on them.
#[test]
fn objects_of_the_wrong_shape_do_not_panic() {
    for kind in Kinds::new().iter() {
        for odd in [json!("x"), json!(1), json!(["x"]), json!({"template": "x", "containers": "x", "ports": ["x"]})] {
            let mut object = json!({
                "apiVersion": kind.stored_api_version(), "kind": kind.kind, "metadata": {"name": "a", "labels": "x"},
                "spec": odd, "status": odd, "data": odd, "stringData": odd,
                "webhooks": odd, "rules": odd, "subjects": odd,
            });
            let old = object.clone();
            prepare_create(kind, &mut object, &User::admin());
            prepare_update(kind, &mut object, &old);
            rules(kind, &object, Some(&old));
        }
    }
}
