//! Where a policy may stand: a policy file, a ProviderConfiguration, a DeployItem.

mod deploy_item;
mod exports;
mod helm;
mod provider;
mod readiness;

use std::sync::Arc;

use billhook_objects::yaml::{self, Key, Node, NodeKind};
use serde_json::Value;

use crate::{
    Diagnostic, Diagnostics, DurationError, GoDuration, Policy, ProviderConfiguration,
    diagnostic::{Severity, nearest},
    dialect::{self, POLICY_FIELDS},
    reader::{Cursor, Report},
};

/// The API group of DeployItems.
const LANDSCAPER: &str = "landscaper.gardener.cloud";

/// What a ProviderConfiguration or a DeployItem says.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyDocument {
    /// The name of the DeployItem; none for a bare ProviderConfiguration.
    pub name: Option<String>,
    /// The namespace of the DeployItem, where it is written.
    pub namespace: Option<String>,
    /// The time limit of the DeployItem, where it is written.
    pub timeout: Option<ItemTimeout>,
    /// The configuration, with its policy and manifests.
    pub configuration: ProviderConfiguration,
    /// What does not do all that its author may think.
    pub warnings: Diagnostics,
}

/// The time limit of a DeployItem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemTimeout {
    /// This long.
    After(GoDuration),
    /// `none`: no limit at all.
    Unlimited,
}

impl From<GoDuration> for ItemTimeout {
    fn from(duration: GoDuration) -> Self {
        if duration == GoDuration::default() { Self::Unlimited } else { Self::After(duration) }
    }
}

/// Reads a policy file: a mapping with `deletionGroups` and the like, a ProviderConfiguration or a DeployItem.
///
/// # Errors
///
/// All mistakes of the file.
pub fn parse_policy_file(text: &str, file: &Arc<str>) -> Result<Policy, Diagnostics> {
    read_policy_file(text, file).map(|(policy, _)| policy)
}

/// Reads a policy file as [`parse_policy_file`] does, and returns the warnings beside the policy.
///
/// # Errors
///
/// All mistakes of the file.
pub fn read_policy_file(text: &str, file: &Arc<str>) -> Result<(Policy, Diagnostics), Diagnostics> {
    let nodes = yaml::parse_nodes(text).map_err(|error| syntax_error(&error, file))?;
    let report = Report::new(file);
    let policy = match &nodes[..] {
        [] => {
            let hint = format!("it holds one of {}", POLICY_FIELDS.join(", "));
            report.add(Severity::Error, (1, 1), "", "the policy file is empty", Some(hint));
            None
        }
        [node] => match parse_document(node, file) {
            Some(document) => return document.map(|document| (document.configuration.policy, document.warnings)),
            None => policy_document(&Cursor::root(&report, node)),
        },
        [_, second, ..] => {
            let problem = format!("a policy file holds one document, found {}", nodes.len());
            report.add(Severity::Error, (second.line, second.column), "", problem, None);
            None
        }
    };
    report.finish(policy)
}

/// Reads a ProviderConfiguration or a DeployItem; `None` where the document is something else.
///
/// # Errors
///
/// All mistakes of the document.
pub fn parse_document(node: &Node, file: &Arc<str>) -> Option<Result<PolicyDocument, Diagnostics>> {
    let read = reader_of(node)?;
    let report = Report::new(file);
    let document = read(&Cursor::root(&report, node));
    Some(report.finish(document).map(|(document, warnings)| PolicyDocument { warnings, ..document }))
}

/// Reads a ProviderConfiguration that does not come from a file, such as the `spec.config` of a DeployItem in a cluster,
/// and returns the warnings beside it. The paths of the diagnostics begin at the configuration; they have no line.
///
/// # Errors
///
/// All mistakes of the configuration.
pub fn parse_configuration(config: &Value) -> Result<(ProviderConfiguration, Diagnostics), Diagnostics> {
    let node = node_without_place(config);
    let report = Report::new(&"".into());
    let configuration = provider::read(&Cursor::root(&report, &node), provider::Extent::Whole);
    report.finish(configuration)
}

