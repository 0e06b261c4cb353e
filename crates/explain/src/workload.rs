//! Workloads that may be controllers, and whether they work.

use serde_json::Value;

use crate::{
    Fact, ObjectRef, ResponsibleState,
    case::{Case, Priority},
    kinds::{self, Builtin},
    object,
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

/// Looks at what runs in a namespace with a ServiceAccount without being a Deployment, StatefulSet or DaemonSet: a CronJob, or a Pod
/// of any other kind.
pub(crate) fn others<'a>(case: &Case<'a>, namespace: &str) -> (Workloads<'a>, Workloads<'a>) {
    let look = |kind: &Builtin| {
        let list = case.list(kind, Some(namespace), Priority::Controller);
        let all = list.items().iter().map(|value| Workload { object: reference(kind, value), value }).collect();
        Workloads { all, complete: list.is_complete() }
    };
    (look(&kinds::CRON_JOB), look(&kinds::POD))
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
        let template = match self.object.kind.as_str() {
            "CronJob" => "/spec/jobTemplate/spec/template/spec/serviceAccountName",
            "Pod" => "/spec/serviceAccountName",
            _ => "/spec/template/spec/serviceAccountName",
        };
        object::text(self.value, template).unwrap_or("default")
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
        if self.has_just_changed(case) {
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
    /// Returns whether its replicas became unavailable just now, as in a restart.
    fn has_just_changed(&self, case: &Case<'_>) -> bool {
        let conditions = object::list(self.value, "/status/conditions");
        let mut available = conditions.filter(|condition| object::text(condition, "/type") == Some("Available"));
        let since = available.next().and_then(|condition| object::time(condition, "/lastTransitionTime"));
        since.is_some_and(|since| case.seconds_since(since) < START)
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
