//! Requirements of custom readiness checks.

use std::fmt::Write as _;

use billhook_policy::{Operator, Requirement};
use serde_json::Value;

use crate::text::clip;

/// The maximum length of a value in a message, in bytes.
const MAX_SHOWN: usize = 80;

/// A requirement that an object does not meet.
pub(super) struct Unmet<'a> {
    requirement: &'a Requirement,
    /// The value that does not match; `None` if the path finds no value.
    found: Option<&'a Value>,
}

/// Returns the first requirement that an object does not meet.
///
/// Values are compared as JSON, numbers by their numeric value. Every value that a path finds must match. As in Landscaper's
/// `CheckObject`, a missing field fails every operator except [`Operator::DoesNotExist`].
pub(super) fn unmet<'a>(requirements: &'a [Requirement], object: &'a Value) -> Option<Unmet<'a>> {
    requirements.iter().find_map(|requirement| {
        let found = requirement.json_path.find(object);
        let against = |value: &&Value| !matches(requirement, value);
        match (found.is_empty(), &requirement.operator) {
            (true, Operator::DoesNotExist) => None,
            (true, _) => Some(Unmet { requirement, found: None }),
            (false, _) => found.into_iter().find(against).map(|value| Unmet { requirement, found: Some(value) }),
        }
    })
}

fn matches(requirement: &Requirement, found: &Value) -> bool {
    let listed = || requirement.values.iter().any(|value| same(value, found));
    match requirement.operator {
        Operator::Exists => true,
        Operator::DoesNotExist => false,
        Operator::Equals | Operator::In => listed(),
        Operator::NotEquals | Operator::NotIn => !listed(),
    }
}

/// Returns whether two values are equal JSON; `1` equals `1.0`.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}

impl Unmet<'_> {
    /// Returns the value of the field and the expected value; hides the values of a Secret.
    pub(super) fn reason(&self, secret: bool) -> String {
        let Requirement { json_path, operator, values, .. } = self.requirement;
        let shown = |value: &Value| clip(&value.to_string(), MAX_SHOWN);
        let mut text = match self.found {
            None => format!("{json_path} does not exist"),
            Some(_) if secret => format!("{json_path} has another value"),
            Some(value) => format!("{json_path} is {}", shown(value)),
        };
        let listed = values.iter().map(shown).collect::<Vec<_>>().join(" or ");
        let expected = match operator {
            Operator::Exists => return text,
            Operator::DoesNotExist => "no such field".to_owned(),
            Operator::Equals | Operator::In => listed,
            Operator::NotEquals | Operator::NotIn => format!("a value that is not {listed}"),
        };
        // Writing to a String cannot fail.
        let _ = write!(text, ", expected {expected}");
        text
    }
}

#[cfg(test)]
mod tests {
    use Operator::{DoesNotExist, Equals, Exists, In, NotEquals, NotIn};
    use serde_json::json;

    use super::{super::lab::requirement, *};

    fn object() -> Value {
        json!({
            "replicas": 2,
            "ratio": 2.0,
            "phase": "Ready",
            "nothing": null,
            "list": [{"name": "a", "n": 1}, {"name": "b", "n": 1}],
            "long": "x".repeat(100),
        })
    }

    #[track_caller]
    fn check(path: &str, operator: Operator, values: Value, expected: Option<&str>) {
        let requirements = [requirement(path, operator, values)];
        let object = object();
        let reason = unmet(&requirements, &object).map(|unmet| unmet.reason(false));
        assert_eq!(reason.as_deref(), expected, "{path} {operator:?}");
    }

