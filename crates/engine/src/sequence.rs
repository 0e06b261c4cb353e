//! A node whose steps run one after another: objects are applied, or their deletion is requested.
//!
//! A step that fails is repeated after each pause of the plan, whatever the failure was: in a graph without barriers, what an
//! object needs (its Namespace, its CRD, the backend of a webhook, a quota) may be created by another node meanwhile. It has no
//! other retries, so that it does not keep a turn from the node that creates it. An interruption or a time limit is no failure,
//! and ends the node.

use billhook_cluster::{Cluster, DeleteAnswer, DeleteOptions, Error, ErrorKind, Fence, resource_version::is_older};
use billhook_objects::{ObjectKey, Uid};
use billhook_plan::{
    Annotation, ApplyAction, ApplyTask, DeleteStep, SequenceWork, Step, Uncovered, UncoveredCause, UnservedStep,
};
use serde::Deserialize as _;
use tokio::{
    sync::SemaphorePermit,
    time::{Instant, sleep},
};

use crate::{
    Blocker, Event, RefusedBy, Status,
    awaited::{Rules, Seen},
    node::{Context, NodeResult, until},
    readiness::{Readiness, Verdict, View},
    retry::{Failure, Policy, conflict_pause},
    write,
};

/// Why an object is not ready of which nothing was seen.
const UNSEEN: &str = "not seen yet";
/// Why an object is left that has the name of one that was deleted.
const AGAIN: &str = "another client has created it again";

/// Returns what keeps an object that is not healthy or not ready.
fn blocker(verdict: &Verdict, message: &str) -> Blocker {
    let message = message.to_owned();
    match verdict.code {
        Some(code) => Blocker::Unhealthy { code: code.to_owned(), message },
        None => Blocker::NotReady { reason: message },
    }
}

/// What the write of a step has returned.
struct Written {
    uid: Uid,
    /// The `resourceVersion`.
    version: String,
}

impl Written {
    /// Whether an object that was ready in a version was so after the write.
    fn is_ready_in(&self, uid: Option<&Uid>, version: &str) -> bool {
        uid.is_none_or(|uid| *uid == self.uid) && !is_older(version, &self.version)
    }
}

/// A sequence that is being carried out.
struct Run<'a> {
    context: &'a Context<'a>,
    cluster: &'a Cluster,
    node: usize,
    deadline: Option<Instant>,
    result: NodeResult,
}

/// Carries out the steps of a node, and ends with the first that fails for good.
pub(crate) async fn run_sequence<'a>(
    context: &'a Context<'a>,
    cluster: &'a Cluster,
    node: usize,
    work: &SequenceWork,
) -> NodeResult {
    let deadline = context.deadline(node);
    let mut run = Run { context, cluster, node, deadline, result: NodeResult::new(Status::Done) };
    for (at, step) in work.steps.iter().enumerate() {
        run.result.status = run.step(step, work).await;
        if run.result.status != Status::Done {
            let next = work.steps.get(at + 1..).unwrap_or_default();
            run.result.left.extend(next.iter().map(|step| (step.object().clone(), Some(Blocker::NotRequested))));
            break;
        }
    }
    run.result
}

impl<'a> Run<'a> {
    /// Carries out a step, with its repetitions.
    async fn step(&mut self, step: &Step, work: &SequenceWork) -> Status {
        // What the write returned: a step that has written its object only waits when it is repeated.
        let mut written = None;
        let mut pauses = work.retries.iter();
        loop {
            let pause = pauses.next();
            let status = match step {
                Step::Apply(task) => self.apply(task, &mut written, pause.is_some()).await,
                Step::Delete(step) => self.delete(step, pause.is_some()).await,
                Step::Unserved(step) => return self.unserved(step),
            };
            let (Status::Failed, Some(pause)) = (status, pause) else { return status };
            tokio::select! {
                () = tokio::time::sleep(pause.0) => self.result.left.retain(|(object, _)| object != step.object()),
                () = self.context.options.stop.cancelled() => return Status::Interrupted,
                () = until(self.deadline) => return Status::TimedOut,
            }
        }
    }

