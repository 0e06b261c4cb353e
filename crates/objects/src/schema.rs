//! Validation of custom resources by the schema in their CRD, for objects that no API server can validate yet.
//!
//! It follows the structural schemas of `apiextensions.k8s.io/v1`: unknown fields, types, required fields and the values
//! that a schema allows. Formats and CEL rules (`x-kubernetes-validations`) are not evaluated.

use std::collections::{BTreeSet, HashMap};

use regex::Regex;
use serde_json::{Map, Value};

/// The schema of one version of a kind that a CRD defines.
pub struct Schema {
    root: Value,
    /// The compiled patterns; none for those that only Go's `regexp` understands, which are not checked.
    patterns: HashMap<String, Option<Regex>>,
}

impl Schema {
    /// Returns the schema of a version that a CRD manifest serves, if it serves that version.
    pub fn from_crd(crd: &Value, version: &str) -> Option<Self> {
        let versions = crd.pointer("/spec/versions")?.as_array()?;
        let version = versions.iter().find(|v| v["name"] == version && v["served"] == true)?;
        let root = version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_default();
        Some(Self { root, patterns: HashMap::new() })
    }

    /// Returns whether the schema has CEL rules, which [`Self::problems`] does not evaluate.
    pub fn has_rules(&self) -> bool {
        has_rules(&self.root)
    }

    /// Returns why the API server would reject an object under strict field validation, without the object's values.
    pub fn problems(&mut self, object: &Value) -> Vec<String> {
        let mut problems = Vec::new();
        unknown_fields(&self.root, object, "", true, &mut problems);
        let mut check = Check { patterns: &mut self.patterns, problems };
        check.value(&self.root, object, "");
        check.problems
    }
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(fields) => {
            fields.get("x-kubernetes-validations").is_some_and(Value::is_array) || fields.values().any(has_rules)
        }
        Value::Array(items) => items.iter().any(has_rules),
        _ => false,
    }
}

fn is_set(schema: &Value, keyword: &str) -> bool {
    schema[keyword] == true
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Returns the schema of a field: its own, or the one of all fields of a map.
fn field<'s>(schema: &'s Value, name: &str) -> Option<&'s Value> {
    schema["properties"].get(name).or_else(|| schema.get("additionalProperties").filter(|all| all.is_object()))
}

/// Finds the fields that the server would drop. Only the structure of a schema declares fields, not its `anyOf` and the like.
fn unknown_fields(schema: &Value, value: &Value, path: &str, is_resource: bool, problems: &mut Vec<String>) {
    match value {
        Value::Object(fields) if matches!(schema["type"].as_str(), None | Some("object")) => {
            let keeps =
                is_set(schema, "x-kubernetes-preserve-unknown-fields") || is_set(schema, "additionalProperties");
            for (name, value) in fields {
                if is_resource && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                    continue;
                }
                let path = join(path, name);
                match field(schema, name) {
                    Some(schema) => {
                        let embedded = is_set(schema, "x-kubernetes-embedded-resource");
                        unknown_fields(schema, value, &path, embedded, problems);
                    }
                    None if keeps => {}
                    None => problems.push(format!("unknown field {path}")),
                }
            }
        }
        Value::Array(items) => {
            let schema = &schema["items"];
            for (at, item) in items.iter().enumerate().filter(|_| schema.is_object()) {
                let embedded = is_set(schema, "x-kubernetes-embedded-resource");
                unknown_fields(schema, item, &format!("{path}[{at}]"), embedded, problems);
            }
        }
        _ => {}
    }
}

struct Check<'a> {
    patterns: &'a mut HashMap<String, Option<Regex>>,
    problems: Vec<String>,
}

