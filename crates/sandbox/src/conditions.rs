//! Conditions of a status.

use serde_json::{Value, json};

/// A condition to be set.
pub(crate) struct Condition<'a> {
    pub(crate) name: &'a str,
    pub(crate) status: bool,
    pub(crate) reason: &'a str,
    pub(crate) message: &'a str,
}

/// Sets a condition. The transition time changes only with its status.
pub(crate) fn set(status: &mut Value, condition: &Condition<'_>, now: &str) {
    let word = if condition.status { "True" } else { "False" };
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let new = json!({
        "type": condition.name, "status": word, "lastTransitionTime": now, "reason": condition.reason,
        "message": condition.message,
    });
    let Some(known) = conditions.iter_mut().find(|known| known["type"] == condition.name) else {
        conditions.push(new);
        return;
    };
    if known["status"] != word {
        known["lastTransitionTime"] = now.into();
    }
    for field in ["status", "reason", "message"] {
        known[field] = new[field].clone();
    }
}

/// Returns whether an object has a condition that is true.
pub(crate) fn is_true(object: &Value, name: &str) -> bool {
    find(object, name).is_some_and(|condition| condition["status"] == "True")
}

/// Returns a condition of an object.
pub(crate) fn find<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == name)
}
