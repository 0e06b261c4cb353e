//! Properties of plans for all groups and all clusters.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::cluster::*;
use crate::{groups::Verdict, *};

const GROUPS: [&str; 16] = [
    "namespaced",
    "cluster",
    "crds",
    "empty",
    "v1 cm",
    "v1 cm ns=a",
    "v1 cm all",
    "v1 cm all ns=b | -v1 cm name=n1",
    "v1 secrets tier=web + v1 cm name=n2",
    "v1 secrets all tier=web",
    "v1 ns",
    "v1 ns all",
    "a.example/v1 widgets | force",
    "apiextensions.k8s.io/v1 crd | force=5m",
    "namespaced | -v1 secrets",
    "v1 nothing",
];

/// An object, its state in the inventory (0: absent, 1: intended, 2: confirmed), its state in the cluster, and a label.
type Line = (usize, u8, u8, bool);

fn name_of(place: usize) -> String {
    let kinds = ["ConfigMap", "Secret", "Widget.a.example", "Namespace", "ClusterRole", "CustomResourceDefinition"];
    let (kind, rest) = (kinds[place % 6], place / 6);
    match kind {
        "Namespace" => format!("Namespace/{}", ["default", "kube-x", "app", "a", "b", "c"][rest % 6]),
        "CustomResourceDefinition" => format!("{kind}/{}.a.example", ["widgets", "planets", "x"][rest % 3]),
        "ClusterRole" => format!("{kind}/n{}", rest % 3),
        _ => format!("{kind}/{}/n{}", ["a", "b", "kube-x"][rest % 3], rest / 3 % 3),
    }
}

fn build(lines: &[Line], groups: &[usize]) -> (TestDeletion, Cluster) {
    let lines: BTreeMap<String, &Line> = lines.iter().map(|line| (name_of(line.0), line)).collect();
    let (mut wanted, mut live) = (Vec::new(), Vec::new());
    for (name, (_, recorded, there, tier)) in lines {
        match recorded {
            1 => wanted.push(name.clone()),
            2 => wanted.push(format!("{name} uid=u-{name}")),
            _ => {}
        }
        let tier = if *tier { " tier=web" } else { "" };
        match there {
            1 => live.push(format!("{name} uid=u-{name} ours{tier}")),
            2 => live.push(format!("{name} uid=u-{name}{tier}")),
            3 => live.push(format!("{name} uid=v-{name}{tier}")),
            4 => live.push(format!("{name} uid=v-{name} ours{tier}")),
            _ => {}
        }
    }
    let groups: Vec<&str> = groups.iter().map(|at| GROUPS[*at]).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let live: Vec<&str> = live.iter().map(String::as_str).collect();
    (deletion(&wanted, &groups), cluster(&live))
}

fn tasks(plan: &Plan) -> Vec<(usize, &DeleteTask)> {
    let objects = |(at, node): (usize, &'_ Node)| match &node.work {
        Work::Delete(work) => work.objects.iter().map(move |_| at).collect::<Vec<_>>(),
        Work::Apply(_) | Work::Patch(_) | Work::Sequence(_) => Vec::new(),
    };
    let nodes: Vec<usize> = plan.nodes.iter().enumerate().flat_map(objects).collect();
    let all = plan.nodes.iter().flat_map(|node| match &node.work {
        Work::Delete(work) => work.objects.as_slice(),
        Work::Apply(_) | Work::Patch(_) | Work::Sequence(_) => &[],
    });
    nodes.into_iter().zip(all).collect()
}

