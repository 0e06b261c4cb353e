//! Tests of the stages of a cleaning, and of label selectors.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::sync::LazyLock;

use billhook_objects::yaml;
use billhook_policy::{GoDuration, LabelSelector, Members, Policy, STAGES_SCHEMA, Stages, control_plane, read_stages};
use jsonschema::Validator;
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{
    check::{assert_lines, file},
    properties::anything,
};

static SCHEMA: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&serde_json::from_str(STAGES_SCHEMA).unwrap()).unwrap());

fn read(text: &str) -> Result<Stages, String> {
    read_stages(text, &file()).map_err(|diagnostics| diagnostics.to_string())
}

/// Describes each group in a line: its index, its title and its path, the groups before it, its kinds, its settings.
fn compact(policy: &Policy) -> String {
    let line = |(at, group): (usize, &billhook_policy::DeletionGroup)| {
        let Members::Resources(selectors) = &group.members else { unreachable!("stages have kinds") };
        assert!(selectors.iter().all(|selector| selector.all), "a stage contains all objects");
        let kinds: Vec<_> = selectors.iter().map(|selector| selector.kind.clone()).collect();
        let after = |duration: Option<GoDuration>| duration.map_or("-".to_owned(), |duration| duration.to_string());
        let force = group.force.as_ref().map(|force| force.after);
        assert_eq!(group.new_objects, force, "new objects are included until finalizers are removed");
        format!(
            "{at} {} {:?} after {:?}: {} | grace {} force {} timeout {}\n",
            group.title,
            group.path,
            group.after.as_deref().unwrap_or_default(),
            kinds.join(" "),
            after(group.grace_period),
            after(force),
            after(group.timeout)
        )
    };
    policy.deletion.iter().enumerate().map(line).collect()
}

#[test]
fn the_default_stages_are_those_of_gardener() {
    let default = r#"
        0 webhooks "" after []: MutatingWebhookConfiguration ValidatingWebhookConfiguration | grace 5m force 5m timeout 10m
        1 extended-apis "" after [0]: APIService CustomResourceDefinition | grace 5m force 1h timeout 10m
        2 kubernetes-resources "" after [1]: CronJob Job DaemonSet Deployment ReplicaSet StatefulSet Ingress Pod ReplicationController Service PersistentVolumeClaim | grace 5m force 5m timeout 10m
        3 kubernetes-resources: volumesnapshot.snapshot.storage.k8s.io, volumesnapshotcontent.snapshot.storage.k8s.io "" after [1]: VolumeSnapshot VolumeSnapshotContent | grace 5m force 1h timeout 10m
    "#;
    assert_lines(&compact(&Stages::default().policy()).to_lowercase(), &default.to_lowercase(), "default");
}

#[test]
fn stages_follow_each_other_and_their_parts_run_beside_each_other() {
    let text = "
stages:
- name: first
  resources: [{apiVersion: v1, kind: cm}, {apiVersion: v1, kind: Secret, finalizeAfter: 0s}, {apiVersion: v1, kind: po}]
  gracePeriod: 30s
  finalizeAfter: 1m
- name: second
  resources: [{apiVersion: v1, kind: svc, namespaces: [a], labelSelector: {matchLabels: {b: c}}}]
  timeout: 1h
";
    let expected = r#"
        0 first "stages[0]" after []: cm po | grace 30s force 1m timeout 10m
        1 first: Secret "stages[0]" after []: Secret | grace 30s force 0s timeout 10m
        2 second "stages[1]" after [0, 1]: svc | grace - force - timeout 1h
    "#;
    let mut stages = read(text).unwrap();
    assert_lines(&compact(&stages.policy()), expected, text);
    // A limit takes effect only where it is lower, and the grace period is no longer than that.
    stages.finalize_after("first", GoDuration::default()).unwrap();
    stages.finalize_after("second", "2m".parse().unwrap()).unwrap();
    stages.finalize_after("second", "3m".parse().unwrap()).unwrap();
    let expected = r#"
        0 first "stages[0]" after []: cm Secret po | grace 0s force 0s timeout 10m
        1 second "stages[1]" after [0]: svc | grace - force 2m timeout 1h
    "#;
    assert_lines(&compact(&stages.policy()), expected, text);
    let unknown = stages.finalize_after("third", GoDuration::default()).unwrap_err();
    assert_eq!(unknown.to_string(), "there is no stage \"third\"; the stages are first, second");
}

