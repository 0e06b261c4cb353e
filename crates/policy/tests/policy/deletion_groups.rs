//! Tests of `deletionGroups` in the released syntax: every example of the Landscaper documents, every rule, every mistake.

use super::check::{check, check_warnings};

const DEFAULT: &str = "namespaced-resources\ncluster-scoped-resources\ncrds";

#[test]
fn document_nothing_specified_is_the_default() {
    check("deletionGroups: []", DEFAULT);
    check("deletionGroups:\n", DEFAULT);
    check("deletionGroupsDuringUpdate: []", DEFAULT);
}

#[test]
fn document_default_behaviour_in_a_deploy_item() {
    check(
        r"
deployItems:
  - name: my-deploy-item
    type: landscaper.gardener.cloud/helm
    config:
      apiVersion: helm.deployer.landscaper.gardener.cloud/v1alpha1
      kind: ProviderConfiguration
      deletionGroups:
        - predefinedResourceGroup:
            type: namespaced-resources
        - predefinedResourceGroup:
            type: cluster-scoped-resources # does not include the crds
        - predefinedResourceGroup:
            type: crds
",
        DEFAULT,
    );
}

#[test]
fn document_skip_crds() {
    check(
        r"
deletionGroups:
  - predefinedResourceGroup:
      type: namespaced-resources
  - predefinedResourceGroup:
      type: cluster-scoped-resources
",
        "namespaced-resources\ncluster-scoped-resources",
    );
}

#[test]
fn document_empty_group() {
    check(
        r"
deletionGroups:
  - predefinedResourceGroup:
      type: empty
",
        "empty",
    );
}

#[test]
fn document_names_and_namespaces() {
    check(
        r"
deletionGroups:
  - customResourceGroup:
      resources:
        - apiVersion: v1
          kind: ConfigMap
          names:
            - name1
            - name2
          namespaces:
            - namespace1
            - namespace2
        - apiVersion: apps/v1
          kind: Deployment
",
        r#""ConfigMap, Deployment.apps" {v1 ConfigMap names=name1,name2 namespaces=namespace1,namespace2; apps/v1 Deployment}"#,
    );
}

#[test]
fn document_config_maps_and_secrets_first() {
    check(
        r#"
deletionGroups:
  - customResourceGroup:
      resources:
        - apiVersion: "v1"
          kind: "configmaps"
        - apiVersion: "v1"
          kind: "secrets"
  - predefinedResourceGroup:
      type: namespaced-resources
  - customResourceGroup:
      resources:
        - apiVersion: "v1"
          kind: "namespaces"
  - predefinedResourceGroup:
      type: cluster-scoped-resources
  - predefinedResourceGroup:
      type: crds
"#,
        r#"
        "configmaps, secrets" {v1 configmaps; v1 secrets}
        namespaced-resources
        "namespaces" {v1 namespaces}
        cluster-scoped-resources
        crds"#,
    );
}

#[test]
fn document_custom_resources_first() {
    check(
        r"
deletionGroups:
  - customResourceGroup:
      resources:
        - apiVersion: example.org/v1beta1
          kind: Widget
  - predefinedResourceGroup:
      type: namespaced-resources
  - predefinedResourceGroup:
      type: cluster-scoped-resources
  - predefinedResourceGroup:
      type: crds
",
        &format!("\"Widget.example.org\" {{example.org/v1beta1 Widget}}\n{DEFAULT}"),
    );
}

#[test]
fn document_force_delete() {
    check(
        r"
deletionGroups:
  - customResourceGroup:
      resources:
        - apiVersion: v1
          kind: configmaps
      forceDelete: true
  - predefinedResourceGroup:
      type: namespaced-resources
  - predefinedResourceGroup:
      type: cluster-scoped-resources
      forceDelete: true
  - predefinedResourceGroup:
      type: crds
",
        r#"
        "configmaps" {v1 configmaps} force(0s )
        namespaced-resources
        cluster-scoped-resources force(0s )
        crds"#,
    );
}

#[test]
fn document_delete_all_resources() {
    check(
        r"
deletionGroups:
  - customResourceGroup:
      resources:
        - apiVersion: v1
          kind: mycustomresource
      deleteAllResources: true
  - predefinedResourceGroup:
      type: namespaced-resources
  - predefinedResourceGroup:
      type: cluster-scoped-resources
  - predefinedResourceGroup:
      type: crds
",
        &format!("\"all mycustomresource\" {{v1 mycustomresource all}}\n{DEFAULT}"),
    );
}