    /// Fails a step whose kind was not served when the plan was made. Only another plan can know how to write its object.
    fn unserved(&mut self, step: &UnservedStep) -> Status {
        let (object, message) = (step.object.clone(), step.to_string());
        let refused =
            Event::Refused { node: self.node, object: object.clone(), message: message.clone(), retried: false };
        self.context.emit(refused);
        self.result.left.push((object, Some(Blocker::Refused { message, by: RefusedBy::Missing })));
        Status::Failed
    }

    /// Writes an object, unless that is done, and waits until it is ready.
    async fn apply(&mut self, task: &ApplyTask, written: &mut Option<Option<Written>>, repeated: bool) -> Status {
        let Self { context, cluster, node, deadline, .. } = *self;
        if written.is_none() {
            let created;
            let task = match task.action {
                ApplyAction::Recreate => match self.is_gone(task).await {
                    Ok(()) => {
                        created = task.to_create();
                        &created
                    }
                    Err((status, blocker)) => return self.held(task, status, blocker, repeated),
                },
                _ => task,
            };
            let _turn = match self.turn(&task.object).await {
                Ok(turn) => turn,
                Err(status) => return status,
            };
            let writes = write::to_apply(context, node, [task], &mut self.result);
            let policy = Policy::step(repeated);
            let sent = write::send(context, cluster, node, writes, deadline, policy, &mut self.result);
            // Boxed, because thousands of nodes may wait for their turn.
            let status = Box::pin(sent).await;
            if status != Status::Done {
                return status;
            }
            if self.result.left_to_others.last() == Some(&task.object) {
                return Status::Done;
            }
            let applied = self.result.applied.last().filter(|applied| applied.object == task.object);
            *written = Some(applied.map(|of| Written { uid: of.uid.clone(), version: of.resource_version.clone() }));
        }
        let held = match (task.wait, task.health) {
            (true, _) => self.wait(task, written.as_ref().and_then(Option::as_ref)).await,
            (false, Some(_)) => self.look(task).await,
            (false, None) => return Status::Done,
        };
        match held {
            Ok(()) => Status::Done,
            Err((status, blocker)) => self.held(task, status, blocker, repeated),
        }
    }

    /// Reports what keeps an object from its desired state.
    fn held(&mut self, task: &ApplyTask, status: Status, blocker: Blocker, repeated: bool) -> Status {
        let Self { context, node, .. } = *self;
        let object = || task.object.clone();
        match &blocker {
            _ if status != Status::Failed => {}
            Blocker::Refused { message, .. } => {
                context.emit(Event::Refused { node, object: object(), message: message.clone(), retried: repeated });
            }
            Blocker::NotReady { reason } | Blocker::Unhealthy { message: reason, .. } => {
                let (object, reason) = (object(), reason.clone());
                context.emit(match repeated {
                    true => Event::Waiting { node, object, reason },
                    false => Event::Failed { node, object, reason },
                });
            }
            _ => {}
        }
        self.result.left.push((object(), Some(blocker)));
        status
    }

    /// Checks that an object that was being deleted is gone.
    async fn is_gone(&self, task: &ApplyTask) -> Result<(), (Status, Blocker)> {
        let reason = match self.read(self.cluster.get_meta(&task.resource, &task.object)).await? {
            None => return Ok(()),
            Some(found) if Some(&found.uid) == task.uid.as_ref() => "it is being deleted",
            Some(_) => AGAIN,
        };
        Err((Status::Failed, Blocker::NotReady { reason: reason.to_owned() }))
    }

    /// Reads an object by a request, or returns why that is not possible.
    async fn read<T>(&self, request: impl Future<Output = Result<T, Error>>) -> Result<T, (Status, Blocker)> {
        let unseen = || Blocker::NotReady { reason: UNSEEN.to_owned() };
        let read = async {
            let _turn = self.context.turns.acquire().await;
            request.await
        };
        tokio::select! {
            read = read => read.map_err(|error| (Status::Failed, Failure::from(error).blocker())),
            () = self.context.options.stop.cancelled() => Err((Status::Interrupted, unseen())),
            () = until(self.deadline) => Err((Status::TimedOut, unseen())),
        }
    }

