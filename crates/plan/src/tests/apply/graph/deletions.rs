use super::*;

/// Returns what was found of the objects to delete, one a line.
fn found(plan: &Plan) -> Vec<String> {
    let line = |deletion: &RequestedDeletion| {
        let state = serde_json::to_value(deletion).unwrap();
        let recorded = if deletion.recorded { " recorded" } else { "" };
        let before = deletion.deleted_before.as_ref().map(|at| format!(" before {at}")).unwrap_or_default();
        format!("{}: {}{recorded}{before}", deletion.object, state["state"].as_str().unwrap())
    };
    plan.requested_deletions.iter().map(line).collect()
}

#[test]
fn what_is_found_decides_about_a_deletion() {
    for (entry, live, deletes, adopt, nodes, expected) in [
        ("", "", true, false, "", Ok("not-found")),
        ("ConfigMap/a/x 1", "", true, false, "", Ok("not-found recorded")),
        (
            "ConfigMap/a/x 1",
            "ConfigMap/a/x uid=1 ours",
            true,
            false,
            "n: ConfigMap/a/x(delete 1)",
            Ok("to-delete recorded"),
        ),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 ours", false, false, "", Ok("left recorded")),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 ours deleting", true, false, "", Ok("deleting recorded")),
        ("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 ours deleting", false, false, "", Ok("deleting recorded")),
        // Recreated by an operator that knows the label.
        (
            "ConfigMap/a/x 1",
            "ConfigMap/a/x uid=2 ours",
            true,
            false,
            "n: ConfigMap/a/x(delete 2)",
            Ok("to-delete recorded"),
        ),
        ("", "ConfigMap/a/x uid=2", true, false, "", Err("ConfigMap a/x exists and belongs to no release")),
        ("", "ConfigMap/a/x uid=2", false, false, "", Ok("left")),
        ("", "ConfigMap/a/x uid=2 deleting", true, false, "", Ok("deleting")),
        ("", "ConfigMap/a/x uid=2", true, true, "n: ConfigMap/a/x(delete 2)", Ok("to-delete")),
        ("", "ConfigMap/a/x uid=2 of=db.app", true, true, "", Err("ConfigMap a/x belongs to release app/db")),
        (
            "",
            "ConfigMap/a/x uid=2 ours",
            true,
            false,
            "",
            Err("ConfigMap a/x carries the label of the release, but is not in its record"),
        ),
        (
            "ConfigMap/a/x 1",
            "ConfigMap/a/x uid=1",
            true,
            false,
            "",
            Err("ConfigMap a/x is in the record of the release, but does not carry its label"),
        ),
    ] {
        let entries: &[&str] = if entry.is_empty() { &[] } else { &[entry] };
        let mut deployment = ordered(&["v1 ConfigMap/a/x"], &["n: -0"]).knowing(entries);
        deployment.adopt = adopt;
        deployment.graph.as_mut().unwrap().deletes = deletes;
        let live: &[&str] = if live.is_empty() { &[] } else { &[live] };
        let plan = deployment.plan(&cluster(live)).map_err(|error| texts(&error).concat());
        let shown = plan.map(|plan| (super::nodes(&plan).concat(), found(&plan).concat()));
        let expected = expected.map(|state| (nodes.to_owned(), format!("ConfigMap/a/x: {state}")));
        assert_eq!(shown, expected.map_err(str::to_owned), "{entry} {live:?}");
    }
}

#[test]
fn annotations_keep_what_a_manifest_deletes() {
    let check = |annotation: &str, state: &str, unmanaged: usize, note: &str| {
        let deployment = ordered(&["v1 ConfigMap/a/x"], &["n: -0"]).knowing(&["ConfigMap/a/x 1"]);
        let plan = deployment.plan(&cluster(&[&format!("ConfigMap/a/x uid=1 ours {annotation}")])).unwrap();
        assert_eq!(found(&plan), [format!("ConfigMap/a/x: {state} recorded")]);
        assert_eq!(plan.unmanaged.len(), unmanaged, "{annotation}");
        let notes = notes(&plan);
        assert!(notes.iter().any(|found| found.contains(note)), "{notes:#?}");
    };
    check("@keep-object=true", "kept", 0, "1 object annotated with keep-object will not be deleted");
    check("@mode=Ignore", "kept", 1, "no longer managed");
    // The pass does not wait until the object is gone.
    let keeps =
        "warning annotation: ConfigMap a/x is annotated with finalize-deletion-after, but will keep its finalizers";
    check("@finalize-deletion-after=1h", "to-delete", 0, keeps);
    check("deleting @finalize-deletion-after=1h", "deleting", 0, keeps);
}

