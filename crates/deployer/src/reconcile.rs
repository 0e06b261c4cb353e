//! One deployment or deletion of an item, from its first status update to the last.

use std::{sync::Arc, time::Duration};

use billhook_cluster::count_requests;
use billhook_engine::Status;
use billhook_plan::Operation;
use billhook_policy::Diagnostic;
use futures::FutureExt as _;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::time::Instant;

use crate::{
    api::{DeployItemStatus, ErrorCode, Phase},
    configuration::{DEFAULT_TIMEOUT, configuration, time_limit},
    crashes::{Place, Suspicion},
    error::{ItemFailure, TIMED_OUT},
    events::Severity,
    halt::{Halt, Stop},
    item::Item,
    journal,
    known::KnownItem,
    progress::Report,
    retry,
    shared::Shared,
    slots::hold_slot,
    trigger::{self, Cause, Due, OperationAnnotation, Trigger},
    waited::{self, SUSPECTED, Waited},
};

mod delete;
mod deploy;

/// How the work on an item ended. A version is the one that our last write returned.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The phase is final, or the item no longer exists.
    Done(Option<String>),
    /// Our finalizer is removed from the item.
    FinalizerRemoved,
    /// The work is to be repeated after a pause.
    Retry { version: Option<String>, pause: Duration },
    /// The work was stopped; a later task resumes it.
    Halted(Option<String>),
}

/// Does what is due for an item, and logs it. `failed` attempts came before this one. A suspected item waits for its turn.
pub(crate) async fn work(
    shared: Arc<Shared>,
    known: Arc<KnownItem>,
    due: Due,
    failed: u32,
    halt: Halt,
    suspicion: Option<Suspicion>,
) -> Outcome {
    match shared.find_selected(&known).await {
        Ok(true) => {}
        // Its Target became known only now.
        Ok(false) => return Outcome::Halted(None),
        Err(_) => return Outcome::Retry { version: None, pause: retry::pause(failed, None) },
    }
    let mut item = Item::of_known(shared, &known, failed, halt.clone());
    let begun = Instant::now();
    let suspicion = suspicion.filter(|_| matches!(due, Due::Reconcile(_) | Due::Delete(_)));
    // The first write to an untouched item returns the rest of it.
    let load = due == Due::Interrupt || (due != Due::EndCondition && !known.is_untouched);
    let work = async {
        if load && let Err(ended) = load_item(&mut item, &halt).await {
            return ended;
        }
        match suspicion {
            Some(suspicion) => suspected(&mut item, due, halt, suspicion).boxed().await,
            None => attempt(&mut item, due, halt, known.is_fresh).await,
        }
    };
    let ((outcome, failure), requests) = count_requests(work).await;
    if let (Outcome::Retry { .. }, Some(failure)) = (&outcome, &failure) {
        item.shared.metrics.retried(due.operation(&item.object), failure.reason);
    }
    journal::log(&item, due, &outcome, failure.as_ref(), begun.elapsed(), requests);
    outcome
}

/// Does what is due for an item that may have killed a controller: apart from the others, and not at all after several crashes.
async fn suspected(item: &mut Item, due: Due, halt: Halt, suspicion: Suspicion) -> (Outcome, Option<ItemFailure>) {
    let place = match wait_for_turn(item, &halt, suspicion).await {
        Ok(place) => place,
        Err(Stop::Halted) => return (Outcome::Halted(item.version.take()), None),
        Err(Stop::Failed(failure)) => {
            let pause = retry::pause(item.failed, None);
            return (Outcome::Retry { version: item.version.take(), pause }, Some(failure));
        }
    };
    if let Some(mut failure) = suspicion.set_aside() {
        let ended = fail(item, matches!(due, Due::Delete(_)), &mut failure, false).await;
        return (ended, Some(failure));
    }
    let (mut outcome, failure) = hold_slot(place, suspicion.place(), attempt(item, due, halt, false)).await;
    if let Outcome::Done(version) | Outcome::Halted(version) | Outcome::Retry { version, .. } = &mut outcome {
        item.version = version.take();
        // If it remains, only a crash soon after the start of this attempt counts by it.
        if let Err(error) = item.annotate_crashes(None).await {
            tracing::debug!(%error, "an annotation of a suspected item remains");
        }
        *version = item.version.take();
    }
    (outcome, failure)
}

