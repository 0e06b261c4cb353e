//! The readiness of the objects that the sequences of a run wait for: one watch for each kind and namespace, or for a few
//! names, which all steps share. It is opened when a step waits for the first of its objects.

use std::{
    collections::{BTreeMap, HashMap},
    convert::Infallible,
    sync::{Mutex, PoisonError},
};

use billhook_cluster::{Cluster, ObjectChange};
use billhook_objects::{GroupKind, Manifest, ObjectKey, Uid};
use billhook_plan::{ApplyTask, Health, Query};
use futures::{
    StreamExt as _,
    stream::{BoxStream, SelectAll},
};
use tokio::sync::{mpsc, watch};

use crate::readiness::{Metadata, OperandVersion, Readiness, Verdict, View, health, readiness};

/// What a watch last showed of an object.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// Nothing yet.
    Nothing,
    /// It exists in this version.
    Present { uid: Option<Uid>, resource_version: String, verdict: Verdict },
    Gone {
        /// The UID and version in which it was ready before, if the last one that was seen was.
        ready: Option<(Option<Uid>, String)>,
    },
}

/// The objects that the steps of a run wait for.
pub(crate) struct Awaited {
    queries: Vec<Query>,
    objects: HashMap<ObjectKey, AwaitedObject>,
    open: mpsc::UnboundedSender<usize>,
    /// The queries to watch, for the driver.
    opened: Mutex<Option<mpsc::UnboundedReceiver<usize>>>,
}

struct AwaitedObject {
    query: usize,
    rules: Rules,
    /// What was last seen of it.
    seen: watch::Sender<Seen>,
}

/// How the state of an object is judged.
pub(crate) enum Rules {
    Readiness,
    /// By its health; these are the versions that its manifest expects.
    Health(Health, Vec<OperandVersion>),
}

impl Rules {
    /// Returns the rules of a task's health, whose object has this manifest.
    pub fn of(health: Option<Health>, manifest: Option<&Manifest>) -> Self {
        let Some(health) = health else { return Self::Readiness };
        let versions = manifest.and_then(|manifest| manifest.value().pointer("/status/versions").cloned());
        Self::Health(health, versions.and_then(|versions| serde_json::from_value(versions).ok()).unwrap_or_default())
    }

    /// Judges an object of a kind.
    pub fn judge(&self, kind: &GroupKind, object: &View) -> Verdict {
        match self {
            Self::Readiness => readiness(kind, object).into(),
            Self::Health(rules, expected) => health(kind, object, *rules, expected),
        }
    }
}

impl Awaited {
    /// Returns the objects of tasks, each of which one of the queries shows.
    pub fn new(tasks: &[&ApplyTask], queries: Vec<Query>, manifests: &BTreeMap<ObjectKey, Manifest>) -> Self {
        let mut by_kind: HashMap<_, Vec<usize>> = HashMap::new();
        for (at, query) in queries.iter().enumerate() {
            by_kind.entry(&query.resource).or_default().push(at);
        }
        let objects = tasks.iter().filter_map(|task| {
            let of_kind = by_kind.get(&task.resource)?;
            let namespace = task.object.namespace.as_deref();
            let query = *of_kind.iter().find(|at| queries[**at].covers(namespace))?;
            let rules = Rules::of(task.health, manifests.get(&task.object));
            Some((task.object.clone(), AwaitedObject { query, rules, seen: watch::Sender::new(Seen::Nothing) }))
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
        match change {
            ObjectChange::Present(object) => {
                let key = ObjectKey::new(kind.clone(), object.metadata.namespace.as_deref(), &*object.metadata.name);
                let Some(awaited) = self.objects.get(&key) else { return };
                let verdict = awaited.rules.judge(kind, &object);
                let Metadata { uid, resource_version, .. } = object.metadata;
                awaited.seen.send_replace(Seen::Present { uid, resource_version, verdict });
            }
            ObjectChange::Gone(key) => {
                let Some(awaited) = self.objects.get(&key) else { return };
                // An object that has become ready may be gone before its step sees that, such as a Job with a time to live.
                awaited.seen.send_modify(|seen| {
                    *seen = match std::mem::replace(seen, Seen::Nothing) {
                        Seen::Present { uid, resource_version, verdict } => {
                            let is_ready = verdict.readiness == Readiness::Ready;
                            Seen::Gone { ready: is_ready.then_some((uid, resource_version)) }
                        }
                        gone @ Seen::Gone { .. } => gone,
                        Seen::Nothing => Seen::Gone { ready: None },
                    };
                });
            }
        }
    }

    /// Returns what the watches show of an object from now on; nothing if no step waits for it.
    pub fn follow(&self, object: &ObjectKey) -> Option<watch::Receiver<Seen>> {
        let awaited = self.objects.get(object)?;
        // The driver ends with the run only.
        self.open.send(awaited.query).ok();
        Some(awaited.seen.subscribe())
    }
}

#[cfg(test)]
mod tests {
    use billhook_plan::{Resource, Select};
    use serde_json::json;

    use super::*;

    /// Shows versions of a Job, each with whether it is complete, and then that it is gone. Returns the version in which it was
    /// ready before.
    fn ready_before_gone(versions: &[(&str, &str)]) -> Option<String> {
        let kind = GroupKind::new("batch", "Job");
        let key = ObjectKey::new(kind.clone(), Some("a"), "migrate");
        let resource = Resource { kind, version: "v1".into(), plural: "jobs".into(), namespaced: true };
        let query = Query { cluster: None, resource, namespace: None, select: Select::All, namespaces: Vec::new() };
        let object = AwaitedObject { query: 0, rules: Rules::Readiness, seen: watch::Sender::new(Seen::Nothing) };
        let (open, opened) = mpsc::unbounded_channel();
        let opened = Mutex::new(Some(opened));
        let awaited = Awaited { queries: vec![query], objects: HashMap::from([(key.clone(), object)]), open, opened };
        let seen = awaited.follow(&key).unwrap();
        for (version, complete) in versions {
            let metadata = json!({"name": "migrate", "namespace": "a", "uid": "1", "resourceVersion": version});
            let conditions = json!([{"type": "Complete", "status": complete}]);
            let job = json!({"metadata": metadata, "status": {"conditions": conditions}});
            awaited.saw(0, ObjectChange::Present(serde_json::from_value(job).unwrap()));
        }
        // A watch that starts again may tell it twice.
        for _ in 0..2 {
            awaited.saw(0, ObjectChange::Gone(key.clone()));
        }
        match seen.borrow().clone() {
            Seen::Gone { ready } => ready.map(|(_, version)| version),
            seen => panic!("{seen:?}"),
        }
    }

    #[test]
    fn an_object_that_was_ready_when_it_disappeared_has_been_ready() {
        assert_eq!(ready_before_gone(&[("1", "False"), ("2", "True")]), Some("2".to_owned()));
        assert_eq!(ready_before_gone(&[("1", "True"), ("2", "False")]), None);
        assert_eq!(ready_before_gone(&[("1", "False")]), None);
        assert_eq!(ready_before_gone(&[]), None);
    }
}