    /// Looks once at an object, or returns why it is not healthy.
    async fn look(&self, task: &ApplyTask) -> Result<(), (Status, Blocker)> {
        let context = self.context;
        let object = match self.read(self.cluster.get(&task.resource, &task.object)).await? {
            Some(object) => View::deserialize(&object).map_err(|error| error.to_string()),
            None => Err("it was deleted".to_owned()),
        };
        let verdict = match object {
            Ok(object) => Rules::of(task.health, context.manifests.get(&task.object)).judge(&task.object.kind, &object),
            Err(reason) => Readiness::Failed(reason).into(),
        };
        match &verdict.readiness {
            Readiness::Ready => Ok(()),
            Readiness::NotYet(reason) | Readiness::Failed(reason) => Err((Status::Failed, blocker(&verdict, reason))),
        }
    }

    /// Waits until an object is ready, or returns why it is not. What a watch has shown of it counts from the version that our
    /// own write returned.
    async fn wait(&self, task: &ApplyTask, written: Option<&Written>) -> Result<(), (Status, Blocker)> {
        let Self { context, node, deadline, .. } = *self;
        let Some(mut changes) = context.awaited.follow(&task.object) else { return Ok(()) };
        let object = || task.object.clone();
        let not_ready = |reason: &str| Blocker::NotReady { reason: reason.to_owned() };
        let (mut shown, mut held) = (String::new(), not_ready(UNSEEN));
        loop {
            let why = match changes.borrow_and_update().clone() {
                Seen::Nothing => None,
                Seen::Present { resource_version, .. }
                    if written.is_some_and(|of| is_older(&resource_version, &of.version)) =>
                {
                    None
                }
                Seen::Present { uid: Some(uid), .. } if written.is_some_and(|of| of.uid != uid) => {
                    return Err((Status::Failed, not_ready("it was recreated by another client")));
                }
                Seen::Present { verdict, .. } => match &verdict.readiness {
                    Readiness::Ready => {
                        context.emit(Event::Ready { node, object: object() });
                        return Ok(());
                    }
                    Readiness::Failed(why) => return Err((Status::Failed, blocker(&verdict, why))),
                    Readiness::NotYet(why) => {
                        Some((verdict.detail.clone().unwrap_or_else(|| why.clone()), blocker(&verdict, why)))
                    }
                },
                Seen::Gone { ready: Some((uid, version)) }
                    if written.is_none_or(|of| of.is_ready_in(uid.as_ref(), &version)) =>
                {
                    context.emit(Event::Ready { node, object: object() });
                    return Ok(());
                }
                Seen::Gone { .. } => return Err((Status::Failed, not_ready("it was deleted"))),
            };
            if let Some((reason, blocker)) = why {
                held = blocker;
                if reason != shown {
                    context.emit(Event::Waiting { node, object: object(), reason: reason.clone() });
                    shown = reason;
                }
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = context.options.stop.cancelled() => return Err((Status::Interrupted, held)),
                () = until(deadline) => return Err((Status::TimedOut, held)),
            }
        }
    }

