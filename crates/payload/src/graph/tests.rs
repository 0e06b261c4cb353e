use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::{read::File, settings::Settings};

/// Returns the steps of files; a name without level and component has none.
fn steps(names: &[&str]) -> Vec<Option<RunStep>> {
    names.iter().map(|name| RunStep::parse(name)).collect()
}

/// Writes groups as `a+b c | d`: tasks joined by `+`, groups side by side, levels separated by `|`.
fn written(levels: &[Level], names: &[&str]) -> String {
    let group = |group: &Group| group.iter().map(|&at| names[at]).collect::<Vec<_>>().join("+");
    let level = |level: &Level| level.iter().map(group).collect::<Vec<_>>().join(" ");
    levels.iter().map(level).collect::<Vec<_>>().join(" | ")
}

fn check_by_number_and_component(names: &[&str], expected: &str) {
    let steps = steps(names);
    let steps: Vec<_> = steps.iter().map(Option::as_ref).collect();
    assert_eq!(written(&by_number_and_component(&steps), names), expected);
}

fn check_flatten(names: &[&str], expected: &str) {
    let steps = steps(names);
    let steps: Vec<_> = steps.iter().map(Option::as_ref).collect();
    assert_eq!(written(&[flatten_by_number_and_component(&steps)], names), expected);
}

/// The names of the reference's tables.
const MIXED: [&str; 6] =
    ["0000_01_a-b-c_file1", "0000_01_x-y-z_file1", "0000_01_x-y-z_file2", "a", "0000_01_x-y-z_2", "0000_01_x-y-z_3"];

#[test]
fn by_number_and_component_as_in_the_reference() {
    check_by_number_and_component(&[], "");
    check_by_number_and_component(&["a"], "a");
    check_by_number_and_component(&["a", "b", "c"], "a+b+c");
    check_by_number_and_component(&["0000_01_x-y-z_1"], "0000_01_x-y-z_1");
    check_by_number_and_component(&["0000_01_x-y-z_1", "0000_01_x-y-z_2"], "0000_01_x-y-z_1+0000_01_x-y-z_2");
    check_by_number_and_component(&["a", "0000_01_x-y-z_1", "c"], "a+0000_01_x-y-z_1+c");
    check_by_number_and_component(&["0000_01_a-b-c_1", "0000_01_x-y-z_2"], "0000_01_a-b-c_1 0000_01_x-y-z_2");
    check_by_number_and_component(
        &MIXED,
        "0000_01_a-b-c_file1 0000_01_x-y-z_file1+0000_01_x-y-z_file2 | a+0000_01_x-y-z_2+0000_01_x-y-z_3",
    );
}

#[test]
fn flatten_by_number_and_component_as_in_the_reference() {
    check_flatten(&[], "");
    check_flatten(&["a"], "a");
    check_flatten(&["a", "b", "c"], "a b c");
    check_flatten(&["0000_01_x-y-z_1", "0000_01_x-y-z_2"], "0000_01_x-y-z_1+0000_01_x-y-z_2");
    check_flatten(&["a", "0000_01_x-y-z_1", "c"], "a 0000_01_x-y-z_1 c");
    check_flatten(&["0000_01_a-b-c_1", "0000_01_x-y-z_2"], "0000_01_a-b-c_1 0000_01_x-y-z_2");
    check_flatten(
        &MIXED,
        "0000_01_a-b-c_file1 0000_01_x-y-z_file1+0000_01_x-y-z_file2 a 0000_01_x-y-z_2+0000_01_x-y-z_3",
    );
    check_flatten(
        &["0000_01_a_1", "0000_01_x_1", "0000_01_x_2", "0000_02_x_2", "0000_02_x_3"],
        "0000_01_a_1 0000_01_x_1+0000_01_x_2 0000_02_x_2+0000_02_x_3",
    );
}

#[test]
fn shift_as_in_the_reference() {
    for (groups, step, stride, expected) in [
        (2, 0, 8, "0 1"),
        (2, 1, 8, "1 0"),
        (2, 2, 8, "0 1"),
        (3, 1, 2, "1 2 0"),
        (3, 2, 3, "2 0 1"),
        (0, 1, 8, ""),
        (16, 1, 8, "2 3 4 5 6 7 8 9 10 11 12 13 14 15 0 1"),
    ] {
        let shifted = shift((0..groups).map(|at| vec![at]).collect(), step, stride);
        let order: Vec<_> = shifted.iter().map(|group| group[0].to_string()).collect();
        assert_eq!(order.join(" "), expected, "{groups} {step} {stride}");
    }
}

