use std::sync::Arc;

use super::cluster::*;
use crate::*;

/// Plans the deletion of `objects` by `groups`, and compares nodes and notes.
#[track_caller]
fn check(objects: &[&str], groups: &[&str], live: &[&str], expected_nodes: &[&str], expected_notes: &[&str]) -> Plan {
    let plan = deletion(objects, groups).plan(&cluster(live)).unwrap();
    assert_eq!(nodes(&plan), expected_nodes);
    assert_eq!(notes(&plan), expected_notes);
    plan
}

#[track_caller]
fn fails(deletion: &TestDeletion, live: &Cluster, kind: PlanErrorKind, problems: &[&str]) {
    let error = deletion.plan(live).unwrap_err();
    assert_eq!((error.kind, texts(&error)), (kind, problems.iter().map(|p| (*p).to_owned()).collect()));
}

#[test]
fn the_default_is_namespaced_then_cluster_scoped_then_crds() {
    let all =
        ["CustomResourceDefinition/x.y uid=3", "ConfigMap/a/x uid=1", "ClusterRole/r uid=2", "ConfigMap/a/b uid=4"];
    let live = [
        "CustomResourceDefinition/x.y uid=3 ours",
        "ConfigMap/a/x uid=1 ours",
        "ClusterRole/r uid=2 ours",
        "ConfigMap/a/b uid=4 ours",
    ];
    let nodes = [
        "namespaced-resources: ConfigMap/a/b ConfigMap/a/x",
        "cluster-scoped-resources: ClusterRole.rbac.authorization.k8s.io/r",
        "crds: CustomResourceDefinition.apiextensions.k8s.io/x.y",
    ];
    let plan = check(&all, &[], &live, &nodes, &[]);
    assert_eq!(plan.nodes.iter().map(|node| node.after.clone()).collect::<Vec<_>>(), [vec![], vec![0], vec![1]]);
    assert!(plan.nodes.iter().all(|node| node.barrier == Barrier::Gone));
}

#[test]
fn the_first_match_wins_and_unmatched_objects_remain() {
    let objects = ["ConfigMap/a/x uid=1", "ConfigMap/b/y uid=2", "Secret/a/s uid=3"];
    let live = ["ConfigMap/a/x uid=1 ours", "ConfigMap/b/y uid=2 ours", "Secret/a/s uid=3 ours"];
    let plan = check(
        &objects,
        &["v1 cm ns=a", "v1 configmaps", "v1 configmaps", "empty"],
        &live,
        &["v1 cm ns=a: ConfigMap/a/x", "v1 configmaps: ConfigMap/b/y"],
        &[
            "info uncovered: 1 object of the release will not be deleted: 1 Secret",
            "info order: deletionGroups[2] (v1 configmaps) matches no objects",
        ],
    );
    assert_eq!(uncovered(&plan), ["Secret/a/s: no group covers it"]);
}

#[test]
fn labels_versions_and_names_select_live_objects() {
    let objects = ["Widget.a.example/a/x uid=1", "Widget.a.example/a/y uid=2"];
    let live = ["Widget.a.example/a/x uid=1 ours tier=web", "Widget.a.example/a/y uid=2 ours"];
    let groups = ["a.example/v0 WIDGET tier=web", "namespaced"];
    check(
        &objects,
        &groups,
        &live,
        &["a.example/v0 WIDGET tier=web: Widget.a.example/a/x", "namespaced: Widget.a.example/a/y"],
        &[],
    );
}

#[test]
fn excluded_objects_may_match_a_later_group() {
    let objects = ["ConfigMap/a/keep uid=1", "ConfigMap/a/x uid=2"];
    let live = ["ConfigMap/a/keep uid=1 ours", "ConfigMap/a/x uid=2 ours"];
    let stays = "info uncovered: 1 object of the release will not be deleted: 1 ConfigMap";
    let plan = check(&objects, &["namespaced | -v1 cm name=keep"], &live, &["namespaced: ConfigMap/a/x"], &[stays]);
    assert_eq!(uncovered(&plan), ["ConfigMap/a/keep: excluded by deletionGroups[0]"]);
    let groups = ["namespaced | -v1 cm name=keep", "v1 cm"];
    check(&objects, &groups, &live, &["namespaced: ConfigMap/a/x", "v1 cm: ConfigMap/a/keep"], &[]);
}

