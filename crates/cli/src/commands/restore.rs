//! `billhook restore`: creates the objects of a deleted release again, from the backup in its record.

use std::collections::BTreeMap;

use billhook_engine::{Clusters, MissingNamespaces, PreparedApply, RestoreInput};
use billhook_plan::Wait;
use billhook_policy::GoDuration;
use clap::{ArgAction, Args};
use tokio_util::sync::CancellationToken;

use crate::{
    args::DryRun,
    error::{CommandError, Exit},
    session::{Interrupts, Session},
};

use super::{
    apply::{Execution, Planned, execute},
    take_over::taking_over,
};

/// Restore the objects that delete --backup or a force stage has saved, in deployment order, and wait until they are ready
///
/// The backup remains in the record of the release until it is applied again or forgotten.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    restoration: RestorationArgs,
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
  billhook delete shop --backup
  billhook plan restore shop
  billhook restore shop";

/// What to restore, for `restore` and `plan restore`.
#[derive(Debug, Args)]
pub(crate) struct RestorationArgs {
    /// Name of the release
    name: String,
    /// Adopt objects that were created meanwhile and belong to no release
    #[arg(long)]
    adopt: bool,
    /// Wait until all objects are ready
    #[cfg_attr(feature = "sandbox", doc = "[default: true; false with --sandbox, which runs no pods]")]
    #[cfg_attr(not(feature = "sandbox"), doc = "[default: true]")]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "true", hide_possible_values = true)]
    wait: Option<bool>,
    /// Create namespaces that do not exist and are not in the backup
    #[arg(long)]
    create_namespace: bool,
}

/// Reads the backup and plans, without changing anything.
pub(crate) async fn plan(session: &Session, args: RestorationArgs) -> Result<Planned<PreparedApply>, CommandError> {
    let (clusters, input) = read(session, &args).await?;
    prepare(clusters, input).await
}

async fn prepare(clusters: Clusters, input: RestoreInput) -> Result<Planned<PreparedApply>, CommandError> {
    let prepared = billhook_engine::prepare_restore(&clusters, input).await?;
    Ok(Planned { prepared, clusters, item_timeout: None })
}

/// Reads the input of a restoration.
async fn read(session: &Session, args: &RestorationArgs) -> Result<(Clusters, RestoreInput), CommandError> {
    let connection = session.connection().await?;
    let release = connection.release(&args.name)?;
    let clusters = connection.with(BTreeMap::new());
    let waits = args.wait.unwrap_or(!session.global.sandbox);
    let restore = RestoreInput {
        release,
        adopt: args.adopt,
        missing_namespaces: match args.create_namespace {
            true => MissingNamespaces::Create,
            false => MissingNamespaces::Refuse,
        },
        wait: if waits { Wait::All } else { Wait::Nothing },
    };
    Ok((clusters, restore))
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: RestoreArgs,
) -> Result<Exit, CommandError> {
    let how = Execution { dry_run: args.dry_run, timeout: args.timeout, yes: args.yes, force_conflicts: false };
    let (clusters, input) = interrupts.unless(read(session, &args.restoration)).await?;
    let release = input.release.clone();
    let taken = Some(&release).filter(|_| args.take_over && how.dry_run == DryRun::None);
    taking_over(session, interrupts, &CancellationToken::new(), (&clusters, taken), async |interrupts| {
        let planned = interrupts.unless(prepare(clusters.clone(), input)).await?;
        execute(session, interrupts, planned, how).await
    })
    .await
}
