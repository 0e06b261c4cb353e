//! Validation against schemas, with the texts of the API server.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

use super::{Junctors, Limits, ListType, Schema, Type, format, path::Path, pattern};
use crate::status::Cause;

impl Schema {
    /// Returns what the schema rejects. CEL rules (`x-kubernetes-validations`) are not evaluated.
    ///
    /// In Kubernetes' own kinds, only required fields are checked. [`Schema::wrong_types`] checks their types, and the
    /// rules of the kinds everything else.
    pub(crate) fn validate(&self, object: &Value) -> Vec<Cause> {
        let mut causes = Vec::new();
        check(self, object, &Path::Root, self.go.is_some(), &mut causes);
        check_embedded(self, object, &Path::Root, &mut causes);
        check_lists(self, object, &Path::Root, &mut causes);
        causes
    }
}

/// Returns an error that belongs to no single field.
fn loose(detail: &str) -> Cause {
    Cause::new("FieldValueInvalid", "<nil>", "Invalid value: \"\"", detail)
}

fn invalid(path: &Path<'_>, value: &Value, what: &str) -> Cause {
    Cause::invalid(path.to_string(), &plain(value), &format!("{path} in body {what}"))
}

/// Returns a number as Go writes it: `2`, not `2.0`.
fn plain(value: &Value) -> Value {
    let whole = value.as_f64().filter(|number| value.is_f64() && number.fract() == 0.0 && number.abs() < 1e15);
    #[expect(clippy::cast_possible_truncation, reason = "the number is whole and small")]
    whole.map_or_else(|| value.clone(), |number| (number as i64).into())
}

fn too_many(path: &Path<'_>, actual: usize, most: u64) -> Cause {
    let detail = format!("must have at most {most} item{}", if most == 1 { "" } else { "s" });
    Cause::new("FieldValueTooMany", path.to_string(), &format!("Too many: {actual}"), &detail)
}

/// Checks a value. The order of the checks is the order in which the API server reports errors.
fn check(schema: &Schema, value: &Value, path: &Path<'_>, typed: bool, causes: &mut Vec<Cause>) {
    if let Some(definition) = schema.resolved(value) {
        return check(&definition, value, path, typed, causes);
    }
    let typed = typed || schema.go.is_some();
    if !typed {
        check_type(schema, value, path, causes);
    }
    if value.is_null() {
        return check_enumeration(schema, value, path, causes);
    }
    if let Some(junctors) = &schema.junctors {
        check_junctors(junctors, value, path, causes);
    }
    match value {
        Value::String(text) => check_text(schema, text, path, typed, causes),
        Value::Number(number) => check_number(schema, number, path, causes),
        Value::Array(items) => check_items(schema, items, path, typed, causes),
        _ => {}
    }
    check_enumeration(schema, value, path, causes);
    if let Value::Object(fields) = value {
        check_fields(schema, fields, path, typed, causes);
    }
}

fn check_type(schema: &Schema, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let (expected, fits) = match schema.types {
        Type::Any => return,
        Type::Object => ("object", value.is_object()),
        Type::Array => ("array", value.is_array()),
        Type::String => ("string", value.is_string()),
        Type::Integer => ("integer", is_integer(value)),
        Type::Number => ("number", value.is_number()),
        Type::Boolean => ("boolean", value.is_boolean()),
        Type::IntOrString => ("integer,string", value.is_string() || is_integer(value)),
    };
    if fits || (value.is_null() && schema.nullable) {
        return;
    }
    let (name, format) = match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    };
    let (expected, actual) = match schema.format.as_deref() {
        Some(format) if format_hides(schema, value, format) => return,
        Some(expected) if !matches!(value, Value::Null | Value::String(_) | Value::Array(_)) => (expected, format),
        _ => (expected, name),
    };
    let detail = format!("{path} in body must be of type {expected}: \"{actual}\"");
    causes.push(Cause::type_invalid(path.to_string(), &actual.into(), &detail));
}

