use serde_json::{Value, json};

use super::Schema;

fn schema(properties: Value) -> Schema {
    let root = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}});
    let version = json!({"name": "v1", "served": true, "schema": {"openAPIV3Schema": root}});
    Schema::from_crd(&json!({"spec": {"versions": [version]}}), "v1").unwrap()
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "a.example/v1", "kind": "Widget", "metadata": {"name": "a", "labels": {"x": "y"}}, "spec": spec})
}

/// Checks the field `x` of this schema: the problems of each value.
fn check(field: Value, cases: &[(Value, &[&str])]) {
    let mut schema = schema(json!({"x": field}));
    for (value, expected) in cases {
        assert_eq!(schema.problems(&object(&json!({"x": value}))), *expected, "{value} by {field}");
    }
}

#[test]
fn types() {
    check(
        json!({"type": "integer"}),
        &[
            (json!(1), &[]),
            (json!(1.0), &[]),
            (json!(1.5), &["spec.x must be of type integer, not number"]),
            (json!("1"), &["spec.x must be of type integer, not string"]),
            (json!([]), &["spec.x must be of type integer, not array"]),
            // Dropped before the validation.
            (json!(null), &[]),
        ],
    );
    check(
        json!({"type": "number"}),
        &[(json!(1), &[]), (json!(1.5), &[]), (json!(true), &["spec.x must be of type number, not boolean"])],
    );
    check(json!({"type": "string"}), &[(json!("a"), &[]), (json!(1), &["spec.x must be of type string, not integer"])]);
    check(
        json!({"type": "boolean"}),
        &[(json!(true), &[]), (json!({}), &["spec.x must be of type boolean, not object"])],
    );
    check(json!({"type": "object"}), &[(json!({}), &[]), (json!([]), &["spec.x must be of type object, not array"])]);
    check(
        json!({"x-kubernetes-int-or-string": true}),
        &[
            (json!(1), &[]),
            (json!("10%"), &[]),
            (json!(true), &["spec.x must be of type integer or string, not boolean"]),
        ],
    );
    check(json!({"type": "array", "items": {"type": "string", "nullable": true}}), &[(json!(["a", null]), &[])]);
    check(
        json!({"type": "array", "items": {"type": "string"}}),
        &[(
            json!(["a", null, 1]),
            &["spec.x[1] must be of type string, not null", "spec.x[2] must be of type string, not integer"],
        )],
    );
}

