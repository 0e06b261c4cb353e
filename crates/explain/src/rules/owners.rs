//! References to owners that are invalid, and dependents that outlive their owner.
//!
//! Situations: 5.4, 5.5, 5.7.

use billhook_objects::{ApiVersion, Scope};
use serde_json::Value;

use super::conversion;
use crate::{
    Cause, Fact, ObjectRef, Reason, Responsible, ResponsibleState,
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
    owners.into_iter().filter_map(|(owner, uid)| invalid(case, held.object, value, owner, &uid)).collect()
}

fn invalid(case: &Case<'_>, reference: &ObjectRef, value: &Value, owner: ObjectRef, uid: &str) -> Option<Cause> {
    let path = "metadata.ownerReferences";
    let cause = |owner: &ObjectRef, problem, facts: Vec<Fact>| {
        let reason = Reason::OwnerInvalid { owner: owner.to_string(), problem };
        let names = Fact::new(reference, path, format!("{owner} ({uid})"));
        Cause::new(reference, reason, Strength::Proven)
            .evidence(std::iter::once(names).chain(facts))
            .responsible(Responsible::new(object::creator(value).unwrap_or("who set it"), ResponsibleState::Unknown))
            .steps(steps::owner())
    };
    let kind = case.catalog.get(&owner.group_kind())?;
    let is_cluster = kind.scope == Scope::Cluster;
    if reference.namespace.is_none() && !is_cluster {
        return Some(cause(&owner, "a cluster-scoped object cannot have a namespaced owner", Vec::new()));
    }
    let owner = ObjectRef { namespace: owner.namespace.filter(|_| !is_cluster), ..owner };
    match case.get_metadata(&owner, Priority::Cause) {
        Seen::There(live) if object::uid(live) != uid => {
            let fact = Fact::new(&owner, "metadata.uid", object::uid(live));
            Some(cause(&owner, "an object of that name has another UID", vec![fact]))
        }
        Seen::Missing => {
            let events = case.warnings(value);
            let event =
                events.into_iter().find(|event| object::text(event, "/reason") == Some("OwnerRefInvalidNamespace"));
            if let Some(event) = event {
                let message = object::text(event, "/message").unwrap_or_default();
                let fact = Fact::new(reference, "Event OwnerRefInvalidNamespace", message);
                return Some(cause(&owner, "it is not in the namespace of its dependent", vec![fact]));
            }
            // Otherwise the garbage collector will delete the dependent; it may have much to do.
            outlived(case, reference, &owner, uid)
        }
        _ => None,
    }
}

/// The owner is gone and the dependent is not: the garbage collector stands still while one kind cannot be read.
fn outlived(case: &Case<'_>, reference: &ObjectRef, owner: &ObjectRef, uid: &str) -> Option<Cause> {
    let crds = case.list(&kinds::CRD, None, Priority::Detail);
    let broken: Vec<_> = crds.items().iter().filter_map(|crd| conversion::unavailable(case, crd)).collect();
    let manager = crate::controller::component(case, "kube-controller-manager");
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
    let cause = Cause::new(reference, reason, Strength::Stated).evidence(facts).evidence(manager.facts);
    Some(cause.responsible(party).because(broken).steps(steps::control_plane("kube-controller-manager")))
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
title: a cluster-scoped object with a namespaced owner
why: Node n1
kinds: [x.example/v1 Thing things]
objects: [{kind: Node, name: n1, owner: Thing t}]
expect: {code: owner-reference-invalid, object: Node n1, says: [cluster-scoped]}
"#,
        );
    }
}
