//! Webhook configurations: which webhook is asked for a request, and whether it can answer.

use billhook_objects::{Resource, wellknown};
use serde_json::Value;

use crate::{
    Backend, Cause, Fact, ObjectRef, Reason, Responsible, ResponsibleState,
    backend::{Reach, Service},
    case::{Case, Priority},
    cause::Strength,
    kinds::{self, Builtin},
    object, selector, steps,
};

/// One webhook of a configuration.
pub(crate) struct Webhook<'a> {
    kind: &'static Builtin,
    configuration: &'a Value,
    webhook: &'a Value,
}

/// A request that webhooks are asked for.
pub(crate) struct Request<'a> {
    /// The object.
    pub(crate) object: &'a ObjectRef,
    /// The object as it is.
    pub(crate) value: &'a Value,
    /// The kind.
    pub(crate) resource: &'a Resource,
    /// The subresource; empty for the object itself.
    pub(crate) subresource: &'a str,
    /// `UPDATE` or `DELETE`.
    pub(crate) operation: &'static str,
}

/// Looks at all webhooks.
pub(crate) fn webhooks<'a>(case: &Case<'a>) -> Vec<Webhook<'a>> {
    let kinds = [&kinds::VALIDATING, &kinds::MUTATING];
    let of = |kind: &'static Builtin| {
        let configurations = case.list(kind, None, Priority::Cause).items();
        configurations.iter().flat_map(move |configuration| {
            object::list(configuration, "/webhooks").map(move |webhook| Webhook { kind, configuration, webhook })
        })
    };
    kinds.into_iter().flat_map(of).collect()
}

impl<'a> Webhook<'a> {
    pub(crate) fn name(&self) -> &'a str {
        object::text(self.webhook, "/name").unwrap_or_default()
    }

    /// Returns the configuration.
    pub(crate) fn configuration(&self) -> ObjectRef {
        self.kind.named(None, object::name(self.configuration))
    }

    pub(crate) fn service(&self) -> Option<Service<'a>> {
        Service::of(self.webhook.pointer("/clientConfig/service"))
    }

    /// Returns whether a request fails if the webhook does not answer. `Fail` is the default.
    pub(crate) fn must_answer(&self) -> bool {
        object::text(self.webhook, "/failurePolicy") != Some("Ignore")
    }

    /// Returns the groups of its rules.
    pub(crate) fn covers_group(&self, group: &str) -> bool {
        object::list(self.webhook, "/rules").any(|rule| object::texts(rule, "/apiGroups").any(|known| known == group))
    }

    /// Returns how surely it is asked for a request; none if it is not.
    pub(crate) fn is_asked(&self, case: &Case<'_>, request: &Request<'_>) -> Option<Strength> {
        let rules = object::list(self.webhook, "/rules").any(|rule| covers(rule, request));
        if !rules || !self.selects(case, request) {
            return None;
        }
        // Their expressions may exempt the request.
        let conditions = object::list(self.webhook, "/matchConditions").next().is_some();
        Some(if conditions { Strength::Possible } else { Strength::Proven })
    }

    fn selects(&self, case: &Case<'_>, request: &Request<'_>) -> bool {
        let labels = |value: &Value| value.pointer("/metadata/labels").cloned().unwrap_or_default();
        if !selector::matches(self.webhook.get("objectSelector"), &labels(request.value)) {
            return false;
        }
        let of_namespace =
            self.webhook.get("namespaceSelector").filter(|s| s.as_object().is_some_and(|s| !s.is_empty()));
        let Some(of_namespace) = of_namespace else { return true };
        if request.resource.kind == wellknown::namespace() {
            return selector::matches(Some(of_namespace), &labels(request.value));
        }
        let Some(namespace) = &request.object.namespace else { return true };
        let namespace = case.builtin(&kinds::NAMESPACE, None, namespace, Priority::Cause).value();
        namespace.is_some_and(|namespace| selector::matches(Some(of_namespace), &labels(namespace)))
    }

    /// Returns that it cannot be reached, if its Service shows that. `reported` is what a message said about it.
    pub(crate) fn unavailable(
        &self,
        case: &Case<'_>,
        operation: &'static str,
        strength: Strength,
        reported: Option<(&str, Fact)>,
    ) -> Option<Cause> {
        let configuration = self.configuration();
        let reach = self.service().map_or(Reach::Unknown, |service| service.reach(case));
        let (backend, party, facts, strength) = match (reach, reported) {
            (Reach::Broken(backend, party, facts), reported) => {
                (backend, party, reported.into_iter().map(|(_, fact)| fact).chain(facts).collect(), strength)
            }
            (Reach::Ready(party), Some((text, fact))) => {
                let party = Responsible { state: ResponsibleState::Failing, ..party };
                (Backend::Reported(text.to_owned()), party, vec![fact], Strength::Stated)
            }
            (Reach::Unknown, Some((text, fact))) => {
                let name = format!("webhook {}", self.name());
                let party = Responsible::new(name, ResponsibleState::Unknown);
                (Backend::Reported(text.to_owned()), party, vec![fact], Strength::Stated)
            }
            (Reach::Unknown | Reach::Ready(_), None) => return None,
        };
        let policy = object::text(self.webhook, "/failurePolicy").unwrap_or("Fail (default)");
        let path = format!("webhooks[name={}].failurePolicy", self.name());
        let steps = steps::webhook(&configuration, &backend, self.has_other_backends());
        let reason = Reason::WebhookUnavailable { webhook: self.name().to_owned(), operation, backend };
        let evidence = std::iter::once(Fact::new(&configuration, path, policy)).chain(facts);
        Some(Cause::new(&configuration, reason, strength).evidence(evidence).responsible(party).steps(steps))
    }

    /// Returns whether the same configuration has webhooks with other backends, which its deletion would remove too.
    fn has_other_backends(&self) -> bool {
        let own = self.webhook.pointer("/clientConfig/service/namespace");
        let name = self.webhook.pointer("/clientConfig/service/name");
        object::list(self.configuration, "/webhooks").any(|other| {
            other.pointer("/clientConfig/service/namespace") != own
                || other.pointer("/clientConfig/service/name") != name
        })
    }
}

