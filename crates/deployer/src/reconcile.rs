//! One reconcile or one deletion of an item, from its object to its final status.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use billhook_engine::{Blocker, Clusters, Left, OperationError, RefusedBy, RunOptions, Status, Summary};
use billhook_objects::ReleaseName;
use billhook_plan::Operation;
use billhook_policy::{
    Diagnostic, Diagnostics, ItemTimeout, ProviderConfiguration, parse_configuration, parse_timeout,
};
use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::{
    api::{DeployItem, DeployItemStatus, ErrorCode, Phase},
    controller::Shared,
    error::ItemFailure,
    events::Severity,
    item::Item,
    progress::{self, ItemProgress, Pace, Report, Reports},
    readiness::watched::until,
    schedule::Schedule,
    target::OpenTarget,
    trigger::{self, Cause, Due, Trigger},
};

mod delete;
mod deploy;

pub(crate) use deploy::{Objects, labelled};

/// The reason of a failure because the time of an item is over.
const TIMED_OUT: &str = "TimedOut";
/// How long an item may take where it does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

/// How the work on an item ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The status is final, or the item is gone; the version is that of our last write.
    Done(Option<String>),
    /// Our finalizer is off the item.
    LetGo,
    /// It is tried again; the version is that of our last write.
    Again(Option<String>),
    /// It was stopped and goes on some other time.
    Halted(Option<String>),
}

/// Why the work on an item stopped before its end.
pub(crate) enum Stop {
    /// It does not succeed.
    Failed(ItemFailure),
    /// The controller stops, or the item has changed: nothing is to be said.
    Halted,
}

impl<E: Into<ItemFailure>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Stops the work on an item, and says why.
#[derive(Clone, Default)]
pub(crate) struct Halt {
    pub token: CancellationToken,
    interrupted: Arc<AtomicBool>,
}

impl Halt {
    /// The operation `interrupt`: the item fails.
    pub(crate) fn interrupt(&self) {
        self.interrupted.store(true, Ordering::Relaxed);
        self.token.cancel();
    }

