//! Tests of the schemas of Kubernetes' own kinds.

use std::collections::HashSet;

use k8s_openapi::{
    api::{apps::v1::Deployment, core::v1::*, rbac::v1::Role},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};

use super::*;
use crate::kinds::Kinds;

/// Returns the schema of the field at a path, through lists.
fn at(schema: &Arc<Schema>, path: &str) -> Arc<Schema> {
    path.split('.').fold(Arc::clone(schema), |schema, name| {
        let schema = schema.items.clone().unwrap_or(schema);
        Arc::clone(schema.field(name).unwrap_or_else(|| panic!("{name} of {path}")))
    })
}

#[test]
fn lists_merge_as_the_openapi_document_specifies() {
    let deployment = builtin::<Deployment>();
    let map = |keys: &[&str]| ListType::Map(keys.iter().map(|key| (*key).to_owned()).collect());
    let key = |key: &str| Some(PatchStrategy::MergeKey(key.to_owned()));
    let pod = "spec.template.spec";
    for (path, list, patch) in [
        ("metadata.finalizers".to_owned(), ListType::Set, Some(PatchStrategy::Merge)),
        ("metadata.ownerReferences".to_owned(), map(&["uid"]), key("uid")),
        ("metadata.managedFields".to_owned(), ListType::Atomic, None),
        ("status.conditions".to_owned(), map(&["type"]), key("type")),
        (format!("{pod}.containers"), map(&["name"]), key("name")),
        (format!("{pod}.containers.ports"), map(&["containerPort", "protocol"]), key("containerPort")),
        (format!("{pod}.containers.volumeMounts"), map(&["mountPath"]), key("mountPath")),
        (format!("{pod}.containers.args"), ListType::Atomic, None),
        (format!("{pod}.tolerations"), ListType::Atomic, None),
        (format!("{pod}.volumes"), map(&["name"]), key("name")),
    ] {
        let found = at(&deployment, &path);
        assert_eq!((&found.list, &found.patch), (&list, &patch), "{path}");
    }
    assert!(at(&deployment, "spec.selector").atomic && at(&deployment, "spec.template.spec.nodeSelector").atomic);
    assert!(!at(&deployment, "spec.template").atomic);
    assert_eq!(at(&deployment, "spec.template.spec.containers.ports.protocol").default, Some(json!("TCP")));
    assert_eq!(at(&deployment, "spec.replicas").types, Type::Integer);
    assert_eq!(deployment.go.as_deref(), Some("v1.Deployment"));
}

#[test]
fn the_file_contains_what_the_kinds_refer_to_and_nothing_else() {
    fn references(source: &Value) -> Vec<&str> {
        let own = source["$ref"].as_str().and_then(|reference| reference.strip_prefix("#/components/schemas/"));
        let below = ["items", "additionalProperties"].into_iter().filter_map(|key| source.get(key));
        let fields = source["properties"].as_object().into_iter().flat_map(|fields| fields.values());
        own.into_iter().chain(below.chain(fields).flat_map(references)).collect()
    }
    let Types { kinds, definitions, .. } = Types::parse();
    let expected: HashSet<&str> =
        kinds.iter().map(|(_, name)| name.as_str()).chain(definitions.values().flat_map(references)).collect();
    let found: HashSet<&str> = definitions.keys().map(String::as_str).collect();
    assert_eq!(found, expected);
    let served = Kinds::new();
    // Besides the bodies of the subresources `binding`, `eviction`, `scale` and `token`, and the options of an eviction.
    assert_eq!(kinds.len(), served.iter().count() + 5);
    for kind in served.iter() {
        assert!(kind.versions[0].schema.go.is_some(), "{} is not in the file; run `cargo xtask schemas`", kind.kind);
    }
}

#[test]
fn a_type_is_converted_once() {
    assert!(Arc::ptr_eq(&builtin::<Pod>(), &builtin::<Pod>()));
    let template = at(&builtin::<Deployment>(), "spec.template.spec");
    assert!(Arc::ptr_eq(&template, &at(&builtin::<Pod>(), "spec")));
}