#[test]
fn snapshots_are_released_at_the_end_of_the_grace_period_and_before_finalizers_are_removed() {
    for (grace, after, expected) in [
        ("gracePeriod: 5m", "finalizeAfter: 1h", "5m"),
        ("gracePeriod: 5m", "", "5m"),
        ("gracePeriod: 5m", "finalizeAfter: 100s", "50s"),
        ("gracePeriod: 5m", "finalizeAfter: 0s", "0s"),
        ("", "finalizeAfter: 1h", "0s"),
    ] {
        let resources = "resources: [{apiVersion: snapshot.storage.k8s.io/v1, kind: VolumeSnapshotContent}]";
        let fields: Vec<_> =
            ["name: a", resources, grace, after].into_iter().filter(|field| !field.is_empty()).collect();
        let policy = read(&format!("stages: [{{{}}}]", fields.join(", "))).unwrap().policy();
        assert_eq!(policy.deletion[0].release_snapshots, Some(expected.parse().unwrap()), "{fields:?}");
    }
    // Gardener halves the limit for these kinds, too.
    let mut stages = Stages::default();
    let released = |stages: &Stages| stages.policy().deletion.last().unwrap().release_snapshots;
    assert_eq!(released(&stages), Some("5m".parse().unwrap()));
    stages.finalize_after("kubernetes-resources", "1m".parse().unwrap()).unwrap();
    assert_eq!(released(&stages), Some("30s".parse().unwrap()));
}

#[test]
fn a_higher_limit_changes_nothing() {
    let mut stages = Stages::default();
    stages.finalize_after("webhooks", "5m".parse().unwrap()).unwrap();
    stages.finalize_after("extended-apis", "2h".parse().unwrap()).unwrap();
    assert_eq!(stages, Stages::default());
}

#[test]
fn all_mistakes_are_reported_with_their_places() {
    let check = |text: &str, expected: &str| assert_lines(&read(text).unwrap_err(), expected, text);
    check(
        "stages:\n- name: a\n  resource: []\n- name: a\n  resources: [{kind: po}]\n  finalizeAfter: soon\n- resources: []\n  timeout: 0s\n- name: a=b\n  resources: [{apiVersion: v1, kind: po, selector: {all: true}}]\n  forceAfter: 1m\n",
        r#"
        p:3:3: stages[0]: unknown field "resource"; did you mean "resources"?
        p:4:9: stages[1].name: the name "a" is already used by stages[0] (give each stage its own name)
        p:5:15: stages[1].resources[0]: missing field "apiVersion"
        p:6:18: stages[1].finalizeAfter: expected a duration such as 90s, 5m or 1h30m, found "soon"
        p:7:3: stages[2]: missing field "name"
        p:7:14: stages[2].resources: the list is empty (list at least one kind of object)
        p:8:12: stages[2].timeout: the duration is zero (omit the field for no separate limit)
        p:9:9: stages[3].name: "a=b" is not a name (use up to 63 letters, digits, '-', '_' and '.')
        p:10:42: stages[3].resources[0]: field "selector" is not allowed here (a stage contains all objects of its kinds, unless names, namespaces or labelSelector are set)
        p:11:3: stages[3]: field "forceAfter" is not allowed here (use finalizeAfter)
        "#,
    );
    check("", "p:1:1: the stages file is empty (it must contain the field stages)");
    check("{}", "p:1:1: missing field \"stages\"");
    check("stages: []\n", "p:1:9: stages: the list is empty (list at least one stage)");
    check("stage: []\n", "p:1:1: unknown field \"stage\"; did you mean \"stages\"?");
}

#[test]
fn a_control_plane_is_deleted_in_the_order_of_gardener() {
    let line = |(at, group): (usize, &billhook_policy::DeletionGroup)| {
        let force = if group.force.is_some() { " force" } else { "" };
        let patch = group.before_delete.as_ref().map(|patch| format!(" {patch}")).unwrap_or_default();
        format!("{at} {} after {:?}{force}{patch}\n", group.title, group.after.as_deref().unwrap_or_default())
    };
    let lines = |policy: &Policy| policy.deletion.iter().enumerate().map(line).collect::<String>();
    let expected = r#"
        0 extension objects after [] {"metadata":{"annotations":{"confirmation.gardener.cloud/deletion":"true"}}}
        1 DNS records after [] {"metadata":{"annotations":{"confirmation.gardener.cloud/deletion":"true"}}}
        2 machine-controller-manager after []
        3 machine resources after [2] force
        4 managed resources of the shoot after [0] force {"spec":{"keepObjects":false}}
        5 managed resources of the seed after [0] {"spec":{"keepObjects":false}}
        6 Cluster object after [1, 4, 5]
        7 etcds after [6, 3] {"metadata":{"annotations":{"confirmation.gardener.cloud/deletion":"true"}}}
        8 ConfigMaps and Secrets after [7] force
        9 namespace after [8]
    "#;
    assert_lines(&lines(&control_plane("ns", &["m".to_owned()])), expected, "one ManagedResource of the shoot");
    // Without names, a selector would select all of them.
    let none = control_plane("ns", &[]);
    assert!(none.deletion.iter().all(|group| group.title != "managed resources of the shoot"));
    assert_eq!(none.deletion.len(), 9);
}

