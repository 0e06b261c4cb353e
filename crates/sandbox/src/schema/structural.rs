//! Validation of the schemas in CustomResourceDefinitions.

use serde_json::{Value, json};

use super::{path::Path, pattern};
use crate::{object::text, status::Cause};

/// The level of a schema: that of the object, of list items, or of a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Returns whether every object has a field.
pub(super) fn is_meta(name: &str) -> bool {
    matches!(name, "apiVersion" | "kind" | "metadata")
}

fn fields(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn list<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    schema[keyword].as_array().into_iter().flatten().enumerate()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(value) => !value,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Number(_) => false,
    }
}

/// Checks whether a schema is structural: whether it declares the type of each field apart from value validation.
pub(super) fn invariants(schema: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    structure(schema, Level::Root, &Path::Root, &mut causes);
    causes.sort_by_cached_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes
}

fn structure(schema: &Value, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let at = |keyword: &str| Path::Field(path, keyword).to_string();
    let (kind, flag) = (text(schema, "type"), |keyword: &str| schema[keyword] == true);
    let has = |keyword: &str| schema[keyword].is_object();
    let (embedded, int_or_string) = (flag("x-kubernetes-embedded-resource"), flag("x-kubernetes-int-or-string"));
    let preserve = flag("x-kubernetes-preserve-unknown-fields");
    if has("items") {
        structure(&schema["items"], Level::Item, &Path::Field(path, "items"), causes);
    } else if kind == "array" {
        causes.push(Cause::required(at("items"), "must be specified"));
    }
    let properties = Path::Field(path, "properties");
    for (name, field) in fields(schema) {
        structure(field, Level::Field, &Path::Key(&properties, name), causes);
    }
    let additional = !schema["additionalProperties"].is_null();
    if additional && level == Level::Root {
        causes.push(Cause::forbidden(at("additionalProperties"), "must not be used at the root"));
    }
    if has("additionalProperties") {
        let path = Path::Field(path, "additionalProperties");
        structure(&schema["additionalProperties"], Level::Field, &path, causes);
    }
    if int_or_string {
        for (other, set) in
            [("x-kubernetes-preserve-unknown-fields", preserve), ("x-kubernetes-embedded-resource", embedded)]
        {
            if set {
                let detail = "must be false if x-kubernetes-int-or-string is true";
                causes.push(Cause::invalid(at(other), &true.into(), detail));
            }
        }
    }
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    values(schema, schema["anyOf"] == either, schema["allOf"][0]["anyOf"] == either, path, causes);
    types(schema, level, path, causes);
    if level == Level::Root || embedded {
        meta(schema, level, &properties, causes);
    }
}

/// Checks the type and what depends on it.
fn types(schema: &Value, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let at = |keyword: &str| Path::Field(path, keyword).to_string();
    let (kind, flag) = (text(schema, "type"), |keyword: &str| schema[keyword] == true);
    let (embedded, int_or_string) = (flag("x-kubernetes-embedded-resource"), flag("x-kubernetes-int-or-string"));
    let preserve = flag("x-kubernetes-preserve-unknown-fields");
    if embedded && kind != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(match kind {
            "" => Cause::required(at("type"), detail),
            kind => Cause::invalid(at("type"), &kind.into(), detail),
        });
    } else if kind.is_empty() && !int_or_string && !preserve {
        causes.push(Cause::required(
            at("type"),
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    }
    if embedded && !schema["additionalProperties"].is_null() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(at("additionalProperties"), detail));
    }
    if level == Level::Root && !matches!(kind, "" | "object") {
        causes.push(Cause::invalid(at("type"), &kind.into(), "must be object at the root"));
    }
    if embedded && !preserve && fields(schema).next().is_none() {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without \
            x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(at("properties"), detail));
    }
}

