//! The controllers of a cluster that deletion depends on.
//!
//! Each change is noted in one queue of work items with due times, as controllers of a real cluster note it in theirs;
//! what is due is then done step by step. Nothing waits and nothing runs beside: the same changes give the same course.

mod accounts;
mod api_services;
mod bootstrap;
mod conditions;
mod definitions;
mod garbage;
mod namespaces;
mod protection;
mod queue;
mod workloads;

#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use crate::{
    kinds::{Kind, ResourceId},
    object::{Stored, meta_list, metadata_mut},
    options::Options,
    state::State,
    status::ApiError,
    store::{Change, ObjectId},
    verbs::{Writer, update},
};
use queue::Queue;

pub(crate) use bootstrap::bootstrap;
pub(crate) use definitions::is_terminating;

/// What is to be done with an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Task {
    /// Look whether the owners of an object (a UID) are what they should be.
    References,
    /// Look whether an object (a UID) is garbage, or whether what it waits for is gone.
    Collect,
    /// Look only whether what an object (a UID) waits for is gone.
    Unblock,
    /// Look at all dependents of an object (a UID).
    Dependents,
    /// Make an object (a UID) the owner of nothing.
    Orphan,
    /// Empty a namespace that is being deleted.
    Namespace,
    /// Give a namespace its service account.
    Account,
    /// Accept a definition's names, and serve its kind.
    Definition,
    /// Reconsider the names of all definitions of a group, because some are free again.
    Names,
    /// Delete the objects of a definition that is being deleted.
    Cleanup,
    /// Look whether they are gone.
    CleanupPoll,
    /// Serve the kind of a definition that is gone no longer.
    Unserve,
    Claim,
    /// All claims of a namespace.
    Claims,
    Volume,
    Deployment,
    ReplicaSet,
    Job,
    /// Whatever in a namespace could take in what has lost its owner.
    Adopt,
    JobPod,
    /// Look whether the Service of an APIService is there.
    ApiService,
    /// The same for all that point to a Service.
    ApiServices,
}

/// A task and the object that it is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Work {
    task: Task,
    namespace: Box<str>,
    name: Box<str>,
}

impl Work {
    fn new(task: Task, namespace: &str, name: &str) -> Self {
        Self { task, namespace: namespace.into(), name: name.into() }
    }
}

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Done,
    /// The same once more, later.
    After(Duration),
    /// It could not be done: once more, at growing intervals.
    Retry,
}

type Step = Result<Next, ApiError>;

/// What the controllers still have to do.
#[derive(Debug)]
pub(crate) struct Controllers {
    reaction: Duration,
    namespace_delay: Duration,
    queue: Queue,
    /// Definitions whose objects are waited for, and until when.
    cleanups: BTreeMap<Box<str>, Instant>,
    /// The definitions whose kinds are served, each with its UID and generation.
    served: HashMap<Box<str>, definitions::Served>,
    /// When the last pod of a Job (a UID) failed.
    failed_jobs: HashMap<Box<str>, Instant>,
    /// The names that definitions have.
    names: BTreeMap<Box<str>, definitions::Names>,
}

impl Controllers {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            reaction: options.reaction,
            namespace_delay: options.namespace_delay,
            queue: Queue::default(),
            cleanups: BTreeMap::new(),
            served: HashMap::new(),
            failed_jobs: HashMap::new(),
            names: BTreeMap::new(),
        }
    }

    /// Takes note of a change.
    pub(crate) fn observe(&mut self, resource: &ResourceId, change: &Change, now: Instant) {
        let due = now + self.reaction;
        garbage::observe(self, resource, change, due);
        match (&*resource.group, &*resource.plural) {
            ("", "namespaces") => {
                namespaces::observe(self, change, now);
                accounts::observe_namespace(self, change, due);
            }
            ("", "serviceaccounts") => accounts::observe_account(self, change, due),
            ("", "services") => self.add(Task::ApiServices, change, due),
            ("", "persistentvolumeclaims") => self.add(Task::Claim, change, due),
            ("", "persistentvolumes") => self.add(Task::Volume, change, due),
            ("", "pods") => {
                protection::observe_pod(self, change, due);
                workloads::observe_pod(self, change, due);
            }
            ("apiregistration.k8s.io", "apiservices") => self.add(Task::ApiService, change, due),
            ("discovery.k8s.io", "endpointslices") => api_services::observe_slice(self, change, due),
            ("apps", "deployments") => self.add(Task::Deployment, change, due),
            ("apps", "replicasets") => workloads::observe_replica_set(self, change, due),
            ("batch", "jobs") => self.add(Task::Job, change, due),
            ("apiextensions.k8s.io", "customresourcedefinitions") => definitions::observe(self, change, due),
            _ => {}
        }
    }

    /// When there is something to do next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.next()
    }

    /// Something is to be done with the object of a change.
    fn add(&mut self, task: Task, change: &Change, due: Instant) {
        self.queue.add(Work::new(task, &change.last.namespace, &change.last.name), due);
    }

    fn add_named(&mut self, task: Task, namespace: &str, name: &str, due: Instant) {
        self.queue.add(Work::new(task, namespace, name), due);
    }
}

