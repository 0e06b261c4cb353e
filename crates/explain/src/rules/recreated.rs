//! The object was deleted, and something recreates it.
//!
//! Situations: 7.7, 7.16.

use serde_json::Value;

use crate::{
    Cause, Fact, Reason, Responsible, ResponsibleState, case::Case, cause::Strength, object, rule::Held, steps,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value().filter(|_| held.is_subject) else { return Vec::new() };
    let before = case.before(held.object).and_then(|(_, seen)| seen.value()).map(object::uid);
    let known = held.object.uid.as_ref().map(billhook_objects::Uid::as_str).or(before);
    let Some(known) = known.filter(|known| *known != object::uid(value)) else { return Vec::new() };
    let manager = manager(value);
    let facts = [
        Fact::new(held.object, "metadata.uid", format!("{}, was {known}", object::uid(value))),
        Fact::new(held.object, "managed by", &manager),
    ];
    let cause =
        Cause::new(held.object, Reason::Recreated { manager: manager.clone() }, Strength::Proven).evidence(facts);
    vec![cause.responsible(Responsible::new(&manager, ResponsibleState::Working)).steps(steps::stop_source(&manager))]
}

/// Returns who manages an object: by its tracking labels and annotations, by its owner, or by the manager that created it.
fn manager(value: &Value) -> String {
    let flux = |kind: &str, domain: &str| {
        let name = object::label(value, &format!("{domain}/name"))?;
        Some(format!("{kind} {}/{name}", object::label(value, &format!("{domain}/namespace")).unwrap_or_default()))
    };
    let argo = || {
        let id = object::annotation(value, "argocd.argoproj.io/tracking-id").and_then(|id| id.split(':').next());
        let name = id.or_else(|| object::label(value, "argocd.argoproj.io/instance"))?;
        Some(format!("Argo CD application {name}"))
    };
    let helm = || {
        let name = object::annotation(value, "meta.helm.sh/release-name")?;
        let namespace = object::annotation(value, "meta.helm.sh/release-namespace").unwrap_or_default();
        Some(format!("Helm release {namespace}/{name}"))
    };
    let owner = || {
        let owner = object::list(value, "/metadata/ownerReferences").next()?;
        Some(format!("{} {}", object::text(owner, "/kind")?, object::text(owner, "/name")?))
    };
    flux("Kustomization", "kustomize.toolkit.fluxcd.io")
        .or_else(|| flux("HelmRelease", "helm.toolkit.fluxcd.io"))
        .or_else(argo)
        .or_else(owner)
        .or_else(helm)
        .or_else(|| object::creator(value).map(str::to_owned))
        .unwrap_or_else(|| "another client".to_owned())
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// An object with another UID is another object.
    #[test]
    fn another_uid_is_another_object() {
        check_table(
            r#"
title: created again by hand
why: ConfigMap shop/a
was: uid-old
objects: [{kind: ConfigMap, name: shop/a, finalizers: [x.example/a], by: kubectl-create}]
expect: {code: recreated, says: [kubectl-create]}
---
title: the same object
why: ConfigMap shop/a
was: uid-ConfigMap-a
objects: [{kind: ConfigMap, name: shop/a}]
expect: {code: not-deleting}
---
title: it changed its UID between two looks
why: ConfigMap shop/a
objects: [{kind: ConfigMap, name: shop/a, labels: {argocd.argoproj.io/instance: shop}}]
later: [{kind: ConfigMap, name: shop/a, uid: uid-new, labels: {argocd.argoproj.io/instance: shop}}]
expect: {code: recreated, says: [Argo CD application shop]}
"#,
        );
    }
}
