//! Who removes a finalizer, and whether that party works.
//!
//! Two sources: the reviewed facts in `finalizers.yaml`, and for all other finalizers the traces that a controller leaves in the
//! cluster: the field manager that set the finalizer, ServiceAccounts whose roles name the API group, the Services of the
//! group's webhooks, the release that installed its CRD, and Leases.

mod lease;
mod party;
mod traces;

use serde_json::Value;

pub use self::lease::is_lease_fresh;
pub(crate) use self::party::Controller;
use self::{
    lease::{Leases, Renewal},
    traces::Traces,
};
use crate::{
    Fact, ObjectRef, ResponsibleState,
    case::{Case, Priority},
    cause::Strength,
    kinds,
    known::known,
    object, steps,
    workload::{Workload, Workloads, others, workloads},
};

/// Field managers that say nothing about a controller: tools, and names that are used when a program has none.
const TOOLS: [&str; 12] = [
    "kubectl",
    "helm",
    "manager",
    "main",
    "unknown",
    "before-first-apply",
    "Go-http-client",
    "curl",
    "python-requests",
    "OpenAPI-Generator",
    "billhook",
    "node-fetch",
];
/// How many seconds after a deletion a controller is called absent without a trace that it existed in the cluster.
const PATIENCE: i64 = 60;

/// Returns the controller that removes a finalizer of an object; none if the evidence does not tell.
pub(crate) fn in_charge(case: &Case<'_>, reference: &ObjectRef, value: &Value, finalizer: &str) -> Option<Controller> {
    let facts = known(finalizer);
    if let Some(known) = facts.filter(|known| !known.component.is_empty()) {
        return Some(component(case, &known.component));
    }
    let manager = manager(value, finalizer);
    let workloads = workloads(case);
    let leases = Leases::look(case);
    let traces = Traces::look(case, reference, &object::finalizers(value), finalizer, facts, manager);
    match best(case, &workloads, &traces, reference).as_slice() {
        [workload] => Some(judge(case, workload, &leases)),
        [] => without_workload(case, value, &workloads, &leases, &traces),
        several => Some(one_of(case, several)),
    }
}

/// Returns the field manager that set a finalizer, unless it is a tool.
pub(crate) fn manager<'a>(value: &'a Value, finalizer: &str) -> Option<&'a str> {
    let (manager, _) = object::manager_of(value, finalizer)?;
    let is_tool = TOOLS.iter().any(|tool| {
        manager == *tool || manager.starts_with(&format!("{tool}-")) || manager.starts_with(&format!("{tool}/"))
    });
    (!is_tool).then_some(manager)
}

/// Returns a part of the control plane, by its Lease. Hosted control planes have none, which proves nothing.
pub(crate) fn component(case: &Case<'_>, name: &str) -> Controller {
    let unknown =
        Controller { of_control_plane: true, ..Controller::new(name, ResponsibleState::Unknown, Strength::Possible) };
    if name == "kube-apiserver" {
        return Controller { state: ResponsibleState::Working, strength: Strength::Proven, ..unknown };
    }
    let Some(lease) = case.builtin(&kinds::LEASE, Some("kube-system"), name, Priority::Controller).value() else {
        return unknown;
    };
    match lease::renewal(case, lease) {
        Some(Renewal { fresh: true, fact, .. }) => {
            let known = Controller { state: ResponsibleState::Working, strength: Strength::Proven, ..unknown };
            Controller { facts: vec![fact], ..known }
        }
        Some(Renewal { fresh: false, fact, seconds }) => Controller {
            state: ResponsibleState::Failing,
            strength: Strength::Proven,
            problem: format!("it has not renewed its Lease for {}", crate::text::duration(seconds)),
            facts: vec![fact],
            ..unknown
        },
        None => unknown,
    }
}

/// Returns the workloads with the most traces. Of equals that all work, or all do not, one is enough.
fn best<'w, 'a>(
    case: &Case<'a>,
    workloads: &'w Workloads<'a>,
    traces: &Traces<'a>,
    reference: &ObjectRef,
) -> Vec<&'w Workload<'a>> {
    let namesakes = traces.namesakes(&workloads.all);
    let scored = workloads.all.iter().map(|workload| (traces.score(case, workload, reference, namesakes), workload));
    let scored: Vec<_> = scored.filter(|(score, _)| *score >= traces::ENOUGH).collect();
    let most = scored.iter().map(|(score, _)| *score).max();
    let mut best: Vec<_> =
        scored.into_iter().filter(|(score, _)| Some(*score) == most).map(|(_, found)| found).collect();
    best.sort_by_key(|workload| workload.object.clone());
    let works = |workload: &&Workload<'_>| workload.health(case).state == ResponsibleState::Working;
    if best.iter().all(works) || !best.iter().any(works) {
        best.truncate(1);
    }
    best
}

