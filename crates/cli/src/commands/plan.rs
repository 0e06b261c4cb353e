//! `billhook plan`: shows what apply, delete, restore or clean would do.

use billhook_engine::DiffChange;
use billhook_plan::Plan;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::{
    error::{CommandError, Exit},
    render::{self, diff::Row, picture},
    session::{Interrupts, Session},
};

use super::{apply, clean, delete, operate, restore};

/// Show what apply, delete, restore or clean would do and what is dangerous, without changing anything
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

const EXAMPLES: &str = "\
Examples:
  billhook plan apply shop -f manifests/
  billhook plan apply shop -f manifests/ --diff
  billhook plan delete shop -o json
  billhook plan delete shop -o html > plan.html
  billhook plan clean";

/// The arguments of `plan apply`.
#[derive(Debug, Args)]
struct PlanApplyArgs {
    #[command(flatten)]
    deployment: apply::DeploymentArgs,
    /// Show what changes in each object, by dry runs on the server
    #[arg(long)]
    diff: bool,
    /// Show all lines of long additions and removals
    #[arg(long, requires = "diff")]
    full: bool,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Show what apply would do, without changing anything
    Apply(PlanApplyArgs),
    /// Show what delete would do, without changing anything
    Delete(delete::DeletionArgs),
    /// Show what restore would do, and what cannot be restored, without changing anything
    Restore(restore::RestorationArgs),
    /// Show what clean would do, without changing anything
    Clean(clean::PlanCleanArgs),
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: PlanArgs) -> Result<Exit, CommandError> {
    let plan = match args.command {
        PlanCommand::Apply(PlanApplyArgs { deployment, diff: true, full }) => {
            return interrupts.unless(plan_with_diff(session, deployment, full)).await;
        }
        PlanCommand::Apply(args) => {
            Some(interrupts.unless(apply::plan(session, args.deployment, false)).await?.prepared.plan)
        }
        PlanCommand::Delete(args) => {
            let planned = interrupts.unless(delete::plan(session, args, delete::Mode::default())).await?;
            planned.map(|planned| planned.prepared.plan)
        }
        PlanCommand::Restore(args) => Some(interrupts.unless(restore::plan(session, args, false)).await?.prepared.plan),
        PlanCommand::Clean(args) => Some(interrupts.unless(clean::plan(session, args)).await?),
    };
    if let Some(plan) = plan {
        match picture::draw(session.global.output, || picture::plan::picture(&plan, &[])) {
            Some(drawn) => session.printer.raw(&drawn),
            None => operate::print_plan(session, &plan),
        }
    }
    Ok(Exit::Done)
}

/// What `plan apply --diff -o json` prints.
#[derive(Serialize)]
struct PlanWithDiff<'a> {
    plan: &'a Plan,
    diff: Vec<Row<'a>>,
}

async fn plan_with_diff(session: &Session, args: apply::DeploymentArgs, full: bool) -> Result<Exit, CommandError> {
    let force_conflicts = args.force_conflicts;
    let apply::Planned { prepared, clusters, .. } = apply::plan(session, args, false).await?;
    let mut diffs = Vec::new();
    billhook_engine::diff(&prepared, &clusters, force_conflicts, |diff| diffs.push(diff)).await;
    let (printer, plan) = (&session.printer, &prepared.plan);
    if let Some(drawn) = picture::draw(session.global.output, || picture::plan::picture(plan, &diffs)) {
        printer.raw(&drawn);
    } else if session.json() {
        printer.json(&PlanWithDiff { plan, diff: diffs.iter().map(Row::from).collect() });
    } else {
        printer.raw(&render::plan::render_plan_with(plan, &diffs, full, printer.out_paint()));
    }
    let failed = diffs.iter().any(|diff| matches!(diff.change, DiffChange::Failed { .. }));
    Ok(if failed { Exit::Failed } else { Exit::Done })
}
