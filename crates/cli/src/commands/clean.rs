//! `billhook clean`: deletes everything in a cluster, stage by stage, or the namespace of a control plane by force.

use std::{fmt, path::PathBuf, str::FromStr};

use billhook_engine::{CleanSubject, Clusters, PreparedClean, RunOptions};
use billhook_objects::wellknown;
use billhook_plan::Plan;
use billhook_policy::{DurationError, GoDuration, LabelSelector, NO_CLEANUP_LABEL, Stages, UnknownStage, read_stages};
use clap::{Args, Subcommand};

use crate::{
    error::{CommandError, Exit, both},
    input,
    render::plan::deletion_table,
    session::{Interrupts, Session},
    text::quoted,
};

use super::operate::{self, RunFlags};

/// Delete everything in a cluster, stage by stage, and remove finalizers that remain too long
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct CleanArgs {
    #[command(subcommand)]
    command: Option<CleanCommand>,
    #[command(flatten)]
    stages: StagesArgs,
    /// Confirm with the name of the cluster, the one of the kubeconfig's context [default: ask on a terminal, else refuse]
    #[arg(long, value_name = "NAME")]
    confirm_cluster: Option<String>,
    #[command(flatten)]
    run: RunArgs,
}

const EXAMPLES: &str = "\
Examples:
  billhook plan clean
  billhook clean --confirm-cluster old-cluster
  billhook clean -f stages.yaml --exclude keep=yes --finalize-after workloads=0s
  billhook clean control-plane shoot--project--name";

#[derive(Debug, Subcommand)]
enum CleanCommand {
    ControlPlane(ControlPlaneArgs),
}

/// Delete the control-plane namespace of a shoot on a seed of Gardener by force
///
/// Extension objects first, then machines, ManagedResources, the Cluster object, etcds, ConfigMaps and Secrets, and the
/// namespace.
#[derive(Debug, Args)]
struct ControlPlaneArgs {
    /// Namespace of the control plane
    #[arg(value_name = "NAMESPACE")]
    control_plane: String,
    /// Confirm with the name of the namespace [default: ask on a terminal, else refuse]
    #[arg(long, value_name = "NAME")]
    confirm_namespace: Option<String>,
}

/// The flags of both, before or after the name of the subcommand.
#[derive(Debug, Args)]
struct RunArgs {
    /// Time limit for the whole operation; 0 means no limit [default: none, but each stage has a limit]
    #[arg(long, value_name = "DURATION", global = true)]
    timeout: Option<GoDuration>,
    /// Accept this flag without effect: only the name confirms this command
    #[arg(long, short, global = true, hide = true)]
    yes: bool,
}

/// What is deleted, and what is left.
#[derive(Debug, Args)]
struct StagesArgs {
    /// Use the stages of this file [default: webhooks, then extended-apis, then kubernetes-resources, as Gardener does]
    #[arg(long, short, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// Leave objects that match this label selector, instead of those with the default; can be repeated [default: shoot.gardener.cloud/no-cleanup]
    #[arg(long, value_name = "SELECTOR")]
    exclude: Vec<Exclude>,
    /// Remove finalizers this long after the deletionTimestamp, if the stage would do it later; 0s means at once; can be repeated
    #[arg(long, value_name = "STAGE=DURATION")]
    finalize_after: Vec<FinalizeAfter>,
}

impl StagesArgs {
    /// Returns the command that shows the plan with these flags.
    fn review(&self) -> String {
        let mut command = "billhook plan clean".to_owned();
        let mut add = |flag: &str, value: &str| command += &format!(" {flag} {}", quoted(value));
        self.filename.iter().for_each(|path| add("-f", &path.display().to_string()));
        self.exclude.iter().for_each(|exclude| add("--exclude", &exclude.text));
        self.finalize_after.iter().for_each(|limit| add("--finalize-after", &limit.to_string()));
        command
    }