/// Waits for the turn of an item that may have killed a controller, and notes that an attempt begins.
async fn wait_for_turn(item: &mut Item, halt: &Halt, suspicion: Suspicion) -> Result<Option<Place>, Stop> {
    let waited = Waited::begin();
    let mut place = None;
    if suspicion.set_aside().is_none() {
        if !suspicion.pause().is_zero() {
            item.report(Report { running: true, reason: SUSPECTED, message: suspicion.message() }).await?;
        }
        let (places, namespace) = (item.shared.places.clone(), item.namespace.clone());
        let turn = async move {
            tokio::time::sleep(suspicion.pause()).await;
            places.take(&namespace, suspicion).await
        };
        place = Some(halt.stoppable(None, "waiting for its turn", turn).await?.ok_or(Stop::Halted)?);
    }
    waited.end(item);
    item.annotate_crashes(Some(suspicion.annotation(item.now()))).await?;
    if !suspicion.pause().is_zero() && place.is_some() {
        let message = "its turn has come".to_owned();
        item.report(Report { running: true, reason: "Preparing", message }).await?;
    }
    halt.note_try();
    Ok(place)
}

/// Reads an item of which only a part is kept; fails with how the work on it ended.
async fn load_item(item: &mut Item, halt: &Halt) -> Result<(), (Outcome, Option<ItemFailure>)> {
    let failure = match halt.stoppable(None, "reading the item", item.load()).await {
        Ok(Ok(true)) => return Ok(()),
        Err(_) => return Err((Outcome::Halted(None), None)),
        Ok(other) => other.map_or_else(ItemFailure::from, |_| gone()),
    };
    Err((Outcome::Retry { version: None, pause: retry::pause(item.failed, None) }, Some(failure)))
}

/// Does what is due for an item, and returns the failure, if it failed.
async fn attempt(item: &mut Item, due: Due, halt: Halt, fresh: bool) -> (Outcome, Option<ItemFailure>) {
    halt.note_try();
    let operation = due.operation(&item.object);
    let deletion = operation == Operation::Delete;
    let result = match due {
        Due::Reconcile(cause) => run(item, cause, &halt, false, fresh).boxed().await,
        Due::Delete(cause) => run(item, cause, &halt, true, false).boxed().await,
        Due::Interrupt => interrupt(item).await,
        Due::EndCondition => return (end_condition(item).await, None),
        Due::Nothing | Due::At(_) => return (Outcome::Done(None), None),
    };
    let interrupted = halt.is_interrupted() || due == Due::Interrupt;
    let failure = match result {
        // The result was not written.
        Ok(()) if item.is_over() => return (Outcome::Halted(item.version.take()), None),
        Ok(()) => None,
        Err(Stop::Halted) if interrupted => Some(interruption()),
        Err(Stop::Halted) => return (Outcome::Halted(item.version.take()), None),
        Err(Stop::Failed(failure)) => Some(failure),
    };
    if due != Due::Interrupt {
        item.shared.metrics.reconciled(operation, result_for_metrics(failure.as_ref(), interrupted));
    }
    match failure {
        None if deletion && due != Due::Interrupt => (Outcome::FinalizerRemoved, None),
        None => (Outcome::Done(item.version.take()), None),
        Some(mut failure) => (fail(item, deletion, &mut failure, interrupted).await, Some(failure)),
    }
}

/// Returns the failure of an item that was deleted, or recreated, before it could be read. The watch is about to report it.
fn gone() -> ItemFailure {
    ItemFailure::new("ItemGone", "the item was deleted before it could be read", ErrorCode::InternalProblem).transient()
}

fn interruption() -> ItemFailure {
    ItemFailure::new("Interrupted", "interrupted by the operation annotation", ErrorCode::InternalProblem)
}

