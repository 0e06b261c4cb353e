//! A node whose steps run one after another: objects are applied, or their deletion is requested.
//!
//! A step that fails is repeated after each pause of the plan, whatever the failure was: in a graph without barriers, what an
//! object needs (its Namespace, its CRD, the backend of a webhook, a quota) may be created by another node meanwhile. It has no
//! other retries, so that it does not keep a turn from the node that creates it. An interruption or a time limit is no failure,
//! and ends the node.

use billhook_cluster::{Cluster, DeleteAnswer, DeleteOptions, Fence, resource_version::is_older};
use billhook_objects::ObjectKey;
use billhook_plan::{ApplyTask, DeleteStep, SequenceWork, Step};
use serde::Deserialize as _;
use tokio::{sync::SemaphorePermit, time::Instant};

use crate::{
    Blocker, Event, RefusedBy, Status,
    awaited::{Rules, Seen},
    node::{Context, NodeResult, until},
    readiness::{Readiness, Verdict, View},
    write,
};

/// Why an object is not ready of which nothing was seen.
const UNSEEN: &str = "not seen yet";

/// Returns what keeps an object that is not healthy or not ready.
fn blocker(verdict: &Verdict, message: &str) -> Blocker {
    let message = message.to_owned();
    match verdict.code {
        Some(code) => Blocker::Unhealthy { code: code.to_owned(), message },
        None => Blocker::NotReady { reason: message },
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
        let held = match (task.wait, task.health) {
            (true, _) => self.wait(task, written.as_deref()).await,
            (false, Some(_)) => self.look(task).await,
            (false, None) => return Status::Done,
        };
        let Err((status, blocker)) = held else { return Status::Done };
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

    /// Looks once at an object, or returns why it is not healthy.
    async fn look(&self, task: &ApplyTask) -> Result<(), (Status, Blocker)> {
        let Self { context, cluster, deadline, .. } = *self;
        let unseen = || Blocker::NotReady { reason: UNSEEN.to_owned() };
        let read = async {
            let _turn = context.turns.acquire().await;
            cluster.get(&task.resource, &task.object).await
        };
        let read = tokio::select! {
            read = read => read,
            () = context.options.stop.cancelled() => return Err((Status::Interrupted, unseen())),
            () = until(deadline) => return Err((Status::TimedOut, unseen())),
        };
        let object = match read {
            Ok(Some(object)) => View::deserialize(&object).map_err(|error| error.to_string()),
            Ok(None) => Err("it was deleted".to_owned()),
            Err(error) => {
                let (message, by) = (error.message(), RefusedBy::of(&error));
                return Err((Status::Failed, Blocker::Refused { message, by }));
            }
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
    async fn wait(&self, task: &ApplyTask, written: Option<&str>) -> Result<(), (Status, Blocker)> {
        let Self { context, node, deadline, .. } = *self;
        let Some(mut changes) = context.awaited.follow(&task.object) else { return Ok(()) };
        let object = || task.object.clone();
        let not_ready = |reason: &str| Blocker::NotReady { reason: reason.to_owned() };
        let (mut shown, mut held) = (String::new(), not_ready(UNSEEN));
        loop {
            let why = match changes.borrow_and_update().clone() {
                Seen::Nothing => None,
                Seen::Present { resource_version, .. } if written.is_some_and(|at| is_older(&resource_version, at)) => {
                    None
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
                Seen::Gone => Some(("it was deleted".to_owned(), not_ready("it was deleted"))),
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
