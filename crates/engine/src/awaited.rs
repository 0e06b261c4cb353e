//! The readiness of the objects that the sequences of a run wait for: one watch for each kind and namespace, or for a few
//! names, which all steps share. It is opened when a step waits for the first of its objects.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Mutex, PoisonError},
};

use billhook_cluster::{Cluster, ObjectChange, resource_version::is_older};
use billhook_objects::ObjectKey;
use billhook_plan::{ApplyTask, Query, Step};
use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};

use crate::{
    Blocker, Event, Status,
    apply::ready_queries,
    node::{Context, NodeResult, until},
    readiness::{Readiness, View, readiness},
};

/// What a watch last showed of an object.
#[derive(Clone, Debug)]
enum Seen {
    /// Nothing yet.
    Nothing,
    /// It exists in this version.
    Present {
        resource_version: String,
        readiness: Readiness,
    },
    Gone,
}

/// The objects that the steps of a run wait for.
pub(crate) struct Awaited {
    queries: Vec<Query>,
    /// What was last seen of each object, and its query.
    objects: HashMap<ObjectKey, (usize, watch::Sender<Seen>)>,
    open: mpsc::UnboundedSender<usize>,
    /// The queries to watch, for the driver.
    opened: Mutex<Option<mpsc::UnboundedReceiver<usize>>>,
}

impl Awaited {
    /// Returns the objects that the sequences of a plan wait for.
    pub fn of(plan: &billhook_plan::Plan, label: Option<&str>) -> Self {
        let steps = plan.nodes.iter().flat_map(|node| node.work.steps()).filter_map(Step::apply);
        let tasks: Vec<&ApplyTask> = steps.filter(|task| task.wait).collect();
        let queries = ready_queries(&tasks, label);
        let mut by_kind: HashMap<_, Vec<usize>> = HashMap::new();
        for (at, query) in queries.iter().enumerate() {
            by_kind.entry(&query.resource).or_default().push(at);
        }
        let objects = tasks.iter().filter_map(|task| {
            let of_kind = by_kind.get(&task.resource)?;
            let namespace = task.object.namespace.as_deref();
            let query = of_kind.iter().find(|at| queries[**at].covers(namespace))?;
            Some((task.object.clone(), (*query, watch::Sender::new(Seen::Nothing))))
        });
        let objects = objects.collect();
        let (open, opened) = mpsc::unbounded_channel();
        Self { queries, objects, open, opened: Mutex::new(Some(opened)) }
    }

    /// Watches what steps wait for, until it is dropped. Only the first call does.
    pub async fn watch(&self, cluster: &Cluster) -> Infallible {
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut opened) = opened else { return std::future::pending().await };
        let mut is_open = vec![false; self.queries.len()];
        let mut watches: SelectAll<BoxStream<'static, (usize, Option<ObjectChange<View>>)>> = SelectAll::new();
        loop {
            tokio::select! {
                Some(at) = opened.recv() => {
                    if !std::mem::replace(&mut is_open[at], true) {
                        let changes = cluster.watch_objects::<View>(&self.queries[at]).map(Some);
                        let changes = changes.chain(futures::stream::iter([None]));
                        watches.push(changes.map(move |change| (at, change)).boxed());
                    }
                }
                Some((at, change)) = watches.next() => match change {
                    Some(change) => self.saw(at, change),
                    // Its kind is not served: the next step that waits for one of its objects opens it again.
                    None => is_open[at] = false,
                },
            }
        }
    }

    fn saw(&self, query: usize, change: ObjectChange<View>) {
        let kind = &self.queries[query].resource.kind;
        let (key, seen) = match change {
            ObjectChange::Present(object) => {
                let key = ObjectKey::new(kind.clone(), object.metadata.namespace.as_deref(), &*object.metadata.name);
                let readiness = readiness(kind, &object);
                (key, Seen::Present { resource_version: object.metadata.resource_version, readiness })
            }
            ObjectChange::Gone(key) => (key, Seen::Gone),
        };
        if let Some((_, sender)) = self.objects.get(&key) {
            sender.send_replace(seen);
        }
    }

    /// Waits until an object is ready. What a watch has shown of it counts from the version that our own write returned.
    pub async fn wait(
        &self,
        context: &Context<'_>,
        node: usize,
        task: &ApplyTask,
        written: Option<&str>,
        deadline: Option<Instant>,
        result: &mut NodeResult,
    ) -> Status {
        let Some((query, sender)) = self.objects.get(&task.object) else { return Status::Done };
        let mut changes = sender.subscribe();
        // The driver ends with the run only.
        self.open.send(*query).ok();
        let object = || task.object.clone();
        let mut reason = "not seen yet".to_owned();
        let status = loop {
            let seen = changes.borrow_and_update().clone();
            let why = match seen {
                Seen::Nothing => None,
                Seen::Present { resource_version, .. } if written.is_some_and(|at| is_older(&resource_version, at)) => {
                    None
                }
                Seen::Present { readiness: Readiness::Ready, .. } => {
                    context.emit(Event::Ready { node, object: object() });
                    return Status::Done;
                }
                Seen::Present { readiness: Readiness::Failed(why), .. } => {
                    reason = why;
                    break Status::Failed;
                }
                Seen::Present { readiness: Readiness::NotYet(why), .. } => Some(why),
                Seen::Gone => Some("it was deleted".to_owned()),
            };
            if let Some(why) = why.filter(|why| *why != reason) {
                context.emit(Event::Waiting { node, object: object(), reason: why.clone() });
                reason = why;
            }
            tokio::select! {
                _ = changes.changed() => {}
                () = context.options.stop.cancelled() => break Status::Interrupted,
                () = until(deadline) => break Status::TimedOut,
            }
        };
        result.left.push((object(), Some(Blocker::NotReady { reason })));
        status
    }
}
