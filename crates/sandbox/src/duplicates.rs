//! Detection of duplicate fields in JSON, of which a parser keeps only the last.

use std::{collections::BTreeSet, fmt};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// Returns the paths of duplicate fields, like `spec.ports[0].name`; none if the text is not JSON.
pub(crate) fn duplicates(json: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    // A body that is not JSON is rejected when it is parsed.
    let _ = Place { path: String::new(), found: &mut found }.deserialize(&mut deserializer);
    found
}

/// A value and its path.
struct Place<'a> {
    path: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if !seen.insert(key) {
                self.found.push(path.clone());
            }
            map.next_value_seed(Place { path, found: self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        for index in 0.. {
            let path = format!("{}[{index}]", self.path);
            if list.next_element_seed(Place { path, found: self.found })?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::duplicates;

    #[test]
    fn duplicate_fields_are_found() {
        let check = |json: &str, expected: &[&str]| assert_eq!(duplicates(json.as_bytes()), expected, "{json}");
        check(r#"{"a": 1, "b": {"a": [true, null, 1.5, "x", -1]}}"#, &[]);
        check(r#"{"a": 1, "a": 2}"#, &["a"]);
        check(r#"{"s": {"p": [{}, {"n": 1, "n": 2, "n": 3}]}, "s": 1}"#, &["s.p[1].n", "s.p[1].n", "s"]);
        check("a: 1", &[]);
    }
}