#[test]
fn label_selectors_are_read_as_kubectl_writes_them() {
    for (text, expected) in [
        ("a", "a"),
        ("!a.example/b", "!a.example/b"),
        ("a=b", "a in (b)"),
        ("a == b", "a in (b)"),
        ("a=", "a in ()"),
        ("a!=b", "a notin (b)"),
        ("a in (b, c),d", "a in (b,c),d"),
        (" a notin (b,c) , !d ", "a notin (b,c),!d"),
    ] {
        assert_eq!(text.parse::<LabelSelector>().unwrap().to_query(), expected, "{text}");
    }
    for text in ["", " ", "a,", "a b", "a in b", "a in (b", "a among (b)", "-a", "a=b=c", "a=b c", "!"] {
        let error = text.parse::<LabelSelector>().unwrap_err().to_string();
        assert!(error.starts_with(&format!("{text:?} is not a label selector")), "{error}");
    }
}

/// One of the values, or rarely one of the wrong ones.
fn mostly(values: Vec<Value>, wrong: Vec<Value>) -> impl Strategy<Value = Value> {
    prop_oneof![12 => select(values), 1 => select(wrong)]
}

fn duration() -> impl Strategy<Value = Value> {
    mostly(
        vec![json!("0s"), json!(0), json!("5m"), json!("1h30m"), json!("1m"), json!(null)],
        vec![json!("-1s"), json!("soon"), json!(5)],
    )
}

fn entry() -> impl Strategy<Value = Value> {
    let kind = mostly(vec![json!("Pod"), json!("cm")], vec![json!("po."), json!(1)]);
    let namespaces = mostly(vec![json!(null), json!([]), json!(["a"])], vec![json!("a")]);
    let labels = mostly(vec![json!(null), json!({}), json!({"matchLabels": {"a": "b"}})], vec![json!({"a": "b"})]);
    let version = option::weighted(0.95, Just(json!("v1")));
    (version, kind, option::of(namespaces), option::of(labels), option::of(duration())).prop_map(
        |(version, kind, namespaces, labels, after)| {
            let mut entry = json!({"kind": kind});
            let optional = [
                ("apiVersion", version),
                ("namespaces", namespaces),
                ("labelSelector", labels),
                ("finalizeAfter", after),
            ];
            for (name, value) in optional.into_iter().filter_map(|(name, value)| Some((name, value?))) {
                entry[name] = value;
            }
            entry
        },
    )
}

fn stage() -> impl Strategy<Value = Value> {
    let name = mostly(vec![json!("a"), json!("b"), json!("c-1")], vec![json!("-"), json!(1), json!("")]);
    let resources = prop_oneof![12 => vec(entry(), 1..3), 1 => vec(entry(), 0..1)];
    (option::weighted(0.95, name), resources, vec((field(), duration()), 0..3)).prop_map(|(name, resources, fields)| {
        let mut stage: Value = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        stage["resources"] = resources.into();
        if let Some(name) = name {
            stage["name"] = name;
        }
        stage
    })
}

fn field() -> impl Strategy<Value = &'static str> {
    prop_oneof![12 => select(vec!["gracePeriod", "finalizeAfter", "timeout"]), 1 => Just("forceAfter")]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_schema_accepts_what_the_reader_accepts(stages in vec(stage(), 0..3), other in anything()) {
        for document in [json!({"stages": stages}), json!({"stages": other}), other.clone()] {
            let text = yaml::write(&document);
            prop_assert!(read(&text).is_err() || SCHEMA.is_valid(&document), "{}", text);
        }
    }
}

#[test]
fn the_schema_rejects_common_mistakes() {
    let entry = json!({"apiVersion": "v1", "kind": "po"});
    for mistake in [
        json!({}),
        json!([]),
        json!({"stages": []}),
        json!({"stages": [{"name": "a"}]}),
        json!({"stages": [{"resources": [entry]}]}),
        json!({"stages": [{"name": "a", "resources": []}]}),
        json!({"stages": [{"name": "a b", "resources": [entry]}]}),
        json!({"stages": [{"name": "a", "resources": [entry], "finalizeAfter": "soon"}]}),
        json!({"stages": [{"name": "a", "resources": [entry], "forceAfter": "1m"}]}),
        json!({"stages": [{"name": "a", "resources": [{"kind": "po"}]}]}),
    ] {
        read(&yaml::write(&mistake)).unwrap_err();
        assert!(!SCHEMA.is_valid(&mistake), "{mistake}");
    }
}

#[test]
fn the_generated_stages_are_often_valid() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let valid = |_: &u32| {
        let document = json!({"stages": [stage().new_tree(&mut runner).unwrap().current()]});
        read(&yaml::write(&document)).is_ok()
    };
    let valid = (0..500_u32).filter(valid).count();
    assert!(valid > 25, "{valid} of 500");
}

#[test]
fn the_example_of_the_guide_is_valid() {
    let guide = include_str!("../../../../docs/clean.md");
    let blocks: Vec<_> = guide.split("```yaml\n").skip(1).filter_map(|rest| rest.split_once("```")).collect();
    assert_eq!(blocks.len(), 1);
    for (block, _) in blocks {
        read(block).unwrap();
        assert!(SCHEMA.is_valid(&yaml::parse(block).unwrap()[0].value), "{block}");
    }
}