    #[test]
    fn existing_and_missing_fields() {
        check("phase", Exists, json!([]), None);
        check("nothing", Exists, json!([]), None);
        check("nope", Exists, json!([]), Some("nope does not exist"));
        check("nope", DoesNotExist, json!([]), None);
        check("list[7].name", DoesNotExist, json!([]), None);
        check("phase", DoesNotExist, json!([]), Some(r#"phase is "Ready", expected no such field"#));
        check("nothing", DoesNotExist, json!([]), Some("nothing is null, expected no such field"));
    }

    #[test]
    fn a_missing_field_fails_negative_comparisons_as_well() {
        check("nope", Equals, json!([1]), Some("nope does not exist, expected 1"));
        check("nope", In, json!([1, 2]), Some("nope does not exist, expected 1 or 2"));
        check("nope", NotEquals, json!([1]), Some("nope does not exist, expected a value that is not 1"));
        check("nope", NotIn, json!([1, 2]), Some("nope does not exist, expected a value that is not 1 or 2"));
    }

    #[test]
    fn values_compare_as_json() {
        check(".replicas", Equals, json!([2]), None);
        check(".replicas", Equals, json!([2.0]), None);
        check(".ratio", Equals, json!([2]), None);
        check(".replicas", Equals, json!(["2"]), Some(r#".replicas is 2, expected "2""#));
        check(".nothing", Equals, json!([null]), None);
        check(".list[0]", Equals, json!([{"n": 1.0, "name": "a"}]), None);
        check(".list[0]", Equals, json!([{"n": 1}]), Some(r#".list[0] is {"n":1,"name":"a"}, expected {"n":1}"#));
        check(".list", Equals, json!([[{"n": 1, "name": "a"}, {"n": 1, "name": "b"}]]), None);
        check(".list[*].name", Equals, json!([["a", "b"]]), Some(r#".list[*].name is "a", expected ["a","b"]"#));
    }

    #[test]
    fn lists_of_allowed_and_forbidden_values() {
        check("phase", In, json!(["Ready", "Done"]), None);
        check("phase", In, json!(["Done", "Failed"]), Some(r#"phase is "Ready", expected "Done" or "Failed""#));
        check("phase", NotIn, json!(["Done", "Failed"]), None);
        check("phase", NotIn, json!(["Ready"]), Some(r#"phase is "Ready", expected a value that is not "Ready""#));
        check("phase", NotEquals, json!(["Done"]), None);
        check("replicas", NotEquals, json!([2]), Some("replicas is 2, expected a value that is not 2"));
    }

    #[test]
    fn every_value_that_a_path_finds_must_match() {
        check("list[*].n", Equals, json!([1]), None);
        check("list[*].name", In, json!(["a", "b"]), None);
        check("list[*].name", In, json!(["a"]), Some(r#"list[*].name is "b", expected "a""#));
        check(
            "list[*].name",
            NotEquals,
            json!(["b"]),
            Some(r#"list[*].name is "b", expected a value that is not "b""#),
        );
        check(r#"list[?(@.name=="b")].n"#, Equals, json!([1]), None);
    }

    #[test]
    fn the_first_requirement_that_is_not_met_is_reported() {
        let object = object();
        let met = requirement("phase", Exists, json!([]));
        let requirements =
            [met.clone(), requirement("replicas", Equals, json!([3])), requirement("x", Exists, json!([]))];
        let reason = |requirements: &[Requirement]| unmet(requirements, &object).map(|unmet| unmet.reason(false));
        assert_eq!(reason(&requirements).as_deref(), Some("replicas is 2, expected 3"));
        assert_eq!(reason(&[met]), None);
        assert_eq!(reason(&[]), None);
    }

    #[test]
    fn long_values_are_cut_and_values_of_a_secret_are_hidden() {
        let long = format!("long is \"{}…, expected 1", "x".repeat(MAX_SHOWN - 4));
        check("long", Equals, json!([1]), Some(&long));
        let object = object();
        let requirements = [requirement("phase", Equals, json!(["Done"]))];
        let reason = unmet(&requirements, &object).unwrap().reason(true);
        assert_eq!(reason, r#"phase has another value, expected "Done""#);
    }
}
