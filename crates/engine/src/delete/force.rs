//! The force stage: finalizers are removed from objects that already carry a `deletionTimestamp`.

use std::time::Duration;

use billhook_cluster::{Error, RemoveAnswer};
use billhook_objects::{ObjectKey, wellknown};
use billhook_plan::{Observed, QueryId};
use futures::FutureExt as _;
use serde_json::Value;

use super::{Answer, Deletion, Due, MAX_PAUSE, Object, State};

impl Deletion<'_> {
    /// The finalizers of a list that the group's force stage removes. A CRD's cleanup finalizer is never among them:
    /// stripped of it, the CRD goes and its instances stay in storage (they come back with the next CRD of that name).
    fn removable(&self, finalizers: &[String]) -> Vec<String> {
        let Some(force) = &self.work.force else { return Vec::new() };
        let declared = |name: &String| force.finalizers.is_empty() || force.finalizers.contains(name);
        finalizers.iter().filter(|f| declared(f) && *f != wellknown::CRD_CLEANUP_FINALIZER).cloned().collect()
    }

    /// Removes what may be removed from an object whose force stage has begun.
    pub(super) fn force(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get(key).filter(|o| o.state == State::Deleting && !o.forcing) else { return };
        let remove = self.removable(&object.finalizers);
        if let Some(instances) = object.instances
            && self.instance_queries.insert(instances)
        {
            // The watch goes on from the snapshot, so it shows every instance that the CRD's deletion has marked since.
            self.watch(instances);
        }
        if !remove.is_empty() {
            self.strip(key, remove);
        } else if key.kind == wellknown::namespace() {
            self.look_at_namespace(key);
        }
    }

    fn strip(&mut self, key: &ObjectKey, remove: Vec<String>) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.forcing = true;
        let observed = marked(key, object);
        let (cluster, resource) = (self.cluster, &self.context.plan.queries[object.query].resource);
        let key = key.clone();
        self.requests.push(
            async move {
                let answer = cluster.remove_finalizers(resource, &observed, &remove).await;
                Answer::Strip(key, answer)
            }
            .boxed(),
        );
    }

    /// A CRD takes its instances along; it is they whose finalizers hold it.
    pub(super) fn strip_instance(&mut self, query: QueryId, key: ObjectKey, found: &Observed) {
        let remove = self.removable(&found.finalizers);
        if !found.deleting || remove.is_empty() {
            return;
        }
        let (cluster, resource, observed) = (self.cluster, self.resource(query), found.clone());
        self.requests.push(
            async move {
                let answer = cluster.remove_finalizers(resource, &observed, &remove).await;
                Answer::Strip(key, answer)
            }
            .boxed(),
        );
    }

    pub(super) fn stripped(&mut self, key: ObjectKey, answer: Result<RemoveAnswer, Error>) {
        if let Some(object) = self.objects.get_mut(&key) {
            object.forcing = false;
        }
        match answer {
            Ok(RemoveAnswer::Removed(finalizers)) => {
                if let Some(object) = self.objects.get_mut(&key) {
                    object.finalizers.retain(|f| !finalizers.contains(f));
                }
                self.removed(key, finalizers);
            }
            // The watch shows the list as it is now, and the stage goes on from there.
            Ok(RemoveAnswer::Gone | RemoveAnswer::NothingToDo) => {}
            Ok(RemoveAnswer::Changed) => {
                self.timers.insert(Due::Force(key), Duration::from_millis(200));
            }
            Err(error) => {
                let event = crate::Event::Refused {
                    node: self.node,
                    object: key.clone(),
                    message: error.message(),
                    retried: true,
                };
                self.context.emit(event);
                self.timers.insert(Due::Force(key), MAX_PAUSE);
            }
        }
    }

    /// Reads a Namespace that holds on to its `spec.finalizers`, to see whether its content is gone.
    fn look_at_namespace(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.forcing = true;
        let (cluster, resource, key) = (self.cluster, &self.context.plan.queries[object.query].resource, key.clone());
        self.requests.push(
            async move {
                let found = cluster.get(resource, &key).await;
                Answer::Namespace(key, found)
            }
            .boxed(),
        );
    }

    pub(super) fn looked_at_namespace(&mut self, key: ObjectKey, answer: Result<Option<Value>, Error>) {
        let declared =
            self.work.force.as_ref().is_some_and(|f| f.finalizers.iter().any(|f| f == wellknown::NAMESPACE_FINALIZER));
        let Some(object) = self.objects.get_mut(&key) else { return };
        object.forcing = false;
        match answer {
            Ok(Some(namespace)) if declared || is_emptied(&namespace) => {
                object.forcing = true;
                let (cluster, uid) = (self.cluster, object.uid.clone());
                let held = spec_finalizers(&namespace);
                let remove = if declared { self.removable(&held) } else { held };
                self.requests.push(
                    async move {
                        let answer = cluster.finalize_namespace(&key.name, &uid, &remove).await;
                        Answer::Strip(key, answer)
                    }
                    .boxed(),
                );
            }
            // Each change of its status is an event of the watch, and asks again.
            Ok(_) => {}
            Err(_) => {
                self.timers.insert(Due::Force(key), MAX_PAUSE);
            }
        }
    }
}

/// An object as the force stage needs it: with its `deletionTimestamp`, and its finalizers in order.
fn marked(key: &ObjectKey, object: &Object) -> Observed {
    Observed {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: object.uid.clone(),
        resource_version: String::new(),
        labels: std::collections::BTreeMap::new(),
        finalizers: object.finalizers.clone(),
        deleting: true,
        owners: Vec::new(),
    }
}

fn spec_finalizers(namespace: &Value) -> Vec<String> {
    let finalizers = namespace.pointer("/spec/finalizers").and_then(Value::as_array);
    finalizers.into_iter().flatten().filter_map(|f| f.as_str().map(str::to_owned)).collect()
}

/// Whether the namespace controller says that nothing is left in a Namespace, and only a failed discovery (a dead
/// aggregated API) keeps it. The conditions are written together after each sweep; missing ones prove nothing.
fn is_emptied(namespace: &Value) -> bool {
    let conditions = namespace.pointer("/status/conditions").and_then(Value::as_array);
    let status = |wanted: &str| {
        conditions
            .into_iter()
            .flatten()
            .find(|c| c.get("type").and_then(Value::as_str) == Some(wanted))
            .and_then(|c| c.get("status").and_then(Value::as_str))
    };
    ["NamespaceDeletionContentFailure", "NamespaceContentRemaining", "NamespaceFinalizersRemaining"]
        .iter()
        .all(|condition| status(condition) == Some("False"))
}
