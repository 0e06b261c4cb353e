//! Runs the engine for an item: its clusters, the progress in its status, and what the run's summary means for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use billhook_cluster::{Holder, LeaseOptions};
use billhook_engine::{Blocker, Clusters, Left, OperationError, RefusedBy, RunOptions, Sink, Status, Summary};
use billhook_plan::Operation;
use tokio::{sync::watch, time::Instant};

use crate::{
    api::ErrorCode,
    error::{ItemFailure, TIMED_OUT},
    events::RunEvents,
    halt::{Halt, Stop},
    item::Item,
    metrics::Metrics,
    progress::{self, ItemProgress, Pace, Report, Reports},
    target::OpenTarget,
};

impl Item {
    /// Connects to the item's target cluster.
    pub(crate) async fn target(&self) -> Result<Arc<OpenTarget>, ItemFailure> {
        let Some(target) = &self.object.spec.target else {
            let problem = "spec.target is missing: set it to the Target of the cluster to deploy to";
            return Err(ItemFailure::configuration("NoTarget", problem));
        };
        self.open(&target.name).await
    }

    async fn open(&self, target: &str) -> Result<Arc<OpenTarget>, ItemFailure> {
        self.halt.note_target(target);
        let opened = self.shared.targets.open(&self.namespace, target).await;
        self.shared.metrics.opened_target(&(self.namespace.clone(), target.to_owned()), opened.as_ref().ok());
        opened
    }

    /// Connects to the clusters that a run needs: the item's target, the Targets with these names, and the home cluster with
    /// the item's record.
    pub(crate) async fn clusters(&self, target: &OpenTarget, names: BTreeSet<&str>) -> Result<Clusters, ItemFailure> {
        let mut targets = BTreeMap::new();
        for name in names {
            targets.insert(name.to_owned(), self.open(name).await?.cluster.clone());
        }
        let options = &self.shared.options;
        let lease = options.leader_election.as_ref().map(LeaseOptions::held);
        Ok(Clusters {
            holder: Holder::new(options.identity.as_str(), std::process::id(), lease),
            own: target.cluster.clone(),
            targets,
            records: Some(self.shared.home.clone()),
            now: self.now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
        })
    }

    /// Runs a plan, and writes its progress to the status.
    pub(crate) async fn run_plan<F>(&mut self, halt: &Halt, run: impl FnOnce(RunOptions) -> F) -> Result<Summary, Stop>
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
            sink: sink(sender, self.events(), metrics),
            force_conflicts: true,
        };
        let outcome = self.report_while(receiver, run(options)).await;
        ran();
        judge(outcome?, self.operation() == Operation::Delete)
    }

    /// Runs some work, and writes its progress to the status.
    pub(crate) async fn report_while<T>(
        &mut self,
        progress: watch::Receiver<ItemProgress>,
        work: impl Future<Output = T>,
    ) -> T {
        let reports = Reports::new(progress, Pace::default());
        let item = tokio::sync::Mutex::new(self);
        let item = &item;
        let write = |report: Report| async move {
            // The work does not depend on a progress report; the next one is written all the same.
            let _written = item.lock().await.report(report).await;
        };
        progress::while_running(work, reports, write).await
    }
}

/// Returns a sink that passes events to the progress of the item, to Kubernetes Events and to the metrics.
fn sink(progress: watch::Sender<ItemProgress>, events: RunEvents, metrics: Metrics) -> Sink {
    let events = Mutex::new(events);
    Arc::new(move |event| {
        progress.send_modify(|progress| progress.fold(&event));
        events.lock().unwrap_or_else(PoisonError::into_inner).event(&event, &progress.borrow());
        metrics.event(&event);
    })
}

/// The number of objects that a failure message names.
const NAMED: usize = 20;

/// Turns the summary of a run into the result for the item.
fn judge(summary: Summary, deletes: bool) -> Result<Summary, Stop> {
    if summary.lock_lost {
        let message = "another operation took the lock of the release over, or it could not be renewed";
        return Err(Stop::Failed(ItemFailure::new("LockLost", message, ErrorCode::InternalProblem).transient()));
    }
    let reason = match summary.status {
        Status::Done => return Ok(summary),
        Status::Interrupted => return Err(Stop::Halted),
        Status::TimedOut | Status::NotStarted => TIMED_OUT,
        Status::Failed if failed_objects(&summary.left) => "NotReady",
        Status::Failed => "Refused",
    };
    let message = progress::message(&summary, deletes, NAMED);
    if summary.record_error.is_some() && summary.left.is_empty() {
        let failure = ItemFailure::new("RecordNotWritten", message, ErrorCode::InternalProblem);
        return Err(Stop::Failed(failure.transient()));
    }
    Err(Stop::Failed(ItemFailure {
        reported: true,
        transient: summary.status == Status::Failed && may_pass_later(&summary.left),
        codes: codes(summary.status, &summary.left, deletes),
        ..ItemFailure::new(reason, message, ErrorCode::InternalProblem)
    }))
}