#[test]
fn document_target_name() {
    check(
        r"
deletionGroups:
  - customResourceGroup:
      resources:
        - apiVersion: v1
          kind: mycustomresource
      deleteAllResources: true
      targetName: someOtherTarget # optional different target
",
        r#""all mycustomresource" {v1 mycustomresource all} target=someOtherTarget"#,
    );
}

#[test]
fn document_during_update() {
    check(
        r"
deployItems:
- name: my-deploy-item
  type: landscaper.gardener.cloud/helm
  config:
    apiVersion: helm.deployer.landscaper.gardener.cloud/v1alpha1
    kind: ProviderConfiguration
    deletionGroupsDuringUpdate:
    - predefinedResourceGroup:
        type: crds
    - predefinedResourceGroup:
        type: namespaced-resources
    deletionGroups:
    - predefinedResourceGroup:
        type: empty
",
        "empty\nupdate:\ncrds\nnamespaced-resources",
    );
}

#[test]
fn document_general_syntax() {
    check(
        r"
deletionGroups:
- predefinedResourceGroup:
    type: namespaced-resources
    forceDelete: false
- customResourceGroup:
    resources:
    - apiVersion: rbac.authorization.k8s.io/v1
      kind: rolebinding
      names:
      - name1
      - name2
      namespace:
      - namespace1
      - namespace2
    forceDelete: true
    deleteAllResources: true
    targetName: other
",
        r#"
        namespaced-resources
        "all rolebinding.rbac.authorization.k8s.io" {rbac.authorization.k8s.io/v1 rolebinding names=name1,name2 namespaces=namespace1,namespace2 all} force(0s ) target=other"#,
    );
}

#[test]
fn additional_settings_are_beside_force_delete() {
    check(
        r#"
deletionGroups:
- customResourceGroup:
    resources:
    - apiVersion: v1
      kind: cm
      labelSelector:
        matchLabels: {app: web, empty: ""}
        matchExpressions:
        - {key: tier, operator: In, values: [a, b]}
        - {key: example.org/x, operator: DoesNotExist}
    forceDelete: {enabled: true}
    forceAfter: 5m
    finalizers: [a.example/x, b.example/y]
    gracePeriodSeconds: 0
    propagationPolicy: Foreground
    timeout: 8m
- predefinedResourceGroup:
    type: namespaced-resources
    forceDelete: {enabled: false}
    propagationPolicy: Orphan
    timeout: 90s
    excludedResources: [{apiVersion: v1, kind: configmaps, names: [], namespaces: [kept]}, {group: apps, version: v1, kind: deploy}]
- predefinedResourceGroup: {type: crds, forceDelete: true, forceAfter: 0, propagationPolicy: Background}
"#,
        r#"
        "cm" {v1 cm labels=app=web,empty=,tier in (a,b),!example.org/x} force(5m a.example/x b.example/y) grace=0 Foreground timeout=8m
        namespaced-resources without {v1 configmaps namespaces=kept; apps/v1 deploy} Orphan timeout=1m30s
        crds force(0s ) Background"#,
    );
}

#[test]
fn long_titles_are_shortened_and_list_each_kind_once() {
    check(
        r"
deletionGroups:
- customResourceGroup:
    resources: [{apiVersion: v1, kind: a, names: [x]}, {apiVersion: v1, kind: a, names: [z]}, {apiVersion: v1, kind: b},
      {apiVersion: v1, kind: c}, {apiVersion: v1, kind: d}, {apiVersion: v1, kind: e}, {apiVersion: v1, kind: f}, {apiVersion: v1, kind: g}]
",
        r#"
        "a, b, c, d, e and 2 more" {v1 a names=x; v1 a names=z; v1 b; v1 c; v1 d; v1 e; v1 f; v1 g}"#,
    );
}