#[test]
fn uid_and_label_decide_whose_an_object_is() {
    let other_uid = "no longer belongs to the release; it will not be deleted";
    for (object, live, task, note) in [
        ("ConfigMap/a/x uid=1", "ConfigMap/a/x uid=1 ours", true, None),
        ("ConfigMap/a/x uid=1", "ConfigMap/a/x uid=1", false, Some(("dangerous", "does not carry its label"))),
        (
            "ConfigMap/a/x uid=1 unlabelled",
            "ConfigMap/a/x uid=1",
            false,
            Some(("dangerous", "does not carry its label")),
        ),
        ("ConfigMap/a/x uid=1", "ConfigMap/a/x uid=2 ours", true, None),
        ("ConfigMap/a/x uid=1", "ConfigMap/a/x uid=2", false, Some(("warning", other_uid))),
        ("ConfigMap/a/x uid=1", "ConfigMap/a/x uid=2 of=other.app", false, Some(("warning", other_uid))),
        (
            "ConfigMap/a/x uid=1",
            "ConfigMap/a/x uid=1 of=other.app",
            false,
            Some(("warning", "label of release app/other")),
        ),
        ("ConfigMap/a/x", "ConfigMap/a/x uid=2 ours", true, None),
        ("ConfigMap/a/x", "ConfigMap/a/x uid=2", false, Some(("info", "was not created by the release"))),
        ("ConfigMap/a/x uid=1", "ConfigMap/a/y uid=1", false, None),
    ] {
        let plan = deletion(&[object], &[]).plan(&cluster(&[live])).unwrap();
        assert_eq!(plan.deletions() == 1, task, "{object} {live}");
        match (note, notes(&plan).as_slice()) {
            (None, []) => {}
            (Some((severity, text)), [one] | [one, _]) => {
                assert!(one.starts_with(severity) && one.contains(text), "{one}")
            }
            (note, found) => panic!("{object} {live}: {note:?} {found:?}"),
        }
    }
}

#[test]
fn recorded_objects_without_the_label_remain_unless_they_are_taken() {
    let live = cluster(&["ConfigMap/a/x uid=1", "ConfigMap/a/y uid=2 ours", "Secret/a/s uid=3"]);
    let mut request = deletion(&["ConfigMap/a/x uid=1", "ConfigMap/a/y uid=2", "Secret/a/s uid=3"], &["v1 cm"]);
    let plan = request.plan(&live).unwrap();
    assert_eq!(nodes(&plan), ["v1 cm: ConfigMap/a/y"]);
    let left = ["ConfigMap/a/x: it does not carry the release's label", "Secret/a/s: no group covers it"];
    assert_eq!(uncovered(&plan), left);
    assert!(is_dangerous(&plan));
    request.unlabelled = Unlabelled::Take;
    let plan = request.plan(&live).unwrap();
    assert_eq!(nodes(&plan), ["v1 cm: ConfigMap/a/x ConfigMap/a/y"]);
    assert!(is_dangerous(&plan));
    request.unlabelled = Unlabelled::Refuse;
    let problem = ["ConfigMap a/x is in the record of the release, but does not carry its label"];
    fails(&request, &live, PlanErrorKind::Refused, &problem);
    // A record that is stored apart from the objects is believed.
    request.objects = vec![wanted("ConfigMap/a/x uid=1 unlabelled"), wanted("ConfigMap/a/y uid=2")];
    request.record_here = false;
    let plan = request.plan(&live).unwrap();
    assert_eq!((nodes(&plan), notes(&plan)), (vec!["v1 cm: ConfigMap/a/x ConfigMap/a/y".to_owned()], Vec::new()));
}

