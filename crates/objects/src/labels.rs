//! The labels of an object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

/// The labels of an object, sorted by key.
///
/// Lists hold thousands of objects with a few labels each. A map allocates room for eleven entries at once, which would be
/// most of such a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "BTreeMap<String, String>")]
pub struct Labels(Box<[(String, String)]>);

impl Labels {
    /// Returns the value of a label.
    pub fn get(&self, key: &str) -> Option<&String> {
        let at = self.0.binary_search_by(|(known, _)| known.as_str().cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// Returns whether the object has a label.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the labels with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &String)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// Adds a label, or sets another value of one.
    pub fn insert(&mut self, key: impl Into<String>, value: impl Into<String>) {
        *self = std::mem::take(self).0.into_iter().chain([(key.into(), value.into())]).collect();
    }
}

impl From<BTreeMap<String, String>> for Labels {
    fn from(labels: BTreeMap<String, String>) -> Self {
        Self(labels.into_iter().collect())
    }
}

/// Of a label that is given twice, the last value counts.
impl FromIterator<(String, String)> for Labels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        labels.into_iter().collect::<BTreeMap<_, _>>().into()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_and_written_like_a_map() {
        let mut labels: Labels = serde_json::from_str(r#"{"b": "2", "a": "1", "c": ""}"#).unwrap();
        assert_eq!(labels.get("b").map(String::as_str), Some("2"));
        assert!(labels.contains_key("c") && !labels.contains_key("d") && !labels.is_empty());
        labels.insert("b", "3");
        labels.insert("d", "4");
        assert_eq!(serde_json::to_string(&labels).unwrap(), r#"{"a":"1","b":"3","c":"","d":"4"}"#);
        assert!(Labels::default().is_empty());
    }
}