#[test]
fn a_group_has_exactly_one_shape() {
    check(
        r"
deletionGroups:
- {}
- predefinedResourceGroup: {type: crds}
  customResourceGroup: {resources: [{apiVersion: v1, kind: cm}]}
- customResourceGroup: {resources: [{apiVersion: v1, kind: cm}]}
  resources: [{group: '', version: v1, kind: cm}]
- forceDelete: true
- customResourcesGroup: {}
- crds
- null
",
        r#"
        p:3:3: deletionGroups[0]: a group needs exactly one of predefinedResourceGroup or customResourceGroup
        p:4:3: deletionGroups[1]: predefinedResourceGroup and customResourceGroup in one group (split it into two groups: a group has exactly one of predefinedResourceGroup, customResourceGroup or resources)
        p:6:3: deletionGroups[2]: customResourceGroup and resources in one group (split it into two groups: a group has exactly one of predefinedResourceGroup, customResourceGroup or resources)
        p:8:3: deletionGroups[3]: a group needs exactly one of predefinedResourceGroup or customResourceGroup
        p:9:3: deletionGroups[4]: unknown field "customResourcesGroup"; did you mean "customResourceGroup"?
        p:10:3: deletionGroups[5]: expected a mapping, found a string
        p:11:3: deletionGroups[6]: expected a mapping, found nothing"#,
    );
}

#[test]
fn misplaced_fields_are_reported_with_their_right_place() {
    check(
        r"
deletionGroups:
- predefinedResourceGroup:
    type: crds
    deleteAllResources: true
  forceDelete: true
- customResourceGroup:
    type: crds
    resources:
    - {apiVersion: v1, kind: cm, selector: {all: true}}
    - {group: apps, version: v1, kind: Deployment}
    force-delete: {enabled: true}
  targetName: x
  force-delete: {enabled: true}
",
        r#"
        p:5:5: deletionGroups[0].predefinedResourceGroup: field "deleteAllResources" is not allowed here (only a customResourceGroup supports it)
        p:6:3: deletionGroups[0]: field "forceDelete" is not allowed here (move it into predefinedResourceGroup)
        p:8:5: deletionGroups[1].customResourceGroup: field "type" is not allowed here (only a predefinedResourceGroup supports it)
        p:10:34: deletionGroups[1].customResourceGroup.resources[0]: field "selector" is not allowed here (set deleteAllResources: true beside resources)
        p:11:8: deletionGroups[1].customResourceGroup.resources[1]: field "group" is not allowed here (combine both as apiVersion: GROUP/VERSION)
        p:11:21: deletionGroups[1].customResourceGroup.resources[1]: field "version" is not allowed here (combine both as apiVersion: GROUP/VERSION)
        p:12:5: deletionGroups[1].customResourceGroup: unknown field "force-delete"; did you mean "forceDelete"?
        p:13:3: deletionGroups[1]: field "targetName" is not allowed here (move it into customResourceGroup)
        p:14:3: deletionGroups[1]: field "force-delete" is not allowed here (set forceDelete: true inside the group)"#,
    );
}

#[test]
fn unknown_names_and_wrong_types_are_all_reported() {
    check(
        r"
deletionGroup: []
deletionGroups:
- predefinedResourceGroup:
    type: namespaced-resource
    forcedelete: true
- predefinedResourceGroup: {type: everything}
- predefinedResourceGroup: {}
- predefinedResourceGroup: [crds]
- customResourceGroup:
    resources: {apiVersion: v1, kind: cm}
    deleteAllResources: 'yes'
- customResourceGroup: {resources: []}
- customResourceGroup: {colour: green}
- customResourceGroup:
    resources:
    - apiVersion: a/b/c
      kind: 7
      names: web
    - kind: deployments.apps
      apiVersion: apps/v1
      names: [1, '']
    - {}
deletionGroupsDuringUpdate: {}
",
        r#"
        p:2:1: unknown field "deletionGroup"; did you mean "deletionGroups"?
        p:5:11: deletionGroups[0].predefinedResourceGroup.type: unknown value "namespaced-resource"; did you mean "namespaced-resources"? (possible values: namespaced-resources, cluster-scoped-resources, crds, empty)
        p:6:5: deletionGroups[0].predefinedResourceGroup: unknown field "forcedelete"; did you mean "forceDelete"?
        p:7:35: deletionGroups[1].predefinedResourceGroup.type: unknown value "everything" (possible values: namespaced-resources, cluster-scoped-resources, crds, empty)
        p:8:28: deletionGroups[2].predefinedResourceGroup: missing field "type"
        p:9:28: deletionGroups[3].predefinedResourceGroup: expected a mapping, found a list
        p:11:16: deletionGroups[4].customResourceGroup.resources: expected a list, found a mapping
        p:12:25: deletionGroups[4].customResourceGroup.deleteAllResources: expected true or false, found a string
        p:13:36: deletionGroups[5].customResourceGroup.resources: the list is empty (list at least one kind of object)
        p:14:24: deletionGroups[6].customResourceGroup: missing field "resources"
        p:14:25: deletionGroups[6].customResourceGroup: unknown field "colour" (known fields: resources, forceDelete, forceAfter, finalizers, gracePeriodSeconds, propagationPolicy, timeout, excludedResources, deleteAllResources, targetName)
        p:17:19: deletionGroups[7].customResourceGroup.resources[0].apiVersion: expected VERSION or GROUP/VERSION, such as v1 or apps/v1
        p:18:13: deletionGroups[7].customResourceGroup.resources[0].kind: expected a string, found a number (put it in quotes)
        p:19:14: deletionGroups[7].customResourceGroup.resources[0].names: expected a list, found a string
        p:20:13: deletionGroups[7].customResourceGroup.resources[1].kind: "deployments.apps" is not a kind name (use the kind or its plural, singular or short name; the group has its own field)
        p:22:15: deletionGroups[7].customResourceGroup.resources[1].names[0]: expected a string, found a number (put it in quotes)
        p:22:18: deletionGroups[7].customResourceGroup.resources[1].names[1]: the string is empty
        p:23:7: deletionGroups[7].customResourceGroup.resources[2]: missing field "apiVersion"
        p:23:7: deletionGroups[7].customResourceGroup.resources[2]: missing field "kind"
        p:24:29: deletionGroupsDuringUpdate: expected a list, found a mapping"#,
    );
}

