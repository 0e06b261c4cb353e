//! A webhook that must answer the next request about an object cannot be reached: the DELETE that it waits for, or the UPDATE
//! that removes its finalizer.
//!
//! Situations: 4.1, 4.2, 4.7 and 4.8 where the backend is gone; 2.14 and 2.20 as one blocker of several.

use crate::{
    Cause,
    admission::{Request, webhooks},
    case::Case,
    kinds, object,
    rule::Held,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    // The API server asks no webhook about webhook configurations.
    if kinds::VALIDATING.is(held.object) || kinds::MUTATING.is(held.object) {
        return Vec::new();
    }
    let Some((value, resource)) = held.seen.value().zip(case.resource(held.object)) else { return Vec::new() };
    let mut requests: Vec<(&'static str, &str)> = Vec::new();
    if !object::is_deleting(value) {
        requests.push(("DELETE", ""));
    } else {
        if !object::finalizers(value).is_empty() {
            requests.push(("UPDATE", ""));
        }
        if kinds::NAMESPACE.is(held.object) {
            requests.extend([("UPDATE", "finalize"), ("UPDATE", "status")]);
        }
        // The kubelet deletes a Pod once more when its containers have ended.
        if kinds::POD.is(held.object) {
            requests.push(("DELETE", ""));
        }
    }
    let mut causes = Vec::new();
    for (operation, subresource) in requests {
        let request = Request { object: held.object, value, resource: &resource, subresource, operation };
        for webhook in webhooks(case).iter().filter(|webhook| webhook.must_answer()) {
            let asked = webhook.is_asked(case, &request);
            causes.extend(asked.and_then(|strength| webhook.unavailable(case, operation, strength, None)));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// Only a webhook that is asked for this request and must answer blocks it.
    #[test]
    fn only_a_webhook_that_is_asked_blocks() {
        check_table(
            r#"
title: a webhook for the DELETE of an object that nobody could delete
why: Thing shop/a
kinds: [x.example/v1 Thing things]
objects:
- {kind: Thing, name: shop/a}
- {kind: ValidatingWebhookConfiguration, name: x, webhooks: [{name: v.x.example, clientConfig: {service: {namespace: x, name: hooks}}, rules: [{operations: [DELETE], apiGroups: [x.example], resources: [things]}]}]}
expect: {code: webhook-unavailable, responsible: absent, says: [DELETE], commands: [kubectl delete validatingwebhookconfiguration x]}
---
title: another kind, another operation, a subresource, another scope, other labels
why: Thing shop/a
kinds: [x.example/v1 Thing things]
objects:
- {kind: Thing, name: shop/a, labels: {tier: front}}
- {kind: ValidatingWebhookConfiguration, name: x, webhooks: [
    {name: a.x.example, clientConfig: {service: {namespace: x, name: hooks}}, rules: [{operations: [DELETE], apiGroups: [x.example], resources: [others]}]},
    {name: b.x.example, clientConfig: {service: {namespace: x, name: hooks}}, rules: [{operations: [UPDATE], apiGroups: [x.example], resources: [things]}]},
    {name: c.x.example, clientConfig: {service: {namespace: x, name: hooks}}, rules: [{operations: [DELETE], apiGroups: [x.example], resources: [things/status]}]},
    {name: d.x.example, clientConfig: {service: {namespace: x, name: hooks}}, rules: [{operations: [DELETE], apiGroups: [x.example], resources: [things], scope: Cluster}]},
    {name: e.x.example, clientConfig: {service: {namespace: x, name: hooks}}, objectSelector: {matchLabels: {tier: back}}, rules: [{operations: [DELETE], apiGroups: [x.example], resources: [things]}]}]}
expect: {code: not-deleting}
---
title: a configuration with another backend is not deleted without a word
why: Thing shop/a
kinds: [x.example/v1 Thing things]
objects:
- {kind: Thing, name: shop/a}
- {kind: MutatingWebhookConfiguration, name: x, webhooks: [
    {name: a.x.example, clientConfig: {service: {namespace: x, name: hooks}}, rules: [{operations: [DELETE], apiGroups: ["*"], resources: ["*"]}]},
    {name: b.x.example, clientConfig: {service: {namespace: y, name: other}}, rules: []}]}
expect: {code: webhook-unavailable, responsible: absent, risks: [affects-others]}
---
title: the Namespace's own last write
why: Namespace shop
objects:
- {kind: Namespace, name: shop, deleted: 2h, spec: {finalizers: [kubernetes]}, conditions: ["NamespaceContentRemaining=False ContentRemoved: ok"]}
- {kind: ValidatingWebhookConfiguration, name: policy, webhooks: [{name: p.x.example, clientConfig: {service: {namespace: x, name: hooks}}, rules: [{operations: [UPDATE], apiGroups: [""], resources: [namespaces/finalize]}]}]}
expect: {code: webhook-unavailable, responsible: absent, commands: [kubectl delete validatingwebhookconfiguration policy]}
"#,
        );
    }
}
