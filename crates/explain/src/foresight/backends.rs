//! What the API server has to call during a deletion: webhooks that must answer, aggregated APIs, conversions.

use std::collections::BTreeMap;

use billhook_objects::Resource;
use serde_json::Value;

use super::{
    fate::{Fates, ToDelete, crd_of},
    foreseen::Foreseen,
};
use crate::{
    ObjectRef,
    admission::{Request, Webhook, webhooks},
    backend::Service,
    case::{Case, Priority},
    kinds, object, selector,
    workload::workloads,
};

/// A front, the part of its backend that is deleted first, and the objects that need it.
type Found = BTreeMap<ObjectRef, (ObjectRef, Vec<ObjectRef>)>;

/// Returns the webhooks, APIServices and conversions whose backend is deleted before what needs it; briefly, without the objects
/// that need a webhook or an APIService.
pub(super) fn foresee(case: &Case<'_>, fates: &Fates<'_>, is_brief: bool) -> Vec<Foreseen> {
    let mut found = Found::new();
    for webhook in webhooks(case).iter().filter(|webhook| webhook.must_answer()) {
        let needs = |one: &ToDelete| !is_brief && asks(case, webhook, one);
        if let Some(service) = webhook.service() {
            add(case, fates, &mut found, webhook.configuration(), &service, &needs);
        }
    }
    for api in case.list(&kinds::API_SERVICE, None, Priority::Cause).items() {
        let group = object::text(api, "/spec/group").unwrap_or_default();
        // A Namespace is not gone before discovery has succeeded.
        let needs =
            |one: &ToDelete| !is_brief && (kinds::NAMESPACE.is(&one.object) || one.object.api_version.group() == group);
        if let Some(service) = Service::of(api.pointer("/spec/service")) {
            let front = kinds::API_SERVICE.named(None, object::name(api));
            add(case, fates, &mut found, front, &service, &needs);
        }
    }
    for crd in custom_kinds(case, fates) {
        let Some(value) = case.get(&crd, Priority::Controller).value() else { continue };
        let of_crd = |one: &ToDelete| crd_of(case, &one.object).is_some_and(|known| known.name == crd.name);
        if let Some(service) = Service::of(value.pointer("/spec/conversion/webhook/clientConfig/service")) {
            add(case, fates, &mut found, crd.clone(), &service, &of_crd);
        }
    }
    let finding = |(front, (backend, objects)): (ObjectRef, (ObjectRef, Vec<ObjectRef>))| {
        let remains = fates.of(&front).is_empty();
        Foreseen::BackendFirst { front, backend, objects, remains }
    };
    // Without instances, nothing is converted.
    found.retain(|front, (_, objects)| !kinds::CRD.is(front) || !objects.is_empty());
    found.into_iter().map(finding).collect()
}

/// Returns the CRDs of the objects that have finalizers, or whose CRD is deleted, too.
fn custom_kinds(case: &Case<'_>, fates: &Fates<'_>) -> Vec<ObjectRef> {
    let mut kinds = BTreeMap::new();
    for one in fates.objects {
        let kind = one.object.group_kind();
        if kinds.contains_key(&kind) {
            continue;
        }
        let crd = crd_of(case, &one.object);
        let matters = |crd: &ObjectRef| !one.finalizers.is_empty() || fates.of_crd(&crd.name).is_some();
        if let Some(crd) = crd.filter(matters) {
            kinds.insert(kind, crd);
        }
    }
    kinds.into_values().collect()
}

/// Adds a front, if a part of its backend is deleted while the front still exists.
fn add(
    case: &Case<'_>,
    fates: &Fates<'_>,
    found: &mut Found,
    front: ObjectRef,
    service: &Service<'_>,
    needs: &dyn Fn(&ToDelete) -> bool,
) {
    let own = fates.of(&front);
    let early = backends(case, fates, service).into_iter().find_map(|(backend, mut steps)| {
        steps.retain(|step| !fates.is_after(*step, &own));
        (!steps.is_empty()).then_some((backend, steps))
    });
    let Some((backend, steps)) = early else { return };
    let is_needed = |one: &&ToDelete| {
        fates.is_early(&steps, one.step) && !fates.is_after(one.step, &own) && !one.object.is_same(&front) && needs(one)
    };
    let objects: Vec<_> = fates.objects.iter().filter(is_needed).map(|one| one.object.clone()).collect();
    let (_, all) = found.entry(front).or_insert_with(|| (backend, Vec::new()));
    all.extend(objects);
    all.sort();
    all.dedup();
}

/// Returns the Service and the workloads behind it, each with the steps that delete it.
fn backends(case: &Case<'_>, fates: &Fates<'_>, service: &Service<'_>) -> Vec<(ObjectRef, Vec<usize>)> {
    if !fates.touches(service.namespace) {
        return Vec::new();
    }
    let reference = kinds::SERVICE.named(Some(service.namespace), service.name);
    let steps = fates.of(&reference);
    let mut found = vec![(reference, steps)];
    let live = case.builtin(&kinds::SERVICE, Some(service.namespace), service.name, Priority::Controller).value();
    let wanted = live.and_then(|live| live.pointer("/spec/selector")).filter(|wanted| !is_empty(wanted));
    if let Some(wanted) = wanted {
        let all = workloads(case).all.into_iter();
        let own = all.filter(|w| w.namespace() == service.namespace && selector::contains(wanted, w.pod_labels()));
        found.extend(own.map(|workload| (workload.object.clone(), fates.of_live(&workload.object, workload.value))));
    }
    // Of what the first step deletes, the workload says more than its Service.
    found.retain(|(_, steps)| !steps.is_empty());
    found.sort_by_key(|(backend, steps)| (steps.iter().min().copied(), kinds::SERVICE.is(backend)));
    found
}

fn is_empty(selector: &Value) -> bool {
    selector.as_object().is_none_or(serde_json::Map::is_empty)
}

/// Returns whether a webhook is asked for the deletion of an object, or for the removal of its finalizers.
fn asks(case: &Case<'_>, webhook: &Webhook<'_>, one: &ToDelete) -> bool {
    let Some(resource): Option<Resource> = case.resource(&one.object) else { return false };
    let value = one.value();
    let asked = |operation| {
        let request = Request { object: &one.object, value: &value, resource: &resource, subresource: "", operation };
        webhook.is_asked(case, &request).is_some()
    };
    // What is deleted with its CRD is deleted without admission.
    asked("DELETE") || (!one.finalizers.is_empty() && asked("UPDATE"))
}
