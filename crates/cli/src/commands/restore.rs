//! `billhook restore`: creates the objects of a deleted release again, from the backup in its record.

use std::collections::BTreeMap;

use billhook_engine::{MissingNamespaces, PreparedApply, RestoreInput};
use billhook_plan::Wait;
use billhook_policy::GoDuration;
use clap::{ArgAction, Args};

use crate::{
    args::DryRun,
    error::{CommandError, Exit},
    session::{Interrupts, Session},
};

use super::{
    apply::{Execution, Planned, execute},
    operate,
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

/// Reads the backup and plans, without changing anything except a lock that is to be taken over.
pub(crate) async fn plan(
    session: &Session,
    args: RestorationArgs,
    take_over: bool,
) -> Result<Planned<PreparedApply>, CommandError> {
    let connection = session.connection().await?;
    let release = connection.release(&args.name)?;
    let clusters = connection.with(BTreeMap::new());
    let taken = take_over.then(|| release.clone());
    if let Some(release) = &taken {
        operate::take_over(session, &clusters, release).await?;
    }
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
    let prepared = billhook_engine::prepare_restore(&clusters, restore).await;
    operate::give_back(&clusters, taken.as_ref(), prepared.is_err()).await;
    Ok(Planned { prepared: prepared?, clusters, item_timeout: None, taken })
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: RestoreArgs,
) -> Result<Exit, CommandError> {
    let take_over = args.take_over && args.dry_run == DryRun::None;
    let planned = interrupts.unless(plan(session, args.restoration, take_over)).await?;
    let how = Execution { dry_run: args.dry_run, timeout: args.timeout, yes: args.yes, force_conflicts: false };
    execute(session, interrupts, planned, how).await
}
