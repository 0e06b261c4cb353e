//! The requests of a node: up to [`WINDOW`] are in flight, and those that fail are sent again as [`crate::retry`] decides.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use billhook_cluster::{Applied, Cluster, Error, ErrorKind};
use billhook_objects::{Manifest, ObjectKey};
use billhook_plan::{ApplyTask, PatchTask};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use tokio::time::Instant;

use super::{How, applied_event, apply, object::recreate, patch, succeeded};
use crate::{
    ApplyResult, Blocker, Event, RefusedBy, Status,
    node::{AppliedObject, Context, GRACE, NodeResult, WINDOW, until},
    retry::{Failure, Next, Policy, Retries},
};

/// A request for one object.
#[derive(Clone, Copy)]
pub(super) enum Write<'a> {
    Apply(&'a ApplyTask, &'a Manifest),
    /// The object is created again once it is gone: it is being deleted, or it is deleted because its update was rejected as
    /// invalid.
    Recreate(&'a ApplyTask, &'a Manifest),
    /// A patch, and what the run itself has written to the object before.
    Patch(&'a PatchTask, Option<&'a AppliedObject>),
}

impl<'a> Write<'a> {
    pub fn object(self) -> &'a ObjectKey {
        match self {
            Self::Apply(task, _) | Self::Recreate(task, _) => &task.object,
            Self::Patch(task, _) => &task.object,
        }
    }

    /// Returns the task if the request applies it.
    fn applies(self) -> Option<&'a ApplyTask> {
        if let Self::Apply(task, _) = self { Some(task) } else { None }
    }
}

/// A request and its tries so far.
pub(crate) struct Attempt<'a> {
    write: Write<'a>,
    retries: Retries,
}

impl<'a> Attempt<'a> {
    pub(super) fn first(write: Write<'a>) -> Self {
        Self { write, retries: Retries::default() }
    }

    /// Returns whether it failed because another client has created the object, to which the plan leaves it then.
    fn is_left(&self, error: &Error) -> bool {
        *error.kind() == ErrorKind::NotAsSeen && self.write.applies().is_some_and(|task| task.leave_others)
    }
}

/// The answer to a request; it is empty if a patch found no object, or an object was not recreated.
type Answer = Result<Option<Applied>, Error>;

/// The requests of a node that are being sent.
struct Sending<'a, 'r> {
    context: &'a Context<'a>,
    cluster: &'a Cluster,
    node: usize,
    policy: Policy<'a>,
    queue: VecDeque<Attempt<'a>>,
    in_flight: FuturesUnordered<BoxFuture<'a, (Attempt<'a>, Answer)>>,
    /// The objects that are not done. What is not known to be left is read at the end.
    left: BTreeMap<&'a ObjectKey, Option<Blocker>>,
    status: Status,
    /// After Ctrl-C: how long answers are waited for.
    stop_at: Option<Instant>,
    result: &'r mut NodeResult,
}

/// Sends requests in parallel, and ends with the deadline or Ctrl-C.
pub(crate) async fn send<'a>(
    context: &'a Context<'a>,
    cluster: &'a Cluster,
    node: usize,
    queue: VecDeque<Attempt<'a>>,
    deadline: Option<Instant>,
    policy: Policy<'a>,
    result: &mut NodeResult,
) -> Status {
    let left = queue.iter().map(|next| (next.write.object(), Some(Blocker::NotRequested))).collect();
    let (in_flight, status) = (FuturesUnordered::new(), Status::Done);
    let mut sending = Sending { context, cluster, node, policy, queue, in_flight, left, status, stop_at: None, result };
    sending.run(deadline).await;
    let Sending { left, status, result, .. } = sending;
    result.left.extend(left.into_iter().map(|(object, blocker)| (object.clone(), blocker)));
    status
}

