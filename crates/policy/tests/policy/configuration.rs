//! Tests of a ProviderConfiguration apart from its policy: readiness, exports, schedules, manifests.

use billhook_policy::{
    Export, ManifestEntry, ProviderConfiguration, ReadinessCheck, Requirement, TypedReference, UpdateStrategy,
    parse_configuration,
};
use serde_json::json;

use super::check::{assert_lines, file};

/// Reads the configuration of a YAML text without `apiVersion` and `kind`, or returns its mistakes.
fn read(deployer: &str, yaml: &str) -> Result<ProviderConfiguration, String> {
    let yaml = format!("apiVersion: {deployer}\nkind: ProviderConfiguration\n{yaml}");
    let nodes = billhook_objects::yaml::parse_nodes(&yaml).map_err(|error| error.to_string())?;
    let document = billhook_policy::parse_document(&nodes[0], &file()).ok_or("no document")?;
    match document {
        Ok(document) => Ok(document.configuration),
        Err(diagnostics) => Err(diagnostics.to_string()),
    }
}

pub(crate) fn helm(yaml: &str) -> Result<ProviderConfiguration, String> {
    read("helm.deployer.landscaper.gardener.cloud/v1alpha1", yaml)
}

/// Compares a configuration of the manifest deployer in a compact form, or its mistakes.
#[track_caller]
fn check(yaml: &str, expected: &str) {
    let found = read("manifest.deployer.landscaper.gardener.cloud/v1alpha2", yaml);
    assert_lines(&found.map_or_else(|mistakes| mistakes, |found| compact(&found)), expected, yaml);
}

fn compact(configuration: &ProviderConfiguration) -> String {
    let mut lines = Vec::new();
    if configuration.update_strategy != UpdateStrategy::Update {
        lines.push(format!("{:?}", configuration.update_strategy));
    }
    if configuration.readiness.disable_default {
        lines.push("no default checks".to_owned());
    }
    lines.extend(configuration.readiness.custom.iter().map(readiness));
    lines.extend(configuration.exports.iter().map(export));
    lines.extend(configuration.continuous_reconcile.iter().map(|schedule| format!("{schedule:?}")));
    lines.extend(configuration.manifests.iter().map(manifest));
    lines.join("\n")
}

fn reference(of: &TypedReference) -> String {
    format!("{} {} {}/{}", of.api_version, of.kind, of.namespace.as_deref().unwrap_or("-"), of.name)
}

fn target(name: Option<&String>) -> String {
    name.map(|name| format!(" in {name}")).unwrap_or_default()
}

fn readiness(check: &ReadinessCheck) -> String {
    let labels = check.labels.iter().map(|of| format!("{} {} {:?}", of.api_version, of.kind, of.labels));
    let objects: Vec<_> = check.resources.iter().map(reference).chain(labels).collect();
    let requirement = |of: &Requirement| format!("{} {:?} {}", of.json_path, of.operator, json!(of.values));
    let requirements: Vec<_> = check.requirements.iter().map(requirement).collect();
    let disabled = if check.disabled { " disabled" } else { "" };
    let target = target(check.target_name.as_ref());
    format!("{}{disabled}: {}: {}{target}", check.name, objects.join(", "), requirements.join(", "))
}

pub(crate) fn export(export: &Export) -> String {
    let from = export.from_resource.iter().map(|from| format!(" of {}", reference(from)));
    let through =
        export.from_object_ref.iter().map(|of| format!(" to {} {} {}", of.api_version, of.kind, of.json_path));
    let rest: String = from.chain(through).chain([target(export.target_name.as_ref())]).collect();
    format!("export {}={}{rest}", export.key, export.json_path)
}

fn manifest(entry: &ManifestEntry) -> String {
    let mut line = format!("{:?} {}", entry.policy, entry.manifest["kind"]);
    for (name, annotations) in [("create", &entry.annotate_before_create), ("delete", &entry.annotate_before_delete)] {
        if !annotations.is_empty() {
            line += &format!(" {name}={annotations:?}");
        }
    }
    for (name, patch) in [("after", &entry.patch_after_deployment), ("before", &entry.patch_before_delete)] {
        line += &patch.iter().map(|patch| format!(" {name}={patch}")).collect::<String>();
    }
    line
}

