use std::collections::BTreeMap;

use super::cluster::*;
use crate::*;

/// Prints a query: `plural/version@namespace[,namespace] select`.
pub(super) fn shown(query: &Query) -> String {
    let select = match &query.select {
        Select::All => "all".to_owned(),
        Select::Labels(labels) => labels.clone(),
        Select::Names(names) => names.join("+"),
        Select::Reads(names) => format!("get {}", names.join("+")),
        Select::Objects(objects) => objects.values().map(|names| names.join("+")).collect::<Vec<_>>().join(","),
    };
    let version = &query.resource.version;
    let namespace = query.namespace.clone().unwrap_or_else(|| query.namespaces.join(","));
    format!("{}/{version}@{namespace} {select}", query.resource.plural)
}

#[track_caller]
fn check(deletion: &TestDeletion, expected: &[&str]) {
    let deletion = Deletion::new(deletion.request()).unwrap();
    assert_eq!(deletion.queries().iter().map(shown).collect::<Vec<_>>(), expected);
}

#[test]
fn few_namespaces_are_listed_one_by_one() {
    let objects = ["ConfigMap/b/x", "ConfigMap/a/x", "ConfigMap/a/y", "ClusterRole/r"];
    let label = "billhook.dev/release=web.app";
    let expected =
        [format!("configmaps/v1@a {label}"), format!("configmaps/v1@b {label}"), format!("clusterroles/v1@ {label}")];
    check(&deletion(&objects, &[]), &expected.each_ref().map(String::as_str));
    let many = ["a", "b", "c", "d", "e"].map(|ns| format!("ConfigMap/{ns}/x"));
    check(&deletion(&many.each_ref().map(String::as_str), &[]), &[&format!("configmaps/v1@a,b,c,d,e {label}")]);
}

#[test]
fn objects_of_manifests_are_queried_by_name() {
    let mut by_name = deletion(&["ConfigMap/a/y", "ConfigMap/a/x", "ConfigMap/b/x"], &[]);
    by_name.release = None;
    check(&by_name, &["configmaps/v1@a x+y", "configmaps/v1@b x"]);
}

#[test]
fn objects_of_manifests_in_many_namespaces_are_one_query() {
    let five = ["a", "b", "c", "d", "e"].map(|ns| format!("ConfigMap/{ns}/x"));
    let mut five: Vec<&str> = five.iter().map(String::as_str).collect();
    five.push("ConfigMap/c/y");
    let mut by_name = deletion(&five, &[]);
    by_name.release = None;
    check(&by_name, &["configmaps/v1@a,b,c,d,e x,x,x+y,x,x"]);
    let live = cluster(&["ConfigMap/a/x", "ConfigMap/a/y", "ConfigMap/c/y", "ConfigMap/f/x"]);
    let plan = by_name.plan(&live).unwrap();
    assert_eq!(nodes(&plan), ["namespaced-resources: ConfigMap/a/x ConfigMap/c/y"]);
    assert_eq!(plan.queries.len(), 1);
}

#[test]
fn objects_that_a_list_by_label_did_not_show_are_one_query() {
    let many = ["a", "b", "c", "d", "e"].map(|ns| format!("ConfigMap/{ns}/x uid={ns}"));
    let many = deletion(&many.each_ref().map(String::as_str), &[]);
    let resolved = Deletion::new(many.request()).unwrap();
    let first = Snapshot { listings: cluster(&[]).answer(resolved.queries()) };
    let second = resolved.missing(&first);
    assert_eq!(second.iter().map(shown).collect::<Vec<_>>(), ["configmaps/v1@a,b,c,d,e x,x,x,x,x"]);
    let mut live = cluster(&["ConfigMap/c/x uid=c ours"]);
    live.forbidden = vec!["configmaps".into()];
    assert_eq!(nodes(&many.plan(&live).unwrap()), ["namespaced-resources: ConfigMap/c/x"]);
}

#[test]
fn two_versions_of_a_kind_are_one_query() {
    let mut two = deletion(&["Widget.a.example/a/x", "Widget.a.example/a/y"], &[]);
    let label = "billhook.dev/release=web.app";
    for (first, second, used) in [("v1beta1", "v1", "v1"), ("v1beta1", "v1beta1", "v1beta1"), ("v0", "v0", "v1")] {
        (two.objects[0].version, two.objects[1].version) = (first.into(), second.into());
        check(&two, &[&format!("widgets/{used}@a {label}")]);
    }
}

#[test]
fn the_list_of_a_collection_replaces_the_list_by_label() {
    check(&deletion(&["ConfigMap/a/x"], &["v1 cm all"]), &["configmaps/v1@ all"]);
    let expected = ["configmaps/v1@a billhook.dev/release=web.app", "configmaps/v1@ tier=web"];
    check(&deletion(&["ConfigMap/a/x"], &["v1 cm all tier=web"]), &expected);
}

#[test]
fn a_collection_lists_the_namespaces_that_it_names() {
    let five = "ns=e ns=d ns=c ns=b ns=a";
    let many = deletion(&["ConfigMap/e/x"], &[&format!("v1 cm all {five}")]);
    check(&many, &["configmaps/v1@a,b,c,d,e all"]);
    let plan = many.plan(&cluster(&["ConfigMap/e/x ours", "ConfigMap/b/y", "ConfigMap/f/z"])).unwrap();
    assert_eq!(plan.nodes.len(), 1);
    assert_eq!((plan.deletions(), plan.queries.len()), (2, 1));
    check(&deletion(&[], &[&format!("v1 cm all {five} tier=web")]), &["configmaps/v1@a,b,c,d,e tier=web"]);
}

#[test]
fn the_second_round_queries_objects_that_the_first_did_not_show() {
    let deletion = deletion(&["ConfigMap/a/x uid=1", "ConfigMap/a/lost uid=2", "ConfigMap/a/gone uid=3"], &[]);
    let live = cluster(&["ConfigMap/a/x uid=1 ours", "ConfigMap/a/lost uid=2"]);
    let deletion = TestDeletion { unlabelled: Unlabelled::Take, ..deletion };
    let resolved = Deletion::new(deletion.request()).unwrap();
    let first = Snapshot { listings: live.answer(resolved.queries()) };
    let second = resolved.missing(&first);
    assert_eq!(second.iter().map(shown).collect::<Vec<_>>(), ["configmaps/v1@a gone+lost"]);
    let plan = deletion.plan(&live).unwrap();
    assert_eq!(nodes(&plan), ["namespaced-resources: ConfigMap/a/lost ConfigMap/a/x"]);
    assert_eq!(plan.queries.len(), 2);
}

#[test]
fn objects_of_manifests_get_a_namespace() {
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: ns, namespace: z}\n";
    let file = std::sync::Arc::from("f.yaml");
    let documents = billhook_objects::yaml::parse(text).unwrap();
    let manifests: Vec<_> =
        documents.into_iter().flat_map(|d| billhook_objects::Manifest::from_document(d, &file).unwrap()).collect();
    let wanted = Wanted::of_manifests(&manifests, &BTreeMap::new(), "app", &catalog());
    assert_eq!(wanted.iter().map(|w| w.key.to_string()).collect::<Vec<_>>(), ["ConfigMap/app/x", "Namespace/ns"]);
}
