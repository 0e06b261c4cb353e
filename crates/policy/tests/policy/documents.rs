//! ProviderConfigurations, DeployItems, policy files, and `validate` over files that hold anything.

use billhook_objects::yaml::parse_nodes;
use billhook_policy::{
    Diagnostics, GoDuration, ItemTimeout, ManifestPolicy, PolicyDocument, Provider, parse_document, validate,
};

use super::check::{assert_lines, check, check_warnings, compact, file};

fn document(yaml: &str) -> Option<Result<PolicyDocument, Diagnostics>> {
    let nodes = parse_nodes(yaml).unwrap_or_default();
    nodes.first().and_then(|node| parse_document(node, &file()))
}

#[track_caller]
fn check_validate(yaml: &str, expected: &str) {
    let found: Vec<String> = validate(yaml, &file()).iter().map(ToString::to_string).collect();
    assert_lines(&found.join("\n"), expected, yaml);
}

const DEPLOY_ITEM: &str = r"
apiVersion: landscaper.gardener.cloud/v1alpha1
kind: DeployItem
metadata:
  name: my-secret
  namespace: tenant
spec:
  type: landscaper.gardener.cloud/kubernetes-manifest
  timeout: 15m
  config:
    apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2
    kind: ProviderConfiguration
    manifests:
    - policy: manage
      manifest:
        apiVersion: v1
        kind: Namespace
        metadata: {name: my-namespace}
    - manifest: {apiVersion: v1, kind: Secret, metadata: {name: s}}
      policy: keep
    - manifest: {apiVersion: v1, kind: Secret, metadata: {name: t}}
      policy: ignore
    - manifest: {apiVersion: v1, kind: Secret, metadata: {name: u}}
    deletionGroups:
    - predefinedResourceGroup: {type: crds}
";

#[test]
fn a_deploy_item() {
    let found = document(DEPLOY_ITEM).unwrap().unwrap();
    assert_eq!((found.provider, found.chart, found.has_policy), (Provider::Manifest, false, true));
    assert_eq!((found.name.as_deref(), found.namespace.as_deref()), (Some("my-secret"), Some("tenant")));
    assert_eq!(found.timeout, Some(ItemTimeout::After(GoDuration(std::time::Duration::from_secs(900)))));
    assert_eq!(compact(&found.policy), "crds\n");
    assert_eq!(found.policy.deletion[0].path, "spec.config.deletionGroups[0]");
    assert!(found.warnings.is_empty(), "{}", found.warnings);
    let entries: Vec<_> = found.manifests.iter().map(|m| (m.policy, m.line, m.manifest["kind"].as_str())).collect();
    assert_eq!(
        entries,
        [
            (ManifestPolicy::Manage, 16, Some("Namespace")),
            (ManifestPolicy::Keep, 19, Some("Secret")),
            (ManifestPolicy::Ignore, 21, Some("Secret")),
            (ManifestPolicy::Manage, 23, Some("Secret")),
        ]
    );
    check(DEPLOY_ITEM, "crds");
}

#[test]
fn a_bare_configuration_in_the_older_version() {
    let found = document(
        r"
apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha1
kind: ProviderConfiguration
manifests:
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: a}
",
    );
    let found = found.unwrap().unwrap();
    assert_eq!((found.name, found.has_policy, found.timeout), (None, false, None));
    assert_eq!(compact(&found.policy), "namespaced-resources\ncluster-scoped-resources\ncrds\n");
    assert_eq!((found.manifests[0].policy, found.manifests[0].line), (ManifestPolicy::Manage, 5));
}

#[test]
fn a_deploy_item_without_time_limit() {
    let found = document(&DEPLOY_ITEM.replace("15m", "none")).unwrap().unwrap();
    assert_eq!(found.timeout, Some(ItemTimeout::Unlimited));
}

#[test]
fn rank_rules_in_a_configuration() {
    check(
        r"
apiVersion: helm.deployer.landscaper.gardener.cloud/v1alpha1
kind: ProviderConfiguration
helmDeployment: false
deletionOrderRules:
- deletionRank: 1
  types: [{group: '', version: v1, kind: cm}]
",
        r#"
        "rank 1: cm" {v1 cm}
        "rank 100: namespaced-resources" namespaced-resources
        "rank 200: cluster-scoped-resources" cluster-scoped-resources
        "rank 300: crds" crds"#,
    );
}

