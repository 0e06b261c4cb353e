//! Tests of `deploymentGroups`.

use super::check::check;

const DEFAULT: &str = "namespaced-resources\ncluster-scoped-resources\ncrds";

#[test]
fn groups_in_both_syntaxes() {
    check(
        r"
deploymentGroups:
- predefinedResourceGroup: {type: crds}
- customResourceGroup:
    resources: [{apiVersion: v1, kind: ns, names: [a], labelSelector: {matchLabels: {b: c}}}]
    timeout: 1m
    waitFor: ready
- predefinedResourceGroup:
    type: cluster-scoped-resources
    excludedResources: [{apiVersion: v1, kind: pv}]
  waitFor: ready
- resources: [{group: apps, version: v1, kind: deploy}]
  waitFor: exists
- predefinedResourceGroup: namespaced-resources
  timeout: 2m
",
        &format!(
            r#"{DEFAULT}
            deploy:
            crds Exists
            "ns" {{v1 ns names=a labels=b=c}} Ready timeout=1m
            cluster-scoped-resources without {{v1 pv}} Ready
            "deploy.apps" {{apps/v1 deploy}} Exists
            namespaced-resources Exists timeout=2m"#
        ),
    );
    check("deploymentGroups: []", DEFAULT);
}

#[test]
fn mistakes() {
    check(
        r"
deploymentGroups:
- predefinedResourceGroup: {type: empty}
- predefinedResourceGroup: {type: crds, forceDelete: true, waitFor: ready}
  waitFor: ready
- customResourceGroup:
    resources: [{apiVersion: v1, kind: ns}]
    deleteAllResources: true
    targetName: other
    propagationPolicy: Orphan
    waitFor: Ready
  timeout: 1m
- resources: [{group: '', version: v1, kind: ns, selector: {all: true}}]
  force-delete: {enabled: true}
  waitfor: ready
- waitFor: ready
- predefinedResourceGroup: empty
",
        r#"
        p:3:35: deploymentGroups[0].predefinedResourceGroup.type: unknown value "empty" (possible values: namespaced-resources, cluster-scoped-resources, crds)
        p:4:3: deploymentGroups[1]: waitFor is set twice (set it either beside the group or inside it)
        p:4:41: deploymentGroups[1].predefinedResourceGroup: field "forceDelete" is not allowed here (a deployment deletes nothing)
        p:8:5: deploymentGroups[2].customResourceGroup: field "deleteAllResources" is not allowed here (a deployment deletes nothing)
        p:9:5: deploymentGroups[2].customResourceGroup: field "targetName" is not allowed here (a deployment changes only the cluster of the release)
        p:10:5: deploymentGroups[2].customResourceGroup: field "propagationPolicy" is not allowed here (a deployment deletes nothing)
        p:11:14: deploymentGroups[2].customResourceGroup.waitFor: unknown value "Ready"; did you mean "ready"? (possible values: exists, ready)
        p:12:3: deploymentGroups[2]: field "timeout" is not allowed here (move it into customResourceGroup)
        p:13:50: deploymentGroups[3].resources[0]: field "selector" is not allowed here (a deployment contains only objects of the release)
        p:14:3: deploymentGroups[3]: field "force-delete" is not allowed here (a deployment deletes nothing)
        p:15:3: deploymentGroups[3]: unknown field "waitfor"; did you mean "waitFor"?
        p:16:3: deploymentGroups[4]: a group needs exactly one of predefinedResourceGroup or customResourceGroup
        p:17:28: deploymentGroups[5].predefinedResourceGroup: unknown value "empty" (possible values: namespaced-resources, cluster-scoped-resources, crds)"#,
    );
}