/// Checks the schemas of the fields that every object has.
fn meta(schema: &Value, level: Level, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for (name, expected) in [("kind", "string"), ("apiVersion", "string"), ("metadata", "object")] {
        let Some(field) = schema["properties"].get(name) else { continue };
        let (field_path, kind) = (Path::Key(path, name), text(field, "type"));
        if kind != expected {
            let field = Path::Field(&field_path, "type").to_string();
            causes.push(Cause::invalid(field, &kind.into(), &format!("must be {expected}")));
        }
        let names_only = fields(field).all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
        let keywords = field.as_object().into_iter().flatten().filter(|(_, value)| !is_empty(value));
        let more =
            keywords.filter(|(keyword, _)| !matches!(keyword.as_str(), "type" | "properties" | "default")).count();
        if name == "metadata" && level == Level::Root && (!names_only || more > 0) {
            let detail =
                "must not specify anything other than name and generateName, but metadata is implicitly specified";
            causes.push(Cause::forbidden(field_path.to_string(), detail));
        }
    }
}

/// Checks value validation: the pattern, and the schemas in `anyOf` and the like.
fn values(schema: &Value, skip_any: bool, skip_first_all: bool, path: &Path<'_>, causes: &mut Vec<Cause>) {
    for keyword in ["anyOf", "allOf", "oneOf"].into_iter().filter(|keyword| *keyword != "anyOf" || !skip_any) {
        let path = Path::Field(path, keyword);
        for (index, schema) in list(schema, keyword) {
            let skip_any = keyword == "allOf" && skip_first_all && index == 0;
            nested(schema, skip_any, &Path::Index(&path, index), causes);
        }
    }
    if schema["not"].is_object() {
        nested(&schema["not"], false, &Path::Field(path, "not"), causes);
    }
    let expression = text(schema, "pattern");
    if !expression.is_empty()
        && let Err(error) = pattern::compile(expression)
    {
        let detail =
            format!("must be a valid regular expression, but isn't: error parsing regexp: {error}: `{expression}`");
        causes.push(Cause::invalid(Path::Field(path, "pattern").to_string(), &expression.into(), &detail));
    }
}

/// Rejects declarations in schemas that only validate values.
fn nested(schema: &Value, skip_any: bool, path: &Path<'_>, causes: &mut Vec<Cause>) {
    const FORBIDDEN: [(&str, &str); 13] = [
        ("type", "must be empty to be structural"),
        ("additionalProperties", "must be undefined to be structural"),
        ("default", "must be undefined to be structural"),
        ("title", "must be empty to be structural"),
        ("description", "must be empty to be structural"),
        ("nullable", "must be false to be structural"),
        ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
        ("x-kubernetes-embedded-resource", "must be false to be structural"),
        ("x-kubernetes-int-or-string", "must be false to be structural"),
        ("x-kubernetes-list-map-keys", "must be empty to be structural"),
        ("x-kubernetes-list-type", "must be undefined to be structural"),
        ("x-kubernetes-map-type", "must be undefined to be structural"),
        ("x-kubernetes-validations", "must be empty to be structural"),
    ];
    values(schema, skip_any, false, path, causes);
    if schema["items"].is_object() {
        nested(&schema["items"], false, &Path::Field(path, "items"), causes);
    }
    let properties = Path::Field(path, "properties");
    for (name, field) in fields(schema) {
        nested(field, false, &Path::Key(&properties, name), causes);
    }
    for (keyword, detail) in FORBIDDEN {
        let value = &schema[keyword];
        let set = if keyword == "default" || value.is_object() { !value.is_null() } else { !is_empty(value) };
        if set {
            causes.push(Cause::forbidden(Path::Field(path, keyword).to_string(), detail));
        }
    }
    if schema["properties"].get("metadata").is_some() {
        let field = Path::Key(&properties, "metadata").to_string();
        causes.push(Cause::forbidden(field, "must not be specified in a nested context"));
    }
}

/// Checks the rules that apply to each schema within a schema.
pub(super) fn rules(schema: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if schema["nullable"] == true {
        causes.push(Cause::forbidden("nullable", "nullable cannot be true at the root"));
    }
    each(schema, Inside { root: true, ..Inside::default() }, &Path::Root, &mut causes);
    causes
}