/// Does what is due.
pub(crate) fn run_due(state: &mut State, now: Instant) {
    while let Some(work) = state.controllers.queue.take(now) {
        match perform(state, &work, now) {
            Ok(Next::Done) => state.controllers.queue.forget(&work),
            Ok(Next::After(delay)) => {
                state.controllers.queue.forget(&work);
                state.controllers.queue.add(work, now + delay);
            }
            // What is gone needs nothing any more.
            Err(error) if error.code == http::StatusCode::NOT_FOUND => state.controllers.queue.forget(&work),
            Ok(Next::Retry) | Err(_) => state.controllers.queue.retry(work, now),
        }
    }
}

fn perform(state: &mut State, work: &Work, now: Instant) -> Step {
    let (namespace, name) = (&*work.namespace, &*work.name);
    match work.task {
        Task::References => garbage::check_references(state, name),
        Task::Collect => garbage::collect(state, name, now),
        Task::Unblock => garbage::unblock(state, name, now),
        Task::Dependents => garbage::dependents(state, name, now),
        Task::Orphan => garbage::orphan(state, name),
        Task::Namespace => namespaces::sync(state, name),
        Task::Account => accounts::sync(state, name),
        Task::Definition => definitions::sync(state, name),
        Task::Names => definitions::reconsider(state, name, now),
        Task::Cleanup => definitions::clean_up(state, name, now),
        Task::CleanupPoll => definitions::poll(state, name, now),
        Task::Unserve => definitions::unserve(state, name, now),
        Task::Claim => protection::sync_claim(state, namespace, name),
        Task::Claims => protection::sync_claims(state, namespace, now),
        Task::Volume => protection::sync_volume(state, name),
        Task::Deployment => workloads::deployments::sync(state, namespace, name),
        Task::ReplicaSet => workloads::replica_sets::sync(state, namespace, name),
        Task::Job => workloads::jobs::sync(state, namespace, name),
        Task::Adopt => workloads::adopt(state, namespace, now),
        Task::ApiService => api_services::sync(state, name),
        Task::ApiServices => api_services::of_service(state, namespace, name, now),
        Task::JobPod => workloads::jobs::sync_pod(state, namespace, name),
    }
}

/// A controller that speaks the version of a kind that clients prefer.
fn writer(kind: &Arc<Kind>, controller: &str) -> Writer {
    let mut writer = Writer::controller(kind, controller);
    if let Some(preferred) = kind.versions.iter().position(|version| version.served) {
        writer.version = preferred;
    }
    writer
}

/// Changes an object; a change that changes nothing is not written. What is gone is fine.
fn edit(state: &mut State, id: &ObjectId, controller: &str, change: impl FnOnce(&mut Value)) -> Result<(), ApiError> {
    edit_part(state, id, controller, None, change)
}

/// The same for its status, whereupon the rest of the object stays as it is.
fn edit_status(
    state: &mut State,
    id: &ObjectId,
    controller: &str,
    change: impl FnOnce(&mut Value),
) -> Result<(), ApiError> {
    edit_part(state, id, controller, Some("status"), change)
}

fn edit_part(
    state: &mut State,
    id: &ObjectId,
    controller: &str,
    subresource: Option<&str>,
    change: impl FnOnce(&mut Value),
) -> Result<(), ApiError> {
    let Some(stored) = state.store.get_id(id) else { return Ok(()) };
    let Some(kind) = state.kinds.get(&id.resource) else { return Err(not_served(&id.resource)) };
    let mut writer = writer(kind, controller);
    writer.subresource = subresource.map(str::to_owned);
    let mut object = stored.value();
    object["apiVersion"] = writer.api_version().into();
    let old = object.clone();
    change(&mut object);
    if object != old {
        update(state, &writer, &id.namespace, &id.name, object)?;
    }
    Ok(())
}

/// A kind that is not served now may be served again.
fn not_served(resource: &ResourceId) -> ApiError {
    ApiError::internal(format!("{resource} is not served"))
}

fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let kept: Vec<Value> =
        meta_list(object, "finalizers").filter(|known| *known != finalizer).map(Value::from).collect();
    metadata_mut(object).insert("finalizers".to_owned(), kept.into());
}

fn add_finalizer(object: &mut Value, finalizer: &str) {
    if !has_finalizer(object, finalizer) {
        let mut finalizers: Vec<Value> = meta_list(object, "finalizers").map(Value::from).collect();
        finalizers.push(finalizer.into());
        metadata_mut(object).insert("finalizers".to_owned(), finalizers.into());
    }
}

fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    meta_list(object, "finalizers").any(|known| known == finalizer)
}

/// Where the object of a namespace lies.
fn id(group: &str, plural: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(&ResourceId::new(group, plural), namespace, name)
}

/// The objects of a namespace.
fn objects(state: &State, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Stored>> {
    state.store.list(&ResourceId::new(group, plural), Some(namespace)).cloned().collect()
}

/// The object that lies there.
fn load(state: &State, id: &ObjectId) -> Option<Value> {
    state.store.get_id(id).map(|stored| stored.value())
}
