//! Properties of all values.

use billhook_objects::{Digest, yaml};
use proptest::prelude::*;
use serde_json::{Map, Value, json as value};

/// Generates JSON values that kubectl preserves: it would turn a float without a fraction into an integer.
fn json() -> impl Strategy<Value = Value> {
    let float = any::<f64>().prop_filter_map("finite, with a fraction", |float| {
        (float.is_finite() && float.fract() != 0.0).then(|| Value::from(float))
    });
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        float,
        any::<String>().prop_map(Value::from),
        "(yes|no|on|~|null|0x1f|0644|1_000|1e3|<<|=|-|: |#|---|\\.inf)".prop_map(Value::from),
    ];
    scalar.prop_recursive(6, 64, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..8).prop_map(Value::from),
            prop::collection::vec((".{0,12}", inner), 0..8)
                .prop_map(|entries| entries.into_iter().collect::<Map<_, _>>().into()),
        ]
    })
}

/// Returns whether the YAML reader, which reads arrays and scalars, accepts all characters; JSON allows more.
fn printable(text: &str) -> bool {
    text.chars()
        .all(|c| !c.is_control() && !matches!(c, '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{2028}' | '\u{2029}'))
}

fn check_written(value: &Value) {
    let text = yaml::write(value);
    assert_eq!(&yaml::parse(&text).unwrap()[0].value, value, "{text}");
}

#[test]
fn strings_that_yaml_would_read_as_other_values_are_quoted() {
    for string in
        ["", "true", "No", "1", "0x1", "1.0", ".5", "~", "null", "a: b", "a:", "a #b", "a ", "- a", "'a", "a\nb", "{a}"]
    {
        check_written(&value!({ string: string }));
        check_written(&value!([string, [string], { "a": [string] }]));
    }
    check_written(&value!({"a": {"b": [{"c": 1, "d": []}, {"e": {}}, [[1], 2]]}, "f": [null, true, 1.5]}));
}

#[test]
fn a_text_of_several_lines_is_written_line_by_line() {
    let text = yaml::write(&value!({"a": {"b": ["x\n\n  y\n", "x\ny"], "c": "x\n\n", "d": " x\ny", "e": "x\r\ny"}}));
    let expected = "\
a:
  b:
  - |
    x

      y
  - |-
    x
    y
  c: |+
    x

  d: \" x\\ny\"
  e: \"x\\r\\ny\"
";
    assert_eq!(text, expected);
}

proptest! {
    #[test]
    fn a_written_value_is_read_unchanged(value in json(), lines in "([-a-z:{}'\"&*!|>#?, ]|\n|--- ?\n){0,40}") {
        let value = value!({ "value": value, "lines": [{"a": &lines}, lines] });
        prop_assume!(printable(&value.to_string()));
        let text = yaml::write(&value);
        prop_assert_eq!(&yaml::parse(&text).unwrap()[0].value, &value, "{}", text);
    }

    #[test]
    fn a_json_object_is_read_unchanged(value in json()) {
        let object = value!({ "value": value });
        let documents = yaml::parse(&object.to_string()).unwrap();
        prop_assert_eq!(&documents[0].value, &object);
        prop_assert_eq!(documents.len(), 1);
        let pretty = serde_json::to_string_pretty(&object).unwrap();
        prop_assert_eq!(&yaml::parse(&pretty).unwrap()[0].value, &object);
    }

    #[test]
    fn json_is_yaml(value in json()) {
        let text = Value::from(vec![value.clone()]).to_string();
        prop_assume!(printable(&text));
        let documents = yaml::parse(&text).unwrap();
        prop_assert_eq!(&documents[0].value, &Value::from(vec![value]));
        let nodes = yaml::parse_nodes(&text).unwrap();
        prop_assert_eq!(&nodes[0].to_value(), &documents[0].value);
    }

    #[test]
    fn an_integral_float_is_an_integer(int in -(1_i64 << 53)..(1_i64 << 53)) {
        let documents = yaml::parse(&format!("a: {int}.0")).unwrap();
        prop_assert_eq!(&documents[0].value["a"], &Value::from(int));
    }

    #[test]
    fn a_digest_is_read_as_it_is_written(value in json()) {
        let digest = Digest::of(&value);
        let text = String::from(digest.clone());
        prop_assert_eq!(text.len(), 64);
        prop_assert!(text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')));
        prop_assert_eq!(Digest::try_from(text), Ok(digest));
    }

    #[test]
    fn a_text_that_is_no_digest_is_rejected(text in "[0-9a-f]{0,63}|[0-9a-f]{65,80}|[0-9a-f]{40}[g-zG-Z +µ][0-9a-f]{23}") {
        prop_assert!(Digest::try_from(text).is_err());
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in any::<String>(), lines in "([-a-z:{}\\[\\] \t\n\r\"'&*!|>#?,<0-9._]|--- ?\n){0,60}") {
        for text in [text, lines] {
            let values = yaml::parse(&text);
            let nodes = yaml::parse_nodes(&text);
            prop_assert_eq!(values.is_ok(), nodes.is_ok());
        }
    }
}