impl Check<'_> {
    fn problem(&mut self, path: &str, problem: &str) {
        let path = if path.is_empty() { "the object" } else { path };
        self.problems.push(format!("{path} {problem}"));
    }

    fn value(&mut self, schema: &Value, value: &Value, path: &str) {
        if let Some(expected) = wrong_type(schema, value) {
            return self.problem(path, &format!("must be of type {expected}, not {}", type_of(value)));
        }
        if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
            let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
            self.problem(path, &format!("must be one of {}", allowed.join(", ")));
        }
        match value {
            Value::Number(number) => self.number(schema, number.as_f64().unwrap_or_default(), path),
            Value::String(text) => self.text(schema, text, path),
            Value::Array(items) => self.list(schema, items, path),
            Value::Object(fields) => self.fields(schema, fields, path),
            Value::Null | Value::Bool(_) => {}
        }
        if !value.is_null() {
            self.combined(schema, value, path);
        }
    }

    fn number(&mut self, schema: &Value, number: f64, path: &str) {
        let limit = |keyword: &str| schema[keyword].as_f64();
        if let Some(least) = limit("minimum") {
            match is_set(schema, "exclusiveMinimum") {
                true if number <= least => self.problem(path, &format!("must be greater than {least}")),
                false if number < least => self.problem(path, &format!("must be at least {least}")),
                _ => {}
            }
        }
        if let Some(most) = limit("maximum") {
            match is_set(schema, "exclusiveMaximum") {
                true if number >= most => self.problem(path, &format!("must be less than {most}")),
                false if number > most => self.problem(path, &format!("must be at most {most}")),
                _ => {}
            }
        }
        if let Some(factor) = limit("multipleOf").filter(|factor| *factor > 0.0 && (number / factor).fract() != 0.0) {
            self.problem(path, &format!("must be a multiple of {factor}"));
        }
    }

    fn text(&mut self, schema: &Value, text: &str, path: &str) {
        self.size(schema, ["minLength", "maxLength"], text.chars().count(), "character", path);
        let Some(pattern) = schema["pattern"].as_str() else { return };
        let compiled = self.patterns.entry(pattern.to_owned()).or_insert_with(|| Regex::new(pattern).ok());
        if compiled.as_ref().is_some_and(|compiled| !compiled.is_match(text)) {
            self.problem(path, &format!("must match {pattern:?}"));
        }
    }

    fn list(&mut self, schema: &Value, list: &[Value], path: &str) {
        self.size(schema, ["minItems", "maxItems"], list.len(), "item", path);
        let items = &schema["items"];
        if items.is_object() {
            list.iter().enumerate().for_each(|(at, item)| self.value(items, item, &format!("{path}[{at}]")));
        }
        let empty = Vec::new();
        let keys = schema["x-kubernetes-list-map-keys"].as_array().unwrap_or(&empty);
        let default = |key: &str| &items["properties"][key]["default"];
        let key_of = |item: &Value| match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => Some(item.to_string()),
            Some("map") => {
                let keys = keys.iter().filter_map(Value::as_str);
                Some(keys.map(|key| item.get(key).unwrap_or(default(key)).to_string() + ",").collect())
            }
            _ => None,
        };
        let mut seen = BTreeSet::new();
        for (at, key) in list.iter().map(key_of).enumerate() {
            if key.is_some_and(|key| !seen.insert(key)) {
                self.problem(&format!("{path}[{at}]"), "is a duplicate of an earlier item");
            }
        }
    }

    fn fields(&mut self, schema: &Value, fields: &Map<String, Value>, path: &str) {
        self.size(schema, ["minProperties", "maxProperties"], fields.len(), "field", path);
        let mut required: Vec<&str> =
            schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        if is_set(schema, "x-kubernetes-embedded-resource") {
            required.extend(["apiVersion", "kind"].into_iter().filter(|name| !fields.contains_key(*name)));
        }
        for name in required {
            let has_default = schema["properties"][name].get("default").is_some();
            if !has_default && fields.get(name).is_none_or(|value| is_dropped(field(schema, name), value)) {
                self.problem(&join(path, name), "is required");
            }
        }
        for (name, value) in fields {
            if let Some(schema) = field(schema, name).filter(|schema| !is_dropped(Some(schema), value)) {
                self.value(schema, value, &join(path, name));
            }
        }
    }

    fn size(&mut self, schema: &Value, [least, most]: [&str; 2], size: usize, what: &str, path: &str) {
        let size = u64::try_from(size).unwrap_or(u64::MAX);
        let count = |number: u64| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        if let Some(least) = schema[least].as_u64().filter(|least| size < *least) {
            self.problem(path, &format!("must have at least {}", count(least)));
        }
        if let Some(most) = schema[most].as_u64().filter(|most| size > *most) {
            self.problem(path, &format!("must have at most {}", count(most)));
        }
    }

    /// Checks `allOf`, `anyOf`, `oneOf` and `not`.
    fn combined(&mut self, schema: &Value, value: &Value, path: &str) {
        let schemas = |keyword: &str| schema[keyword].as_array().map(Vec::as_slice).unwrap_or_default();
        schemas("allOf").iter().for_each(|schema| self.value(schema, value, path));
        if !schemas("anyOf").is_empty() && !schemas("anyOf").iter().any(|schema| self.allows(schema, value)) {
            self.problem(path, "must match at least one schema of anyOf");
        }
        let one = schemas("oneOf").iter().filter(|schema| self.allows(schema, value)).count();
        if !schemas("oneOf").is_empty() && one != 1 {
            self.problem(path, &format!("must match exactly one schema of oneOf, but matches {one}"));
        }
        if schema["not"].is_object() && self.allows(&schema["not"], value) {
            self.problem(path, "must not match the schema of not");
        }
    }

    fn allows(&mut self, schema: &Value, value: &Value) -> bool {
        let mut check = Check { patterns: &mut *self.patterns, problems: Vec::new() };
        check.value(schema, value, "");
        check.problems.is_empty()
    }
}

/// Returns whether the server drops the value of a field before it validates: a null that the schema does not allow.
fn is_dropped(schema: Option<&Value>, value: &Value) -> bool {
    value.is_null() && schema.is_some_and(|schema| !is_set(schema, "nullable"))
}

/// Returns the type that a schema requires, unless the value has it.
fn wrong_type<'s>(schema: &'s Value, value: &Value) -> Option<&'s str> {
    if value.is_null() && is_set(schema, "nullable") {
        return None;
    }
    let is_whole = value.as_f64().is_some_and(|number| number.fract() == 0.0);
    if is_set(schema, "x-kubernetes-int-or-string") {
        return (!is_whole && !value.is_string()).then_some("integer or string");
    }
    let expected = schema["type"].as_str()?;
    let fits = match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => is_whole,
        _ => true,
    };
    (!fits).then_some(expected)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests;