    /// Rejects the flags that only the cleaning of a cluster has. They may precede the subcommand, so that clap does not.
    fn check_unused(&self, confirm_cluster: Option<&String>) -> Result<(), CommandError> {
        let given = [
            (self.filename.is_some(), "--filename"),
            (!self.exclude.is_empty(), "--exclude"),
            (!self.finalize_after.is_empty(), "--finalize-after"),
            (confirm_cluster.is_some(), "--confirm-cluster"),
        ];
        let problem = |flag: &str| format!("{flag} cannot be used with control-plane").into();
        let unused: Vec<_> = given.iter().filter(|(given, _)| *given).map(|(_, flag)| problem(flag)).collect();
        if unused.is_empty() { Ok(()) } else { Err(CommandError::all(Exit::Input, unused)) }
    }
}

/// What to clean, for `plan clean`.
#[derive(Debug, Args)]
#[command(disable_help_subcommand = true)]
pub(crate) struct PlanCleanArgs {
    #[command(subcommand)]
    command: Option<PlanCleanCommand>,
    #[command(flatten)]
    stages: StagesArgs,
}

#[derive(Debug, Subcommand)]
enum PlanCleanCommand {
    /// Show what clean control-plane would do, without changing anything
    ControlPlane {
        /// Namespace of the control plane
        #[arg(value_name = "NAMESPACE")]
        control_plane: String,
    },
}

/// The value of `--exclude`.
#[derive(Clone, Debug)]
struct Exclude {
    /// As it was given.
    text: String,
    selector: LabelSelector,
}

impl FromStr for Exclude {
    type Err = <LabelSelector as FromStr>::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self { text: text.to_owned(), selector: text.parse()? })
    }
}

/// The value of `--finalize-after`.
#[derive(Clone, Debug)]
struct FinalizeAfter {
    stage: String,
    after: GoDuration,
}

impl FromStr for FinalizeAfter {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (stage, after) = text.split_once('=').ok_or("expected STAGE=DURATION, such as webhooks=30s")?;
        let after = after.parse().map_err(|error: DurationError| error.to_string())?;
        Ok(Self { stage: stage.to_owned(), after })
    }
}

impl fmt::Display for FinalizeAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.stage, self.after)
    }
}

/// Plans, without changing anything.
pub(crate) async fn plan(session: &Session, args: PlanCleanArgs) -> Result<Plan, CommandError> {
    let (prepared, _) = match args.command {
        Some(PlanCleanCommand::ControlPlane { control_plane }) => {
            args.stages.check_unused(None)?;
            prepare_control_plane(session, &control_plane).await
        }
        None => prepare_cluster(session, &args.stages).await,
    }?;
    Ok(prepared.plan)
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: CleanArgs) -> Result<Exit, CommandError> {
    let CleanArgs { command, stages, confirm_cluster, run } = args;
    let (prepared, clusters, confirmation) = match command {
        Some(CleanCommand::ControlPlane(args)) => {
            stages.check_unused(confirm_cluster.as_ref())?;
            let prepared = prepare_control_plane(session, &args.control_plane);
            let (prepared, clusters) = interrupts.unless(prepared).await?;
            (prepared, clusters, Confirmation::of_namespace(args.control_plane, args.confirm_namespace))
        }
        None => {
            let (prepared, clusters) = interrupts.unless(prepare_cluster(session, &stages)).await?;
            (prepared, clusters, Confirmation::of_cluster(session.cluster_name(), confirm_cluster, stages.review()))
        }
    };
    let deletes = prepared.plan.deletions() > 0;
    if deletes {
        confirmation.check(session, interrupts, &prepared.plan, run.yes).await?;
    }
    let timeout = run.timeout.map(|limit| limit.0).filter(|limit| !limit.is_zero());
    let flags = RunFlags { timeout, confirmed: deletes, ..RunFlags::default() };
    let work =
        async |options: RunOptions| Ok::<_, CommandError>(billhook_engine::clean(&clusters, prepared, &options).await);
    operate::carry_out(session, interrupts, flags, work).await
}

