//! Tests of the proposal's syntax: every example of the proposal, every rule, every mistake.

use super::check::check;

const DEFAULT: &str = "namespaced-resources\ncluster-scoped-resources\ncrds";

#[test]
fn document_default_behaviour() {
    check(
        r"
deployItems:
  - name: my-deploy-item
    type: landscaper.gardener.cloud/helm
    config:
      apiVersion: helm.deployer.landscaper.gardener.cloud/v1alpha1
      kind: ProviderConfiguration
      deletionGroups:
        - predefinedResourceGroup: namespaced-resources
        - predefinedResourceGroup: cluster-scoped-resources     # does not include the crds
        - predefinedResourceGroup: crds
",
        DEFAULT,
    );
}

#[test]
fn document_skip_crds() {
    check(
        r"
deletionGroups:
  - predefinedResourceGroup: namespaced-resources
  - predefinedResourceGroup: cluster-scoped-resources
",
        "namespaced-resources\ncluster-scoped-resources",
    );
}

#[test]
fn document_force_delete() {
    check(
        r"
deletionGroups:
  - predefinedResourceGroup: namespaced-resources
    force-delete:
      enabled: true
  - predefinedResourceGroup: cluster-scoped-resources
    force-delete:
      enabled: true
  - predefinedResourceGroup: crds
",
        "namespaced-resources force(0s )\ncluster-scoped-resources force(0s )\ncrds",
    );
}

#[test]
fn document_certain_resources_first() {
    check(
        r#"
deletionGroups:
  - resources:
      - group:   ""
        version: "v1"
        kind:    "configmaps"
      - group:   ""
        version: "v1"
        kind:    "secrets"
  - predefinedResourceGroup: namespaced-resources
  - predefinedResourceGroup: cluster-scoped-resources
  - predefinedResourceGroup: crds
"#,
        &format!("\"configmaps, secrets\" {{v1 configmaps; v1 secrets}}\n{DEFAULT}"),
    );
}

#[test]
fn document_resources_outside_the_chart() {
    check(
        r#"
deletionGroups:
  - resources:
      - group:   "my.group"
        version: "v1"
        kind:    "mycustomresources"
        selector:
          all: true
  - predefinedResourceGroup: namespaced-resources
  - predefinedResourceGroup: cluster-scoped-resources
  - predefinedResourceGroup: crds
"#,
        &format!("\"all mycustomresources.my.group\" {{my.group/v1 mycustomresources all}}\n{DEFAULT}"),
    );
}

#[test]
fn document_general_structure() {
    check(
        r#"
deletionGroups:
  - resources:
      - group:   apps
        version: v1
        kind:    deployments
        selector:
          all: true
      - group:   apps
        version: v1
        kind:    statefulsets
        selector:
          all: false
    force-delete:
      enabled: true
  - predefinedResourceGroup: crds
    force-delete:
      enabled: false
"#,
        r#"
        "all deployments.apps, statefulsets.apps" {apps/v1 deployments all; apps/v1 statefulsets} force(0s )
        crds"#,
    );
}

#[test]
fn additional_settings_are_at_the_level_of_the_group() {
    check(
        r"
deletionGroups:
  - predefinedResourceGroup: namespaced-resources
    forceDelete: true
    forceAfter: 1h
    finalizers: [a]
    propagationPolicy: Background
    timeout: 1h
    excludedResources:
      - {apiVersion: v1, kind: cm}
      - {group: '', version: v1, kind: secret, names: [kept]}
  - resources:
      - {group: null, version: v1, kind: cm, names: [a], namespaces: [b], labelSelector: {matchLabels: {c: d}}}
    force-delete: true
",
        r#"
        namespaced-resources without {v1 cm; v1 secret names=kept} force(1h a) Background timeout=1h
        "cm" {v1 cm names=a namespaces=b labels=c=d} force(0s )"#,
    );
}

#[test]
fn both_syntaxes_in_one_list() {
    check(
        r"
deletionGroups:
  - predefinedResourceGroup: namespaced-resources
  - predefinedResourceGroup: {type: cluster-scoped-resources}
  - resources: [{group: '', version: v1, kind: cm}]
  - customResourceGroup: {resources: [{apiVersion: v1, kind: cm}]}
",
        r#"
        namespaced-resources
        cluster-scoped-resources
        "cm" {v1 cm}
        "cm" {v1 cm}"#,
    );
}

#[test]
fn mistakes() {
    check(
        r"
deletionGroups:
  - predefinedResourceGroup: crd
  - predefinedResourceGroup: crds
    resources: [{group: '', version: v1, kind: cm}]
  - resources:
      - {version: v1, kind: cm}
      - {group: apps/v1, version: v1, kind: cm}
      - {group: apps, version: apps/v1, kind: cm}
      - {apiVersion: apps/v1, kind: cm}
      - {group: '', version: v1, kind: cm, selector: {}}
      - {group: '', version: v1, kind: cm, selector: {all: 1, some: true}}
      - {group: '', kind: cm}
    deleteAllResources: true
    targetName: other
    force-delete: {enabled: true}
    forceDelete: true
    colour: green
  - predefinedResourceGroup: crds
    force-delete: {enable: true}
  - predefinedResourceGroup: crds
    forceAfter: 5m
    excludedResources: [{group: '', version: v1, kind: cm, selector: {all: true}}]
  - forceDeleted: true
",
        r#"
        p:3:30: deletionGroups[0].predefinedResourceGroup: unknown value "crd"; did you mean "crds"? (possible values: namespaced-resources, cluster-scoped-resources, crds, empty)
        p:4:5: deletionGroups[1]: predefinedResourceGroup and resources in one group (split it into two groups: a group has exactly one of predefinedResourceGroup, customResourceGroup or resources)
        p:7:9: deletionGroups[2].resources[0]: missing field "group" (use group: "" for the core group)
        p:8:17: deletionGroups[2].resources[1].group: "apps/v1" is not a group (move the part after the slash to version)
        p:9:32: deletionGroups[2].resources[2].version: "apps/v1" is not a version (move the part before the slash to group)
        p:10:10: deletionGroups[2].resources[3]: field "apiVersion" is not allowed here (split it into group and version)
        p:11:54: deletionGroups[2].resources[4].selector: missing field "all"
        p:12:60: deletionGroups[2].resources[5].selector.all: expected true or false, found a number
        p:12:63: deletionGroups[2].resources[5].selector: unknown field "some" (known fields: all)
        p:13:9: deletionGroups[2].resources[6]: missing field "version"
        p:14:5: deletionGroups[2]: field "deleteAllResources" is not allowed here (set selector: {all: true} in the entries of resources)
        p:15:5: deletionGroups[2]: field "targetName" is not allowed here (only a customResourceGroup supports it)
        p:16:19: deletionGroups[2].force-delete: forceDelete is also set (use only one of the two)
        p:18:5: deletionGroups[2]: unknown field "colour" (known fields: predefinedResourceGroup, customResourceGroup, resources, forceDelete, force-delete, forceAfter, finalizers, gracePeriodSeconds, propagationPolicy, timeout, excludedResources)
        p:20:20: deletionGroups[3].force-delete: unknown field "enable"; did you mean "enabled"?
        p:22:17: deletionGroups[4].forceAfter: forceAfter requires forceDelete (set forceDelete: true)
        p:23:60: deletionGroups[4].excludedResources[0]: field "selector" is not allowed here (narrow the exclusion with names, namespaces or labelSelector)
        p:24:5: deletionGroups[5]: unknown field "forceDeleted"; did you mean "forceDelete"?"#,
    );
}
