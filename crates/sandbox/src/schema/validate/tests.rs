//! Tests with a definition that uses all features; the expected texts are those of a real API server.

use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::schema::of_crd;

fn schema() -> Arc<Schema> {
    let text = || json!({"type": "string"});
    let whole = || json!({"type": "integer"});
    let p_or_q = |junctor: &str| {
        json!({
            "type": "object", "properties": {"p": text(), "q": text()},
            junctor: [{"required": ["p"]}, {"required": ["q"]}],
        })
    };
    let item = json!({"type": "object", "properties": {"k": text()}});
    let keyed = json!({"type": "object", "required": ["k"], "properties": {"k": text()}});
    let spec = json!({
        "type": "object", "required": ["a"],
        "properties": {
            "a": {"type": "string", "enum": ["x", "y"]},
            "num": {"type": "integer", "minimum": 1, "maximum": 10, "format": "int32"},
            "lim": {"type": "integer", "minimum": 1, "exclusiveMinimum": true, "maximum": 5, "exclusiveMaximum": true},
            "m": {"type": "number", "exclusiveMinimum": true, "minimum": 1.5, "multipleOf": 0.5},
            "b": {"type": "boolean"},
            "s": {"type": "string", "minLength": 2, "maxLength": 4, "pattern": "^a"},
            "t": {"type": "string", "format": "date-time"},
            "bb": {"type": "string", "format": "byte"},
            "u": {"type": "string", "format": "uuid"},
            "l": {"type": "array", "maxItems": 2, "minItems": 1, "items": item},
            "lm": {
                "type": "array", "items": keyed,
                "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            },
            "ls": {"type": "array", "x-kubernetes-list-type": "set", "items": text()},
            "map": {
                "type": "object", "maxProperties": 1,
                "additionalProperties": {"type": "object", "properties": {"q": whole()}},
            },
            "free": {"type": "object", "additionalProperties": true},
            "shut": {"type": "object", "additionalProperties": false},
            "ios": {"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+%$"},
            "d": {"type": "string", "default": "dd"},
            "dn": {"type": "object", "default": {}, "properties": {"e": {"type": "integer", "default": 4}}},
            "nn": {"type": "string", "nullable": true},
            "emb": {
                "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
            },
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "one": p_or_q("oneOf"),
            "some": p_or_q("anyOf"),
            "nope": {"type": "string", "not": {"enum": ["bad"]}},
            "al": {"type": "string", "allOf": [{"minLength": 3}, {"maxLength": 5}]},
        },
    });
    let meta = json!({"type": "object", "properties": {"name": {"type": "string", "maxLength": 3}}});
    let root = json!({"type": "object", "required": ["spec"], "properties": {"spec": spec, "metadata": meta}});
    of_crd(&root).expect("a good schema")
}

fn object(mut spec: Value) -> Value {
    if let Some(fields) = spec.as_object_mut() {
        fields.entry("a").or_insert_with(|| "x".into());
    }
    json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"}, "spec": spec})
}

fn check(object: Value, expected: &[&str]) {
    let mut defaulted = object.clone();
    schema().set_defaults(&mut defaulted);
    let causes = schema().validate(&defaulted);
    let texts: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    assert_eq!(texts, expected, "{object}");
}

#[test]
fn invalid_values_are_rejected_with_the_texts_of_kubernetes() {
    let body = |path: &str, value: &str, what: &str| format!("{path}: Invalid value: {value}: {path} in body {what}");
    let kind = |path: &str, expected: &str, actual: &str| {
        body(path, &format!("\"{actual}\""), &format!("must be of type {expected}: \"{actual}\""))
    };
    let range = |kind: &str| format!("<nil>: Invalid value: \"\": Checked value must be of type integer {kind}");
    let one = |table: Vec<(Value, String)>| {
        for (spec, expected) in table {
            check(object(spec), &[&expected]);
        }
    };
    one(vec![
        (json!({"a": "z"}), "spec.a: Unsupported value: \"z\": supported values: \"x\", \"y\"".into()),
        (json!({"a": null}), "spec.a: Required value".into()),
        (json!(null), "spec: Required value".into()),
        (json!([]), kind("spec", "object", "array")),
        (json!({"num": 0}), body("spec.num", "0", "should be greater than or equal to 1")),
        (json!({"num": 11}), body("spec.num", "11", "should be less than or equal to 10")),
        (json!({"num": "1"}), kind("spec.num", "integer", "string")),
        (json!({"num": true}), kind("spec.num", "int32", "")),
        (json!({"lim": 1}), body("spec.lim", "1", "should be greater than 1")),
        (json!({"lim": 5}), body("spec.lim", "5", "should be less than 5")),
        (json!({"m": 1.5}), body("spec.m", "1.5", "should be greater than 1.5")),
        (json!({"m": 1.7}), body("spec.m", "1.7", "should be a multiple of 0.5")),
        (json!({"m": 2}), "spec.m: Invalid value: 0: factor MultipleOf declared for spec.m must be positive: 0".into()),
        (json!({"b": "true"}), kind("spec.b", "boolean", "string")),
        (json!({"s": "a"}), body("spec.s", "\"a\"", "should be at least 2 chars long")),
        (json!({"s": "abcde"}), "spec.s: Too long: may not be more than 4 bytes".into()),
        (json!({"s": "äöüß"}), body("spec.s", "\"äöüß\"", "should match '^a'")),
        (json!({"t": "now"}), kind("spec.t", "date-time", "now")),
        (json!({"t": 5}), kind("spec.t", "date-time", "int64")),
        (json!({"bb": "%"}), kind("spec.bb", "byte", "%")),
        (json!({"bb": {}}), kind("spec.bb", "byte", "")),
        (json!({"u": "q"}), kind("spec.u", "uuid", "q")),
        (json!({"l": []}), body("spec.l", "0", "should have at least 1 items")),
        (json!({"l": [{}, {}, {}]}), "spec.l: Too many: 3: must have at most 2 items".into()),
        (json!({"l": [null]}), kind("spec.l[0]", "object", "null")),
        (json!({"l": {}}), kind("spec.l", "array", "object")),
        (json!({"lm": [{"k": "a"}, {"k": "a"}]}), "spec.lm[1]: Duplicate value: {\"k\":\"a\"}".into()),
        (json!({"lm": [{}]}), "spec.lm[0].k: Required value".into()),
        (json!({"ls": ["a", "b", "a"]}), "spec.ls[2]: Duplicate value: \"a\"".into()),
        (json!({"map": {"b": 5}}), kind("spec.map.b", "object", "integer")),
        (
            json!({"shut": {"q": 1}}),
            "spec.shut: Invalid value: \"q\": spec.shut.q in body is a forbidden property".into(),
        ),
        (json!({"ios": true}), kind("spec.ios", "integer,string", "boolean")),
        (json!({"ios": 1.5}), kind("spec.ios", "integer,string", "number")),
        (json!({"ios": "5"}), body("spec.ios", "\"5\"", "should match '^[0-9]+%$'")),
        (json!({"nope": "bad"}), "<nil>: Invalid value: \"\": \"spec.nope\" must not validate the schema (not)".into()),
        (
            json!({"one": {"p": "", "q": ""}}),
            "<nil>: Invalid value: \"\": \"spec.one\" must validate one and only one schema (oneOf). Found 2 valid \
             alternatives"
                .into(),
        ),
    ]);
    let nil = "<nil>: Invalid value: \"\": ";
    for (spec, expected) in [
        (
            json!({"a": 5}),
            [
                kind("spec.a", "string", "integer"),
                "spec.a: Unsupported value: 5: supported values: \"x\", \"y\"".into(),
            ],
        ),
        (json!({"num": 1.5}), [kind("spec.num", "int32", "float64"), range("with format int32 in spec.num")]),
        (
            json!({"num": 99_999_999_999_i64}),
            [
                range("with format int32 in spec.num"),
                body("spec.num", "99999999999", "should be less than or equal to 10"),
            ],
        ),
        (json!({"lim": 2.5}), [kind("spec.lim", "integer", "number"), range("(default format) in spec.lim")]),
        (
            json!({"one": {}}),
            [
                format!("{nil}\"spec.one\" must validate one and only one schema (oneOf). Found none valid"),
                "spec.one.p: Required value".into(),
            ],
        ),
        (
            json!({"some": {}}),
            [
                format!("{nil}\"spec.some\" must validate at least one schema (anyOf)"),
                "spec.some.p: Required value".into(),
            ],
        ),
        (
            json!({"al": "ba"}),
            [
                body("spec.al", "\"ba\"", "should be at least 3 chars long"),
                format!("{nil}\"spec.al\" must validate all the schemas (allOf)"),
            ],
        ),
        (
            json!({"map": {"b": {"q": "z"}, "c": {}}}),
            ["spec.map: Too many: 2: must have at most 1 item".into(), kind("spec.map.b.q", "integer", "string")],
        ),
        (
            json!({"emb": {"foo": 1}}),
            ["spec.emb.apiVersion: Required value".into(), "spec.emb.kind: Required value".into()],
        ),
        (
            json!({"emb": {"apiVersion": "a/b/c", "kind": ""}}),
            [
                "spec.emb.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c".into(),
                "spec.emb.kind: Invalid value: \"\": must not be empty".into(),
            ],
        ),
    ] {
        check(object(spec), &[&expected[0], &expected[1]]);
    }
    let mut long = object(json!({}));
    long["metadata"] = json!({"name": "long", "ownerReferences": [{}]});
    check(long, &["metadata.name: Too long: may not be more than 3 bytes"]);
}

#[test]
fn valid_values_are_accepted() {
    for spec in [
        json!({"num": 1.0, "m": 2.5, "b": false, "s": "abcd", "t": "2026-01-01T00:00:00Z", "bb": "YQ==", "u": []}),
        json!({"ios": 5, "any": null, "nn": null, "d": "", "one": {"p": ""}, "some": {"p": "", "q": ""}, "al": "abc"}),
        json!({"lm": [{"k": "a"}, {"k": "b"}], "ls": ["a"], "free": {"x": [1]}, "shut": {}, "nope": "good"}),
        json!({"emb": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "more": 1}}),
    ] {
        check(object(spec), &[]);
    }
}