/// One of several workloads is the controller, of which some work and others do not.
fn one_of(case: &Case<'_>, workloads: &[&Workload<'_>]) -> Controller {
    let shown = |workload: &&Workload<'_>| {
        let health = workload.health(case);
        let state = if health.problem.is_empty() { "works" } else { &health.problem };
        (format!("{} ({state})", workload.object), health.facts)
    };
    let (names, facts): (Vec<_>, Vec<_>) = workloads.iter().map(shown).unzip();
    let found = Controller::new(names.join(" or "), ResponsibleState::Unknown, Strength::Possible);
    Controller { facts: facts.concat(), ..found }
}

/// Judges a workload by its replicas, its Lease and its ServiceAccount.
fn judge(case: &Case<'_>, workload: &Workload<'_>, leases: &Leases<'_>) -> Controller {
    let health = workload.health(case);
    let mut controller = Controller {
        problem: health.problem,
        facts: health.facts,
        workload: Some(workload.object.clone()),
        account: Some((workload.namespace().to_owned(), workload.account().to_owned())),
        ..Controller::new(workload.object.to_string(), health.state, Strength::Proven)
    };
    if health.state == ResponsibleState::Absent {
        let is_scaled = !object::is_deleting(workload.value);
        controller.start = is_scaled.then(|| steps::scale_up(&workload.object));
        return controller;
    }
    let account = kinds::SERVICE_ACCOUNT.named(Some(workload.namespace()), workload.account());
    if case.get_metadata(&account, Priority::Controller).is_missing() {
        controller.state = ResponsibleState::Failing;
        controller.problem = format!("its {account} does not exist");
        controller.facts.push(Fact::missing(&account));
        return controller;
    }
    match leases.of_workload(case, workload) {
        // A cluster without kubelets does not count replicas, and a controller that renews its Lease runs.
        Some(Renewal { fresh: true, fact, .. }) => {
            controller.state = ResponsibleState::Working;
            controller.problem.clear();
            controller.facts.push(fact);
        }
        Some(Renewal { fresh: false, fact, seconds }) => {
            controller.state = ResponsibleState::Failing;
            controller.facts.push(fact);
            if controller.problem.is_empty() {
                let long = crate::text::duration(seconds);
                controller.problem = format!("it runs, but has not renewed its Lease for {long}");
            }
        }
        None => {}
    }
    if controller.state == ResponsibleState::Failing
        && let Some(fact) = workload.waiting(case)
    {
        controller.problem = format!("{}: {} is in {}", controller.problem, fact.object, fact.value);
        controller.facts.push(fact);
    }
    controller
}

/// Judges a CronJob or a Pod that runs with the ServiceAccount of a controller. What else they are called does not matter.
fn of_account(case: &Case<'_>, account: &(String, String)) -> Option<Controller> {
    let (namespace, name) = account;
    let (jobs, pods) = others(case, namespace);
    let own = |workload: &&Workload<'_>| workload.account() == name;
    let found = |object: &ObjectRef, state, problem: &str, fact: Fact| {
        let account = Some(account.clone());
        let known = Controller::new(object.to_string(), state, Strength::Proven);
        Controller { problem: problem.to_owned(), facts: vec![fact], account, ..known }
    };
    if let Some(job) = jobs.all.iter().find(own) {
        if job.value.pointer("/spec/suspend") == Some(&Value::Bool(true)) {
            let fact = Fact::new(&job.object, "spec.suspend", "true");
            return Some(found(&job.object, ResponsibleState::Absent, "it is suspended", fact));
        }
        let schedule = object::text(job.value, "/spec/schedule").unwrap_or_default();
        let fact = Fact::new(&job.object, "spec.schedule", schedule);
        return Some(found(&job.object, ResponsibleState::Working, "", fact));
    }
    let ready = |pod: &Workload<'_>| object::condition(pod.value, "Ready").is_some_and(object::Condition::is_true);
    let mut alive: Vec<_> =
        pods.all.iter().filter(own).filter(|pod| !["Succeeded", "Failed"].contains(&phase(pod))).collect();
    alive.sort_by_key(|pod| !ready(pod));
    if let Some(pod) = alive.first() {
        let fact = Fact::new(&pod.object, "status.phase", phase(pod));
        let state = if ready(pod) { ResponsibleState::Working } else { ResponsibleState::Unknown };
        return Some(found(&pod.object, state, "it is not ready", fact));
    }
    // Nothing is said about what could not be read.
    let is_known = jobs.complete && pods.complete;
    (!is_known).then(|| {
        Controller::new(
            format!("a program with ServiceAccount {namespace}/{name}"),
            ResponsibleState::Unknown,
            Strength::Possible,
        )
    })
}