/// Returns whether the API server accepts a list in place of a string because of the string's format.
fn format_hides(schema: &Schema, value: &Value, format: &str) -> bool {
    value.is_array() && schema.types == Type::String && !format.is_empty()
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn check_junctors(junctors: &Junctors, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let errors = |schema: &Schema| {
        let mut causes = Vec::new();
        check(schema, value, path, false, &mut causes);
        causes
    };
    if !junctors.any.is_empty() {
        let failures: Vec<_> = junctors.any.iter().map(errors).collect();
        if failures.iter().all(|failure| !failure.is_empty()) {
            causes.push(loose(&format!("\"{path}\" must validate at least one schema (anyOf)")));
            causes.extend(failures.into_iter().next().unwrap_or_default());
        }
    }
    if !junctors.one.is_empty() {
        let failures: Vec<_> = junctors.one.iter().map(errors).collect();
        let valid = failures.iter().filter(|failure| failure.is_empty()).count();
        let one = format!("\"{path}\" must validate one and only one schema (oneOf).");
        if valid == 0 {
            causes.push(loose(&format!("{one} Found none valid")));
            causes.extend(failures.into_iter().next().unwrap_or_default());
        } else if valid > 1 {
            causes.push(loose(&format!("{one} Found {valid} valid alternatives")));
        }
    }
    let failures: Vec<_> = junctors.all.iter().map(errors).collect();
    let valid = failures.iter().filter(|failure| failure.is_empty()).count();
    if valid < failures.len() {
        causes.extend(failures.into_iter().flatten());
        let none = if valid == 0 { ". None validated" } else { "" };
        causes.push(loose(&format!("\"{path}\" must validate all the schemas (allOf){none}")));
    }
    if junctors.not.as_ref().is_some_and(|schema| errors(schema).is_empty()) {
        causes.push(loose(&format!("\"{path}\" must not validate the schema (not)")));
    }
}

fn check_text(schema: &Schema, text: &str, path: &Path<'_>, typed: bool, causes: &mut Vec<Cause>) {
    let length = text.chars().count() as u64;
    let Limits { min_length, max_length, pattern, .. } = &schema.limits;
    if let Some(most) = max_length.filter(|most| length > *most) {
        let detail = format!("may not be more than {most} byte{}", if most == 1 { "" } else { "s" });
        causes.push(Cause::new("FieldValueTooLong", path.to_string(), "Too long", &detail));
    } else if let Some(least) = min_length.filter(|least| length < *least) {
        causes.push(invalid(path, &text.into(), &format!("should be at least {least} chars long")));
    } else if let Some(expression) = pattern
        && !pattern::compile(expression).is_ok_and(|regex| regex.is_match(text))
    {
        causes.push(invalid(path, &text.into(), &format!("should match '{expression}'")));
    }
    if let Some(format) = &schema.format
        && !typed
        && matches!(schema.types, Type::String | Type::Any)
        && !format::matches(format, text)
    {
        let detail = format!("{path} in body must be of type {format}: {text:?}");
        causes.push(Cause::type_invalid(path.to_string(), &text.into(), &detail));
    }
}

/// Checks a number. Like the API server, compares whole numbers with truncated limits.
fn check_number(schema: &Schema, number: &Number, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let whole = number.as_i64();
    let value = number.as_f64().unwrap_or_default();
    let limit = |limit: f64| if whole.is_some() { limit.trunc() } else { limit };
    let Limits { minimum, maximum, exclusive_minimum, exclusive_maximum, multiple_of, .. } = &schema.limits;
    let shown = Value::Number(number.clone());
    let format = schema.format.as_deref();
    let in_range = match (schema.types, format) {
        (Type::Integer, Some("int32")) => {
            is_integer(&shown) && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&value)
        }
        (Type::Integer, _) => is_integer(&shown) && !(number.is_u64() && whole.is_none()),
        (Type::Number, Some("float")) => value.abs() <= f64::from(f32::MAX),
        _ => true,
    };
    if !in_range {
        let kind = if schema.types == Type::Integer { "integer" } else { "number" };
        let of = format.map_or_else(|| "(default format)".to_owned(), |format| format!("with format {format}"));
        causes.push(loose(&format!("Checked value must be of type {kind} {of} in {path}")));
    }
    if let Some(factor) = multiple_of.map(limit) {
        if factor <= 0.0 {
            let detail = format!("factor MultipleOf declared for {path} must be positive: {factor}");
            causes.push(Cause::invalid(path.to_string(), &plain(&factor.into()), &detail));
        } else if (value / factor).fract() != 0.0 {
            causes.push(invalid(path, &shown, &format!("should be a multiple of {factor}")));
        }
    }
    if let Some(least) = minimum.map(limit)
        && (value < least || *exclusive_minimum && value <= least)
    {
        let or_equal = if *exclusive_minimum { "" } else { " or equal to" };
        causes.push(invalid(path, &shown, &format!("should be greater than{or_equal} {least}")));
    }
    if let Some(most) = maximum.map(limit)
        && (value > most || *exclusive_maximum && value >= most)
    {
        let or_equal = if *exclusive_maximum { "" } else { " or equal to" };
        causes.push(invalid(path, &shown, &format!("should be less than{or_equal} {most}")));
    }
}

