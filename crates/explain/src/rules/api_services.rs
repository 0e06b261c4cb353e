//! An aggregated API is unavailable.
//!
//! Situations: 1.1, 1.2, 1.5.

use serde_json::Value;

use crate::{
    Backend, Cause, Fact, Reason, Responsible, ResponsibleState,
    backend::{Reach, Service},
    case::Case,
    cause::Strength,
    kinds, object,
    rule::Held,
    steps,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let value = held.seen.value().filter(|_| kinds::API_SERVICE.is(held.object));
    value.and_then(|value| unavailable(case, value)).into_iter().collect()
}

/// Returns whether an APIService has a backend and is not available.
pub(crate) fn is_unavailable(value: &Value) -> bool {
    let available = object::condition(value, "Available").is_some_and(object::Condition::is_true);
    value.pointer("/spec/service").is_some_and(|service| !service.is_null()) && !available
}

/// Returns why an APIService is not available.
pub(crate) fn unavailable(case: &Case<'_>, value: &Value) -> Option<Cause> {
    if !is_unavailable(value) {
        return None;
    }
    let reference = kinds::API_SERVICE.named(None, object::name(value));
    let service = Service::of(value.pointer("/spec/service"))?;
    let condition = object::condition(value, "Available");
    let reported = condition.map(|condition| Fact::new(&reference, condition.path(), condition.shown()));
    let (backend, party, facts) = match service.reach(case) {
        Reach::Broken(backend, party, facts) => (backend, party, facts),
        reach => {
            let message = condition.map_or("", object::Condition::message).to_owned();
            let name = format!("Service {}/{}", service.namespace, service.name);
            let state = match reach {
                Reach::Ready(_) => ResponsibleState::Failing,
                _ => ResponsibleState::Unknown,
            };
            (Backend::Reported(message), Responsible::new(name, state), Vec::new())
        }
    };
    let text = |pointer| object::text(value, pointer).unwrap_or_default();
    let api = format!("{}/{}", text("/spec/group"), text("/spec/version"));
    let steps = steps::api_service(&reference, &backend);
    let reason = Reason::ApiServiceUnavailable { api, backend };
    let cause = Cause::new(&reference, reason, Strength::Proven).evidence(reported).evidence(facts);
    Some(cause.responsible(party).steps(steps))
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// The backend decides whether deleting the APIService is safe.
    #[test]
    fn a_backend_is_judged_by_its_service() {
        check_table(
            r#"
title: the Service does not exist
why: APIService v1.x.example
objects: [{kind: APIService, name: v1.x.example, spec: {group: x.example, version: v1, service: {namespace: x, name: api}}, conditions: ["Available=False ServiceNotFound: x"]}]
expect: {code: apiservice-unavailable, responsible: absent, commands: [kubectl delete apiservice v1.x.example]}
---
title: the Service is there and ready, and the check fails
why: APIService v1.x.example
objects:
- {kind: APIService, name: v1.x.example, spec: {group: x.example, version: v1, service: {namespace: x, name: api}}, conditions: ["Available=False FailedDiscoveryCheck: x509: certificate has expired"]}
- {kind: Service, name: x/api, spec: {}}
- {kind: EndpointSlice, name: x/api-1, labels: {kubernetes.io/service-name: api}, endpoints: [{conditions: {ready: true}}]}
expect: {code: apiservice-unavailable, responsible: failing, says: [certificate has expired], risks: [affects-others]}
---
title: an API of the server itself is always available
why: APIService v1.apps
objects: [{kind: APIService, name: v1.apps, spec: {group: apps, version: v1}}]
expect: {code: not-deleting}
"#,
        );
    }
}