async fn prepare_cluster(session: &Session, args: &StagesArgs) -> Result<(PreparedClean, Clusters), CommandError> {
    let (stages, connection) = both(stages(session, args), session.connection().await)?;
    let mut exclude: Vec<_> = args.exclude.iter().map(|exclude| exclude.selector.clone()).collect();
    if exclude.is_empty() {
        exclude.push(LabelSelector::exists(NO_CLEANUP_LABEL));
    }
    let subject = CleanSubject::Cluster { stages: stages.policy(), exclude };
    let clusters = connection.with(Default::default());
    Ok((billhook_engine::prepare_clean(&clusters, subject).await?, clusters))
}

async fn prepare_control_plane(session: &Session, namespace: &str) -> Result<(PreparedClean, Clusters), CommandError> {
    if wellknown::is_protected_namespace(namespace) {
        let problem = format!("{namespace} is a system namespace and is never deleted; nothing was changed");
        return Err(CommandError::new(Exit::Refused, problem));
    }
    let clusters = session.connection().await?.with(Default::default());
    let subject = CleanSubject::ControlPlane { namespace: namespace.to_owned() };
    Ok((billhook_engine::prepare_clean(&clusters, subject).await?, clusters))
}

/// Returns the stages of the file, or the default ones, with the limits of `--finalize-after`.
fn stages(session: &Session, args: &StagesArgs) -> Result<Stages, CommandError> {
    let mut stages = args
        .filename
        .as_ref()
        .map_or_else(|| Ok(Stages::default()), |path| input::document(session, path, read_stages))?;
    let limits = args.finalize_after.iter();
    let unknown: Vec<_> = limits.filter_map(|limit| stages.finalize_after(&limit.stage, limit.after).err()).collect();
    if unknown.is_empty() {
        return Ok(stages);
    }
    let problem = |unknown: &UnknownStage| format!("--finalize-after: {unknown}").into();
    Err(CommandError::all(Exit::Input, unknown.iter().map(problem).collect()))
}

/// The name that the user has to give.
struct Confirmation {
    what: &'static str,
    name: String,
    flag: &'static str,
    given: Option<String>,
    /// The command that shows the plan.
    review: String,
}

impl Confirmation {
    fn of_cluster(name: String, given: Option<String>, review: String) -> Self {
        Self { what: "cluster", name, flag: "--confirm-cluster", given, review }
    }

    fn of_namespace(name: String, given: Option<String>) -> Self {
        let review = format!("billhook plan clean control-plane {name}");
        Self { what: "namespace", name, flag: "--confirm-namespace", given, review }
    }

    /// Shows what a plan deletes, and fails unless the user gives the name.
    async fn check(
        &self,
        session: &Session,
        interrupts: &mut Interrupts,
        plan: &Plan,
        yes: bool,
    ) -> Result<(), CommandError> {
        let Self { what, name, flag, given, review } = self;
        session.printer.err(&format!("{}all of these objects will be deleted:", operate::place(session)));
        deletion_table(plan).iter().for_each(|line| session.printer.err(&format!("  {line}")));
        operate::print_warnings(session, &plan.notes);
        let refused = |why: String| CommandError::new(Exit::Refused, format!("{why}; nothing was changed"));
        match given {
            Some(given) if given == name => return Ok(()),
            Some(given) => return Err(refused(format!("{flag} names {what} {given}, but this is {what} {name}"))),
            None if session.stdin_terminal => {}
            None => {
                let hint = format!("review the plan with {review}, then pass {flag} {name}");
                let not = if yes { "is not confirmed by --yes" } else { "was not confirmed" };
                return Err(refused(format!("cleaning {what} {name} {not}")).hint(hint));
            }
        }
        let question = format!("Type the name of the {what} to delete them ({name}): ");
        match session.answer(interrupts, &question).await? {
            Some(answer) if answer.trim() == name => Ok(()),
            _ => Err(refused(format!("not confirmed: the answer is not the name of the {what}"))),
        }
    }
}