fn check_items(schema: &Schema, items: &[Value], path: &Path<'_>, typed: bool, causes: &mut Vec<Cause>) {
    if let Some(schema) = &schema.items {
        for (index, item) in items.iter().enumerate() {
            check(schema, item, &Path::Index(path, index), typed, causes);
        }
    }
    let count = items.len() as u64;
    if let Some(least) = schema.limits.min_items.filter(|least| count < *least) {
        causes.push(invalid(path, &count.into(), &format!("should have at least {least} items")));
    }
    if let Some(most) = schema.limits.max_items.filter(|most| count > *most) {
        causes.push(too_many(path, items.len(), most));
    }
}

fn check_enumeration(schema: &Schema, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let same = |known: &Value| known == value || (known.is_number() && known.as_f64() == value.as_f64());
    if schema.enumeration.is_empty() || schema.enumeration.iter().any(same) {
        return;
    }
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let supported: Vec<_> = schema.enumeration.iter().map(text).collect();
    causes.push(Cause::unsupported(path.to_string(), &plain(value), &supported));
}

fn check_fields(schema: &Schema, fields: &Map<String, Value>, path: &Path<'_>, typed: bool, causes: &mut Vec<Cause>) {
    let count = fields.len() as u64;
    if let Some(least) = schema.limits.min_properties.filter(|least| count < *least) {
        causes.push(invalid(path, &count.into(), &format!("should have at least {least} properties")));
    }
    if let Some(most) = schema.limits.max_properties.filter(|most| count > *most) {
        causes.push(too_many(path, fields.len(), most));
    }
    for (name, value) in fields {
        let below = Path::Field(path, name);
        match schema.field(name) {
            Some(_) if is_exempt(schema, name) => {}
            Some(_) if schema.closed && !schema.properties.contains_key(name) => {
                let detail = format!("{path}.{name} in body is a forbidden property");
                causes.push(Cause::invalid(path.to_string(), &name.as_str().into(), &detail));
            }
            Some(field) => check(field, value, &below, typed, causes),
            None => {}
        }
    }
    for name in &schema.required {
        let value = fields.get(name);
        if value.is_none() && !typed || typed && lacks(schema, value, name) {
            causes.push(Cause::required(Path::Field(path, name).to_string(), ""));
        }
    }
}

/// Returns whether a field of a Kubernetes type is skipped. A status may be incomplete, and metadata has its own rules,
/// except for names, which a definition may restrict.
fn is_exempt(schema: &Schema, name: &str) -> bool {
    match schema.go.as_deref() {
        None => false,
        Some("v1.ObjectMeta") => !matches!(name, "name" | "generateName"),
        Some(_) => matches!(name, "status" | "metadata"),
    }
}

