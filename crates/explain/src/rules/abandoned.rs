//! An object that is being deleted in a Namespace that does not exist any more: nobody can remove its finalizers.
//!
//! Situation: 1.14, where content was being deleted when its Namespace was finalized by force.

use crate::{
    Cause, Fact, Reason, Responsible, ResponsibleState,
    case::{Case, Priority},
    cause::Strength,
    kinds, object,
    rule::Held,
    steps,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let value = held.seen.value().filter(|value| object::is_deleting(value) && !object::finalizers(value).is_empty());
    let Some((value, name)) = value.zip(held.object.namespace.as_deref()) else { return Vec::new() };
    let namespace = kinds::NAMESPACE.named(None, name);
    if !case.builtin(&kinds::NAMESPACE, None, name, Priority::Cause).is_missing() {
        return Vec::new();
    }
    let message = format!(
        "its Namespace {name} was finalized by force and does not exist any more, so that no update of the object is accepted and \
         nobody can remove its finalizers"
    );
    let cause = Cause::new(held.object, Reason::AdmissionDenied { by: String::new(), message }, Strength::Proven);
    let there = Fact::new(held.object, "metadata.finalizers", object::finalizers(value).join(", "));
    let party = Responsible::new(namespace.to_string(), ResponsibleState::Absent);
    vec![cause.evidence([Fact::missing(&namespace), there]).responsible(party).steps(steps::recreate_namespace(name))]
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// What the controller would do does not matter while its update is rejected.
    #[test]
    fn nothing_is_updated_in_a_missing_namespace() {
        check_table(
            r#"
title: a working controller cannot remove its finalizer
why: Thing shop/a
absent: [shop]
kinds: [x.example/v1 Thing things]
operators: [{name: x/core, group: x.example}]
objects: [{kind: Thing, name: shop/a, deleted: 1h, finalizers: [x.example/a], by: core}]
expect: {code: admission-denied, object: Thing shop/a, responsible: absent, says: [Namespace shop], commands: [kubectl create namespace shop]}
---
title: a Namespace that may not be read is not called missing
why: Thing shop/a
kinds: [x.example/v1 Thing things]
objects: [{kind: Thing, name: shop/a, deleted: 1h, finalizers: [x.example/a], by: kubectl}]
failures: [{get: Namespace shop, status: 403, reason: Forbidden, message: no}]
expect: {code: finalizer-unknown}
"#,
        );
    }
}
