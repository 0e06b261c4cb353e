use std::num::NonZeroUsize;

use proptest::prelude::*;

use super::*;

/// Reads a graph, one node a line: `TITLE [after 0 1]: [!]0 -1`, where `!` waits until ready and `-` deletes.
fn graph(lines: &[&str]) -> TaskGraph {
    let node = |line: &&str| {
        let (head, steps) = line.split_once(':').unwrap();
        let (title, after) = head.split_once(" after ").unwrap_or((head, ""));
        let step = |text: &str| {
            let action = match text.as_bytes()[0] {
                b'-' => StepAction::Delete,
                mark => StepAction::Apply { wait: mark == b'!' },
            };
            TaskStep { manifest: text.trim_start_matches(['-', '!']).parse().unwrap(), action }
        };
        TaskNode {
            title: title.to_owned(),
            after: after.split_whitespace().map(|at| at.parse().unwrap()).collect(),
            steps: steps.split_whitespace().map(step).collect(),
        }
    };
    TaskGraph { nodes: lines.iter().map(node).collect(), deletes: true, ..TaskGraph::default() }
}

/// Returns a deployment of the manifests by a graph. Kinds of objects to delete need not be served.
fn ordered(lines: &[&str], nodes: &[&str]) -> TestDeployment {
    let graph = graph(nodes);
    let (deleted, all) = (graph.deleted(), manifests(lines));
    let applied = lines.iter().enumerate().filter(|(at, _)| !deleted.contains(at)).map(|(_, line)| *line);
    let mut deployment = deployment(&applied.collect::<Vec<_>>());
    let catalog = deployment.catalogs.own.clone();
    deployment.manifests = prepare(all, &release(), Some(release().namespace()), &catalog, Some(&graph)).unwrap();
    deployment.graph = Some(graph);
    deployment
}

