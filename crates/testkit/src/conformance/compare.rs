//! Compares the responses of two servers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Played, Request, Sequence, play::Answer};

/// A difference between two responses.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The request, counted from 1, and its text.
    pub request: (usize, String),
    /// The place: `the answer` as a whole, `warnings`, or a path in the body.
    pub path: String,
    /// The values of both servers.
    pub values: [Option<Value>; 2],
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [left, right] = &self.values;
        let show = |value: &Option<Value>| value.as_ref().map_or("nothing".to_owned(), Value::to_string);
        let (number, title) = &self.request;
        let place = if self.path.is_empty() { "the body" } else { &self.path };
        write!(f, "{number}. {title}\n   {}:\n   - {}\n   + {}", place, show(left), show(right))
    }
}

/// Compares the responses of two servers to the same sequence.
#[must_use]
pub fn differences(sequence: &Sequence, left: &Played, right: &Played) -> Vec<Difference> {
    let mut all = Vec::new();
    for (at, (request, (left, right))) in
        sequence.requests.iter().zip(left.answers.iter().zip(&right.answers)).enumerate()
    {
        let mut found = Vec::new();
        if left.code != right.code {
            // All other parts differ too, without further information.
            found.push(("the answer".to_owned(), [left, right].map(|answer| Some(brief(answer).into()))));
        } else {
            compare("warnings", Some(&left.warnings), Some(&right.warnings), &mut found);
            let [one, other] = [left, right].map(|answer| parts_of(request, answer));
            for path in one.keys().chain(other.keys().filter(|path| !one.contains_key(*path))) {
                compare(path, one.get(path), other.get(path), &mut found);
            }
        }
        let named = |(path, values)| Difference { request: (at + 1, request.title()), path, values };
        all.extend(found.into_iter().map(named));
    }
    all
}

/// Returns the parts of a response to compare, by path.
fn parts_of(request: &Request, answer: &Answer) -> BTreeMap<String, Value> {
    let mut body = answer.body.clone();
    request.except.iter().for_each(|path| remove(&mut body, &segments(path)));
    match &request.compare {
        Some(paths) if !is_rejection(&body) => paths.iter().map(|path| (path.clone(), find(&body, path))).collect(),
        _ => BTreeMap::from([(String::new(), body)]),
    }
}

fn brief(answer: &Answer) -> String {
    let text = |key: &str| answer.body.get(key).and_then(Value::as_str);
    let words = [text("reason"), text("message"), text("kind"), answer.body.as_str()];
    let said = if is_rejection(&answer.body) { &words[..2] } else { &words[2..] };
    format!("{} {}", answer.code, said.iter().flatten().copied().collect::<Vec<_>>().join(": "))
}

fn is_rejection(body: &Value) -> bool {
    body["kind"] == "Status" && body["status"] == "Failure"
}

type Found = Vec<(String, [Option<Value>; 2])>;

fn compare(path: &str, left: Option<&Value>, right: Option<&Value>, found: &mut Found) {
    match (left, right) {
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            for key in a.keys().chain(b.keys().filter(|key| !a.contains_key(*key))) {
                compare(&format!("{path}/{}", escape(key)), a.get(key), b.get(key), found);
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for at in 0..a.len().max(b.len()) {
                compare(&format!("{path}/{at}"), a.get(at), b.get(at), found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((path.to_owned(), [a.cloned(), b.cloned()])),
    }
}

/// Returns the value at a path, or `null`. A path is a JSON pointer in which `key=value` also finds the item of a list by
/// one of its fields (`metadata.name=a`), and `*` returns a list of the values of all items.
pub(super) fn find(value: &Value, path: &str) -> Value {
    find_at(value, &segments(path))
}

fn find_at(value: &Value, segments: &[String]) -> Value {
    let Some((first, rest)) = segments.split_first() else { return value.clone() };
    if first == "*" {
        return value.as_array().into_iter().flatten().map(|item| find_at(item, rest)).collect();
    }
    child(value, first).map_or(Value::Null, |child| find_at(child, rest))
}

fn child<'a>(value: &'a Value, segment: &str) -> Option<&'a Value> {
    match value {
        Value::Array(items) => position(items, segment).and_then(|at| items.get(at)),
        _ => value.get(segment),
    }
}

fn position(items: &[Value], segment: &str) -> Option<usize> {
    let Some((key, wanted)) = segment.split_once('=') else { return segment.parse().ok() };
    let pointer = format!("/{}", key.replace('.', "/"));
    items.iter().position(|item| item.pointer(&pointer).and_then(Value::as_str) == Some(wanted))
}

fn remove(value: &mut Value, segments: &[String]) {
    match (value, segments) {
        (Value::Object(map), [last]) => drop(map.remove(last)),
        (Value::Object(map), [first, rest @ ..]) => {
            map.get_mut(first).into_iter().for_each(|child| remove(child, rest))
        }
        (Value::Array(items), [first, rest @ ..]) if first == "*" => {
            items.iter_mut().for_each(|item| remove(item, rest))
        }
        (Value::Array(items), [first, rest @ ..]) => {
            let at = position(items, first);
            if let Some(item) = at.and_then(|at| items.get_mut(at)) {
                remove(item, rest);
            }
        }
        _ => {}
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split('/').skip(1).map(|segment| segment.replace("~1", "/").replace("~0", "~")).collect()
}

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_finds_items_by_their_fields() {
        let list = json!({"items": [{"metadata": {"name": "a"}, "n": 1}, {"metadata": {"name": "b"}, "n": 2}]});
        for (path, wanted) in [
            ("", list.clone()),
            ("/items/1/n", json!(2)),
            ("/items/metadata.name=b/n", json!(2)),
            ("/items/*/n", json!([1, 2])),
            ("/items/metadata.name=c/n", Value::Null),
            ("/none/at", Value::Null),
        ] {
            assert_eq!(find(&list, path), wanted, "{path}");
        }
    }

    #[test]
    fn excluded_parts_are_removed_from_a_body() {
        let mut value = json!({"items": [{"a": 1, "b": 2}, {"a": 3}], "c/d": 4});
        for path in ["/items/*/a", "/c~1d", "/none/at", "/items/7/a"] {
            remove(&mut value, &segments(path));
        }
        assert_eq!(value, json!({"items": [{"b": 2}, {}]}));
    }

    #[test]
    fn each_difference_is_found_once() {
        let mut found = Vec::new();
        compare("", Some(&json!({"a": [1, 2], "b": 1})), Some(&json!({"a": [1], "c": 1, "b": 1})), &mut found);
        let wanted = vec![("/a/1".to_owned(), [Some(json!(2)), None]), ("/c".to_owned(), [None, Some(json!(1))])];
        assert_eq!(found, wanted);
    }
}
