//! Reads manifests and a policy from the paths of the command line, and reports the problems of all files at once.

mod files;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use billhook_objects::{
    Manifest, ManifestError,
    yaml::{self, Document, Node},
};
use billhook_plan::Directives;
use billhook_policy::{
    Diagnostics, GoDuration, ItemTimeout, ManifestPolicy, Policy, PolicyDocument, controller_only, parse_document,
};
use clap::Args;
use serde_json::Value;

pub(crate) use files::{SourceText, SourceTexts, is_manifest, read_file, read_texts, unreadable};

use crate::{
    error::{CommandError, Exit, Problem, both},
    render,
    session::Session,
};

/// The sources of manifests.
#[derive(Debug, Default, Args)]
pub(crate) struct Sources {
    /// Read manifests from these files and directories; - is standard input
    #[arg(long, short, value_name = "PATH", num_args = 1.., group = "source")]
    pub(crate) filename: Vec<PathBuf>,
    /// Build manifests from this kustomization directory
    #[arg(long, short, value_name = "DIR", group = "source")]
    pub(crate) kustomize: Option<PathBuf>,
    /// Read directories given with -f recursively
    #[arg(long, short = 'R')]
    pub(crate) recursive: bool,
}

/// Manifests, and the settings of a document that contains them.
#[derive(Default)]
pub(crate) struct Input {
    /// The objects, as written.
    pub(crate) manifests: Vec<Manifest>,
    /// The settings of individual manifests in a ProviderConfiguration or DeployItem, by their index.
    pub(crate) directives: BTreeMap<usize, Directives>,
    /// The policy of the file, or that of a ProviderConfiguration or DeployItem.
    pub(crate) policy: Option<Policy>,
    /// The time limit of a DeployItem.
    pub(crate) timeout: Option<ItemTimeout>,
}

/// The name of the default policy in place of a file.
const DEFAULT_POLICY: &str = "default";

/// The number of problems that are printed.
const PRINTED: usize = 100;

/// Reads all sources and the policy file, and reports the mistakes of both.
pub(crate) async fn read(
    session: &Session,
    sources: &Sources,
    policy: Option<&PathBuf>,
) -> Result<Input, CommandError> {
    let mut warnings = Warnings::default();
    let policy = policy.map(|path| chosen_policy(session, path, &mut warnings));
    let found = read_sources(session, sources, &mut warnings).await;
    warnings.print(session);
    let ((mut input, document), policy) = both(found, policy.transpose())?;
    if let (Some(place), Some(_)) = (document, &policy) {
        let problem = format!("--policy cannot be combined with the policy in {place}");
        return Err(CommandError::input(problem).hint("omit --policy, or remove the policy from the document"));
    }
    input.policy = policy.or(input.policy);
    Ok(input)
}

/// Reads all sources, and returns the place of the policy among them, too.
async fn read_sources(
    session: &Session,
    sources: &Sources,
    warnings: &mut Warnings,
) -> Result<(Input, Option<String>), CommandError> {
    if sources.recursive && sources.filename.is_empty() {
        return Err(CommandError::input("-R requires -f"));
    }
    if let Some(dir) = &sources.kustomize {
        let kubectl = session.tool("BILLHOOK_KUBECTL", "kubectl");
        let manifests = billhook_charts::kustomize(&session.path(dir), &kubectl).await?;
        return Ok((Input { manifests, ..Input::default() }, None));
    }
    let found = read_texts(session, &sources.filename, sources.recursive);
    let mut reader = Reader::new(warnings);
    found.texts.iter().for_each(|text| reader.text(text));
    reader.problems.splice(0..0, found.problems);
    reader.hints.extend(found.hints);
    reader.finish()
}

/// Reads the policy of a flag, and prints its warnings.
pub(crate) fn policy(session: &Session, path: Option<&PathBuf>) -> Result<Option<Policy>, CommandError> {
    let mut warnings = Warnings::default();
    let policy = path.map(|path| chosen_policy(session, path, &mut warnings)).transpose();
    warnings.print(session);
    policy
}

/// Returns the default policy for its name, or reads a policy file.
fn chosen_policy(session: &Session, path: &std::path::Path, found: &mut Warnings) -> Result<Policy, CommandError> {
    if path.as_os_str() == DEFAULT_POLICY { Ok(Policy::default()) } else { read_policy(session, path, found) }
}

