//! Tests of the JSON Schema: it accepts every document that the reader accepts, and rejects common mistakes.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::sync::LazyLock;

use billhook_objects::yaml;
use billhook_policy::POLICY_SCHEMA;
use jsonschema::Validator;
use proptest::{
    collection::vec,
    option,
    prelude::*,
    sample::{Index, select},
};
use serde_json::{Value, json};

use super::{
    check::policy,
    limits::{documented, mutation},
    properties::{anything, group, name, released, selector},
    reference::blocks,
};

static SCHEMA: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&serde_json::from_str(POLICY_SCHEMA).unwrap()).unwrap());

/// Returns the errors of a document by the schema; none for a text that is not one YAML document.
fn errors(text: &str) -> Option<Vec<String>> {
    let documents = yaml::parse(text).ok()?;
    let [document] = &documents[..] else { return None };
    let found = SCHEMA.iter_errors(&document.value);
    Some(found.map(|error| format!("{}: {error}", error.instance_path())).collect())
}

/// Asserts that the schema accepts what the reader accepts.
fn check_accepted(text: &str) -> Result<(), TestCaseError> {
    if policy(text).is_ok() {
        let errors = errors(text).unwrap_or_default();
        prop_assert!(errors.is_empty(), "{text}\n{errors:#?}");
    }
    Ok(())
}

/// A value, or nothing, or what the YAML of an omitted value is.
fn maybe(value: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Option<Value>> {
    option::of(prop_oneof![1 => Just(Value::Null), 6 => value]).boxed()
}

/// The fields of a mapping, each of which may be missing.
type Fields = Vec<(&'static str, BoxedStrategy<Option<Value>>)>;

/// A mapping of these fields.
fn mapping(fields: Fields) -> BoxedStrategy<Value> {
    let fields: Vec<_> =
        fields.into_iter().map(|(name, value)| value.prop_map(move |value| Some((name.to_owned(), value?)))).collect();
    fields.prop_map(|fields| fields.into_iter().flatten().collect()).boxed()
}

fn duration() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[+]?[0-9]{1,3}(\\.[0-9]{0,3})?(ns|us|µs|μs|ms|s|m|h)([0-9]{1,2}(ms|s|m)){0,2}".prop_map(Value::from),
        "[-+]?[0-9.]{0,3}[a-zµ]{0,2}".prop_map(Value::from),
        select(vec![json!(0), json!("0"), json!("+0"), json!(".5s"), json!("5.m"), json!(5)]),
    ]
}

fn flag() -> impl Strategy<Value = Value> {
    any::<bool>().prop_map(Value::from)
}

fn words(least: usize) -> impl Strategy<Value = Value> {
    vec(name(), least..3).prop_map(Value::from)
}

fn settings() -> Fields {
    let force = prop_oneof![2 => Just(json!(true)), 1 => flag(), 2 => flag().prop_map(|flag| json!({"enabled": flag}))];
    vec![
        ("forceDelete", maybe(force)),
        ("forceAfter", maybe(duration())),
        ("finalizers", maybe(words(1))),
        ("propagationPolicy", maybe(select(vec![json!("Background"), json!("Foreground"), json!("Orphan")]))),
        ("timeout", maybe(duration())),
        ("excludedResources", maybe(vec(prop_oneof![entry(), proposed_entry(false)], 1..3).prop_map(Value::from))),
    ]
}

/// An entry in the released syntax.
fn entry() -> BoxedStrategy<Value> {
    let alias = (selector(), any::<bool>()).prop_map(|(selector, alias)| {
        let mut entry = json!(selector);
        if alias && let Some(namespaces) = entry.as_object_mut().and_then(|entry| entry.remove("namespaces")) {
            entry["namespace"] = namespaces;
        }
        entry
    });
    alias.boxed()
}

/// An entry in the proposal's syntax.
fn proposed_entry(selects: bool) -> BoxedStrategy<Value> {
    let group = prop_oneof![Just(Value::Null), Just(json!("")), Just(json!("apps"))];
    (entry(), group, option::of(any::<bool>()))
        .prop_map(move |(mut entry, group, all)| {
            entry.as_object_mut().map(|entry| entry.remove("apiVersion"));
            entry["group"] = group;
            entry["version"] = "v1".into();
            if let Some(all) = all.filter(|_| selects) {
                entry["selector"] = json!({ "all": all });
            }
            entry
        })
        .boxed()
}

