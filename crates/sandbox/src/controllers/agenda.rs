//! The work of the controllers, and which work a change causes.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use super::{
    queue::Queue,
    work::{Task, Work},
};
use crate::{
    kinds::{CRD_CLEANUP, ResourceId},
    object::{FOREGROUND, ORPHAN, Owner, metadata_mut},
    options::Options,
    store::Change,
    webhooks::Memory,
};

/// The service account that every namespace gets.
pub(super) const DEFAULT_ACCOUNT: &str = "default";

/// The finalizer by which the Job controller tracks Pods.
pub(super) const JOB_TRACKING: &str = "batch.kubernetes.io/job-tracking";

/// What the controllers have to do, and what they remember between two steps.
#[derive(Debug)]
pub(crate) struct Controllers {
    reaction: Duration,
    assume_backends: bool,
    namespace_delay: Duration,
    pub(super) queue: Queue,
    /// The definitions whose instances are being deleted, and until when the controller waits for them.
    pub(super) cleanups: BTreeMap<Box<str>, Instant>,
    /// The definitions whose kinds are served.
    pub(super) served: HashMap<Box<str>, ServedDefinition>,
    /// When the last pod of a Job (a UID) failed.
    pub(super) failed_jobs: HashMap<Box<str>, Instant>,
    /// The names that definitions have.
    pub(super) names: BTreeMap<Box<str>, DefinitionNames>,
    /// The namespaces that have had PodDisruptionBudgets.
    budgets: BTreeSet<Box<str>>,
    /// The work that waits for webhooks, until they are called.
    pub(crate) waiting: Vec<Waiting>,
    /// The work whose webhooks have not answered yet.
    asking: HashSet<Work>,
    /// What webhooks have answered to work that is due again.
    answered: HashMap<Work, Memory>,
    /// The work that became due while the controllers were paused; none while they run.
    put_off: Option<Vec<Work>>,
}

/// Work that waits for webhooks.
#[derive(Debug)]
pub(crate) struct Waiting {
    work: Work,
    pub(crate) memory: Memory,
}

/// The state of a definition that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedDefinition {
    pub(super) uid: Box<str>,
    pub(super) generation: u64,
    pub(super) resource: ResourceId,
}

/// The names of a definition.
#[derive(Clone, Debug)]
pub(super) struct DefinitionNames {
    pub(super) accepted: Value,
    /// Whether it requests names that were not accepted.
    pub(super) wanting: bool,
}