#[test]
fn the_default_strategy_is_update() {
    check("", "");
    check("updateStrategy: ''", "");
    check("updateStrategy: patch", "Patch");
    check("updateStrategy: merge", "Merge");
    check("updateStrategy: mergeOverwrite", "MergeOverwrite");
    check("updateStrategy: serverSide", "ServerSide");
    check(
        "updateStrategy: merge-overwrite",
        r#"p:3:17: updateStrategy: unknown value "merge-overwrite"; did you mean "mergeOverwrite"? (possible values: update, patch, merge, mergeOverwrite, serverSide)"#,
    );
}

#[test]
fn readiness_checks() {
    let checks = r"
  disableDefault: true
  custom:
  - name: own
    disabled: true
    resourceSelector:
    - {apiVersion: apps/v1, kind: Deployment, name: web, namespace: shop}
    - {apiVersion: v1, kind: Namespace, name: shop, namespace: ''}
    labelSelector: {apiVersion: v1, kind: Pod, matchLabels: {app: web}}
    targetName: edge
    requirements:
    - {jsonPath: .status.readyReplicas, operator: in, values: [{value: 1}, {value: {a: [2]}}]}
    - {jsonPath: status.phase, operator: '==', values: [{value: null}]}
    - {jsonPath: 'a[0]', operator: exists}
  - name: other
    resourceSelector: [{apiVersion: v1, kind: Secret, name: s, namespace: a}]
    requirements:
    - {jsonPath: .a, operator: '!'}
    - {jsonPath: .a, operator: '=', values: [{value: x}]}
    - {jsonPath: .a, operator: '!=', values: [{value: true}]}
    - {jsonPath: .a, operator: notin, values: [{value: 1.5}]}
";
    let expected = r#"
        no default checks
        own disabled: apps/v1 Deployment shop/web, v1 Namespace -/shop, v1 Pod {"app": "web"}: .status.readyReplicas In [1,{"a":[2]}], status.phase Equals [null], a[0] Exists [] in edge
        other: v1 Secret a/s: .a DoesNotExist [], .a Equals ["x"], .a NotEquals [true], .a NotIn [1.5]"#;
    check(&format!("readinessChecks:{checks}"), expected);
    check(&format!("readiness:{checks}"), expected);
    check(
        "readinessChecks: {}\nreadiness: {}",
        "p:4:12: readiness: readinessChecks is also set (use readinessChecks only)",
    );
}

#[test]
fn mistakes_in_readiness_checks() {
    check(
        r"readinessChecks:
  disabledefault: true
  custom:
  - {}
  - name: a
    resourceSelector: [{apiVersion: v1, name: s}, {apiVersion: a/b/c, kind: K, name: s}]
    requirements: []
  - name: b
    labelselector: {}
    requirements: [{}]
  - name: c
    labelSelector: {apiVersion: v1, kind: Pod, matchLabels: {}}
    requirements:
    - {jsonPath: 'a[', operator: exists}
    - {jsonPath: a, operator: in}
    - {jsonPath: a, operator: notin, values: []}
    - {jsonPath: a, operator: '='}
    - {jsonPath: a, operator: '=', values: [{value: 1}, {value: 2}]}
    - {jsonPath: a, operator: '!=', values: [1]}
    - {jsonPath: a, operator: '=', values: [{}]}
    - {jsonPath: a, operator: '=', value: 1}
    - {jsonPath: a, operator: gt, values: [{value: 1}]}
",
        r#"
        p:4:3: readinessChecks: unknown field "disabledefault"; did you mean "disableDefault"?
        p:6:5: readinessChecks.custom[0]: missing field "name"
        p:6:5: readinessChecks.custom[0]: missing field "requirements"
        p:8:24: readinessChecks.custom[1].resourceSelector[0]: missing field "kind"
        p:8:64: readinessChecks.custom[1].resourceSelector[1].apiVersion: expected VERSION or GROUP/VERSION, such as v1 or apps/v1
        p:9:19: readinessChecks.custom[1].requirements: the list is empty (list at least one requirement)
        p:11:5: readinessChecks.custom[2]: unknown field "labelselector"; did you mean "labelSelector"?
        p:12:20: readinessChecks.custom[2].requirements[0]: missing field "jsonPath"
        p:12:20: readinessChecks.custom[2].requirements[0]: missing field "operator"
        p:14:61: readinessChecks.custom[3].labelSelector.matchLabels: at least one label is required
        p:16:18: readinessChecks.custom[3].requirements[0].jsonPath: invalid JSONPath: the bracket is not closed
        p:17:7: readinessChecks.custom[3].requirements[1]: the operator in needs a value
        p:18:46: readinessChecks.custom[3].requirements[2].values: the operator notin needs a value
        p:19:7: readinessChecks.custom[3].requirements[3]: the operator = needs a value
        p:20:44: readinessChecks.custom[3].requirements[4].values: the operator = takes one value (use in or notin)
        p:21:46: readinessChecks.custom[3].requirements[5].values[0]: expected a mapping with the field "value" (write {value: 1})
        p:22:45: readinessChecks.custom[3].requirements[6].values[0]: missing field "value"
        p:23:36: readinessChecks.custom[3].requirements[7]: unknown field "value"; did you mean "values"?
        p:24:31: readinessChecks.custom[3].requirements[8].operator: unknown value "gt" (possible values: exists, !, =, ==, !=, in, notin)"#,
    );
    check(
        "readinessChecks: {custom: [{name: a, requirements: [{jsonPath: a, operator: exists}]}]}",
        "p:3:28: readinessChecks.custom[0]: a readiness check needs a resourceSelector or a labelSelector",
    );
}

