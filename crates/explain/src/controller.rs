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
    workload::{Workload, Workloads, workloads},
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
    let traces = Traces::look(case, reference, finalizer, facts, manager);
    match best(case, &workloads, &traces, reference) {
        Some(workload) => Some(judge(case, workload, &leases)),
        None => without_workload(case, value, &workloads, &leases, &traces),
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

/// Returns the workload with the most traces; of equals one that works.
fn best<'w, 'a>(
    case: &Case<'a>,
    workloads: &'w Workloads<'a>,
    traces: &Traces<'a>,
    reference: &ObjectRef,
) -> Option<&'w Workload<'a>> {
    let scored = workloads.all.iter().map(|workload| (traces.score(case, workload, reference), workload));
    let enough = scored.filter(|(score, _)| *score >= traces::ENOUGH);
    let rank = |(score, workload): &(u32, &Workload<'_>)| {
        (*score, workload.health(case).state == ResponsibleState::Working, std::cmp::Reverse(workload.object.clone()))
    };
    enough.max_by_key(rank).map(|(_, workload)| workload)
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
    controller
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
        return Some(found);
    }
    if let Some(found) = traces.service(case) {
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
    let problem = "no workload has its name, and no role lets anybody but administrators write this kind";
    Some(Controller::absent(manager, problem, Strength::Stated, traces.facts.clone()))
}