#[test]
fn a_deletion_carries_the_uid_that_was_seen() {
    let plan = deletion(&["ConfigMap/a/x uid=1"], &[]).plan(&cluster(&["ConfigMap/a/x uid=2 ours"])).unwrap();
    let Work::Delete(work) = &plan.nodes[0].work else { panic!() };
    assert_eq!(work.objects[0].uid.as_str(), "2");
}

#[test]
fn labelled_objects_outside_the_inventory_are_noted() {
    let live = ["ConfigMap/a/x uid=1 ours", "ConfigMap/a/copy uid=2 ours"];
    let note =
        "warning order: 1 object with the release's label is not in its record and does not belong to it: 1 ConfigMap";
    check(&["ConfigMap/a/x uid=1"], &[], &live, &["namespaced-resources: ConfigMap/a/x"], &[note]);
}

#[test]
fn manifests_alone_find_their_objects_by_name() {
    let mut deletion = deletion(&["ConfigMap/a/x", "ConfigMap/a/y"], &[]);
    deletion.release = None;
    let plan = deletion.plan(&cluster(&["ConfigMap/a/x", "ConfigMap/a/y of=web.app"])).unwrap();
    assert_eq!(nodes(&plan), ["namespaced-resources: ConfigMap/a/x ConfigMap/a/y"]);
    assert_eq!(notes(&plan), ["dangerous other-release: ConfigMap a/y belongs to release app/web"]);
    assert!(is_dangerous(&plan) && plan.release.is_none());
}

#[test]
fn collections_contain_existing_and_future_objects() {
    let live = [
        "ConfigMap/a/x uid=1 ours",
        "ConfigMap/b/foreign",
        "ConfigMap/b/keep",
        "ConfigMap/b/kube-root-ca.crt",
        "Secret/a/s uid=2 ours",
    ];
    let left_out = "info order: deletionGroups[0]: ConfigMap kube-root-ca.crt is left out because Kubernetes recreates it in every namespace";
    let plan = check(
        &["ConfigMap/a/x uid=1", "Secret/a/s uid=2"],
        &["v1 cm all | -v1 cm name=keep", "namespaced"],
        &live,
        &["v1 cm all: ConfigMap/a/x ConfigMap/b/foreign; all configmaps", "namespaced: Secret/a/s"],
        &[left_out],
    );
    // One list shows the collection and the release's own objects.
    assert_eq!(plan.queries.len(), 2);
}

#[test]
fn a_collection_contains_recreated_objects() {
    let groups = ["v1 secrets all"];
    let live = ["Secret/a/s uid=2", "Secret/a/store uid=3 billhook.dev/inventory=x"];
    check(&["Secret/a/s uid=1"], &groups, &live, &["v1 secrets all: Secret/a/s; all secrets"], &[]);
}

#[test]
fn a_collection_may_be_empty_and_is_listed_in_its_namespaces_only() {
    let plan = check(
        &[],
        &["v1 secrets all ns=b ns=a name=x"],
        &["Secret/a/y", "Secret/c/x", "Secret/b/x"],
        &["v1 secrets all ns=b ns=a name=x: Secret/b/x; all secrets in namespace a; all secrets in namespace b"],
        &[],
    );
    assert!(plan.queries.iter().all(|query| query.select == Select::All));
    let five = ["v1 secrets all ns=a ns=b ns=c ns=d ns=e"];
    let plan = deletion(&[], &five).plan(&cluster(&["Secret/f/x", "Secret/e/x"])).unwrap();
    assert_eq!((plan.queries.len(), plan.deletions()), (1, 1));
    assert_eq!(plan.queries[0].namespaces, ["a", "b", "c", "d", "e"]);
}