/// An object that was deleted is looked up by a single read, so that the others of its kind remain one list.
#[test]
fn objects_that_are_gone_are_read_one_by_one() {
    let lines = ["v1 ConfigMap/a/x", "v1 ConfigMap/a/y", "v1 ConfigMap/a/z", "v1 Secret/a/s"];
    let asked = |entries: &[&str]| {
        let deployment = ordered(&lines, &["n: 0 -1 -2 -3"]).knowing(entries);
        let name = release();
        let deployment = Deployment::new(deployment.request(&name)).unwrap();
        deployment.queries().iter().map(crate::tests::queries::shown).collect::<Vec<_>>()
    };
    let label = "configmaps/v1@a billhook.dev/release=web.app";
    assert_eq!(asked(&["ConfigMap/a/x 1"]), [label, "configmaps/v1@a get y+z", "secrets/v1@a get s"]);
    assert_eq!(asked(&["ConfigMap/a/x 1", "ConfigMap/a/y 2"]), [label, "configmaps/v1@a get z", "secrets/v1@a get s"]);
    // Nothing is known of the one to apply.
    assert_eq!(asked(&[]), ["configmaps/v1@a x", "configmaps/v1@a get y+z", "secrets/v1@a get s"]);
}

/// Its kind is gone, so nothing tells that it had a namespace.
#[test]
fn an_object_of_a_kind_that_is_gone_is_the_recorded_one() {
    let check = |entries: &[&str], expected: &str| {
        let deployment = ordered(&["z.example/v1 Gizmo/g"], &["n: -0"]).knowing(entries);
        assert_eq!(found(&deployment.check(&[], &[])), [expected]);
    };
    check(&["Gizmo.z.example/app/g 1"], "Gizmo.z.example/app/g: not-found recorded");
    check(&["Gizmo.z.example/app/h 1"], "Gizmo.z.example/g: not-found");
}

#[test]
fn an_object_that_reappeared_is_deleted_again() {
    let reappeared = |live: &str| {
        let mut deployment = ordered(&["v1 ConfigMap/a/x"], &["n: -0"]).knowing(&[]);
        deployment.inventory.as_mut().unwrap().deleted.insert(key("ConfigMap/a/x"), "then".to_owned());
        deployment.plan(&cluster(&[live])).map(|plan| (nodes(&plan).concat(), found(&plan).concat()))
    };
    let again = ("n: ConfigMap/a/x(delete 2)".to_owned(), "ConfigMap/a/x: to-delete before then".to_owned());
    assert_eq!(reappeared("ConfigMap/a/x uid=2"), Ok(again.clone()));
    assert_eq!(reappeared("ConfigMap/a/x uid=2 ours"), Ok(again));
    assert_eq!(
        texts(&reappeared("ConfigMap/a/x uid=2 of=db.app").unwrap_err()),
        ["ConfigMap a/x belongs to release app/db"]
    );
}

#[test]
fn an_object_of_an_unknown_kind_counts_as_gone() {
    let deployment =
        ordered(&["v1 ConfigMap/a/x", "z.example/v1 Gizmo/a/g", "a.example/v7 Widget/a/w"], &["n: 0 -1 -2"]);
    let plan = deployment.check(&[], &["n: ConfigMap/a/x(create)"]);
    assert_eq!(
        found(&plan),
        ["Gizmo.z.example/a/g: not-found", "Widget.a.example/app/w: not-found"].map(|l| l.replace("app/w", "a/w"))
    );
    // The version of an object to delete only selects the URL.
    let deployment = deployment.knowing(&["Widget.a.example/a/w 1"]);
    let plan = deployment
        .check(&["Widget.a.example/a/w uid=1 ours"], &["n: ConfigMap/a/x(create) Widget.a.example/a/w(delete 1)"]);
    assert_eq!(plan.delete_steps().next().unwrap().resource.version, "v1");
    let mut unavailable = ordered(&["z.example/v1 Gizmo/a/g"], &["n: -0"]);
    let mut catalog = catalog();
    catalog.stale.push("z.example/v1".to_owned());
    unavailable.catalogs = Catalogs::own(catalog);
    let problem = "cannot look up Gizmo.z.example: the API z.example/v1 is unavailable";
    unavailable.fails(&[], PlanErrorKind::Unreadable, &[problem]);
}

