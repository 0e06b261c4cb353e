//! The annotations of a manifest that decide what happens with its object.

use std::collections::BTreeMap;

use billhook_objects::Manifest;
use serde::Deserialize;
use serde_json::Value;

use crate::problem::ProblemKind;

/// Requests the deletion of the object; its only valid value is `"true"`.
pub const DELETE: &str = "release.openshift.io/delete";
/// Leaves an existing object as it is.
pub const CREATE_ONLY: &str = "release.openshift.io/create-only";
/// The feature sets in which a manifest counts, separated by commas.
pub const FEATURE_SET: &str = "release.openshift.io/feature-set";
/// The feature gates that must be on, or with a leading `-` off, separated by commas.
pub const FEATURE_GATE: &str = "release.openshift.io/feature-gate";
/// The capabilities that must be enabled, joined by `+`.
pub const CAPABILITY: &str = "capability.openshift.io/name";
/// The annotation with this prefix and an identifier excludes a manifest from the clusters of that identifier.
pub const EXCLUDE_PREFIX: &str = "exclude.release.openshift.io/";
/// The annotation with this prefix and a profile includes a manifest in that profile.
pub const INCLUDE_PREFIX: &str = "include.release.openshift.io/";

/// The annotations of a manifest that this crate reads. Others are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// The annotations with a string as value.
    texts: BTreeMap<String, String>,
    /// The request to delete the object.
    pub delete: Option<DeleteValue>,
}

/// The value of the annotation [`DELETE`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeleteValue {
    /// `"true"`: the object is to be deleted.
    True,
    /// Any other value, which is an error.
    Invalid {
        /// The value as text.
        value: String,
        /// Whether the value is a string; an unquoted `true` is a boolean.
        is_string: bool,
    },
}

/// The part of a manifest that contains annotations; the rest is skipped, because it may be large.
#[derive(Default, Deserialize)]
struct Annotated {
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    annotations: Value,
}

impl Annotations {
    /// Reads the annotations of a manifest, and returns what is wrong with them. An invalid value of [`DELETE`] is not
    /// among these problems: it is an error only if the manifest counts.
    pub(crate) fn of(manifest: &Manifest) -> (Self, Vec<ProblemKind>) {
        // The text was serialized from a value, so it can be parsed.
        let annotated: Annotated = serde_json::from_str(manifest.json()).unwrap_or_default();
        let (mut found, mut problems) = (Self::default(), Vec::new());
        match annotated.metadata.annotations {
            Value::Null => {}
            Value::Object(entries) => {
                entries.into_iter().filter(|(key, _)| is_known(key)).for_each(|(key, value)| {
                    problems.extend(found.add(key, value));
                });
            }
            other => problems.push(ProblemKind::AnnotationsNotMapping { value: other.to_string() }),
        }
        (found, problems)
    }

    fn add(&mut self, key: String, value: Value) -> Option<ProblemKind> {
        if key == DELETE {
            self.delete = Some(match value {
                Value::String(text) if text == "true" => DeleteValue::True,
                Value::String(value) => DeleteValue::Invalid { value, is_string: true },
                other => DeleteValue::Invalid { value: other.to_string(), is_string: false },
            });
            return None;
        }
        match value {
            Value::String(text) => {
                self.texts.insert(key, text);
                None
            }
            other => Some(ProblemKind::NotString { annotation: key, value: other.to_string() }),
        }
    }

    /// Returns the value of an annotation other than [`DELETE`].
    pub fn get(&self, key: &str) -> Option<&str> {
        self.texts.get(key).map(String::as_str)
    }

    /// Returns the feature sets in which the manifest counts; `None` without the annotation, which means all. An empty
    /// name is `Default`.
    pub fn feature_sets(&self) -> Option<Vec<&str>> {
        let sets = self.get(FEATURE_SET)?.split(',');
        Some(sets.map(|set| if set.is_empty() { "Default" } else { set }).collect())
    }

    /// Returns the feature gates that decide about the manifest, each with whether it must be on.
    pub fn feature_gates(&self) -> Vec<(&str, bool)> {
        let gates = self.get(FEATURE_GATE).unwrap_or_default().split(',').map(str::trim);
        let gates = gates.filter(|gate| !gate.is_empty());
        gates.map(|gate| gate.strip_prefix('-').map_or((gate, true), |off| (off, false))).collect()
    }

