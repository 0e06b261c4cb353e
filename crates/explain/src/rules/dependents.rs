//! Foreground deletion waits for dependents; or nothing is left, and the garbage collector does not act.
//!
//! Situations: 5.1, 5.2; 8.4 where the Job is being deleted.

use std::collections::BTreeMap;

use billhook_objects::{GroupKind, Resource, wellknown};
use serde_json::Value;

use super::namespaces::samples;
use crate::{
    Cause, Content, Fact, ObjectRef, Reason, Responsible, ResponsibleState,
    case::{Case, Found, Priority, is_custom},
    cause::Strength,
    controller, object,
    rule::Held,
    steps,
};

/// How many kinds are searched for dependents.
const KINDS: usize = 20;
/// How many seconds the garbage collector may need: it learns about new kinds every 30 s.
const PATIENCE: i64 = 120;
/// Kinds that own nothing and are many.
const NEVER: [&str; 4] = ["Event", "Lease", "Endpoints", "ControllerRevision"];

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value().filter(|value| object::is_deleting(value)) else { return Vec::new() };
    let own = [wellknown::FOREGROUND_FINALIZER, wellknown::ORPHAN_FINALIZER];
    let Some(finalizer) = object::finalizers(value).into_iter().find(|finalizer| own.contains(finalizer)) else {
        return Vec::new();
    };
    let there = Fact::new(held.object, "metadata.finalizers", finalizer);
    let manager = controller::component(case, "kube-controller-manager");
    let collector = |why: String, strength| {
        let reason = Reason::ControllerManager { controller: "the garbage collector", why };
        let party = Responsible::new("kube-controller-manager", ResponsibleState::Failing);
        let cause = Cause::new(held.object, reason, strength).evidence([there.clone()]).evidence(manager.facts.clone());
        vec![cause.responsible(party).steps(steps::control_plane("kube-controller-manager"))]
    };
    if manager.state == ResponsibleState::Failing {
        return collector(format!("kube-controller-manager: {}", manager.problem), Strength::Proven);
    }
    let cycle = cycle(case, held.object, value);
    if !cycle.is_empty() {
        return cycle;
    }
    let is_foreground = finalizer == wellknown::FOREGROUND_FINALIZER;
    let found = dependents(case, held.object, value, is_foreground);
    if !found.objects.is_empty() {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        found.objects.iter().for_each(|object| *counts.entry(object.kind.as_str()).or_default() += 1);
        let counts: Vec<_> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let party = Responsible::new("the garbage collector", manager.state);
        let cause = Cause::new(held.object, Reason::DependentsRemain { counts: counts.join(", ") }, Strength::Proven);
        return vec![cause.evidence([there]).responsible(party).waits_for(found.samples)];
    }
    if found.complete && case.age_of_deletion(value) >= PATIENCE {
        let only = object::finalizers(value).len() == 1;
        let strength = if only { Strength::Proven } else { Strength::Stated };
        return collector("no dependent is left, and it has not removed its finalizer".to_owned(), strength);
    }
    let reason = Reason::InProgress {
        finalizer: finalizer.to_owned(),
        controller: "the garbage collector".to_owned(),
        progress: None,
    };
    let party = Responsible::new("the garbage collector", manager.state);
    let strength = if found.complete { Strength::Proven } else { Strength::Possible };
    vec![Cause::new(held.object, reason, strength).evidence([there]).responsible(party)]
}

struct Dependents {
    objects: Vec<ObjectRef>,
    samples: Vec<ObjectRef>,
    complete: bool,
}

/// Looks for the objects whose owner an object is. There is no index of owners, so kinds are listed, some of them.
fn dependents(case: &Case<'_>, owner: &ObjectRef, value: &Value, is_foreground: bool) -> Dependents {
    let mut found = Dependents { objects: Vec::new(), samples: Vec::new(), complete: true };
    let owns = |object: &&Value| {
        object::list(object, "/metadata/ownerReferences").any(|reference| {
            let blocks = reference.get("blockOwnerDeletion") == Some(&Value::Bool(true));
            object::text(reference, "/uid") == Some(object::uid(value)) && (blocks || !is_foreground)
        })
    };
    let mut left = KINDS;
    for kinds in kinds(case, owner) {
        let mut is_read = true;
        for resource in kinds.iter().take(left) {
            let list = case.list_of(resource.clone(), owner.namespace.as_deref(), Content::Metadata, Priority::Cause);
            is_read &= !matches!(list, Found::Unknown);
            found.complete &= list.is_complete();
            let own: Vec<Value> = list.items().iter().filter(owns).cloned().collect();
            let name = |object: &Value| {
                let (version, kind) = (resource.api_version(), resource.kind.kind.clone());
                ObjectRef::new(version, kind, object::namespace(object), object::name(object))
            };
            found.samples.extend(samples(&own).into_iter().map(name));
            found.objects.extend(own.iter().map(name));
        }
        found.complete &= kinds.len() <= left;
        left = left.saturating_sub(kinds.len());
        if !is_read || !found.objects.is_empty() {
            break;
        }
    }
    found
}

