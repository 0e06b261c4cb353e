//! `billhook plan`: shows what a call would do, and changes nothing.

use clap::{Args, Subcommand};

use crate::{
    error::{CommandError, Exit},
    session::{Interrupts, Session},
};

use super::{apply, delete, operate};

/// Show what apply or delete would do, in order, with what is dangerous about it; changes nothing
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub(crate) struct Plan {
    #[command(subcommand)]
    command: PlanCommand,
}

const EXAMPLES: &str = "\
Examples:
  billhook plan apply shop -f manifests/
  billhook plan delete shop -o json";

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Show what apply would do
    Apply(apply::What),
    /// Show what delete would do
    Delete(delete::What),
}

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: Plan) -> Result<Exit, CommandError> {
    let planned = match args.command {
        PlanCommand::Apply(what) => interrupts.unless(apply::plan(session, what)).await.map(Some)?,
        PlanCommand::Delete(what) => interrupts.unless(delete::plan(session, what, true, false)).await?,
    };
    if let Some(planned) = planned {
        operate::print_plan(session, &planned.prepared.plan);
    }
    Ok(Exit::Done)
}