impl Controllers {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            reaction: options.reaction,
            assume_backends: options.assume_backends,
            namespace_delay: options.namespace_delay,
            queue: Queue::default(),
            cleanups: BTreeMap::new(),
            served: HashMap::new(),
            failed_jobs: HashMap::new(),
            names: BTreeMap::new(),
            budgets: BTreeSet::new(),
            waiting: Vec::new(),
            asking: HashSet::new(),
            answered: HashMap::new(),
            put_off: None,
        }
    }

    /// Pauses the controllers, or lets them do everything that became due meanwhile.
    pub(crate) fn pause(&mut self, pause: bool, now: Instant) {
        if pause {
            self.put_off.get_or_insert_default();
            return;
        }
        for work in self.put_off.take().unwrap_or_default() {
            self.queue.add(work, now);
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.put_off.is_some()
    }

    /// Keeps work until the controllers run again.
    pub(super) fn put_off(&mut self, work: Work) {
        self.put_off.get_or_insert_default().push(work);
    }

    /// Puts work aside that waits for webhooks.
    pub(super) fn wait(&mut self, work: Work, memory: Memory) {
        self.asking.insert(work.clone());
        self.waiting.push(Waiting { work, memory });
    }

    /// Returns whether a work item waits for webhooks. It will be repeated anyway.
    pub(super) fn is_asking(&self, work: &Work) -> bool {
        !self.asking.is_empty() && self.asking.contains(work)
    }

    /// Repeats work, with the answers of the webhooks for which it waited.
    pub(crate) fn resume(&mut self, Waiting { work, memory }: Waiting, now: Instant) {
        self.asking.remove(&work);
        self.answered.insert(work.clone(), memory);
        self.queue.add(work, now);
    }

    /// Returns what webhooks have answered to a work item.
    pub(super) fn memory_of(&mut self, work: &Work) -> Memory {
        if self.answered.is_empty() { Memory::default() } else { self.answered.remove(work).unwrap_or_default() }
    }

    /// Returns when the next work is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.queue.next()
    }

    /// Adds work on the APIServices that refer to a Service.
    pub(crate) fn reconsider_api_services(&mut self, namespace: &str, service: &str, now: Instant) {
        self.add_named(Task::ApiServices, namespace, service, now);
    }

    pub(super) fn add_named(&mut self, task: Task, namespace: &str, name: &str, due: Instant) {
        self.queue.add(Work::new(task, namespace, name), due);
    }

    /// Adds work on the object of a change.
    fn add(&mut self, task: Task, change: &Change, due: Instant) {
        self.add_named(task, &change.last.namespace, &change.last.name, due);
    }

    /// Adds the work that a change causes.
    pub(crate) fn observe(&mut self, resource: &ResourceId, change: &Change, now: Instant) {
        let due = now + self.reaction;
        self.observe_references(resource, change, due);
        match (&*resource.group, &*resource.plural) {
            ("", "namespaces") => match &change.after {
                Some(namespace) if namespace.deleting => self.add(Task::Namespace, change, now + self.namespace_delay),
                Some(_) => self.add(Task::Account, change, due),
                None => {}
            },
            ("", "serviceaccounts") if change.after.is_none() && &*change.last.name == DEFAULT_ACCOUNT => {
                self.add_named(Task::Account, "", &change.last.namespace, due);
            }
            ("", "services") => self.add(Task::ApiServices, change, due),
            ("", "persistentvolumeclaims") => self.add(Task::Claim, change, due),
            ("", "persistentvolumes") => self.add(Task::Volume, change, due),
            ("", "pods") => self.observe_pod(change, due),
            ("apiregistration.k8s.io", "apiservices") => self.add(Task::ApiService, change, due),
            ("discovery.k8s.io", "endpointslices") => {
                if let Some(service) = change.last.label("kubernetes.io/service-name") {
                    self.add_named(Task::ApiServices, &change.last.namespace, service, due);
                }
            }
            ("apps", "deployments") => self.add(Task::Deployment, change, due),
            ("apps", "replicasets") => {
                self.add(Task::ReplicaSet, change, due);
                self.observe_workload_owners(change, due);
            }
            ("batch", "jobs") => self.add(Task::Job, change, due),
            ("policy", "poddisruptionbudgets") => {
                self.budgets.insert(change.last.namespace.clone());
                self.add_named(Task::Disruption, &change.last.namespace, "", due);
            }
            ("apiextensions.k8s.io", "customresourcedefinitions") => self.observe_definition(change, due),
            _ => {}
        }
    }

    /// Adds work for the garbage collector, which ignores Events.
    fn observe_references(&mut self, resource: &ResourceId, change: &Change, due: Instant) {
        if &*resource.plural == "events" && matches!(&*resource.group, "" | "events.k8s.io") {
            return;
        }
        let mut add = |task, uid: &str| self.queue.add(Work::new(task, "", uid), due);
        let Some(new) = change.after.as_deref() else {
            add(Task::Dependents, &change.last.uid);
            change.last.owners.iter().for_each(|owner| add(Task::Unblock, &owner.uid));
            return;
        };
        let old = change.before.as_deref();
        let owners = old.map(|old| &*old.owners).unwrap_or_default();
        if *owners != *new.owners {
            add(Task::References, &new.uid);
            let blocks = |owners: &[Owner], uid: &str| owners.iter().any(|owner| *owner.uid == *uid && owner.blocks);
            let unblocked = owners.iter().filter(|owner| owner.blocks && !blocks(&new.owners, &owner.uid));
            unblocked.for_each(|owner| add(Task::Unblock, &owner.uid));
        }
        let starts = |finalizer: &str| new.waits_for(finalizer) && !old.is_some_and(|old| old.waits_for(finalizer));
        if starts(ORPHAN) {
            add(Task::Orphan, &new.uid);
        } else if starts(FOREGROUND) {
            add(Task::Dependents, &new.uid);
            add(Task::Unblock, &new.uid);
        }
    }

    fn observe_pod(&mut self, change: &Change, due: Instant) {
        // A Pod that is being deleted may be the last one that uses a claim.
        if change.after.as_ref().is_none_or(|pod| pod.deleting) {
            self.add_named(Task::Claims, &change.last.namespace, "", due);
            if self.assume_backends {
                self.add_named(Task::Endpoints, &change.last.namespace, "", due);
            }
        }
        self.observe_workload_owners(change, due);
        if self.budgets.contains(&change.last.namespace) {
            self.add_named(Task::Disruption, &change.last.namespace, "", due);
        }
        let mut finalizers = change.after.iter().flat_map(|pod| &pod.finalizers);
        if finalizers.any(|finalizer| **finalizer == *JOB_TRACKING) {
            self.add(Task::JobPod, change, due);
        }
    }

    /// Adds work on the workloads that own an object, owned it before, or could adopt it.
    fn observe_workload_owners(&mut self, change: &Change, due: Instant) {
        let Change { before, after, last, .. } = change;
        let states = before.iter().chain(after);
        for owner in states.flat_map(|object| &object.owners) {
            let task = match (&*owner.api_version, &*owner.kind) {
                ("apps/v1", "Deployment") => Task::Deployment,
                ("apps/v1", "ReplicaSet") => Task::ReplicaSet,
                ("batch/v1", "Job") => Task::Job,
                _ => continue,
            };
            self.add_named(task, &last.namespace, &owner.name, due);
        }
        if after.as_ref().is_some_and(|object| object.owners.is_empty()) {
            self.add_named(Task::Adopt, &last.namespace, "", due);
        }
    }

    fn observe_definition(&mut self, change: &Change, due: Instant) {
        let Some(new) = &change.after else {
            return self.add(Task::Unserve, change, due);
        };
        self.add(Task::Definition, change, due);
        let differs = |old: Value| without_cleanup(old) != without_cleanup(new.value());
        if new.waits_for(CRD_CLEANUP) && change.before.as_ref().is_none_or(|old| differs(old.value())) {
            self.add(Task::Cleanup, change, due);
        }
    }
}

/// Returns a definition without the fields that its clean-up writes.
fn without_cleanup(mut definition: Value) -> Value {
    if let Some(conditions) = definition["status"]["conditions"].as_array_mut() {
        conditions.retain(|condition| condition["type"] != "Terminating");
    }
    let metadata = metadata_mut(&mut definition);
    metadata.remove("resourceVersion");
    metadata.remove("managedFields");
    definition
}
