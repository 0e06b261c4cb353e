use super::*;

/// Checks the dangerous notes on an update from the recorded objects, which all exist, to the new ones.
#[track_caller]
fn check(recorded: &[&str], new: &[&str], groups: &[&str], expected: &[&str]) {
    let entries: Vec<String> = recorded.iter().map(|line| entry_line(line)).collect();
    let live: Vec<String> = recorded.iter().map(|line| format!("{line} ours uid={}", uid(line))).collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let mut deployment = deployment(new).knowing(&entries);
    if !groups.is_empty() {
        deployment.policy.during_update = super::super::cluster::groups(groups);
    }
    let live: Vec<&str> = live.iter().map(String::as_str).collect();
    let found = notes(&deployment.plan(&cluster(&live)).unwrap());
    let found: Vec<_> = found.iter().filter_map(|note| note.strip_prefix("dangerous ")).collect();
    assert_eq!(found, expected);
}

fn entry_line(line: &str) -> String {
    let name = line.split(' ').next().unwrap_or_default();
    format!("{name} {}", uid(line))
}

fn uid(line: &str) -> String {
    format!("uid-{}", line.split(' ').next().unwrap_or_default())
}

const FIVE: [&str; 5] = ["ConfigMap/a/a", "ConfigMap/a/b", "ConfigMap/a/c", "Secret/a/d", "Secret/a/e"];

#[test]
fn more_than_half_of_a_release_is_dangerous() {
    let manifest = |key: &&str| format!("v1 {key}");
    let of = |keys: &[&str]| keys.iter().map(manifest).collect::<Vec<_>>();
    for (kept, expected) in [
        (5, None),
        (3, None),
        (2, Some("prunes-most: more than half of the release will be pruned: 3 of its 5 objects")),
        (1, Some("prunes-most: more than half of the release will be pruned: 4 of its 5 objects")),
    ] {
        let new = of(&FIVE[..kept]);
        let new: Vec<&str> = new.iter().map(String::as_str).collect();
        check(&FIVE, &new, &[], expected.as_slice());
    }
    // New objects do not make up for old ones: the input may be that of another release.
    let all = "prunes-most: more than half of the release will be pruned: all 5 objects";
    check(&FIVE, &["v1 ConfigMap/a/x", "v1 Secret/a/y"], &[], &[all]);
    // One object replaces another.
    check(&["ConfigMap/a/a"], &["v1 ConfigMap/a/x"], &[], &[]);
    check(&["ConfigMap/a/a", "Secret/a/b"], &["v1 Secret/a/b"], &[], &[]);
    // What the policy does not cover is not pruned.
    check(&FIVE, &["v1 ConfigMap/a/a"], &["v1 secrets"], &[]);
}

#[test]
fn generated_names_are_not_pruned_objects() {
    let old = ["ConfigMap/a/x-2456789bcd", "Secret/a/y-mt56789bcd", "ConfigMap/a/z"];
    check(&old, &["v1 ConfigMap/a/x-ghkmt24567", "v1 Secret/a/y-2456789bcd", "v1 ConfigMap/a/z"], &[], &[]);
    let most = "prunes-most: more than half of the release will be pruned: 2 of its 3 objects";
    check(&old, &["v1 ConfigMap/a/y-ghkmt24567", "v1 ConfigMap/a/z"], &[], &[most]);
}

#[test]
fn rendering_to_nothing_is_dangerous() {
    let nothing = "renders-nothing: the input renders to nothing: the only object of the release will be pruned";
    check(&["ConfigMap/a/a"], &[], &[], &[nothing]);
    let nothing = "renders-nothing: the input renders to nothing: all 5 objects of the release will be pruned";
    check(&FIVE, &[], &[], &[nothing]);
    let kept = "renders-nothing: the input renders to nothing: 2 of the 5 objects of the release will be pruned";
    check(&FIVE, &[], &["v1 secrets"], &[kept]);
    check(&[], &[], &[], &[]);
}

#[test]
fn pruning_all_data_is_dangerous() {
    let claims = ["PersistentVolumeClaim/a/x", "PersistentVolumeClaim/a/y", "ConfigMap/a/a", "ConfigMap/a/b"];
    let both =
        "prunes-data: all data of the release will be pruned: PersistentVolumeClaim a/x, PersistentVolumeClaim a/y";
    check(&claims, &["v1 ConfigMap/a/a", "v1 ConfigMap/a/b"], &[], &[both]);
    check(&claims, &["v1 PersistentVolumeClaim/a/x", "v1 ConfigMap/a/a", "v1 ConfigMap/a/b"], &[], &[]);
    // A new claim is empty.
    check(&claims, &["v1 PersistentVolumeClaim/a/z", "v1 ConfigMap/a/a", "v1 ConfigMap/a/b"], &[], &[both]);
    check(&claims, &["v1 ConfigMap/a/a", "v1 ConfigMap/a/b"], &["v1 configmaps"], &[]);
    // With its Namespace.
    let with = ["Namespace/n", "PersistentVolumeClaim/n/x", "ConfigMap/a/a", "ConfigMap/a/b", "ConfigMap/a/c"];
    let new = ["v1 ConfigMap/a/a", "v1 ConfigMap/a/b", "v1 ConfigMap/a/c"];
    let data = "prunes-data: all data of the release will be pruned: PersistentVolumeClaim n/x";
    check(&with, &new, &["v1 namespaces"], &[data]);
}

#[test]
fn pruning_a_protected_object_is_dangerous() {
    let old = ["ConfigMap/a/a", "ConfigMap/a/b protected", "ConfigMap/a/c protected", "ConfigMap/a/d"];
    let one = "prunes-protected: 1 protected object will be pruned (billhook.dev/protect): ConfigMap a/b";
    check(&old, &["v1 ConfigMap/a/a", "v1 ConfigMap/a/c", "v1 ConfigMap/a/d"], &[], &[one]);
    check(&old, &["v1 ConfigMap/a/b", "v1 ConfigMap/a/c", "v1 ConfigMap/a/d"], &[], &[]);
    let with = ["Namespace/n", "Secret/n/x protected", "ConfigMap/a/a", "ConfigMap/a/b", "ConfigMap/a/c"];
    let new = ["v1 ConfigMap/a/a", "v1 ConfigMap/a/b", "v1 ConfigMap/a/c"];
    let secret = "prunes-protected: 1 protected object will be pruned (billhook.dev/protect): Secret n/x";
    check(&with, &new, &["v1 namespaces"], &[secret]);
}

#[test]
fn without_pruning_only_the_empty_input_is_dangerous() {
    let mut deployment = deployment(&["v1 Secret/a/x"]).knowing(&["ConfigMap/a/a 1", "PersistentVolumeClaim/a/b 2"]);
    deployment.prune = false;
    assert!(!is_dangerous(&deployment.plan(&cluster(&[])).unwrap()));
    deployment.manifests.clear();
    assert!(is_dangerous(&deployment.plan(&cluster(&[])).unwrap()));
}

#[test]
fn kinds_that_only_a_later_deletion_needs_are_noted() {
    let mut deployment = deployment(&["v1 ConfigMap/a/x"]);
    deployment.policy.deletion = groups(&["a.example/v1 Widgt", "v1 cm | -a.example/v1 planet"]);
    let note =
        "warning not-served: deletionGroups[0]: the cluster does not serve Widgt.a.example yet; did you mean Widget?";
    assert_eq!(notes(&deployment.plan(&cluster(&[])).unwrap()), [note]);
}