#[test]
fn defaults_are_filled_and_nulls_dropped() {
    let mut thing =
        object(json!({"d": null, "dn": null, "nn": null, "b": null, "any": {"x": null}, "map": {"a": null}}));
    schema().set_defaults(&mut thing);
    let expected = json!({"a": "x", "d": "dd", "dn": {"e": 4}, "nn": null, "any": {"x": null}, "map": {}});
    assert_eq!(thing["spec"], expected);
}

#[test]
fn unknown_fields_are_dropped() {
    let mut thing = object(json!({
        "foo": 1, "l": [{"z": 1, "k": "a"}], "map": {"a.b": {"z": 1}}, "q": {"a": 1, "b": 2}, "any": {"x": {"y": 1}},
        "emb": {"apiVersion": "v1", "kind": "A", "metadata": {"foo": 1, "finalizers": []}, "bar": 1},
        "free": {"q": 1, "o": {"p": 1}, "l": [{"z": 1}]},
    }));
    thing["foo"] = 1.into();
    thing["metadata"] = json!({"name": "a", "foo": 1, "labels": {"a": null}, "ownerReferences": [{"a": 1}]});
    let mut unknown = schema().prune(&mut thing);
    unknown.sort();
    assert_eq!(
        unknown,
        [
            "foo",
            "metadata.foo",
            "metadata.ownerReferences[0].a",
            "spec.emb.metadata.foo",
            "spec.foo",
            "spec.free.l[0].z",
            "spec.free.o.p",
            "spec.l[0].z",
            "spec.map.a.b.z",
            "spec.q",
        ]
    );
    assert_eq!(thing["metadata"], json!({"name": "a", "labels": {"a": ""}, "ownerReferences": [{}]}));
    assert_eq!(
        thing["spec"],
        json!({
            "a": "x", "l": [{"k": "a"}], "map": {"a.b": {}}, "any": {"x": {"y": 1}},
            "emb": {"apiVersion": "v1", "kind": "A", "metadata": {}, "bar": 1},
            "free": {"q": 1, "o": {}, "l": [{}]},
        })
    );
}

#[test]
fn metadata_of_custom_resources_is_decoded() {
    let error = |change: &dyn Fn(&mut Value)| {
        let mut thing = object(json!({"num": "not decoded"}));
        change(&mut thing);
        schema().wrong_types(&thing).unwrap_or_default()
    };
    let labels = "json: cannot unmarshal number into Go struct field ObjectMeta.labels of type string";
    assert_eq!(error(&|_| {}), "");
    assert_eq!(error(&|thing| thing["metadata"]["labels"] = json!({"a": 5})), labels);
    assert_eq!(
        error(&|thing| thing["spec"]["emb"] = json!({"kind": 5})),
        "spec.emb.kind: Invalid value: 5: must be a string"
    );
    assert_eq!(
        error(&|thing| thing["spec"]["emb"] = json!({"metadata": {"labels": {"a": 5}}})),
        format!("spec.emb.metadata: Invalid value: {{\"labels\":{{\"a\":5}}}}: {labels}")
    );
}
