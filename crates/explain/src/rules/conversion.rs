//! The conversion webhook of a CRD cannot be reached, so that its instances cannot be read in all versions.
//!
//! Situations: 4.10; 5.4 through the rule about owners.

use serde_json::Value;

use crate::{
    Cause, Fact, Reason,
    backend::{Reach, Service},
    case::{Case, Priority},
    cause::Strength,
    kinds, object,
    rule::Held,
    steps,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value() else { return Vec::new() };
    if kinds::CRD.is(held.object) {
        return unavailable(case, value).into_iter().collect();
    }
    // An instance that waits for its controller, which may read it in another version.
    if !object::is_deleting(value) {
        return Vec::new();
    }
    let crd = case.crd_of(held.object).and_then(|crd| case.get(&crd, Priority::Controller).value());
    crd.and_then(|crd| unavailable(case, crd)).into_iter().collect()
}

/// Returns that the conversion webhook of a CRD cannot answer, if its Service shows that.
pub(crate) fn unavailable(case: &Case<'_>, crd: &Value) -> Option<Cause> {
    if object::text(crd, "/spec/conversion/strategy") != Some("Webhook") {
        return None;
    }
    let service = Service::of(crd.pointer("/spec/conversion/webhook/clientConfig/service"))?;
    let Reach::Broken(backend, party, facts) = service.reach(case) else { return None };
    let reference = kinds::CRD.named(None, object::name(crd));
    // With one version there is nothing to convert.
    let versions = object::list(crd, "/spec/versions").count().max(object::list(crd, "/status/storedVersions").count());
    let strength = if versions > 1 { Strength::Proven } else { Strength::Possible };
    let reason = Reason::ConversionUnavailable { crd: reference.name.clone(), backend };
    let strategy = Fact::new(&reference, "spec.conversion.strategy", "Webhook");
    let cause = Cause::new(&reference, reason, strength).evidence(std::iter::once(strategy).chain(facts));
    Some(cause.responsible(party).steps(steps::conversion(&reference)))
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// A webhook for one version converts nothing.
    #[test]
    fn only_a_conversion_that_is_needed_matters() {
        check_table(
            r#"
title: two versions
why: CustomResourceDefinition things.x.example
kinds: ["x.example/v1,v2 Thing things"]
objects: [{kind: CustomResourceDefinition, name: things.x.example, spec: {group: x.example, versions: [{name: v1}, {name: v2}], conversion: {strategy: Webhook, webhook: {clientConfig: {service: {namespace: x, name: convert}}}}}}]
expect: {code: conversion-webhook-unavailable, responsible: absent, risks: [loses-data]}
---
title: one version
why: CustomResourceDefinition things.x.example
kinds: ["x.example/v1 Thing things"]
objects: [{kind: CustomResourceDefinition, name: things.x.example, spec: {group: x.example, versions: [{name: v1}], conversion: {strategy: Webhook, webhook: {clientConfig: {service: {namespace: x, name: convert}}}}}}]
expect: {code: not-deleting}
---
title: no conversion
why: CustomResourceDefinition things.x.example
kinds: ["x.example/v1,v2 Thing things"]
objects: [{kind: CustomResourceDefinition, name: things.x.example, spec: {group: x.example, versions: [{name: v1}, {name: v2}], conversion: {strategy: None}}}]
expect: {code: not-deleting}
"#,
        );
    }
}
