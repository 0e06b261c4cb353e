//! Validation of the fields that the `scale` of a custom resource refers to, with the texts of Go's accessors.

use serde_json::Value;

use super::{Kind, fields::text};
use crate::status::Cause;

pub(super) fn validate(kind: &Kind, object: &Value, wrong: &mut Vec<Cause>) {
    let version = text(object, "apiVersion").rsplit('/').next().unwrap_or_default();
    let Some(scale) = kind.version(version).and_then(|version| version.scale.as_ref()) else { return };
    for path in [&scale.spec_replicas, &scale.status_replicas] {
        replicas(object, path, wrong);
    }
    if let Some(path) = &scale.selector {
        match at(object, path) {
            Ok(None | Some(Value::String(_))) => {}
            Ok(Some(other)) => wrong.push(refusal(path, &"".into(), &mismatch(path, other, "string"))),
            Err(error) => wrong.push(refusal(path, &"".into(), &error)),
        }
    }
}

fn replicas(object: &Value, path: &str, wrong: &mut Vec<Cause>) {
    let found = at(object, path).and_then(|value| match (value, value.and_then(Value::as_i64)) {
        (None, _) => Ok(0),
        (_, Some(number)) => Ok(number),
        (Some(other), None) => Err(mismatch(path, other, "int64")),
    });
    let most = i64::from(i32::MAX);
    match found {
        Err(error) => wrong.push(refusal(path, &0.into(), &error)),
        Ok(number) if number < 0 => wrong.push(refusal(path, &number.into(), "should be a non-negative integer")),
        Ok(number) if number > most => {
            wrong.push(refusal(path, &number.into(), &format!("should be less than or equal to {most}")));
        }
        Ok(_) => {}
    }
}

fn refusal(path: &str, value: &Value, detail: &str) -> Cause {
    Cause::invalid(format!(".{path}"), value, detail)
}

/// Returns the value at a dotted path, if there is one; an error if a value on the way is not an object.
fn at<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    for (depth, name) in path.split('.').enumerate() {
        walked = if depth == 0 { name.to_owned() } else { format!("{walked}.{name}") };
        match value {
            Value::Null => return Ok(None),
            Value::Object(fields) => match fields.get(name) {
                Some(found) => value = found,
                None => return Ok(None),
            },
            other => return Err(mismatch(&walked, other, "map[string]interface{}")),
        }
    }
    Ok(Some(value))
}

fn mismatch(path: &str, value: &Value, expected: &str) -> String {
    let (shown, found) = match value {
        Value::Null => ("<nil>".to_owned(), "<nil>"),
        Value::Bool(value) => (value.to_string(), "bool"),
        Value::Number(value) => (value.to_string(), if value.is_f64() { "float64" } else { "int64" }),
        Value::String(value) => (value.clone(), "string"),
        Value::Array(_) => (value.to_string(), "[]interface {}"),
        Value::Object(_) => (value.to_string(), "map[string]interface {}"),
    };
    format!(".{path} accessor error: {shown} is of the type {found}, expected {expected}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_must_be_valid_numbers() {
        let check = |object: Value, expected: &[&str]| {
            let mut wrong = Vec::new();
            replicas(&object, "spec.replicas", &mut wrong);
            let found: Vec<_> = wrong.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
            assert_eq!(found, expected, "{object}");
        };
        check(json!({}), &[]);
        check(json!({"spec": {"replicas": 3}}), &[]);
        check(
            json!({"spec": "nothing"}),
            &[".spec.replicas: Invalid value: 0: .spec.replicas accessor error: nothing is of the type string, \
               expected map[string]interface{}"],
        );
        check(
            json!({"spec": {"replicas": "many"}}),
            &[".spec.replicas: Invalid value: 0: .spec.replicas accessor error: many is of the type string, expected \
               int64"],
        );
        check(
            json!({"spec": {"replicas": -1}}),
            &[".spec.replicas: Invalid value: -1: should be a non-negative integer"],
        );
    }
}