impl<'a> Sending<'a, '_> {
    async fn run(&mut self, deadline: Option<Instant>) {
        let stop = &self.context.options.stop;
        loop {
            while self.in_flight.len() < WINDOW
                && self.stop_at.is_none()
                && let Some(next) = self.queue.pop_front()
            {
                if matches!(next.write, Write::Recreate(..)) {
                    self.left.insert(next.write.object(), None);
                }
                self.start(next, Duration::ZERO);
            }
            let (stop_at, is_stopping) = (self.stop_at, self.stop_at.is_some());
            tokio::select! {
                answer = self.in_flight.next() => match answer {
                    Some((attempt, answer)) => self.answered(attempt, answer),
                    None => break,
                },
                () = stop.cancelled(), if !is_stopping => {
                    self.status = self.status.max(Status::Interrupted);
                    self.stop_at = Some(Instant::now() + GRACE);
                }
                () = until(stop_at), if is_stopping => break,
                () = until(deadline), if !is_stopping => {
                    self.status = self.status.max(Status::TimedOut);
                    break;
                }
            }
        }
    }

    /// Sends a request after a pause.
    fn start(&mut self, next: Attempt<'a>, pause: Duration) {
        let (context, cluster, node) = (self.context, self.cluster, self.node);
        let request = async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let answer = request(context, cluster, node, next.write).await;
            (next, answer)
        };
        self.in_flight.push(request.boxed());
    }

    fn answered(&mut self, attempt: Attempt<'a>, answer: Answer) {
        let (write, object) = (attempt.write, attempt.write.object());
        match answer {
            // Its annotations do not let it be recreated any more.
            Ok(None) if matches!(write, Write::Recreate(..)) => {
                let message = attempt.retries.reported().to_owned();
                let blocker = Blocker::Refused { message: message.clone(), by: RefusedBy::Server };
                self.left.insert(object, Some(blocker));
                let object = object.clone();
                self.context.emit(Event::Refused { node: self.node, object, message, retried: false });
                self.status = Status::Failed;
            }
            Ok(written) => {
                self.left.remove(object);
                if let Some(written) = written {
                    succeeded(self.context, self.node, write, written, self.result);
                }
            }
            Err(error) if attempt.is_left(&error) => {
                self.left.remove(object);
                self.result.unchanged += 1;
                self.result.left_to_others.push(object.clone());
                self.context.emit(applied_event(self.node, object, ApplyResult::Unchanged));
            }
            Err(error) => self.failed(attempt, &Failure::from(error)),
        }
    }

    fn failed(&mut self, mut attempt: Attempt<'a>, failure: &Failure) {
        let object = attempt.write.object();
        self.left.insert(object, Some(failure.blocker()));
        let next = match self.stop_at {
            None => attempt.retries.next(failure, self.policy, attempt.write.applies()),
            Some(_) => self.policy.without_retry(),
        };
        if attempt.retries.is_new(&failure.message) {
            self.context.emit(failure.event(self.node, object.clone(), next != Next::Nothing));
        }
        match (next, attempt.write) {
            (Next::Recreation, Write::Apply(task, manifest)) => {
                self.left.insert(object, None);
                self.start(Attempt { write: Write::Recreate(task, manifest), ..attempt }, Duration::ZERO);
            }
            (Next::Again(pause), _) => self.start(attempt, pause),
            _ => self.status = Status::Failed,
        }
    }
}

async fn request(context: &Context<'_>, cluster: &Cluster, node: usize, write: Write<'_>) -> Answer {
    let how = || How {
        field_manager: context.plan.field_manager(),
        force_conflicts: context.options.force_conflicts,
        dry_run: false,
    };
    match write {
        Write::Apply(task, manifest) => apply(cluster, task, manifest, &how()).await.map(Some),
        Write::Recreate(task, manifest) => {
            let waits = |reason: &str| {
                let (object, reason) = (task.object.clone(), reason.to_owned());
                context.emit(Event::Waiting { node, object, reason });
            };
            recreate(cluster, task, manifest, &how(), waits).await
        }
        Write::Patch(task, written) => patch(cluster, task, written.map(|written| &written.uid)).await,
    }
}