/// Reads a policy file.
fn read_policy(session: &Session, path: &std::path::Path, found: &mut Warnings) -> Result<Policy, CommandError> {
    let name: Arc<str> = path.display().to_string().into();
    let text = read_file(session, path).map_err(CommandError::input)?;
    match billhook_policy::read_policy_file(&text, &name) {
        Ok((policy, warnings)) => {
            found.add(&warnings, &text);
            Ok(policy)
        }
        Err(diagnostics) => Err(CommandError::all(Exit::Input, rendered(&diagnostics, &text))),
    }
}

/// Reads a file of one document with its reader: `billhook_policy::{read_stages, read_payload_configuration}`.
pub(crate) fn document<T>(
    session: &Session,
    path: &std::path::Path,
    read: fn(&str, &Arc<str>) -> Result<T, Diagnostics>,
) -> Result<T, CommandError> {
    let text = read_file(session, path).map_err(CommandError::input)?;
    read(&text, &path.display().to_string().into())
        .map_err(|diagnostics| CommandError::all(Exit::Input, rendered(&diagnostics, &text)))
}

/// Returns the time limit of the flag, the DeployItem, or ten minutes, in this order. Zero means no limit.
pub(crate) fn time_limit(flag: Option<GoDuration>, item: Option<ItemTimeout>) -> Option<std::time::Duration> {
    const DEFAULT: std::time::Duration = std::time::Duration::from_secs(600);
    let limit = match (flag, item) {
        (Some(flag), _) => flag.0,
        (None, Some(ItemTimeout::After(limit))) => limit.0,
        (None, Some(ItemTimeout::Unlimited)) => std::time::Duration::ZERO,
        (None, None) => DEFAULT,
    };
    (!limit.is_zero()).then_some(limit)
}

/// The warnings of all files of a command: the first ones, and how many there are.
#[derive(Default)]
struct Warnings {
    listed: Vec<String>,
    all: usize,
}

impl Warnings {
    fn add(&mut self, found: &Diagnostics, source: &str) {
        self.all += found.warnings();
        // The text after the last listed warning of a file says only how many more the file has.
        let room = PRINTED.saturating_sub(self.listed.len()).min(found.iter().len());
        if room > 0 {
            self.listed.extend(found.render(source).into_iter().take(room));
        }
    }

    fn print(&self, session: &Session) {
        self.listed.iter().for_each(|warning| session.printer.err_lines(warning.trim_end()));
        if self.all > self.listed.len() {
            session.printer.err(&render::count(self.all - self.listed.len(), "more warning"));
        }
    }
}

fn rendered(diagnostics: &Diagnostics, source: &str) -> Vec<Problem> {
    diagnostics.render(source).into_iter().map(Problem::Rendered).collect()
}

/// Reads texts one after the other.
struct Reader<'a> {
    input: Input,
    warnings: &'a mut Warnings,
    /// The place of the ProviderConfiguration or DeployItem, once one is found.
    document: Option<String>,
    problems: Vec<Problem>,
    hints: Vec<String>,
}

impl<'a> Reader<'a> {
    fn new(warnings: &'a mut Warnings) -> Self {
        Self { input: Input::default(), warnings, document: None, problems: Vec::new(), hints: Vec::new() }
    }

    fn text(&mut self, text: &SourceText) {
        // Only diagnostics of these two kinds need places in the source; parsing without them is faster.
        if text.content.contains("ProviderConfiguration") || text.content.contains("DeployItem") {
            match yaml::parse_nodes(&text.content) {
                Ok(nodes) => nodes.into_iter().for_each(|node| self.node(node, text)),
                Err(error) => self.report_invalid_yaml(&error, text),
            }
        } else {
            let read = yaml::for_each(&text.content, |document| self.object(document, text));
            if let Err(error) = read {
                self.report_invalid_yaml(&error, text);
            }
        }
    }

    fn report_invalid_yaml(&mut self, error: &yaml::Error, text: &SourceText) {
        let (line, column) = (error.place.line, error.place.column);
        self.problem(format!("{}:{line}:{column}: not valid YAML: {}", text.name, error.kind));
    }

    fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(Problem::from(problem.into()));
    }

    fn hint(&mut self, hint: String) {
        if !self.hints.contains(&hint) {
            self.hints.push(hint);
        }
    }

    fn node(&mut self, node: Node, text: &SourceText) {
        match parse_document(&node, &text.name) {
            None => self.object(Document { line: node.line, value: node.into_value() }, text),
            Some(Err(diagnostics)) => self.problems.extend(rendered(&diagnostics, &text.content)),
            Some(Ok(document)) => self.policy_document(document, &node, text),
        }
    }

    fn policy_document(&mut self, document: PolicyDocument, node: &Node, text: &SourceText) {
        let place = format!("{}:{}", text.name, node.line);
        if let Some(first) = &self.document {
            let problem =
                format!("{place}: only one ProviderConfiguration or DeployItem is allowed; the first is {first}");
            return self.problem(problem);
        }
        self.document = Some(place.clone());
        let configuration = document.configuration;
        if configuration.helm.is_some() {
            self.hint("deploy the chart with --chart REF".to_owned());
            return self.problem(format!(
                "{place}: this document deploys a chart, and only documents with manifests are supported"
            ));
        }
        self.warnings.add(&document.warnings, &text.content);
        self.warnings.add(&controller_only(node, &text.name), &text.content);
        for entry in configuration.manifests {
            if entry.policy == ManifestPolicy::Ignore {
                continue;
            }
            let directives = Directives::of(&entry);
            let first = self.input.manifests.len();
            self.object(Document { line: entry.line, value: entry.manifest }, text);
            // A List has become several manifests.
            let read = first..self.input.manifests.len();
            self.input.directives.extend(read.map(|at| (at, directives.clone())));
        }
        if configuration.has_policy {
            self.input.policy = Some(configuration.policy);
        }
        self.input.timeout = document.timeout;
    }

    fn object(&mut self, document: Document, text: &SourceText) {
        let place = format!("{}:{}", text.name, document.line);
        if is_policy(&document.value) {
            self.hint(format!("pass it with --policy {}", text.name));
            return self.problem(format!("{place}: expected a manifest, found a policy"));
        }
        if is_kustomization(&document.value) {
            self.hint("pass its directory with -k DIR".to_owned());
            return self.problem(format!("{place}: expected a manifest, found a kustomization"));
        }
        if is_chart(&document.value) {
            self.hint("pass its directory with --chart DIR".to_owned());
            return self.problem(format!("{place}: expected a manifest, found the Chart.yaml of a chart"));
        }
        match Manifest::from_document(document, &text.name) {
            Ok(manifests) => self.input.manifests.extend(manifests),
            Err(errors) => errors.iter().for_each(|error: &ManifestError| self.problem(error.to_string())),
        }
    }

    fn finish(mut self) -> Result<(Input, Option<String>), CommandError> {
        if self.problems.is_empty() {
            let place = self.document.filter(|_| self.input.policy.is_some());
            return Ok((self.input, place));
        }
        // One more line would only say that there is one more.
        if self.problems.len() > PRINTED + 1 {
            let more = self.problems.len() - PRINTED;
            self.problems.truncate(PRINTED);
            self.problem(format!("{more} more problems"));
        }
        Err(CommandError { hints: self.hints, ..CommandError::all(Exit::Input, self.problems) })
    }
}

/// Returns whether a document is a policy: it has no kind, but a field of a policy.
fn is_policy(value: &Value) -> bool {
    const FIELDS: [&str; 4] =
        ["deletionGroups", "deletionGroupsDuringUpdate", "deletionOrderRules", "deploymentGroups"];
    value.get("kind").is_none() && FIELDS.iter().any(|field| value.get(field).is_some())
}

/// Returns whether a document is a kustomization, which may omit its kind.
fn is_kustomization(value: &Value) -> bool {
    let api_version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let has_resources = || value.get("kind").is_none() && value.get("resources").is_some_and(Value::is_array);
    api_version.starts_with("kustomize.config.k8s.io/") || has_resources()
}

fn is_chart(value: &Value) -> bool {
    value.get("kind").is_none() && ["apiVersion", "name", "version"].iter().all(|field| value.get(field).is_some())
}
