//! `billhook plan`: shows what apply or delete would do.

use clap::{Args, Subcommand};

use crate::{
    error::{CommandError, Exit},
    session::{Interrupts, Session},
};

use super::{apply, delete, operate};

/// Show what apply or delete would do and what is dangerous, without changing anything
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct PlanArgs {
    #[command(subcommand)]
    command: PlanCommand,
}

const EXAMPLES: &str = "\
Examples:
  billhook plan apply shop -f manifests/
  billhook plan delete shop -o json";

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Show what apply would do, without changing anything
    Apply(apply::DeploymentArgs),
    /// Show what delete would do, without changing anything
    Delete(delete::DeletionArgs),
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: PlanArgs) -> Result<Exit, CommandError> {
    let plan = match args.command {
        PlanCommand::Apply(args) => Some(interrupts.unless(apply::plan(session, args)).await?.prepared.plan),
        PlanCommand::Delete(args) => {
            let mode = delete::Mode {
                look_for_foreign: true,
                ignore_not_found: false,
                preview: true,
                yes: false,
                verify: false,
            };
            let planned = interrupts.unless(delete::plan(session, args, mode)).await?;
            planned.map(|planned| planned.prepared.plan)
        }
    };
    if let Some(plan) = plan {
        operate::print_plan(session, &plan);
    }
    Ok(Exit::Done)
}