/// Returns the cause of a message that a webhook of this name could not be called.
pub(crate) fn failed_call(case: &Case<'_>, name: &str, detail: &str, fact: Fact) -> Cause {
    let operation = if detail.contains("DELETE") { "DELETE" } else { "a request" };
    let known = webhooks(case).into_iter().find(|webhook| webhook.name() == name && webhook.must_answer());
    let cause =
        known.and_then(|webhook| webhook.unavailable(case, operation, Strength::Proven, Some((detail, fact.clone()))));
    cause.unwrap_or_else(|| {
        let backend = Backend::Reported(detail.to_owned());
        let reason = Reason::WebhookUnavailable { webhook: name.to_owned(), operation, backend };
        let party = Responsible::new(format!("webhook {name}"), ResponsibleState::Failing);
        Cause::new(&fact.object.clone(), reason, Strength::Stated).evidence([fact]).responsible(party)
    })
}

/// Returns the configuration that has a webhook of this name.
pub(crate) fn configuration_of(case: &Case<'_>, name: &str) -> Option<ObjectRef> {
    webhooks(case).into_iter().find(|webhook| webhook.name() == name).map(|webhook| webhook.configuration())
}

fn covers(rule: &Value, request: &Request<'_>) -> bool {
    let Resource { kind, plural, namespaced, .. } = request.resource;
    let among = |pointer: &str, wanted: &str| object::texts(rule, pointer).any(|known| known == "*" || known == wanted);
    let resource = |known: &str| {
        let (name, subresource) = known.split_once('/').unwrap_or((known, ""));
        (name == "*" || name == plural) && (subresource == request.subresource || subresource == "*")
    };
    let scope = match object::text(rule, "/scope") {
        Some("Namespaced") => *namespaced,
        Some("Cluster") => !namespaced,
        _ => true,
    };
    // The version does not matter: by default equivalent versions are converted.
    scope
        && among("/operations", request.operation)
        && among("/apiGroups", &kind.group)
        && object::texts(rule, "/resources").any(resource)
}