/// Returns tasks; names that begin with `job:` are Jobs.
fn with_tasks<T>(names: &[&str], look: impl FnOnce(&[Task<'_>]) -> T) -> T {
    let files: Vec<_> = names.iter().map(|name| name.strip_prefix("job:").unwrap_or(name)).collect();
    let steps = steps(&files);
    let action = StepAction::Apply { wait: false };
    let tasks: Vec<_> = (0..names.len())
        .map(|at| Task { step: steps[at].as_ref(), file: files[at], is_job: names[at] != files[at], action })
        .collect();
    look(&tasks)
}

#[test]
fn split_as_in_the_reference() {
    for (kinds, expected) in [
        ("", ""),
        ("p", "p"),
        ("j", "j"),
        ("jp", "j p"),
        ("pj", "p j"),
        ("ppjp", "pp j p"),
        ("ppjpjp", "pp j p j p"),
        ("jppj", "j pp j"),
        ("jj", "j j"),
    ] {
        let names: Vec<_> = kinds.chars().map(|kind| if kind == 'j' { "job:x" } else { "x" }).collect();
        let segments = with_tasks(&names, split_on_jobs);
        let segments: Vec<_> = segments.into_iter().map(|segment| &kinds[segment]).collect();
        assert_eq!(segments.join(" "), expected, "{kinds}");
    }
}

/// Asserts the nodes of a graph, each written as `after > steps`.
fn check_graph(names: &[&str], state: State, expected: &[&str]) {
    let graph = with_tasks(names, |tasks| build(tasks, state, 0));
    let list = |indexes: &[usize]| indexes.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let steps = |node: &TaskNode| node.steps.iter().map(|step| names[step.manifest]).collect::<Vec<_>>().join("+");
    let found: Vec<_> = graph.nodes.iter().map(|node| format!("{}> {}", list(&node.after), steps(node))).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_graph_of_an_update_as_in_the_reference() {
    check_graph(&["a", "job:0000_50_a_0"], State::Updating, &["> a", "0> job:0000_50_a_0"]);
    check_graph(
        &["a", "job:0000_50_a_0", "0000_50_a_1", "0000_50_a_2"],
        State::Updating,
        &["> a", "0> job:0000_50_a_0", "1> 0000_50_a_1+0000_50_a_2"],
    );
    check_graph(
        &["job:a", "0000_50_a_0", "0000_50_b_0", "0000_50_b_1", "0000_50_c_0", "job:b"],
        State::Updating,
        &["> job:a", "0> 0000_50_a_0", "0> 0000_50_b_0+0000_50_b_1", "0> 0000_50_c_0", "1 2 3> job:b"],
    );
    check_graph(
        &[
            "0000_07_a_0",
            "0000_08_a_0",
            "0000_09_a_0",
            "0000_09_a_1",
            "0000_09_b_0",
            "0000_09_b_1",
            "0000_10_a_0",
            "0000_10_a_1",
            "0000_11_a_0",
            "0000_11_a_1",
        ],
        State::Updating,
        &[
            "> 0000_07_a_0+0000_08_a_0",
            "0> 0000_09_a_0+0000_09_a_1",
            "0> 0000_09_b_0+0000_09_b_1",
            "1 2> 0000_10_a_0+0000_10_a_1+0000_11_a_0+0000_11_a_1",
        ],
    );
}

#[test]
fn two_wide_levels_have_a_barrier_between_them() {
    check_graph(
        &["0000_01_a_0", "0000_01_b_0", "0000_02_a_0", "0000_02_b_0"],
        State::Updating,
        &["> 0000_01_a_0", "> 0000_01_b_0", "0 1> ", "2> 0000_02_a_0", "2> 0000_02_b_0"],
    );
}

#[test]
fn initializing_has_no_barriers_but_jobs() {
    check_graph(
        &["0000_01_a_0", "0000_02_b_0", "job:0000_03_c_0", "0000_04_a_0", "0000_04_a_1"],
        State::Initializing,
        &["> 0000_01_a_0", "> 0000_02_b_0", "0 1> job:0000_03_c_0", "2> 0000_04_a_0+0000_04_a_1"],
    );
}

#[test]
fn workers_pauses_and_deletions_depend_on_the_state() {
    let of = |state| with_tasks(&["a"], |tasks| build(tasks, state, 0));
    let facts = |state| {
        let graph = of(state);
        let pauses: Vec<_> = graph.retries.iter().map(ToString::to_string).collect();
        (graph.workers.map(NonZeroUsize::get), pauses.join(" "), graph.deletes)
    };
    assert_eq!(facts(State::Updating), (Some(16), "10s 13s".to_owned(), true));
    assert_eq!(facts(State::Initializing), (None, "1s 2s 4s".to_owned(), false));
    assert_eq!(facts(State::Reconciling), (Some(2), "10s 13s".to_owned(), false));
}

#[test]
fn a_seed_gives_always_the_same_order_and_another_seed_another_one() {
    let names: Vec<_> = (10..60).map(|at| format!("0000_{at}_a_x")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let order = |seed| with_tasks(&names, |tasks| build(tasks, State::Reconciling, seed)).nodes;
    assert_eq!(order(3), order(3));
    let orders: Vec<Vec<String>> =
        (0..16).map(|seed| order(seed).into_iter().map(|node| node.title).collect()).collect();
    assert_eq!(orders.iter().collect::<HashSet<_>>().len(), 16);
    // Passes 0 to 7 have the same permutation, rotated.
    let rotated = |by: usize| orders[0].iter().cycle().skip(by).take(50).cloned().collect::<Vec<_>>();
    assert!((1..8).all(|pass| orders[pass] == rotated(pass * 50 / 8)));
}

#[test]
fn titles_name_levels_and_components() {
    let titles = |names: &[&str]| {
        with_tasks(names, |tasks| build(tasks, State::Updating, 0))
            .nodes
            .into_iter()
            .map(|node| node.title)
            .collect::<Vec<_>>()
    };
    assert_eq!(titles(&["0000_01_a_0", "0000_01_a_1", "0000_02_b_0"]), ["01 a, 02 b"]);
    assert_eq!(titles(&["x.yaml", "y.yaml", "z.yaml", "0000_02_b_0"]), ["x.yaml, y.yaml, 2 more"]);
}

#[test]
fn a_manifest_that_does_not_count_is_not_in_the_graph() {
    let include = "annotations: {include.release.openshift.io/self-managed-high-availability: 'true'";
    let object = |name: &str, annotations: &str| {
        format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, {annotations}}}}}\n---\n")
    };
    let text = [
        object("out", "annotations: {}"),
        object("a", &format!("{include}}}")),
        object("b", &format!("{include}, release.openshift.io/delete: 'true'}}")),
    ]
    .concat();
    let (payload, _) = Payload::read(&[File { path: "0000_01_a_x.yaml", text: &text }]);
    let decisions = Decisions::new(&payload, &Settings::default());
    let graph = graph(&payload, &decisions, State::Updating, 0);
    let apply = StepAction::Apply { wait: false };
    let expected = [TaskStep { manifest: 0, action: apply }, TaskStep { manifest: 1, action: StepAction::Delete }];
    assert_eq!(graph.nodes[0].steps, expected);
    assert_eq!(decisions.counting().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn the_state_decides_what_is_awaited_and_what_is_checked() {
    let check = |group: &str, kind: &str, expected: [StepAction; 3]| {
        let states = [State::Initializing, State::Updating, State::Reconciling];
        assert_eq!(states.map(|state| applied(&GroupKind::new(group, kind), state)), expected, "{kind}");
    };
    let (first, later) = (Health::Installing, Health::Installed);
    let wait = |health| StepAction::Check { wait: true, health };
    let once = StepAction::Check { wait: false, health: later };
    let written = StepAction::Apply { wait: false };
    for (group, kind) in [("apiextensions.k8s.io", "CustomResourceDefinition"), ("batch", "Job")] {
        check(group, kind, [wait(first), wait(later), wait(later)]);
    }
    check("config.openshift.io", "ClusterOperator", [wait(first), wait(later), once]);
    for kind in ["Deployment", "DaemonSet"] {
        check("apps", kind, [written, once, once]);
    }
    for (group, kind) in [("apps", "StatefulSet"), ("", "ConfigMap"), ("batch", "CronJob"), ("", "Deployment")] {
        check(group, kind, [written; 3]);
    }
}

fn names() -> impl Strategy<Value = Vec<String>> {
    let name = (0..6_u8, 0..4_u8, 0..12_u8).prop_map(|(level, component, kind)| match kind {
        0 => format!("job:0000_0{level}_c{component}_x"),
        1 => format!("plain-{level}-{component}"),
        _ => format!("0000_0{level}_c{component}_x"),
    });
    prop::collection::vec(name, 0..60).prop_map(|mut names| {
        names.sort_by_key(|name| name.trim_start_matches("job:").to_owned());
        names
    })
}

proptest! {
    #[test]
    fn every_manifest_is_once_in_an_acyclic_graph_that_keeps_order(names in names(), seed: u64) {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for state in [State::Initializing, State::Updating, State::Reconciling] {
            let graph = with_tasks(&names, |tasks| build(tasks, state, seed));
            let mut node_of = vec![usize::MAX; names.len()];
            for (at, node) in graph.nodes.iter().enumerate() {
                prop_assert!(node.after.iter().all(|&before| before < at));
                prop_assert!(node.steps.is_sorted_by_key(|step| step.manifest));
                for step in &node.steps {
                    prop_assert_eq!(node_of[step.manifest], usize::MAX);
                    node_of[step.manifest] = at;
                }
            }
            prop_assert!(node_of.iter().all(|&at| at < graph.nodes.len()));
            // All nodes before each node, directly or not.
            let mut before: Vec<HashSet<usize>> = Vec::new();
            for node in &graph.nodes {
                let mut all: HashSet<usize> = node.after.iter().copied().collect();
                node.after.iter().for_each(|&at| all.extend(&before[at]));
                before.push(all);
            }
            for second in 0..names.len() {
                for first in 0..second {
                    let (a, b) = (node_of[first], node_of[second]);
                    let ordered = a == b || before[b].contains(&a);
                    prop_assert!(!before[a].contains(&b));
                    let job = names[first].starts_with("job:") || names[second].starts_with("job:");
                    let step = |at: usize| RunStep::parse(names[at].trim_start_matches("job:"));
                    let same = step(first).is_some() && step(first) == step(second);
                    let levels_differ = step(first).map(|step| step.level) != step(second).map(|step| step.level);
                    prop_assert!(!(job || same) || ordered, "{} {}", names[first], names[second]);
                    prop_assert!(state != State::Updating || !levels_differ || ordered);
                }
            }
        }
    }
}
