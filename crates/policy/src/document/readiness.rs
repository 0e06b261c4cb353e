//! `readinessChecks`: the conditions under which the objects of a DeployItem are ready.

use billhook_objects::yaml::NodeKind;
use serde_json::Value;

use super::reference::{typed, typed_reference};
use crate::{
    LabelledKind, Operator, ReadinessCheck, ReadinessChecks, Requirement,
    dialect::resources,
    reader::{Cursor, Fields},
};

/// The operators as Kubernetes' `selection` package names them.
const OPERATORS: [(&str, Operator); 7] = [
    ("exists", Operator::Exists),
    ("!", Operator::DoesNotExist),
    ("=", Operator::Equals),
    ("==", Operator::Equals),
    ("!=", Operator::NotEquals),
    ("in", Operator::In),
    ("notin", Operator::NotIn),
];

/// Reads the checks from a configuration, under `readinessChecks` or under `readiness`, the name in Landscaper's internal
/// type.
pub(super) fn read(fields: &mut Fields<'_>) -> ReadinessChecks {
    let checks = fields.get("readinessChecks");
    let short = fields.get_unlisted("readiness");
    if let (Some(_), Some(short)) = (&checks, &short) {
        short.error_with("readinessChecks is also set", "use readinessChecks only");
    }
    let Some(mut fields) = checks.or(short).and_then(|cursor| cursor.fields()) else {
        return ReadinessChecks::default();
    };
    let disable_default = fields.flag("disableDefault");
    let custom = fields.list("custom").filter_map(|item| check(&item)).collect();
    fields.finish();
    ReadinessChecks { disable_default, custom }
}

fn check(item: &Cursor<'_>) -> Option<ReadinessCheck> {
    let mut fields = item.fields()?;
    let name = fields.required("name").and_then(|cursor| cursor.text());
    let disabled = fields.flag("disabled");
    let resources = fields.list("resourceSelector");
    let labels = fields.get("labelSelector");
    let requirements = fields.required("requirements");
    let requirements =
        requirements.and_then(|list| list.items_not_empty("list at least one requirement")).unwrap_or_default();
    let target_name = fields.filled_text("targetName");
    let selects = resources.len() > 0 || labels.is_some();
    let check = ReadinessCheck {
        name: name.unwrap_or_default().to_owned(),
        disabled,
        resources: resources.filter_map(|item| typed_reference(&item)).collect(),
        labels: labels.and_then(|cursor| labelled_kind(&cursor)),
        requirements: requirements.filter_map(|item| requirement(&item)).collect(),
        target_name,
    };
    // A misspelt selector has already been reported.
    if fields.finish() == 0 && !selects {
        item.error("a readiness check needs a resourceSelector or a labelSelector");
    }
    Some(check)
}

fn labelled_kind(cursor: &Cursor<'_>) -> Option<LabelledKind> {
    let mut fields = cursor.fields()?;
    let (api_version, kind) = typed(&mut fields);
    let labels_at = fields.required("matchLabels");
    let labels = labels_at.as_ref().map(resources::match_labels).unwrap_or_default();
    if let Some(at) = labels_at.filter(|at| matches!(&at.node().kind, NodeKind::Mapping(entries) if entries.is_empty()))
    {
        at.error("at least one label is required");
    }
    fields.finish();
    Some(LabelledKind { api_version: api_version?, kind: kind?, labels })
}

fn requirement(item: &Cursor<'_>) -> Option<Requirement> {
    let mut fields = item.fields()?;
    let json_path = fields.required("jsonPath").and_then(|cursor| cursor.json_path());
    let operator_at = fields.required("operator");
    let operator = operator_at.as_ref().and_then(|cursor| cursor.one_of(&OPERATORS));
    let list = fields.get("values");
    let items = list.as_ref().and_then(|cursor| cursor.items()).unwrap_or_default();
    let count = items.len();
    let mut values: Vec<Value> = items.filter_map(|item| value(&item)).collect();
    let unknown = fields.finish();
    if let (Some(at), Some(operator)) = (operator_at, operator) {
        let written = at.node().as_str().unwrap_or_default();
        match (operator, count, list) {
            (Operator::Exists | Operator::DoesNotExist, 1.., Some(list)) => {
                list.warn(format!("values have no effect with the operator {written}"), None);
                values.clear();
            }
            (Operator::Exists | Operator::DoesNotExist, ..) => {}
            (_, 0, None) if unknown > 0 => {}
            (_, 0, list) => list.as_ref().unwrap_or(item).error(format!("the operator {written} needs a value")),
            (Operator::Equals | Operator::NotEquals, 2.., Some(list)) => {
                list.error_with(format!("the operator {written} takes one value"), "use in or notin");
            }
            _ => {}
        }
    }
    Some(Requirement { json_path: json_path?, operator: operator?, values })
}

/// Reads `{value: …}`: a CRD schema cannot describe a list of arbitrary values, so each value is wrapped in a mapping.
fn value(item: &Cursor<'_>) -> Option<Value> {
    if !item.is_mapping() {
        item.error_with(
            "expected a mapping with the field \"value\"",
            format!("write {{value: {}}}", item.node().to_value()),
        );
        return None;
    }
    let mut fields = item.fields()?;
    let value = fields.raw("value");
    if fields.finish() == 0 && value.is_none() {
        item.error("missing field \"value\"");
    }
    value.map(|cursor| cursor.node().to_value())
}