/// Returns whether a required field of a Kubernetes type is missing. Numbers and booleans may be zero, but strings and
/// lists must not be empty.
fn lacks(schema: &Schema, value: Option<&Value>, name: &str) -> bool {
    const MAY_BE_EMPTY: [(&str, &str); 4] = [
        ("v1.CSINodeSpec", "drivers"),
        ("v1.HTTPHeader", "value"),
        ("v1.LimitRangeSpec", "limits"),
        ("v1.Sysctl", "value"),
    ];
    let Some(go) = schema.go.as_deref() else { return false };
    if go.starts_with("v1.CustomResourceDefinition") {
        // The code that reads definitions checks these.
        return false;
    }
    let Some(field) = schema.properties.get(name) else { return false };
    let exempt = name == "metadata" || MAY_BE_EMPTY.contains(&(go, name));
    if exempt || matches!(field.types, Type::Integer | Type::Number | Type::Boolean) {
        return false;
    }
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

/// Checks that embedded objects have `apiVersion` and `kind`.
fn check_embedded(schema: &Schema, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    match value {
        _ if schema.go.is_some() => {}
        Value::Object(fields) => {
            for name in ["apiVersion", "kind"].into_iter().filter(|_| schema.embedded) {
                let field = Path::Field(path, name).to_string();
                match fields.get(name) {
                    None => causes.push(Cause::required(field, "")),
                    Some(Value::String(text)) if text.is_empty() => {
                        causes.push(Cause::invalid(field, &"".into(), "must not be empty"));
                    }
                    Some(Value::String(text)) if name == "apiVersion" && text.matches('/').count() > 1 => {
                        let detail = format!("unexpected GroupVersion string: {text}");
                        causes.push(Cause::invalid(field, &text.as_str().into(), &detail));
                    }
                    Some(Value::String(_)) => {}
                    Some(other) => causes.push(Cause::invalid(field, other, "must be a string")),
                }
            }
            for (name, value) in fields {
                match schema.properties.get(name) {
                    Some(field) => check_embedded(field, value, &Path::Field(path, name), causes),
                    None => {
                        if let Some(schema) = &schema.additional {
                            check_embedded(schema, value, &Path::Key(path, name), causes);
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                check_embedded(schema, item, &Path::Index(path, index), causes);
            }
        }
        _ => {}
    }
}

/// Checks that items of sets and keys of items of maps are unique.
fn check_lists(schema: &Schema, value: &Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    match value {
        _ if schema.go.is_some() => {}
        Value::Object(fields) => {
            for (name, value) in fields {
                match schema.properties.get(name) {
                    Some(field) => check_lists(field, value, &Path::Field(path, name), causes),
                    None => {
                        if let Some(schema) = &schema.additional {
                            check_lists(schema, value, &Path::Key(path, name), causes);
                        }
                    }
                }
            }
        }
        Value::Array(items) => {
            match &schema.list {
                ListType::Atomic => {}
                ListType::Set => check_unique(items, Value::clone, path, causes),
                ListType::Map(keys) => check_map(items, keys, path, causes),
            }
            let Some(schema) = &schema.items else { return };
            for (index, item) in items.iter().enumerate() {
                check_lists(schema, item, &Path::Index(path, index), causes);
            }
        }
        _ => {}
    }
}

fn check_map(items: &[Value], keys: &[String], path: &Path<'_>, causes: &mut Vec<Cause>) {
    if let Some((index, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        let field = Path::Index(path, index).to_string();
        return causes.push(Cause::invalid(field, item, "must be an object for an array of list-type map"));
    }
    let key = |item: &Value| -> Value {
        keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone()))).collect::<Map<_, _>>().into()
    };
    check_unique(items, key, path, causes);
}

/// Reports the second of several equal items.
fn check_unique(items: &[Value], key: impl Fn(&Value) -> Value, path: &Path<'_>, causes: &mut Vec<Cause>) {
    let mut seen = HashMap::new();
    for (index, item) in items.iter().enumerate() {
        let key = key(item);
        let times = seen.entry(key.to_string()).or_insert(0);
        *times += 1;
        if *times == 2 {
            causes.push(Cause::duplicate(Path::Index(path, index).to_string(), &key));
        }
    }
}

#[cfg(test)]
mod tests;
