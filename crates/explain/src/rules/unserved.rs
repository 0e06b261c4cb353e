//! A kind, or a stored version of it, that is not served.
//!
//! Situations: 6.2, 6.4, 6.8.

use crate::{
    Cause, Fact, ObjectRef, Reason, Responsible, ResponsibleState,
    case::{Case, Priority, Seen},
    cause::Strength,
    kinds, object,
    rule::Held,
    steps,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    match held.seen {
        Seen::NotServed => vec![not_served(case, held.object)],
        Seen::There(_) if kinds::CRD.is(held.object) => stored(case, held.object).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn not_served(case: &Case<'_>, object: &ObjectRef) -> Cause {
    let version = &object.api_version;
    if case.catalog.stale.contains(&version.to_string()) {
        let service = kinds::API_SERVICE.named(None, format!("{}.{}", version.version(), version.group()));
        let reason = Reason::DiscoveryBroken { api: version.to_string(), report: "its discovery failed".to_owned() };
        let cause = Cause::new(&service, reason, Strength::Stated);
        return cause.evidence([Fact::new(&service, format!("/apis/{version}"), "failed")]).waits_for([service]);
    }
    let kind = object.group_kind().to_string();
    let reason = Reason::VersionNotServed { kind: kind.clone(), version: None };
    Cause::new(object, reason, Strength::Proven)
        .evidence([Fact::new(object, "discovery", "no such kind")])
        .responsible(Responsible::new(format!("who removed the CRD of {kind}"), ResponsibleState::Unknown))
        .steps(steps::lift(
            "create the CRD again, delete its instances while their controller runs, then delete the CRD",
        ))
}

/// A version in `status.storedVersions` that the CRD no longer serves: its objects can be read only through another one, by
/// conversion.
fn stored(case: &Case<'_>, crd: &ObjectRef) -> Option<Cause> {
    let value = case.get(crd, Priority::Cause).value()?;
    let name = |version| object::text(version, "/name");
    let is_served = |version: &&serde_json::Value| version.get("served") == Some(&serde_json::Value::Bool(true));
    let served: Vec<_> = object::list(value, "/spec/versions").filter(is_served).filter_map(name).collect();
    let lost = object::texts(value, "/status/storedVersions").find(|stored| !served.contains(stored))?;
    // Where nothing is served, nothing can be read; else the API server converts.
    let strength = if served.is_empty() { Strength::Proven } else { Strength::Possible };
    let reason = Reason::VersionNotServed { kind: crd.name.clone(), version: Some(lost.to_owned()) };
    let cause = Cause::new(crd, reason, strength).evidence([Fact::new(crd, "status.storedVersions", lost)]);
    Some(cause.steps(steps::lift(&format!("serve version {lost} again, and migrate the stored objects"))))
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// A kind whose API is only unavailable is not called removed.
    #[test]
    fn a_kind_that_is_not_served_is_named() {
        check_table(
            r#"
title: the API of the kind is unavailable
why: Metric shop/a
version: metrics.x.example/v1
stale: [metrics.x.example/v1]
objects: [{kind: APIService, name: v1.metrics.x.example, spec: {group: metrics.x.example, version: v1, service: {namespace: x, name: api}}, conditions: ["Available=False ServiceNotFound: x"]}]
expect: {code: apiservice-unavailable, responsible: absent}
---
title: a CRD that serves none of its stored versions
why: CustomResourceDefinition things.x.example
kinds: [x.example/v2 Thing things]
objects: [{kind: CustomResourceDefinition, name: things.x.example, spec: {group: x.example, versions: [{name: v1, served: false}]}, status: {storedVersions: [v1]}}]
expect: {code: version-not-served, says: [v1]}
"#,
        );
    }
}
