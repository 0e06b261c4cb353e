//! `billhook apply`: deploys a release.

use std::path::PathBuf;

use billhook_engine::{
    ApplyInput, Clusters, DeploymentOrder, MissingNamespaces, PreparedApply, RunOptions, Unowned, Unrecorded,
};
use billhook_plan::Wait;
use billhook_policy::{GoDuration, ItemTimeout, Propagation, UpdateStrategy};
use clap::{ArgAction, ArgGroup, Args};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Cascade, CreateNamespace, DryRun, UpdateStrategyArg},
    chart::{self, ChartArgs},
    connect::Target,
    error::{CommandError, Exit, both},
    input::{self, Sources},
    session::{Interrupts, Session},
};

use super::{
    operate::{self, RunFlags},
    take_over::taking_over,
};

/// Deploy a release in order, wait until it is ready, and prune objects it no longer contains
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    deployment: DeploymentArgs,
    /// Time limit for the whole operation; 0 means no limit [default: 10m]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<GoDuration>,
    /// Preview the operation instead of running it
    #[arg(long, value_name = "MODE", default_value = "none")]
    dry_run: DryRun,
    /// Carry out the plan even if it has dangerous notes
    #[arg(long, short)]
    yes: bool,
    /// Take over from another operation that works on the release, which then stops [default: refuse]
    #[arg(long)]
    take_over: bool,
}

const EXAMPLES: &str = "\
Examples:
  billhook apply shop -f manifests/ -R
  billhook apply shop -k overlays/production --policy policy.yaml
  billhook apply shop --chart ./chart --values production.yaml --set replicas=3
  helm template shop ./chart | billhook apply shop -f -";

/// What to deploy, for `apply`, `plan apply` and `diff`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).multiple(false))]
pub(crate) struct DeploymentArgs {
    /// Name of the release
    name: String,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    chart: ChartArgs,
    /// Use this policy file, or the default policy with "default", and record it [default: the recorded policy]
    #[arg(long, value_name = "FILE|default")]
    policy: Option<PathBuf>,
    /// Adopt existing objects that belong to no release, and take over those whose label or record is missing
    #[arg(long)]
    adopt: bool,
    /// Wait until all objects are ready
    #[cfg_attr(feature = "sandbox", doc = "[default: true; false with --sandbox, which runs no pods]")]
    #[cfg_attr(not(feature = "sandbox"), doc = "[default: true]")]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", hide_possible_values = true)]
    wait: Option<bool>,
    /// Delete objects that the release no longer contains [default: true]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "true",
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    prune: bool,
    /// Change nothing if the plan prunes more than N objects, not even with --yes
    #[arg(long, value_name = "N")]
    max_deletions: Option<usize>,
    /// Create missing namespaces; with =owned they belong to the release and are deleted with it
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "kept")]
    create_namespace: Option<CreateNamespace>,
    /// Choose how to update existing objects; not recorded with the release
    #[arg(long, value_name = "STRATEGY", default_value = "server-side")]
    update_strategy: UpdateStrategyArg,
    /// Take over conflicting fields from other field managers; affects server-side apply only
    #[arg(long)]
    pub(super) force_conflicts: bool,
    /// Choose how the dependents of pruned objects are deleted
    #[arg(long, value_name = "MODE", default_value = "background")]
    cascade: Cascade,
    /// Use this cluster for a targetName of deletionGroupsDuringUpdate; can be repeated
    #[arg(long, value_name = "NAME=KUBECONFIG[#CONTEXT]")]
    target: Vec<Target>,
}

/// A plan, its clusters, and the time limit of a DeployItem.
pub(crate) struct Planned<Prepared> {
    pub(crate) prepared: Prepared,
    pub(crate) clusters: Clusters,
    pub(crate) item_timeout: Option<ItemTimeout>,
}

/// What to deploy, as it was read.
struct Deployment {
    clusters: Clusters,
    input: ApplyInput,
    item_timeout: Option<ItemTimeout>,
}

/// Reads the input and plans, without changing anything.
pub(crate) async fn plan(session: &Session, args: DeploymentArgs) -> Result<Planned<PreparedApply>, CommandError> {
    read(session, args).await?.plan().await
}

impl Deployment {
    async fn plan(self) -> Result<Planned<PreparedApply>, CommandError> {
        let Self { clusters, input, item_timeout } = self;
        let prepared = billhook_engine::prepare_apply(&clusters, input).await?;
        Ok(Planned { prepared, clusters, item_timeout })
    }
}

