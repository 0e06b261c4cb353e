//! A finalizer whose controller is absent, reports a failure, works, or is not known.
//!
//! Situations: all of section 2 (the operator is gone), 1.13, 3.1 to 3.11 (it is there and cannot finish), 4.11, 7.8, 7.11, 7.17
//! and 8.11.

use billhook_objects::wellknown;
use serde_json::Value;

use crate::{
    Access, Cause, Fact, NextStep, ObjectRef, Reason, Responsible, ResponsibleState,
    case::{Case, Priority},
    cause::Strength,
    controller::{self, Controller},
    kinds, object, quoted, references,
    report::{self, CASCADE},
    rule::Held,
    steps,
};

/// After how many seconds a controller that changes nothing is not called slow any more.
const LONG: i64 = 600;

/// Pods use the claim.
pub(crate) const CLAIM: &str = "kubernetes.io/pvc-protection";
/// A claim uses the volume.
pub(crate) const VOLUME: &str = "kubernetes.io/pv-protection";
/// The beginning of those of attached volumes.
pub(crate) const ATTACHED: &str = "external-attacher/";
const SNAPSHOT: &str = "snapshot.storage.kubernetes.io/";
/// Other objects use the configuration.
pub(crate) const CONFIGURATION: &str = "in-use.crossplane.io";

/// Returns whether a finalizer protects something from its deletion while it is used.
pub(crate) fn protects_what_is_used(finalizer: &str) -> bool {
    [CLAIM, VOLUME, CONFIGURATION].contains(&finalizer)
        || finalizer.starts_with(SNAPSHOT)
        || finalizer.starts_with(ATTACHED)
}

/// Returns whether another rule explains a finalizer.
fn is_of_other_rule(finalizer: &str) -> bool {
    let own_rules = [wellknown::FOREGROUND_FINALIZER, wellknown::ORPHAN_FINALIZER, wellknown::CRD_CLEANUP_FINALIZER];
    own_rules.contains(&finalizer) || protects_what_is_used(finalizer)
}

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value().filter(|value| object::is_deleting(value)) else { return Vec::new() };
    let finalizers = object::finalizers(value).into_iter().filter(|finalizer| !is_of_other_rule(finalizer));
    let mut causes: Vec<_> = finalizers.map(|finalizer| cause(case, held.object, value, finalizer)).collect();
    // That another controller works on its own finalizer is no answer for the one that nobody is known to remove.
    let is_working = |cause: &&Cause| matches!(cause.reason, Reason::InProgress { .. });
    if let Some(strength) = causes.iter().filter(is_working).map(|cause| cause.strength).max() {
        let unknown = causes.iter_mut().filter(|cause| matches!(cause.reason, Reason::FinalizerUnknown { .. }));
        unknown.for_each(|cause| cause.strength = cause.strength.max(strength));
    }
    causes
}

/// Returns why a finalizer is still there.
pub(crate) fn cause(case: &Case<'_>, reference: &ObjectRef, value: &Value, finalizer: &str) -> Cause {
    let index = object::finalizers(value).iter().position(|known| *known == finalizer).unwrap_or_default();
    let there = Fact::new(reference, format!("metadata.finalizers[{index}]"), finalizer);
    let Some(controller) = controller::in_charge(case, reference, value, finalizer) else {
        return unknown(case, reference, value, finalizer, None).evidence([there]);
    };
    let cause = match controller.state {
        ResponsibleState::Working => working(case, reference, value, finalizer, &controller),
        ResponsibleState::Unknown => unknown(case, reference, value, finalizer, Some(&controller)),
        ResponsibleState::Failing if controller.of_control_plane => control_plane(reference, &controller),
        ResponsibleState::Absent | ResponsibleState::Failing => {
            absent(reference, finalizer, &controller).steps(steps::remove_finalizer(reference, finalizer, index))
        }
    };
    let mut cause = cause.evidence(controller.facts.iter().cloned());
    cause.evidence.insert(0, there);
    cause
}

fn control_plane(reference: &ObjectRef, controller: &Controller) -> Cause {
    let why = format!("{}: {}", controller.name, controller.problem);
    let reason = Reason::ControllerManager { controller: "the controller of this finalizer", why };
    Cause::new(reference, reason, controller.strength)
        .responsible(Responsible::new(&controller.name, controller.state))
        .steps(steps::control_plane(&controller.name))
}

fn absent(reference: &ObjectRef, finalizer: &str, controller: &Controller) -> Cause {
    let reason = Reason::ControllerAbsent {
        finalizer: finalizer.to_owned(),
        controller: controller.name.clone(),
        missing: controller.problem.clone(),
    };
    let start = controller.start.clone().unwrap_or_else(|| match controller.state {
        ResponsibleState::Failing => steps::repair(&controller.name),
        _ => steps::bring_back(&controller.name),
    });
    Cause::new(reference, reason, controller.strength)
        .responsible(Responsible::new(&controller.name, controller.state))
        .steps([start])
}

