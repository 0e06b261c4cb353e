//! `billhook delete`: deletes a release, or what manifests name.

use std::path::PathBuf;

use billhook_engine::{DeleteInput, OperationError, RunOptions, Subject};
use billhook_policy::{GoDuration, Propagation};
use clap::{ArgGroup, Args};

use crate::{
    args::{Cascade, DryRun},
    error::{CommandError, Exit},
    input::{self, Purpose, Sources},
    render::plan::{collections, question},
    session::{Interrupts, Session, Target},
};

use super::{
    apply::Planned,
    operate::{self, How},
};

/// Delete a release, or what manifests name, group by group, until all of it is gone
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) what: What,
    /// How long all may take [default: 10m]; 0 for no limit
    #[arg(long, value_name = "DURATION")]
    timeout: Option<GoDuration>,
    /// What to send
    #[arg(long, value_name = "WHAT", default_value = "none")]
    dry_run: DryRun,
    /// Do not ask, and carry out a plan with dangerous notes
    #[arg(long, short)]
    yes: bool,
    /// It is no error when there is no such release
    #[arg(long)]
    ignore_not_found: bool,
}

const EXAMPLES: &str = "\
Examples:
  billhook delete shop
  billhook delete shop --policy policy.yaml --timeout 5m
  billhook delete -f manifests/ -R --yes
  billhook delete shop --target workload=workload.kubeconfig";

/// What is deleted: for `plan delete` too.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).multiple(false))]
pub(crate) struct What {
    /// The name of the release
    #[arg(group = "source")]
    name: Option<String>,
    #[command(flatten)]
    sources: Sources,
    /// A policy file, in place of the policy recorded with the release
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// How dependents are treated where the policy says nothing
    #[arg(long, value_name = "HOW", default_value = "background")]
    cascade: Cascade,
    /// More deletions than these are dangerous
    #[arg(long, value_name = "N")]
    max_deletions: Option<usize>,
    /// The cluster of a targetName: NAME=KUBECONFIG[#CONTEXT]; may be repeated
    #[arg(long, value_name = "NAME=KUBECONFIG")]
    target: Vec<Target>,
}

/// Reads the input and plans; changes nothing. None where there is no such release and that is no error.
pub(crate) async fn plan(
    session: &Session,
    what: What,
    look_for_foreign: bool,
    ignore_not_found: bool,
) -> Result<Option<Planned>, CommandError> {
    let connection = session.connection().await?;
    let namespace = connection.namespace.clone();
    let (subject, policy, item_timeout) = match &what.name {
        Some(name) => (Subject::Release(connection.release(name)?), None, None),
        None => {
            let input = input::read(session, &what.sources, Purpose::Delete).await?;
            (Subject::Manifests(input.manifests), input.policy, input.timeout)
        }
    };
    let policy = input::one_policy(session, what.policy.as_ref(), policy)?;
    let clusters = connection.with(session.targets(&what.target).await?);
    let delete = DeleteInput {
        subject,
        policy,
        propagation: Propagation::from(what.cascade),
        max_deletions: what.max_deletions,
        look_for_foreign,
        namespace,
        inherited: Vec::new(),
        require_record: true,
        catalog: None,
    };
    match billhook_engine::prepare_delete(&clusters, delete).await {
        Ok(prepared) => Ok(Some(Planned { prepared, clusters, item_timeout })),
        Err(OperationError::NoRelease(release)) if ignore_not_found => {
            session.printer.err(&format!("there is no release {release}: nothing to delete"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: Delete) -> Result<Exit, CommandError> {
    // Who has said yes need not be told what goes along, unless the plan is all that is wanted.
    let look_for_foreign = !args.yes || args.dry_run != DryRun::None;
    let planned = interrupts.unless(plan(session, args.what, look_for_foreign, args.ignore_not_found)).await?;
    let Some(Planned { prepared, clusters, item_timeout }) = planned else { return Ok(Exit::Done) };
    match args.dry_run {
        DryRun::Client => {
            operate::print_plan(session, &prepared.plan);
            return Ok(Exit::Done);
        }
        DryRun::Server => {
            return interrupts.unless(async { Ok(operate::dry_run(session, &prepared, &clusters, false).await) }).await;
        }
        DryRun::None => {}
    }
    operate::guard(session, &prepared.plan, args.yes)?;
    let something = prepared.plan.deletions() + collections(&prepared.plan) > 0;
    if something && session.stdin_terminal && !args.yes {
        let confirmed = session.confirm(interrupts, &question(&prepared.plan)).await?;
        if !confirmed {
            return Err(CommandError::new(Exit::Refused, "not confirmed; nothing was touched"));
        }
    }
    let how = How { timeout: input::time_limit(args.timeout, item_timeout), force_conflicts: false };
    let work = async |options: RunOptions| billhook_engine::delete(&clusters, prepared, &options).await;
    operate::carry_out(session, interrupts, how, work).await
}