#[test]
fn a_list_that_fails_leaves_a_deletion_open() {
    let deployment = ordered(&["v1 ConfigMap/a/x"], &["n: -0"]);
    let mut live = cluster(&[]);
    live.forbidden.push("=configmaps".into());
    assert_eq!(deployment.plan(&live).unwrap_err().kind, PlanErrorKind::Unreadable);
}

#[test]
fn an_object_to_delete_is_not_pruned() {
    let deployment = ordered(&["v1 ConfigMap/a/x"], &["n: -0"]).knowing(&["ConfigMap/a/x 1"]);
    let plan = deployment.check(&["ConfigMap/a/x uid=1 ours"], &["n: ConfigMap/a/x(delete 1)"]);
    assert!(plan.uncovered.is_empty() && plan.notes.is_empty(), "{:?}", plan.notes);
}

#[test]
fn what_a_deleted_container_holds_is_noted() {
    let lines = ["v1 Namespace/n", "v1 ConfigMap/n/x"];
    let mut deployment = ordered(&lines, &["n: -0 -1"]);
    deployment.prune = false;
    let deployment =
        deployment.knowing(&["Namespace/n 1", "ConfigMap/n/x 2", "Secret/n/dropped 3", "Secret/a/other 4"]);
    let live = cluster(&[
        "Namespace/n uid=1 ours",
        "ConfigMap/n/x uid=2 ours",
        "Secret/n/dropped uid=3 ours",
        "Pod/n/theirs uid=5",
    ]);
    let mut plan = deployment.plan(&live).unwrap();
    let contents = Snapshot { listings: live.answer(&blast_queries(&plan, &deployment.catalogs)) };
    add_blast_notes(&mut plan, &contents, Some(&release()));
    limit_deletions(&mut plan, 1);
    assert_eq!(
        notes(&plan),
        [
            "dangerous foreign-objects: deleting Namespace n also deletes 1 object that the release did not create: 1 Pod",
            "dangerous too-many-deletions: the plan deletes 4 objects, more than the limit of 1",
            "warning uncovered: 1 object that no group covers will be deleted with a Namespace or CRD: 1 Secret",
            "info uncovered: 2 objects that the new version no longer contains will not be pruned: 2 Secret",
        ]
    );
    assert_eq!(plan.deletions(), 2);
}

#[test]
fn containers_that_applied_objects_need_are_not_deleted() {
    let crd = "apiextensions.k8s.io/v1 CustomResourceDefinition/widgets.a.example";
    let lines = ["v1 Namespace/n", "v1 ConfigMap/n/x", "v1 ConfigMap/n/y", crd, "a.example/v1 Widget/a/w"];
    let deployment = ordered(&lines, &["n: -0 1 2 -3 4"]);
    let problems = [
        "Namespace n is to be deleted, but 2 objects to apply need it",
        "CustomResourceDefinition.apiextensions.k8s.io widgets.a.example is to be deleted, but 1 object to apply needs it",
    ];
    deployment.fails(&[], PlanErrorKind::Input, &problems);
    // Their contents may be deleted with them.
    ordered(&lines, &["n: -0 -1 -2 -3 -4"]).check(&[], &[]);
}

#[test]
fn namespaces_that_no_update_deletes_are_refused() {
    let lines = ["v1 Namespace/app", "v1 Namespace/kube-x"];
    let deployment = ordered(&lines, &["n: -0 -1"]).knowing(&["Namespace/app 1", "Namespace/kube-x 2"]);
    let live = ["Namespace/app uid=1 ours", "Namespace/kube-x uid=2 ours"];
    let problems = [
        "Namespace app holds the inventory of the release and is not deleted by an update",
        "Namespace kube-x is a system namespace and is not deleted by an update",
    ];
    deployment.fails(&live, PlanErrorKind::Refused, &problems);
}

#[test]
fn the_namespace_of_an_object_to_delete_need_not_exist() {
    let mut deployment = ordered(&["v1 ConfigMap/n/x"], &["n: -0"]);
    deployment.missing_namespaces = MissingNamespaces::Refuse;
    assert_eq!(found(&deployment.check(&["Namespace/app"], &[])), ["ConfigMap/n/x: not-found"]);
}
