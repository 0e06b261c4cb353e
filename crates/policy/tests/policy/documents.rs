//! Tests of ProviderConfigurations, DeployItems, policy files, and of `validate` on arbitrary files.

use billhook_objects::yaml::parse_nodes;
use billhook_policy::{
    Diagnostics, GoDuration, ItemTimeout, ManifestEntry, ManifestPolicy, PolicyDocument, Provider, UpdateStrategy,
    controller_only, parse_document, parse_timeout, validate,
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
    let configuration = &found.configuration;
    assert_eq!((configuration.provider, configuration.has_policy), (Provider::Manifest, true));
    assert_eq!((found.name.as_deref(), found.namespace.as_deref()), (Some("my-secret"), Some("tenant")));
    assert_eq!(found.timeout, Some(ItemTimeout::After(GoDuration(std::time::Duration::from_secs(900)))));
    assert_eq!(compact(&configuration.policy), "crds\n");
    assert_eq!(configuration.policy.deletion[0].path, "spec.config.deletionGroups[0]");
    assert!(found.warnings.is_empty(), "{}", found.warnings);
    let entry = |m: &ManifestEntry| (m.policy, m.line, m.manifest["kind"].as_str().map(str::to_owned));
    let entries: Vec<_> = configuration.manifests.iter().map(entry).collect();
    assert_eq!(
        entries,
        [
            (ManifestPolicy::Manage, 16, Some("Namespace".to_owned())),
            (ManifestPolicy::Keep, 19, Some("Secret".to_owned())),
            (ManifestPolicy::Ignore, 21, Some("Secret".to_owned())),
            (ManifestPolicy::Manage, 23, Some("Secret".to_owned())),
        ]
    );
    check(DEPLOY_ITEM, "crds");
}

#[test]
fn a_bare_configuration_in_v1alpha1() {
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
    let configuration = found.configuration;
    assert_eq!((found.name, configuration.has_policy, found.timeout), (None, false, None));
    assert_eq!((configuration.version.as_str(), configuration.update_strategy), ("v1alpha1", UpdateStrategy::Update));
    assert_eq!(compact(&configuration.policy), "namespaced-resources\ncluster-scoped-resources\ncrds\n");
    let entry = &configuration.manifests[0];
    assert_eq!(
        (entry.policy, entry.line, &entry.manifest["metadata"]["name"]),
        (ManifestPolicy::Manage, 5, &"a".into())
    );
}

#[test]
fn a_deploy_item_without_a_time_limit() {
    let found = document(&DEPLOY_ITEM.replace("15m", "none")).unwrap().unwrap();
    assert_eq!(found.timeout, Some(ItemTimeout::Unlimited));
}

#[test]
fn the_time_limit_of_a_deploy_item() {
    let minutes = |minutes: u64| ItemTimeout::After(GoDuration(std::time::Duration::from_secs(minutes * 60)));
    for (text, expected) in
        [("15m", minutes(15)), ("none", ItemTimeout::Unlimited), ("0s", ItemTimeout::Unlimited), ("1h", minutes(60))]
    {
        assert_eq!(parse_timeout(text), Ok(expected));
    }
    let error = parse_timeout("soon").unwrap_err().to_string();
    assert_eq!(error, "expected a duration such as 90s, 5m or 1h30m, found \"soon\"");
}

#[test]
fn rank_rules_in_a_configuration() {
    check(
        r"
apiVersion: helm.deployer.landscaper.gardener.cloud/v1alpha1
kind: ProviderConfiguration
helmDeployment: false
chart: {ref: example.org/charts/nginx:v1}
name: test
namespace: default
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
fn a_policy_without_effect_under_helm_is_warned_of() {
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
    kubeconfig: abc
    chart: {ref: example.org/charts/nginx:v1}
    name: test
    namespace: default
    deletionGroups: []
",
        r#"
        p:9:5: spec.config: warning: the policy has no effect while helm installs the chart (set helmDeployment: false)
        p:11:17: spec.config.kubeconfig: warning: kubeconfig has no effect (the Target determines the cluster)"#,
    );
}

#[test]
fn fields_that_only_the_controller_uses_are_warned_of() {
    let yaml = r"
apiVersion: landscaper.gardener.cloud/v1alpha1
kind: DeployItem
metadata: {name: i}
spec:
  type: landscaper.gardener.cloud/kubernetes-manifest
  target: {name: my-cluster, namespace: default}
  onDelete: {}
  config:
    apiVersion: manifest.deployer.landscaper.gardener.cloud/v1alpha2
    kind: ProviderConfiguration
    updateStrategy: patch
    readinessChecks: {disableDefault: true}
    exports: {}
    continuousReconcile: {every: 1h}
    manifests:
    - policy: fallback
      manifest: {apiVersion: v1, kind: Secret, metadata: {name: s}}
      annotateBeforeDelete: {a: b}
      patchAfterDeployment: {}
    - {apiVersion: example.org/v1, kind: Own, metadata: {name: t}, annotateBeforeDelete: {}}
";
    let node = &parse_nodes(yaml).unwrap()[0];
    assert!(parse_document(node, &file()).unwrap().unwrap().warnings.is_empty());
    let expected = [
        "p:7:11: spec.target: warning: target",
        "p:8:13: spec.onDelete: warning: onDelete",
        "p:12:21: spec.config.updateStrategy: warning: updateStrategy",
        "p:13:22: spec.config.readinessChecks: warning: readinessChecks",
        "p:14:14: spec.config.exports: warning: exports",
        "p:15:26: spec.config.continuousReconcile: warning: continuousReconcile",
    ]
    .map(|start| format!("{start} has no effect on the command line (only the controller uses it)"));
    assert_lines(&controller_only(node, &file()).to_string(), &expected.join("\n"), yaml);
}

#[test]
fn documents_of_other_kinds_are_not_read() {
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
        p:6:9: spec.type: the type does not match the configuration (config.apiVersion belongs to type landscaper.gardener.cloud/kubernetes-manifest)
        p:7:12: spec.timeout: expected a duration such as 90s, 5m or 1h30m, found "soon"
        p:8:3: spec: unknown field "colour" (known fields: type, timeout, config, target, context, updateOnChangeOnly, onDelete)
        p:12:5: spec.config: field "chart" is not allowed here (only the helm deployer supports it)
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
        p:1:54: deployItems[0]: field "deletionGroups" is not allowed here (move it into config)
        p:2:1: field "deletionGroups" is not allowed here (move it into the config of the deployItem)"#,
    );
}