#[test]
fn system_namespaces_are_never_deleted() {
    let live = ["Namespace/default uid=1 ours", "Namespace/kube-x uid=2 ours", "Namespace/b uid=3"];
    let objects = ["Namespace/default uid=1", "Namespace/kube-x uid=2"];
    let error = deletion(&objects, &["v1 ns all"]).plan(&cluster(&live)).unwrap_err();
    assert_eq!((error.kind, error.problems.len()), (PlanErrorKind::Refused, 2), "{error}");
    assert!(texts(&error)[0].starts_with("Namespace default is a system namespace and is never deleted"), "{error}");
    let plan = deletion(&objects, &["namespaced"]).plan(&cluster(&live)).unwrap();
    assert_eq!((plan.deletions(), plan.uncovered.len()), (0, 2), "no group covers them: they stay");
    let plan = check(&[], &["v1 ns all"], &live, &["v1 ns all: Namespace/b; all namespaces"], &[]);
    let Work::Delete(work) = &plan.nodes[0].work else { panic!() };
    for (name, taken) in [("kube-later", false), ("default", false), ("app", false), ("later", true)] {
        let Listed::Items { items, .. } = &cluster(&[&format!("Namespace/{name}")]).answer(&plan.queries)[0].found
        else {
            panic!()
        };
        assert_eq!(work.collections[0].contains(&items[0]), taken, "{name}");
    }
}

#[test]
fn collections_in_system_namespaces_are_dangerous_unless_named() {
    let live = ["ConfigMap/kube-system/x", "ConfigMap/a/y"];
    let plan = deletion(&[], &["v1 cm all"]).plan(&cluster(&live)).unwrap();
    assert_eq!(
        notes(&plan)[0],
        "dangerous system-namespace: deletionGroups[0] (v1 cm all) deletes 1 object in system namespaces: 1 ConfigMap"
    );
    assert!(!is_dangerous(&deletion(&[], &["v1 cm all ns=kube-system"]).plan(&cluster(&live)).unwrap()));
}

#[test]
fn the_namespace_of_the_inventory_is_deleted_last() {
    let objects = ["Namespace/app uid=1", "ConfigMap/app/x uid=2"];
    let live = ["Namespace/app uid=1 ours", "ConfigMap/app/x uid=2 ours"];
    let last = "info inventory-last: Namespace app holds the inventory of the release and is deleted last";
    let plan = check(
        &objects,
        &["v1 ns | force=5m | timeout=3m | orphan", "namespaced"],
        &live,
        &["namespaced: ConfigMap/app/x", "namespace app (holds the inventory): Namespace/app"],
        &[
            "warning force-stage: namespace app (holds the inventory): the finalizer a.example/f will be removed by force from objects that are being deleted, after 5m",
            last,
        ],
    );
    let node = &plan.nodes[1];
    let Work::Delete(work) = &node.work else { panic!() };
    assert!(work.force.is_some() && node.timeout.is_some() && work.propagation == billhook_policy::Propagation::Orphan);
    assert_eq!(node.path, "deletionGroups[0]");
    let plan = deletion(&objects, &["namespaced"]).plan(&cluster(&live)).unwrap();
    assert_eq!(uncovered(&plan), ["Namespace/app: no group covers it"]);
    let nodes_of_all = nodes(&deletion(&[], &["v1 ns all", "namespaced"]).plan(&cluster(&live)).unwrap());
    assert_eq!(nodes_of_all, ["v1 ns all:; all namespaces", "namespace app (holds the inventory): Namespace/app"]);
}

#[test]
fn an_update_never_deletes_the_inventory_or_the_new_version() {
    let mut update = deletion(&["Namespace/app uid=1", "ConfigMap/app/old uid=2"], &["v1 ns + v1 cm all"]);
    update.operation = Operation::Apply;
    let live = ["Namespace/app uid=1 ours", "ConfigMap/app/old uid=2 ours", "ConfigMap/app/new ours", "ConfigMap/b/x"];
    let plan = update.plan(&cluster(&live)).unwrap();
    assert_eq!(nodes(&plan), ["v1 ns + v1 cm all: ConfigMap/app/old ConfigMap/b/x; all configmaps"]);
    assert_eq!(uncovered(&plan), ["Namespace/app: it holds the inventory of the release"]);
}

