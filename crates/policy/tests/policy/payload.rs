//! Tests of the configuration of payloads.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use std::sync::LazyLock;

use billhook_objects::yaml;
use billhook_policy::{PAYLOAD_SCHEMA, PayloadConfiguration, read_payload_configuration};
use jsonschema::Validator;
use proptest::{prelude::*, sample::select};
use serde_json::{Value, json};

use super::check::{assert_lines, file};

static SCHEMA: LazyLock<Validator> =
    LazyLock::new(|| jsonschema::draft202012::new(&serde_json::from_str(PAYLOAD_SCHEMA).unwrap()).unwrap());

fn read(text: &str) -> Result<PayloadConfiguration, String> {
    read_payload_configuration(text, &file()).map_err(|diagnostics| diagnostics.to_string())
}

#[test]
fn all_fields_are_read() {
    let text = |text: &str| Some(text.to_owned());
    let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
    let expected = PayloadConfiguration {
        name: text("a"),
        namespace: text("b"),
        profile: text("c"),
        feature_set: text("d"),
        feature_gates: list(&["e", "-f"]),
        capabilities: list(&["g"]),
        exclude: text("h"),
        overrides: list(&["i/j/k"]),
        cluster_version: text("l"),
    };
    let all = "name: a\nnamespace: b\nprofile: c\nfeatureSet: d\nfeatureGates: [e, -f]\ncapabilities: [g]\nexclude: h\n\
               overrides: [i/j/k]\nclusterVersion: l\n";
    assert_eq!(read(all), Ok(expected));
    assert_eq!(read("# nothing\n"), Ok(PayloadConfiguration::default()));
    assert_eq!(read("name: null\ncapabilities:\n"), Ok(PayloadConfiguration::default()));
}

#[test]
fn all_mistakes_are_reported_with_their_places() {
    let check = |text: &str, expected: &str| assert_lines(&read(text).unwrap_err(), expected, text);
    check(
        "name: 1\nfeatureGate: [a]\ncapabilities: a\noverrides: [1]\nexclude: b\nexclude: c\n",
        r#"
        p:1:7: name: expected a string, found a number (put it in quotes)
        p:2:1: unknown field "featureGate"; did you mean "featureGates"?
        p:3:15: capabilities: expected a list, found a string
        p:4:13: overrides[0]: expected a string, found a number (put it in quotes)
        p:6:1: field "exclude" is set twice, first in line 5 (remove one of the two)
        "#,
    );
    check("- a\n", "p:1:1: expected a mapping, found a list");
    check("a: 1\n---\nb: 1\n", "p:3:1: expected one document in a payload configuration, found 2");
    check("a: [\n", "p:1:4: not valid YAML: unclosed bracket '['");
}

proptest! {
    /// The reader and the schema agree on documents of all fields with all types of values.
    #[test]
    fn the_schema_accepts_what_the_reader_accepts(fields in proptest::collection::btree_map(field(), value(), 0..4)) {
        let document = json!(fields);
        let text = yaml::write(&document);
        prop_assert_eq!(read(&text).is_ok(), SCHEMA.is_valid(&document), "{}", text);
    }
}

fn field() -> impl Strategy<Value = &'static str> {
    select(vec![
        "name",
        "namespace",
        "profile",
        "featureSet",
        "featureGates",
        "capabilities",
        "exclude",
        "overrides",
        "clusterVersion",
        "version",
    ])
}

fn value() -> impl Strategy<Value = Value> {
    select(vec![json!(null), json!("a"), json!(1), json!(true), json!([]), json!(["a"]), json!([1]), json!({"a": 1})])
}
