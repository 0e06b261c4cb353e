//! `billhook rehearse`: plays a deletion on a copy of the cluster, and reports what would happen.

use billhook_engine::{Event, Status, copy_for, prepare_delete};
use billhook_policy::GoDuration;
use clap::{Args, Subcommand};
use serde::Serialize;

use crate::{
    error::{CommandError, Exit},
    rehearsal::{self, Rehearsal, Rehearsed},
    render::{plan::warnings, rehearsal::lines},
    session::{Interrupts, Session},
};

use super::delete::{self, DeletionArgs, Mode};

/// Play an operation on a copy of the cluster in memory, and show what would happen
///
/// It only reads: nothing in the cluster is changed, and no webhook is called.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RehearseArgs {
    #[command(subcommand)]
    command: RehearseCommand,
}

const EXAMPLES: &str = "\
Examples:
  billhook rehearse delete shop
  billhook rehearse delete shop --order safe
  billhook rehearse delete shop --policy policy.yaml -o json";

#[derive(Debug, Subcommand)]
enum RehearseCommand {
    /// Show what delete would do: the order, what would remain and why, what else would be deleted, and how long it would take
    ///
    /// Exits with 0 if nothing would remain, and with 3 if something would.
    Delete(RehearseDeleteArgs),
}

#[derive(Debug, Args)]
struct RehearseDeleteArgs {
    #[command(flatten)]
    deletion: DeletionArgs,
    /// Time limit of the deletion that is rehearsed; 0 means an hour, because a rehearsal has to end [default: 10m]
    #[arg(long, value_name = "DURATION")]
    timeout: Option<GoDuration>,
}

/// What `-o json` prints before the summary of the run.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RehearsalEvent<'a> {
    event: &'static str,
    why: &'a billhook_explain::Document,
    /// How many requests were sent to the cluster.
    requests: u64,
    #[serde(flatten)]
    report: &'a rehearsal::Report,
}

/// Runs the command.
pub(crate) async fn run(
    session: &Session,
    interrupts: &mut Interrupts,
    args: RehearseArgs,
) -> Result<Exit, CommandError> {
    let RehearseCommand::Delete(RehearseDeleteArgs { deletion, timeout }) = args.command;
    if !deletion.target.is_empty() {
        return Err(CommandError::input(
            "rehearse plays only the release's own cluster and cannot be combined with --target",
        ));
    }
    let (rehearsed, requests) = interrupts.unless(rehearse(session, deletion, timeout)).await?;
    print(session, &rehearsed, requests);
    let is_done = rehearsed.summary.status == Status::Done && rehearsed.why.findings.is_empty();
    Ok(if is_done { Exit::Done } else { Exit::Unfinished })
}

/// Copies what matters and plays the deletion, as if it had been confirmed. Returns the number of requests that were sent to the cluster, too.
async fn rehearse(
    session: &Session,
    args: DeletionArgs,
    timeout: Option<GoDuration>,
) -> Result<(Rehearsed, u64), CommandError> {
    let deletion = delete::read(session, args, Mode { yes: true, ..Mode::default() }).await?;
    let timeout = deletion.time_limit(timeout);
    let delete::Deletion { clusters, input, order, .. } = deletion;
    let prepared = prepare_delete(&clusters, input.clone()).await?;
    let copy = copy_for(&clusters, &prepared).await?;
    let requests = copy.requests;
    let (now, holder) = (clusters.now.clone(), clusters.holder.clone());
    let rehearsed = Rehearsal { copy, input, order, timeout, now, holder }.play().await?;
    Ok((rehearsed, requests))
}

fn print(session: &Session, rehearsed: &Rehearsed, requests: u64) {
    let printer = &session.printer;
    if session.json() {
        let Rehearsed { events, why, report, .. } = rehearsed;
        let (run, summary): (Vec<&Event>, Vec<&Event>) =
            events.iter().partition(|event| !matches!(event, Event::Finished(_)));
        run.into_iter().for_each(|event| printer.json_line(event));
        printer.json_line(&RehearsalEvent { event: "rehearsed", why, requests, report });
        summary.into_iter().for_each(|event| printer.json_line(event));
        return;
    }
    warnings(rehearsal::notes(&rehearsed.events), printer.err_paint()).iter().for_each(|line| printer.err(line));
    let all = session.global.verbose > 0;
    lines(rehearsed, all, printer.out_paint()).iter().for_each(|line| printer.out(line));
    for missing in &rehearsed.report.missing {
        printer.warn(&format!("not rehearsed: {missing}"));
    }
    if all {
        printer.err(&format!(
            "{} were copied with {requests} requests",
            crate::render::count(rehearsed.report.copied, "object")
        ));
    }
}