    /// Does something that can be stopped anywhere, as long as it is wanted and the item has time.
    pub(crate) async fn stoppable<T>(
        &self,
        deadline: Option<Instant>,
        what: &str,
        work: impl Future<Output = T>,
    ) -> Result<T, Stop> {
        tokio::select! {
            done = work => Ok(done),
            () = self.token.cancelled() => Err(Stop::Halted),
            () = until(deadline) => {
                let message = format!("the time limit of the item was reached while {what}");
                Err(Stop::Failed(ItemFailure::new(TIMED_OUT, message, ErrorCode::Timeout)))
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

/// Works on an item.
pub(crate) async fn work(shared: Arc<Shared>, object: Arc<DeployItem>, due: Due, halt: Halt) -> Ended {
    let mut item = Item::new(shared, object);
    let (deletion, result) = match due {
        Due::Reconcile(cause) => (false, run(&mut item, cause, &halt, false).boxed().await),
        Due::Delete(cause) => (true, run(&mut item, cause, &halt, true).boxed().await),
        Due::Interrupt => (trigger::deleting(&item.object), interrupt(&mut item).await),
        Due::Nothing | Due::At(_) => return Ended::Done(None),
    };
    let interrupted = halt.is_interrupted() || due == Due::Interrupt;
    let failure = match result {
        Ok(()) => None,
        Err(Stop::Halted) if interrupted => Some(interruption()),
        Err(Stop::Halted) => return Ended::Halted(item.version),
        Err(Stop::Failed(failure)) => Some(failure),
    };
    if due != Due::Interrupt {
        let operation = if deletion { Operation::Delete } else { Operation::Apply };
        item.shared.metrics.reconciled(operation, outcome(failure.as_ref(), interrupted));
    }
    match failure {
        None if deletion && due != Due::Interrupt => Ended::LetGo,
        None => Ended::Done(item.version),
        Some(failure) => end(&mut item, deletion, failure, interrupted).await,
    }
}

fn interruption() -> ItemFailure {
    ItemFailure::new("Interrupted", "interrupted by the operation annotation", ErrorCode::InternalProblem)
}

/// How the work ended, for the metrics.
fn outcome(failure: Option<&ItemFailure>, interrupted: bool) -> Status {
    match failure {
        None => Status::Done,
        Some(_) if interrupted => Status::Interrupted,
        Some(failure) if failure.codes.contains(&ErrorCode::Timeout) => Status::TimedOut,
        Some(_) => Status::Failed,
    }
}

/// A failure that passes is tried again as long as the item has time; every other one is final until the next trigger.
async fn end(item: &mut Item, deletion: bool, mut failure: ItemFailure, interrupted: bool) -> Ended {
    let (operation, phase) = if deletion { ("Delete", Phase::DeleteFailed) } else { ("Reconcile", Phase::Failed) };
    let now = item.now();
    let over = item.deadline.is_some_and(|deadline| deadline <= Instant::now());
    // To forget the objects is the last way out: it is tried until it goes.
    let again = failure.passes && !interrupted && (!over || trigger::is_to_forget(&item.object));
    if failure.reason == TIMED_OUT
        && !failure.told
        && let Some(last) = &item.status.last_error
    {
        // It was tried before, and what went wrong then says more.
        failure.message = format!("{}; last of all: {}", failure.message, last.message);
    }
    if failure.passes && over && !failure.codes.contains(&ErrorCode::Timeout) {
        failure.codes.insert(0, ErrorCode::Timeout);
    }
    tracing::warn!(namespace = %item.namespace, name = %item.name, reason = %failure.reason, "{operation}: {failure}");
    let report = Report { running: again, reason: failure.reason, message: failure.message.clone() };
    let written = item
        .update(|status| {
            status.fail(operation, &failure, now);
            status.report(&report, now);
            if !again {
                status.finish(phase, now);
            }
        })
        .await;
    if !again && !failure.told {
        item.record(Severity::Warning, failure.reason, &failure.message);
    }
    let written = match written {
        Ok(()) if interrupted => item.forget_operation().await,
        written => written,
    };
    match (again, written) {
        (false, Ok(())) => Ended::Done(item.version.take()),
        // The item itself is perhaps gone, or the home cluster does not answer: it is looked at again.
        (true, _) | (_, Err(_)) => Ended::Again(item.version.take()),
    }
}

/// An operation `interrupt` with nothing under way: what was unfinished is so no more.
async fn interrupt(item: &mut Item) -> Result<(), Stop> {
    if item.status.phase.is_some_and(|phase| !phase.is_final()) {
        return Err(Stop::Halted);
    }
    Ok(item.forget_operation().await?)
}

async fn run(item: &mut Item, cause: Cause, halt: &Halt, deletion: bool) -> Result<(), Stop> {
    let now = item.now();
    if trigger::operation(&item.object) == Some(trigger::Operation::TestReconcile) && item.trigger() == Trigger::Jobs {
        let job = format!("test-{}", now.as_nanosecond());
        item.update(|status| status.job_id = Some(job)).await?;
    }
    if !deletion && cause == Cause::Triggered && is_unchanged(item) {
        // The time of the next one counts from now.
        let change = |status: &mut DeployItemStatus| {
            status.last_reconcile_time = Some(Time(now));
            status.finish(Phase::Succeeded, now);
        };
        return Ok(item.update(change).await?);
    }
    let configuration = configuration(&item.object);
    // A configuration that is wrong touches nothing, and needs no finalizer.
    let finalizer = !deletion && configuration.is_ok();
    begin(item, cause, if deletion { Phase::Deleting } else { Phase::Progressing }).await?;
    // Only now: an operation that is taken away before the phase says that it is under way would be lost with us.
    item.take_up(finalizer, cause == Cause::Operation).await?;
    item.deadline = deadline(item, cause, now);
    if deletion {
        return delete::delete(item, configuration.map(|(configuration, _)| configuration), halt).boxed().await;
    }
    let (configuration, warnings) = configuration?;
    if !warnings.is_empty() {
        let warnings: Vec<_> = warnings.iter().map(Diagnostic::at_path).collect();
        item.record(Severity::Warning, "Configuration", &warnings.join("\n"));
    }
    deploy::deploy(item, configuration, halt).boxed().await
}

/// Whether `updateOnChangeOnly` says that there is nothing to do.
fn is_unchanged(item: &Item) -> bool {
    item.object.spec.update_on_change_only == Some(true)
        && item.object.metadata.generation == Some(item.status.observed_generation)
        && item.status.phase == Some(Phase::Succeeded)
}

async fn begin(item: &mut Item, cause: Cause, phase: Phase) -> Result<(), Stop> {
    let (now, deployer) = (item.now(), item.shared.information());
    let generation = item.object.metadata.generation.unwrap_or_default();
    let goes_on = cause == Cause::Unfinished && item.status.phase == Some(phase);
    if !goes_on {
        let message = if phase == Phase::Deleting { "the deletion is planned" } else { "the deployment is planned" };
        let report = Report { running: true, reason: "Preparing", message: message.to_owned() };
        let change = |status: &mut DeployItemStatus| {
            status.begin(phase, generation, &deployer, now);
            status.report(&report, now);
        };
        item.update(change).await?;
    }
    Ok(())
}

/// When the time of the item is over; what was begun before goes on counting.
fn deadline(item: &Item, cause: Cause, now: jiff::Timestamp) -> Option<Instant> {
    let limit = match item.object.spec.timeout.as_deref().map(parse_timeout) {
        Some(Ok(ItemTimeout::Unlimited)) => return None,
        Some(Ok(ItemTimeout::After(limit))) => limit.0,
        // A wrong one is said with the mistakes of the configuration.
        None | Some(Err(_)) => DEFAULT_TIMEOUT,
    };
    let begun = item.status.last_reconcile_time.as_ref().filter(|_| cause == Cause::Unfinished);
    let passed =
        begun.map_or(Duration::ZERO, |begun| Duration::try_from(now.duration_since(begun.0)).unwrap_or_default());
    Instant::now().checked_add(limit.saturating_sub(passed))
}

/// The configuration of an item with warnings, or all that is wrong with it.
fn configuration(item: &DeployItem) -> Result<(ProviderConfiguration, Diagnostics), ItemFailure> {
    let Some(config) = &item.spec.config else {
        return Err(ItemFailure::configuration(
            "InvalidConfiguration",
            "spec.config is missing: it holds the ProviderConfiguration",
        ));
    };
    let mut mistakes = Vec::new();
    if let Some(Err(error)) = item.spec.timeout.as_deref().map(parse_timeout) {
        mistakes.push(format!("spec.timeout: {error}"));
    }
    let parsed = parse_configuration(config);
    match &parsed {
        Ok((parsed, _)) => {
            let expected = parsed.provider.item_type();
            if item.spec.r#type != expected {
                mistakes
                    .push(format!("spec.type is {:?}, and spec.config belongs to type {expected}", item.spec.r#type));
            }
            if let Some(Err(error)) = parsed.continuous_reconcile.as_ref().map(Schedule::try_from) {
                mistakes.push(format!("continuousReconcile: failed to {error}"));
            }
        }
        Err(found) => mistakes.extend(found.iter().filter(|found| found.is_error()).map(Diagnostic::at_path)),
    }
    match parsed {
        Ok(parsed) if mistakes.is_empty() => Ok(parsed),
        _ => Err(ItemFailure::configuration("InvalidConfiguration", mistakes.join("\n"))),
    }
}

impl Item {
    /// The cluster that the item deploys to.
    async fn target(&self) -> Result<Arc<OpenTarget>, ItemFailure> {
        let Some(target) = &self.object.spec.target else {
            let problem = "spec.target is missing: it names the Target whose cluster is deployed to";
            return Err(ItemFailure::configuration("NoTarget", problem));
        };
        self.shared.targets.open(&self.namespace, &target.name).await
    }

    /// The clusters of the item: its target, those of these names, and the home of its record.
    async fn clusters(&self, target: &OpenTarget, names: BTreeSet<&str>) -> Result<Clusters, ItemFailure> {
        let mut targets = BTreeMap::new();
        for name in names {
            targets.insert(name.to_owned(), self.shared.targets.open(&self.namespace, name).await?.cluster.clone());
        }
        Ok(Clusters {
            own: target.cluster.clone(),
            targets,
            records: Some(self.shared.home.clone()),
            now: self.now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
        })
    }

    /// The name of the Secret that begins its record.
    fn record_name(&self) -> String {
        format!("billhook.{}", self.release().name())
    }

    /// The release that stands for the item.
    fn release(&self) -> ReleaseName {
        ReleaseName::of_deploy_item(&self.namespace, &self.name)
    }

    /// Runs what the engine does, and says in the status how far it is.
    async fn carry_out<F>(&mut self, halt: &Halt, run: impl FnOnce(RunOptions) -> F) -> Result<Summary, Stop>
    where
        F: Future<Output = Result<Summary, OperationError>>,
    {
        let ran = self.measure("run");
        let (sender, receiver) = watch::channel(ItemProgress::default());
        let metrics = self.shared.metrics.clone();
        metrics.follow(receiver.clone());
        let options = RunOptions {
            timeout: self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now())),
            stop: halt.token.clone(),
            sink: progress::sink(sender, self.events(), metrics),
            force_conflicts: true,
        };
        let outcome = self.report_while(receiver, run(options)).await;
        ran();
        judge(outcome?, self.operation() == Operation::Delete)
    }

    /// Does something, and says in the status how far it is.
    async fn report_while<T>(&mut self, progress: watch::Receiver<ItemProgress>, work: impl Future<Output = T>) -> T {
        let reports = Reports::new(progress, Pace::default());
        let item = tokio::sync::Mutex::new(self);
        let item = &item;
        let write = |report: Report| async move {
            // The status is for people: if it cannot be written now, it will be next time.
            let _written = item.lock().await.report(report).await;
        };
        progress::while_running(work, reports, write).await
    }
}

/// What a summary means for an item.
fn judge(summary: Summary, deletes: bool) -> Result<Summary, Stop> {
    let reason = match summary.status {
        Status::Done => return Ok(summary),
        Status::Interrupted => return Err(Stop::Halted),
        Status::TimedOut | Status::NotStarted => TIMED_OUT,
        Status::Failed => "Refused",
    };
    let message = progress::message(&summary, deletes, SHOWN);
    if summary.record_error.is_some() && summary.left.is_empty() {
        return Err(Stop::Failed(ItemFailure {
            passes: true,
            ..ItemFailure::new("RecordNotWritten", message, ErrorCode::InternalProblem)
        }));
    }
    Err(Stop::Failed(ItemFailure {
        told: true,
        codes: codes(summary.status, &summary.left, deletes),
        ..ItemFailure::new(reason, message, ErrorCode::InternalProblem)
    }))
}

/// How many objects a message names.
const SHOWN: usize = 20;

/// The codes of what is left.
fn codes(status: Status, left: &[Left], deletes: bool) -> Vec<ErrorCode> {
    let refused = |by| {
        let mut blockers = left.iter().flat_map(|left| &left.blockers);
        blockers.any(|blocker| matches!(blocker, Blocker::Refused { by: found, .. } if *found == by))
    };
    let mut codes = Vec::new();
    codes.extend((status != Status::Failed).then_some(ErrorCode::Timeout));
    codes.extend(refused(RefusedBy::Rights).then_some(ErrorCode::Unauthorized));
    codes.extend(refused(RefusedBy::Webhook).then_some(ErrorCode::Webhook));
    if codes.is_empty() {
        codes.push(if deletes { ErrorCode::CleanupResources } else { ErrorCode::InternalProblem });
    }
    codes
}

#[cfg(test)]
mod tests {
    use billhook_objects::{GroupKind, ObjectKey};

    use super::*;

    #[test]
    fn codes_say_whose_turn_it_is() {
        let check = |status, by: Option<RefusedBy>, deletes, expected: &[ErrorCode]| {
            let blocker = match by {
                Some(by) => Blocker::Refused { message: "no".to_owned(), by },
                None => Blocker::Unconfirmed,
            };
            let object = ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "b");
            let left = [Left { object, group: "g".to_owned(), blockers: vec![blocker] }];
            assert_eq!(codes(status, &left, deletes), expected, "{status:?} {by:?}");
        };
        check(Status::TimedOut, None, true, &[ErrorCode::Timeout]);
        check(Status::TimedOut, Some(RefusedBy::Webhook), true, &[ErrorCode::Timeout, ErrorCode::Webhook]);
        check(Status::Failed, Some(RefusedBy::Rights), false, &[ErrorCode::Unauthorized]);
        check(Status::Failed, Some(RefusedBy::Server), true, &[ErrorCode::CleanupResources]);
        check(Status::Failed, Some(RefusedBy::Server), false, &[ErrorCode::InternalProblem]);
    }
}