#[test]
fn exports() {
    check(
        r"exports:
  exports:
  - {key: a.b, jsonPath: .data.x, fromResource: {apiVersion: v1, kind: Secret, name: s, namespace: ns}, targetName: edge}
  - key: c
    jsonPath: '.secrets[0]'
    fromResource: {apiVersion: v1, kind: Namespace, name: s}
    fromObjectRef: {kind: Secret, jsonPath: 'data.y'}
",
        "
        export a.b=.data.x of v1 Secret ns/s in edge
        export c=.secrets[0] of v1 Namespace -/s to v1 Secret data.y",
    );
    check("exports: {}", "");
    check(
        r"exports:
  export: []
  exports:
  - {jsonPath: a, fromResource: {apiVersion: v1, kind: Secret, name: s}}
  - {key: a, jsonPath: a}
  - {key: a, jsonPath: 'a[x]', fromResource: {apiVersion: v1, name: s}, fromObjectRef: {jsonPath: ''}}
  - {key: '', fromResource: {}}
",
        r#"
        p:4:3: exports: unknown field "export"; did you mean "exports"?
        p:6:5: exports.exports[0]: missing field "key"
        p:7:5: exports.exports[1]: missing field "fromResource"
        p:8:11: exports.exports[2].key: the key "a" is already used by exports.exports[1] (give each export its own key)
        p:8:24: exports.exports[2].jsonPath: invalid JSONPath: [x] is neither an index nor a name in quotes
        p:8:46: exports.exports[2].fromResource: missing field "kind"
        p:8:88: exports.exports[2].fromObjectRef: missing field "kind"
        p:8:99: exports.exports[2].fromObjectRef.jsonPath: the string is empty
        p:9:5: exports.exports[3]: missing field "jsonPath"
        p:9:11: exports.exports[3].key: the string is empty
        p:9:29: exports.exports[3].fromResource: missing field "apiVersion"
        p:9:29: exports.exports[3].fromResource: missing field "kind"
        p:9:29: exports.exports[3].fromResource: missing field "name""#,
    );
}

