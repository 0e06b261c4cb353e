//! Tests of `deletionOrderRules`: every example of the proposal, every rule, every mistake.

use super::check::check;

const DEFAULT: &str = r#"
"rank 100: namespaced-resources" namespaced-resources
"rank 200: cluster-scoped-resources" cluster-scoped-resources
"rank 300: crds" crds"#;

#[test]
fn document_default_rules_are_added() {
    check("deletionOrderRules: []", DEFAULT);
    check("deletionOrderRules: [{deletionRank: 100}, {deletionRank: 200}, {deletionRank: 300}]", DEFAULT);
    check("deletionOrderRules: [{deletionRank: 300}, {deletionRank: 100}]", DEFAULT);
}

#[test]
fn document_a_rule_with_types() {
    check(
        r"
deletionOrderRules:
  - deletionRank: 7
    types:
      - group: apps
        version: v1
        kind: deployments
",
        &format!("\"rank 7: deployments.apps\" {{apps/v1 deployments}}{DEFAULT}"),
    );
}

#[test]
fn document_a_rule_that_selects_all() {
    check(
        r"
deletionOrderRules:
  - deletionRank: -5
    types:
      - group: example.org
        version: v1
        kind: widget
        selector: # optional
          all: true
",
        &format!("\"rank -5: all widget.example.org\" {{example.org/v1 widget all}}{DEFAULT}"),
    );
}

#[test]
fn document_forced_types() {
    check(
        r"
deletionOrderRules:
  - deletionRank: 7
    types:
      - group: example.org
        version: v1
        kind: widget
    forceDelete: # optional
      enabled: true
",
        &format!("\"rank 7: widget.example.org\" {{example.org/v1 widget}} force(0s ){DEFAULT}"),
    );
}

#[test]
fn document_a_forced_default_rank() {
    check(
        r"
deletionOrderRules:
  - deletionRank: 100
    forceDelete: # optional
      enabled: true
",
        r#"
        "rank 100: namespaced-resources" namespaced-resources force(0s )
        "rank 200: cluster-scoped-resources" cluster-scoped-resources
        "rank 300: crds" crds"#,
    );
}

#[test]
fn document_the_eight_rules() {
    check(
        r#"
deletionOrderRules:

    - deletionRank: 50
      types:
      - group: ""
        version: v1
        kind: configmap
        selector:
          all: true

    - deletionRank: 51
      types:
      - group: ""
        version: v1
        kind: secret
      forceDelete:
        enabled: true

    - deletionRank: 52
      types:
      - group: g1
        version: v1
        kind: k1
        selector:
          all: true

    - deletionRank: 53
      types:
      - group: g2
        version: v2
        kind: k3

    - deletionRank: 150 # rank higher than the namespaced objects
      types:
      - group:
        version: v1
        kind: namespace
"#,
        r#"
        "rank 50: all configmap" {v1 configmap all}
        "rank 51: secret" {v1 secret} force(0s )
        "rank 52: all k1.g1" {g1/v1 k1 all}
        "rank 53: k3.g2" {g2/v2 k3}
        "rank 100: namespaced-resources" namespaced-resources without {v1 namespace}
        "rank 150: namespace" {v1 namespace}
        "rank 200: cluster-scoped-resources" cluster-scoped-resources
        "rank 300: crds" crds"#,
    );
}

#[test]
fn types_of_a_late_rule_are_excluded_from_their_default_rank() {
    check(
        r"
deletionOrderRules:
  - deletionRank: 400
    types: [{group: '', version: v1, kind: secret, names: [last], selector: {all: true}}]
  - deletionRank: 250
    types: [{group: '', version: v1, kind: namespace}, {group: '', version: v1, kind: cm}]
  - deletionRank: 10
    types: [{group: '', version: v1, kind: pod}]
    excludedResources: [{apiVersion: v1, kind: pod, names: [kept]}]
  - deletionRank: 100
    excludedResources: [{apiVersion: v1, kind: pvc}]
    timeout: 1m
",
        r#"
        "rank 10: pod" {v1 pod} without {v1 pod names=kept}
        "rank 100: namespaced-resources" namespaced-resources without {v1 namespace; v1 cm; v1 secret names=last; v1 pvc} timeout=1m
        "rank 200: cluster-scoped-resources" cluster-scoped-resources without {v1 namespace; v1 cm; v1 secret names=last}
        "rank 250: namespace, cm" {v1 namespace; v1 cm}
        "rank 300: crds" crds without {v1 secret names=last}
        "rank 400: all secret" {v1 secret names=last all}"#,
    );
}