    /// Waits until fewer requests than [`WINDOW`](crate::node::WINDOW) are in flight: thousands of nodes may run at a time.
    async fn turn(&mut self, object: &ObjectKey) -> Result<Option<SemaphorePermit<'a>>, Status> {
        let context = self.context;
        let status = tokio::select! {
            biased;
            () = context.options.stop.cancelled() => Status::Interrupted,
            () = until(self.deadline) => Status::TimedOut,
            turn = context.turns.acquire() => return Ok(turn.ok()),
        };
        self.result.left.push((object.clone(), Some(Blocker::NotRequested)));
        Err(status)
    }

    /// Requests the deletion of an object. The request may be waiting for its turn, or for a retry, when the user presses
    /// Ctrl-C.
    async fn delete(&mut self, step: &DeleteStep, repeated: bool) -> Status {
        let Self { context, node, deadline, .. } = *self;
        let _turn = match self.turn(&step.object).await {
            Ok(turn) => turn,
            Err(status) => return status,
        };
        let stop = context.options.stop.clone();
        let fence = Fence::new("the operation was interrupted", move || !stop.is_cancelled());
        let cluster = self.cluster.fenced(fence);
        let object = step.object.clone();
        let answer = tokio::select! {
            answer = Box::pin(delete_unless_kept(&cluster, step)) => answer,
            () = until(deadline) => {
                self.result.left.push((object, Some(Blocker::NotRequested)));
                return Status::TimedOut;
            }
        };
        match answer {
            Ok(Requested::Kept(annotation)) => {
                let cause = UncoveredCause::kept_by(annotation);
                self.result.kept.push(Uncovered { object: object.clone(), cause: cause.clone(), deleted_with: None });
                context.emit(Event::Kept { node, object, cause });
                Status::Done
            }
            Ok(Requested::Accepted(finalizers)) => {
                self.result.requested.push(object.clone());
                context.emit(Event::Deleting { node, object, finalizers });
                Status::Done
            }
            Ok(Requested::NotFound) => {
                self.result.gone.push(object.clone());
                context.emit(Event::Gone { node, object, uid: step.uid.clone() });
                Status::Done
            }
            // The object that was to be deleted is gone. The version is not complete before the other one is, too: only another
            // pass of an update deletes it.
            Ok(Requested::Recreated) => {
                if !repeated {
                    self.result.recreated.push(object.clone());
                    context.emit(Event::Recreated { node, object: object.clone() });
                }
                let blocker = Blocker::Refused { message: AGAIN.to_owned(), by: RefusedBy::Changed };
                self.result.left.push((object, Some(blocker)));
                Status::Failed
            }
            // If the answer was lost, the summary reads the object for what keeps it.
            Err(error) if context.options.stop.is_cancelled() => {
                let is_unknown = error.may_have_taken_effect();
                self.result.left.push((object, Some(Blocker::NotRequested).filter(|_| !is_unknown)));
                Status::Interrupted
            }
            Err(error) => {
                let failure = Failure::from(error);
                context.emit(failure.event(node, object.clone(), repeated));
                self.result.left.push((object, Some(failure.blocker())));
                Status::Failed
            }
        }
    }
}

/// What became of an object whose deletion was requested.
enum Requested {
    /// The request was accepted; these finalizers hold the object.
    Accepted(Vec<String>),
    NotFound,
    /// Another object has its name.
    Recreated,
    /// This annotation keeps it, so that nothing was requested.
    Kept(Annotation),
}

/// Requests the deletion of an object, in the version whose annotations were read: they may keep it since the plan was made.
async fn delete_unless_kept(cluster: &Cluster, step: &DeleteStep) -> Result<Requested, Error> {
    let DeleteStep { object, resource, uid, resource_version, propagation } = step;
    let mut options = DeleteOptions {
        uid: Some(uid.clone()),
        resource_version: resource_version.clone(),
        propagation: *propagation,
        read_if_lost: true,
        ..DeleteOptions::default()
    };
    let mut conflicts = 0;
    loop {
        match cluster.delete(resource, object, &options).await? {
            DeleteAnswer::Accepted { finalizers, .. } => return Ok(Requested::Accepted(finalizers)),
            DeleteAnswer::Done => return Ok(Requested::Accepted(Vec::new())),
            DeleteAnswer::NotFound => return Ok(Requested::NotFound),
            DeleteAnswer::OtherUid => return Ok(Requested::Recreated),
            DeleteAnswer::Changed => {}
        }
        conflicts += 1;
        sleep(conflict_pause(conflicts)).await;
        options.resource_version = match cluster.get_meta(resource, object).await {
            Ok(Some(found)) if found.uid == *uid => match found.annotations.treatment().kept_by() {
                Some(annotation) => return Ok(Requested::Kept(annotation)),
                None => found.resource_version,
            },
            // The answer to the next request tells what became of it.
            Ok(_) => String::new(),
            // What the plan knows of it decides.
            Err(error) if *error.kind() == ErrorKind::Forbidden => String::new(),
            Err(error) => return Err(error),
        };
    }
}
