//! Label selectors, as admission and Services use them.

use serde_json::Value;

use crate::object;

/// Returns whether a `labelSelector` matches labels. An absent or empty one matches everything.
pub(crate) fn matches(selector: Option<&Value>, labels: &Value) -> bool {
    let Some(selector) = selector else { return true };
    let equal = selector.get("matchLabels").is_none_or(|wanted| contains(wanted, labels));
    equal && object::list(selector, "/matchExpressions").all(|expression| holds(expression, labels))
}

/// Returns whether labels contain all of the wanted ones.
pub(crate) fn contains(wanted: &Value, labels: &Value) -> bool {
    let Some(wanted) = wanted.as_object() else { return true };
    wanted.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn holds(expression: &Value, labels: &Value) -> bool {
    let Some(key) = object::text(expression, "/key") else { return true };
    let value = labels.get(key);
    let among = || value.is_some_and(|value| object::list(expression, "/values").any(|wanted| wanted == value));
    match object::text(expression, "/operator") {
        Some("In") => among(),
        Some("NotIn") => !among(),
        Some("Exists") => value.is_some(),
        Some("DoesNotExist") => value.is_none(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_follow_kubernetes() {
        let labels = json!({"app": "web", "tier": "front"});
        let check =
            |selector: Value, expected: bool| assert_eq!(matches(Some(&selector), &labels), expected, "{selector}");
        check(json!({}), true);
        check(json!({"matchLabels": {"app": "web"}}), true);
        check(json!({"matchLabels": {"app": "db"}}), false);
        check(json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["db", "web"]}]}), true);
        check(json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["web"]}]}), false);
        check(json!({"matchExpressions": [{"key": "none", "operator": "NotIn", "values": ["web"]}]}), true);
        check(json!({"matchExpressions": [{"key": "none", "operator": "Exists"}]}), false);
        check(json!({"matchExpressions": [{"key": "none", "operator": "DoesNotExist"}]}), true);
        assert!(matches(None, &labels));
    }
}
