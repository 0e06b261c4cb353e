//! `billhook payload`: release payloads, as OpenShift's cluster-version operator has them.

mod apply;
mod lint;
mod plan;
mod publish;
mod status;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use billhook_engine::Clusters;
use billhook_objects::ReleaseName;
use billhook_payload::{
    DEFAULT_FEATURE_SET, DEFAULT_PROFILE, Decisions, File, HistoryEntry, Override, Payload, Settings, UpdateState,
    unused,
};
use billhook_plan::{AppliedVersion, VersionState};
use billhook_policy::read_payload_configuration;
use clap::{Args, Subcommand};

use crate::{
    args::OutputFormat,
    error::{CommandError, Exit, Problem, both},
    input::{self, SourceText, SourceTexts, unreadable},
    session::{Interrupts, Session},
};

/// Apply, plan and check release payloads with delete annotations
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct PayloadArgs {
    #[command(subcommand)]
    command: PayloadCommand,
}

const EXAMPLES: &str = "\
Examples:
  billhook payload lint release/ --from release-4.20/ --version 4.21.0
  billhook payload plan release/ --version 4.21.0 --from-version 4.20.3
  billhook payload plan release/ --version 4.21.0 --state updating -o html";

#[derive(Debug, Subcommand)]
enum PayloadCommand {
    Plan(plan::PayloadPlanArgs),
    Apply(apply::PayloadApplyArgs),
    Status(status::PayloadStatusArgs),
    Lint(lint::LintArgs),
}

impl PayloadArgs {
    /// Returns whether the command runs until it is interrupted.
    pub(crate) fn keeps_running(&self) -> bool {
        matches!(&self.command, PayloadCommand::Apply(args) if args.watch.is_some())
    }

    /// Returns whether the command prints results in this format.
    pub(crate) fn prints(&self, format: OutputFormat) -> bool {
        match (format, &self.command) {
            (OutputFormat::Text | OutputFormat::Json, _) => true,
            (OutputFormat::Dot | OutputFormat::Svg | OutputFormat::Html, command) => {
                matches!(command, PayloadCommand::Plan(_))
            }
            (OutputFormat::Sarif, command) => matches!(command, PayloadCommand::Lint(_)),
        }
    }
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: &PayloadArgs,
) -> Result<Exit, CommandError> {
    match &args.command {
        PayloadCommand::Plan(args) => interrupts.unless(plan::run(session, args)).await,
        PayloadCommand::Apply(args) => apply::run(session, interrupts, args).await,
        PayloadCommand::Status(args) => interrupts.unless(status::run(session, args)).await,
        PayloadCommand::Lint(args) => lint::run(session, args),
    }
}

