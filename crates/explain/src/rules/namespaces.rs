//! A Namespace that is being deleted: what its conditions say.
//!
//! Situations: 1.1 to 1.11 and 6.7; with the rules about its content also 2.x, 4.x, 7.17 and 9.1.

use billhook_objects::{ApiVersion, Resource, ResourceType, Scope, wellknown};
use serde_json::Value;

use super::{api_services, unreadable};
use crate::{
    Answer, Cause, Content, Fact, ObjectRef, Probe, Reason, Responsible, ResponsibleState,
    case::{Case, Found, Priority, is_custom},
    cause::Strength,
    controller, kinds,
    object::{self, Condition},
    quoted,
    rule::Held,
    steps,
};

/// How many seconds the namespace controller may take for the first conditions.
const FIRST_LOOK: i64 = 60;
/// The same while it holds its Lease.
const FIRST_LOOK_OF_LIVING: i64 = 600;
/// From how many Namespaces that are being deleted on there is a queue.
const QUEUE: usize = 10;
/// How many kinds are listed to find the one that cannot be.
const LISTED: usize = 16;
/// How many objects of one kind are followed.
const SAMPLES: usize = 2;

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let value = held.seen.value().filter(|value| kinds::NAMESPACE.is(held.object) && object::is_deleting(value));
    let Some(value) = value else { return Vec::new() };
    let namespace = Judged { case, reference: held.object, value };
    let mut causes = namespace.spec_finalizers();
    if object::conditions(value).next().is_none() {
        causes.extend(namespace.without_conditions());
        return causes;
    }
    let condition = |kind| object::condition(value, kind).filter(|condition| condition.is_true());
    for kind in ["NamespaceDeletionDiscoveryFailure", "NamespaceDeletionGroupVersionParsingFailure"] {
        causes.extend(condition(kind).into_iter().flat_map(|condition| namespace.discovery(condition)));
    }
    if let Some(condition) = condition("NamespaceDeletionContentFailure") {
        causes.extend(namespace.content_failure(condition));
    }
    if let Some(condition) = condition("NamespaceContentRemaining") {
        causes.extend(namespace.content(condition));
    }
    let all_fine = causes.is_empty() && object::finalizers(value).is_empty();
    causes.extend(all_fine.then(|| namespace.finalize()).flatten());
    causes
}

struct Judged<'a, 'c> {
    case: &'a Case<'c>,
    reference: &'a ObjectRef,
    value: &'a Value,
}

impl Judged<'_, '_> {
    fn spec_finalizers(&self) -> Vec<Cause> {
        let others =
            object::texts(self.value, "/spec/finalizers").filter(|entry| *entry != wellknown::NAMESPACE_FINALIZER);
        let cause = |finalizer: &str| {
            let reason = Reason::NamespaceFinalizer { finalizer: finalizer.to_owned() };
            Cause::new(self.reference, reason, Strength::Proven)
                .evidence([Fact::new(self.reference, "spec.finalizers", finalizer)])
                .responsible(Responsible::new(format!("who set {finalizer}"), ResponsibleState::Unknown))
                .steps(steps::namespace_finalizer(finalizer))
        };
        others.map(cause).collect()
    }

