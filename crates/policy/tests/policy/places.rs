//! Tests of the places and the rendering of diagnostics, and of the paths of groups.

use billhook_policy::Severity;

use super::check::policy;

#[test]
fn groups_have_their_path() {
    let yaml = "deletionOrderRules: [{deletionRank: 300}]\ndeploymentGroups: [{predefinedResourceGroup: crds}]";
    let policy = policy(yaml).unwrap();
    let paths: Vec<_> = policy.deletion.iter().map(|group| group.path.as_str()).collect();
    assert_eq!(paths, ["", "", "deletionOrderRules[0]"]);
    assert_eq!(policy.deployment[0].path, "deploymentGroups[0]");
    assert_eq!(policy.during_update[0].path, "");
}

#[test]
fn diagnostics_are_sorted_and_rendered_with_their_lines() {
    let yaml = "deletionGroupsDuringUpdate: 1\ndeletionGroups:\n- predefinedResourceGroup:\n    type: crds\n    forcedelete: true\n";
    let found = policy(yaml).unwrap_err();
    assert!(found.has_errors() && !found.is_empty());
    let lines: Vec<_> = found.iter().map(|d| (d.line, d.column, d.severity)).collect();
    assert_eq!(lines, [(1, 29, Severity::Error), (5, 5, Severity::Error)]);
    assert_eq!(
        found.render(yaml).join("\n"),
        "\
error: expected a list, found a number
 --> p:1:29
  |
1 | deletionGroupsDuringUpdate: 1
  |                             ^
  = at: deletionGroupsDuringUpdate

error: unknown field \"forcedelete\"; did you mean \"forceDelete\"?
 --> p:5:5
  |
5 |     forcedelete: true
  |     ^^^^^^^^^^^
  = at: deletionGroups[0].predefinedResourceGroup
"
    );
}

#[test]
fn names_that_yaml_reads_as_other_types_get_a_hint_to_quote_them() {
    // kubectl's YAML reads y, n, on and off as booleans.
    let yaml = "deletionGroups: [{customResourceGroup: {resources: [{apiVersion: v1, kind: cm, names: [y]}]}}]";
    let found = policy(yaml).unwrap_err();
    assert!(found.to_string().ends_with("expected a string, found a boolean (put it in quotes)"), "{found}");
}
