//! Which Targets a controller handles: Landscaper's target selectors (`pkg/deployer/lib/targetselector`).

use std::{collections::BTreeMap, str::FromStr};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::access::parse_yaml;
use crate::api::ObjectReference;

/// A selector of Targets. All of its lists that are not empty must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetSelector {
    /// One of these must be the Target; without a namespace, it is one of any namespace.
    #[serde(default)]
    pub targets: Vec<ObjectReference>,
    /// Requirements that the annotations of the Target must meet.
    #[serde(default)]
    pub annotations: Vec<Requirement>,
    /// Requirements that the labels of the Target must meet.
    #[serde(default)]
    pub labels: Vec<Requirement>,
}

/// A requirement for a label or annotation, as in label selectors of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// The name of the label or annotation.
    pub key: String,
    /// How it is compared.
    pub operator: Operator,
    /// The values to compare it with.
    #[serde(default)]
    pub values: Vec<String>,
}

/// An operator of a [`Requirement`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Operator {
    /// It is set.
    #[serde(rename = "exists")]
    Exists,
    /// It is not set.
    #[serde(rename = "!")]
    DoesNotExist,
    /// It has one of the values.
    #[serde(rename = "in", alias = "=", alias = "==")]
    In,
    /// It has none of the values, or is not set.
    #[serde(rename = "notin", alias = "!=")]
    NotIn,
    /// It is a number greater than the value.
    #[serde(rename = "gt")]
    GreaterThan,
    /// It is a number less than the value.
    #[serde(rename = "lt")]
    LessThan,
}

/// A text that is not a selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0}: expected a selector such as {{labels: [{{key: env, operator: in, values: [prod]}}]}}, with the fields targets, \
     annotations and labels"
)]
pub struct SelectorError(String);

impl FromStr for TargetSelector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        let wrong = |problem: String| SelectorError(problem);
        let value = parse_yaml(text).map_err(wrong)?;
        let selector: Self = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        if selector == Self::default() {
            return Err(wrong("it is empty and would select all Targets".to_owned()));
        }
        if selector.targets.iter().any(|target| target.name.is_empty()) {
            return Err(wrong("targets: a name is missing".to_owned()));
        }
        let mut requirements = selector.annotations.iter().chain(&selector.labels);
        requirements.try_for_each(Requirement::check).map_err(wrong)?;
        Ok(selector)
    }
}

impl Requirement {
    fn check(&self) -> Result<(), String> {
        let Self { key, operator, values } = self;
        let problem = match operator {
            _ if key.is_empty() => "a key is missing".to_owned(),
            Operator::Exists | Operator::DoesNotExist if !values.is_empty() => {
                "this operator takes no values".to_owned()
            }
            Operator::In | Operator::NotIn if values.is_empty() => "this operator needs values".to_owned(),
            Operator::GreaterThan | Operator::LessThan if number(values).is_none() => {
                "this operator needs one whole number".to_owned()
            }
            _ => return Ok(()),
        };
        Err(format!("{key}: {problem}"))
    }

    fn is_met(&self, fields: &BTreeMap<String, String>) -> bool {
        let value = fields.get(&self.key);
        let compare = |is: fn(&i64, &i64) -> bool| {
            let found = value.and_then(|value| value.parse().ok());
            found.zip(number(&self.values)).is_some_and(|(found, wanted)| is(&found, &wanted))
        };
        match self.operator {
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::GreaterThan => compare(i64::gt),
            Operator::LessThan => compare(i64::lt),
        }
    }
}

fn number(values: &[String]) -> Option<i64> {
    match values {
        [value] => value.parse().ok(),
        _ => None,
    }
}

