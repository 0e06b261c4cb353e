//! Tests with small definitions and with those that large projects ship.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use serde_json::json;
use tokio::time::Instant;

use super::*;

fn crd() -> Value {
    let schema =
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "uid": "u"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"], "categories": ["all"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

fn check(change: impl Fn(&mut Value), expected: &[&str]) {
    let mut crd = crd();
    change(&mut crd);
    let causes = kind_of_crd(&crd).err().unwrap_or_default();
    let texts: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    assert_eq!(texts, expected);
}

#[test]
fn definitions_are_converted_to_kinds() {
    let mut crd = crd();
    let first = crd["spec"]["versions"][0].clone();
    let version = |name: &str| {
        let mut version = first.clone();
        version["name"] = name.into();
        version["storage"] = (name == "v1beta1").into();
        version["subresources"] =
            json!({"status": {}, "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}});
        version["selectableFields"] = json!([{"jsonPath": ".spec.n"}]);
        version
    };
    let names = ["foo10", "v1alpha1", "v1", "foo1", "v1beta1", "v10beta3", "v2", "v11", "v1beta2"];
    crd["spec"]["versions"] = names.iter().map(|name| version(name)).collect();
    crd["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
        "clientConfig": {"service": {"name": "a", "namespace": "b"}}, "conversionReviewVersions": ["v1"],
    }});
    let kind = kind_of_crd(&crd).unwrap();
    let sorted: Vec<_> = kind.versions.iter().map(|version| &*version.name).collect();
    assert_eq!(sorted, ["v11", "v2", "v1", "v10beta3", "v1beta2", "v1beta1", "v1alpha1", "foo1", "foo10"]);
    assert_eq!(kind.stored_api_version(), "example.com/v1beta1");
    assert_eq!((&*kind.singular, &*kind.list_kind, kind.namespaced), ("thing", "ThingList", true));
    assert_eq!((&kind.short_names[..], &kind.categories[..]), (&["th".to_owned()][..], &["all".to_owned()][..]));
    assert!(kind.crd.as_ref().is_some_and(|crd| crd.webhook.is_some()));
    let version = &kind.versions[0];
    assert!(version.status && version.served && Arc::ptr_eq(&version.schema, &kind.versions[1].schema));
    assert_eq!(version.scale.as_ref().map(|scale| &*scale.spec_replicas), Some("spec.n"));
    assert_eq!(version.selectable, ["spec.n"]);
}

#[test]
fn invalid_definitions_are_rejected() {
    check(|_| {}, &[]);
    check(
        |crd| crd["spec"] = json!({}),
        &[
            "metadata.name: Invalid value: \"things.example.com\": must be spec.names.plural+\".\"+spec.group",
            "spec.group: Required value",
            "spec.scope: Required value",
            "spec.versions: Invalid value: null: must have exactly one version marked as storage version",
            "spec.names.plural: Required value",
            "spec.names.singular: Required value",
            "spec.names.kind: Required value",
            "spec.names.listKind: Required value",
        ],
    );
    check(
        |crd| crd["spec"]["scope"] = "X".into(),
        &["spec.scope: Unsupported value: \"X\": supported values: \"Cluster\", \"Namespaced\""],
    );
    check(
        |crd| crd["spec"]["versions"][0]["schema"] = json!(null),
        &["spec.versions[0].schema.openAPIV3Schema: Required value"],
    );
    check(
        |crd| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["x"] = json!({}),
        &["spec.validation.openAPIV3Schema.properties[x].type: Required value: must not be empty for specified \
             object fields"],
    );
    check(
        |crd| {
            crd["spec"]["versions"][0]["subresources"] =
                json!({"scale": {"specReplicasPath": ".a", "statusReplicasPath": "b"}});
            crd["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.foo"}, {"jsonPath": ".spec"}]);
        },
        &[
            "spec.subresources.scale.specReplicasPath: Invalid value: \".a\": should be a json path under .spec",
            "spec.subresources.scale.statusReplicasPath: Invalid value: \"b\": must be a simple json path starting \
             with .",
            "spec.selectableFields[0].jsonPath: Invalid value: \".spec.foo\": is an invalid path: does not refer to a \
             valid field",
            "spec.selectableFields[1].jsonPath: Invalid value: \".spec\": must point to a field of type string, \
             boolean or integer. Enum string fields and strings with formats are allowed.",
        ],
    );
    check(
        |crd| crd["spec"]["conversion"] = json!({"strategy": "Webhook"}),
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions: Required value",
        ],
    );
    check(
        |crd| {
            crd["metadata"]["name"] = "things.x.k8s.io".into();
            crd["spec"]["group"] = "x.k8s.io".into();
        },
        &["metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval \
           annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111"],
    );
    let mut kind = crd();
    kind["spec"]["names"]["kind"] = "k_".into();
    let causes = kind_of_crd(&kind).unwrap_err();
    assert!(causes.iter().any(|cause| {
        cause.field == "spec.names.kind"
            && cause.message.contains("may have mixed case, but should otherwise match: a DNS-1035")
    }));
}

