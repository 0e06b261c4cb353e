//! Workloads that may be controllers, and whether they work.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Fact, ObjectRef, ResponsibleState,
    case::{Case, Priority},
    kinds::{self, Builtin},
    known::plain,
    object, selector,
};

/// For how many seconds a workload may be unavailable in a restart.
const START: i64 = 120;

/// A Deployment, StatefulSet or DaemonSet.
#[derive(Clone)]
pub(crate) struct Workload<'a> {
    pub(crate) object: ObjectRef,
    pub(crate) value: &'a Value,
}

/// The workloads of the cluster.
pub(crate) struct Workloads<'a> {
    pub(crate) all: Vec<Workload<'a>>,
    /// Whether there are no others.
    pub(crate) complete: bool,
}

/// Whether a workload works, and the evidence.
pub(crate) struct Health {
    pub(crate) state: ResponsibleState,
    /// What is missing, for people; empty if it works.
    pub(crate) problem: String,
    pub(crate) facts: Vec<Fact>,
}

/// Looks at all workloads.
pub(crate) fn workloads<'a>(case: &Case<'a>) -> Workloads<'a> {
    let mut found = Workloads { all: Vec::new(), complete: true };
    for kind in [&kinds::DEPLOYMENT, &kinds::STATEFUL_SET, &kinds::DAEMON_SET] {
        let list = case.list(kind, None, Priority::Controller);
        found.complete &= list.is_complete();
        found.all.extend(list.items().iter().map(|value| Workload { object: reference(kind, value), value }));
    }
    found
}

fn reference(kind: &Builtin, value: &Value) -> ObjectRef {
    kind.named(object::namespace(value), object::name(value))
}

impl<'a> Workload<'a> {
    pub(crate) fn namespace(&self) -> &'a str {
        object::namespace(self.value).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &'a str {
        object::name(self.value)
    }

    /// Returns the ServiceAccount of its Pods.
    pub(crate) fn account(&self) -> &'a str {
        object::text(self.value, "/spec/template/spec/serviceAccountName").unwrap_or("default")
    }

    /// Returns the labels of its Pods.
    pub(crate) fn pod_labels(&self) -> &'a Value {
        self.value.pointer("/spec/template/metadata/labels").unwrap_or(&Value::Null)
    }

    /// Returns a label of the workload or of its Pods.
    pub(crate) fn label(&self, key: &str) -> Option<&'a str> {
        object::label(self.value, key).or_else(|| self.pod_labels().get(key)?.as_str())
    }

    /// Returns whether it goes by a name: its own, that of a container, or that of the program in it. A field manager is by
    /// default the name of the program.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        let container = |container: &Value| {
            let image = object::text(container, "/image").map(image_name);
            let program = object::texts(container, "/command").next().map(base_name);
            object::text(container, "/name") == Some(name) || image == Some(name) || program == Some(name)
        };
        self.name() == name || object::list(self.value, "/spec/template/spec/containers").any(container)
    }

    /// Returns whether its containers or volumes name a CSI driver, whose name has dashes in place of other characters.
    pub(crate) fn names_driver(&self, driver: &str) -> bool {
        let names = |text: &str| {
            let mut words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-');
            words.any(|word| plain(word) == driver)
        };
        let in_container = |container: &Value| {
            let env = object::list(container, "/env").filter_map(|env| object::text(env, "/value"));
            object::texts(container, "/args").chain(object::texts(container, "/command")).chain(env).any(names)
        };
        let in_volume = |volume: &Value| object::text(volume, "/hostPath/path").is_some_and(names);
        object::list(self.value, "/spec/template/spec/containers").any(in_container)
            || object::list(self.value, "/spec/template/spec/volumes").any(in_volume)
    }

    /// Returns whether it works, by its replicas.
    pub(crate) fn health(&self, case: &Case<'_>) -> Health {
        let number = |pointer: &str| self.value.pointer(pointer).and_then(Value::as_i64);
        let is_daemon = self.object.kind == "DaemonSet";
        let (wanted, available, path) = if is_daemon {
            let path = "status.numberAvailable";
            (number("/status/desiredNumberScheduled").unwrap_or(0), number("/status/numberAvailable"), path)
        } else {
            let path = "status.availableReplicas";
            (number("/spec/replicas").unwrap_or(1), number("/status/availableReplicas"), path)
        };
        let available = available.unwrap_or(0);
        let health = |state, problem: String, fact: Fact| Health { state, problem, facts: vec![fact] };
        if object::is_deleting(self.value) {
            let time = object::text(self.value, "/metadata/deletionTimestamp").unwrap_or_default();
            let fact = Fact::new(&self.object, "metadata.deletionTimestamp", time);
            return health(ResponsibleState::Absent, "it is being deleted".to_owned(), fact);
        }
        if wanted == 0 && !is_daemon {
            let fact = Fact::new(&self.object, "spec.replicas", "0");
            return health(ResponsibleState::Absent, "it is scaled to 0".to_owned(), fact);
        }
        let fact = Fact::new(&self.object, path, format!("{available} of {wanted}"));
        if available > 0 {
            return health(ResponsibleState::Working, String::new(), fact);
        }
        if wanted == 0 {
            return health(ResponsibleState::Absent, "no node is to run it".to_owned(), fact);
        }
        if self.has_just_changed(case) != Some(false) {
            return health(ResponsibleState::Unknown, "it is being started".to_owned(), fact);
        }
        let why = object::conditions(self.value)
            .filter(|c| (c.kind() == "ReplicaFailure" && c.is_true()) || (c.kind() == "Progressing" && c.is_false()))
            .map(|condition| Fact::new(&self.object, condition.path(), condition.shown()));
        let facts: Vec<_> = std::iter::once(fact).chain(why).collect();
        let detail = facts.get(1).map(|fact| format!(" ({})", fact.value)).unwrap_or_default();
        let problem = format!("none of its {wanted} replicas is available{detail}");
        Health { state: ResponsibleState::Failing, problem, facts }
    }

    /// Returns why a container of its Pods does not run, such as `CrashLoopBackOff`.
    pub(crate) fn waiting(&self, case: &Case<'_>) -> Option<Fact> {
        let wanted = self.pod_labels().as_object().filter(|labels| !labels.is_empty())?;
        let is_own = |pod: &&Value| wanted.iter().all(|(key, label)| object::label(pod, key) == label.as_str());
        let pods = case.list(&kinds::POD, Some(self.namespace()), Priority::Detail).items();
        pods.iter().filter(is_own).find_map(waiting_container)
    }
}