/// Reads the `spec.timeout` of a DeployItem: a duration, or `none`. Zero is no limit either.
///
/// # Errors
///
/// When it is neither.
pub fn parse_timeout(text: &str) -> Result<ItemTimeout, DurationError> {
    if text == "none" { Ok(ItemTimeout::Unlimited) } else { text.parse::<GoDuration>().map(ItemTimeout::from) }
}

fn node_without_place(value: &Value) -> Node {
    let kind = match value {
        Value::Null => NodeKind::Null,
        Value::Bool(value) => NodeKind::Bool(*value),
        Value::Number(number) => NodeKind::Number(number.clone()),
        Value::String(text) => NodeKind::String(text.clone()),
        Value::Array(items) => NodeKind::Sequence(items.iter().map(node_without_place).collect()),
        Value::Object(entries) => {
            let entry =
                |(key, value): (&String, _)| (Key { text: key.clone(), line: 0, column: 0 }, node_without_place(value));
            NodeKind::Mapping(entries.iter().map(entry).collect())
        }
    };
    Node { line: 0, column: 0, kind }
}

/// The fields of a ProviderConfiguration or DeployItem on which only the controller acts, as warnings.
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

/// Checks all policies, ProviderConfigurations and DeployItems of a file. Manifests of other kinds are not looked into;
/// a document that is nothing of the sort gets a warning.
pub fn validate(text: &str, file: &Arc<str>) -> Vec<Diagnostic> {
    let nodes = match yaml::parse_nodes(text) {
        Ok(nodes) => nodes,
        Err(error) => return syntax_error(&error, file).into_vec(),
    };
    let report = Report::new(file);
    for node in &nodes {
        let cursor = Cursor::root(&report, node);
        if let Some(read) = reader_of(node) {
            read(&cursor);
        } else if looks_like_policy(node) {
            policy_document(&cursor);
        } else if node.get("kind").is_none() {
            let hint = format!("a policy begins with one of {}", POLICY_FIELDS.join(", "));
            cursor.warn("neither a policy nor a manifest, so not checked", Some(&hint));
        }
    }
    report.into_diagnostics().into_vec()
}

/// Whether a document without a kind is meant as a policy, be its fields misspelt.
fn looks_like_policy(node: &Node) -> bool {
    let NodeKind::Mapping(entries) = &node.kind else { return false };
    let known = || POLICY_FIELDS.into_iter().chain(["deployItems"]);
    node.get("kind").is_none() && entries.iter().any(|(key, _)| nearest(&key.text, known()).is_some())
}

fn syntax_error(error: &yaml::Error, file: &Arc<str>) -> Diagnostics {
    let report = Report::new(file);
    let place = (error.place.line, error.place.column);
    report.add(Severity::Error, place, "", format!("not valid YAML: {}", error.kind), None);
    report.into_diagnostics()
}

type Reader = fn(&Cursor<'_>) -> Option<PolicyDocument>;

/// How a document is read, by its `apiVersion` and `kind`. Other groups may have a kind of these names too.
fn reader_of(node: &Node) -> Option<Reader> {
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

/// Reads a document that holds nothing but a policy, or the `deployItems` list of the documents with one item in it.
fn policy_document(cursor: &Cursor<'_>) -> Option<Policy> {
    let mut fields = cursor.fields()?;
    fields.elsewhere(&["apiVersion", "kind", "metadata"], "a policy file begins with its groups");
    let policy = match fields.has("deployItems").then(|| fields.get("deployItems")).flatten() {
        Some(items) => {
            fields.elsewhere(&POLICY_FIELDS, "write it in the config of the one deployItem");
            deploy_item::read_list(&items)
        }
        None => Some(dialect::policy(&mut fields)),
    };
    let written = !matches!(&cursor.node().kind, NodeKind::Mapping(entries) if entries.is_empty());
    if !written {
        cursor.error_with("no policy in this document", format!("it holds one of {}", POLICY_FIELDS.join(", ")));
    }
    fields.finish();
    policy
}
