//! Admission rejects the request that an object waits for, as a dry run shows.
//!
//! Situations: 3.7, 3.14, 4.4, 4.5, 4.7, 9.2; and 4.1 and 4.2 where only the answer tells. Without dry runs, what conditions and
//! Events quote of these rejections is found by the rules about finalizers and Namespaces.

use crate::{
    Cause, Fact, Probe, Reason, Responsible, ResponsibleState, case::Case, cause::Strength, object, quoted, rule::Held,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some((value, resource)) = held.seen.value().zip(case.resource(held.object)) else { return Vec::new() };
    let (namespace, name) = (held.object.namespace.clone(), held.object.name.clone());
    let (probe, path) = match (object::is_deleting(value), object::finalizers(value).first()) {
        (false, _) => (Probe::Delete { resource, namespace, name }, "DELETE (dry run)"),
        (true, Some(finalizer)) => {
            let finalizer = (*finalizer).to_owned();
            (
                Probe::RemoveFinalizer { resource, namespace, name, finalizer, position: 0 },
                "PATCH metadata.finalizers (dry run)",
            )
        }
        (true, None) => return Vec::new(),
    };
    let Some(failure) = case.rejection(probe).filter(|failure| [400, 403, 413, 422, 500].contains(&failure.status))
    else {
        return Vec::new();
    };
    let fact = Fact::new(held.object, path, &failure.message);
    let cause = quoted::cause(case, &failure.message, fact.clone()).unwrap_or_else(|| {
        let reason = Reason::AdmissionDenied { by: String::new(), message: failure.message.clone() };
        let party = Responsible::new("kube-apiserver", ResponsibleState::Working);
        Cause::new(held.object, reason, Strength::Proven).evidence([fact]).responsible(party)
    });
    // The caller's own missing right to write says nothing about the controller's.
    if matches!(cause.reason, Reason::Forbidden { .. }) || failure.reason == "Forbidden" && cause.reason_is_plain() {
        return Vec::new();
    }
    vec![Cause { strength: Strength::Proven, ..cause }]
}

impl Cause {
    /// Returns whether the API server itself rejected, and no webhook or policy.
    fn reason_is_plain(&self) -> bool {
        matches!(&self.reason, Reason::AdmissionDenied { by, .. } if by.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// What only our own dry run lacks says nothing.
    #[test]
    fn a_dry_run_shows_what_rejects() {
        check_table(
            r#"
title: the caller may not patch
why: Thing shop/a
probe: true
kinds: [x.example/v1 Thing things]
operators: [{name: x/core, group: x.example}]
objects: [{kind: Thing, name: shop/a, deleted: 1h, finalizers: [x.example/a], by: core}]
failures: [{probe: finalizer, status: 403, reason: Forbidden, message: "things.x.example \"a\" is forbidden: User \"jane\" cannot patch resource \"things\" in API group \"x.example\" in the namespace \"shop\""}]
expect: {code: finalizer-in-progress}
---
title: a policy asks for a confirmation
why: Thing shop/a
probe: true
kinds: [x.example/v1 Thing things]
objects: [{kind: Thing, name: shop/a}]
failures: [{probe: delete, status: 403, message: "admission webhook \"guard.x.example\" denied the request: must have the annotation x.example/confirm-deletion"}]
expect: {code: protected, object: Thing shop/a, says: [confirm-deletion]}
---
title: dry runs are sent only if they are allowed
why: Thing shop/a
kinds: [x.example/v1 Thing things]
objects: [{kind: Thing, name: shop/a}]
failures: [{probe: delete, status: 422, message: invalid}]
expect: {code: not-deleting}
"#,
        );
    }
}