/// Returns why a container of a Pod waits.
fn waiting_container(pod: &Value) -> Option<Fact> {
    let statuses =
        object::list(pod, "/status/initContainerStatuses").chain(object::list(pod, "/status/containerStatuses"));
    let waiting = |status: &Value| {
        let reason = object::text(status, "/state/waiting/reason")?;
        // A container that is only being created is no failure.
        if ["ContainerCreating", "PodInitializing"].contains(&reason) {
            return None;
        }
        let messages = ["/lastState/terminated/message", "/state/waiting/message"];
        let message = messages.iter().find_map(|path| object::text(status, path)).map(|text| format!(": {text}"));
        let pod = kinds::POD.named(object::namespace(pod), object::name(pod));
        let path = "status.containerStatuses[].state.waiting";
        Some(Fact::new(&pod, path, format!("{reason}{}", message.unwrap_or_default())))
    };
    statuses.filter_map(waiting).next()
}

impl Workload<'_> {
    /// Returns whether its replicas became unavailable just now, as in a restart; none if that is not known. Only Deployments have a
    /// condition that tells; of others, the youngest Pod does.
    fn has_just_changed(&self, case: &Case<'_>) -> Option<bool> {
        let is_young = |since: Timestamp| case.seconds_since(since) < START;
        if self.object.kind == "Deployment" {
            return Some(self.time_of("Available", "/lastTransitionTime").is_some_and(is_young));
        }
        let pods = case.list(&kinds::POD, Some(self.namespace()), Priority::Controller);
        let own = |pod: &&Value| {
            let labels = pod.pointer("/metadata/labels").unwrap_or(&Value::Null);
            selector::matches(self.value.pointer("/spec/selector"), labels)
        };
        let own: Vec<_> = pods.items().iter().filter(own).collect();
        if own.is_empty() && !pods.is_complete() {
            return None;
        }
        Some(own.into_iter().filter_map(|pod| object::time(pod, "/metadata/creationTimestamp")).any(is_young))
    }

    /// Returns whether it was created, or its replicas replaced, after some time.
    pub(crate) fn has_changed_since(&self, time: Timestamp) -> bool {
        let created = object::time(self.value, "/metadata/creationTimestamp");
        let available = self.time_of("Available", "/lastTransitionTime");
        // The end of a roll-out, at which the former replicas stop.
        let replaced = self.time_of("Progressing", "/lastUpdateTime");
        [created, available, replaced].into_iter().flatten().any(|at| at > time)
    }

    /// Returns a time of a condition.
    fn time_of(&self, kind: &str, pointer: &str) -> Option<Timestamp> {
        let mut conditions = object::list(self.value, "/status/conditions");
        conditions
            .find(|condition| object::text(condition, "/type") == Some(kind))
            .and_then(|c| object::time(c, pointer))
    }
}

/// Returns the last part of an image's path, without tag and digest.
fn image_name(image: &str) -> &str {
    let name = base_name(image);
    name.split(['@', ':']).next().unwrap_or(name)
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
