use std::sync::Arc;

use super::cluster::*;
use crate::*;

#[track_caller]
fn check(objects: &[&str], groups: &[&str], live: &[&str], expected: &[&str]) {
    let found = notes(&deletion(objects, groups).blast(&cluster(live)));
    let dangerous: Vec<_> = found.iter().filter(|note| note.starts_with("dangerous")).collect();
    assert_eq!(dangerous, expected, "{found:#?}");
}

const NAMESPACE: &str = "Namespace/m uid=ns ours";

#[test]
fn foreign_objects_in_namespaces_are_dangerous() {
    let live = [NAMESPACE, "ConfigMap/m/a", "ConfigMap/m/b", "Secret/m/c", "Secret/other/d", "Event/m/e"];
    let note = "dangerous foreign-objects: deleting Namespace m also deletes 3 objects that the release did not create: 2 ConfigMap, 1 Secret";
    check(&["Namespace/m uid=ns"], &[], &live, &[note]);
}

#[test]
fn own_objects_and_those_of_kubernetes_are_not_foreign() {
    let live = [
        NAMESPACE,
        "ConfigMap/m/kube-root-ca.crt",
        "ServiceAccount/m/default",
        "Deployment/m/d uid=d ours",
        "ReplicaSet/m/r uid=r owner=d",
        "Pod/m/p owner=r",
        "Service/m/s uid=s ours",
        "Endpoints/m/s uid=e",
        "EndpointSlice/m/s-1 owner=s",
        "Secret/m/extra uid=x",
    ];
    let objects = ["Namespace/m uid=ns", "Deployment/m/d uid=d", "Service/m/s uid=s", "Secret/m/extra uid=x"];
    let mut labelled = live;
    labelled[9] = "Secret/m/extra uid=x ours";
    check(&objects, &[], &labelled, &[]);
    // What the record names is not foreign, even without the label.
    check(&objects, &["cluster"], &live, &[]);
    check(&objects[..3], &["v1 secrets all", "cluster"], &live, &[]);
}

#[test]
fn the_label_alone_does_not_make_an_object_own() {
    let live = [NAMESPACE, "ConfigMap/m/copy ours"];
    let note = "dangerous foreign-objects: deleting Namespace m also deletes 1 object that the release did not create: 1 ConfigMap";
    check(&["Namespace/m uid=ns"], &[], &live, &[note]);
}

#[test]
fn garbage_is_not_foreign() {
    let live = [
        NAMESPACE,
        "Secret/m/of-gone owner=ConfigMap/gone",
        "ConfigMap/m/of-that owner=Secret/uid-Secret/m/of-gone",
        // The kind of its owner was not listed.
        "Secret/m/of-unknown owner=Node/gone",
        "ConfigMap/m/there uid=there",
        "Secret/m/of-two owner=ConfigMap/gone owner=ConfigMap/there",
    ];
    let note = "dangerous foreign-objects: deleting Namespace m also deletes 3 objects that the release did not create: 1 ConfigMap, 2 Secret";
    check(&["Namespace/m uid=ns"], &[], &live, &[note]);
}

#[test]
fn an_inventory_is_foreign_unless_it_is_our_own() {
    let live = [
        "Namespace/app uid=ns ours",
        "Secret/app/1 billhook.dev/inventory=web.app",
        "Secret/app/2 billhook.dev/inventory=db.app",
    ];
    let note = "dangerous foreign-objects: deleting Namespace app also deletes 1 object that the release did not create: 1 Secret";
    check(&["Namespace/app uid=ns"], &[], &live, &[note]);
}

#[test]
fn instances_count_for_their_crd() {
    let crd = "CustomResourceDefinition/widgets.a.example uid=crd";
    let live_crd = format!("{crd} ours");
    let live = [
        NAMESPACE,
        live_crd.as_str(),
        "Widget.a.example/m/x",
        "Widget.a.example/z/y",
        "Widget.a.example/z/ours uid=w ours",
    ];
    let note = "dangerous foreign-objects: deleting CustomResourceDefinition.apiextensions.k8s.io widgets.a.example also deletes 2 objects that the release did not create: 2 Widget.a.example";
    let own = "Widget.a.example/z/ours uid=w";
    check(&[crd, "Namespace/m uid=ns", own], &["cluster", "crds"], &live, &[note]);
    check(&[crd], &["a.example/v1 widgets all", "crds"], &live, &[]);
    check(&[crd, own], &["crds | force"], &live, &[note]);
}

#[test]
fn objects_already_being_deleted_are_not_dangerous() {
    check(&["Namespace/m uid=ns"], &[], &["Namespace/m uid=ns ours deleting", "ConfigMap/m/a"], &[]);
}

#[test]
fn failed_lists_are_noted() {
    let mut live = cluster(&[NAMESPACE]);
    live.forbidden = vec!["=secrets".into()];
    let found = notes(&deletion(&["Namespace/m uid=ns"], &[]).blast(&live));
    assert_eq!(
        found,
        [
            "dangerous unreadable: not all objects that will be deleted are known: failed to list secrets in namespace m: forbidden"
        ]
    );
}

#[test]
fn queries_skip_what_cannot_matter() {
    let mut deletion = deletion(&["Namespace/m uid=ns"], &[]);
    Arc::make_mut(&mut deletion.catalogs.own).stale.push("b.example/v1".into());
    let plan = deletion.plan(&cluster(&[NAMESPACE])).unwrap();
    let queries: Vec<_> =
        blast_queries(&plan, &deletion.catalogs).iter().map(|query| query.scope().to_string()).collect();
    assert!(queries.contains(&"widgets.a.example in namespace m".to_owned()), "{queries:?}");
    assert!(
        !queries.iter().any(|q| q.starts_with("events") || q.contains("b.example") || q.contains("planets")),
        "{queries:?}"
    );
    let many: Vec<String> = (0..5).map(|n| format!("Namespace/n{n} uid={n}")).collect();
    let lines: Vec<&str> = many.iter().map(String::as_str).collect();
    deletion.objects = lines.iter().map(|line| wanted(line)).collect();
    deletion.unlabelled = Unlabelled::Take;
    let plan = deletion.plan(&cluster(&lines)).unwrap();
    let queries = blast_queries(&plan, &deletion.catalogs);
    assert!(queries.iter().all(|query| query.namespace.is_none() && query.namespaces.len() == 5));
    assert_eq!(queries.iter().filter(|query| query.resource.kind == key("Secret/x").kind).count(), 1);
}

#[test]
fn the_contents_of_many_namespaces_are_listed_together() {
    let many: Vec<String> = (0..5).map(|n| format!("Namespace/n{n} uid={n}")).collect();
    let objects: Vec<&str> = many.iter().map(String::as_str).collect();
    let owned: Vec<String> = many.iter().map(|line| format!("{line} ours")).collect();
    let mut live: Vec<&str> = owned.iter().map(String::as_str).collect();
    live.extend(["ConfigMap/n3/a", "Secret/n3/garbage owner=ConfigMap/gone", "Secret/other/b"]);
    let note = "dangerous foreign-objects: deleting Namespace n3 also deletes 1 object that the release did not create: 1 ConfigMap";
    check(&objects, &[], &live, &[note]);
    let mut live = cluster(&live);
    live.forbidden = vec!["=secrets".into()];
    let found = notes(&deletion(&objects, &[]).blast(&live));
    assert!(found.iter().any(|note| note.contains("failed to list secrets")), "{found:#?}");
}