#[test]
fn schedules() {
    check("continuousReconcile: {every: 1h30m}", "Every(GoDuration(5400s))");
    check("continuousReconcile: {cron: '30 4 * * MON-FRI'}", r#"Cron("30 4 * * MON-FRI")"#);
    check("continuousReconcile: {cron: 'TZ=Europe/Berlin @daily'}", r#"Cron("TZ=Europe/Berlin @daily")"#);
    check("continuousReconcile: {cron: '@every 1h'}", r#"Cron("@every 1h")"#);
    for nothing in ["{}", "{every: none}", "{every: 0s}", "{cron: ''}", "{cron: null, every: null}"] {
        check(&format!("continuousReconcile: {nothing}"), "");
    }
    check(
        "continuousReconcile: {cron: '0 * * * *', every: 1h}",
        "p:3:49: continuousReconcile.every: cron is also set (use only one of the two)",
    );
    for wrong in ["0 * * *", "@often", "every hour", "0 0 * * * *", "@every soon", "0 * * * $"] {
        let hint = "use minute, hour, day of month, month and day of week, such as \"30 4 * * *\", or a descriptor such as @daily";
        check(
            &format!("continuousReconcile: {{cron: '{wrong}'}}"),
            &format!("p:3:29: continuousReconcile.cron: \"{wrong}\" is not a crontab line ({hint})"),
        );
    }
    check(
        "continuousReconcile: {every: -1h, evry: 1}",
        r#"
        p:3:30: continuousReconcile.every: expected a duration that is not negative, found "-1h"
        p:3:35: continuousReconcile: unknown field "evry"; did you mean "every"?"#,
    );
}

#[test]
fn manifests_with_annotations_and_patches() {
    check(
        r"manifests:
- policy: fallback
  annotateBeforeCreate: {a: b, empty: ''}
  annotateBeforeDelete: {c: d}
  patchAfterDeployment: {spec: {suspend: true}}
  patchBeforeDelete: {spec: {suspend: false}}
  manifest: {apiVersion: v1, kind: Secret}
- {policy: '', manifest: {kind: A}}
- {policy: immutable, manifest: {kind: B}}
- {kind: C, patchBeforeDelete: 1}
",
        r#"
        Fallback "Secret" create={"a": "b", "empty": ""} delete={"c": "d"} after={"spec":{"suspend":true}} before={"spec":{"suspend":false}}
        Manage "A"
        Immutable "B"
        Manage "C""#,
    );
    check(
        r"manifests:
- annotateBeforeCreate: [a]
  annotateBeforeDelete: {a: 1, b: true}
  patchAfterDeployment: text
  patchBeforeDelete: [{op: remove, path: /a}]
  patchBeforeCreate: {}
  manifest: {kind: A}
",
        r#"
        p:4:25: manifests[0].annotateBeforeCreate: expected a mapping, found a list
        p:5:29: manifests[0].annotateBeforeDelete.a: expected a string, found a number (put it in quotes)
        p:5:35: manifests[0].annotateBeforeDelete.b: expected a string, found a boolean (put it in quotes)
        p:6:25: manifests[0].patchAfterDeployment: expected a mapping, found a string
        p:7:22: manifests[0].patchBeforeDelete: expected a mapping, found a list
        p:8:3: manifests[0]: unknown field "patchBeforeCreate"; did you mean "patchBeforeDelete"?"#,
    );
}

#[test]
fn diagnostics_of_an_object_in_a_cluster_have_paths_and_no_lines() {
    let config = json!({
        "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2",
        "kind": "ProviderConfiguration",
        "manifests": [{"manifest": {"kind": "A"}}],
        "kubeconfig": "x",
    });
    let (found, warnings) = parse_configuration(&config).unwrap();
    assert_eq!(compact(&found), "Manage \"A\"");
    assert_eq!(found.manifests[0].line, 0);
    let warnings: Vec<_> = warnings.iter().map(|found| found.at_path()).collect();
    assert_eq!(warnings, ["kubeconfig: kubeconfig has no effect (the Target determines the cluster)"]);

    let wrong = json!({
        "apiVersion": "manifest.deployer.landscaper.gardener.cloud/v1alpha2",
        "kind": "ProviderConfiguration",
        "manifests": [{}, {"manifest": 1}],
        "deletionGroups": [{"predefinedResourceGroup": {"type": "crd"}}],
    });
    let mistakes: Vec<_> = parse_configuration(&wrong).unwrap_err().iter().map(|found| found.at_path()).collect();
    let expected = [
        "deletionGroups[0].predefinedResourceGroup.type: unknown value \"crd\"; did you mean \"crds\"? (possible values: namespaced-resources, cluster-scoped-resources, crds, empty)",
        "manifests[0]: missing field \"manifest\"",
        "manifests[1].manifest: expected a mapping, found a number",
    ];
    assert_eq!(mistakes, expected);
    for nothing in [json!(null), json!("text"), json!([])] {
        assert_eq!(parse_configuration(&nothing).unwrap_err().iter().len(), 1, "{nothing}");
    }
}
