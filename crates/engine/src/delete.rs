//! A node that deletes: DELETE with the UID that was seen, then the watch's confirmation that the object is gone.
//!
//! [`machine`] decides; the driver here carries its effects out and returns the answers as inputs.

mod force;
mod machine;
mod messages;
mod namespaces;
mod objects;
mod observed;
mod reads;
mod reasons;
mod snapshots;
#[cfg(test)]
mod tests;

use std::time::Duration;

use billhook_cluster::{Cluster, DeleteOptions, Fence, Known};
use billhook_objects::{Labels, ObjectKey, Uid, wellknown};
use billhook_plan::{Annotations, DeleteWork, Observed, Plan, QueryId, Resource};
use billhook_policy::GoDuration;
use futures::{
    FutureExt as _, StreamExt as _,
    future::BoxFuture,
    stream::{BoxStream, FuturesUnordered, SelectAll},
};
use tokio_util::time::DelayQueue;

use self::{
    machine::Machine,
    messages::{Answer, Effect, Input, Request, Timer},
};
use crate::{
    blockers::look,
    node::{Context, NodeResult, Written, until},
    retry::Failure,
};

/// The longest time that a [`DelayQueue`] is given; it panics when given some years.
const MAX_TIMER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Deletes the objects of a node and waits until the API server has confirmed of each that it is gone.
pub(crate) async fn run_delete<'a>(
    context: &'a Context<'a>,
    cluster: &'a Cluster,
    node: usize,
    work: &'a DeleteWork,
    written: Written,
) -> NodeResult {
    let mut machine = Machine::new(context.plan, node, work, context.label.as_deref()).after(written);
    machine.ignore_later(cluster.server_time());
    let (stop, deadline) = (&context.options.stop, context.deadline(node));
    let mut driver = Driver {
        context,
        cluster,
        // A request may wait for its turn, or for a retry, when the user presses Ctrl-C.
        until_stopped: cluster.fenced(Fence::new("the operation was interrupted", {
            let stop = stop.clone();
            move || !stop.is_cancelled()
        })),
        work,
        requests: FuturesUnordered::new(),
        watches: SelectAll::new(),
        timers: DelayQueue::new(),
    };
    let mut input = Input::Start;
    loop {
        for effect in machine.on(input) {
            driver.carry_out(effect);
        }
        if machine.has_ended() {
            return machine.into_result();
        }
        input = tokio::select! {
            // First, so that the machine knows why requests are not sent any more.
            biased;
            () = stop.cancelled(), if !machine.is_stopping() => Input::Stop,
            () = until(deadline), if !machine.is_stopping() => Input::Deadline,
            Some(answer) = driver.requests.next() => Input::Answer(answer),
            Some(input) = driver.watches.next() => input,
            Some(timer) = driver.timers.next() => Input::Due(timer.into_inner()),
        };
    }
}

/// Sends requests, watches queries, keeps timers and emits events.
struct Driver<'a> {
    context: &'a Context<'a>,
    cluster: &'a Cluster,
    /// The same cluster, to which nothing is sent after Ctrl-C.
    until_stopped: Cluster,
    work: &'a DeleteWork,
    requests: FuturesUnordered<BoxFuture<'a, Answer>>,
    watches: SelectAll<BoxStream<'static, Input>>,
    timers: DelayQueue<Timer>,
}

impl<'a> Driver<'a> {
    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Send(request) => {
                let cluster = self.until_stopped.clone();
                self.requests.push(send(self.context.plan, self.work, cluster, request).boxed());
            }
            Effect::Watch { query, from_snapshot } => {
                let known = if from_snapshot { self.context.known(query) } else { Known::default() };
                let changes = self.cluster.watch(&self.context.plan.queries[query], known);
                self.watches.push(changes.map(move |change| Input::Change(query, change)).boxed());
            }
            Effect::Timer(timer, after) => {
                self.timers.insert(timer, after.min(MAX_TIMER));
            }
            Effect::ForceAfter { timer, after, deleted_at } => {
                let age = deleted_at.and_then(|at| self.cluster.seconds_since(at));
                self.timers.insert(timer, force::remaining(after, age).min(MAX_TIMER));
            }
            Effect::Emit(event) => self.context.emit(event),
        }
    }
}