#[test]
fn a_policy_file_is_one_mapping_that_is_not_empty() {
    check(
        "",
        r#"
        p:1:1: the policy file is empty (it must contain at least one of deletionGroups, deletionGroupsDuringUpdate, deletionOrderRules, deploymentGroups)"#,
    );
    check(
        "{}",
        r#"
        p:1:1: no policy in this document (it must contain at least one of deletionGroups, deletionGroupsDuringUpdate, deletionOrderRules, deploymentGroups)"#,
    );
    check(
        "- a",
        r#"
        p:1:1: expected a mapping, found a list"#,
    );
    check(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}",
        r#"
        p:1:1: field "apiVersion" is not allowed here (a policy file has the policy fields at its top level)
        p:2:1: field "kind" is not allowed here (a policy file has the policy fields at its top level)
        p:3:1: field "metadata" is not allowed here (a policy file has the policy fields at its top level)"#,
    );
    check(
        "deletionGroups: []\n---\ndeletionGroups: []",
        r#"
        p:3:1: expected one document in a policy file, found 2"#,
    );
    check(
        "deletionGroups: [",
        r#"
        p:1:17: not valid YAML: unclosed bracket '['"#,
    );
}

#[test]
fn validate_checks_policies_and_skips_other_manifests() {
    let other = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nunknown: true\n";
    check_validate(other, "");
    check_validate("", "");
    assert!(validate(&format!("a: {}", "[".repeat(100_000)), &file()).iter().any(|found| found.is_error()));
    check_validate(
        "resources: [a.yaml]",
        "p:1:1: warning: not checked: neither a policy nor a manifest (a policy has at least one of deletionGroups, deletionGroupsDuringUpdate, deletionOrderRules, deploymentGroups)",
    );
    check_validate(&format!("{other}---{DEPLOY_ITEM}---\ndeletionGroups: []\n"), "");
    check_validate(
        &format!(
            "{other}---\ndeletionGroups: [{{}}]\n---\nkind: ProviderConfiguration\n---\njust text\n---\ndeletionGroop: []\n"
        ),
        r#"
        p:6:18: deletionGroups[0]: a group needs exactly one of predefinedResourceGroup or customResourceGroup
        p:8:1: missing field "apiVersion"
        p:10:1: warning: not checked: neither a policy nor a manifest (a policy has at least one of deletionGroups, deletionGroupsDuringUpdate, deletionOrderRules, deploymentGroups)
        p:12:1: unknown field "deletionGroop"; did you mean "deletionGroups"?"#,
    );
    check_validate(
        "a: [",
        r#"
        p:1:4: not valid YAML: unclosed bracket '['"#,
    );
}

/// Checks real DeployItems of the fixtures.
#[test]
#[expect(clippy::print_stderr, reason = "a test prints what it skips")]
fn the_fixtures_are_valid() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/fixtures");
    let root = std::env::var_os("BILLHOOK_FIXTURES").unwrap_or_else(|| beside.into());
    let folder = std::path::Path::new(&root).join("landscaper");
    if !folder.exists() {
        let folder = folder.display();
        return eprintln!(
            "skipped landscaper: {folder} does not exist; set BILLHOOK_FIXTURES to the folder of the fixtures"
        );
    }
    for name in ["20-DeployItem-Helm-nginx.yaml", "40-DeployItem-Manifest-secret.yaml", "20-Example-Context.yaml"] {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        let errors: Vec<_> = validate(&text, &file()).into_iter().filter(|found| found.is_error()).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
    }
}