#[test]
fn unserved_kinds_are_noted() {
    check(
        &["Gone.x.example/a/1 uid=1", "Gone.x.example/a/2 uid=2"],
        &["v1 widgets | -v1 nothing", "namespaced"],
        &[],
        &[],
        &[
            "warning not-served: deletionGroups[0]: the cluster does not serve nothing",
            "warning not-served: deletionGroups[0]: the cluster does not serve widgets; did you mean a.example/v1 Widget or b.example/v1 Widget?",
            "info not-served: not served by the cluster, so counted as gone: 2 Gone.x.example",
        ],
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let wrong = deletion(&[], &["a.example/v1 w", "a.example/v1 planets all | target=dns"]);
    let problems = [
        "deletionGroups[0]: w.a.example is ambiguous: it may be Wheel.a.example or Widget.a.example",
        "deletionGroups[1]: target \"dns\" is unknown",
    ];
    fails(&wrong, &Cluster::default(), PlanErrorKind::Input, &problems);
}

#[test]
fn objects_of_another_scope_count_as_gone() {
    let note = "warning scope-changed: recorded in another scope than the cluster now serves their kinds in, so counted as \
                gone: 2 Planet.a.example, 1 Widget.a.example";
    let objects =
        ["Widget.a.example/x uid=1", "Planet.a.example/a/x uid=2", "Planet.a.example/a/y uid=3", "ConfigMap/a/b uid=4"];
    let live = ["Widget.a.example/a/x ours", "Planet.a.example/x ours", "ConfigMap/a/b uid=4 ours"];
    check(&objects, &[], &live, &["namespaced-resources: ConfigMap/a/b"], &[note]);
}

#[test]
fn a_target_is_another_cluster() {
    let mut deletion = deletion(&["ConfigMap/a/x uid=1"], &["v1 cm all | target=edge", "namespaced"]);
    deletion.catalogs.targets.insert("edge".into(), catalog().into());
    let mut live = cluster(&["ConfigMap/a/x uid=1 ours"]);
    live.add(Some("edge"), "ConfigMap/b/y");
    let plan = deletion.plan(&live).unwrap();
    assert_eq!(
        nodes(&plan),
        ["v1 cm all | target=edge: ConfigMap/b/y; all configmaps on target edge", "namespaced: ConfigMap/a/x"]
            .map(|n| n.replace(" | target=edge:", ":"))
    );
    assert_eq!(plan.nodes[0].cluster.as_deref(), Some("edge"));
    assert_eq!(plan.nodes[1].after, [0]);
}

#[test]
fn unreadable_objects_are_problems() {
    let plain = deletion(&["ConfigMap/a/x uid=1"], &[]);
    let mut live = cluster(&["ConfigMap/a/x uid=1 ours"]);
    live.forbidden = vec!["configmaps".into()];
    live.unwatchable = true;
    let plan = plain.plan(&live).unwrap();
    assert_eq!(nodes(&plan), ["namespaced-resources: ConfigMap/a/x"]);
    let reads = "info single-reads: single reads replace list and watch: configmaps in namespace a";
    assert_eq!(notes(&plan), [reads]);
    live.forbidden = vec!["=configmaps".into()];
    fails(&plain, &live, PlanErrorKind::Unreadable, &["failed to list configmaps in namespace a: forbidden"]);
    let all = deletion(&[], &["v1 cm all"]);
    fails(&all, &live, PlanErrorKind::Unreadable, &["failed to list configmaps: forbidden"]);
    let error = Deletion::new(plain.request()).unwrap().plan(&Snapshot::default()).unwrap_err();
    assert_eq!(error.kind, PlanErrorKind::Unreadable);
}

#[test]
fn objects_of_an_unavailable_api_are_not_gone() {
    let mut dead = deletion(&["Metric.m.example/a/x uid=1"], &[]);
    let catalog = Arc::make_mut(&mut dead.catalogs.own);
    catalog.stale.push("m.example/v1".into());
    let problem = ["cannot look up Metric.m.example: the API m.example/v1 is unavailable"];
    fails(&dead, &Cluster::default(), PlanErrorKind::Unreadable, &problem);
    dead.objects.push(wanted("APIService/v1.m.example uid=2"));
    let plan = dead.plan(&cluster(&["APIService/v1.m.example uid=2 ours"])).unwrap();
    assert_eq!(
        notes(&plan),
        ["warning unreadable: the API is unavailable, so counted as deleted with its APIService: 1 Metric.m.example"]
    );
}

#[test]
fn unavailable_apis_block_namespaces() {
    let mut deletion = deletion(&["Namespace/b uid=1", "APIService/v1.m.example uid=2"], &["v1 ns", "cluster"]);
    Arc::make_mut(&mut deletion.catalogs.own).stale.push("m.example/v1".into());
    let live = cluster(&["Namespace/b uid=1 ours", "APIService/v1.m.example uid=2 ours"]);
    let holds = "aggregated APIs are unavailable; namespaces cannot finish deleting until they recover: m.example/v1";
    assert_eq!(notes(&deletion.plan(&live).unwrap()), [format!("warning dead-api-service: {holds}")]);
    deletion.groups = groups(&["cluster"]);
    let goes = "aggregated APIs are unavailable, but their APIServices are deleted no later than the first Namespace: m.example/v1";
    assert_eq!(notes(&deletion.plan(&live).unwrap()), [format!("info dead-api-service: {goes}")]);
}

#[test]
fn finalizers_are_counted_and_force_stages_announced() {
    let objects = ["ConfigMap/a/x uid=1", "ConfigMap/a/y uid=2", "ConfigMap/a/z uid=3"];
    let live =
        ["ConfigMap/a/x uid=1 ours fin=f", "ConfigMap/a/y uid=2 ours fin=f", "ConfigMap/a/z uid=3 ours fin=f deleting"];
    check(
        &objects,
        &["namespaced | force"],
        &live,
        &["namespaced: ConfigMap/a/x ConfigMap/a/y ConfigMap/a/z"],
        &[
            "warning finalizers: 1 ConfigMap already being deleted still carries the finalizer f",
            "warning force-stage: namespaced: all finalizers will be removed by force from objects that are being deleted, immediately",
            "info finalizers: 2 ConfigMap carry the finalizer f",
        ],
    );
}

#[test]
fn a_forced_crd_has_a_query_for_its_instances() {
    let objects = ["CustomResourceDefinition/widgets.a.example uid=1"];
    let live = ["CustomResourceDefinition/widgets.a.example uid=1 ours", "Widget.a.example/a/x"];
    let instances = |plan: &Plan| {
        let Work::Delete(work) = &plan.nodes[0].work else { panic!() };
        work.objects[0].instances.map(|query| plan.queries[query].scope().to_string())
    };
    let plan = deletion(&objects, &["crds | force"]).plan(&cluster(&live)).unwrap();
    assert_eq!(instances(&plan).as_deref(), Some("widgets.a.example"));
    assert_eq!(instances(&deletion(&objects, &["crds"]).plan(&cluster(&live)).unwrap()), None);
    let all = deletion(&[], &["apiextensions.k8s.io/v1 crd all | force"]);
    assert_eq!(instances(&all.plan(&cluster(&live)).unwrap()).as_deref(), Some("widgets.a.example"));
    let mut broken = cluster(&live);
    broken.forbidden = vec!["widgets".into()];
    let plan = deletion(&objects, &["crds | force"]).plan(&broken).unwrap();
    assert_eq!(instances(&plan), None);
    assert!(
        notes(&plan)[1].starts_with("warning unreadable: the force stage cannot remove the finalizers of instances"),
        "{:?}",
        notes(&plan)
    );
}

#[test]
fn uncovered_objects_may_be_deleted_with_their_namespace() {
    let objects = [
        "ConfigMap/b/x uid=1",
        "Namespace/b uid=2",
        "Widget.a.example/c/w uid=3",
        "CustomResourceDefinition/widgets.a.example uid=4",
    ];
    let live = [
        "ConfigMap/b/x uid=1 ours",
        "Namespace/b uid=2 ours",
        "Widget.a.example/c/w uid=3 ours",
        "CustomResourceDefinition/widgets.a.example uid=4 ours",
    ];
    let plan = deletion(&objects, &["cluster", "crds"]).plan(&cluster(&live)).unwrap();
    assert_eq!(
        uncovered(&plan),
        [
            "ConfigMap/b/x: no group covers it, but it is deleted with Namespace b",
            "Widget.a.example/c/w: no group covers it, but it is deleted with CustomResourceDefinition.apiextensions.k8s.io widgets.a.example",
        ]
    );
    assert_eq!(
        notes(&plan),
        [
            "warning uncovered: 2 objects that no group covers will be deleted with a Namespace or CRD: 1 ConfigMap, 1 Widget.a.example"
        ]
    );
}

#[test]
fn a_plan_survives_serialization() {
    let live =
        ["CustomResourceDefinition/widgets.a.example uid=1 ours fin=f", "Secret/b/x", "ConfigMap/a/x uid=2 ours"];
    let objects = ["CustomResourceDefinition/widgets.a.example uid=1", "ConfigMap/a/x uid=2"];
    let groups = ["v1 secrets all tier=web", "v1 ns all", "crds | force=5m", "v1 cm | timeout=1m"];
    let plan = deletion(&objects, &groups).plan(&cluster(&live)).unwrap();
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn too_many_deletions_are_dangerous() {
    let live = ["ConfigMap/a/x uid=1 ours", "ConfigMap/a/y uid=2 ours"];
    let mut plan = deletion(&["ConfigMap/a/x uid=1", "ConfigMap/a/y uid=2"], &[]).plan(&cluster(&live)).unwrap();
    limit_deletions(&mut plan, 2);
    assert!(!is_dangerous(&plan));
    limit_deletions(&mut plan, 1);
    assert_eq!(notes(&plan), ["dangerous too-many-deletions: the plan deletes 2 objects, more than the limit of 1"]);
}

#[test]
fn a_force_stage_after_the_time_limit_is_a_warning() {
    let live = ["ConfigMap/a/x uid=1 ours", "Secret/a/y uid=2 ours"];
    let groups = ["v1 configmaps | force=5m", "v1 secrets | force=20m"];
    let mut plan = deletion(&["ConfigMap/a/x uid=1", "Secret/a/y uid=2"], &groups).plan(&cluster(&live)).unwrap();
    let before = plan.notes.len();
    crate::warn_of_limit(&mut plan, std::time::Duration::from_secs(1200));
    assert_eq!(plan.notes.len(), before);
    crate::warn_of_limit(&mut plan, std::time::Duration::from_secs(600));
    let note = notes(&plan).into_iter().find(|note| note.contains("force-beyond-limit")).unwrap_or_default();
    assert!(note.contains("the time limit of 10m ends before forceAfter (20m) has passed"), "{note}");
}

#[test]
fn the_documented_example_is_what_is_printed() {
    let objects = ["ConfigMap/shop/settings uid=1f0c", "Namespace/shop uid=93ab", "Secret/shop/token uid=77de"];
    let live = [
        "ConfigMap/shop/settings uid=1f0c ours fin=shop.example/guard",
        "Namespace/shop uid=93ab ours",
        "Secret/shop/token uid=77de ours",
        "Secret/shop/foreign",
    ];
    let mut deletion = deletion(&objects, &["v1 configmaps all ns=shop | force=5m", "cluster | timeout=3m"]);
    deletion.groups[0].title = "configmaps".into();
    deletion.groups[1].title = "cluster-scoped-resources".into();
    let documented = include_str!("../../../../docs/plan.md");
    let example = documented.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let printed = serde_json::to_value(deletion.blast(&cluster(&live))).unwrap();
    let same = serde_json::from_str::<serde_json::Value>(example).is_ok_and(|example| example == printed);
    assert!(same, "docs/plan.md should hold:\n{printed:#}");
}