fn after(plan: &Plan) -> Vec<&[usize]> {
    plan.nodes.iter().map(|node| node.after.as_slice()).collect()
}

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
fn a_graph_replaces_the_groups() {
    let lines = ["v1 ConfigMap/a/x", "v1 Secret/a/y", "apps/v1 Deployment/a/z", "v1 ConfigMap/a/w"];
    let mut deployment = ordered(&lines, &["one: 0", "two after 0: 1 !2", "three after 0: !3"]);
    deployment.policy.deployment = vec![deploy_group("v1 cm", WaitFor::Ready)];
    deployment.graph.as_mut().unwrap().workers = NonZeroUsize::new(2);
    let plan = deployment.check(
        &["ConfigMap/a/x uid=1 ours"],
        &[
            "one: ConfigMap/a/x(update)",
            "two: Secret/a/y(create) Deployment.apps/a/z(create!)",
            // A ConfigMap has no status.
            "three: ConfigMap/a/w(create)",
        ],
    );
    assert_eq!(after(&plan), [&[][..], &[0], &[0]]);
    assert_eq!((plan.workers, plan.continue_on_failure), (NonZeroUsize::new(2), true));
    assert_eq!(plan.nodes[1].barrier, Barrier::Ready);
    assert_eq!(plan.nodes[0].barrier, Barrier::Requested);
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn the_documented_graph_is_what_is_printed() {
    let deployment = ordered(&["v1 ConfigMap/shop/settings", "v1 Secret/shop/old"], &["10 shop: 0 -1"]);
    let mut deployment = deployment.knowing(&["Secret/shop/old 77de"]);
    let graph = deployment.graph.as_mut().unwrap();
    graph.workers = NonZeroUsize::new(16);
    graph.retries = ["10s", "13s", "15s"].map(|pause| pause.parse().unwrap()).to_vec();
    let plan = deployment.plan(&cluster(&["Secret/shop/old uid=77de ours"])).unwrap();
    let documented = include_str!("../../../../../docs/plan.md");
    let example = documented.split("```json\n").nth(2).and_then(|rest| rest.split("```").next()).unwrap();
    let example: serde_json::Value = serde_json::from_str(example).unwrap();
    let printed = serde_json::to_value(&plan).unwrap();
    assert!(example == printed, "docs/plan.md should hold:\n{printed:#}");
    // A plan of an earlier version has none of the fields for graphs.
    let earlier = serde_json::json!({"format": 1, "operation": "apply", "nodes": [], "queries": [], "uncovered": [], "notes": []});
    let earlier: Plan = serde_json::from_value(earlier).unwrap();
    assert!(!earlier.continue_on_failure && earlier.workers.is_none() && earlier.requested_deletions.is_empty());
}

#[test]
fn the_rules_of_an_apply_hold_in_a_graph() {
    let deployment = || ordered(&["v1 ConfigMap/a/x", "v1 ConfigMap/a/y"], &["n: 0 1"]);
    let known = deployment().knowing(&["ConfigMap/a/x 1", "ConfigMap/a/y 2"]);
    let live = ["ConfigMap/a/x uid=1 ours", "ConfigMap/a/y uid=2 rv=2 ours"];
    let plan = known.check(&live, &["n: ConfigMap/a/x(unchanged) ConfigMap/a/y(update)"]);
    let uids: Vec<_> = plan.apply_tasks().map(|task| task.uid.as_ref().map(|uid| uid.as_str().to_owned())).collect();
    assert_eq!(uids, [None, Some("2".to_owned())]);
    let stranger = ["ConfigMap/a/x uid=3"];
    deployment().fails(&stranger, PlanErrorKind::Refused, &["ConfigMap a/x exists and belongs to no release"]);
    let adopting = TestDeployment { adopt: true, ..deployment() };
    adopting.check(&stranger, &["n: ConfigMap/a/x(adopt) ConfigMap/a/y(create)"]);
    let mut create_only = deployment().knowing(&["ConfigMap/a/x 1"]);
    let immutable = Directives { policy: billhook_policy::ManifestPolicy::Immutable, ..Directives::default() };
    create_only.directives = [(key("ConfigMap/a/x"), immutable.clone()), (key("ConfigMap/a/y"), immutable)].into();
    create_only.check(&["ConfigMap/a/x uid=1 rv=2 ours"], &["n: ConfigMap/a/x(unchanged) ConfigMap/a/y(create)"]);
}

#[test]
fn a_check_is_part_of_its_task() {
    let lines = ["v1 ConfigMap/a/w", "apps/v1 Deployment/a/x", "apps/v1 Deployment/a/y"];
    let mut deployment = ordered(&lines, &["n: 0 1 2"]).knowing(&["Deployment.apps/a/x 1"]);
    let steps = &mut deployment.graph.as_mut().unwrap().nodes[0].steps;
    steps[1].action = StepAction::Check { wait: false, health: Health::Installed };
    steps[2].action = StepAction::Check { wait: true, health: Health::Installing };
    let plan = deployment.check(
        &["Deployment.apps/a/x uid=1 ours"],
        &["n: ConfigMap/a/w(create) Deployment.apps/a/x(unchanged) Deployment.apps/a/y(create!)"],
    );
    let health: Vec<_> = plan.apply_tasks().map(|task| task.health).collect();
    assert_eq!(health, [None, Some(Health::Installed), Some(Health::Installing)]);
    let printed = serde_json::to_value(&plan).unwrap();
    let steps = &printed["nodes"][0]["work"]["sequence"]["steps"];
    assert_eq!(steps[1]["apply"]["health"], "installed");
    assert!(steps[0]["apply"].get("health").is_none());
    assert_eq!(serde_json::from_value::<Plan>(printed).unwrap(), plan);
}

#[test]
fn a_manifest_that_only_creates_leaves_objects_of_others() {
    let create_only =
        Directives { policy: billhook_policy::ManifestPolicy::Immutable, leave_others: true, ..Directives::default() };
    let check = |entry: &str, live: &str, adopt: bool, expected: &str, noted: bool| {
        let entry: &[&str] = if entry.is_empty() { &[] } else { &[entry] };
        let live: &[&str] = if live.is_empty() { &[] } else { &[live] };
        let mut deployment = ordered(&["v1 ConfigMap/a/x", "v1 Secret/a/s"], &["n: 0 1"]).knowing(entry);
        deployment.adopt = adopt;
        deployment.directives.insert(key("ConfigMap/a/x"), create_only.clone());
        let plan = deployment.check(live, &[&format!("n: {expected}Secret/a/s(create)")]);
        let note = "info create-only: ConfigMap a/x does not belong to the release and remains unchanged: its manifest \
                    only creates it";
        assert_eq!(notes(&plan).contains(&note.to_owned()), noted, "{:?}", notes(&plan));
    };
    check("", "", false, "ConfigMap/a/x(create) ", false);
    check("ConfigMap/a/x 1", "ConfigMap/a/x uid=1 ours", false, "ConfigMap/a/x(unchanged) ", false);
    for adopt in [false, true] {
        check("", "ConfigMap/a/x uid=1", adopt, "", true);
        check("", "ConfigMap/a/x uid=1 of=db.app", adopt, "", true);
        check("ConfigMap/a/x 1", "ConfigMap/a/x uid=2", adopt, "", true);
    }
}

#[test]
fn an_object_that_others_create_meanwhile_is_left_to_them() {
    let directives = |leave_others| Directives { leave_others, ..Directives::default() };
    for (leaves, live, expected) in
        [(true, &[][..], true), (false, &[], false), (true, &["ConfigMap/a/x uid=1 ours"], false)]
    {
        let mut deployment = ordered(&["v1 ConfigMap/a/x"], &["n: 0"]).knowing(&["ConfigMap/a/x 1"]);
        deployment.directives.insert(key("ConfigMap/a/x"), directives(leaves));
        let plan = deployment.plan(&cluster(live)).unwrap();
        assert_eq!(
            plan.apply_tasks().map(|task| task.leave_others).collect::<Vec<_>>(),
            [expected],
            "{leaves} {live:?}"
        );
    }
}

/// Its step fails alone, as in the reference: an operator may define the kind meanwhile.
#[test]
fn what_the_cluster_does_not_serve_fails_its_step_only() {
    let catalog = deployment(&["v1 ConfigMap/a/x"]).catalogs.own.clone();
    let lines =
        ["v1 ConfigMap/a/x", "shop.example/v1 Gizmo/b/y", "v2 ConfigMap/a/z", "extensions/v1beta1 Deployment/a/d"];
    let order = graph(&["one: 0", "two: 1 2 3"]);
    let prepared = |catalog| prepare(manifests(&lines), &release(), Some(release().namespace()), catalog, Some(&order));
    let mut deployment = deployment(&["v1 ConfigMap/a/x"]);
    deployment.manifests = prepared(&catalog).unwrap();
    deployment.graph = Some(order.clone());
    // Nothing is known of the namespace of an object whose kind is unknown, so it is not looked up.
    let plan = deployment.plan(&cluster(&["ConfigMap/a/z uid=1"])).unwrap();
    let shown = plan.nodes[1].work.steps().iter().map(|step| match step {
        Step::Unserved(step) => format!("{}: {step}", step.object),
        step => panic!("{step:?}"),
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "Gizmo.shop.example/b/y: the cluster does not serve Gizmo in shop.example/v1",
            "ConfigMap/a/z: the cluster does not serve ConfigMap in v2; did you mean v1 ConfigMap?",
            "Deployment.extensions/a/d: the cluster does not serve Deployment in extensions/v1beta1; did you mean apps/v1 \
             Deployment?",
        ]
    );
    assert_eq!((plan.apply_tasks().count(), plan.nodes[0].work.steps().len()), (1, 1));
    let printed = serde_json::to_value(&plan).unwrap();
    assert_eq!(printed["nodes"][1]["work"]["sequence"]["steps"][0]["unserved"]["apiVersion"], "shop.example/v1");
    assert_eq!(serde_json::from_value::<Plan>(printed).unwrap(), plan);
    // A version that the payload itself adds to a kind is served when its step runs.
    let lines = ["apiextensions.k8s.io/v1 CustomResourceDefinition/widgets.a.example", "a.example/v2 Widget/a/w"];
    let mut adding = super::deployment(&["a.example/v1 Widget/a/w"]);
    let mut all = manifests(&lines);
    let versions = |names: &[&str]| {
        names.iter().map(|v| serde_json::json!({"name": v, "served": true, "storage": *v == "v1"})).collect::<Vec<_>>()
    };
    let definition = serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.a.example"},
        "spec": {"group": "a.example", "scope": "Namespaced", "names": {"kind": "Widget", "plural": "widgets"},
                 "versions": versions(&["v1", "v2"])},
    });
    let definition = billhook_objects::yaml::Document { line: 1, value: definition };
    all[0] = Manifest::from_document(definition, &"f.yaml".into()).unwrap().remove(0);
    let order = graph(&["n: 0 1"]);
    let catalog = adding.catalogs.own.clone();
    adding.manifests = prepare(all, &release(), Some(release().namespace()), &catalog, Some(&order)).unwrap();
    adding.graph = Some(order);
    let shown = super::nodes(&adding.plan(&cluster(&["Widget.a.example/a/w uid=1 ours"])).unwrap());
    assert!(shown.concat().ends_with("Widget.a.example/a/w(update)"), "{shown:?}");
    // A slip of the pen never succeeds.
    let slip = prepare(manifests(&["v1 Configmap/a/x"]), &release(), None, &catalog, Some(&graph(&["n: 0"])));
    assert_eq!(super::texts(&slip.unwrap_err()), ["f.yaml:2: kind \"Configmap\" must be spelled \"ConfigMap\""]);
}

