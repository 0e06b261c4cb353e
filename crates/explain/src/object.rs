//! Reads the fields of objects that rules compare.

use jiff::Timestamp;
use serde_json::Value;

/// Returns a text at a JSON pointer.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> Option<&'a str> {
    object.pointer(pointer).and_then(Value::as_str)
}

/// Iterates over a list at a JSON pointer; nothing if there is none.
pub(crate) fn list<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// Iterates over a list of texts at a JSON pointer.
pub(crate) fn texts<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    list(object, pointer).filter_map(Value::as_str)
}

/// Returns a time at a JSON pointer.
pub(crate) fn time(object: &Value, pointer: &str) -> Option<Timestamp> {
    text(object, pointer)?.parse().ok()
}

/// Returns a label, an annotation or another entry of a map, whose key may contain slashes.
pub(crate) fn entry<'a>(object: &'a Value, map: &str, key: &str) -> Option<&'a str> {
    object.pointer(map)?.get(key)?.as_str()
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    entry(object, "/metadata/annotations", key)
}

pub(crate) fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    entry(object, "/metadata/labels", key)
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name").unwrap_or_default()
}

pub(crate) fn namespace(object: &Value) -> Option<&str> {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid").unwrap_or_default()
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    texts(object, "/metadata/finalizers").collect()
}

/// Returns when the deletion was requested. For a Pod this is when its grace period ends.
pub(crate) fn deleted_at(object: &Value) -> Option<Timestamp> {
    time(object, "/metadata/deletionTimestamp")
}

/// Returns whether a deletion was requested.
pub(crate) fn is_deleting(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// A condition of an object's status.
#[derive(Clone, Copy)]
pub(crate) struct Condition<'a>(&'a Value);

impl<'a> Condition<'a> {
    /// Returns the condition as it is.
    pub(crate) fn value(self) -> &'a Value {
        self.0
    }

    fn text(self, key: &str) -> &'a str {
        self.0.get(key).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn kind(self) -> &'a str {
        self.text("type")
    }

    pub(crate) fn is_true(self) -> bool {
        self.text("status") == "True"
    }

    pub(crate) fn is_false(self) -> bool {
        self.text("status") == "False"
    }

    pub(crate) fn reason(self) -> &'a str {
        self.text("reason")
    }

    pub(crate) fn message(self) -> &'a str {
        self.text("message")
    }

    /// Returns the path of the condition, as evidence names it.
    pub(crate) fn path(self) -> String {
        format!("status.conditions[type={}]", self.kind())
    }

    /// Returns status, reason and message in one text.
    pub(crate) fn shown(self) -> String {
        let (status, reason, message) = (self.text("status"), self.reason(), self.message());
        match (reason.is_empty(), message.is_empty()) {
            (true, true) => status.to_owned(),
            (false, true) => format!("{status} ({reason})"),
            (true, false) => format!("{status}: {message}"),
            (false, false) => format!("{status} ({reason}): {message}"),
        }
    }
}

/// Iterates over the conditions of an object.
pub(crate) fn conditions(object: &Value) -> impl Iterator<Item = Condition<'_>> {
    list(object, "/status/conditions").map(Condition)
}

/// Returns a condition by its type.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> Option<Condition<'a>> {
    conditions(object).find(|condition| condition.kind() == kind)
}

/// Returns the field manager whose entry in `managedFields` has a finalizer (`f:metadata.f:finalizers.v:"NAME"`), and the time
/// of that entry.
pub(crate) fn manager_of<'a>(object: &'a Value, finalizer: &str) -> Option<(&'a str, Option<&'a str>)> {
    let owned = format!("v:{}", Value::from(finalizer));
    let owns = |entry: &&Value| {
        entry.pointer("/fieldsV1/f:metadata/f:finalizers").is_some_and(|finalizers| finalizers.get(&owned).is_some())
    };
    let entry = list(object, "/metadata/managedFields").find(owns)?;
    Some((entry.get("manager")?.as_str()?, entry.get("time").and_then(Value::as_str)))
}

/// Returns the field manager that created an object: that of its oldest entry in `managedFields`.
pub(crate) fn creator(object: &Value) -> Option<&str> {
    let entries = list(object, "/metadata/managedFields");
    entries.min_by_key(|entry| entry.get("time").and_then(Value::as_str))?.get("manager")?.as_str()
}

/// Returns the status without times, which change although nothing else does.
pub(crate) fn lasting_status(object: &Value) -> Value {
    fn strip(value: &Value) -> Value {
        match value {
            Value::Object(fields) => {
                let lasting = fields.iter().filter(|(key, _)| !key.to_lowercase().ends_with("time"));
                Value::Object(lasting.map(|(key, value)| (key.clone(), strip(value))).collect())
            }
            Value::Array(items) => Value::Array(items.iter().map(strip).collect()),
            other => other.clone(),
        }
    }
    object.get("status").map(strip).unwrap_or_default()
}