#[test]
fn numbers_texts_and_sizes() {
    check(
        json!({"type": "integer", "minimum": 1, "maximum": 3}),
        &[
            (json!(1), &[]),
            (json!(3), &[]),
            (json!(0), &["spec.x must be at least 1"]),
            (json!(4), &["spec.x must be at most 3"]),
        ],
    );
    let exclusive =
        json!({"type": "number", "minimum": 0, "exclusiveMinimum": true, "maximum": 1, "exclusiveMaximum": true});
    check(
        exclusive,
        &[
            (json!(0.5), &[]),
            (json!(0), &["spec.x must be greater than 0"]),
            (json!(1), &["spec.x must be less than 1"]),
        ],
    );
    check(
        json!({"type": "integer", "multipleOf": 5}),
        &[(json!(10), &[]), (json!(11), &["spec.x must be a multiple of 5"])],
    );
    check(
        json!({"type": "string", "enum": ["a", "b"]}),
        &[(json!("a"), &[]), (json!("c"), &["spec.x must be one of \"a\", \"b\""])],
    );
    check(
        json!({"type": "string", "minLength": 1, "maxLength": 2, "pattern": "^[aä]*$"}),
        &[
            (json!("ää"), &[]),
            (json!(""), &["spec.x must have at least 1 character"]),
            (json!("aaa"), &["spec.x must have at most 2 characters"]),
            (json!("b"), &["spec.x must match \"^[aä]*$\""]),
        ],
    );
    check(json!({"type": "string", "pattern": "(?<!"}), &[(json!("not checked: not a pattern here"), &[])]);
    check(
        json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}),
        &[
            (json!(["a"]), &[]),
            (json!([]), &["spec.x must have at least 1 item"]),
            (json!(["a", "b", "c"]), &["spec.x must have at most 2 items"]),
        ],
    );
    let map = json!({"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 1});
    check(
        map,
        &[
            (json!({"a": 1}), &[]),
            (
                json!({"a": 1, "b": "2"}),
                &["spec.x must have at most 1 field", "spec.x.b must be of type integer, not string"],
            ),
        ],
    );
}

#[test]
fn unknown_and_required_fields() {
    let fields = json!({"a": {"type": "string"}, "b": {"type": "string", "default": "b"}, "c": {"type": "string", "nullable": true}});
    check(
        json!({"type": "object", "properties": fields, "required": ["a", "b", "c"]}),
        &[
            (json!({"a": "", "c": null}), &[]),
            (json!({"a": null}), &["spec.x.a is required", "spec.x.c is required"]),
            (json!({"a": "", "c": "", "d": 1}), &["unknown field spec.x.d"]),
        ],
    );
    let open = json!({"type": "object", "properties": {"a": {"type": "object"}}, "x-kubernetes-preserve-unknown-fields": true});
    check(open, &[(json!({"b": {"c": 1}}), &[]), (json!({"a": {"c": 1}}), &["unknown field spec.x.a.c"])]);
    check(json!({"type": "object", "additionalProperties": true}), &[(json!({"b": {"c": 1}}), &[])]);
    check(
        json!({"type": "array", "items": {"type": "object"}}),
        &[(json!([{"a": 1}]), &["unknown field spec.x[0].a"])],
    );
    check(
        json!({"x-kubernetes-preserve-unknown-fields": true}),
        &[(json!([{"a": 1}]), &[]), (json!({"a": [null]}), &[])],
    );
    let embedded =
        json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"data": {"type": "object"}}});
    check(
        embedded,
        &[
            (json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}), &[]),
            (
                json!({"data": {}, "more": 1}),
                &["unknown field spec.x.more", "spec.x.apiVersion is required", "spec.x.kind is required"],
            ),
        ],
    );
}

#[test]
fn combinations_and_keys() {
    let either = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "oneOf": [{"required": ["a"]}, {"required": ["b"]}]});
    check(
        either,
        &[
            (json!({"a": 1}), &[]),
            (json!({}), &["spec.x must match exactly one schema of oneOf, but matches 0"]),
            (json!({"a": 1, "b": 1}), &["spec.x must match exactly one schema of oneOf, but matches 2"]),
        ],
    );
    let mixed = json!({"type": "string", "allOf": [{"minLength": 2}], "anyOf": [{"pattern": "a"}, {"pattern": "b"}],
        "not": {"pattern": "c"}});
    check(
        mixed,
        &[
            (json!("aa"), &[]),
            (json!("a"), &["spec.x must have at least 2 characters"]),
            (json!("xx"), &["spec.x must match at least one schema of anyOf"]),
            (json!("ac"), &["spec.x must not match the schema of not"]),
        ],
    );
    check(
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}),
        &[(json!(["a", "b"]), &[]), (json!(["a", "a"]), &["spec.x[1] is a duplicate of an earlier item"])],
    );
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}, "kind": {"type": "string", "default": "A"}}});
    let map = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name", "kind"]});
    check(
        map,
        &[
            (json!([{"name": "a"}, {"name": "a", "kind": "B"}]), &[]),
            (json!([{"name": "a"}, {"name": "a", "kind": "A"}]), &["spec.x[1] is a duplicate of an earlier item"]),
        ],
    );
}

#[test]
fn versions_and_rules() {
    let version = |name: &str, served: bool| json!({"name": name, "served": served, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let crd = json!({"spec": {"versions": [version("v1", true), version("v2", false)]}});
    assert!(Schema::from_crd(&crd, "v1").is_some() && Schema::from_crd(&crd, "v2").is_none());
    assert!(Schema::from_crd(&json!({}), "v1").is_none());
    let rules = json!({"x": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]}});
    assert!(schema(rules).has_rules() && !schema(json!({"x": {"type": "integer"}})).has_rules());
}
