//! The documents that contain a policy: policy files, ProviderConfigurations and DeployItems.

mod deploy_item;
mod exports;
mod helm;
mod provider;
mod readiness;
mod reference;

use std::sync::Arc;

use billhook_objects::yaml::{self, Key, Node, NodeKind};
use serde_json::Value;

use crate::{
    Diagnostics, DurationError, GoDuration, ItemTimeout, Policy, PolicyDocument, ProviderConfiguration,
    diagnostic::{Severity, nearest},
    dialect::{self, POLICY_FIELDS},
    reader::{Cursor, Report},
};

/// The API group of DeployItems.
const LANDSCAPER: &str = "landscaper.gardener.cloud";

/// Reads a policy file and returns the policy and the warnings. The file contains the policy fields at its top level, a
/// ProviderConfiguration or a DeployItem.
///
/// # Errors
///
/// Returns all mistakes of the file.
pub fn read_policy_file(text: &str, file: &Arc<str>) -> Result<(Policy, Diagnostics), Diagnostics> {
    let report = Report::new(file);
    let Some(node) = only_document(text, &report, "policy file") else {
        if !report.has_found() {
            let hint = format!("it must contain at least one of {}", POLICY_FIELDS.join(", "));
            report.add(Severity::Error, (1, 1), "", "the policy file is empty", Some(hint));
        }
        return report.finish(None);
    };
    match parse_document(&node, file) {
        Some(document) => document.map(|document| (document.configuration.policy, document.warnings)),
        None => {
            let policy = policy_document(&Cursor::root(&report, &node));
            report.finish(policy)
        }
    }
}

/// Reads the only document of a file that is called `what` in errors. Returns `None` for an empty file, and after a
/// mistake.
pub(crate) fn only_document(text: &str, report: &Report, what: &str) -> Option<Node> {
    match yaml::parse_nodes(text) {
        Ok(mut nodes) if nodes.len() < 2 => return nodes.pop(),
        Ok(nodes) => {
            let problem = format!("expected one document in a {what}, found {}", nodes.len());
            report.add(Severity::Error, (nodes[1].line, nodes[1].column), "", problem, None);
        }
        Err(error) => syntax_error(&error, report),
    }
    None
}

/// Reads a ProviderConfiguration or a DeployItem; returns `None` if the document is something else.
///
/// # Errors
///
/// Returns all mistakes of the document.
pub fn parse_document(node: &Node, file: &Arc<str>) -> Option<Result<PolicyDocument, Diagnostics>> {
    let read = reader_of(node)?;
    let report = Report::new(file);
    let document = read(&Cursor::root(&report, node));
    Some(report.finish(document).map(|(document, warnings)| PolicyDocument { warnings, ..document }))
}

/// Reads a ProviderConfiguration that does not come from a file, such as the `spec.config` of a DeployItem in a cluster,
/// and returns it with the warnings. The paths of the diagnostics start at the configuration; they have no line.
///
/// # Errors
///
/// Returns all mistakes of the configuration.
pub fn parse_configuration(config: &Value) -> Result<(ProviderConfiguration, Diagnostics), Diagnostics> {
    let node = node_without_place(config);
    let report = Report::new(&"".into());
    let configuration = provider::read(&Cursor::root(&report, &node), helm::ChartFields::Required);
    report.finish(configuration)
}

/// Reads the `spec.timeout` of a DeployItem: a duration, or `none`. Zero means no limit too.
///
/// # Errors
///
/// Fails if the text is neither.
pub fn parse_timeout(text: &str) -> Result<ItemTimeout, DurationError> {
    if text == "none" {
        return Ok(ItemTimeout::Unlimited);
    }
    let duration: GoDuration = text.parse()?;
    Ok(if duration == GoDuration::default() { ItemTimeout::Unlimited } else { ItemTimeout::After(duration) })
}

