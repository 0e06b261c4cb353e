//! The keys of exports: a key with dots is a path into nested objects.

use serde_json::{Map, Value};

/// The key of an export, split into its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    first: String,
    rest: Vec<String>,
}

impl Key {
    /// Parses a key like Landscaper: dots separate names, a leading dot is ignored, and `\.` is a dot in a name. Returns none
    /// if the key is invalid.
    pub(super) fn parse(key: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut part = String::new();
        let mut characters = key.strip_prefix('.').unwrap_or(key).chars();
        while let Some(character) = characters.next() {
            match character {
                '.' => parts.push(std::mem::take(&mut part)),
                '\\' => part.push(characters.next()?),
                '[' | ']' | '{' | '}' | '*' => return None,
                _ => part.push(character),
            }
        }
        parts.push(part);
        let named = parts.iter().all(|part| !part.is_empty());
        let mut parts = parts.into_iter().filter(|_| named);
        Some(Self { first: parts.next()?, rest: parts.collect() })
    }

    /// Wraps a value in one object for each part of the key.
    pub(super) fn nest(self, value: Value) -> Map<String, Value> {
        let wrap = |value, part| Value::Object(Map::from_iter([(part, value)]));
        Map::from_iter([(self.first, self.rest.into_iter().rev().fold(value, wrap))])
    }
}

/// Merges values: objects are merged recursively; of two other values the later one wins.
pub(crate) fn merge(into: &mut Map<String, Value>, later: Map<String, Value>) {
    for (key, value) in later {
        match (into.get_mut(&key), value) {
            (Some(Value::Object(into)), Value::Object(later)) => merge(into, later),
            (_, value) => {
                into.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(key: &str, expected: Option<Value>) {
        let found = Key::parse(key).map(|key| Value::Object(key.nest(json!(1))));
        assert_eq!(found, expected, "{key}");
    }

    #[test]
    fn a_key_with_dots_makes_nested_objects() {
        check("a", Some(json!({"a": 1})));
        check(".a", Some(json!({"a": 1})));
        check("a.b.c", Some(json!({"a": {"b": {"c": 1}}})));
        check(r"a\.b.c", Some(json!({"a.b": {"c": 1}})));
        check("a-b_c", Some(json!({"a-b_c": 1})));
        for key in ["", ".", "a..b", "a.", "a[0]", "['a']", "a.*", r"a\"] {
            check(key, None);
        }
    }

    #[test]
    fn objects_are_merged_and_later_values_win() {
        let mut all = Map::new();
        for (key, value) in [("a.b", json!(1)), ("a.c", json!([1])), ("d", json!({"e": 1})), ("d.f", json!(2))] {
            merge(&mut all, Key::parse(key).unwrap().nest(value));
        }
        assert_eq!(Value::Object(all.clone()), json!({"a": {"b": 1, "c": [1]}, "d": {"e": 1, "f": 2}}));
        merge(&mut all, Key::parse("a").unwrap().nest(json!("x")));
        assert_eq!(Value::Object(all), json!({"a": "x", "d": {"e": 1, "f": 2}}));
    }
}