#[test]
fn an_update_has_its_own_groups() {
    check(
        r"
deletionOrderRules:
  - deletionRank: 100
    forceDelete: true
deletionGroupsDuringUpdate:
  - predefinedResourceGroup: crds
",
        r#"
        "rank 100: namespaced-resources" namespaced-resources force(0s )
        "rank 200: cluster-scoped-resources" cluster-scoped-resources
        "rank 300: crds" crds
        update:
        crds"#,
    );
}

#[test]
fn mistakes() {
    check(
        r"
deletionGroups: []
deletionOrderRules:
  - deletionRank: 50
    types: [{group: '', version: v1, kind: cm}]
  - deletionRank: 50
    types: [{group: '', version: v1, kind: secret}]
  - deletionRank: 51
  - deletionRank: 200
    types: [{group: '', version: v1, kind: ns}]
  - deletionRank: first
    types: [{group: '', version: v1, kind: ns}]
  - deletionRank: 1.5
    types: [{group: '', version: v1, kind: ns}]
  - types: [{group: '', version: v1, kind: ns}]
  - rank: 5
  - deletionRank: 150
    types: [{group: '', version: v1, kind: ns}]
    excludedResources: [{apiVersion: v1, kind: ns, names: [a]}]
    force-delete: {enabled: true}
    targetName: other
    deleteAllResources: true
  - deletionRank: 60
    resources: [{apiVersion: v1, kind: ns}]
  - deletionRank: 61
    types: []
  - 62
",
        r#"
        p:4:3: deletionOrderRules: deletionGroups is also set (use only one of the two)
        p:6:19: deletionOrderRules[1].deletionRank: rank 50 is already used by deletionOrderRules[0] (give each rule its own rank)
        p:8:5: deletionOrderRules[2]: missing field "types" (only rules for the default ranks 100, 200 and 300 have no types)
        p:10:12: deletionOrderRules[3].types: types are not allowed at rank 200, the default rank of cluster-scoped objects (choose another rank for these types)
        p:11:19: deletionOrderRules[4].deletionRank: expected a whole number, found a string
        p:13:19: deletionOrderRules[5].deletionRank: expected a whole number, found a number
        p:15:5: deletionOrderRules[6]: missing field "deletionRank"
        p:16:5: deletionOrderRules[7]: missing field "deletionRank"
        p:16:5: deletionOrderRules[7]: unknown field "rank" (known fields: deletionRank, types, forceDelete, forceAfter, finalizers, gracePeriodSeconds, propagationPolicy, timeout, excludedResources)
        p:19:24: deletionOrderRules[8].excludedResources: excludedResources is not allowed in a rule with types and a rank above 100 (narrow types with names, namespaces or labelSelector instead)
        p:20:5: deletionOrderRules[8]: unknown field "force-delete"; did you mean "forceDelete"?
        p:21:5: deletionOrderRules[8]: field "targetName" is not allowed here (only a customResourceGroup of deletionGroups supports it)
        p:22:5: deletionOrderRules[8]: field "deleteAllResources" is not allowed here (set selector: {all: true} in the entries of types)
        p:23:5: deletionOrderRules[9]: missing field "types" (only rules for the default ranks 100, 200 and 300 have no types)
        p:24:5: deletionOrderRules[9]: field "resources" is not allowed here (use types)
        p:26:12: deletionOrderRules[10].types: the list is empty (list at least one kind of object)
        p:27:5: deletionOrderRules[11]: expected a mapping, found a number"#,
    );
}

#[test]
fn rules_must_be_a_list() {
    check("deletionOrderRules: {deletionRank: 5}", "p:1:21: deletionOrderRules: expected a list, found a mapping");
}
