//! No client has requested the deletion.
//!
//! Situations: 1.14, 5.8, 7.1, 7.5 and 7.8, where something was expected to be deleted with another thing.

use serde_json::Value;

use crate::{
    Cause, Fact, ObjectRef, Reason,
    case::{Case, Priority},
    cause::Strength,
    kinds, object,
    rule::Held,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value().filter(|value| held.is_subject && !object::is_deleting(value)) else {
        return Vec::new();
    };
    let (detail, facts) = match detail(case, held.object, value) {
        Some((detail, facts)) => (Some(detail), facts),
        None => (None, Vec::new()),
    };
    let fact = Fact::new(held.object, "metadata.deletionTimestamp", "none");
    let cause = Cause::new(held.object, Reason::NotDeleting { detail }, Strength::Proven);
    vec![cause.evidence(std::iter::once(fact).chain(facts))]
}

/// Returns what is worth knowing about an object that outlived what it belongs to.
fn detail(case: &Case<'_>, reference: &ObjectRef, value: &Value) -> Option<(String, Vec<Fact>)> {
    if let Some(namespace) = &reference.namespace {
        let owner = kinds::NAMESPACE.named(None, namespace.clone());
        if case.builtin(&kinds::NAMESPACE, None, namespace, Priority::Cause).is_missing() {
            let detail = "its Namespace was finalized by force: it can be read and deleted, but not updated";
            return Some((detail.to_owned(), vec![Fact::missing(&owner)]));
        }
    }
    if let Some(hook) = object::annotation(value, "helm.sh/hook") {
        let detail = format!("it is a hook ({hook}) of a chart, which Helm does not delete with the release");
        return Some((detail, vec![Fact::new(reference, "metadata.annotations[helm.sh/hook]", hook)]));
    }
    let job = object::label(value, "batch.kubernetes.io/job-name").or_else(|| object::label(value, "job-name"));
    if let Some(job) = job.filter(|_| object::list(value, "/metadata/ownerReferences").next().is_none()) {
        let detail = format!("its Job {job} was deleted with the propagation policy Orphan");
        return Some((detail, vec![Fact::new(reference, "metadata.labels[job-name]", job)]));
    }
    let namespace = object::list(value, "/webhooks")
        .find_map(|webhook| object::text(webhook, "/clientConfig/service/namespace"))?;
    let owner = kinds::NAMESPACE.named(None, namespace);
    case.builtin(&kinds::NAMESPACE, None, namespace, Priority::Cause).is_missing().then(|| {
        let detail = format!(
            "the Namespace {namespace} of its Service was deleted, which does not delete cluster-scoped objects"
        );
        (detail, vec![Fact::missing(&owner)])
    })
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// What outlived its Namespace or release says so.
    #[test]
    fn an_object_that_nobody_deletes_says_so() {
        check_table(
            r#"
title: a plain object
why: ConfigMap shop/a
objects: [{kind: ConfigMap, name: shop/a}]
expect: {code: not-deleting}
---
title: a Pod of a Job that exists
why: Pod shop/a
objects: [{kind: Pod, name: shop/a, labels: {job-name: j}, owner: Job j}, {kind: Job, name: shop/j}]
expect: {code: not-deleting}
---
title: an object that does not exist
why: ConfigMap shop/a
expect: {}
"#,
        );
    }
}