/// The controller works: it may lack a right, report a failure, need something that does not exist, or just take its time.
fn working(case: &Case<'_>, reference: &ObjectRef, value: &Value, finalizer: &str, controller: &Controller) -> Cause {
    if let Some(missing) = missing_right(case, reference, controller) {
        let report = missing.reason.to_string();
        return failing(reference, finalizer, Some(controller), report, Strength::Proven).because([missing]);
    }
    if let Some(cause) = reported(case, reference, value, finalizer, Some(controller)) {
        return cause;
    }
    let progress = progress(case, reference, value);
    let long = case.age_of_deletion(value) > LONG;
    if let (true, Some(false), Some((path, mode))) = (long, progress, keeping_mode(value)) {
        let report = format!("nothing changes, and {path} is {mode}, with which some controllers skip the removal");
        return failing(reference, finalizer, Some(controller), report, Strength::Stated)
            .evidence([Fact::new(reference, path, mode)]);
    }
    let reason = Reason::InProgress { finalizer: finalizer.to_owned(), controller: controller.name.clone(), progress };
    Cause::new(reference, reason, controller.strength)
        .responsible(Responsible::new(&controller.name, ResponsibleState::Working))
}

fn missing_right(case: &Case<'_>, reference: &ObjectRef, controller: &Controller) -> Option<Cause> {
    let (namespace, name) = controller.account.as_ref()?;
    let resource = case.resource(reference)?;
    let may = |verb: &str| {
        case.may(Access {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            verb: verb.to_owned(),
            resource: resource.clone(),
            namespace: reference.namespace.clone(),
            name: reference.name.clone(),
        })
    };
    if may("patch") != Some(false) || may("update") != Some(false) {
        return None;
    }
    let account = crate::kinds::SERVICE_ACCOUNT.named(Some(namespace), name);
    let plural = &resource.plural;
    let shown =
        if resource.kind.group.is_empty() { plural.clone() } else { format!("{plural}.{}", resource.kind.group) };
    let reason = Reason::Forbidden {
        who: account.to_string(),
        verb: "patch".to_owned(),
        resource: shown.clone(),
        namespace: reference.namespace.clone(),
    };
    let fact = Fact::new(&account, "SubjectAccessReview", format!("patch {shown}: denied"));
    let party = Responsible::new(&controller.name, ResponsibleState::Failing);
    Some(Cause::new(&account, reason, Strength::Proven).evidence([fact]).responsible(party).steps(steps::right()))
}

/// What the object or its Events report, and what it needs and does not exist.
fn reported(
    case: &Case<'_>,
    reference: &ObjectRef,
    value: &Value,
    finalizer: &str,
    controller: Option<&Controller>,
) -> Option<Cause> {
    let report = report::of(case, reference, value);
    let young = report.is_none() && case.age_of_deletion(value) < CASCADE;
    // Parts of the control plane need nothing that an object refers to.
    let is_component = controller.is_some_and(|controller| controller.of_control_plane);
    let missing = if young || is_component { Vec::new() } else { references::missing(case, reference, value) };
    let text = match (&report, missing.first()) {
        (Some(fact), _) => fact.value.clone(),
        (None, Some(facts)) => format!("{} names {}, which does not exist", facts[0].path, facts[0].value),
        (None, None) => return None,
    };
    let quoted = report.as_ref().and_then(|fact| quoted::cause(case, &fact.value, fact.clone()));
    let restore = missing.first().map(|facts| restore(case, &facts[1].object, reference, value, finalizer));
    let steps = restore.unwrap_or_else(|| vec![steps::repair_reported()]);
    let evidence = report.into_iter().chain(missing.into_iter().flatten());
    let cause = failing(reference, finalizer, controller, text, Strength::Stated).evidence(evidence).steps(steps);
    Some(cause.because(quoted))
}

/// What can be done about an object that does not exist and that a cleanup needs.
fn restore(
    case: &Case<'_>,
    target: &ObjectRef,
    reference: &ObjectRef,
    value: &Value,
    finalizer: &str,
) -> Vec<NextStep> {
    let is_ending = |namespace: &&str| {
        let namespace = kinds::NAMESPACE.named(None, *namespace);
        case.get_metadata(&namespace, Priority::Detail).value().is_some_and(object::is_deleting)
    };
    match target.namespace.as_deref().filter(is_ending) {
        Some(namespace) => {
            let index = object::finalizers(value).iter().position(|known| *known == finalizer).unwrap_or_default();
            steps::lost(target, namespace, reference, finalizer, index)
        }
        None => vec![steps::restore(&target.to_string())],
    }
}

fn failing(
    reference: &ObjectRef,
    finalizer: &str,
    controller: Option<&Controller>,
    report: String,
    strength: Strength,
) -> Cause {
    let name = controller.map(|controller| controller.name.clone());
    let party = name.clone().unwrap_or_else(|| format!("the controller of {finalizer}"));
    let reason = Reason::ControllerFailing { finalizer: finalizer.to_owned(), controller: name, report };
    Cause::new(reference, reason, strength).responsible(Responsible::new(party, ResponsibleState::Failing))
}