#[test]
fn fields_without_effect_are_named() {
    check_warnings(
        r"
apiVersion: landscaper.gardener.cloud/v1alpha1
kind: DeployItem
metadata: {name: my-nginx}
spec:
  type: landscaper.gardener.cloud/helm
  target: {name: my-cluster, namespace: default}
  config:
    apiVersion: helm.deployer.landscaper.gardener.cloud/v1alpha1
    kind: ProviderConfiguration
    chart: {ref: example.org/charts/nginx:v1}
    name: test
    namespace: default
    createNamespace: true
    exportsFromManifests: []
    deletionGroups: []
",
        r#"
        p:7:11: spec.target: warning: target has no effect in this version
        p:9:5: spec.config: warning: the policy holds only where the chart is templated, not installed by helm (set helmDeployment: false)
        p:11:12: spec.config.chart: warning: chart has no effect in this version
        p:12:11: spec.config.name: warning: name has no effect in this version
        p:13:16: spec.config.namespace: warning: namespace has no effect in this version
        p:14:22: spec.config.createNamespace: warning: createNamespace has no effect in this version
        p:15:27: spec.config.exportsFromManifests: warning: exportsFromManifests has no effect in this version"#,
    );
    check_warnings(
        r"
apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2
kind: ProviderConfiguration
updateStrategy: patch
readinessChecks: {disableDefault: true}
exports: {}
continuousReconcile: {every: 1h}
manifests:
- policy: fallback
  manifest: {apiVersion: v1, kind: Secret, metadata: {name: s}}
  annotateBeforeDelete: {annotations: {a: b}}
- policy: immutable
  manifest: {apiVersion: v1, kind: Secret, metadata: {name: t}}
",
        r#"
        p:4:17: updateStrategy: warning: updateStrategy has no effect in this version
        p:5:18: readinessChecks: warning: readinessChecks has no effect in this version
        p:6:10: exports: warning: exports has no effect in this version
        p:7:22: continuousReconcile: warning: continuousReconcile has no effect in this version
        p:9:11: manifests[0].policy: warning: this policy has no effect in this version: the object is managed
        p:11:25: manifests[0].annotateBeforeDelete: warning: annotateBeforeDelete has no effect in this version
        p:12:11: manifests[1].policy: warning: this policy has no effect in this version: the object is managed"#,
    );
}

#[test]
fn other_kinds_are_not_ours() {
    for yaml in [
        "apiVersion: v1\nkind: ConfigMap",
        "apiVersion: example.org/v1\nkind: ProviderConfiguration",
        "apiVersion: example.org/v1\nkind: DeployItem",
        "deletionGroups: []",
        "kind: [DeployItem]",
        "text",
    ] {
        assert!(document(yaml).is_none(), "{yaml}");
    }
}

#[test]
fn mistakes_in_a_deploy_item() {
    check(
        r"
apiVersion: landscaper.gardener.cloud/v1alpha2
kind: DeployItem
metadata: {}
spec:
  type: landscaper.gardener.cloud/helm
  timeout: soon
  colour: green
  config:
    apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2
    kind: ProviderConfiguration
    chart: {}
    deletionGroup: []
    manifests:
    - policy: manag
      manifest: {apiVersion: v1, kind: Secret}
    - {}
    - manifest: text
    - text
    deletionGroups:
    - predefinedResourceGroup: {type: crd}
",
        r#"
        p:2:13: apiVersion: unknown value "landscaper.gardener.cloud/v1alpha2"; did you mean "landscaper.gardener.cloud/v1alpha1"? (possible values: landscaper.gardener.cloud/v1alpha1)
        p:4:11: metadata: missing field "name"
        p:6:9: spec.type: the type is not that of the configuration (config.apiVersion belongs to type landscaper.gardener.cloud/kubernetes-manifest)
        p:7:12: spec.timeout: expected a duration such as 90s, 5m or 1h30m, found "soon"
        p:8:3: spec: unknown field "colour" (known fields: type, timeout, config, target, context, updateOnChangeOnly, onDelete)
        p:12:5: spec.config: field "chart" is not possible here (only the helm deployer has it)
        p:13:5: spec.config: unknown field "deletionGroup"; did you mean "deletionGroups"?
        p:15:15: spec.config.manifests[0].policy: unknown value "manag"; did you mean "manage"? (possible values: manage, fallback, ignore, keep, immutable)
        p:17:7: spec.config.manifests[1]: missing field "manifest"
        p:18:17: spec.config.manifests[2].manifest: expected a mapping, found a string
        p:19:7: spec.config.manifests[3]: expected a mapping, found a string
        p:21:39: spec.config.deletionGroups[0].predefinedResourceGroup.type: unknown value "crd"; did you mean "crds"? (possible values: namespaced-resources, cluster-scoped-resources, crds, empty)"#,
    );
    check(
        "apiVersion: landscaper.gardener.cloud/v1alpha1\nkind: DeployItem\nspec: {type: landscaper.gardener.cloud/container}",
        r#"
        p:1:1: missing field "metadata"
        p:3:7: spec: missing field "config"
        p:3:14: spec.type: unknown value "landscaper.gardener.cloud/container" (possible values: landscaper.gardener.cloud/kubernetes-manifest, landscaper.gardener.cloud/helm)"#,
    );
}

