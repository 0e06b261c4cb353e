//! The controllers that have to remove finalizers: whether they work, and whether they outlive what they are needed for.

use super::{
    fate::{Fates, Group, crd_of},
    foreseen::Foreseen,
};
use crate::{
    ObjectRef, ResponsibleState, Risk,
    access::rights,
    case::{Case, Priority},
    controller::{Controller, in_charge},
    kinds,
    known::{known, known_of},
    workload::workloads,
};

/// Returns what will become of the objects of a group, by the controller that has to remove their finalizer.
pub(super) fn foresee(case: &Case<'_>, fates: &Fates<'_>, group: &Group<'_>) -> Vec<Foreseen> {
    let Some(sample) = group.objects.first() else { return Vec::new() };
    let is_component = known(group.finalizer).is_some_and(|known| !known.component.is_empty());
    let metadata = sample.value();
    // Who set the finalizer is a trace of its controller; that of a component needs none.
    let live = if is_component { None } else { case.get(&sample.object, Priority::Subject).value() };
    let value = live.unwrap_or(&metadata);
    let facts = known_of(group.finalizer, &sample.object, value);
    let controller = in_charge(case, &sample.object, value, group.finalizer);
    let (finalizer, objects) = (group.finalizer.to_owned(), group.references());
    let mut found = Vec::new();
    let works = controller
        .as_ref()
        .is_none_or(|controller| !matches!(controller.state, ResponsibleState::Absent | ResponsibleState::Failing));
    if let Some(known) = facts.filter(|known| known.risk == Risk::LeavesExternal && (works || group.forced)) {
        let (system, finalizer, objects) = (known.system.clone(), finalizer.clone(), objects.clone());
        found.push(Foreseen::External { system, finalizer, objects, left: group.forced });
    }
    let Some(controller) = controller else {
        let (state, problem) = (ResponsibleState::Unknown, String::new());
        found.push(Foreseen::NotWorking { finalizer, objects, controller: None, state, problem });
        return found;
    };
    if !works {
        let Controller { name, state, problem, .. } = controller.clone();
        let (finalizer, objects) = (finalizer.clone(), objects.clone());
        found.push(Foreseen::NotWorking { finalizer, objects, controller: Some(name), state, problem });
    }
    // One that does not work now may be repaired.
    if controller.state == ResponsibleState::Absent {
        return found;
    }
    let parts = early_parts(case, fates, group, &sample.object, &controller);
    if !parts.is_empty() {
        found.push(Foreseen::ControllerFirst { finalizer, objects, controller: controller.name, parts });
    }
    found
}

/// Returns the parts of a controller that are deleted no later than the objects of a group.
fn early_parts(
    case: &Case<'_>,
    fates: &Fates<'_>,
    group: &Group<'_>,
    sample: &ObjectRef,
    controller: &Controller,
) -> Vec<ObjectRef> {
    let is_early = |part: &ObjectRef| fates.is_early(&fates.of(part), group.step);
    let mut parts = Vec::new();
    if let Some(name) = &controller.workload {
        let workload = workloads(case).all.into_iter().find(|workload| workload.object.is_same(name));
        let owners = workload.map(|workload| fates.owners_of(workload.value)).unwrap_or_default();
        let early = owners.into_iter().filter(|owner| fates.is_early(&[owner.step], group.step));
        parts.extend(early.map(|owner| owner.object.clone()));
        if is_early(name) {
            parts.push(name.clone());
        }
    }
    if let Some(account) = &controller.account {
        let (namespace, name) = account;
        let reference = kinds::SERVICE_ACCOUNT.named(Some(namespace), name);
        if is_early(&reference) {
            parts.push(reference);
        }
        if let Some(resource) = case.resource(sample) {
            let rights = rights(case, account, &resource, sample.namespace.as_deref());
            // As long as one binding and its role exist, the controller may remove the finalizer.
            let early: Vec<_> =
                rights.iter().map(|right| [&right.binding, &right.role].map(|part| (is_early(part), part))).collect();
            if early.iter().all(|parts| parts.iter().any(|(early, _)| *early)) {
                parts.extend(early.into_iter().flatten().filter(|(early, _)| *early).map(|(_, part)| part.clone()));
            }
        }
    }
    // The deletion of a CRD deletes its instances, too, and asks no webhook.
    if let Some(crd) = crd_of(case, sample).filter(|_| !group.contained)
        && fates.of_crd(&crd.name).is_some_and(|step| fates.is_early(&[step], group.step))
    {
        parts.push(crd);
    }
    parts.sort();
    parts.dedup();
    parts
}
