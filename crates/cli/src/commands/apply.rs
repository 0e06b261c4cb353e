//! `billhook apply`: deploys a release.

use std::{collections::BTreeMap, path::PathBuf};

use billhook_engine::{ApplyInput, Clusters, MissingNamespaces, Prepared, RunOptions};
use billhook_plan::Wait;
use billhook_policy::{GoDuration, Propagation, UpdateStrategy};
use clap::{ArgAction, ArgGroup, Args};

use crate::{
    args::{Cascade, DryRun, Strategy},
    chart::{self, ChartArgs, FromChart},
    error::{CommandError, Exit},
    input::{self, Purpose, Sources},
    session::{Interrupts, Session, Target},
};

use super::operate::{self, How};

/// Deploy a release: in order, waited for, and without what its last version had and it lacks
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Apply {
    #[command(flatten)]
    pub(crate) what: What,
    /// How long all may take [default: 10m]; 0 for no limit
    #[arg(long, value_name = "DURATION")]
    timeout: Option<GoDuration>,
    /// What to send
    #[arg(long, value_name = "WHAT", default_value = "none", hide_possible_values = false)]
    dry_run: DryRun,
    /// Carry out a plan with dangerous notes
    #[arg(long, short)]
    yes: bool,
}

const EXAMPLES: &str = "\
Examples:
  billhook apply shop -f manifests/ -R
  billhook apply shop -k overlays/production --policy policy.yaml
  billhook apply shop --chart ./chart --values production.yaml --set replicas=3
  helm template shop ./chart | billhook apply shop -f -";

/// What is deployed: for `plan apply` too.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).multiple(false))]
pub(crate) struct What {
    /// The name of the release
    name: String,
    #[command(flatten)]
    sources: Sources,
    #[command(flatten)]
    chart: ChartArgs,
    /// The policy file, recorded with the release; the recorded one stays where none is given
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Take up objects that exist and belong to nobody
    #[arg(long)]
    adopt: bool,
    /// Wait until all is ready [default: true; false with --sandbox, where no pods run]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", hide_possible_values = true)]
    wait: Option<bool>,
    /// Delete what the last version had and this one lacks [default: true]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(
        default_value = "true",
        default_missing_value = "true",
        hide_default_value = true,
        hide_possible_values = true
    )]
    prune: bool,
    /// Create namespaces that do not exist
    #[arg(long)]
    create_namespace: bool,
    /// How objects that exist are brought to what their manifests say; not recorded with the release
    #[arg(long, value_name = "STRATEGY", default_value = "server-side")]
    update_strategy: Strategy,
    /// Take over fields that another manager owns (of server-side apply only: the other strategies ask nobody)
    #[arg(long)]
    force_conflicts: bool,
    /// How dependents of pruned objects are treated
    #[arg(long, value_name = "HOW", default_value = "background")]
    cascade: Cascade,
    /// The cluster of a targetName in deletionGroupsDuringUpdate: NAME=KUBECONFIG[#CONTEXT]; may be repeated
    #[arg(long, value_name = "NAME=KUBECONFIG")]
    target: Vec<Target>,
}

/// A plan, the clusters it is for, and what a DeployItem says of its time.
pub(crate) struct Planned {
    pub(crate) prepared: Prepared,
    pub(crate) clusters: Clusters,
    pub(crate) item_timeout: Option<billhook_policy::ItemTimeout>,
}

/// Reads the input and plans; changes nothing.
pub(crate) async fn plan(session: &Session, what: What) -> Result<Planned, CommandError> {
    what.chart.check()?;
    let connection = session.connection().await?;
    let release = connection.release(&what.name)?;
    let (input, notes, catalog) = match &what.chart.chart {
        Some(reference) => {
            let FromChart { manifests, notes, catalog } =
                chart::render(session, &what.chart, reference, &release, &connection).await?;
            (input::Input { manifests, ..input::Input::default() }, notes, Some(catalog))
        }
        None => (input::read(session, &what.sources, Purpose::Apply).await?, Vec::new(), None),
    };
    let policy = input::one_policy(session, what.policy.as_ref(), input.policy)?;
    let clusters = connection.with(session.targets(&what.target).await?);
    let waits = what.wait.unwrap_or(!session.common.sandbox);
    let apply = ApplyInput {
        namespace: Some(release.namespace().to_owned()),
        release,
        manifests: input.manifests,
        directives: BTreeMap::new(),
        strategy: UpdateStrategy::from(what.update_strategy),
        inherited: Vec::new(),
        policy,
        adopt: what.adopt,
        prune: what.prune,
        wait: if waits { Wait::All } else { Wait::Nothing },
        is_new: false,
        missing_namespaces: if what.create_namespace { MissingNamespaces::Create } else { MissingNamespaces::Refuse },
        propagation: Propagation::from(what.cascade),
        notes,
        catalog: catalog.map(Into::into),
    };
    let prepared = billhook_engine::prepare_apply(&clusters, apply).await?;
    Ok(Planned { prepared, clusters, item_timeout: input.timeout })
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: Apply) -> Result<Exit, CommandError> {
    let force_conflicts = args.what.force_conflicts;
    if session.common.sandbox && args.what.wait.is_none() {
        session.printer.err("no pods run in a sandbox: readiness is not waited for (--wait waits all the same)");
    }
    let planned = interrupts.unless(plan(session, args.what)).await?;
    let Planned { prepared, clusters, item_timeout } = planned;
    match args.dry_run {
        DryRun::Client => {
            operate::print_plan(session, &prepared.plan);
            return Ok(Exit::Done);
        }
        DryRun::Server => {
            return interrupts
                .unless(async { Ok(operate::dry_run(session, &prepared, &clusters, force_conflicts).await) })
                .await;
        }
        DryRun::None => {}
    }
    operate::guard(session, &prepared.plan, args.yes)?;
    let how = How { timeout: input::time_limit(args.timeout, item_timeout), force_conflicts };
    let work = async |options: RunOptions| billhook_engine::apply(&clusters, prepared, &options).await;
    operate::carry_out(session, interrupts, how, work).await
}