/// Returns the label `result` of the metric for finished work.
pub(crate) fn result_for_metrics(failure: Option<&ItemFailure>, interrupted: bool) -> Status {
    match failure {
        None => Status::Done,
        Some(_) if interrupted => Status::Interrupted,
        Some(failure) if failure.codes.contains(&ErrorCode::Timeout) => Status::TimedOut,
        Some(_) => Status::Failed,
    }
}

/// Writes a failure to the status. A transient failure is retried until the time limit; any other is final until the next
/// trigger.
async fn fail(item: &mut Item, deletion: bool, failure: &mut ItemFailure, interrupted: bool) -> Outcome {
    let (operation, phase) = if deletion { ("Delete", Phase::DeleteFailed) } else { ("Reconcile", Phase::Failed) };
    let now = item.now();
    let timed_out = item.deadline.is_some_and(|deadline| deadline <= Instant::now());
    // A deletion without uninstall has no time limit: users request it when nothing else works.
    let unlimited = trigger::is_deleted_without_uninstall(&item.object);
    // Without a time limit, what people have to correct is not retried forever.
    let is_mistake = failure.codes.iter().any(|code| matches!(code, ErrorCode::ConfigurationProblem));
    let lost_patience = is_mistake && item.patience.is_some_and(|patience| patience <= Instant::now());
    let retry = failure.transient && !interrupted && ((!timed_out && !lost_patience) || unlimited);
    if failure.reason == TIMED_OUT
        && !failure.reported
        && let Some(last) = &item.status.last_error
    {
        // The error of an earlier attempt tells more than the time limit.
        failure.message = format!("{}; last error: {}", failure.message, last.message);
        let told = last.codes.iter().filter(|code| !matches!(code, ErrorCode::Timeout | ErrorCode::InternalProblem));
        failure.codes.extend(told);
    }
    if failure.transient && timed_out && !failure.codes.contains(&ErrorCode::Timeout) {
        failure.codes.insert(0, ErrorCode::Timeout);
    }
    let pause = retry::pause(item.failed, item.deadline.filter(|_| !unlimited));
    let message = match retry {
        true => repeated(failure, item.failed, pause, now),
        false => failure.message.clone(),
    };
    let report = Report { running: retry, reason: failure.reason, message };
    let written = item
        .update(|status| {
            status.fail(failure.operation.unwrap_or(operation), failure, now);
            status.report(&report, now);
            if !retry {
                status.finish(phase, now);
            }
        })
        .await;
    if !retry && !failure.reported {
        item.record(Severity::Warning, failure.reason, &failure.message);
    }
    let written = match written {
        Ok(()) if interrupted => item.remove_operation().await,
        written => written,
    };
    match (retry, written) {
        (false, Ok(())) => Outcome::Done(item.version.take()),
        // Without a final phase in the status the work is not done: perhaps the home cluster does not answer.
        (true, _) | (_, Err(_)) => Outcome::Retry { version: item.version.take(), pause },
    }
}

/// Describes a failure after which the work is repeated: which attempt it was, and when the next one starts.
fn repeated(failure: &ItemFailure, failed: u32, pause: Duration, now: Timestamp) -> String {
    let next = now.checked_add(pause).and_then(|next| next.round(jiff::Unit::Second)).unwrap_or(now);
    format!("attempt {} failed, the next one starts at {next}: {failure}", failed.saturating_add(1))
}

/// Handles the operation `interrupt` while no task works on the item: an unfinished phase becomes a failed one.
async fn interrupt(item: &mut Item) -> Result<(), Stop> {
    if item.status.phase.is_some_and(|phase| !phase.is_final()) {
        return Err(Stop::Halted);
    }
    Ok(item.remove_operation().await?)
}

/// Ends our condition after another client has finished the job.
async fn end_condition(item: &mut Item) -> Outcome {
    let written = item.end_condition().await;
    let version = item.version.take();
    match written {
        Ok(()) => Outcome::Done(version),
        Err(_) => Outcome::Retry { version, pause: retry::pause(item.failed, None) },
    }
}