#[test]
fn errors_name_the_version_that_differs() {
    let second = |crd: &mut Value| {
        let mut version = crd["spec"]["versions"][0].clone();
        version["name"] = "v2".into();
        version["storage"] = false.into();
        version["schema"]["openAPIV3Schema"] = json!({"type": "object", "properties": {"x": {"type": "array"}}});
        crd["spec"]["versions"].as_array_mut().unwrap().push(version);
    };
    check(second, &["spec.versions[1].schema.openAPIV3Schema.properties[x].items: Required value: must be specified"]);
    let mut crd = crd();
    crd["status"] = json!({"storedVersions": ["v0", "v1"]});
    let causes = kind_of_crd(&crd).unwrap_err();
    assert_eq!(causes[0].field, "status.storedVersions[0]");
}

/// Returns the folder with manifests of other projects, which are not in this repository.
fn fixtures() -> PathBuf {
    let default = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    std::env::var_os("BILLHOOK_FIXTURES").map_or_else(default, PathBuf::from)
}

#[test]
#[expect(clippy::print_stderr, reason = "reports how long parsing took")]
fn real_definitions_are_accepted() {
    let fixtures = fixtures();
    let mut files = vec![fixtures.join("gatekeeper.yaml")];
    let mut folders = vec![fixtures.join("kube-prometheus")];
    while let Some(entries) = folders.pop().and_then(|folder| std::fs::read_dir(folder).ok()) {
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "yaml") {
                files.push(path);
            }
        }
    }
    let documents = files.iter().filter_map(|file| std::fs::read_to_string(file).ok());
    let crds: Vec<Value> = documents
        .flat_map(|text| serde_saphyr::from_multiple::<Value>(&text).expect("YAML"))
        .filter(|document| document["kind"] == "CustomResourceDefinition")
        .collect();
    if crds.is_empty() {
        // Unlike `eprintln!`, this is shown for a test that passes.
        let notice = format!(
            "real_definitions_are_accepted: left out, as {} holds no CustomResourceDefinitions; set BILLHOOK_FIXTURES to \
             a folder with manifests\n",
            fixtures.display()
        );
        return std::io::stderr().write_all(notice.as_bytes()).expect("standard error");
    }
    let definition = crate::schema::builtin::<
        k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    >();
    let begun = Instant::now();
    for crd in &crds {
        let name = text(&crd["metadata"], "name");
        assert_eq!(definition.wrong_types(crd), None, "{name}");
        assert_eq!(definition.prune(&mut crd.clone()), Vec::<String>::new(), "{name}");
        let kind = kind_of_crd(crd).unwrap_or_else(|causes| panic!("{name}: {causes:?}"));
        for version in &kind.versions {
            let api_version = kind.api_version(&version.name);
            let mut object =
                json!({"apiVersion": api_version, "kind": kind.kind, "metadata": {"name": "a"}, "nope": 1});
            version.schema.set_defaults(&mut object);
            assert_eq!(version.schema.wrong_types(&object), None, "{name}");
            let dropped = if version.schema.preserve_unknown { Vec::new() } else { vec!["nope".to_owned()] };
            assert_eq!(version.schema.prune(&mut object), dropped, "{name}");
            let causes = version.schema.validate(&object);
            assert!(causes.iter().all(|cause| cause.message == "Required value"), "{name}: {causes:?}");
        }
    }
    eprintln!("{} definitions in {:?}", crds.len(), begun.elapsed());
}
