//! Runs the plans of `apply` and `delete`: checks guards, shows events, handles Ctrl-C.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    time::Duration,
};

use billhook_engine::{Clusters, DryRunAnswer, RunOptions, Summary};
use billhook_objects::{GroupKind, Manifest, ObjectKey};
use billhook_plan::{Note, Plan};
use billhook_policy::{GoDuration, ItemTimeout};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::{
    error::{CommandError, Exit},
    input,
    render::{
        self,
        plan::{deletions_by_kind, question, render_plan, warnings},
    },
    report::{ReportOptions, Reporter},
    session::{Interrupts, Session},
    text,
};

/// How often the live view is redrawn between events.
const TICK: Duration = Duration::from_millis(100);

/// The flags that affect how a plan is run.
#[derive(Default)]
pub(crate) struct RunFlags {
    pub(crate) timeout: Option<Duration>,
    pub(crate) force_conflicts: bool,
    /// Whether the user has seen the notes of the plan, and confirmed it.
    pub(crate) confirmed: bool,
    /// Whether groups that succeed are not mentioned.
    pub(crate) quiet: bool,
    /// Stops the run like Ctrl-C, but not for the user.
    pub(crate) halt: CancellationToken,
}

/// Runs a plan by calling `work` with the options of the run.
pub(crate) async fn carry_out<F, E>(
    session: &Session,
    interrupts: &mut Interrupts,
    flags: RunFlags,
    work: impl FnOnce(RunOptions) -> F,
) -> Result<Exit, CommandError>
where
    F: Future<Output = Result<Summary, E>>,
    CommandError: From<E>,
{
    let reporter = Reporter::new(session.printer.clone(), report_options(session, &flags));
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
                    return Err(CommandError::new(Exit::Unfinished, text::INTERRUPTED_TWICE).abandoned());
                }
                stop.cancel();
                session.printer.err("interrupted: sending no new requests; press Ctrl-C again to stop immediately");
            }
            () = flags.halt.cancelled(), if !stop.is_cancelled() => stop.cancel(),
            _ = tick.tick() => reporter.tick(),
        }
    };
    reporter.close();
    Ok(result?.status.into())
}

fn report_options(session: &Session, flags: &RunFlags) -> ReportOptions {
    let (json, verbose) = (session.json(), session.global.verbose > 0);
    // JSON events or the requests that -v shows would break a live view on the same terminal.
    let live = session.stderr_terminal && !verbose && !(json && session.stdout_terminal);
    let lines = !live || !session.stdout_terminal;
    ReportOptions { json, live, verbose, lines, quiet: flags.quiet && !verbose, notes: !flags.confirmed }
}

/// Returns the time limit of a command, and adds notes to its plan on what the limit prevents.
pub(crate) fn time_limit(flag: Option<GoDuration>, item: Option<ItemTimeout>, plan: &mut Plan) -> Option<Duration> {
    let limit = input::time_limit(flag, item);
    if let Some(limit) = limit {
        billhook_plan::warn_of_limit(plan, limit);
    }
    limit
}

/// Rejects a plan with dangerous notes, unless the flags that answer them are given. The command `review` shows the plan, if one does.
pub(crate) fn guard(session: &Session, plan: &Plan, review: Option<&str>, yes: bool) -> Result<(), CommandError> {
    let is_open = |flag: &&str| !(yes && *flag == text::YES);
    let open: Vec<(&Note, &str)> =
        plan.notes.iter().filter_map(|note| Some((note, text::answer(note).filter(is_open)?))).collect();
    if open.is_empty() {
        return Ok(());
    }
    let notes: Vec<Note> = open.iter().map(|(note, _)| (*note).clone()).collect();
    print_warnings(session, &notes);
    let notes = render::count(open.len(), "dangerous note");
    let problem = format!("the plan has {notes}; nothing was changed");
    let mut error = CommandError::new(Exit::Refused, problem);
    if open.iter().any(|(_, flag)| *flag == text::YES) {
        let review = review.map(|command| format!("review the plan with {command} …, then ")).unwrap_or_default();
        error = error.hint(format!("{review}pass --yes to carry it out anyway"));
    }
    if open.iter().any(|(_, flag)| *flag != text::YES) {
        error = error.hint("allow more deletions with --max-deletions N");
    }
    Err(error)
}

/// Asks whether to carry out a deletion, after showing where, what and every warning.
pub(crate) async fn confirm(session: &Session, interrupts: &mut Interrupts, plan: &Plan) -> Result<(), CommandError> {
    session.printer.err(&format!("{}{}", place(session), deletions_by_kind(plan)));
    print_warnings(session, &plan.notes);
    match session.confirm(interrupts, &question(plan)).await? {
        true => Ok(()),
        false => Err(CommandError::new(Exit::Refused, "not confirmed; nothing was changed")),
    }
}

/// Returns the context and the server of a question, with a colon; nothing for a sandbox.
pub(crate) fn place(session: &Session) -> String {
    match (session.context.get(), session.server.get()) {
        (Some(context), Some(server)) => format!("context {context}, server {server}: "),
        (None, Some(server)) => format!("server {server}: "),
        _ => String::new(),
    }
}

/// Prints the notes that are dangerous or warnings.
pub(crate) fn print_warnings(session: &Session, notes: &[Note]) {
    warnings(notes, session.printer.err_paint()).iter().for_each(|line| session.printer.err(line));
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

/// Sends every request with `dryRun=All` and prints the plan and the answers.
pub(crate) async fn dry_run(
    session: &Session,
    plan: &Plan,
    clusters: &Clusters,
    manifests: &BTreeMap<ObjectKey, Manifest>,
    not_served: &BTreeSet<GroupKind>,
    force_conflicts: bool,
) -> Result<Exit, CommandError> {
    let answers = billhook_engine::dry_run(plan, clusters, manifests, not_served, force_conflicts).await;
    let accepted = answers.iter().all(|answer| answer.accepted);
    if session.json() {
        session.printer.json(&DryRunReport { plan, answers });
    } else {
        print_plan(session, plan);
        render::answers::lines(&answers, session.printer.out_paint()).iter().for_each(|line| session.printer.out(line));
    }
    Ok(if accepted { Exit::Done } else { Exit::Failed })
}
