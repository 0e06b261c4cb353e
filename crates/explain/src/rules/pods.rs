//! A Pod that has not ended: its grace period, its node, what the kubelet reports.
//!
//! Situations: 1.11, 8.1, 8.2.

use serde_json::Value;

use crate::{
    Cause, Fact, PodWait, Reason, Responsible, ResponsibleState,
    case::{Case, Priority, Seen},
    cause::Strength,
    controller, kinds, object,
    rule::Held,
    steps,
};

/// How many seconds the kubelet may need after the grace period.
const PATIENCE: i64 = 60;

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let value = held.seen.value().filter(|value| kinds::POD.is(held.object) && object::is_deleting(value));
    let Some(value) = value else { return Vec::new() };
    let Some(name) = object::text(value, "/spec/nodeName") else { return Vec::new() };
    // The deletionTimestamp of a Pod is the end of its grace period.
    let over = case.age_of_deletion(value);
    // What holds a Pod with finalizers is their controllers, unless these wait for its end, which its node does not confirm.
    let is_held = !object::finalizers(value).is_empty();
    let has_ended = ["Succeeded", "Failed"].iter().any(|end| object::text(value, "/status/phase") == Some(end));
    if is_held && (has_ended || over < 0) {
        return Vec::new();
    }
    let end = Fact::new(
        held.object,
        "metadata.deletionTimestamp",
        object::text(value, "/metadata/deletionTimestamp").unwrap_or_default(),
    );
    let cause = |why, state, facts: Vec<Fact>| {
        let party = Responsible::new(format!("Node {name}"), state);
        let cause = Cause::new(held.object, Reason::PodNotTerminated { why }, Strength::Proven);
        cause.evidence([end.clone(), Fact::new(held.object, "spec.nodeName", name)]).evidence(facts).responsible(party)
    };
    if over < 0 {
        return vec![cause(PodWait::Grace { seconds: -over }, ResponsibleState::Working, Vec::new())];
    }
    let node = kinds::NODE.named(None, name);
    match case.builtin(&kinds::NODE, None, name, Priority::Cause) {
        // The garbage collector of Pods ends it, so that only the finalizer holds it.
        Seen::Missing if is_held => Vec::new(),
        Seen::Missing => {
            let manager = controller::component(case, "kube-controller-manager");
            if manager.state == ResponsibleState::Failing {
                let why = format!("kube-controller-manager: {}", manager.problem);
                let reason = Reason::ControllerManager { controller: "the garbage collector of Pods", why };
                let found = Cause::new(held.object, reason, Strength::Proven).evidence(manager.facts);
                let party = Responsible::new("kube-controller-manager", ResponsibleState::Failing);
                return vec![found.responsible(party).steps(steps::control_plane("kube-controller-manager"))];
            }
            let found =
                cause(PodWait::NodeMissing(name.to_owned()), ResponsibleState::Absent, vec![Fact::missing(&node)]);
            vec![found.steps(steps::missing_node())]
        }
        Seen::There(live) if !is_ready(live) => {
            let ready = object::condition(live, "Ready").map_or("no condition Ready".to_owned(), |ready| ready.shown());
            let fact = Fact::new(&node, "status.conditions[type=Ready]", ready);
            let found = cause(PodWait::NodeSilent(name.to_owned()), ResponsibleState::Failing, vec![fact]);
            vec![found.steps(steps::dead_node(name))]
        }
        Seen::There(_) if is_held => Vec::new(),
        Seen::There(_) if over < PATIENCE => {
            vec![cause(PodWait::Grace { seconds: 0 }, ResponsibleState::Working, Vec::new())]
        }
        Seen::There(_) => {
            let report = case.warnings(value).into_iter().next().and_then(|event| object::text(event, "/message"));
            let report = report.map(str::to_owned);
            let facts = report.iter().map(|report| Fact::new(held.object, "Event", report)).collect();
            let why = PodWait::Node { node: name.to_owned(), report };
            vec![cause(why, ResponsibleState::Failing, facts).steps(steps::living_node(name))]
        }
        _ => Vec::new(),
    }
}

fn is_ready(node: &Value) -> bool {
    object::condition(node, "Ready").is_some_and(object::Condition::is_true)
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// The node tells who has to act.
    #[test]
    fn a_pod_waits_for_its_node() {
        check_table(
            r#"
title: a Pod that was never scheduled
why: Pod shop/a
objects: [{kind: Pod, name: shop/a, deleted: 1s}]
expect: {}
---
title: a Node without conditions does not respond
why: Pod shop/a
objects: [{kind: Pod, name: shop/a, deleted: 10m, spec: {nodeName: n1}}, {kind: Node, name: n1}]
expect: {code: pod-not-terminated, responsible: failing, says: [does not respond]}
---
title: a Pod with a finalizer is held by its controller
why: Pod shop/a
kinds: [x.example/v1 Thing things]
operators: [{name: x/core, group: x.example}]
objects: [{kind: Pod, name: shop/a, deleted: 10m, finalizers: [x.example/a], by: core, spec: {nodeName: n1}}]
expect: {code: finalizer-in-progress, responsible: working}
"#,
        );
    }
}