/// The flags of all commands for payloads.
#[derive(Debug, Args)]
pub(crate) struct SettingsArgs {
    /// Use this name for the release; a cluster may have several payloads [default: payload]
    #[arg(long)]
    name: Option<String>,
    /// Use manifests that are included in this profile [default: self-managed-high-availability]
    #[arg(long)]
    profile: Option<String>,
    /// Use manifests of this feature set [default: Default]
    #[arg(long, value_name = "NAME")]
    feature_set: Option<String>,
    /// Turn this feature gate on, or off with a leading -; can be repeated
    #[arg(long, value_name = "NAME", allow_hyphen_values = true)]
    feature_gate: Vec<String>,
    /// Enable this capability; can be repeated [default: all that the payload names]
    #[arg(long, value_name = "NAME")]
    capability: Vec<String>,
    /// Leave out manifests that exclude clusters of this identifier
    #[arg(long, value_name = "ID")]
    exclude: Option<String>,
    /// Leave this object to another manager; can be repeated
    #[arg(long = "override", value_name = "KIND/NS/NAME")]
    overrides: Vec<String>,
    /// Publish conditions and history of payload apply to this ClusterVersion, which must exist; ignored by plan, lint and status
    #[arg(long, value_name = "NAME")]
    cluster_version: Option<String>,
    /// Read these settings from a YAML file; flags override its fields
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The settings of a command for payloads.
pub(crate) struct Chosen {
    /// The name of the release.
    pub(crate) name: String,
    /// The namespace of its record, if the config file sets it and no flag does.
    pub(crate) namespace: Option<String>,
    /// The ClusterVersion to publish to.
    pub(crate) cluster_version: Option<String>,
    /// The choices by which manifests count.
    pub(crate) settings: Settings,
}

impl SettingsArgs {
    /// Combines the flags with the config file.
    pub(crate) fn read(&self, session: &Session) -> Result<Chosen, CommandError> {
        let config =
            self.config.as_ref().map(|path| input::document(session, path, read_payload_configuration)).transpose()?;
        let config = config.unwrap_or_default();
        let list = |flags: &[String], file: Vec<String>| if flags.is_empty() { file } else { flags.to_vec() };
        let written = list(&self.overrides, config.overrides);
        let parsed = written.iter().map(|text| Override::parse(text).ok_or(text)).collect::<Result<_, _>>();
        let overrides = parsed.map_err(|text| {
            CommandError::input(format!("invalid override {text:?}")).hint("write KIND/NAMESPACE/NAME, or KIND/NAME")
        })?;
        let mut feature_gates = BTreeSet::new();
        for gate in config.feature_gates.iter().chain(&self.feature_gate) {
            match gate.strip_prefix('-') {
                Some(off) => feature_gates.remove(off),
                None => feature_gates.insert(gate.clone()),
            };
        }
        let capabilities = list(&self.capability, config.capabilities);
        let or = |flag: &Option<String>, file: Option<String>| flag.clone().or(file);
        Ok(Chosen {
            name: or(&self.name, config.name).unwrap_or_else(|| "payload".to_owned()),
            namespace: or(&session.global.namespace, config.namespace),
            cluster_version: or(&self.cluster_version, config.cluster_version),
            settings: Settings {
                profile: or(&self.profile, config.profile).unwrap_or_else(|| DEFAULT_PROFILE.to_owned()),
                feature_set: or(&self.feature_set, config.feature_set)
                    .unwrap_or_else(|| DEFAULT_FEATURE_SET.to_owned()),
                feature_gates,
                capabilities: (!capabilities.is_empty()).then(|| capabilities.into_iter().collect()),
                exclude: or(&self.exclude, config.exclude),
                overrides,
            },
        })
    }
}

/// Returns the history of a record as the rules of payloads see it.
pub(crate) fn entries(history: &[AppliedVersion]) -> Vec<HistoryEntry> {
    let entry = |applied: &AppliedVersion| HistoryEntry {
        version: applied.version.clone(),
        state: match applied.state {
            VersionState::Completed => UpdateState::Completed,
            VersionState::Partial => UpdateState::Partial,
        },
    };
    history.iter().map(entry).collect()
}

/// Connects to the cluster, and returns the name of the release.
pub(crate) async fn open(session: &Session, chosen: &Chosen) -> Result<(Clusters, ReleaseName), CommandError> {
    let mut connection = session.connection().await?;
    connection.namespace = chosen.namespace.clone().unwrap_or(connection.namespace);
    let release = connection.release(&chosen.name)?;
    Ok((connection.with(BTreeMap::new()), release))
}

/// Formats seconds since 1970.
pub(crate) fn rfc3339(seconds: Option<i64>) -> String {
    seconds.and_then(|at| jiff::Timestamp::from_second(at).ok()).unwrap_or_default().to_string()
}

/// Reads the manifests of a folder, without its subfolders. A relative path starts at the base.
pub(crate) fn read_folder(base: &Path, folder: &Path) -> Result<Vec<SourceText>, CommandError> {
    let found = std::fs::metadata(base.join(folder));
    if !found.map_err(|error| CommandError::input(unreadable(folder, &error)))?.is_dir() {
        return Err(CommandError::input(format!("{} is not a directory", folder.display())));
    }
    let mut all = SourceTexts::default();
    all.read_folder(base, folder, false);
    // The one for other commands is about a flag that these do not have.
    if !all.hints.is_empty() {
        all.hints = vec!["subdirectories are not read; name the directory that contains the manifests".to_owned()];
    }
    all.check()
}

/// Returns the objects of the files, and their problems.
pub(crate) fn parse(texts: &[SourceText]) -> (Payload, Vec<billhook_payload::Problem>) {
    let files: Vec<_> = texts.iter().map(|text| File { path: &text.name, text: &text.content }).collect();
    Payload::read(&files)
}

/// Returns the decisions about a payload without problems.
pub(crate) fn decide(
    payload: &Payload,
    problems: Vec<billhook_payload::Problem>,
    settings: &Settings,
) -> Result<Decisions, CommandError> {
    let mut decisions = Decisions::new(payload, settings);
    let mut all = problems;
    all.append(&mut decisions.problems);
    all.sort();
    if all.is_empty() { Ok(decisions) } else { Err(invalid(&all)) }
}

/// Returns the error of a payload that cannot be used: all problems, up to a number that can be read.
pub(crate) fn invalid(problems: &[billhook_payload::Problem]) -> CommandError {
    const PRINTED: usize = 100;
    let mut texts: Vec<Problem> = problems.iter().take(PRINTED).map(|problem| problem.to_string().into()).collect();
    if problems.len() > PRINTED {
        texts.push(format!("{} more problems", problems.len() - PRINTED).into());
    }
    CommandError::all(Exit::Input, texts)
}

/// Prints the settings that have no effect on the payload.
pub(crate) fn warn_unused(session: &Session, payload: &Payload, settings: &Settings) {
    for unused in unused(payload, settings) {
        session.printer.warn(&unused.to_string());
    }
}

/// Reads two folders, and reports the problems of both.
pub(crate) fn read_both(
    session: &Session,
    new: &PathBuf,
    old: Option<&PathBuf>,
) -> Result<(Vec<SourceText>, Option<Vec<SourceText>>), CommandError> {
    let read = |folder: &PathBuf| read_folder(&session.directory, folder);
    both(read(new), old.map(read).transpose())
}
