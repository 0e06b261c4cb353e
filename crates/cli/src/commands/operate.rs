//! Runs the plans of `apply` and `delete`: checks guards, shows events, handles Ctrl-C.

use std::{collections::BTreeMap, future::Future, time::Duration};

use billhook_engine::{Clusters, OperationError, RunOptions, Summary};
use billhook_objects::{Manifest, ObjectKey, ReleaseName};
use billhook_plan::{Locked, Note, Operation, Plan, Severity};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{CommandError, Exit},
    render::{self, plan::render_plan},
    report::{ReportOptions, Reporter},
    session::{Interrupts, Session},
};

/// How often the live view is redrawn between events.
const TICK: Duration = Duration::from_millis(100);

/// The flags that affect how a plan is run.
pub(crate) struct RunFlags {
    pub(crate) timeout: Option<Duration>,
    pub(crate) force_conflicts: bool,
}

/// Runs a plan by calling `work` with the options of the run.
pub(crate) async fn carry_out<F>(
    session: &Session,
    interrupts: &mut Interrupts,
    flags: RunFlags,
    work: impl FnOnce(RunOptions) -> F,
) -> Result<Exit, CommandError>
where
    F: Future<Output = Result<Summary, OperationError>>,
{
    let reporter = Reporter::new(session.printer.clone(), report_options(session));
    let stop = CancellationToken::new();
    let mut work = std::pin::pin!(work(RunOptions {
        timeout: flags.timeout,
        stop: stop.clone(),
        sink: reporter.sink(),
        force_conflicts: flags.force_conflicts,
    }));
    let mut tick = tokio::time::interval(TICK);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            () = interrupts.next() => {
                if stop.is_cancelled() {
                    reporter.close();
                    session.printer.err("interrupted twice: stopped immediately; run the same command again to resume");
                    return Ok(Exit::Unfinished);
                }
                stop.cancel();
                session.printer.err("interrupted: sending no new requests; press Ctrl-C again to stop immediately");
            }
            _ = tick.tick() => reporter.tick(),
        }
    };
    reporter.close();
    Ok(result.map_err(explain_conflict)?.status.into())
}

/// Adds a hint if another process has changed the record of the release.
fn explain_conflict(error: OperationError) -> CommandError {
    let by_another = matches!(&error, OperationError::Cluster(error)
        if matches!(error.kind(), billhook_cluster::ErrorKind::Conflict(fields) if fields.is_empty()));
    let error = CommandError::from(error);
    if by_another {
        error.hint("another process is working on this release; wait for it to finish, then run the same command again")
    } else {
        error
    }
}

fn report_options(session: &Session) -> ReportOptions {
    let (json, verbose) = (session.json(), session.global.verbose > 0);
    // JSON events or the requests that -v shows would break a live view on the same terminal.
    let live = session.stderr_terminal && !verbose && !(json && session.stdout_terminal);
    ReportOptions { json, live, verbose, lines: !live || !session.stdout_terminal }
}

/// Takes the lock of a release over from another operation, if there is one.
pub(crate) async fn take_over(
    session: &Session,
    clusters: &Clusters,
    release: &ReleaseName,
) -> Result<(), CommandError> {
    let notify = |locked: &Locked, wait: Duration| {
        let wait = render::duration(wait);
        session.printer.err(&format!("{locked}; took it over, waiting {wait} until that operation has stopped"));
    };
    Ok(billhook_engine::take_over(clusters, release, notify).await?)
}

/// Rejects a plan with dangerous notes unless `--yes` is given.
pub(crate) fn guard(session: &Session, plan: &Plan, yes: bool) -> Result<(), CommandError> {
    let dangerous = plan.notes.iter().filter(|note| note.severity == Severity::Dangerous);
    let dangerous: Vec<&Note> = dangerous.collect();
    if yes || dangerous.is_empty() {
        return Ok(());
    }
    for note in &dangerous {
        session.printer.err(&render::plan::note(note, session.printer.err_paint()));
    }
    let verb = match plan.operation {
        Operation::Apply => "apply",
        Operation::Delete => "delete",
    };
    let notes = render::count(dangerous.len(), "dangerous note");
    let problem = format!("the plan has {notes}; nothing was changed");
    let hint = format!("review the plan with billhook plan {verb} …, then pass --yes to carry it out anyway");
    Err(CommandError::new(Exit::Refused, problem).hint(hint))
}

/// Prints a plan.
pub(crate) fn print_plan(session: &Session, plan: &Plan) {
    if session.json() {
        session.printer.json(plan);
    } else {
        session.printer.raw(&render_plan(plan, session.printer.out_paint()));
    }
}

/// What `--dry-run=server -o json` prints.
#[derive(Serialize)]
struct DryRunReport<'a> {
    plan: &'a Plan,
    answers: Vec<DryRunAnswer>,
}

/// The server's answer to one request.
#[derive(Serialize)]
struct DryRunAnswer {
    object: ObjectKey,
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Sends every request with `dryRun=All` and prints the plan and the answers.
pub(crate) async fn dry_run(
    session: &Session,
    plan: &Plan,
    clusters: &Clusters,
    manifests: &BTreeMap<ObjectKey, Manifest>,
    force_conflicts: bool,
) -> Result<Exit, CommandError> {
    let answers = billhook_engine::dry_run(plan, clusters, manifests, force_conflicts).await;
    let answers: Vec<_> = answers
        .into_iter()
        .map(|(object, message)| DryRunAnswer { object, accepted: message.is_none(), message })
        .collect();
    let rejected = answers.iter().filter(|answer| !answer.accepted).count();
    if session.json() {
        session.printer.json(&DryRunReport { plan, answers });
    } else {
        print_plan(session, plan);
        print_answers(session, &answers, rejected);
    }
    Ok(if rejected == 0 { Exit::Done } else { Exit::Failed })
}

fn print_answers(session: &Session, answers: &[DryRunAnswer], rejected: usize) {
    let (printer, paint) = (&session.printer, session.printer.out_paint());
    printer.out("");
    printer.out(&paint.bold("server answers"));
    for answer in answers.iter().filter(|answer| !answer.accepted) {
        let message = answer.message.as_deref().unwrap_or_default();
        printer.out(&format!("   {} {}: {message}", paint.bad("rejected"), render::object(&answer.object)));
    }
    let accepted = render::count(answers.len() - rejected, "request");
    printer.out(&format!("   {} {accepted}", paint.good("accepted")));
}
