//! Carrying out a plan: events are shown, Ctrl-C is heeded, guards refuse.

use std::{future::Future, time::Duration};

use billhook_engine::{Clusters, OperationError, Prepared, RunOptions, Summary};
use billhook_objects::ObjectKey;
use billhook_plan::{Note, Operation, Plan, Severity};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{CommandError, Exit},
    render::{self, plan::render_plan},
    report::{ReportOptions, Reporter},
    session::{Interrupts, Session},
};

/// How often the live view is drawn where nothing happens.
const TICK: Duration = Duration::from_millis(100);

/// How a plan is carried out, as far as flags say.
pub(crate) struct How {
    pub(crate) timeout: Option<Duration>,
    pub(crate) force_conflicts: bool,
}

/// Carries out a plan by `work`, which gets the options of the run.
pub(crate) async fn carry_out<F>(
    session: &Session,
    interrupts: &mut Interrupts,
    how: How,
    work: impl FnOnce(RunOptions) -> F,
) -> Result<Exit, CommandError>
where
    F: Future<Output = Result<Summary, OperationError>>,
{
    let reporter = Reporter::new(session.printer.clone(), report_options(session));
    let stop = CancellationToken::new();
    let mut work = std::pin::pin!(work(RunOptions {
        timeout: how.timeout,
        stop: stop.clone(),
        sink: reporter.sink(),
        force_conflicts: how.force_conflicts,
    }));
    let mut tick = tokio::time::interval(TICK);
    let result = loop {
        tokio::select! {
            result = &mut work => break result,
            () = interrupts.next() => {
                if stop.is_cancelled() {
                    reporter.close();
                    session.printer.err("interrupted twice: stopped at once; the same call goes on where it stopped");
                    return Ok(Exit::Unfinished);
                }
                stop.cancel();
                session.printer.err("interrupted: nothing more is sent; once more stops at once");
            }
            _ = tick.tick() => reporter.tick(),
        }
    };
    reporter.close();
    Ok(result.map_err(changed_meanwhile)?.status.into())
}

/// Another call at the same release is told apart from what a cluster may answer otherwise.
fn changed_meanwhile(error: OperationError) -> CommandError {
    let by_another = matches!(&error, OperationError::Cluster(error)
        if matches!(error.kind(), billhook_cluster::ErrorKind::Conflict(fields) if fields.is_empty()));
    let error = CommandError::from(error);
    if by_another {
        error.hint("another billhook is at work on this release: wait for it, then call again")
    } else {
        error
    }
}

fn report_options(session: &Session) -> ReportOptions {
    let (json, verbose) = (session.json(), session.common.verbose > 0);
    // Events as JSON on the same terminal would tear a live view apart, and so would the requests that -v shows.
    let live = session.stderr_terminal && !verbose && !(json && session.stdout_terminal);
    ReportOptions { json, live, verbose, lines: !live || !session.stdout_terminal }
}

/// Refuses a plan that holds dangerous notes: it needs `--yes`.
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
    let problem = format!("refused: the plan has {notes}; nothing was touched");
    let hint = format!("billhook plan {verb} … shows all of the plan; --yes carries it out all the same");
    Err(CommandError::new(Exit::Refused, problem).hint(hint))
}

/// Prints a plan.
pub(crate) fn print_plan(session: &Session, plan: &Plan) {
    if session.json() {
        session.printer.json(plan);
    } else {
        session.printer.text(&render_plan(plan, session.printer.out_paint()));
    }
}

/// What `--dry-run=server -o json` prints.
#[derive(Serialize)]
struct DryRun<'a> {
    plan: &'a Plan,
    answers: Vec<Answer>,
}

/// What the server says to one request.
#[derive(Serialize)]
struct Answer {
    object: ObjectKey,
    accepted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// Sends every request with `dryRun=All` and prints the plan and the answers.
pub(crate) async fn dry_run(
    session: &Session,
    prepared: &Prepared,
    clusters: &Clusters,
    force_conflicts: bool,
) -> Exit {
    let answers = billhook_engine::dry_run(&prepared.plan, clusters, &prepared.manifests, force_conflicts).await;
    let answers: Vec<_> =
        answers.into_iter().map(|(object, message)| Answer { object, accepted: message.is_none(), message }).collect();
    let refused = answers.iter().filter(|answer| !answer.accepted).count();
    if session.json() {
        session.printer.json(&DryRun { plan: &prepared.plan, answers });
    } else {
        print_plan(session, &prepared.plan);
        print_answers(session, &answers, refused);
    }
    if refused == 0 { Exit::Done } else { Exit::Failed }
}

fn print_answers(session: &Session, answers: &[Answer], refused: usize) {
    let (printer, paint) = (&session.printer, session.printer.out_paint());
    printer.out(&format!("\n{}", paint.bold("what the server says")));
    for answer in answers.iter().filter(|answer| !answer.accepted) {
        let message = answer.message.as_deref().unwrap_or_default();
        printer.out(&format!("   {} {}: {message}", paint.bad("refuses"), render::object(&answer.object)));
    }
    let accepted = render::count(answers.len() - refused, "request");
    printer.out(&format!("   {} {accepted}", paint.good("accepts")));
}
