//! `billhook apply`: deploys a release.

use std::path::PathBuf;

use billhook_engine::{ApplyInput, Clusters, MissingNamespaces, PreparedApply, RunOptions};
use billhook_plan::{Unlabelled, Wait};
use billhook_policy::{GoDuration, Propagation, UpdateStrategy};
use clap::{ArgAction, ArgGroup, Args};

use crate::{
    args::{Cascade, CreateNamespace, DryRun, UpdateStrategyArg},
    chart::{self, ChartArgs, RenderedChart},
    connect::Target,
    error::{CommandError, Exit},
    input::{self, Sources},
    session::{Interrupts, Session},
};

use super::operate::{self, RunFlags};

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
}

const EXAMPLES: &str = "\
Examples:
  billhook apply shop -f manifests/ -R
  billhook apply shop -k overlays/production --policy policy.yaml
  billhook apply shop --chart ./chart --values production.yaml --set replicas=3
  helm template shop ./chart | billhook apply shop -f -";

/// What to deploy, for `apply` and `plan apply`.
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
    #[arg(long, value_name = "FILE")]
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
    /// Create missing namespaces; with =owned they belong to the release and are deleted with it
    #[arg(long, value_name = "MODE", num_args = 0..=1, require_equals = true, default_missing_value = "kept")]
    create_namespace: Option<CreateNamespace>,
    /// Choose how to update existing objects; not recorded with the release
    #[arg(long, value_name = "STRATEGY", default_value = "server-side")]
    update_strategy: UpdateStrategyArg,
    /// Take over conflicting fields from other field managers; affects server-side apply only
    #[arg(long)]
    force_conflicts: bool,
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
    pub(crate) item_timeout: Option<billhook_policy::ItemTimeout>,
}

/// Reads the input and plans, without changing anything.
pub(crate) async fn plan(session: &Session, args: DeploymentArgs) -> Result<Planned<PreparedApply>, CommandError> {
    args.chart.check()?;
    let connection = session.connection().await?;
    let release = connection.release(&args.name)?;
    let (input, notes, catalog) = match &args.chart.chart {
        Some(reference) => {
            let RenderedChart { manifests, notes, catalog } =
                chart::render(session, &args.chart, reference, &release, &connection).await?;
            (input::Input { manifests, ..input::Input::default() }, notes, Some(catalog))
        }
        None => (input::read(session, &args.sources).await?, Vec::new(), None),
    };
    let policy = input::one_policy(session, args.policy.as_ref(), input.policy)?;
    let clusters = connection.with(session.targets(&args.target).await?);
    let waits = args.wait.unwrap_or(!session.global.sandbox);
    let apply = ApplyInput {
        namespace: Some(release.namespace().to_owned()),
        release,
        manifests: input.manifests,
        directives: input.directives,
        strategy: UpdateStrategy::from(args.update_strategy),
        inherited: Vec::new(),
        policy,
        adopt: args.adopt,
        prune: args.prune,
        wait: if waits { Wait::All } else { Wait::Nothing },
        is_new: false,
        missing_namespaces: args.create_namespace.map_or(MissingNamespaces::Refuse, |_| MissingNamespaces::Create),
        own_namespaces: args.create_namespace == Some(CreateNamespace::Owned),
        unlabelled: if args.adopt { Unlabelled::Take } else { Unlabelled::Refuse },
        propagation: Propagation::from(args.cascade),
        notes,
        catalog: catalog.map(Into::into),
    };
    let prepared = billhook_engine::prepare_apply(&clusters, apply).await?;
    Ok(Planned { prepared, clusters, item_timeout: input.timeout })
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: ApplyArgs) -> Result<Exit, CommandError> {
    let force_conflicts = args.deployment.force_conflicts;
    if session.global.sandbox && args.deployment.wait.is_none() {
        session.printer.err("not waiting for readiness: a sandbox runs no pods (use --wait to wait anyway)");
    }
    let planned = interrupts.unless(plan(session, args.deployment)).await?;
    let Planned { prepared, clusters, item_timeout } = planned;
    match args.dry_run {
        DryRun::Client => {
            operate::print_plan(session, &prepared.plan);
            return Ok(Exit::Done);
        }
        DryRun::Server => {
            return interrupts
                .unless(operate::dry_run(session, &prepared.plan, &clusters, &prepared.manifests, force_conflicts))
                .await;
        }
        DryRun::None => {}
    }
    operate::guard(session, &prepared.plan, args.yes)?;
    let flags = RunFlags { timeout: input::time_limit(args.timeout, item_timeout), force_conflicts };
    let work = async |options: RunOptions| billhook_engine::apply(&clusters, prepared, &options).await;
    operate::carry_out(session, interrupts, flags, work).await
}
