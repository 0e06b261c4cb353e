//! References to owners that are invalid, and dependents that outlive their owner.
//!
//! Situations: 5.4, 5.5, 5.7.

use billhook_objects::{ApiVersion, Scope};
use serde_json::Value;

use super::conversion;
use crate::{
    Answer, Cause, Fact, ObjectRef, Reason, Responsible, ResponsibleState,
    case::{Case, Priority, Seen},
    cause::Strength,
    kinds, object,
    rule::Held,
    steps,
};

/// Returns the owners of an object as its references name them: references have no namespace, so an owner is in that of the object
/// or in none.
pub(crate) fn references(value: &Value, namespace: Option<&str>) -> Vec<(ObjectRef, String)> {
    let read = |reference: &Value| {
        let text = |pointer| object::text(reference, pointer);
        let version = ApiVersion::parse(text("/apiVersion")?).ok()?;
        let owner = ObjectRef::new(version, text("/kind")?, namespace, text("/name")?);
        Some((owner, text("/uid")?.to_owned()))
    };
    object::list(value, "/metadata/ownerReferences").filter_map(read).collect()
}

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    // An object that is being deleted is not kept by its owners.
    let Some(value) = held.seen.value().filter(|value| held.is_subject && !object::is_deleting(value)) else {
        return Vec::new();
    };
    let owners = references(value, held.object.namespace.as_deref());
    let judged = owners.into_iter().map(|(owner, uid)| invalid(case, held.object, value, owner, &uid));
    let judged: Vec<_> = judged.collect();
    // An object with an owner that exists remains.
    let is_owned = judged.iter().any(|owner| matches!(owner, Owner::Exists));
    let cause = |owner| match owner {
        Owner::Invalid(cause) => Some(*cause),
        Owner::Gone(owner, uid) if !is_owned => outlived(case, held.object, &owner, &uid),
        _ => None,
    };
    judged.into_iter().filter_map(cause).collect()
}

/// What a reference refers to.
enum Owner {
    Exists,
    Unknown,
    /// It was deleted.
    Gone(ObjectRef, String),
    /// It can never be what is meant.
    Invalid(Box<Cause>),
}

fn invalid(case: &Case<'_>, reference: &ObjectRef, value: &Value, owner: ObjectRef, uid: &str) -> Owner {
    let path = "metadata.ownerReferences";
    let cause = |owner: &ObjectRef, problem, facts: Vec<Fact>| {
        let reason = Reason::OwnerInvalid { owner: owner.to_string(), problem };
        let names = Fact::new(reference, path, format!("{owner} ({uid})"));
        let cause = Cause::new(reference, reason, Strength::Proven)
            .evidence(std::iter::once(names).chain(facts))
            .responsible(Responsible::new(object::creator(value).unwrap_or("who set it"), ResponsibleState::Unknown))
            .steps(steps::owner());
        Box::new(cause)
    };
    let Some(kind) = case.catalog.get(&owner.group_kind()) else { return Owner::Unknown };
    let is_cluster = kind.scope == Scope::Cluster;
    if reference.namespace.is_none() && !is_cluster {
        return Owner::Invalid(cause(&owner, "a cluster-scoped object cannot have a namespaced owner", Vec::new()));
    }
    let owner = ObjectRef { namespace: owner.namespace.filter(|_| !is_cluster), ..owner };
    match case.get_metadata(&owner, Priority::Cause) {
        Seen::There(live) if object::uid(live) != uid => {
            let fact = Fact::new(&owner, "metadata.uid", object::uid(live));
            Owner::Invalid(cause(&owner, "an object of that name has another UID", vec![fact]))
        }
        Seen::There(_) => Owner::Exists,
        Seen::Missing => {
            let events = case.warnings(value);
            let event =
                events.into_iter().find(|event| object::text(event, "/reason") == Some("OwnerRefInvalidNamespace"));
            if let Some(event) = event {
                let message = object::text(event, "/message").unwrap_or_default();
                let fact = Fact::new(reference, "Event OwnerRefInvalidNamespace", message);
                return Owner::Invalid(cause(&owner, "it is not in the namespace of its dependent", vec![fact]));
            }
            // Otherwise the garbage collector will delete the dependent; it may have much to do.
            Owner::Gone(owner, uid.to_owned())
        }
        _ => Owner::Unknown,
    }
}

/// The owner is gone and the dependent is not: the garbage collector stands still while one kind cannot be read.
fn outlived(case: &Case<'_>, reference: &ObjectRef, owner: &ObjectRef, uid: &str) -> Option<Cause> {
    let manager = crate::controller::component(case, "kube-controller-manager");
    let mut broken = Vec::new();
    if manager.state != ResponsibleState::Failing && may_stand_still(case) {
        let crds = case.list(&kinds::CRD, None, Priority::Detail);
        broken.extend(crds.items().iter().filter_map(|crd| conversion::unavailable(case, crd)));
    }
    let why = if manager.state == ResponsibleState::Failing {
        format!("kube-controller-manager: {}", manager.problem)
    } else if broken.is_empty() {
        return None;
    } else {
        format!("its owner {owner} is gone, and a kind cannot be read")
    };
    let reason = Reason::ControllerManager { controller: "the garbage collector", why };
    let facts = [Fact::new(reference, "metadata.ownerReferences", format!("{owner} ({uid})")), Fact::missing(owner)];
    let party = Responsible::new("kube-controller-manager", ResponsibleState::Failing);
    let strength = if broken.is_empty() { Strength::Proven } else { Strength::Stated };
    let cause = Cause::new(reference, reason, strength).evidence(facts).evidence(manager.facts);
    Some(cause.responsible(party).because(broken).steps(steps::control_plane("kube-controller-manager")))
}

/// Returns whether the garbage collector waits for all kinds when it starts: that of Kubernetes 1.32 and newer goes on without those
/// that it cannot list (kubernetes/kubernetes#125796).
fn may_stand_still(case: &Case<'_>) -> bool {
    let Some(Answer::Object(version)) = case.discovery("/version".to_owned()) else { return true };
    let number =
        |pointer| object::text(version, pointer).and_then(|text| text.trim_end_matches('+').parse::<u32>().ok());
    number("/major").zip(number("/minor")).is_none_or(|version| version < (1, 32))
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// A valid owner that exists is no cause.
    #[test]
    fn owners_are_looked_up_where_references_point() {
        check_table(
            r#"
title: a valid owner
why: ConfigMap shop/a
kinds: [x.example/v1 Thing things]
objects: [{kind: ConfigMap, name: shop/a, owner: Thing t}, {kind: Thing, name: shop/t}]
expect: {code: not-deleting}
---
title: one of two owners is gone, and the controller manager, too
why: ConfigMap shop/a
kinds: [x.example/v1 Thing things]
objects:
- {apiVersion: v1, kind: ConfigMap, name: shop/a, ownerReferences: [{apiVersion: x.example/v1, kind: Thing, name: gone, uid: u}, {apiVersion: x.example/v1, kind: Thing, name: t, uid: uid-Thing-t}]}
- {kind: Thing, name: shop/t}
- {kind: Lease, name: kube-system/kube-controller-manager, spec: {leaseDurationSeconds: 15, renewTime: "2026-11-22T11:00:00.000000Z"}}
expect: {code: not-deleting}
---
title: a cluster-scoped object with a namespaced owner
why: Node n1
kinds: [x.example/v1 Thing things]
objects: [{kind: Node, name: n1, owner: Thing t}]
expect: {code: owner-reference-invalid, object: Node n1, says: [cluster-scoped]}
"#,
        );
    }
}