async fn send(plan: &Plan, work: &DeleteWork, cluster: Cluster, request: Request) -> Answer {
    let resource = |query: QueryId| &plan.queries[query].resource;
    match request {
        Request::Delete(key, uid, query, resource_version) => {
            let options = DeleteOptions { resource_version, ..options(work, &uid, false) };
            let answer = cluster.delete(resource(query), &key, &options).await;
            Answer::Delete(key, uid, answer.map_err(Failure::from))
        }
        Request::EndGrace(key, uid, query) => {
            let answer = cluster.delete(resource(query), &key, &options(work, &uid, true)).await;
            Answer::EndGrace(key, uid, answer.map_err(Failure::from))
        }
        Request::RemoveFinalizers { key, uid, query, present, remove } => {
            let object = marked(&key, uid.clone(), present);
            let answer = cluster.remove_finalizers(resource(query), &object, &remove).await;
            Answer::Remove(key, uid, answer.map_err(Failure::from))
        }
        Request::FinalizeNamespace(key, uid, remove) => {
            let answer = cluster.finalize_namespace(&key.name, &uid, &remove).await;
            Answer::Remove(key, uid, answer.map_err(Failure::from))
        }
        Request::Read(key, uid, query) => {
            let answer = cluster.get_meta(resource(query), &key).await;
            Answer::Read(key, uid, answer.map_err(Failure::from))
        }
        Request::ReadNamespace(key, uid, query) => {
            let answer = cluster.get(resource(query), &key).await;
            Answer::ReadNamespace(key, uid, answer.map_err(Failure::from))
        }
        Request::Look(key, uid, query) => {
            let answer = look(&cluster, resource(query), &key).await;
            Answer::Look(key, uid, answer.map_err(Failure::from))
        }
        Request::Namespace(name) => {
            let key = ObjectKey::new(wellknown::namespace(), None, name.as_str());
            let answer = cluster.get_meta(&Resource::namespaces(), &key).await;
            Answer::Namespace(name, answer.map(|found| found.is_some()).map_err(Failure::from))
        }
        Request::ReleaseSnapshot(key, uid, query) => {
            let answer = cluster.merge(resource(query), &key, &uid, &snapshots::release()).await;
            Answer::ReleaseSnapshot(key, uid, answer.map(|found| found.is_some()).map_err(Failure::from))
        }
        Request::List(index) => {
            let collection = &work.collections[index];
            let query = &plan.queries[collection.query];
            let answer = cluster.find(query, &|object| collection.contains(object)).await;
            Answer::List(index, answer.map_err(Failure::from))
        }
    }
}

fn options(work: &DeleteWork, uid: &Uid, ends_grace_period: bool) -> DeleteOptions {
    // The API server takes whole seconds.
    let whole = |period: GoDuration| period.0.as_secs() + u64::from(period.0.subsec_nanos() > 0);
    DeleteOptions {
        uid: Some(uid.clone()),
        propagation: work.propagation,
        grace_period: if ends_grace_period { Some(0) } else { work.grace_period.map(whole) },
        ..DeleteOptions::default()
    }
}

/// Returns an object as the removal of finalizers needs it: its identity, and its finalizers in order.
fn marked(key: &ObjectKey, uid: Uid, finalizers: Vec<String>) -> Observed {
    Observed {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid,
        resource_version: String::new(),
        labels: Labels::default(),
        created_at: None,
        finalizers,
        deleting: true,
        deleted_at: None,
        owners: Vec::new(),
        annotations: Annotations::default(),
        tracked: None,
        ready: false,
    }
}
