//! An object that is so large that nobody can mark it for deletion: with finalizers, a deletion is an update.
//!
//! Situation: 9.2.

use serde_json::Value;

use crate::{
    Cause, Fact, Reason, Responsible, ResponsibleState,
    case::{Case, is_custom},
    cause::Strength,
    object,
    rule::Held,
    steps,
};

/// The largest request that etcd accepts by default.
const LIMIT: usize = 1536 * 1024;
/// What marks an object: `"deletionGracePeriodSeconds":0,"deletionTimestamp":"2026-11-22T12:00:00Z",`.
const MARK: usize = 76;
/// What surrounds an object in a request to etcd, beside its key, which each of three operations names.
const AROUND: usize = 46;

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let is_marked_first = |value: &&Value| !object::is_deleting(value) && !object::finalizers(value).is_empty();
    let Some(value) = held.seen.value().filter(is_marked_first) else { return Vec::new() };
    let Some(size) = stored_size(value).filter(|size| size + MARK > LIMIT - LIMIT / 64) else { return Vec::new() };
    let Some(resource) = case.resource(held.object) else { return Vec::new() };
    let key =
        ["/registry", &resource.kind.group, &resource.plural, held.object.namespace.as_deref().unwrap_or_default()];
    let key =
        key.iter().filter(|part| !part.is_empty()).map(|part| part.len() + 1).sum::<usize>() + held.object.name.len();
    if size + MARK + AROUND + 3 * key <= LIMIT {
        return Vec::new();
    }
    // The kinds of the API server itself are stored in a shorter form.
    let strength = if is_custom(&resource.kind.group) { Strength::Proven } else { Strength::Possible };
    let message = format!(
        "with {size} bytes it is as large as etcd allows, so that the mark for deletion, which its finalizers require, does not fit"
    );
    let cause = Cause::new(held.object, Reason::AdmissionDenied { by: String::new(), message }, strength);
    let facts = [
        Fact::new(held.object, "size", format!("{size} bytes")),
        Fact::new(held.object, "metadata.finalizers", object::finalizers(value).join(", ")),
    ];
    let party = Responsible::new("the owner of the object", ResponsibleState::Working);
    vec![cause.evidence(facts).responsible(party).steps(steps::shrink())]
}

/// Returns the bytes of an object in storage: as JSON, without the `resourceVersion`.
fn stored_size(value: &Value) -> Option<usize> {
    let size = serde_json::to_string(value).ok()?.len();
    let revision = object::text(value, "/metadata/resourceVersion");
    Some(size - revision.map_or(0, |revision| revision.len() + r#""resourceVersion":"","#.len()))
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// Only what must be marked, and does not fit, cannot be deleted.
    #[test]
    fn a_mark_needs_room() {
        check_table(
            r#"
title: an object without finalizers is removed without a mark
why: Thing shop/a
kinds: [x.example/v1 Thing things]
objects: [{kind: Thing, name: shop/a, fill: 1572800}]
expect: {code: not-deleting}
---
title: there is room for the mark
why: Thing shop/a
kinds: [x.example/v1 Thing things]
objects: [{kind: Thing, name: shop/a, finalizers: [x.example/a], fill: 1572300}]
expect: {code: not-deleting}
---
title: an object that the namespace controller cannot mark
why: Namespace shop
kinds: [x.example/v1 Thing things]
objects:
- {kind: Namespace, name: shop, deleted: 1h, spec: {finalizers: [kubernetes]}, conditions: ["NamespaceDeletionContentFailure=True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: etcdserver: request is too large", "NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: things.x.example has 1 resource instances"]}
- {kind: Thing, name: shop/a, finalizers: [x.example/a], fill: 1572700}
expect: {code: admission-denied, object: Thing shop/a, says: [does not fit]}
"#,
        );
    }
}