/// Deploys or deletes an item. With a `fresh` one, our finalizer tells a later attempt that the work has begun.
async fn run(item: &mut Item, cause: Cause, halt: &Halt, deletion: bool, fresh: bool) -> Result<(), Stop> {
    let now = item.now();
    let test = trigger::operation(&item.object) == Some(OperationAnnotation::TestReconcile);
    if test && item.trigger() == Trigger::Jobs {
        let job = format!("test-{}", now.as_nanosecond());
        item.update(|status| status.job_id = Some(job)).await?;
    }
    if !deletion && cause == Cause::Triggered && is_unchanged(item) {
        // A schedule counts from the last reconcile.
        let change = |status: &mut DeployItemStatus| {
            status.last_reconcile_time = Some(Time(now));
            status.finish(Phase::Succeeded, now);
        };
        return Ok(item.update(change).await?);
    }
    let (phase, fresh) =
        (if deletion { Phase::Deleting } else { Phase::Progressing }, fresh && cause == Cause::Triggered);
    if fresh {
        item.update_metadata(true, false).await?;
    }
    begin(item, cause, phase, fresh).await?;
    if item.is_over() {
        return Err(Stop::Halted);
    }
    if !item.load().await? {
        return Err(gone().into());
    }
    let configuration = configuration(&item.object);
    // With an invalid configuration nothing is deployed, so the item needs no finalizer.
    let add_finalizer = !deletion && configuration.is_ok();
    // The operation is removed after the phase is written: otherwise it would be lost if the controller ended in between.
    item.update_metadata(add_finalizer, cause == Cause::Operation).await?;
    let limit = time_limit(&item.object);
    item.deadline = limit.and_then(|limit| deadline(item, limit, cause, now));
    item.patience = limit.is_none().then(|| deadline(item, DEFAULT_TIMEOUT, cause, now)).flatten();
    if deletion {
        return delete::delete(item, configuration.map(|(configuration, _)| configuration), halt).boxed().await;
    }
    let (configuration, warnings) = configuration?;
    if !warnings.is_empty() {
        let warnings: Vec<_> = warnings.iter().map(Diagnostic::at_path).chain(warnings.more()).collect();
        item.record(Severity::Warning, "Configuration", &warnings.join("\n"));
    }
    deploy::deploy(item, configuration, halt).boxed().await
}

/// Returns whether there is nothing to do because of `updateOnChangeOnly`.
fn is_unchanged(item: &Item) -> bool {
    item.object.spec.update_on_change_only == Some(true)
        && item.object.metadata.generation == Some(item.status.observed_generation)
        && item.status.phase == Some(Phase::Succeeded)
}

/// Writes the first status of the work, unless it is resumed. That of a fresh item can wait: most work ends at once.
async fn begin(item: &mut Item, cause: Cause, phase: Phase, fresh: bool) -> Result<(), Stop> {
    if cause == Cause::Unfinished && item.status.phase == Some(phase) {
        let now = item.now();
        waited::resume(&mut item.status, now);
        return Ok(());
    }
    let (now, deployer) = (item.now(), item.shared.information());
    let generation = item.object.metadata.generation.unwrap_or_default();
    let message = if phase == Phase::Deleting { "planning the deletion" } else { "planning the deployment" };
    let report = Report { running: true, reason: "Preparing", message: message.to_owned() };
    let change = |status: &mut DeployItemStatus| {
        status.begin(phase, generation, &deployer, now);
        status.report(&report, now);
    };
    if fresh {
        item.update_later(change);
        return Ok(());
    }
    Ok(item.update(change).await?)
}

/// Returns when a time limit is reached. For resumed work it counts from the original start.
fn deadline(item: &Item, limit: Duration, cause: Cause, now: Timestamp) -> Option<Instant> {
    let passed = if cause == Cause::Unfinished { waited::used(&item.status, now) } else { Duration::ZERO };
    // The time in the status has whole seconds.
    let passed = passed.saturating_sub(Duration::from_secs(1));
    Instant::now().checked_add(limit.saturating_sub(passed))
}