    /// No conditions yet: the namespace controller has not got to it, or does not work.
    fn without_conditions(&self) -> Vec<Cause> {
        let age = self.case.age_of_deletion(self.value);
        let fact = Fact::new(self.reference, "status.conditions", "none");
        if age < FIRST_LOOK {
            let reason = Reason::ContentRemains { counts: String::new() };
            return vec![Cause::new(self.reference, reason, Strength::Proven).evidence([fact])];
        }
        let manager = controller::component(self.case, "kube-controller-manager");
        let silent = |why: String, strength| {
            let reason = Reason::ControllerManager { controller: "the namespace controller", why };
            let party = Responsible::new("kube-controller-manager", ResponsibleState::Failing);
            let cause =
                Cause::new(self.reference, reason, strength).evidence([fact.clone()]).evidence(manager.facts.clone());
            vec![cause.responsible(party).steps(steps::control_plane("kube-controller-manager"))]
        };
        if manager.state == ResponsibleState::Failing {
            return silent(format!("kube-controller-manager: {}", manager.problem), Strength::Proven);
        }
        let all = self.case.list(&kinds::NAMESPACE, None, Priority::Cause);
        if !all.is_complete() && all.items().is_empty() {
            return Vec::new();
        }
        let deleting: Vec<_> = all.items().iter().filter(|namespace| object::is_deleting(namespace)).collect();
        let requested = object::deleted_at(self.value);
        let is_later = |condition: &Value| {
            object::time(condition, "/lastTransitionTime").is_none_or(|changed| Some(changed) >= requested)
        };
        let seen = deleting.iter().any(|namespace| object::list(namespace, "/status/conditions").any(is_later));
        let patience = if manager.state == ResponsibleState::Working { FIRST_LOOK_OF_LIVING } else { FIRST_LOOK };
        let is_queue = deleting.len() >= QUEUE && age < FIRST_LOOK_OF_LIVING;
        if seen || is_queue || age < patience {
            let reason = Reason::Queued { namespaces: deleting.len() };
            return vec![Cause::new(self.reference, reason, Strength::Proven).evidence([fact])];
        }
        let long = crate::text::duration(age);
        silent(format!("no Namespace that is being deleted has conditions, {long} after the request"), Strength::Stated)
    }

    /// Discovery fails: all Namespaces wait.
    fn discovery(&self, condition: Condition<'_>) -> Vec<Cause> {
        let fact = Fact::new(self.reference, condition.path(), condition.shown());
        let services = self.case.list(&kinds::API_SERVICE, None, Priority::Cause);
        let causes = services.items().iter().filter_map(|service| api_services::unavailable(self.case, service));
        let causes: Vec<_> = causes.map(|cause| cause.evidence([fact.clone()])).collect();
        if !causes.is_empty() {
            return causes;
        }
        let broken = |version: ApiVersion| {
            let name = format!("{}.{}", version.version(), version.group());
            let service = kinds::API_SERVICE.named(None, name);
            let path = format!("/apis/{version}");
            let (report, strength) = match self.case.discovery(path.clone()) {
                Some(Answer::Failed(failure)) => (failure.message.clone(), Strength::Proven),
                Some(Answer::Missing | Answer::NotServed) => ("NotFound".to_owned(), Strength::Proven),
                Some(Answer::Object(document)) if object::list(document, "/resources").next().is_none() => {
                    ("an empty document".to_owned(), Strength::Proven)
                }
                _ => (condition.message().to_owned(), Strength::Stated),
            };
            let reason = Reason::DiscoveryBroken { api: version.to_string(), report: report.clone() };
            let party = Responsible::new(format!("the server of {version}"), ResponsibleState::Failing);
            let answer = Fact::new(&service, path, report);
            Cause::new(&service, reason, strength).evidence([fact.clone(), answer]).responsible(party)
        };
        let mut versions: Vec<_> = group_versions(condition.message());
        versions.dedup();
        versions.into_iter().map(broken).collect()
    }

    /// The content could not be deleted: the message quotes why.
    fn content_failure(&self, condition: Condition<'_>) -> Vec<Cause> {
        let fact = Fact::new(self.reference, condition.path(), condition.shown());
        if let Some(cause) = quoted::cause(self.case, condition.message(), fact.clone()) {
            return vec![cause];
        }
        if let Some(cause) = unreadable::of_report(self.reference, condition.message(), &fact) {
            return vec![cause];
        }
        let remaining: Vec<_> = gvrs(condition.message());
        if !remaining.is_empty() {
            return vec![self.remaining(&remaining, fact)];
        }
        let unlisted = self.unlisted(&fact);
        if !unlisted.is_empty() {
            return unlisted;
        }
        let reason = Reason::ContentRemains { counts: condition.message().to_owned() };
        vec![Cause::new(self.reference, reason, Strength::Stated).evidence([fact])]
    }