/// The context of a schema.
#[derive(Clone, Copy, Default)]
struct Inside<'a> {
    root: bool,
    /// Whether it is within the metadata of an object.
    meta: bool,
    /// Why defaults are not allowed.
    no_default: Option<&'a str>,
}

fn each(schema: &Value, inside: Inside<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    keywords(schema, inside, path, causes);
    let additional = &schema["additionalProperties"];
    let named = fields(schema).next().is_some();
    if named && (additional.is_object() || *additional == false) {
        let detail = "additionalProperties and properties are mutual exclusive";
        causes.push(Cause::forbidden(Path::Field(path, "additionalProperties").to_string(), detail));
    }
    let within = Inside { root: false, ..inside };
    if additional.is_object() {
        let why = "must not be set inside additionalProperties applying to object metadata";
        let no_default = if inside.meta { Some(why) } else { within.no_default };
        each(additional, Inside { no_default, ..within }, &Path::Field(path, "additionalProperties"), causes);
    }
    let properties = Path::Field(path, "properties");
    for (name, field) in fields(schema) {
        let meta = is_meta(name) && (inside.root || schema["x-kubernetes-embedded-resource"] == true);
        let why = format!("must not be set in top-level {name}");
        let no_default = if meta && inside.root { Some(why.as_str()) } else { within.no_default };
        let within = Inside { meta: meta || within.meta, no_default, ..within };
        each(field, within, &Path::Key(&properties, name), causes);
    }
    if schema["not"].is_object() {
        each(&schema["not"], within, &Path::Field(path, "not"), causes);
    }
    for keyword in ["allOf", "oneOf", "anyOf"] {
        for (index, schema) in list(schema, keyword) {
            each(schema, within, &Path::Index(&Path::Field(path, keyword), index), causes);
        }
    }
    if schema["items"].is_object() {
        each(&schema["items"], within, &Path::Field(path, "items"), causes);
    }
    lists_and_maps(schema, path, causes);
}

fn keywords(schema: &Value, inside: Inside<'_>, path: &Path<'_>, causes: &mut Vec<Cause>) {
    const UNSUPPORTED: [&str; 6] =
        ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"];
    const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];
    let at = |keyword: &str| Path::Field(path, keyword).to_string();
    let kind = text(schema, "type");
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(Cause::unsupported(at("type"), &kind.into(), &TYPES.map(str::to_owned)));
    }
    if let Some(why) = inside.no_default.filter(|_| !schema["default"].is_null()) {
        causes.push(Cause::forbidden(at("default"), why));
    }
    for keyword in UNSUPPORTED.into_iter().filter(|keyword| !is_empty(&schema[*keyword])) {
        causes.push(Cause::forbidden(at(keyword), &format!("{keyword} is not supported")));
    }
    if kind == "null" {
        causes.push(Cause::forbidden(at("type"), "type cannot be set to null, use nullable as an alternative"));
    }
    if schema["items"].is_array() {
        causes.push(Cause::forbidden(at("items"), "items must be a schema object and not an array"));
    }
    if inside.meta && schema["x-kubernetes-embedded-resource"] == true {
        causes.push(Cause::forbidden(at("x-kubernetes-embedded-resource"), "must not be used inside of resource meta"));
    }
    if schema["uniqueItems"] == true {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(at("uniqueItems"), detail));
    }
    if schema["x-kubernetes-preserve-unknown-fields"] == false {
        let field = at("x-kubernetes-preserve-unknown-fields");
        causes.push(Cause::invalid(field, &false.into(), "must be true or undefined"));
    }
}

