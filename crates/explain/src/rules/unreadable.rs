//! What cannot be read: an object that cannot be decoded, a list that fails, a right that is missing.
//!
//! Situations: 4.10 (by the message of a failed list), 9.1; and what the caller may not read.

use billhook_objects::Resource;

use crate::{
    Cause, Fact, Failure, ObjectRef, Reason, Responsible, ResponsibleState,
    case::{Case, Seen},
    cause::Strength,
    quoted,
    rule::Held,
    steps,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Seen::Failed(failure) = held.seen else { return Vec::new() };
    if failure.is_forbidden() {
        let strength = if held.is_subject { Strength::Proven } else { Strength::Possible };
        let plural = case.resource(held.object).map_or_else(|| held.object.kind.clone(), |resource| resource.plural);
        return vec![forbidden(held.object, "get", plural, held.object.namespace.clone(), failure, strength)];
    }
    failed(case, held.object, &held.object.kind, "GET", failure).into_iter().collect()
}

/// Returns why the list of a kind fails, of which `waiting` needs the objects.
pub(crate) fn of_list(case: &Case<'_>, resource: &Resource, waiting: &ObjectRef, failure: &Failure) -> Option<Cause> {
    if failure.is_forbidden() {
        let namespace = waiting.namespace.clone().or_else(|| Some(waiting.name.clone()));
        return Some(forbidden(waiting, "list", resource.plural.clone(), namespace, failure, Strength::Possible));
    }
    failed(case, waiting, &resource.kind.kind, &format!("LIST {}", resource.plural), failure)
}

/// Reads `failed to list *core.ConfigMap: illegal base64 data`: of a kind with an unreadable object, the API server can list nothing
/// in any namespace.
pub(crate) fn of_report(waiting: &ObjectRef, message: &str, fact: &Fact) -> Option<Cause> {
    let (_, rest) = message.split_once("failed to list ")?;
    let (what, why) = rest.split_once(": ").unwrap_or((rest, message));
    let kind = what.rsplit(['.', '=']).next().unwrap_or(what);
    let reason = Reason::ObjectUnreadable { kind: kind.to_owned(), message: why.to_owned() };
    Some(Cause::new(waiting, reason, Strength::Proven).evidence([fact.clone()]).steps(steps::unreadable()))
}

fn forbidden(
    object: &ObjectRef,
    verb: &str,
    resource: String,
    namespace: Option<String>,
    failure: &Failure,
    strength: Strength,
) -> Cause {
    let reason = Reason::Forbidden { who: "the caller".to_owned(), verb: verb.to_owned(), resource, namespace };
    Cause::new(object, reason, strength)
        .evidence([Fact::new(object, verb.to_uppercase(), &failure.message)])
        .responsible(Responsible::new("the caller", ResponsibleState::Failing))
}

fn failed(case: &Case<'_>, object: &ObjectRef, kind: &str, path: &str, failure: &Failure) -> Option<Cause> {
    let fact = Fact::new(object, path, &failure.message);
    if let Some(cause) = quoted::cause(case, &failure.message, fact.clone()) {
        return Some(cause);
    }
    let reason = match failure.status {
        // The list of a kind with an object that cannot be converted or decoded looks like this.
        429 if failure.message.contains("failed to list") => return of_report(object, &failure.message, &fact),
        429 => Reason::RateLimited { report: failure.message.clone() },
        500 => Reason::ObjectUnreadable { kind: kind.to_owned(), message: failure.message.clone() },
        _ => return None,
    };
    let steps = if failure.status == 500 { steps::unreadable() } else { Vec::new() };
    Some(Cause::new(object, reason, Strength::Stated).evidence([fact]).steps(steps))
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// The answer to our own request is quoted.
    #[test]
    fn what_cannot_be_read_is_quoted() {
        check_table(
            r#"
title: a GET fails with the reason
why: Thing shop/a
kinds: [x.example/v1 Thing things]
failures: [{get: Thing a, status: 500, message: "conversion webhook for x.example/v1, Kind=Thing failed: service not found"}]
expect: {code: conversion-webhook-unavailable, object: CustomResourceDefinition things.x.example}
---
title: the API server rejects our requests
why: Thing shop/a
kinds: [x.example/v1 Thing things]
failures: [{get: Thing a, status: 429, message: "the server has received too many requests"}]
expect: {code: rate-limited}
---
title: 429 that is none
why: Thing shop/a
kinds: [x.example/v1 Thing things]
failures: [{get: Thing a, status: 429, message: "storage is (re)initializing: failed to list x.example/v1, Kind=Thing"}]
expect: {code: object-unreadable}
"#,
        );
    }
}
