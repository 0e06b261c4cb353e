//! `billhook diff`: shows what apply would change, field by field.

use std::collections::BTreeMap;

use billhook_engine::{DiffAction, DiffChange, ObjectDiff, RefusedBy};
use billhook_plan::Severity;
use clap::Args;

use crate::{
    error::{CommandError, Exit},
    render::{self, diff::Row},
    session::{Interrupts, Session},
    text,
};

use super::apply;

/// Show what apply would change, field by field, without changing anything
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    deployment: apply::DeploymentArgs,
    /// Show all lines of long additions and removals
    #[arg(long)]
    full: bool,
}

const EXAMPLES: &str = "\
Examples:
  billhook diff shop -f manifests/ -R
  billhook diff shop --chart ./chart --values production.yaml
  billhook diff shop -f manifests/ -o json    print a JSON patch for each object

The command sends each write of the apply as a dry run, so that defaults and admission of the server are \
included. Values of Secrets are masked.

Exit codes:
  0  no differences
  1  there are differences
  2  invalid input
  3  interrupted
  4  the plan is refused, for example because objects belong to another release or because more would be deleted than --max-deletions allows
  5  failed, or the API server rejects the write of an object";

/// Runs the command.
pub(crate) async fn run(session: &Session, interrupts: &mut Interrupts, args: DiffArgs) -> Result<Exit, CommandError> {
    let result = interrupts.unless(compare(session, args)).await;
    result.map_err(|error| match error.exit {
        Exit::Failed => CommandError { exit: Exit::NotCompared, ..error },
        _ => error,
    })
}

async fn compare(session: &Session, args: DiffArgs) -> Result<Exit, CommandError> {
    let (full, force_conflicts) = (args.full, args.deployment.force_conflicts);
    let apply::Planned { prepared, clusters, .. } = apply::plan(session, args.deployment).await?;
    let (printer, paint) = (&session.printer, session.printer.out_paint());
    for note in prepared.plan.notes.iter().filter(|note| note.severity != Severity::Info) {
        printer.err(&render::plan::note(note, printer.err_paint()));
    }
    let mut differing: BTreeMap<DiffAction, usize> = BTreeMap::new();
    let (mut failed, mut conflicts) = (0, false);
    let print = |diff: ObjectDiff| {
        match &diff.change {
            DiffChange::Differs { .. } => *differing.entry(diff.action).or_default() += 1,
            DiffChange::Failed { by, .. } => {
                failed += 1;
                conflicts |= *by == RefusedBy::Managers;
            }
        }
        if session.json() {
            printer.json_line(&Row::from(&diff));
        } else {
            render::diff::lines(&diff, full, paint).iter().for_each(|line| printer.out(line));
        }
    };
    billhook_engine::diff(&prepared, &clusters, force_conflicts, print).await;
    printer.err(&summary(&differing));
    if failed > 0 {
        let problem =
            format!("{} not compared; the output names each with the reason", render::count(failed, "object"));
        let error = CommandError::new(Exit::NotCompared, problem);
        return Err(if conflicts { error.hint(text::TAKE_OVER) } else { error });
    }
    // --yes answers the other dangerous notes, and only the apply has it.
    if prepared.plan.notes.iter().any(|note| text::answer(note).is_some_and(|flag| flag != text::YES)) {
        return Ok(Exit::Refused);
    }
    Ok(if differing.is_empty() { Exit::Done } else { Exit::Different })
}

/// Returns how many objects differ: `3 objects differ: 1 to create, 2 to update`.
fn summary(differing: &BTreeMap<DiffAction, usize>) -> String {
    let all: usize = differing.values().sum();
    if all == 0 {
        return "no differences".to_owned();
    }
    let parts: Vec<_> =
        differing.iter().map(|(action, number)| format!("{number} to {}", render::diff::verb(*action))).collect();
    let verb = if all == 1 { "differs" } else { "differ" };
    format!("{} {verb}: {}", render::count(all, "object"), parts.join(", "))
}
