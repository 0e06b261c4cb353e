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
    known::known_of,
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
    let facts = known_of(finalizer, reference, value);
    if let Some(known) = facts.filter(|known| !known.component.is_empty()) {
        return Some(component(case, &known.component));
    }
    let manager = manager(value, finalizer);
    let workloads = workloads(case);
    let leases = Leases::look(case);
    let traces = Traces::look(case, reference, value, finalizer, facts, manager);
    let alike = best(case, &workloads, &traces, reference, &leases);
    let Some(workload) = alike.first() else {
        return without_workload(case, value, &workloads, &leases, &traces);
    };
    if traces.is_unclear() {
        return None;
    }
    if alike.len() == 1 {
        return Some(judge(case, workload, &leases));
    }
    // Which of these is in charge does not matter if all work; but what else is wrong with one of them proves nothing.
    let all_work = alike.iter().all(|workload| workload.health(case).state == ResponsibleState::Working);
    Some(match all_work {
        true => Controller::new(workload.object.to_string(), ResponsibleState::Working, Strength::Possible),
        false => one_of(case, &alike),
    })
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
        Some(Renewal { fact, seconds, .. }) => Controller {
            state: ResponsibleState::Failing,
            strength: Strength::Proven,
            problem: format!("it has not renewed its Lease for {}", crate::text::duration(seconds)),
            facts: vec![fact],
            ..unknown
        },
        None => unknown,
    }
}

/// Returns the workload with the most traces: several if their traces are the same. Of equals, one in the object's namespace is in
/// charge, then one that has a known name itself.
fn best<'w, 'a>(
    case: &Case<'a>,
    workloads: &'w Workloads<'a>,
    traces: &Traces<'a>,
    reference: &ObjectRef,
    leases: &Leases<'a>,
) -> Vec<&'w Workload<'a>> {
    let namesakes = traces.namesakes(&workloads.all);
    let rank = |workload: &Workload<'a>| {
        let is_near = reference.namespace.as_deref() == Some(workload.namespace());
        (traces.score(case, workload, reference, namesakes, leases), is_near, traces.is_named(workload))
    };
    let ranked = workloads.all.iter().map(|workload| (rank(workload), workload));
    let enough: Vec<_> = ranked.filter(|((score, ..), _)| *score >= traces::ENOUGH).collect();
    let most = enough.iter().map(|(rank, _)| *rank).max();
    let mut alike: Vec<_> =
        enough.into_iter().filter(|(rank, _)| Some(*rank) == most).map(|(_, workload)| workload).collect();
    alike.sort_by(|a, b| a.object.cmp(&b.object));
    alike
}

/// One of several workloads is the controller, of which not all work.
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
        // Its replicas are newer than the Lease: they may do without.
        Some(renewal) if health.state == ResponsibleState::Working && workload.has_changed_since(renewal.at) => {}
        Some(renewal) => {
            let is_held = health.state != ResponsibleState::Working || leases.is_held(case, workload, &renewal);
            controller.state = if is_held { ResponsibleState::Failing } else { ResponsibleState::Unknown };
            controller.facts.push(renewal.fact);
            if controller.problem.is_empty() {
                let long = crate::text::duration(renewal.seconds);
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
    if let Some((name, renewal, strength)) = leases.of_traces(case, traces) {
        let state = if renewal.fresh { ResponsibleState::Working } else { ResponsibleState::Absent };
        let problem = match renewal.fresh {
            true => String::new(),
            false => format!("nobody has renewed its Lease for {}", crate::text::duration(renewal.seconds)),
        };
        let found = Controller::new(format!("the holder of {name}"), state, strength);
        return Some(Controller { problem, facts: vec![renewal.fact], ..found });
    }
    if let Some(found) = missing_driver(case, value, traces) {
        return Some(found);
    }
    // A program that holds a Lease that was not read may be the controller. That of a known system is a workload.
    let may_hold = leases.truncated || (!leases.complete && traces.known.is_none());
    // What remains in the cluster of one that runs elsewhere may be that of another installation.
    let is_elsewhere = traces.known.is_some_and(|known| known.outside);
    if !workloads.complete || may_hold || is_elsewhere {
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
        // Rights of a user are those of a program that may run anywhere.
        let is_of_user = traces.writers.as_ref().is_some_and(|writers| writers.users);
        return (!is_of_user).then(|| Controller::absent(name, problem, Strength::Stated, Vec::new()));
    }
    if workloads.all.iter().any(|workload| traces.is_of_release(workload)) {
        return None;
    }
    if let Some(release) = traces.lost_release(case) {
        let problem = format!("release {release}, which installed the CRD, does not exist, and no workload of it");
        return Some(Controller::absent(format!("release {release}"), problem, Strength::Stated, traces.facts.clone()));
    }
    let nobody_else = traces.writers.as_ref().is_some_and(|w| w.complete && w.accounts.is_empty() && !w.others);
    let manager = traces.manager.filter(|_| nobody_else && case.age_of_deletion(value) >= PATIENCE)?;
    let unbound = traces.writers.as_ref().and_then(|writers| writers.unbound.first());
    let problem = match unbound {
        Some(role) => {
            format!("no workload has its name, and {role} lets its holders write this kind, but nobody holds it")
        }
        None => {
            "no workload has its name, and only administrators have a role that allows writing this kind".to_owned()
        }
    };
    let role = unbound.map(|role| Fact::new(role, "bindings", "none"));
    let facts = traces.facts.iter().cloned().chain(role).collect();
    Some(Controller::absent(manager, problem, Strength::Stated, facts))
}
