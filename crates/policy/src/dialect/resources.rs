//! The entries of `resources`, `types` and `excludedResources`.

use std::collections::{BTreeMap, HashSet};

use billhook_objects::ApiVersion;

use crate::{
    LabelOperator, LabelRequirement, LabelSelector, ResourceSelector,
    reader::{Cursor, Fields},
    selector::{is_label_key, is_label_name},
};

/// The syntax in which an entry names its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntrySyntax {
    /// `apiVersion` and `kind`, the released syntax.
    ApiVersion,
    /// `group`, `version`, `kind` and an optional `selector: {all: true}`, the proposal's syntax.
    GroupVersion,
    /// The proposal's syntax in a deployment, which contains only objects of the release.
    GroupVersionOwn,
    /// Either syntax, for `excludedResources`.
    Either,
    /// `apiVersion` and `kind`, in a stage, which contains all objects of its kinds.
    Stage,
}

/// Returns the title of a custom group: its kinds as written, with the prefix `all ` for those that include objects of
/// other origin.
pub(super) fn title(selectors: &[ResourceSelector]) -> String {
    const SHOWN: usize = 5;
    let mut shown: Vec<String> = Vec::new();
    let mut names = HashSet::new();
    for selector in selectors {
        let name = format!("{}{}", if selector.all { "all " } else { "" }, selector.kind_name());
        if shown.len() < SHOWN && !names.contains(&name) {
            shown.push(name.clone());
        }
        names.insert(name);
    }
    let more = names.len() - shown.len();
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

/// Reads a list of entries that must not be empty.
pub(super) fn read(list: &Cursor<'_>, syntax: EntrySyntax) -> Vec<ResourceSelector> {
    let items = list.items_not_empty("list at least one kind of object");
    items.unwrap_or_default().filter_map(|item| entry(&item, syntax)).collect()
}

fn entry(item: &Cursor<'_>, syntax: EntrySyntax) -> Option<ResourceSelector> {
    let mut fields = item.fields()?;
    let selector = selector(&mut fields, syntax);
    fields.finish();
    selector
}

/// Reads the fields of an entry.
pub(super) fn selector(fields: &mut Fields<'_>, syntax: EntrySyntax) -> Option<ResourceSelector> {
    let proposed = match syntax {
        EntrySyntax::ApiVersion | EntrySyntax::Stage => false,
        EntrySyntax::GroupVersion | EntrySyntax::GroupVersionOwn => true,
        EntrySyntax::Either => fields.has("group") || fields.has("version"),
    };
    let api_version = if proposed { group_version(fields) } else { api_version(fields) };
    let kind = fields.required("kind").and_then(|cursor| kind(&cursor));
    let misplaced = match syntax {
        EntrySyntax::GroupVersion => None,
        EntrySyntax::ApiVersion => Some("set deleteAllResources: true beside resources"),
        EntrySyntax::GroupVersionOwn => Some("a deployment contains only objects of the release"),
        EntrySyntax::Either => Some("narrow the exclusion with names, namespaces or labelSelector"),
        EntrySyntax::Stage => {
            Some("a stage contains all objects of its kinds, unless names, namespaces or labelSelector are set")
        }
    };
    let all = match misplaced {
        None => fields.get("selector").is_some_and(|cursor| selects_all(&cursor)),
        Some(hint) => {
            fields.elsewhere(&["selector"], hint);
            false
        }
    };
    let names = fields.get("names").map(|cursor| cursor.texts()).unwrap_or_default();
    let namespaces = namespaces(fields);
    let label_selector = fields.get("labelSelector").map(|cursor| label_selector(&cursor)).unwrap_or_default();
    Some(ResourceSelector { api_version: api_version?, kind: kind?, names, namespaces, label_selector, all })
}

fn api_version(fields: &mut Fields<'_>) -> Option<ApiVersion> {
    let spelt_apart = fields.has("group") || fields.has("version");
    fields.elsewhere(&["group", "version"], "combine both as apiVersion: GROUP/VERSION");
    let cursor = if spelt_apart { fields.get("apiVersion") } else { fields.required("apiVersion") }?;
    cursor.api_version()
}

fn group_version(fields: &mut Fields<'_>) -> Option<ApiVersion> {
    fields.elsewhere(&["apiVersion"], "split it into group and version");
    if fields.has("apiVersion") {
        ["group", "version"].iter().for_each(|name| fields.ignore(name));
        return None;
    }
    let group = group(fields);
    let cursor = fields.required("version")?;
    let version = cursor.text()?;
    if version.contains('/') {
        cursor.error_with(format!("{version:?} is not a version"), "move the part before the slash to group");
        return None;
    }
    Some(ApiVersion::new(group?, version))
}

/// Reads the required group; `""` and `null` are the core group, because the proposal's own examples contain both.
fn group(fields: &mut Fields<'_>) -> Option<String> {
    let Some(cursor) = fields.raw("group") else {
        fields.here().error_with("missing field \"group\"", "use group: \"\" for the core group");
        return None;
    };
    if cursor.is_null() || cursor.node().as_str() == Some("") {
        return Some(String::new());
    }
    let group = cursor.text()?;
    if group.contains('/') {
        cursor.error_with(format!("{group:?} is not a group"), "move the part after the slash to version");
        return None;
    }
    Some(group.to_owned())
}

fn kind(cursor: &Cursor<'_>) -> Option<String> {
    let kind = cursor.text()?;
    if kind.contains(['.', '/']) || kind.contains(char::is_whitespace) {
        cursor.error_with(
            format!("{kind:?} is not a kind name"),
            "use the kind or its plural, singular or short name; the group has its own field",
        );
        return None;
    }
    Some(kind.to_owned())
}

fn selects_all(cursor: &Cursor<'_>) -> bool {
    let Some(mut fields) = cursor.fields() else { return false };
    let all = fields.required("all").and_then(|all| all.boolean());
    fields.finish();
    all.unwrap_or_default()
}

/// Reads `namespaces` or `namespace`: the Landscaper documents use both names for the same list.
fn namespaces(fields: &mut Fields<'_>) -> Vec<String> {
    let plural = fields.get("namespaces");
    let singular = fields.get_unlisted("namespace");
    if let (Some(_), Some(singular)) = (&plural, &singular) {
        singular.error_with("namespaces is also set", "list all of them under namespaces");
    }
    plural.or(singular).map(|cursor| cursor.texts()).unwrap_or_default()
}

fn label_selector(cursor: &Cursor<'_>) -> LabelSelector {
    let Some(mut fields) = cursor.fields() else { return LabelSelector::default() };
    let match_labels = fields.get("matchLabels").map(|labels| match_labels(&labels)).unwrap_or_default();
    let expressions = fields.get("matchExpressions").and_then(|list| list.items()).unwrap_or_default();
    let match_expressions = expressions.filter_map(|item| requirement(&item)).collect();
    fields.finish();
    LabelSelector { match_labels, match_expressions }
}

/// Reads labels and the values that they must have.
pub(crate) fn match_labels(cursor: &Cursor<'_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for (key, value) in cursor.entries() {
        if !is_label_key(key) {
            value.error(format!("{key:?} is not a valid label key"));
        }
        if let Some(text) = label_value(&value) {
            labels.insert(key.to_owned(), text);
        }
    }
    labels
}