    /// The message does not say which kind fails: the one that cannot be listed here. Those that are often encrypted come first.
    fn unlisted(&self, fact: &Fact) -> Vec<Cause> {
        let is_content = |kind: &&ResourceType| kind.scope == Scope::Namespaced && kind.supports("list");
        let mut kinds: Vec<_> = self.case.catalog.iter().filter(is_content).collect();
        let rank = |kind: &ResourceType| match (&*kind.kind.group, &*kind.kind.kind) {
            ("", "Secret" | "ConfigMap") => 0,
            (group, _) if is_custom(group) => 1,
            ("", _) => 2,
            _ => 3,
        };
        kinds.sort_by_key(|kind| (rank(kind), kind.kind.clone()));
        let failure = |kind: &&ResourceType| {
            let resource = Resource::of(kind, None);
            let namespace = Some(self.reference.name.as_str());
            match self.case.list_of(resource.clone(), namespace, Content::Metadata, Priority::Cause) {
                Found::Failed(failure) if !failure.is_forbidden() => {
                    unreadable::of_list(self.case, &resource, self.reference, failure)
                }
                _ => None,
            }
        };
        let found = kinds.iter().take(LISTED).filter_map(failure);
        found.map(|cause| cause.evidence([fact.clone()])).collect()
    }

    fn content(&self, condition: Condition<'_>) -> Vec<Cause> {
        let remaining = counted(condition.message());
        vec![self.remaining(&remaining, Fact::new(self.reference, condition.path(), condition.shown()))]
    }

    /// Follows the objects that remain.
    fn remaining(&self, kinds: &[Remaining], fact: Fact) -> Cause {
        let counts: Vec<_> = kinds.iter().map(Remaining::shown).collect();
        let reason = Reason::ContentRemains { counts: counts.join(", ") };
        let party = Responsible::new("the namespace controller", ResponsibleState::Working);
        let mut cause =
            Cause::new(self.reference, reason, Strength::Proven).evidence([fact.clone()]).responsible(party);
        for kind in kinds {
            let Some(served) = self.case.kind_of(&kind.plural, &kind.group) else {
                let reason = Reason::VersionNotServed { kind: kind.name(), version: None };
                cause.causes.push(Cause::new(self.reference, reason, Strength::Stated).evidence([fact.clone()]));
                continue;
            };
            let resource = Resource::of(served, None);
            let version = resource.api_version();
            let found =
                self.case.list_of(resource.clone(), Some(&self.reference.name), Content::Metadata, Priority::Cause);
            if let Found::Failed(failure) = found {
                cause.causes.extend(unreadable::of_list(self.case, &resource, self.reference, failure));
            }
            let name = |object: &Value| {
                ObjectRef::new(
                    version.clone(),
                    served.kind.kind.clone(),
                    object::namespace(object),
                    object::name(object),
                )
            };
            cause.waits_for.extend(samples(found.items()).into_iter().map(name));
        }
        cause
    }

    /// All conditions are fine: nothing but the last write is left.
    fn finalize(&self) -> Option<Cause> {
        let failure = self.case.rejection(Probe::Finalize(self.reference.name.clone()))?;
        let fact = Fact::new(self.reference, "finalize (dry run)", &failure.message);
        let quoted = quoted::cause(self.case, &failure.message, fact.clone());
        let cause = quoted.unwrap_or_else(|| {
            let reason = Reason::AdmissionDenied { by: String::new(), message: failure.message.clone() };
            Cause::new(self.reference, reason, Strength::Proven).evidence([fact])
        });
        Some(Cause { strength: Strength::Proven, ..cause })
    }
}

/// Returns some objects of a list: one for each set of finalizers, as those with the same ones have the same cause.
pub(crate) fn samples(items: &[Value]) -> Vec<&Value> {
    let mut seen: Vec<(Vec<&str>, bool)> = Vec::new();
    let mut chosen = Vec::new();
    for item in items {
        let kind = (object::finalizers(item), object::is_deleting(item));
        if !seen.contains(&kind) && chosen.len() < SAMPLES {
            seen.push(kind);
            chosen.push(item);
        }
    }
    chosen
}

/// A kind of which objects remain.
struct Remaining {
    plural: String,
    group: String,
    count: Option<usize>,
}