#[test]
fn contradictory_settings_are_reported() {
    check(
        r"
deletionGroups:
- predefinedResourceGroup: {type: crds, forceAfter: 5m, finalizers: [a]}
- predefinedResourceGroup: {type: crds, forceDelete: false, forceAfter: 5m}
- predefinedResourceGroup: {type: crds, forceDelete: {enabled: maybe}, forceAfter: 5m}
- predefinedResourceGroup: {type: crds, forceDelete: {}}
- predefinedResourceGroup: {type: crds, forceDelete: true, finalizers: [], forceAfter: 5}
- predefinedResourceGroup: {type: crds, timeout: 0s, propagationPolicy: background}
- predefinedResourceGroup: {type: crds, timeout: five minutes, excludedResources: []}
- customResourceGroup:
    resources: [{apiVersion: v1, kind: cm, namespaces: [a], namespace: [b]}]
    targetName: other
- customResourceGroup: {resources: [{apiVersion: v1, kind: cm}], targetName: other, deleteAllResources: false}
- predefinedResourceGroup: {type: crds, timeout: 3m, forceDelete: true, forceAfter: 5m}
- predefinedResourceGroup: {type: crds, timeout: 5m, forceDelete: true, forceAfter: 5m}
- predefinedResourceGroup: {type: crds, gracePeriodSeconds: 0}
- predefinedResourceGroup: {type: crds, forceDelete: true, gracePeriodSeconds: 30}
- predefinedResourceGroup: {type: crds, forceDelete: true, gracePeriodSeconds: now}
",
        r#"
        p:3:53: deletionGroups[0].predefinedResourceGroup.forceAfter: forceAfter requires forceDelete (set forceDelete: true)
        p:3:69: deletionGroups[0].predefinedResourceGroup.finalizers: finalizers requires forceDelete (set forceDelete: true)
        p:4:73: deletionGroups[1].predefinedResourceGroup.forceAfter: forceAfter requires forceDelete (set forceDelete: true)
        p:5:64: deletionGroups[2].predefinedResourceGroup.forceDelete.enabled: expected true or false, found a string
        p:6:54: deletionGroups[3].predefinedResourceGroup.forceDelete: missing field "enabled"
        p:7:72: deletionGroups[4].predefinedResourceGroup.finalizers: the list is empty (omit the field to remove all finalizers)
        p:7:88: deletionGroups[4].predefinedResourceGroup.forceAfter: expected a duration such as 90s, 5m or 1h30m, found a number
        p:8:50: deletionGroups[5].predefinedResourceGroup.timeout: the duration is zero (omit the field for no separate limit)
        p:8:73: deletionGroups[5].predefinedResourceGroup.propagationPolicy: unknown value "background"; did you mean "Background"? (possible values: Background, Foreground, Orphan)
        p:9:50: deletionGroups[6].predefinedResourceGroup.timeout: expected a duration such as 90s, 5m or 1h30m, found "five minutes"
        p:9:83: deletionGroups[6].predefinedResourceGroup.excludedResources: the list is empty (list at least one kind of object)
        p:11:72: deletionGroups[7].customResourceGroup.resources[0].namespace: namespaces is also set (list all of them under namespaces)
        p:12:17: deletionGroups[7].customResourceGroup.targetName: targetName requires deleteAllResources (set deleteAllResources: true)
        p:13:78: deletionGroups[8].customResourceGroup.targetName: targetName requires deleteAllResources (set deleteAllResources: true)
        p:14:85: deletionGroups[9].predefinedResourceGroup.forceAfter: the group ends after its timeout of 3m, before forceAfter (5m) has passed (set timeout above forceAfter)
        p:16:61: deletionGroups[11].predefinedResourceGroup.gracePeriodSeconds: gracePeriodSeconds requires forceDelete (set forceDelete: true)
        p:17:80: deletionGroups[12].predefinedResourceGroup.gracePeriodSeconds: gracePeriodSeconds can only be 0 (use forceAfter for the time before the Pods are forced)
        p:18:80: deletionGroups[13].predefinedResourceGroup.gracePeriodSeconds: expected a whole number, found a string"#,
    );
}