#[test]
fn recursive_types_are_known_to_any_depth() {
    let schema = builtin::<CustomResourceDefinition>();
    let version = |inner: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": inner}}]}});
    let mut object = version(json!({"properties": {
        "x": {"bar": 1, "default": {"any": [1]}, "additionalProperties": {"foo": 2, "type": "string"}},
        "y": {"type": "array", "items": {"qux": 1}, "additionalProperties": true},
    }}));
    let base = "spec.versions[0].schema.openAPIV3Schema.properties";
    let expected = [".x.additionalProperties.foo", ".x.bar", ".y.items.qux"].map(|path| format!("{base}{path}"));
    assert_eq!(schema.prune(&mut object), expected);
    assert_eq!(
        object,
        version(json!({"properties": {
            "x": {"default": {"any": [1]}, "additionalProperties": {"type": "string"}},
            "y": {"type": "array", "items": {}, "additionalProperties": true},
        }}))
    );
    let error = schema.wrong_types(&version(json!({"properties": {"x": {"properties": {"y": {"type": 5}}}}})));
    let expected = "json: cannot unmarshal number into Go struct field JSONSchemaProps.spec.versions.schema.\
        openAPIV3Schema.properties.properties.type of type string";
    assert_eq!(error.as_deref(), Some(expected));
}

#[test]
fn decoding_fails_as_in_go() {
    fn check<T: Resource>(object: Value, expected: &str) {
        let error = builtin::<T>().wrong_types(&object).unwrap_or_default();
        let field = expected.strip_prefix("unmarshal ").map(|rest| {
            let (what, rest) = rest.split_once(" into ").unwrap();
            format!("json: cannot unmarshal {what} into Go struct field {rest}")
        });
        assert_eq!(error, field.unwrap_or_else(|| expected.to_owned()), "{object}");
    }
    let template = |spec: Value| json!({"spec": {"template": {"spec": spec}}});
    let surge = |value: Value| json!({"spec": {"strategy": {"rollingUpdate": {"maxSurge": value}}}});
    let surge_error = "into RollingUpdateDeployment.spec.strategy.rollingUpdate.maxSurge of type int32";
    for (object, expected) in [
        (json!({"spec": {"replicas": "x"}}), "unmarshal string into DeploymentSpec.spec.replicas of type int32"),
        (json!({"spec": {"replicas": 1.5}}), "unmarshal number 1.5 into DeploymentSpec.spec.replicas of type int32"),
        (
            json!({"spec": {"replicas": 99_999_999_999_u64}}),
            "unmarshal number 99999999999 into DeploymentSpec.spec.replicas of type int32",
        ),
        (json!({"spec": {"paused": "true"}}), "unmarshal string into DeploymentSpec.spec.paused of type bool"),
        (json!({"spec": "x"}), "unmarshal string into Deployment.spec of type v1.DeploymentSpec"),
        (
            template(json!({"containers": {}})),
            "unmarshal object into PodSpec.spec.template.spec.containers of type []v1.Container",
        ),
        (
            template(json!({"containers": ["x"]})),
            "unmarshal string into PodSpec.spec.template.spec.containers of type v1.Container",
        ),
        (
            template(json!({"containers": [{"name": 5}]})),
            "unmarshal number into Container.spec.template.spec.containers.name of type string",
        ),
        (
            template(json!({"containers": [{"command": "x"}]})),
            "unmarshal string into Container.spec.template.spec.containers.command of type []string",
        ),
        (
            template(json!({"nodeSelector": {"a": 5}})),
            "unmarshal number into PodSpec.spec.template.spec.nodeSelector of type string",
        ),
        (
            template(json!({"nodeSelector": []})),
            "unmarshal array into PodSpec.spec.template.spec.nodeSelector of type map[string]string",
        ),
        (surge(json!(true)), &format!("unmarshal bool {surge_error}")),
        (surge(json!(1.5)), &format!("unmarshal number 1.5 {surge_error}")),
        (surge(json!("25%")), ""),
        (json!({"metadata": "x"}), "unmarshal string into Deployment.metadata of type v1.ObjectMeta"),
        (
            json!({"metadata": {"generation": "5"}}),
            "unmarshal string into ObjectMeta.metadata.generation of type int64",
        ),
        (
            json!({"metadata": {"creationTimestamp": "x"}}),
            "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
        ),
        (json!({"metadata": {"managedFields": [{"fieldsV1": {"f:a": {}}}]}, "spec": null, "unknown": 1}), ""),
    ] {
        check::<Deployment>(object, expected);
    }
    let cpu = |cpu: Value| json!({"spec": {"containers": [{"resources": {"limits": {"cpu": cpu}}}]}});
    let quantities = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
    check::<Pod>(cpu(json!("abc")), quantities);
    check::<Pod>(cpu(json!(true)), quantities);
    check::<Pod>(cpu(json!(0.5)), "");
    check::<Pod>(cpu(json!("500m")), "");
    check::<Secret>(json!({"data": {"a": "abc"}}), "illegal base64 data at input byte 0");
    check::<Secret>(json!({"data": {"a": 5}}), "unmarshal number into Secret.data of type []uint8");
    check::<Secret>(json!({"data": {"a": "YQ==", "b": null, "c": ""}, "stringData": null}), "");
    check::<ConfigMap>(json!({"data": "x"}), "unmarshal string into ConfigMap.data of type map[string]string");
    check::<ConfigMap>(json!([]), "json: cannot unmarshal array into Go value of type v1.ConfigMap");
}