impl Remaining {
    fn name(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    fn shown(&self) -> String {
        self.count.map_or_else(|| self.name(), |count| format!("{count} {}", self.name()))
    }
}

/// Reads `widgets.shop.example has 2 resource instances`.
fn counted(message: &str) -> Vec<Remaining> {
    let words: Vec<&str> = message.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let read = |window: &[&str]| match window {
        [kind, "has", count, "resource"] => {
            let (plural, group) = kind.split_once('.')?;
            Some(Remaining { plural: plural.to_owned(), group: group.to_owned(), count: count.parse().ok() })
        }
        _ => None,
    };
    words.windows(4).filter_map(read).collect()
}

/// Reads `gvr: shop.example/v1, Resource=widgets`.
fn gvrs(message: &str) -> Vec<Remaining> {
    let read = |part: &str| {
        let (version, rest) = part.split_once(", Resource=")?;
        let plural: String = rest.chars().take_while(char::is_ascii_alphanumeric).collect();
        let group = version.trim().rsplit_once('/').map_or("", |(group, _)| group);
        Some(Remaining { plural, group: group.to_owned(), count: None })
    };
    message.split("gvr: ").skip(1).filter_map(read).collect()
}

/// Returns the group versions that a message about discovery names.
fn group_versions(message: &str) -> Vec<ApiVersion> {
    let is_version =
        |version: &str| version.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let read = |word: &str| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let parsed = ApiVersion::parse(word).ok()?;
        (parsed.group().contains('.') && is_version(parsed.version())).then_some(parsed)
    };
    message.split([' ', ',', ';']).filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::check_table;

    #[test]
    fn a_namespace_says_what_it_waits_for() {
        check_table(
            r#"
title: an API that recovered meanwhile
why: Namespace shop
objects:
- {kind: Namespace, name: shop, deleted: 1h, spec: {finalizers: [kubernetes]}, conditions: ["NamespaceDeletionDiscoveryFailure=True DiscoveryFailed: stale GroupVersion discovery: x.example/v1"]}
- {kind: APIService, name: v1.x.example, spec: {group: x.example, version: v1, service: {namespace: x, name: api}}, conditions: ["Available=True Passed"]}
expect: {code: discovery-broken, says: [x.example/v1]}
---
title: nobody has looked at any Namespace
why: Namespace shop
objects: [{kind: Namespace, name: shop, deleted: 10m, spec: {finalizers: [kubernetes]}}]
expect: {code: controller-manager-not-working, responsible: failing, says: [10 min]}
---
title: a finalizer in metadata
why: Namespace shop
objects: [{kind: Namespace, name: shop, deleted: 10m, finalizers: [x.example/a], by: kubectl, spec: {finalizers: [kubernetes]}, conditions: ["NamespaceContentRemaining=False ContentRemoved: ok"]}]
expect: {code: finalizer-unknown, object: Namespace shop}
---
title: content that nobody was asked to delete yet, because a webhook does not answer
why: Namespace shop
objects:
- {kind: Namespace, name: shop, deleted: 10m, labels: {team: a}, spec: {finalizers: [kubernetes]}, conditions: ["NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances"]}
- {kind: ConfigMap, name: shop/a}
- {kind: ValidatingWebhookConfiguration, name: x, webhooks: [{name: v.x.example, clientConfig: {service: {namespace: x, name: hooks}}, namespaceSelector: {matchLabels: {team: a}}, rules: [{operations: [DELETE], apiGroups: [""], resources: [configmaps]}]}]}
expect: {code: webhook-unavailable, responsible: absent, commands: [kubectl delete validatingwebhookconfiguration x]}
"#,
        );
    }

    #[test]
    fn conditions_name_what_remains() {
        let shown = |found: Vec<Remaining>| found.iter().map(Remaining::shown).collect::<Vec<_>>();
        let message = "Some resources are remaining: databases.shop.example has 2 resource instances, pods. has 1 resource instances";
        assert_eq!(shown(counted(message)), ["2 databases.shop.example", "1 pods"]);
        let message = "Failed to delete all resource types, 1 remaining: unexpected items still remain in namespace: shop for gvr: /v1, Resource=pods";
        assert_eq!(shown(gvrs(message)), ["pods"]);
        let message = "gvr: shop.example/v1, Resource=databases";
        assert_eq!(shown(gvrs(message)), ["databases.shop.example"]);
    }

    #[test]
    fn messages_about_discovery_name_group_versions() {
        let check = |message: &str, expected: &[&str]| {
            let found: Vec<_> = group_versions(message).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{message}");
        };
        check(
            "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
             metrics.k8s.io/v1beta1: the server is currently unable to handle the request",
            &["metrics.k8s.io/v1beta1"],
        );
        check("stale GroupVersion discovery: allocation.agones.dev/v1", &["allocation.agones.dev/v1"]);
        check("and/or nothing", &[]);
    }
}
