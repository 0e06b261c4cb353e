//! Selectors of objects: the entries of `resources`.

use std::{collections::BTreeMap, str::FromStr};

use billhook_objects::{ApiVersion, KindName, Labels};
use serde::{Deserialize, Serialize};

/// An entry of a group's `resources`, or of `excludedResources`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceSelector {
    /// The group and version as written. Objects match by group; the version is only used for requests.
    pub api_version: ApiVersion,
    /// Kind, plural, singular or short name, in any case.
    pub kind: String,
    /// Only objects with these names; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// Only objects in these namespaces; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<String>,
    /// Only objects with these labels.
    #[serde(default, skip_serializing_if = "LabelSelector::is_empty")]
    pub label_selector: LabelSelector,
    /// `deleteAllResources` or `selector: {all: true}`: includes objects that the release did not deploy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

impl ResourceSelector {
    /// Returns the kind to look up in a catalog.
    pub fn kind_name(&self) -> KindName {
        KindName { group: self.api_version.group().to_owned(), name: self.kind.clone() }
    }

    /// Returns whether an object of the right kind is selected.
    pub fn matches(&self, namespace: Option<&str>, name: &str, labels: &Labels) -> bool {
        (self.names.is_empty() || self.names.iter().any(|n| n == name))
            && (self.namespaces.is_empty() || namespace.is_some_and(|ns| self.namespaces.iter().any(|n| n == ns)))
            && self.label_selector.matches(labels)
    }
}

/// A label selector like Kubernetes' own `LabelSelector` type.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    /// Labels with the values that they must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    /// Requirements that must all be met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelRequirement>,
}

/// One requirement of a label selector.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabelRequirement {
    /// The label.
    pub key: String,
    /// How the value is compared.
    pub operator: LabelOperator,
    /// The values to compare with; empty for `Exists` and `DoesNotExist`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// The operators of `matchExpressions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LabelOperator {
    /// The value is one of `values`.
    In,
    /// The label is missing, or its value is none of `values`.
    NotIn,
    /// The label exists.
    Exists,
    /// The label is missing.
    DoesNotExist,
}

impl LabelSelector {
    /// Selects objects that have a label, whatever its value is.
    pub fn exists(key: impl Into<String>) -> Self {
        let requirement = LabelRequirement { key: key.into(), operator: LabelOperator::Exists, values: Vec::new() };
        Self { match_labels: BTreeMap::new(), match_expressions: vec![requirement] }
    }

    /// Returns whether this selects everything.
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Returns whether these labels are selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|requirement| {
                let value = labels.get(&requirement.key);
                match requirement.operator {
                    LabelOperator::In => value.is_some_and(|v| requirement.values.contains(v)),
                    LabelOperator::NotIn => value.is_none_or(|v| !requirement.values.contains(v)),
                    LabelOperator::Exists => value.is_some(),
                    LabelOperator::DoesNotExist => value.is_none(),
                }
            })
    }

    /// Returns the value of the `labelSelector` parameter of a list or watch.
    pub fn to_query(&self) -> String {
        let equal = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let expressions = self.match_expressions.iter().map(|LabelRequirement { key, operator, values }| {
            let values = values.join(",");
            match operator {
                LabelOperator::In => format!("{key} in ({values})"),
                LabelOperator::NotIn => format!("{key} notin ({values})"),
                LabelOperator::Exists => key.clone(),
                LabelOperator::DoesNotExist => format!("!{key}"),
            }
        });
        equal.chain(expressions).collect::<Vec<_>>().join(",")
    }
}

/// A text that is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a label selector; expected KEY, !KEY, KEY=VALUE, KEY!=VALUE, KEY in (A,B) or KEY notin (A,B)")]
pub struct InvalidSelector(String);

/// Reads requirements separated by commas, in the syntax of kubectl. An empty text is invalid, because it would select
/// everything.
impl FromStr for LabelSelector {
    type Err = InvalidSelector;

    fn from_str(text: &str) -> Result<Self, InvalidSelector> {
        let requirements: Option<Vec<_>> =
            requirements(text).into_iter().map(|part| requirement(part.trim())).collect();
        let match_expressions = requirements.ok_or_else(|| InvalidSelector(text.to_owned()))?;
        Ok(Self { match_labels: BTreeMap::new(), match_expressions })
    }
}

/// Splits a text at the commas that are not in parentheses.
fn requirements(text: &str) -> Vec<&str> {
    let mut is_inside = false;
    text.split(|char: char| {
        is_inside = (is_inside || char == '(') && char != ')';
        char == ',' && !is_inside
    })
    .collect()
}

fn requirement(text: &str) -> Option<LabelRequirement> {
    let (key, operator, values) = if let Some(key) = text.strip_prefix('!') {
        (key, LabelOperator::DoesNotExist, None)
    } else if let Some((key, value)) = text.split_once("!=") {
        (key, LabelOperator::NotIn, Some(vec![value]))
    } else if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        (key, LabelOperator::In, Some(vec![value]))
    } else if let Some((front, list)) = text.split_once('(') {
        let (key, word) = front.trim().split_once(char::is_whitespace)?;
        let operator = match word.trim() {
            "in" => LabelOperator::In,
            "notin" => LabelOperator::NotIn,
            _ => return None,
        };
        (key, operator, Some(list.trim_end().strip_suffix(')')?.split(',').collect()))
    } else {
        (text, LabelOperator::Exists, None)
    };
    let (key, values) = (key.trim(), values.unwrap_or_default());
    let values: Vec<String> = values.iter().map(|value| value.trim().to_owned()).collect();
    let is_valid = is_label_key(key) && values.iter().all(|value| value.is_empty() || is_label_name(value));
    is_valid.then(|| LabelRequirement { key: key.to_owned(), operator, values })
}

/// Returns whether a key is `NAME` or `PREFIX/NAME`, as the API server checks it.
pub(crate) fn is_label_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => !prefix.is_empty() && prefix.len() <= 253 && is_label_name(name),
        None => is_label_name(key),
    }
}

/// Returns whether a text is a value of a label that is not empty, or the name in its key.
pub(crate) fn is_label_name(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63
        && text.starts_with(edge)
        && text.ends_with(edge)
        && text.chars().all(|c| edge(c) || matches!(c, '-' | '_' | '.'))
}
