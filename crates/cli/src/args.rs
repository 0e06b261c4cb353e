//! The command line: what is common to all commands. Each command's own arguments stand with the command.

use std::{ffi::OsString, path::Path};

use billhook_policy::{GoDuration, Propagation, UpdateStrategy};
use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

use crate::commands;

/// Ordered, explainable deployment and deletion for Kubernetes
#[derive(Debug, Parser)]
#[command(name = "billhook", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    #[command(flatten)]
    pub(crate) common: Common,
}

const EXAMPLES: &str = "\
Examples:
  billhook apply shop -f manifests/        deploy a release
  billhook plan delete shop                show what its deletion would do, in order
  billhook delete shop                     delete it, group by group, until all is gone
  billhook status shop                     show what is there and what blocks it
  billhook demo                            show all of this, with nothing installed

Exit codes:
  0  done, and verified
  1  failed
  2  wrong input; nothing was touched
  3  timed out or interrupted with objects left; the same call goes on
  4  refused by a guard; nothing was touched";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Apply(commands::apply::Apply),
    Delete(commands::delete::Delete),
    Plan(commands::plan::Plan),
    Status(commands::status::Status),
    List(commands::list::List),
    Validate(commands::validate::Validate),
    Controller(commands::controller::Controller),
    Sandbox(commands::sandbox::Sandbox),
    Demo(commands::demo::Demo),
    Completion(commands::completion::Completion),
}

/// Flags of all commands, named as kubectl names them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// Work on a fresh Kubernetes API server in memory, in place of a cluster
    #[arg(long, global = true)]
    pub(crate) sandbox: bool,
    /// The kubeconfig file, in place of $KUBECONFIG
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<String>,
    /// The context of the kubeconfig
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    /// The cluster of the kubeconfig
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) cluster: Option<String>,
    /// The user of the kubeconfig
    #[arg(long, global = true, hide_short_help = true)]
    pub(crate) user: Option<String>,
    /// The namespace of the release, and of objects that name none
    #[arg(long, short, global = true)]
    pub(crate) namespace: Option<String>,
    /// The user to impersonate
    #[arg(long = "as", global = true, hide_short_help = true, value_name = "USER")]
    pub(crate) as_user: Option<String>,
    /// A group to impersonate; may be repeated
    #[arg(long, global = true, hide_short_help = true, value_name = "GROUP")]
    pub(crate) as_group: Vec<String>,
    /// How long one request may take [default: 30s]; 0 for no limit
    #[arg(long, global = true, hide_short_help = true, value_name = "DURATION")]
    pub(crate) request_timeout: Option<GoDuration>,
    /// The format of the results; json prints events one a line
    #[arg(long, short, global = true, value_name = "FORMAT", default_value = "text", hide_default_value = true)]
    pub(crate) output: Output,
    /// When to colour
    #[arg(
        long,
        global = true,
        hide_short_help = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_default_value = true
    )]
    pub(crate) color: Color,
    /// Say more: -v shows unchanged objects and requests, -vv the client's inner life
    #[arg(short, long = "verbose", global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

/// The format of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    Text,
    Json,
}

/// When to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DryRun {
    /// Everything
    None,
    /// Nothing: the plan is printed
    Client,
    /// Every request, with dryRun=All: the plan and the server's answers are printed
    Server,
}

/// How dependents are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cascade {
    /// The owner goes first, its dependents follow
    Background,
    /// Dependents go first
    Foreground,
    /// Dependents stay
    Orphan,
}

impl From<Cascade> for Propagation {
    fn from(cascade: Cascade) -> Self {
        match cascade {
            Cascade::Background => Self::Background,
            Cascade::Foreground => Self::Foreground,
            Cascade::Orphan => Self::Orphan,
        }
    }
}

/// How an object that exists is brought to what its manifest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Strategy {
    /// By server-side apply: what the manifest says is set, what it said before is removed, all else stays
    ServerSide,
    /// The object is replaced; immutable fields that the manifest leaves open are carried over
    Update,
    /// The difference between the object and the manifest is sent as a merge patch
    Patch,
    /// Only fields that the object lacks are set
    Merge,
    /// Fields that the manifest sets to something are set; all else stays
    MergeOverwrite,
}

impl From<Strategy> for UpdateStrategy {
    fn from(strategy: Strategy) -> Self {
        match strategy {
            Strategy::ServerSide => Self::ServerSide,
            Strategy::Update => Self::Update,
            Strategy::Patch => Self::Patch,
            Strategy::Merge => Self::Merge,
            Strategy::MergeOverwrite => Self::MergeOverwrite,
        }
    }
}

/// The command line for a program of this name.
pub(crate) fn command(name: &str) -> clap::Command {
    let usage =
        |command: clap::Command, words: &str, rest: &str| command.override_usage(format!("{name} {words} {rest}"));
    let command = Cli::command()
        .bin_name(name.to_owned())
        .mut_subcommand("apply", |apply| usage(apply, "apply", APPLY_USAGE))
        .mut_subcommand("delete", |delete| usage(delete, "delete", DELETE_USAGE))
        .mut_subcommand("plan", |plan| {
            plan.mut_subcommand("apply", |apply| usage(apply, "plan apply", APPLY_USAGE))
                .mut_subcommand("delete", |delete| usage(delete, "plan delete", DELETE_USAGE))
        });
    if name == "billhook" { command } else { renamed(command, name) }
}

const APPLY_USAGE: &str = "NAME <-f PATH... | -k DIR | --chart REF> [OPTIONS]";
const DELETE_USAGE: &str = "<NAME | -f PATH... | -k DIR> [OPTIONS]";

/// Parses the arguments, the name of the program first.
pub(crate) fn parse(args: &[OsString], name: &str) -> Result<Cli, clap::Error> {
    let mut command = command(name);
    let matches = command.try_get_matches_from_mut(args)?;
    Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

/// What the user types to call the program: a kubectl plugin is called through kubectl.
pub(crate) fn program_name(args: &[OsString]) -> &'static str {
    let stem = args.first().map(Path::new).and_then(Path::file_stem);
    if stem.is_some_and(|stem| stem == "kubectl-billhook") { "kubectl billhook" } else { "billhook" }
}

/// Puts the name into the examples, of the subcommands too.
fn renamed(mut command: clap::Command, name: &str) -> clap::Command {
    if let Some(examples) = command.get_after_help().map(|text| text.to_string()) {
        command = command.after_help(examples.replace("  billhook ", &format!("  {name} ")));
    }
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    names.into_iter().fold(command, |command, sub| command.mut_subcommand(sub, |sub| renamed(sub, name)))
}