#[test]
fn unknown_fields_nulls_and_empty_lists_are_dropped() {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "foo": 1,
        "metadata": {
            "name": "a", "foo": 1, "labels": {"a.b": "c", "d": null}, "annotations": {}, "finalizers": [],
            "managedFields": [{"fieldsV1": {"z": 1}, "y": 2}], "ownerReferences": null,
        },
        "spec": {
            "foo": null, "nodeName": null, "volumes": [{"name": "a", "emptyDir": {}}],
            "containers": [{"name": "a", "bar": 1, "args": [null], "resources": {}, "env": [{"q": {}}, {"q": 1}]}],
        },
    });
    let unknown = builtin::<Pod>().prune(&mut pod);
    assert_eq!(
        unknown,
        [
            "foo",
            "metadata.foo",
            "metadata.managedFields[0].y",
            "spec.containers[0].bar",
            "spec.containers[0].env[0].q",
            "spec.containers[0].env[1].q",
            "spec.foo",
        ]
    );
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "labels": {"a.b": "c", "d": ""}, "managedFields": [{"fieldsV1": {"z": 1}}]},
        "spec": {
            "volumes": [{"name": "a", "emptyDir": {}}],
            "containers": [{"name": "a", "args": [""], "resources": {}, "env": [{}, {}]}],
        },
    });
    assert_eq!(pod, expected);
}

#[test]
fn required_fields_are_checked() {
    fn check<T: Resource>(object: Value, expected: &[&str]) {
        let causes = builtin::<T>().validate(&object);
        let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
        assert_eq!(fields, expected, "{object}");
        assert!(causes.iter().all(|cause| cause.message == "Required value"));
    }
    check::<Deployment>(json!({"spec": {}}), &["spec.selector", "spec.template"]);
    check::<Role>(json!({"rules": [{"verbs": []}]}), &["rules[0].verbs"]);
    check::<Pod>(json!({"spec": {"containers": [{"name": ""}]}}), &["spec.containers[0].name"]);
    check::<Pod>(json!({"metadata": {"ownerReferences": [{}]}, "status": {"conditions": [{}]}}), &[]);
    let volume = |source: Value| json!({"spec": {"containers": [{"name": "a"}], "volumes": [source]}});
    check::<Pod>(volume(json!({"name": "a", "configMap": {}})), &["spec.volumes[0].configMap.name"]);
    check::<Pod>(volume(json!({"name": "a", "rbd": {"monitors": ["a"], "image": "a", "secretRef": {}}})), &[]);
    check::<ConfigMap>(json!({"data": {"a": ""}}), &[]);
    check::<Service>(json!({"spec": {"ports": [{}]}}), &[]);
}

#[test]
fn merge_keys_have_defaults() {
    let mut service = json!({"spec": {"ports": [{"port": 1}, {"port": 1, "protocol": "UDP"}]}});
    builtin::<Service>().set_defaults(&mut service);
    assert_eq!(service["spec"]["ports"], json!([{"port": 1, "protocol": "TCP"}, {"port": 1, "protocol": "UDP"}]));
}
