//! A node whose steps run one after another: objects are applied, or their deletion is requested.
//!
//! A step that fails is repeated after each pause of the plan, whatever the failure was: in a graph without barriers, what an
//! object needs (its Namespace, its CRD, the backend of a webhook, a quota) may be created by another node meanwhile. It has no
//! other retries, so that it does not keep a turn from the node that creates it. An interruption or a time limit is no failure,
//! and ends the node.

use billhook_cluster::{Cluster, DeleteAnswer, DeleteOptions, Fence, resource_version::is_older};
use billhook_objects::ObjectKey;
use billhook_plan::{ApplyTask, DeleteStep, SequenceWork, Step};
use tokio::{sync::SemaphorePermit, time::Instant};

use crate::{
    Blocker, Event, RefusedBy, Status,
    awaited::Seen,
    node::{Context, NodeResult, until},
    readiness::Readiness,
    write,
};

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
        // The version that the write returned: a step that has written its object only waits when it is repeated.
        let mut written = None;
        let mut pauses = work.retries.iter();
        loop {
            let pause = pauses.next();
            let status = match step {
                Step::Apply(task) => self.apply(task, &mut written, pause.is_some()).await,
                Step::Delete(step) => self.delete(step, pause.is_some()).await,
            };
            let (Status::Failed, Some(pause)) = (status, pause) else { return status };
            tokio::select! {
                () = tokio::time::sleep(pause.0) => self.result.left.retain(|(object, _)| object != step.object()),
                () = self.context.options.stop.cancelled() => return Status::Interrupted,
                () = until(self.deadline) => return Status::TimedOut,
            }
        }
    }

    /// Writes an object, unless that is done, and waits until it is ready.
    async fn apply(&mut self, task: &ApplyTask, written: &mut Option<String>, repeated: bool) -> Status {
        let Self { context, cluster, node, deadline, .. } = *self;
        if written.is_none() {
            let _turn = match self.turn(&task.object).await {
                Ok(turn) => turn,
                Err(status) => return status,
            };
            let writes = write::to_apply(context, node, [task], &mut self.result);
            let sent = write::send(context, cluster, node, writes, deadline, Some(repeated), &mut self.result);
            // Boxed, because thousands of nodes may wait for their turn.
            let status = Box::pin(sent).await;
            if status != Status::Done {
                return status;
            }
            let applied = self.result.applied.last().filter(|applied| applied.object == task.object);
            *written = Some(applied.map(|applied| applied.resource_version.clone()).unwrap_or_default());
        }
        if !task.wait {
            return Status::Done;
        }
        let Err((status, reason)) = self.wait(task, written.as_deref()).await else { return Status::Done };
        let object = task.object.clone();
        if status == Status::Failed {
            let (object, reason) = (object.clone(), reason.clone());
            context.emit(match repeated {
                true => Event::Waiting { node, object, reason },
                false => Event::Failed { node, object, reason },
            });
        }
        self.result.left.push((object, Some(Blocker::NotReady { reason })));
        status
    }

    /// Waits until an object is ready, or returns why it is not. What a watch has shown of it counts from the version that our
    /// own write returned.
    async fn wait(&self, task: &ApplyTask, written: Option<&str>) -> Result<(), (Status, String)> {
        let Self { context, node, deadline, .. } = *self;
        let Some(mut changes) = context.awaited.follow(&task.object) else { return Ok(()) };
        let object = || task.object.clone();
        let mut reason = "not seen yet".to_owned();
        loop {
            let seen = changes.borrow_and_update().clone();
            let why = match seen {
                Seen::Nothing => None,
                Seen::Present { resource_version, .. } if written.is_some_and(|at| is_older(&resource_version, at)) => {
                    None
                }
                Seen::Present { readiness: Readiness::Ready, .. } => {
                    context.emit(Event::Ready { node, object: object() });
                    return Ok(());
                }
                Seen::Present { readiness: Readiness::Failed(why), .. } => return Err((Status::Failed, why)),
                Seen::Present { readiness: Readiness::NotYet(why), .. } => Some(why),
                Seen::Gone => Some("it was deleted".to_owned()),
            };
            if let Some(why) = why.filter(|why| *why != reason) {
                context.emit(Event::Waiting { node, object: object(), reason: why.clone() });
                reason = why;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = context.options.stop.cancelled() => return Err((Status::Interrupted, reason)),
                () = until(deadline) => return Err((Status::TimedOut, reason)),
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
        let options = DeleteOptions {
            uid: Some(step.uid.clone()),
            propagation: step.propagation,
            read_if_lost: true,
            ..DeleteOptions::default()
        };
        let object = step.object.clone();
        let answer = tokio::select! {
            answer = Box::pin(cluster.delete(&step.resource, &step.object, &options)) => answer,
            () = until(deadline) => {
                self.result.left.push((object, Some(Blocker::NotRequested)));
                return Status::TimedOut;
            }
        };
        match answer {
            Ok(answer @ (DeleteAnswer::Accepted { .. } | DeleteAnswer::Done)) => {
                let finalizers =
                    if let DeleteAnswer::Accepted { finalizers, .. } = answer { finalizers } else { Vec::new() };
                self.result.requested.push(object.clone());
                context.emit(Event::Deleting { node, object, finalizers });
                Status::Done
            }
            Ok(DeleteAnswer::NotFound) => {
                self.result.gone.push(object.clone());
                context.emit(Event::Gone { node, object, uid: step.uid.clone() });
                Status::Done
            }
            // The object that was to be deleted is gone; the next pass decides about the other one.
            Ok(DeleteAnswer::OtherUid) => {
                self.result.recreated.push(object.clone());
                context.emit(Event::Recreated { node, object });
                Status::Done
            }
            // If the answer was lost, the summary reads the object for what keeps it.
            Err(error) if context.options.stop.is_cancelled() => {
                let is_unknown = error.may_have_taken_effect();
                self.result.left.push((object, Some(Blocker::NotRequested).filter(|_| !is_unknown)));
                Status::Interrupted
            }
            Err(error) => {
                let message = error.message();
                context.emit(Event::Refused {
                    node,
                    object: object.clone(),
                    message: message.clone(),
                    retried: repeated,
                });
                self.result.left.push((object, Some(Blocker::Refused { message, by: RefusedBy::of(&error) })));
                Status::Failed
            }
        }
    }
}