/// Returns the index of the first group that matches a task.
fn first_group(deletion: &TestDeletion, task: &DeleteTask, live: &Cluster) -> Option<usize> {
    let catalog = catalog();
    let query = Query {
        cluster: None,
        resource: Resource::of(catalog.get(&task.object.kind).unwrap(), None),
        namespace: task.object.namespace.clone(),
        select: Select::Names(vec![task.object.name.clone()]),
        namespaces: Vec::new(),
    };
    let Listed::Items { items, .. } = &live.answer(&[query])[0].found else { panic!() };
    let recorded = deletion.objects.iter().any(|wanted| {
        wanted.key == task.object
            && (wanted.uid.as_ref() == Some(&task.uid) || items[0].labels.contains_key("billhook.dev/release"))
    });
    deletion.groups.iter().position(|group| {
        let mut problems = problem::Problems::default();
        let matcher = groups::Matcher::resolve(&group.members, &group.excluded, &catalog, "", &mut problems);
        let by_all = matcher.all().any(|entry| {
            entry.resource.kind == task.object.kind
                && entry.selector.matches(task.object.namespace.as_deref(), &task.object.name, &items[0].labels)
        });
        (recorded || by_all) && matcher.judge(&task.object, &items[0].labels) == Verdict::Member
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn groups_divide_what_is_there(
        lines in proptest::collection::vec((0..54_usize, 0..3_u8, 0..5_u8, any::<bool>()), 0..40),
        picked in proptest::collection::vec(0..GROUPS.len(), 0..7),
    ) {
        let (deletion, live) = build(&lines, &picked);
        let plan = match deletion.plan(&live) {
            Ok(plan) => plan,
            Err(error) => {
                let protected = deletion.objects.iter().any(|wanted| groups::is_protected(&wanted.key));
                prop_assert!(protected && error.kind == PlanErrorKind::Refused, "{error}");
                return Ok(());
            }
        };
        let tasks = tasks(&plan);

        let uids: BTreeSet<_> = tasks.iter().map(|(_, task)| &task.uid).collect();
        prop_assert_eq!(uids.len(), tasks.len(), "an object is in two groups");
        for (node, task) in &tasks {
            prop_assert!(!groups::is_protected(&task.object), "{} is protected", task.object);
            let group = first_group(&deletion, task, &live);
            prop_assert!(group.is_some(), "{} is in no group", task.object);
            let path = &plan.nodes[*node].path;
            prop_assert_eq!(path, &deletion.groups[group.unwrap()].path, "{} is in the wrong group", task.object);
            if task.object.to_string() == "Namespace/app" {
                prop_assert_eq!(*node, plan.nodes.len() - 1, "the inventory does not go last");
            }
        }
        let paths: Vec<_> = plan.nodes.iter().filter(|node| !node.title.contains("(holds the inventory)")).map(|node| &node.path).collect();
        prop_assert!(paths.is_sorted(), "the order of the groups is not kept: {:?}", paths);

        for wanted in &deletion.objects {
            let key = &wanted.key;
            let accounted = tasks.iter().any(|(_, task)| task.object == *key)
                || plan.uncovered.iter().any(|uncovered| uncovered.object == *key)
                || plan.notes.iter().any(|note| matches!(&note.kind, NoteKind::Recreated { object, .. } if object == key))
                || !lines_have(&lines, &key.to_string());
            prop_assert!(accounted, "{} is forgotten", key);
        }
        let text = serde_json::to_string(&plan).unwrap();
        prop_assert_eq!(&serde_json::from_str::<Plan>(&text).unwrap(), &plan);
    }

    #[test]
    fn the_same_input_gives_the_same_bytes(
        lines in proptest::collection::vec((0..54_usize, 0..3_u8, 0..5_u8, any::<bool>()), 0..40),
        picked in proptest::collection::vec(0..GROUPS.len(), 0..7),
        turn in 0..40_usize,
    ) {
        let (mut deletion, live) = build(&lines, &picked);
        let bytes = |deletion: &TestDeletion| match deletion.plan(&live) {
            Ok(_) => serde_json::to_vec(&deletion.blast(&live)).unwrap(),
            Err(error) => error.to_string().into_bytes(),
        };
        let first = bytes(&deletion);
        prop_assert_eq!(&first, &bytes(&deletion));
        let middle = turn.min(deletion.objects.len());
        deletion.objects.rotate_left(middle);
        deletion.objects.reverse();
        prop_assert_eq!(&first, &bytes(&deletion));
    }
}

/// Whether the cluster has an object of this name, by the last line about it.
fn lines_have(lines: &[Line], key: &str) -> bool {
    let short = |name: &str| super::cluster::key(name).to_string();
    let last = lines.iter().rev().find(|line| short(&name_of(line.0)) == key);
    last.is_some_and(|line| line.2 != 0)
}

#[test]
fn ten_thousand_objects_are_planned_with_one_query() {
    let (objects, live): (Vec<_>, Vec<_>) =
        (0..10_000).map(|n| (format!("ConfigMap/a/n{n} uid={n}"), format!("ConfigMap/a/n{n} uid={n} ours"))).unzip();
    let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
    let live: Vec<&str> = live.iter().map(String::as_str).collect();
    let plan = deletion(&objects, &["v1 secrets", "v1 cm"]).plan(&cluster(&live)).unwrap();
    assert_eq!((plan.deletions(), plan.queries.len()), (10_000, 1));
}

#[test]
fn groups_that_name_thousands_of_objects_are_planned_with_one_list_by_label() {
    let name = |n: usize| format!("ConfigMap/a/n{n}");
    let lines: Vec<_> =
        (0..5_000).map(|n| (format!("{} uid={n}", name(n)), format!("{} uid={n} ours", name(n)))).collect();
    // The last names first, a hundred in each group.
    let group = |at: usize| {
        let names: Vec<_> = (0..100).map(|n| format!("name=n{}", 5_000 - at * 100 - n - 1)).collect();
        format!("v1 cm ns=a {}", names.join(" "))
    };
    let groups: Vec<_> = (0..50).map(group).collect();
    let objects: Vec<&str> = lines.iter().map(|(object, _)| object.as_str()).collect();
    let live: Vec<&str> = lines.iter().map(|(_, live)| live.as_str()).collect();
    let plan =
        deletion(&objects, &groups.iter().map(String::as_str).collect::<Vec<_>>()).plan(&cluster(&live)).unwrap();
    assert_eq!((plan.nodes.len(), plan.deletions(), plan.queries.len()), (50, 5_000, 1));
    assert_eq!(plan.queries[0].select, Select::Labels("billhook.dev/release=web.app".to_owned()));
    let first = plan.delete_nodes().next().map(|(_, work)| work.objects[0].object.name.clone());
    assert_eq!(first.as_deref(), Some("n4900"));
}