/// Returns whether one of the selectors matches a Target; without selectors, all Targets are selected.
pub(super) fn is_selected(target: &ObjectMeta, selectors: &[TargetSelector]) -> bool {
    let none = BTreeMap::new();
    let (labels, annotations) = (target.labels.as_ref().unwrap_or(&none), target.annotations.as_ref().unwrap_or(&none));
    let is_target = |reference: &ObjectReference| {
        Some(&reference.name) == target.name.as_ref()
            && (reference.namespace.is_none() || reference.namespace == target.namespace)
    };
    let matches = |selector: &TargetSelector| {
        (selector.targets.is_empty() || selector.targets.iter().any(is_target))
            && selector.annotations.iter().all(|requirement| requirement.is_met(annotations))
            && selector.labels.iter().all(|requirement| requirement.is_met(labels))
    };
    selectors.is_empty() || selectors.iter().any(matches)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> ObjectMeta {
        let map = |pairs: &[(&str, &str)]| {
            Some(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect())
        };
        ObjectMeta {
            name: Some("prod".to_owned()),
            namespace: Some("shop".to_owned()),
            labels: map(&[("env", "prod"), ("rank", "7")]),
            annotations: map(&[("landscaper.gardener.cloud/environment", "eu")]),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn a_target_is_selected_as_by_landscaper() {
        fn check(selectors: &[&str], expected: bool) {
            let parsed: Vec<TargetSelector> = selectors.iter().map(|text| text.parse().unwrap()).collect();
            assert_eq!(is_selected(&target(), &parsed), expected, "{selectors:?}");
        }
        check(&[], true);
        check(&["{targets: [{name: prod}]}"], true);
        check(&["{targets: [{name: prod, namespace: ''}]}"], true);
        check(&["{targets: [{name: dev}, {name: prod, namespace: shop}]}"], true);
        check(&["{targets: [{name: prod, namespace: other}]}"], false);
        check(&["{labels: [{key: env, operator: in, values: [dev, prod]}]}"], true);
        check(&["{labels: [{key: env, operator: =, values: [prod]}]}"], true);
        check(&["{labels: [{key: env, operator: ==, values: [dev]}]}"], false);
        check(&["{labels: [{key: env, operator: notin, values: [dev]}]}"], true);
        check(&["{labels: [{key: other, operator: '!=', values: [dev]}]}"], true);
        check(&["{labels: [{key: other, operator: exists}]}"], false);
        check(&["{labels: [{key: other, operator: '!'}]}"], true);
        check(&["{labels: [{key: rank, operator: gt, values: ['6']}]}"], true);
        check(&["{labels: [{key: rank, operator: lt, values: ['7']}]}"], false);
        check(&["{labels: [{key: env, operator: gt, values: ['6']}]}"], false);
        check(
            &[
                r#"{"annotations": [{"key": "landscaper.gardener.cloud/environment", "operator": "=", "values": ["eu"]}]}"#,
            ],
            true,
        );
        // All lists of a selector must match, but only one of the selectors.
        check(&["{targets: [{name: prod}], labels: [{key: env, operator: =, values: [dev]}]}"], false);
        check(&["{targets: [{name: dev}]}", "{targets: [{name: prod}]}"], true);
        check(&["{targets: [{name: dev}]}", "{targets: [{name: test}]}"], false);
    }

    #[test]
    fn a_selector_with_mistakes_is_an_error() {
        for (text, problem) in [
            ("", "it is empty"),
            ("{}", "would select all Targets"),
            ("env=prod", "invalid type"),
            ("{label: []}", "unknown field `label`"),
            ("{targets: [{name: ''}]}", "a name is missing"),
            ("{labels: [{key: env, operator: is, values: [a]}]}", "unknown variant `is`"),
            ("{labels: [{key: env, operator: in}]}", "env: this operator needs values"),
            ("{labels: [{key: env, operator: exists, values: [a]}]}", "env: this operator takes no values"),
            ("{labels: [{key: env, operator: gt, values: [a]}]}", "env: this operator needs one whole number"),
            ("{labels: [{key: '', operator: exists}]}", "a key is missing"),
        ] {
            let error = text.parse::<TargetSelector>().unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