/// Whether all that failed are requests that may succeed once somebody else has changed the cluster.
fn may_pass_later(left: &[Left]) -> bool {
    let refused =
        |blocker: &Blocker| if let Blocker::Refused { by, .. } = blocker { Some(by.may_pass_later()) } else { None };
    let mut refused = left.iter().flat_map(|left| &left.blockers).filter_map(refused).peekable();
    refused.peek().is_some() && refused.all(|later| later) && !failed_workloads(left)
}

/// Whether objects failed.
fn failed_workloads(left: &[Left]) -> bool {
    left.iter().flat_map(|left| &left.blockers).any(|blocker| matches!(blocker, Blocker::NotReady { .. }))
}

/// Whether objects failed, and no request did.
fn failed_objects(left: &[Left]) -> bool {
    let blockers = || left.iter().flat_map(|left| &left.blockers);
    failed_workloads(left) && !blockers().any(|blocker| matches!(blocker, Blocker::Refused { .. }))
}

/// Returns the error codes of a run that left objects.
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
    use billhook_cluster::{Cluster, Options};
    use billhook_engine::{EVENT_FORMAT, Event};
    use billhook_objects::{GroupKind, ObjectKey, Uid};
    use billhook_sandbox::{Sandbox, User};
    use jiff::Timestamp;

    use super::*;
    use crate::events::{Item, Recorder};

    #[tokio::test(start_paused = true)]
    async fn an_event_of_the_engine_reaches_progress_events_and_metrics() {
        let sandbox = Sandbox::start(billhook_sandbox::Options::default());
        let home = Cluster::from_client(sandbox.client(User::admin(), ""), Options::default());
        let metrics = Metrics::new();
        let (recorder, writer) = Recorder::new(home, "i", Arc::new(|| Timestamp::UNIX_EPOCH), metrics.events_dropped());
        let item = Item { namespace: "default".to_owned(), name: "shop".to_owned(), uid: "u".to_owned() };
        let (sender, receiver) = watch::channel(ItemProgress::default());
        let sink = sink(sender, recorder.run(Arc::new(item)), metrics.clone());
        drop(recorder);
        let nodes = vec![("g".to_owned(), 1)];
        sink(Event::Started {
            format: EVENT_FORMAT,
            operation: Operation::Delete,
            release: None,
            nodes,
            goals: Vec::new(),
            notes: Vec::new(),
        });
        sink(Event::NodeStarted { node: 0, title: "g".to_owned(), objects: 1 });
        let object = ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "b");
        sink(Event::Gone { node: 0, object, uid: Uid::new("u") });
        assert_eq!(receiver.borrow().message(), "group 1 of 1, g: 1 of 1 gone");
        assert!(metrics.encode().unwrap().contains("billhook_objects_deleted_total 1"));
        drop(sink);
        writer.run().await;
        assert_eq!(sandbox.objects().iter().filter(|object| object["reason"] == "DeletionGroupStarted").count(), 1);
    }

    #[test]
    fn codes_name_the_cause_that_blocks_objects() {
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

    #[test]
    fn a_failed_workload_is_not_a_rejected_request() {
        let not_ready = || Blocker::NotReady { reason: "no".to_owned() };
        let refused = || Blocker::Refused { message: "no".to_owned(), by: RefusedBy::Server };
        for (blockers, expected) in [
            (vec![not_ready()], true),
            (vec![not_ready(), Blocker::NotStarted], true),
            (vec![not_ready(), refused()], false),
            (vec![refused()], false),
            (vec![], false),
        ] {
            let object = ObjectKey::new(GroupKind::new("", "ConfigMap"), Some("a"), "b");
            let left = [Left { object, group: "g".to_owned(), blockers: blockers.clone() }];
            assert_eq!(failed_objects(&left), expected, "{blockers:?}");
        }
    }
}
