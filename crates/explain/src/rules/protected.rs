//! Something protects the object: a setting of its own, or an annotation by which its manager keeps it.
//!
//! Situations: 3.14 and others where a confirmation is missing (by the message of the rejection), 7.2.

use serde_json::Value;

use crate::{
    Cause, Fact, Reason, Responsible, ResponsibleState, case::Case, cause::Strength, object, rule::Held, steps,
};

/// Annotations and labels by which a manager keeps what it no longer needs: the key, the value, and who honours it.
const KEPT: [(&str, &str, &str); 5] = [
    ("helm.sh/resource-policy", "keep", "Helm"),
    ("kustomize.toolkit.fluxcd.io/prune", "disabled", "Flux"),
    ("argocd.argoproj.io/sync-options", "Prune=false", "Argo CD"),
    ("argocd.argoproj.io/sync-options", "Delete=false", "Argo CD"),
    ("resources.gardener.cloud/keep-object", "true", "Gardener"),
];

pub(crate) fn judge(_case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value() else { return Vec::new() };
    let mut causes: Vec<_> = own_setting(value, "spec", 0)
        .into_iter()
        .map(|path| {
            let reason = Reason::Protected { by: format!("{path} is true") };
            let step = steps::lift(&format!("set {path} to false if the object is to be deleted"));
            let owner = Responsible::new("the owner of the object", ResponsibleState::Working);
            Cause::new(held.object, reason, Strength::Proven)
                .evidence([Fact::new(held.object, path, "true")])
                .responsible(owner)
                .steps(step)
        })
        .collect();
    // A manager's annotation keeps nothing from a deletion that was requested.
    if held.is_subject && !object::is_deleting(value) {
        let set = |(key, wanted, _): &&(&str, &str, &str)| {
            let found = object::annotation(value, key).or_else(|| object::label(value, key));
            found.is_some_and(|found| found.split(',').any(|part| part.trim() == *wanted))
        };
        causes.extend(KEPT.iter().filter(set).map(|(key, wanted, manager)| {
            let reason = Reason::Protected { by: format!("{manager} keeps it, because {key} is {wanted}") };
            let step = steps::lift("delete it by name if it is no longer needed; its manager does not");
            Cause::new(held.object, reason, Strength::Proven)
                .evidence([Fact::new(held.object, format!("metadata.annotations[{key}]"), *wanted)])
                .responsible(Responsible::new(*manager, ResponsibleState::Working))
                .steps(step)
        }));
    }
    causes
}

/// Returns the path of a field such as `deletionProtection: true`.
fn own_setting(value: &Value, path: &str, depth: usize) -> Option<String> {
    let fields = match depth {
        0 => value.get("spec")?.as_object()?,
        1..4 => value.as_object()?,
        _ => return None,
    };
    fields.iter().find_map(|(key, value)| {
        let path = format!("{path}.{key}");
        let name = key.to_lowercase();
        let protects =
            name.contains("deletionprotection") || name.contains("terminationprotection") || name == "preventdeletion";
        if protects && (value == &Value::Bool(true) || value.get("enabled") == Some(&Value::Bool(true))) {
            return Some(path);
        }
        own_setting(value, &path, depth + 1)
    })
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// A manager keeps only what nobody else deletes.
    #[test]
    fn a_protection_is_read_from_the_object() {
        check_table(
            r#"
title: a kept object that is being deleted nevertheless
why: ConfigMap shop/a
objects: [{kind: ConfigMap, name: shop/a, deleted: 1h, finalizers: [x.example/a], by: kubectl-edit, annotations: {helm.sh/resource-policy: keep}}]
expect: {code: finalizer-unknown}
---
title: a protection that is off
why: ConfigMap shop/a
objects: [{kind: ConfigMap, name: shop/a, spec: {deletionProtection: false}}]
expect: {code: not-deleting}
---
title: Argo CD does not prune it
why: ConfigMap shop/a
objects: [{kind: ConfigMap, name: shop/a, annotations: {argocd.argoproj.io/sync-options: "Validate=false, Prune=false"}}]
expect: {code: protected, says: [Argo CD]}
"#,
        );
    }
}