/// Nobody is known to remove the finalizer, or it is not known whether that party works.
fn unknown(
    case: &Case<'_>,
    reference: &ObjectRef,
    value: &Value,
    finalizer: &str,
    controller: Option<&Controller>,
) -> Cause {
    if let Some(cause) = reported(case, reference, value, finalizer, controller) {
        return cause;
    }
    let set_by = object::manager_of(value, finalizer).map(|(name, time)| (name.to_owned(), time.map(str::to_owned)));
    let name = controller.map(|controller| controller.name.clone());
    // A tool such as billhook wrote the finalizer from a manifest, and does not remove it.
    let party = name.clone().or_else(|| controller::manager(value, finalizer).map(str::to_owned));
    let facts = set_by.iter().map(|(name, _)| Fact::new(reference, "metadata.managedFields", format!("set by {name}")));
    let facts: Vec<_> = facts.collect();
    if progress(case, reference, value) == Some(true) {
        let controller = party.unwrap_or_else(|| "its controller".to_owned());
        let party = Responsible::new(&controller, ResponsibleState::Working);
        let reason = Reason::InProgress { finalizer: finalizer.to_owned(), controller, progress: Some(true) };
        return Cause::new(reference, reason, Strength::Stated).evidence(facts).responsible(party);
    }
    let party = party.unwrap_or_else(|| format!("the controller of {finalizer}"));
    let step = name.as_deref().map_or_else(|| steps::find_out(finalizer), steps::check);
    let reason = Reason::FinalizerUnknown { finalizer: finalizer.to_owned(), controller: name, set_by };
    Cause::new(reference, reason, Strength::Possible)
        .evidence(facts)
        .responsible(Responsible::new(party, ResponsibleState::Unknown))
        .steps([step])
}

/// Returns whether an object changed between two looks; none if there was only one.
fn progress(case: &Case<'_>, reference: &ObjectRef, value: &Value) -> Option<bool> {
    let before = case.before(reference)?.1.value()?;
    let same = object::finalizers(before) == object::finalizers(value)
        && object::lasting_status(before) == object::lasting_status(value);
    Some(!same)
}

/// Returns a deletion policy that lets a controller keep what is behind the object.
fn keeping_mode(value: &Value) -> Option<(&'static str, &str)> {
    let paths = [("/spec/deletionPolicy", "spec.deletionPolicy"), ("/spec/reclaimPolicy", "spec.reclaimPolicy")];
    let keeps = |mode: &&str| ["None", "Retain", "Orphan"].contains(mode);
    paths.iter().find_map(|(pointer, path)| Some((*path, object::text(value, pointer).filter(keeps)?)))
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// The controller decides: absent, failing, working, unknown.
    #[test]
    fn the_controller_decides() {
        check_table(
            r#"
title: a tool set the finalizer, and nobody is known
why: ConfigMap shop/a
objects: [{kind: ConfigMap, name: shop/a, deleted: 1h, finalizers: [x.example/a], by: kubectl-patch}]
expect: {code: finalizer-unknown, responsible: unknown, says: [kubectl-patch, "2026-11-01"]}
---
title: a manifest contained the finalizer, which billhook does not remove
why: ConfigMap shop/a
objects: [{kind: ConfigMap, name: shop/a, deleted: 1h, finalizers: [x.example/a], by: billhook/shop/web}]
expect: {code: finalizer-unknown, responsible: unknown, says: [billhook/shop/web set it, the controller of x.example/a]}
---
title: a finalizer on a core kind leads to its operator by its domain
why: ConfigMap shop/a
kinds: [acme.example/v1 Widget widgets]
operators: [{name: acme/core, group: acme.example, replicas: 0, available: 0}]
objects: [{kind: ConfigMap, name: shop/a, deleted: 1h, finalizers: [acme.example/keep], by: kubectl}]
expect: {code: finalizer-controller-absent, object: ConfigMap shop/a, responsible: absent, says: [Deployment acme/core], commands: [kubectl scale]}
---
title: the operator is being deleted itself
why: Widget shop/a
kinds: [acme.example/v1 Widget widgets]
operators: [{name: acme/core, group: acme.example, without: [deployment]}]
objects:
- {kind: Widget, name: shop/a, deleted: 1h, finalizers: [acme.example/keep], by: core}
- {kind: Deployment, name: acme/core, deleted: 1h, spec: {template: {spec: {serviceAccountName: core}}}}
expect: {code: finalizer-controller-absent, object: Widget shop/a, responsible: absent, says: [being deleted]}
---
title: a hung operator holds its Lease no more
why: Widget shop/a
kinds: [acme.example/v1 Widget widgets]
operators: [{name: acme/core, group: acme.example, lease: 2h}]
objects:
- {kind: Widget, name: shop/a, deleted: 1h, finalizers: [acme.example/keep], by: core}
- {kind: Pod, name: acme/core-7d4b9f6c5-x2v8k}
expect: {code: finalizer-controller-absent, object: Widget shop/a, responsible: failing, says: [Lease, 2 h]}
---
title: nothing is called absent right after the deletion without a trace
why: Widget shop/a
kinds: [acme.example/v1 Widget widgets]
objects: [{kind: Widget, name: shop/a, deleted: 5s, finalizers: [acme.example/keep], by: core}]
expect: {code: finalizer-unknown}
"#,
        );
    }
}