#[test]
fn label_selectors_are_checked_like_in_the_api_server() {
    check(
        r"
deletionGroups:
- customResourceGroup:
    resources:
    - apiVersion: v1
      kind: cm
      labelSelector:
        matchLabels: {app: true, 'a b': c, d: 'e f'}
        matchExpressions:
        - {key: a, operator: in}
        - {key: a, operator: In}
        - {key: '/x', operator: Exists, values: [b]}
        matchNothing: 1
    - apiVersion: v1
      kind: cm
      labelSelector: app=web
",
        r#"
        p:8:28: deletionGroups[0].customResourceGroup.resources[0].labelSelector.matchLabels.app: expected a string, found a boolean (put it in quotes)
        p:8:41: deletionGroups[0].customResourceGroup.resources[0].labelSelector.matchLabels.a b: "a b" is not a valid label key
        p:8:47: deletionGroups[0].customResourceGroup.resources[0].labelSelector.matchLabels.d: "e f" is not a valid label value
        p:10:30: deletionGroups[0].customResourceGroup.resources[0].labelSelector.matchExpressions[0].operator: unknown value "in"; did you mean "In"? (possible values: In, NotIn, Exists, DoesNotExist)
        p:11:11: deletionGroups[0].customResourceGroup.resources[0].labelSelector.matchExpressions[1]: the operators In and NotIn need values
        p:12:17: deletionGroups[0].customResourceGroup.resources[0].labelSelector.matchExpressions[2].key: "/x" is not a valid label key
        p:12:49: deletionGroups[0].customResourceGroup.resources[0].labelSelector.matchExpressions[2].values: the operators Exists and DoesNotExist take no values
        p:13:9: deletionGroups[0].customResourceGroup.resources[0].labelSelector: unknown field "matchNothing" (known fields: matchLabels, matchExpressions)
        p:16:22: deletionGroups[0].customResourceGroup.resources[1].labelSelector: expected a mapping, found a string"#,
    );
}

#[test]
fn doubtful_groups_are_warned_of() {
    check_warnings(
        r"
deletionGroupsDuringUpdate:
- customResourceGroup: {resources: [{apiVersion: v1, kind: cm}], deleteAllResources: true}
deletionGroups:
- predefinedResourceGroup: {type: namespaced-resources, excludedResources: [{apiVersion: v1, kind: cm}]}
- predefinedResourceGroup: {type: namespaced-resources}
- predefinedResourceGroup: {type: namespaced-resources}
- predefinedResourceGroup: {type: cluster-scoped-resources}
- predefinedResourceGroup: {type: crds}
- customResourceGroup: {resources: [{apiVersion: v1, kind: cm}]}
- customResourceGroup: {resources: [{apiVersion: v1, kind: cm}], deleteAllResources: true}
",
        r"
        p:3:3: deletionGroupsDuringUpdate[0]: warning: each update deletes all objects of these kinds, even those that the release did not deploy (set it in deletionGroups to delete them only with the release)
        p:7:3: deletionGroups[2]: warning: this group is always empty: the groups before it select all of its objects (move it up)
        p:10:3: deletionGroups[5]: warning: this group is always empty: the groups before it select all of its objects (move it up)",
    );
}
