mod deletions;

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
