//! `billhook plan`: shows what apply, delete, restore or clean would do.

use billhook_engine::DiffChange;
use billhook_plan::Plan;
use billhook_policy::Policy;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::{
    args::OutputFormat,
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
  billhook plan delete shop --suggest-policy > policy.yaml
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

/// The arguments of `plan delete`.
#[derive(Debug, Args)]
struct PlanDeleteArgs {
    #[command(flatten)]
    deletion: delete::DeletionArgs,
    /// Print a policy file with a safe order instead of the plan, for --policy
    #[arg(long)]
    suggest_policy: bool,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Show what apply would do, without changing anything
    Apply(PlanApplyArgs),
    /// Show what delete would do, without changing anything
    Delete(PlanDeleteArgs),
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
        PlanCommand::Apply(args) => Some(interrupts.unless(apply::plan(session, args.deployment)).await?.prepared.plan),
        PlanCommand::Delete(PlanDeleteArgs { deletion, suggest_policy }) => {
            if suggest_policy && session.global.output != OutputFormat::Text {
                return Err(CommandError::input(
                    "--suggest-policy prints a policy file, and cannot be combined with -o",
                ));
            }
            let planned = interrupts.unless(delete::plan(session, deletion)).await?;
            let prepared = planned.map(|planned| planned.prepared);
            if let Some(policy) = prepared.as_ref().and_then(|prepared| prepared.safe_policy.as_ref())
                && suggest_policy
            {
                return print_policy(session, policy);
            }
            prepared.map(|prepared| prepared.plan)
        }
        PlanCommand::Restore(args) => Some(interrupts.unless(restore::plan(session, args)).await?.prepared.plan),
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

/// Prints a policy as a file.
fn print_policy(session: &Session, policy: &Policy) -> Result<Exit, CommandError> {
    match billhook_policy::write_policy(policy) {
        Ok(file) => session.printer.out_lines(&file),
        Err(group) => {
            let problem = format!("the group {group:?} of the policy has settings that a policy file cannot describe");
            return Err(CommandError::new(Exit::Failed, problem).hint("use --order safe for one run"));
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
    let apply::Planned { prepared, clusters, .. } = apply::plan(session, args).await?;
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
