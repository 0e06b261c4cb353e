//! A CRD that is being deleted waits for its instances.
//!
//! Situations: 6.1, 6.5; with the rules about the instances also 2.x, 4.10 and 6.7.

use billhook_objects::{Resource, ResourceType, wellknown};
use serde_json::Value;

use super::{namespaces::samples, unreadable};
use crate::{
    Cause, Content, Fact, ObjectRef, Reason, Responsible, ResponsibleState,
    case::{Case, Found, Priority},
    cause::Strength,
    kinds, object, quoted,
    rule::Held,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let value = held.seen.value().filter(|value| kinds::CRD.is(held.object) && object::is_deleting(value));
    let Some(value) = value.filter(|value| object::finalizers(value).contains(&wellknown::CRD_CLEANUP_FINALIZER))
    else {
        return Vec::new();
    };
    let condition = object::condition(value, "Terminating");
    let said = condition.map(|condition| Fact::new(held.object, condition.path(), condition.shown()));
    let quoted =
        condition.zip(said.clone()).and_then(|(condition, fact)| quoted::cause(case, condition.message(), fact));
    let found = ResourceType::from_crd(value).map(|kind| {
        let resource = Resource::of(&kind, None);
        (case.list_of(resource.clone(), None, Content::Metadata, Priority::Cause), resource)
    });
    let count = match &found {
        Some((Found::Items(items, true), _)) => Some(items.len()),
        _ => None,
    };
    let party = Responsible::new("kube-apiserver", ResponsibleState::Working);
    let mut cause = Cause::new(held.object, Reason::InstancesRemain { count }, Strength::Proven)
        .evidence([Fact::new(held.object, "metadata.finalizers", wellknown::CRD_CLEANUP_FINALIZER)])
        .evidence(said)
        .because(quoted)
        .responsible(party);
    if let Some((found, resource)) = found {
        if let Found::Failed(failure) = found {
            cause.causes.extend(unreadable::of_list(case, &resource, held.object, failure));
        }
        let version = resource.api_version();
        let name = |object: &Value| {
            let kind = resource.kind.kind.clone();
            ObjectRef::new(version.clone(), kind, object::namespace(object), object::name(object))
        };
        cause.waits_for.extend(samples(found.items()).into_iter().map(name));
    }
    vec![cause]
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// The instances hold a CRD, not the CRD itself.
    #[test]
    fn a_crd_waits_for_its_instances() {
        check_table(
            r#"
title: no instance is left
why: CustomResourceDefinition things.x.example
kinds: [x.example/v1 Thing things]
objects: [{kind: CustomResourceDefinition, name: things.x.example, deleted: 5s, finalizers: [customresourcecleanup.apiextensions.k8s.io], spec: {group: x.example, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true}]}}]
expect: {code: instances-remain, responsible: working, says: [0 instances]}
---
title: the list of instances is forbidden
why: CustomResourceDefinition things.x.example
kinds: [x.example/v1 Thing things]
objects: [{kind: CustomResourceDefinition, name: things.x.example, deleted: 5s, finalizers: [customresourcecleanup.apiextensions.k8s.io], spec: {group: x.example, scope: Namespaced, names: {kind: Thing, plural: things}, versions: [{name: v1, served: true, storage: true}]}}]
failures: [{list: things.x.example, status: 403, reason: Forbidden, message: no}]
expect: {code: forbidden, says: [the caller, things]}
"#,
        );
    }
}