#[test]
fn one_object_can_be_adopted() {
    let mut deployment = ordered(&["v1 ConfigMap/a/x", "v1 ConfigMap/a/y"], &["n: 0 1"]);
    deployment.directives.insert(key("ConfigMap/a/x"), Directives { adopt: true, ..Directives::default() });
    let plan = deployment.check(&["ConfigMap/a/x uid=1"], &["n: ConfigMap/a/x(adopt) ConfigMap/a/y(create)"]);
    assert!(plan.apply_tasks().all(|task| !task.adopt));
    let plan = deployment.check(&[], &["n: ConfigMap/a/x(create) ConfigMap/a/y(create)"]);
    let adopted: Vec<_> = plan.apply_tasks().map(|task| task.adopt).collect();
    assert_eq!(adopted, [true, false]);
    let both = ["ConfigMap/a/x uid=1", "ConfigMap/a/y uid=2"];
    deployment.fails(&both, PlanErrorKind::Refused, &["ConfigMap a/y exists and belongs to no release"]);
    let others = ["ConfigMap/a/x uid=1 of=db.app"];
    deployment.fails(&others, PlanErrorKind::Refused, &["ConfigMap a/x belongs to release app/db"]);
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

#[test]
fn a_crd_is_awaited_unless_it_is_unchanged() {
    let crd = "apiextensions.k8s.io/v1 CustomResourceDefinition/widgets.a.example";
    let shown = "CustomResourceDefinition.apiextensions.k8s.io/widgets.a.example";
    let key = "CustomResourceDefinition/widgets.a.example";
    let entry = format!("{key} 1");
    for (step, live, expected) in [
        ("0", None, "create!"),
        ("0", Some("rv=2"), "update!"),
        ("0", Some("rv=1"), "unchanged"),
        ("!0", Some("rv=1"), "unchanged!"),
    ] {
        let deployment = ordered(&[crd], &[&format!("n: {step}")]).knowing(&[&entry]);
        let live: Vec<_> = live.iter().map(|version| format!("{key} uid=1 {version} ours")).collect();
        let live: Vec<&str> = live.iter().map(String::as_str).collect();
        deployment.check(&live, &[&format!("n: {shown}({expected})")]);
    }
}

/// What the list showed of the status counts only where nothing changes during the run.
#[test]
fn what_the_list_shows_as_ready_is_not_awaited_if_nothing_changes() {
    let lines = ["apps/v1 Deployment/a/x", "v1 ConfigMap/a/y"];
    let x = "Deployment.apps/a/x";
    let check = |nodes: &[&str], live: [&str; 2], expected: &str| {
        let deployment = ordered(&lines, nodes).knowing(&[&format!("{x} 1"), "ConfigMap/a/y 2"]);
        let live = [format!("{x} uid=1 ours {}", live[0]), format!("ConfigMap/a/y uid=2 ours {}", live[1])];
        let plan = deployment.plan(&cluster(&[&live[0], &live[1]])).unwrap();
        assert_eq!(super::nodes(&plan), [expected], "{nodes:?} {live:?}");
    };
    let unchanged = "n: Deployment.apps/a/x(unchanged) ConfigMap/a/y(unchanged)";
    let awaited = "n: Deployment.apps/a/x(unchanged!) ConfigMap/a/y(unchanged)";
    check(&["n: !0 1"], ["ready", ""], unchanged);
    check(&["n: !0 1"], ["", ""], awaited);
    check(&["n: !0 1"], ["ready", "rv=2"], "n: Deployment.apps/a/x(unchanged!) ConfigMap/a/y(update)");
    check(&["n: !0 1"], ["ready rv=2", ""], "n: Deployment.apps/a/x(update!) ConfigMap/a/y(unchanged)");
    check(&["n: !0 -1"], ["ready", ""], "n: Deployment.apps/a/x(unchanged!) ConfigMap/a/y(delete 2)");
    check(&["n: !0 -1"], ["ready", "deleting"], "n: Deployment.apps/a/x(unchanged)");
}

#[test]
fn only_lists_by_label_of_awaited_kinds_read_the_status() {
    let asked = |entries: &[&str]| {
        let deployment = ordered(&["apps/v1 Deployment/a/x", "v1 ConfigMap/a/y"], &["n: !0 1"]).knowing(entries);
        let name = release();
        let deployment = Deployment::new(deployment.request(&name)).unwrap();
        let queries = deployment.queries().iter().filter(|query| deployment.needs_readiness(query));
        queries.map(|query| query.resource.plural.clone()).collect::<Vec<_>>()
    };
    assert_eq!(asked(&["Deployment.apps/a/x 1", "ConfigMap/a/y 2"]), ["deployments"]);
    // It may be anybody's, so it is looked up by name.
    assert_eq!(asked(&["ConfigMap/a/y 2"]), [""; 0]);
}

/// An object that was deleted is looked up by a single read, so that the others of its kind remain one list.
#[test]
fn objects_that_are_gone_are_read_one_by_one() {
    let lines = ["v1 ConfigMap/a/x", "v1 ConfigMap/a/y", "v1 ConfigMap/a/z", "v1 Secret/a/s"];
    let asked = |entries: &[&str]| {
        let deployment = ordered(&lines, &["n: 0 -1 -2 -3"]).knowing(entries);
        let name = release();
        let deployment = Deployment::new(deployment.request(&name)).unwrap();
        deployment.queries().iter().map(super::super::queries::shown).collect::<Vec<_>>()
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
fn a_node_without_steps_is_left_out() {
    let lines = ["v1 ConfigMap/a/x", "v1 ConfigMap/a/y", "v1 ConfigMap/a/z"];
    let deployment = ordered(&lines, &["one: 0", "two after 0: -1", "three after 1: 2"]);
    let plan = deployment.check(&[], &["one: ConfigMap/a/x(create)", "three: ConfigMap/a/z(create)"]);
    assert_eq!(after(&plan), [&[][..], &[0]]);
}

#[test]
fn manifests_that_no_step_names_come_first() {
    let lines = ["v1 ConfigMap/a/x", "v1 ConfigMap/a/y", "v1 Namespace/a"];
    let deployment = ordered(&lines, &["one: 0", "two: 1"]);
    let expected =
        ["objects in no node: Namespace/a(create)", "one: ConfigMap/a/x(create)", "two: ConfigMap/a/y(create)"];
    assert_eq!(after(&deployment.check(&[], &expected)), [&[][..], &[0], &[0]]);
}

#[test]
fn pruning_follows_all_nodes() {
    let lines = ["v1 ConfigMap/a/x", "v1 ConfigMap/a/y"];
    let deployment = ordered(&lines, &["one: 0", "two: 1"]).knowing(&["Secret/a/old 1", "Secret/a/x 2"]);
    let plan = deployment.plan(&cluster(&["Secret/a/old uid=1 ours"])).unwrap();
    assert_eq!(nodes(&plan)[2], "namespaced-resources: Secret/a/old");
    assert_eq!(after(&plan), [&[][..], &[], &[0, 1]]);
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
fn an_order_that_can_never_work_is_a_problem() {
    let crd = "apiextensions.k8s.io/v1 CustomResourceDefinition/gadgets.c.example";
    let lines = ["v1 Namespace/n", "v1 ConfigMap/n/x", crd, "c.example/v1 Gadget/a/g"];
    // Before its Namespace, in the same node or an earlier one; an unordered node is repeated.
    let same = ordered(&lines, &["one: 1 0 3 2"]);
    let problems = [
        "one: 1 object needs CustomResourceDefinition.apiextensions.k8s.io gadgets.c.example, which is only applied later",
        "one: 1 object needs Namespace n, which is only applied later",
    ];
    let sorted = |deployment: &TestDeployment| {
        let mut texts = texts(&deployment.plan(&cluster(&[])).unwrap_err());
        texts.sort();
        texts
    };
    assert_eq!(sorted(&same), problems);
    assert_eq!(sorted(&ordered(&lines, &["one: 1 3", "between after 0: ", "two after 1: 0 2"])), problems);
    assert!(ordered(&lines, &["one: 1 3", "two: 0 2"]).plan(&cluster(&[])).is_ok());
    assert!(ordered(&lines, &["one: 0 2", "two after 0: 1 3"]).plan(&cluster(&[])).is_ok());
    // The Namespace exists.
    assert!(ordered(&lines[..2], &["one: 1 0"]).plan(&cluster(&["Namespace/n ours"])).is_ok());
}

#[test]
fn the_namespace_of_an_object_to_delete_need_not_exist() {
    let mut deployment = ordered(&["v1 ConfigMap/n/x"], &["n: -0"]);
    deployment.missing_namespaces = MissingNamespaces::Refuse;
    assert_eq!(found(&deployment.check(&["Namespace/app"], &[])), ["ConfigMap/n/x: not-found"]);
}

#[test]
fn five_thousand_manifests_are_planned_with_one_list_for_each_kind() {
    let lines: Vec<_> = (0..5_000).map(|n| format!("v1 {}/a/n{n}", ["ConfigMap", "Secret"][n % 2])).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let entries: Vec<_> = lines.iter().enumerate().map(|(n, line)| format!("{} {n}", &line[3..])).collect();
    let live: Vec<_> = lines.iter().enumerate().map(|(n, line)| format!("{} uid={n} ours", &line[3..])).collect();
    // Fifty levels of a hundred components.
    let nodes: Vec<_> = (0..5_000_usize)
        .map(|n| {
            let level = n / 100;
            let before: Vec<_> = (level.saturating_sub(1) * 100..level * 100).map(|n| n.to_string()).collect();
            format!("n{n} after {}: {}{n}", before.join(" "), if n % 10 == 0 { "-" } else { "" })
        })
        .collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    let entries: Vec<&str> = entries.iter().map(String::as_str).collect();
    let deployment = ordered(&lines, &nodes).knowing(&entries);
    let plan = deployment.plan(&cluster(&live.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    assert_eq!((plan.nodes.len(), plan.deletions(), plan.requested_deletions.len()), (5_000, 500, 500));
    let release = release();
    assert_eq!(Deployment::new(deployment.request(&release)).unwrap().queries().len(), 2);
}

/// Returns which nodes are done before each node starts, directly or not.
fn closure(after: &[Vec<usize>]) -> Vec<BTreeSet<usize>> {
    let mut all: Vec<BTreeSet<usize>> = Vec::new();
    for before in after {
        let indirect = before.iter().flat_map(|at| all[*at].clone());
        all.push(indirect.chain(before.iter().copied()).collect());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nodes that have nothing to do are left out without changing the order of the others.
    #[test]
    fn the_plan_keeps_the_order_of_the_graph(
        nodes in proptest::collection::vec((proptest::collection::vec(0..12_usize, 0..4), any::<bool>()), 1..12),
    ) {
        let lines: Vec<_> = (0..nodes.len()).map(|n| format!("v1 ConfigMap/a/n{n}")).collect();
        let line = |(n, (after, idle)): (usize, &(Vec<usize>, bool))| {
            let after: BTreeSet<usize> = after.iter().copied().filter(|at| *at < n).collect();
            let after: Vec<_> = after.iter().map(ToString::to_string).collect();
            format!("{n} after {}: {}{n}", after.join(" "), if *idle { "-" } else { "" })
        };
        let graph: Vec<_> = nodes.iter().enumerate().map(line).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let deployment = ordered(&lines, &graph.iter().map(String::as_str).collect::<Vec<_>>());
        let plan = deployment.plan(&cluster(&[])).unwrap();
        let number = |node: &Node| node.title.parse::<usize>().unwrap();
        let planned: Vec<usize> = plan.nodes.iter().map(number).collect();
        prop_assert_eq!(&planned, &(0..nodes.len()).filter(|n| !nodes[*n].1).collect::<Vec<_>>());
        let of_graph = closure(&deployment.graph.unwrap().nodes.iter().map(|node| node.after.clone()).collect::<Vec<_>>());
        let of_plan = closure(&plan.nodes.iter().map(|node| node.after.clone()).collect::<Vec<_>>());
        for (at, before) in of_plan.iter().enumerate() {
            let before: BTreeSet<usize> = before.iter().map(|at| planned[*at]).collect();
            let expected: BTreeSet<usize> = of_graph[planned[at]].iter().copied().filter(|n| !nodes[*n].1).collect();
            prop_assert_eq!(before, expected);
        }
    }
}