fn node_without_place(value: &Value) -> Node {
    let kind = match value {
        Value::Null => NodeKind::Null,
        Value::Bool(value) => NodeKind::Bool(*value),
        Value::Number(number) => NodeKind::Number(number.clone()),
        Value::String(text) => NodeKind::String(text.clone()),
        Value::Array(items) => NodeKind::Sequence(items.iter().map(node_without_place).collect()),
        Value::Object(entries) => {
            let entry = |(key, value): (&String, _)| {
                (Key { text: key.clone(), line: 0, column: 0, replaces: None }, node_without_place(value))
            };
            NodeKind::Mapping(entries.iter().map(entry).collect())
        }
    };
    Node { line: 0, column: 0, kind }
}

/// Returns a warning for each field of a ProviderConfiguration or DeployItem that only the controller uses.
pub fn controller_only(node: &Node, file: &Arc<str>) -> Diagnostics {
    let report = Report::new(file);
    let root = Cursor::root(&report, node);
    match node.get("kind").and_then(Node::as_str) {
        Some("ProviderConfiguration") => provider::warn_controller_only(&root),
        Some("DeployItem") => deploy_item::warn_controller_only(&root),
        _ => {}
    }
    report.into_diagnostics()
}

/// Checks all policies, ProviderConfigurations and DeployItems of a file. Skips manifests of other kinds, and warns of
/// documents that are neither policies nor manifests.
pub fn validate(text: &str, file: &Arc<str>) -> Diagnostics {
    let report = Report::new(file);
    let nodes = yaml::parse_nodes(text).unwrap_or_else(|error| {
        syntax_error(&error, &report);
        Vec::new()
    });
    for node in &nodes {
        let cursor = Cursor::root(&report, node);
        if let Some(read) = reader_of(node) {
            read(&cursor);
        } else if looks_like_policy(node) {
            policy_document(&cursor);
        } else if node.get("kind").is_none() {
            let hint = format!("a policy has at least one of {}", POLICY_FIELDS.join(", "));
            cursor.warn("not checked: neither a policy nor a manifest", Some(&hint));
        }
    }
    report.into_diagnostics()
}

/// Returns whether a document without a kind is meant as a policy, even if its fields are misspelt.
fn looks_like_policy(node: &Node) -> bool {
    let NodeKind::Mapping(entries) = &node.kind else { return false };
    let known = || POLICY_FIELDS.into_iter().chain(["deployItems"]);
    node.get("kind").is_none() && entries.iter().any(|(key, _)| nearest(&key.text, known()).is_some())
}

fn syntax_error(error: &yaml::Error, report: &Report) {
    let place = (error.place.line, error.place.column);
    report.add(Severity::Error, place, "", format!("not valid YAML: {}", error.kind), None);
}

type ReadDocument = fn(&Cursor<'_>) -> Option<PolicyDocument>;

/// Selects the function that reads a document by its `apiVersion` and `kind`. Other API groups may have kinds of the
/// same names.
fn reader_of(node: &Node) -> Option<ReadDocument> {
    let api_version = node.get("apiVersion").and_then(Node::as_str);
    let group = api_version.map(|text| text.split_once('/').map_or("", |(group, _)| group));
    match (node.get("kind")?.as_str()?, group) {
        ("ProviderConfiguration", None) => Some(provider::read_document),
        ("ProviderConfiguration", Some(group)) if group.ends_with(".deployer.landscaper.gardener.cloud") => {
            Some(provider::read_document)
        }
        ("DeployItem", None | Some(LANDSCAPER)) => Some(deploy_item::read_document),
        _ => None,
    }
}

/// Reads a document that contains only a policy, or the `deployItems` list of the Landscaper documents with one item.
fn policy_document(cursor: &Cursor<'_>) -> Option<Policy> {
    let mut fields = cursor.fields()?;
    fields.elsewhere(&["apiVersion", "kind", "metadata"], "a policy file has the policy fields at its top level");
    let policy = match fields.get_unlisted("deployItems") {
        Some(items) => {
            fields.elsewhere(&POLICY_FIELDS, "move it into the config of the deployItem");
            deploy_item::read_list(&items)
        }
        None => Some(dialect::policy(&mut fields)),
    };
    let written = !matches!(&cursor.node().kind, NodeKind::Mapping(entries) if entries.is_empty());
    if !written {
        cursor.error_with(
            "no policy in this document",
            format!("it must contain at least one of {}", POLICY_FIELDS.join(", ")),
        );
    }
    fields.finish();
    policy
}