fn class() -> BoxedStrategy<Option<Value>> {
    let classes = ["namespaced-resources", "cluster-scoped-resources", "crds", "empty"];
    select(classes.map(|class| Some(json!(class))).to_vec()).boxed()
}

fn entries(entry: impl Strategy<Value = Value> + 'static) -> BoxedStrategy<Option<Value>> {
    vec(entry, 1..3).prop_map(|entries| Some(entries.into())).boxed()
}

/// A group in one of the four syntaxes, with `settings` where the syntax has them, and `beside` next to the group.
fn any_group(settings: fn() -> Fields, beside: fn() -> Fields, deletes: bool) -> BoxedStrategy<Value> {
    let with =
        |first: (&'static str, BoxedStrategy<Option<Value>>), rest: Vec<_>| mapping([vec![first], rest].concat());
    let inner = |first, more: Vec<_>| with(first, [settings(), more].concat()).prop_map(Some).boxed();
    let own = || {
        if deletes {
            vec![("deleteAllResources", maybe(flag())), ("targetName", maybe(name().prop_map(Value::from)))]
        } else {
            vec![]
        }
    };
    let nothing = |name: &'static str| (name, Just(Some(Value::Null)).boxed());
    prop_oneof![
        with(("predefinedResourceGroup", inner(("type", class()), vec![])), beside()),
        with(("customResourceGroup", inner(("resources", entries(entry())), own())), beside()),
        with(("predefinedResourceGroup", class()), settings()),
        with(("resources", entries(proposed_entry(deletes))), settings()),
        with(
            ("customResourceGroup", inner(("resources", entries(entry())), own())),
            vec![nothing("predefinedResourceGroup")]
        ),
    ]
    .boxed()
}

fn deployment_settings() -> Fields {
    let names = ["waitFor", "timeout", "excludedResources"];
    let wait = ("waitFor", maybe(select(vec![json!("exists"), json!("ready")])));
    let shared = settings().into_iter().filter(|(name, _)| names.contains(name));
    shared.chain([wait]).collect()
}

fn document() -> BoxedStrategy<Value> {
    let rule = mapping(
        [
            settings(),
            vec![
                (
                    "deletionRank",
                    prop_oneof![select(vec![100, 200, 300]), -9_i64..400].prop_map(|rank| Some(rank.into())).boxed(),
                ),
                ("types", maybe(vec(proposed_entry(true), 1..3).prop_map(Value::from))),
            ],
        ]
        .concat(),
    );
    let list = |item: BoxedStrategy<Value>| maybe(vec(item, 0..3).prop_map(Value::from));
    mapping(vec![
        ("deletionGroups", list(any_group(settings, Vec::new, true))),
        ("deletionGroupsDuringUpdate", list(any_group(settings, Vec::new, true))),
        ("deletionOrderRules", list(rule)),
        (
            "deploymentGroups",
            list(any_group(
                deployment_settings,
                || vec![("waitFor", maybe(select(vec![json!("exists"), json!("ready")])))],
                false,
            )),
        ),
    ])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn the_schema_accepts_what_the_reader_accepts(document in document()) {
        check_accepted(&document.to_string())?;
    }

    #[test]
    fn the_schema_accepts_what_the_reader_accepts_of_documents_with_a_field_replaced(
        document in document(),
        changes in vec((any::<Index>(), anything()), 1..3),
    ) {
        let mut document = document;
        for (at, value) in changes {
            let mut places = 0;
            count(&document, &mut places);
            let mut at = at.index(places);
            replace(&mut document, &mut at, &value);
        }
        check_accepted(&document.to_string())?;
    }

    #[test]
    fn the_schema_accepts_what_the_reader_accepts_of_mutated_examples(
        example in any::<Index>(),
        mutations in vec(mutation(), 0..4),
    ) {
        let mut text = example.get(&documented()).clone();
        for mutation in mutations {
            text = mutation.apply(&text);
        }
        check_accepted(&text)?;
    }

    #[test]
    fn the_schema_accepts_the_groups_of_the_model(groups in vec(group(), 0..4), value in anything()) {
        let text = json!({ "deletionGroups": groups.iter().map(released).collect::<Vec<_>>() }).to_string();
        prop_assert_eq!(errors(&text), Some(Vec::new()));
        check_accepted(&value.to_string())?;
    }
}

/// Counts the values in a document.
fn count(value: &Value, places: &mut usize) {
    *places += 1;
    match value {
        Value::Object(fields) => fields.values().for_each(|value| count(value, places)),
        Value::Array(items) => items.iter().for_each(|value| count(value, places)),
        _ => {}
    }
}

/// Replaces the value at a position in a document.
fn replace(value: &mut Value, at: &mut usize, new: &Value) -> bool {
    if *at == 0 {
        *value = new.clone();
        return true;
    }
    *at -= 1;
    match value {
        Value::Object(fields) => fields.values_mut().any(|value| replace(value, at, new)),
        Value::Array(items) => items.iter_mut().any(|value| replace(value, at, new)),
        _ => false,
    }
}

#[test]
fn the_generated_documents_are_often_valid() {
    use proptest::{strategy::ValueTree as _, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let valid = |_: &u32| {
        let document = document().new_tree(&mut runner).unwrap().current();
        policy(&document.to_string()).is_ok()
    };
    let valid = (0..500_u32).filter(valid).count();
    assert!(valid > 25, "{valid} of 500");
}

#[test]
fn the_schema_accepts_the_examples_and_rejects_the_mistakes_of_the_guide() {
    for (line, block) in blocks("yaml policy").into_iter().chain(blocks("yaml document")) {
        assert_eq!(errors(&block), Some(Vec::new()), "line {line} of docs/policy.md");
    }
    for (line, block) in blocks("yaml mistake") {
        assert_ne!(errors(&block), Some(Vec::new()), "line {line} of docs/policy.md");
    }
}

#[test]
fn the_schema_rejects_common_mistakes() {
    let resources = "resources: [{apiVersion: v1, kind: cm}]";
    for mistake in [
        "{}".to_owned(),
        "[]".to_owned(),
        "deletiongroups: []".to_owned(),
        "deletionGroups: {}".to_owned(),
        "{deletionGroups: [], deletionOrderRules: []}".to_owned(),
        "deletionGroups: [{}]".to_owned(),
        "deletionGroups: [{predefinedResourceGroup: crd}]".to_owned(),
        "deletionGroups: [{predefinedResourceGroup: {type: crds}, forceDelete: true}]".to_owned(),
        "deletionGroups: [{predefinedResourceGroup: {type: crds}, customResourceGroup: {resources: []}}]".to_owned(),
        "deletionGroups: [{customResourceGroup: {resources: []}}]".to_owned(),
        format!("deletionGroups: [{{customResourceGroup: {{{resources}, timeout: soon}}}}]"),
        format!("deletionGroups: [{{customResourceGroup: {{{resources}, targetName: edge}}}}]"),
        format!("deletionGroups: [{{customResourceGroup: {{{resources}, propagationPolicy: orphan}}}}]"),
        "deletionGroups: [{customResourceGroup: {resources: [{apiVersion: v1, kind: cm, names: a}]}}]".to_owned(),
        "deletionGroups: [{customResourceGroup: {resources: [{group: '', version: v1, kind: cm}]}}]".to_owned(),
        "deletionGroups: [{resources: [{apiVersion: v1, kind: cm}]}]".to_owned(),
        "deletionGroups: [{resources: [{version: v1, kind: cm}]}]".to_owned(),
        "deletionOrderRules: [{deletionRank: 100, types: [{group: '', version: v1, kind: cm}]}]".to_owned(),
        "deletionOrderRules: [{deletionRank: 50}]".to_owned(),
        "deploymentGroups: [{predefinedResourceGroup: {type: empty}}]".to_owned(),
        "deploymentGroups: [{predefinedResourceGroup: {type: crds, forceDelete: true}}]".to_owned(),
    ] {
        policy(&mistake).unwrap_err();
        assert_ne!(errors(&mistake), Some(Vec::new()), "{mistake}");
    }
}