    /// Returns the capabilities that must be enabled.
    pub fn capabilities(&self) -> Vec<&str> {
        let names = self.get(CAPABILITY).unwrap_or_default();
        if names.is_empty() { Vec::new() } else { names.split('+').collect() }
    }

    /// Returns the profiles that include the manifest.
    pub fn profiles(&self) -> impl Iterator<Item = &str> {
        let included = self.texts.iter().filter(|(_, value)| *value == "true");
        included.filter_map(|(key, _)| key.strip_prefix(INCLUDE_PREFIX))
    }

    /// Returns whether the object is only created, and left as it is if it exists.
    pub fn is_create_only(&self) -> bool {
        self.get(CREATE_ONLY).is_some_and(|value| value.eq_ignore_ascii_case("true"))
    }

    /// Returns the names of all annotations.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().map(String::as_str).chain(self.delete.as_ref().map(|_| DELETE))
    }
}

fn is_known(key: &str) -> bool {
    matches!(key, DELETE | CREATE_ONLY | FEATURE_SET | FEATURE_GATE | CAPABILITY)
        || key.starts_with(EXCLUDE_PREFIX)
        || key.starts_with(INCLUDE_PREFIX)
}

#[cfg(test)]
mod tests {
    use billhook_objects::yaml;

    use super::*;

    fn read(annotations: &str) -> (Annotations, Vec<ProblemKind>) {
        let text = format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, annotations: {annotations}}}}}");
        let document = yaml::parse(&text).unwrap().remove(0);
        Annotations::of(&Manifest::from_document(document, &"f.yaml".into()).unwrap()[0])
    }

    #[test]
    fn lists_are_split_as_in_the_reference() {
        let (found, problems) = read(
            "{release.openshift.io/feature-set: 'Default,,OKD', release.openshift.io/feature-gate: ' A, -B,,', \
             capability.openshift.io/name: Build+Ingress, include.release.openshift.io/a: 'true', \
             include.release.openshift.io/b: 'false', other: 1}",
        );
        assert_eq!(problems, []);
        assert_eq!(found.feature_sets(), Some(vec!["Default", "Default", "OKD"]));
        assert_eq!(found.feature_gates(), [("A", true), ("B", false)]);
        assert_eq!(found.capabilities(), ["Build", "Ingress"]);
        assert_eq!(found.profiles().collect::<Vec<_>>(), ["a"]);
        let none = read("{}").0;
        assert_eq!((none.feature_sets(), none.feature_gates().len(), none.capabilities().len()), (None, 0, 0));
        assert!(read("{capability.openshift.io/name: ''}").0.capabilities().is_empty());
    }

    #[test]
    fn only_the_text_true_requests_a_deletion() {
        let invalid = |value: &str, is_string| Some(DeleteValue::Invalid { value: value.to_owned(), is_string });
        for (written, expected) in [
            ("'true'", Some(DeleteValue::True)),
            ("'false'", invalid("false", true)),
            ("'True'", invalid("True", true)),
            ("' true'", invalid(" true", true)),
            ("''", invalid("", true)),
            ("true", invalid("true", false)),
            ("1", invalid("1", false)),
            ("null", invalid("null", false)),
            ("[a]", invalid("[\"a\"]", false)),
        ] {
            assert_eq!(read(&format!("{{release.openshift.io/delete: {written}}}")).0.delete, expected, "{written}");
        }
        assert_eq!(read("{}").0.delete, None);
    }

    #[test]
    fn create_only_ignores_case() {
        for (written, expected) in [("'true'", true), ("TRUE", false), ("'TRUE'", true), ("'yes'", false)] {
            let read = read(&format!("{{release.openshift.io/create-only: {written}}}"));
            assert_eq!(read.0.is_create_only(), expected, "{written}");
        }
    }

    #[test]
    fn other_annotations_must_be_texts() {
        let not_string = |annotation: &str, value: &str| ProblemKind::NotString {
            annotation: annotation.to_owned(),
            value: value.to_owned(),
        };
        let (_, problems) =
            read("{include.release.openshift.io/a: true, release.openshift.io/feature-set: null, own: 1}");
        assert_eq!(problems, [not_string("include.release.openshift.io/a", "true"), not_string(FEATURE_SET, "null")]);
        assert_eq!(read("[a]").1, [ProblemKind::AnnotationsNotMapping { value: "[\"a\"]".to_owned() }]);
    }
}