fn requirement(item: &Cursor<'_>) -> Option<LabelRequirement> {
    const OPERATORS: [(&str, LabelOperator); 4] = [
        ("In", LabelOperator::In),
        ("NotIn", LabelOperator::NotIn),
        ("Exists", LabelOperator::Exists),
        ("DoesNotExist", LabelOperator::DoesNotExist),
    ];
    let mut fields = item.fields()?;
    let key = fields.required("key").and_then(|cursor| label_key(&cursor));
    let operator = fields.required("operator").and_then(|cursor| cursor.one_of(&OPERATORS));
    let list = fields.get("values");
    let items = list.as_ref().and_then(|cursor| cursor.items()).unwrap_or_default();
    match (operator, list) {
        (Some(LabelOperator::In | LabelOperator::NotIn), _) if items.len() == 0 => {
            item.error("the operators In and NotIn need values");
        }
        (Some(LabelOperator::Exists | LabelOperator::DoesNotExist), Some(list)) if items.len() > 0 => {
            list.error("the operators Exists and DoesNotExist take no values");
        }
        _ => {}
    }
    fields.finish();
    let values = items.filter_map(|item| label_value(&item)).collect();
    Some(LabelRequirement { key: key?, operator: operator?, values })
}

fn label_key(cursor: &Cursor<'_>) -> Option<String> {
    let key = cursor.text()?;
    if !is_label_key(key) {
        cursor.error(format!("{key:?} is not a valid label key"));
    }
    Some(key.to_owned())
}

/// Reads a label value, which may be empty, unlike most strings of a policy.
fn label_value(cursor: &Cursor<'_>) -> Option<String> {
    if cursor.node().as_str() == Some("") {
        return Some(String::new());
    }
    let text = cursor.text()?;
    if !is_label_name(text) {
        cursor.error(format!("{text:?} is not a valid label value"));
    }
    Some(text.to_owned())
}