#[test]
fn mistakes_in_a_configuration() {
    check(
        "apiVersion: container.deployer.landscaper.gardener.cloud/v1alpha1\nkind: ProviderConfiguration\nchart: {}\nmanifests: []",
        r#"
        p:1:13: apiVersion: unknown value "container.deployer.landscaper.gardener.cloud/v1alpha1" (possible values: manifest.deployer.landscaper.gardener.cloud/v1alpha1, manifest.deployer.landscaper.gardener.cloud/v1alpha2, helm.deployer.landscaper.gardener.cloud/v1alpha1)"#,
    );
    check(
        "kind: ProviderConfiguration\nvalues: {}",
        r#"
        p:1:1: missing field "apiVersion""#,
    );
    check(
        "deployItems: [{}, {}]",
        r#"
        p:1:14: deployItems: expected one item, found 2"#,
    );
    check(
        "deployItems: [{type: landscaper.gardener.cloud/helm, deletionGroups: []}]\ndeletionGroups: []",
        r#"
        p:1:15: deployItems[0]: missing field "config"
        p:1:54: deployItems[0]: field "deletionGroups" is not possible here (write it in config)
        p:2:1: field "deletionGroups" is not possible here (write it in the config of the one deployItem)"#,
    );
}

#[test]
fn a_policy_file_is_one_mapping_that_says_something() {
    check(
        "",
        r#"
        p:1:1: the policy file is empty (it holds one of deletionGroups, deletionGroupsDuringUpdate, deletionOrderRules, deploymentGroups)"#,
    );
    check(
        "{}",
        r#"
        p:1:1: no policy in this document (it holds one of deletionGroups, deletionGroupsDuringUpdate, deletionOrderRules, deploymentGroups)"#,
    );
    check(
        "- a",
        r#"
        p:1:1: expected a mapping, found a list"#,
    );
    check(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}",
        r#"
        p:1:1: field "apiVersion" is not possible here (a policy file begins with its groups)
        p:2:1: field "kind" is not possible here (a policy file begins with its groups)
        p:3:1: field "metadata" is not possible here (a policy file begins with its groups)"#,
    );
    check(
        "deletionGroups: []\n---\ndeletionGroups: []",
        r#"
        p:3:1: a policy file holds one document, found 2"#,
    );
    check(
        "deletionGroups: [",
        r#"
        p:1:17: not valid YAML: unclosed bracket '['"#,
    );
}

#[test]
fn validate_reads_what_concerns_it_and_skips_other_manifests() {
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nunknown: true\n";
    check_validate(other, "");
    check_validate("", "");
    assert!(validate(&format!("a: {}", "[".repeat(100_000)), &file()).iter().any(|found| found.is_error()));
    check_validate(
        "resources: [a.yaml]",
        "p:1:1: warning: neither a policy nor a manifest, so not checked (a policy begins with one of deletionGroups, deletionGroupsDuringUpdate, deletionOrderRules, deploymentGroups)",
    );
    check_validate(&format!("{other}---{DEPLOY_ITEM}---\ndeletionGroups: []\n"), "");
    check_validate(
        &format!(
            "{other}---\ndeletionGroups: [{{}}]\n---\nkind: ProviderConfiguration\n---\njust text\n---\ndeletionGroop: []\n"
        ),
        r#"
        p:6:18: deletionGroups[0]: a group needs exactly one of predefinedResourceGroup or customResourceGroup
        p:8:1: missing field "apiVersion"
        p:10:1: warning: neither a policy nor a manifest, so not checked (a policy begins with one of deletionGroups, deletionGroupsDuringUpdate, deletionOrderRules, deploymentGroups)
        p:12:1: unknown field "deletionGroop"; did you mean "deletionGroups"?"#,
    );
    check_validate(
        "a: [",
        r#"
        p:1:4: not valid YAML: unclosed bracket '['"#,
    );
}

/// Real DeployItems, where the folder with the fixtures is at hand.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test says so")]
fn the_fixtures_are_valid() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures");
    let root = std::env::var_os("BILLHOOK_FIXTURES").unwrap_or_else(|| beside.into());
    let folder = std::path::Path::new(&root).join("landscaper");
    for name in ["20-DeployItem-Helm-nginx.yaml", "40-DeployItem-Manifest-secret.yaml", "20-Example-Context.yaml"] {
        match std::fs::read_to_string(folder.join(name)) {
            Ok(text) => {
                let errors: Vec<_> = validate(&text, &file()).into_iter().filter(|d| d.is_error()).collect();
                assert!(errors.is_empty(), "{name}: {errors:?}");
            }
            Err(error) => eprintln!("skipped {name}: {error}"),
        }
    }
}
