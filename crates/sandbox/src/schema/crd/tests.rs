//! Tests of the schemas in CustomResourceDefinitions.

use serde_json::json;

use super::*;

fn check(schema: Value, expected: &[&str]) {
    let causes = of_crd(&schema).err().unwrap_or_default();
    let texts: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    assert_eq!(texts, expected, "{schema}");
}

fn with(field: Value) -> Value {
    json!({"type": "object", "properties": {"q": field}})
}

#[test]
fn schemas_that_are_not_structural_are_rejected() {
    check(json!({}), &["type: Required value: must not be empty at the root"]);
    check(json!({"type": "string"}), &["type: Invalid value: \"string\": must be object at the root"]);
    check(with(json!({})), &["properties[q].type: Required value: must not be empty for specified object fields"]);
    check(with(json!({"type": "array"})), &["properties[q].items: Required value: must be specified"]);
    check(
        with(json!({"type": "array", "items": {}})),
        &["properties[q].items.type: Required value: must not be empty for specified array items"],
    );
    check(
        with(json!({"type": "foo"})),
        &["properties[q].type: Unsupported value: \"foo\": supported values: \"array\", \"boolean\", \"integer\", \
           \"number\", \"object\", \"string\""],
    );
    check(
        with(json!({
            "type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"},
        })),
        &["properties[q].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    );
    check(
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        &["additionalProperties: Forbidden: must not be used at the root"],
    );
    check(
        with(json!({"type": "string", "anyOf": [{"type": "string", "description": "x"}]})),
        &[
            "properties[q].anyOf[0].description: Forbidden: must be empty to be structural",
            "properties[q].anyOf[0].type: Forbidden: must be empty to be structural",
        ],
    );
    check(with(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})), &[]);
    check(with(json!({"x-kubernetes-preserve-unknown-fields": true})), &[]);
    check(with(json!({"$ref": "#/x", "type": "string"})), &["properties[q].$ref: Forbidden: $ref is not supported"]);
    let meta = |meta: Value| json!({"type": "object", "properties": {"metadata": meta}});
    check(meta(json!({"type": "object"})), &[]);
    check(
        meta(json!({"type": "object", "properties": {"labels": {"type": "object"}}})),
        &["properties[metadata]: Forbidden: must not specify anything other than name and generateName, but \
             metadata is implicitly specified"],
    );
}

#[test]
fn list_types_and_keys_are_checked() {
    let list = |more: Value| {
        let mut list = json!({
            "type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
        });
        list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        with(list)
    };
    check(
        list(json!({})),
        &["properties[q].items.properties[a].default: Required value: this property is in \
             x-kubernetes-list-map-keys, so it must have a default or be a required property"],
    );
    check(
        list(json!({"x-kubernetes-list-map-keys": []})),
        &["properties[q].x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is \
             map"],
    );
    check(
        list(json!({"x-kubernetes-list-map-keys": ["b"]})),
        &["properties[q].x-kubernetes-list-map-keys: Invalid value: [\"b\"]: entries must all be names of item \
             properties"],
    );
    check(
        list(json!({"x-kubernetes-list-type": "set"})),
        &[
            "properties[q].items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
             x-kubernetes-list-type=set",
            "properties[q].x-kubernetes-list-type: Invalid value: \"set\": must be map if x-kubernetes-list-map-keys \
             is non-empty",
        ],
    );
}

#[test]
fn defaults_must_be_valid() {
    check(
        with(json!({"type": "string", "default": 5})),
        &["properties[q].default: Invalid value: \"integer\":  in body must be of type string: \"integer\""],
    );
    check(
        with(json!({"type": "object", "default": {"z": 1}})),
        &["properties[q].default: Invalid value: {\"z\":1}: must not have unknown fields"],
    );
    check(
        with(json!({"type": "object", "default": {"z": "x"}, "properties": {"z": {"type": "integer"}}})),
        &["properties[q].default.z: Invalid value: \"string\": z in body must be of type integer: \"string\""],
    );
    check(
        with(json!({"type": "string", "pattern": "(("})),
        &["properties[q].pattern: Invalid value: \"((\": must be a valid regular expression, but isn't: error \
             parsing regexp: unclosed group: `((`"],
    );
}

#[test]
fn every_object_has_metadata() {
    let schema = of_crd(&with(json!({"type": "string"}))).unwrap();
    assert_eq!(schema.field("metadata").and_then(|meta| meta.go.as_deref()), Some("v1.ObjectMeta"));
    assert!(schema.field("kind").is_some() && schema.source.is_some());
    assert!(schema.field("q").is_some_and(|field| field.source.is_none()));
}