/// Reads the input of a deployment.
async fn read(session: &Session, args: DeploymentArgs) -> Result<Deployment, CommandError> {
    let input = input::read(session, &args.sources, args.policy.as_ref()).await;
    let connection = session.connection().await.and_then(|connection| {
        let release = connection.release(&args.name)?;
        Ok((connection, release))
    });
    let targets = session.targets(&args.target).await;
    let (((), mut input), ((connection, release), targets)) =
        both(both(args.chart.check(), input), both(connection, targets))?;
    let (mut notes, mut catalog) = (Vec::new(), None);
    if let Some(reference) = &args.chart.chart {
        let rendered = chart::render(session, &args.chart, reference, &release, &connection).await?;
        input.manifests = rendered.manifests;
        (notes, catalog) = (rendered.notes, Some(rendered.catalog));
    }
    let clusters = connection.with(targets);
    let waits = args.wait.unwrap_or(!session.global.sandbox);
    let apply = ApplyInput {
        directives: input.directives,
        strategy: UpdateStrategy::from(args.update_strategy),
        policy: input.policy,
        unrecorded: Unrecorded::Swept,
        unowned: if args.adopt { Unowned::Take } else { Unowned::Refuse },
        prune: args.prune,
        max_deletions: args.max_deletions,
        order: DeploymentOrder::Groups(if waits { Wait::All } else { Wait::Nothing }),
        missing_namespaces: match args.create_namespace {
            None => MissingNamespaces::Refuse,
            Some(CreateNamespace::Owned) => MissingNamespaces::CreateOwned,
            Some(CreateNamespace::Kept) => MissingNamespaces::Create,
        },
        propagation: Propagation::from(args.cascade),
        notes,
        catalog: catalog.map(Into::into),
        ..ApplyInput::new(release, input.manifests)
    };
    Ok(Deployment { clusters, input: apply, item_timeout: input.timeout })
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: ApplyArgs) -> Result<Exit, CommandError> {
    let force_conflicts = args.deployment.force_conflicts;
    if session.global.sandbox && args.deployment.wait.is_none() {
        session.printer.err("not waiting for readiness: a sandbox runs no pods (use --wait to wait anyway)");
    }
    let how = Execution { dry_run: args.dry_run, timeout: args.timeout, yes: args.yes, force_conflicts };
    let deployment = interrupts.unless(read(session, args.deployment)).await?;
    let (clusters, release) = (deployment.clusters.clone(), deployment.input.release.clone());
    let taken = Some(&release).filter(|_| args.take_over && how.dry_run == DryRun::None);
    taking_over(session, interrupts, &CancellationToken::new(), (&clusters, taken), async |interrupts| {
        let planned = interrupts.unless(deployment.plan()).await?;
        execute(session, interrupts, planned, how).await
    })
    .await
}

/// How a planned deployment is carried out.
pub(crate) struct Execution {
    pub(crate) dry_run: DryRun,
    pub(crate) timeout: Option<GoDuration>,
    pub(crate) yes: bool,
    pub(crate) force_conflicts: bool,
}

/// Carries out a deployment or restoration, or shows what it would do.
pub(crate) async fn execute(
    session: &Session,
    interrupts: &mut Interrupts,
    planned: Planned<PreparedApply>,
    how: Execution,
) -> Result<Exit, CommandError> {
    let Planned { mut prepared, clusters, item_timeout } = planned;
    let timeout = operate::time_limit(how.timeout, item_timeout, &mut prepared.plan);
    match how.dry_run {
        DryRun::Client => {
            operate::print_plan(session, &prepared.plan);
            return Ok(Exit::Done);
        }
        DryRun::Server => {
            let PreparedApply { plan, manifests, not_served, .. } = &prepared;
            let answers = operate::dry_run(session, plan, &clusters, manifests, not_served, how.force_conflicts);
            return interrupts.unless(answers).await;
        }
        DryRun::None => {}
    }
    let review = format!("billhook plan {}", prepared.plan.operation.name());
    operate::guard(session, &prepared.plan, Some(&review), how.yes)?;
    let flags = RunFlags { timeout, force_conflicts: how.force_conflicts, ..RunFlags::default() };
    let work = async |options: RunOptions| billhook_engine::apply(&clusters, prepared, &options).await;
    operate::carry_out(session, interrupts, flags, work).await
}
