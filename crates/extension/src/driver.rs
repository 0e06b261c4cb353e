//! The driver of the queue: feeds it the watches, the timers and the ends of attempts, and carries out its effects.

use std::{collections::HashMap, sync::Arc};

use billhook_cluster::ObjectChange;
use billhook_objects::ObjectKey;
use billhook_plan::{Query, Resource, Select};
use futures::{
    StreamExt as _,
    stream::{self, BoxStream},
};
use tokio::task::JoinSet;
use tokio_util::{
    sync::CancellationToken,
    time::{DelayQueue, delay_queue},
};

use crate::{
    actuator::Actuator,
    attempt::Worker,
    gardener::Cluster,
    object::{ExtensionObject, Key},
    queue::{Effect, End, Input, Queue, Rules},
};

/// Why a controller starts over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StartOver {
    /// A watch has ended, because its kind is no longer served.
    WatchEnded,
    /// An attempt has panicked outside of the call of the actuator.
    Panicked,
}

pub(crate) struct Driver<A> {
    worker: Arc<Worker<A>>,
    queue: Queue,
    /// What the watches report; none when one has ended.
    changes: BoxStream<'static, Option<Input>>,
    tasks: JoinSet<(Key, End)>,
    cancels: HashMap<Key, CancellationToken>,
    timers: DelayQueue<Key>,
    timer_keys: HashMap<Key, delay_queue::Key>,
}

impl<A: Actuator> Driver<A> {
    /// Creates a driver for the objects in a namespace or in all of them.
    pub(crate) fn new(worker: Worker<A>, clusters: Option<&Resource>, namespace: Option<String>, rules: Rules) -> Self {
        let query = |resource: &Resource, namespace: Option<String>| Query {
            cluster: None,
            resource: resource.clone(),
            namespace,
            select: Select::All,
            namespaces: Vec::new(),
        };
        let seed = &worker.context.seed;
        let objects =
            seed.watch_objects::<ExtensionObject>(&query(&worker.resource, namespace)).map(|change| match change {
                ObjectChange::Present(object) => Input::Object(Box::new(object)),
                ObjectChange::Gone(ObjectKey { namespace, name, .. }) => Input::Gone(Key { namespace, name }),
            });
        let ended = || stream::iter([None]);
        let mut watches = vec![objects.map(Some).chain(ended()).boxed()];
        if let Some(clusters) = clusters {
            let clusters = seed.watch_objects::<Cluster>(&query(clusters, None)).map(|change| match change {
                ObjectChange::Present(cluster) => Input::Cluster(Box::new(cluster)),
                ObjectChange::Gone(key) => Input::ClusterGone(key.name),
            });
            watches.push(clusters.map(Some).chain(ended()).boxed());
        }
        Self {
            worker: Arc::new(worker),
            queue: Queue::new(rules),
            changes: stream::select_all(watches).boxed(),
            tasks: JoinSet::new(),
            cancels: HashMap::new(),
            timers: DelayQueue::new(),
            timer_keys: HashMap::new(),
        }
    }

    /// Runs until it has to start over.
    pub(crate) async fn run(&mut self) -> StartOver {
        loop {
            let input = tokio::select! {
                change = self.changes.next() => match change.flatten() {
                    Some(input) => input,
                    None => return StartOver::WatchEnded,
                },
                Some(joined) = self.tasks.join_next() => match joined {
                    Ok((key, end)) => {
                        self.cancels.remove(&key);
                        Input::Ended(key, end)
                    }
                    // A bug: starting over is the only state that is known to be right.
                    Err(panic) => {
                        let kind = &self.worker.resource.kind;
                        tracing::error!(%kind, %panic, "internal error, which is a bug; the controller starts over");
                        return StartOver::Panicked;
                    }
                },
                Some(expired) = self.timers.next() => {
                    let key = expired.into_inner();
                    self.timer_keys.remove(&key);
                    Input::Timer(key)
                }
            };
            for effect in self.queue.on(input) {
                self.carry_out(effect);
            }
            self.worker.monitor.set_waiting(self.queue.waiting());
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Start(start) => {
                let (key, cancel, worker) =
                    (start.object.key.clone(), CancellationToken::new(), Arc::clone(&self.worker));
                self.cancels.insert(key.clone(), cancel.clone());
                self.tasks.spawn(async move {
                    let end = worker.attempt(*start, cancel).await;
                    (key, end)
                });
            }
            Effect::Cancel(key) => {
                if let Some(cancel) = self.cancels.get(&key) {
                    cancel.cancel();
                }
            }
            Effect::SetTimer(key, pause) => match self.timer_keys.get(&key) {
                Some(timer) => self.timers.reset(timer, pause),
                None => drop(self.timer_keys.insert(key.clone(), self.timers.insert(key, pause))),
            },
            Effect::ClearTimer(key) => {
                if let Some(timer) = self.timer_keys.remove(&key) {
                    self.timers.remove(&timer);
                }
            }
        }
    }

    /// Stops all attempts wherever they are; the next leader starts them again.
    pub(crate) async fn shut_down(mut self) {
        self.tasks.shutdown().await;
        self.worker.monitor.set_waiting(0);
    }
}