fn phase<'a>(pod: &Workload<'a>) -> &'a str {
    object::text(pod.value, "/status/phase").unwrap_or("Unknown")
}

/// Returns the CSI driver of a volume or attachment, if it was uninstalled.
fn missing_driver(case: &Case<'_>, value: &Value, traces: &Traces<'_>) -> Option<Controller> {
    traces.known.filter(|known| known.system == "CSI")?;
    let name = object::text(value, "/spec/attacher").or_else(|| object::text(value, "/spec/csi/driver"))?;
    if !case.builtin(&kinds::CSI_DRIVER, None, name, Priority::Controller).is_missing() {
        return None;
    }
    let driver = kinds::CSI_DRIVER.named(None, name);
    let problem = format!("{driver} does not exist, as after its removal");
    Some(Controller::absent(format!("CSI driver {name}"), problem, Strength::Stated, vec![Fact::missing(&driver)]))
}

/// Returns what the traces tell of a controller that no workload is.
fn without_workload(
    case: &Case<'_>,
    value: &Value,
    workloads: &Workloads<'_>,
    leases: &Leases<'_>,
    traces: &Traces<'_>,
) -> Option<Controller> {
    if let Some((name, renewal)) = leases.of_traces(case, traces) {
        let state = if renewal.fresh { ResponsibleState::Working } else { ResponsibleState::Absent };
        let problem = match renewal.fresh {
            true => String::new(),
            false => format!("nobody has renewed its Lease for {}", crate::text::duration(renewal.seconds)),
        };
        let found = Controller::new(format!("the holder of {name}"), state, Strength::Proven);
        return Some(Controller { problem, facts: vec![renewal.fact], ..found });
    }
    if !workloads.complete {
        return None;
    }
    if let Some(found) = traces.account(case, &workloads.all) {
        let other = found.account.as_ref().and_then(|account| of_account(case, account));
        return Some(other.unwrap_or(found));
    }
    if let Some(found) = traces.service(case) {
        return Some(found);
    }
    if let Some(found) = missing_driver(case, value, traces) {
        return Some(found);
    }
    if let Some(known) = traces.known {
        let workload = traces.named_workload().or(known.workloads.first().map(String::as_str));
        let name = workload.map_or_else(|| known.system.clone(), |workload| format!("{workload} of {}", known.system));
        let place = known.namespaces.first().map(|namespace| format!(", usually in namespace {namespace}"));
        let problem = format!("no such workload exists{}", place.unwrap_or_default());
        return (!known.outside).then(|| Controller::absent(name, problem, Strength::Stated, Vec::new()));
    }
    if let Some(release) = traces.release() {
        let problem = format!("no workload of release {release} exists, which installed the CRD");
        return Some(Controller::absent(format!("release {release}"), problem, Strength::Stated, traces.facts.clone()));
    }
    let nobody_else = traces.writers.as_ref().is_some_and(|w| w.complete && w.accounts.is_empty() && !w.others);
    let manager = traces.manager.filter(|_| nobody_else && case.age_of_deletion(value) >= PATIENCE)?;
    let unbound = traces.writers.as_ref().and_then(|writers| writers.unbound.first());
    let problem = match unbound {
        Some(role) => {
            format!("no workload has its name, and {role} lets its holders write this kind, but nobody holds it")
        }
        None => "no workload has its name, and no role lets anybody but administrators write this kind".to_owned(),
    };
    let role = unbound.map(|role| Fact::new(role, "bindings", "none"));
    let facts = traces.facts.iter().cloned().chain(role).collect();
    Some(Controller::absent(manager, problem, Strength::Stated, facts))
}
