//! The force stage: finalizers are removed from objects that already carry a `deletionTimestamp`.

use billhook_cluster::{Error, Known, RemoveAnswer};
use billhook_objects::{ObjectKey, Uid, wellknown};
use billhook_plan::{Observed, QueryId};
use futures::FutureExt as _;
use serde_json::Value;

use super::{Answer, Deletion, Due, Forcing, MAX_PAUSE, Object, State};

impl Deletion<'_> {
    /// The finalizers of a list that the group's force stage removes.
    ///
    /// A CRD's cleanup finalizer is never among them: stripped of it, the CRD goes and its instances stay in storage (they
    /// come back with the next CRD of that name). Nor is `orphan`: the dependents that are to stay would be collected.
    /// `foregroundDeletion` is, once the deletion was graceful for a time or where it is named.
    fn removable(&self, finalizers: &[String]) -> Vec<String> {
        let Some(force) = &self.work.force else { return Vec::new() };
        let may = |name: &String| match name.as_str() {
            name if wellknown::is_never_removed(name) => false,
            wellknown::FOREGROUND_FINALIZER => force.finalizers.contains(name) || !force.after.0.is_zero(),
            _ => force.finalizers.is_empty() || force.finalizers.contains(name),
        };
        finalizers.iter().filter(|name| may(name)).cloned().collect()
    }

    /// Removes what may be removed from an object whose force stage has begun.
    pub(super) fn force(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key).filter(|o| o.state == State::Deleting) else { return };
        if self.stopping {
            return;
        }
        if object.forcing != Forcing::Idle {
            object.forcing = Forcing::Again;
            return;
        }
        let instances = object.instances;
        let finalizers = object.finalizers.clone();
        if let Some(instances) = instances
            && self.instance_queries.insert(instances)
        {
            // Nothing is known of them, so that the watch begins with a list: instances whose deletion was under way
            // before show no further change.
            self.watch(instances, Known::default());
        }
        let remove = self.removable(&finalizers);
        if !remove.is_empty() {
            self.strip(key, remove);
        } else if key.kind == wellknown::namespace() {
            self.look_at_namespace(key);
        }
    }

    /// A CRD takes its instances along; it is they whose finalizers hold it.
    pub(super) fn instance(&mut self, query: QueryId, key: ObjectKey, found: Observed) {
        if !found.deleting {
            return;
        }
        let former = self.objects.get(&key).filter(|object| object.uid == found.uid);
        let object = Object {
            uid: found.uid,
            query,
            state: State::Deleting,
            finalizers: found.finalizers,
            instances: None,
            attempts: 0,
            forced: true,
            forcing: former.map_or(Forcing::Idle, |object| object.forcing),
            said: former.map(|object| object.said.clone()).unwrap_or_default(),
            instance: true,
        };
        self.objects.insert(key.clone(), object);
        self.force(&key);
    }

    fn strip(&mut self, key: &ObjectKey, remove: Vec<String>) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.forcing = Forcing::Running;
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

    pub(super) fn stripped(&mut self, key: ObjectKey, answer: Result<RemoveAnswer, Error>) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let again = std::mem::replace(&mut object.forcing, Forcing::Idle) == Forcing::Again;
        match answer {
            Ok(RemoveAnswer::Removed(finalizers)) => {
                object.finalizers.retain(|f| !finalizers.contains(f));
                self.removed(key.clone(), finalizers);
                self.force(&key);
            }
            Ok(RemoveAnswer::Changed) => self.look(key),
            Ok(RemoveAnswer::Gone | RemoveAnswer::NothingToDo) => {
                if again {
                    self.force(&key);
                }
            }
            Err(error) => self.not_forced(key, &error),
        }
    }

    /// A request of the force stage failed: it is said once and tried again.
    fn not_forced(&mut self, key: ObjectKey, error: &Error) {
        let Some(object) = self.objects.get_mut(&key) else { return };
        let message = error.message();
        let uid = object.uid.clone();
        if object.said != message {
            object.said.clone_from(&message);
            let object = key.clone();
            self.context.emit(crate::Event::Refused { node: self.node, object, message, retried: true });
        }
        self.timers.insert(Due::Force(key, uid), MAX_PAUSE);
    }

    /// Reads a Namespace that holds on to its `spec.finalizers`, to see whether its content is gone.
    fn look_at_namespace(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get_mut(key) else { return };
        object.forcing = Forcing::Running;
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
        let again = std::mem::replace(&mut object.forcing, Forcing::Idle) == Forcing::Again;
        let uid = object.uid.clone();
        match answer {
            Ok(Some(namespace)) if declared || is_emptied(&namespace) => {
                let remove = self.removable(&spec_finalizers(&namespace));
                if !remove.is_empty() {
                    self.finalize(key, uid, remove);
                }
            }
            // Each change of its status is an event of the watch, and asks again.
            Ok(_) => {
                if again {
                    self.force(&key);
                }
            }
            Err(error) => self.not_forced(key, &error),
        }
    }

    fn finalize(&mut self, key: ObjectKey, uid: Uid, remove: Vec<String>) {
        if let Some(object) = self.objects.get_mut(&key) {
            object.forcing = Forcing::Running;
        }
        let cluster = self.cluster;
        self.requests.push(
            async move {
                let answer = cluster.finalize_namespace(&key.name, &uid, &remove).await;
                Answer::Strip(key, answer)
            }
            .boxed(),
        );
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