/// Returns the kinds that may be dependents, the nearest first, and those to search next if none of these is one. What a workload
/// creates is known; others add dependents to it, most often of custom kinds.
fn kinds(case: &Case<'_>, owner: &ObjectRef) -> Vec<Vec<Resource>> {
    let created: &[&str] = match (owner.api_version.group(), owner.kind.as_str()) {
        ("apps", "Deployment") => &["ReplicaSet"],
        ("batch", "CronJob") => &["Job"],
        ("apps", "StatefulSet") => &["Pod", "PersistentVolumeClaim"],
        ("apps", "ReplicaSet" | "DaemonSet") | ("batch", "Job") => &["Pod"],
        _ => &[],
    };
    let own = owner.api_version.group();
    let mut kinds: Vec<_> = case
        .catalog
        .iter()
        .filter(|kind| {
            let in_scope = owner.namespace.is_none() || kind.scope == billhook_objects::Scope::Namespaced;
            kind.supports("list") && in_scope && !NEVER.contains(&kind.kind.kind.as_str())
        })
        .collect();
    kinds.sort_by_key(|kind| {
        let nearness = match kind.kind.group.as_str() {
            group if group == own => 0,
            "apps" | "batch" => 1,
            "" => 2,
            _ => 3,
        };
        (nearness, kind.kind.clone())
    });
    let of = |is_wanted: &dyn Fn(&GroupKind) -> bool| -> Vec<Resource> {
        kinds.iter().filter(|kind| is_wanted(&kind.kind)).map(|kind| Resource::of(kind, None)).collect()
    };
    if created.is_empty() {
        vec![of(&|_| true)]
    } else {
        let is_created = |kind: &GroupKind| created.contains(&kind.kind.as_str());
        let built_in = of(&|kind| !is_created(kind) && !is_custom(&kind.group));
        vec![of(&is_created), of(&|kind| is_custom(&kind.group)), built_in]
    }
}

/// Two objects that own each other wait for each other.
fn cycle(case: &Case<'_>, reference: &ObjectRef, value: &Value) -> Vec<Cause> {
    let owners = super::owners::references(value, reference.namespace.as_deref());
    let owned_by_us = |owner: &&(ObjectRef, String)| {
        let live = case.get(&owner.0, Priority::Cause).value();
        let is_ours = |back: &Value| object::text(back, "/uid") == Some(object::uid(value));
        live.is_some_and(|live| object::list(live, "/metadata/ownerReferences").any(is_ours))
    };
    let cause = |(owner, uid): &(ObjectRef, String)| {
        let reason = Reason::OwnerInvalid { owner: owner.to_string(), problem: "both own each other" };
        let fact = Fact::new(reference, "metadata.ownerReferences", format!("{owner} ({uid})"));
        Cause::new(reference, reason, Strength::Proven).evidence([fact]).steps(steps::owner())
    };
    owners.iter().filter(owned_by_us).map(cause).collect()
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// Only dependents that block are waited for.
    #[test]
    fn foreground_deletion_waits_for_what_blocks() {
        check_table(
            r#"
title: a dependent that does not block
why: Deployment shop/web
objects:
- {kind: Deployment, name: shop/web, deleted: 30s, finalizers: [foregroundDeletion]}
- {kind: ReplicaSet, name: shop/web-1}
expect: {code: finalizer-in-progress}
---
title: the controller manager lost its Lease
why: Deployment shop/web
objects:
- {kind: Deployment, name: shop/web, deleted: 30s, finalizers: [foregroundDeletion]}
- {kind: Lease, name: kube-system/kube-controller-manager, spec: {leaseDurationSeconds: 15, renewTime: "2026-11-22T11:00:00.000000Z"}}
expect: {code: controller-manager-not-working, responsible: failing, says: [1 h]}
---
title: a dependent of a custom kind blocks a Deployment
why: Deployment shop/web
kinds: [shop.example/v1 Route routes]
objects:
- {kind: Deployment, name: shop/web, deleted: 1h, finalizers: [foregroundDeletion]}
- {kind: Route, name: shop/web, owner: Deployment web, deleted: 1h, finalizers: [shop.example/route], by: router}
- {kind: Lease, name: kube-system/kube-controller-manager, spec: {leaseDurationSeconds: 15, renewTime: "2026-11-22T11:59:55.000000Z"}}
expect: {code: finalizer-controller-absent, object: Route shop/web}
---
title: more custom kinds than are searched may have a dependent
why: Deployment shop/web
kinds: [a.x.example/v1 A as, b.x.example/v1 B bs, c.x.example/v1 C cs, d.x.example/v1 D ds, e.x.example/v1 E es, f.x.example/v1 F fs,
  g.x.example/v1 G gs, h.x.example/v1 H hs, i.x.example/v1 I is, j.x.example/v1 J js, k.x.example/v1 K ks, l.x.example/v1 L ls,
  m.x.example/v1 M ms, n.x.example/v1 N ns, o.x.example/v1 O os, p.x.example/v1 P ps, q.x.example/v1 Q qs]
objects: [{kind: Deployment, name: shop/web, deleted: 1h, finalizers: [foregroundDeletion]}]
expect: {code: finalizer-in-progress, strength: possible}
"#,
        );
    }
}