/// Checks `x-kubernetes-map-type`, `x-kubernetes-list-type` and `x-kubernetes-list-map-keys`.
fn lists_and_maps(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let at = |keyword: &str| Path::Field(path, keyword).to_string();
    let kind = text(schema, "type");
    for (keyword, expected, known) in [
        ("x-kubernetes-map-type", "object", ["atomic", "granular"].as_slice()),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"]),
    ] {
        let Some(value) = schema[keyword].as_str() else { continue };
        if kind != expected {
            let detail = format!("must be {expected} if {keyword} is specified");
            causes.push(match kind {
                "" => Cause::required(at("type"), &detail),
                kind => Cause::invalid(at("type"), &kind.into(), &detail),
            });
        }
        if !known.contains(&value) {
            let known: Vec<_> = known.iter().map(|known| (*known).to_owned()).collect();
            causes.push(Cause::unsupported(at(keyword), &value.into(), &known));
        }
    }
    let (list_type, keys) = (text(schema, "x-kubernetes-list-type"), &schema["x-kubernetes-list-map-keys"]);
    let (items, items_path) = (&schema["items"], Path::Field(path, "items"));
    let item_type = text(items, "type");
    let in_set = match item_type {
        "array" if !matches!(text(items, "x-kubernetes-list-type"), "" | "atomic") => Some("x-kubernetes-list-type"),
        "object" if text(items, "x-kubernetes-map-type") != "atomic" => Some("x-kubernetes-map-type"),
        _ => None,
    };
    if let Some(keyword) = in_set.filter(|_| list_type == "set" && kind == "array") {
        let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
        let field = Path::Field(&items_path, keyword).to_string();
        causes.push(Cause::invalid(field, &items["x-kubernetes-list-type"], detail));
    }
    if !is_empty(keys) && list_type != "map" {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(match list_type {
            "" => Cause::required(at("x-kubernetes-list-type"), detail),
            other => Cause::invalid(at("x-kubernetes-list-type"), &other.into(), detail),
        });
    }
    if list_type == "map" {
        map_keys(schema, path, causes);
    }
    if matches!(list_type, "map" | "set") && items["nullable"] == true {
        let detail = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(Cause::forbidden(Path::Field(&items_path, "nullable").to_string(), &detail));
    }
}

fn map_keys(schema: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let at = |keyword: &str| Path::Field(path, keyword).to_string();
    let (keys, items) = (&schema["x-kubernetes-list-map-keys"], &schema["items"]);
    if is_empty(keys) {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(at("x-kubernetes-list-map-keys"), detail));
    }
    if !items.is_object() {
        causes.push(Cause::required(at("items"), "must have a schema if x-kubernetes-list-type is map"));
        return;
    }
    let items_path = Path::Field(path, "items");
    if text(items, "type") != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid(Path::Field(&items_path, "type").to_string(), &items["type"], detail));
        return;
    }
    let properties = Path::Field(&items_path, "properties");
    let is_required = |key: &str| list(items, "required").any(|(_, name)| name == key);
    let all: Vec<&str> = list(schema, "x-kubernetes-list-map-keys").filter_map(|(_, key)| key.as_str()).collect();
    for (index, key) in all.iter().copied().enumerate() {
        let of_field = |keyword: &str| Path::Field(&Path::Key(&properties, key), keyword).to_string();
        match items["properties"].get(key) {
            Some(field) if matches!(text(field, "type"), "array" | "object") => {
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                causes.push(Cause::invalid(of_field("type"), &items["type"], detail));
            }
            Some(_) => {}
            None => {
                let detail = "entries must all be names of item properties";
                causes.push(Cause::invalid(at("x-kubernetes-list-map-keys"), keys, detail));
                continue;
            }
        }
        let field = &items["properties"][key];
        if all[..index].contains(&key) {
            let detail = "must not contain duplicate entries";
            causes.push(Cause::invalid(at("x-kubernetes-list-map-keys"), keys, detail));
        }
        if !is_required(key) && field["default"].is_null() {
            let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required \
                property";
            causes.push(Cause::required(of_field("default"), detail));
        }
        if field["nullable"] == true {
            let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(Cause::forbidden(of_field("nullable"), detail));
        }
    }
}
