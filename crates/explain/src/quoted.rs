//! Messages of the API server that others quote: conditions, Events, the answers to requests.

use crate::{
    Backend, Cause, Fact, ObjectRef, Reason, Responsible, ResponsibleState, admission, case::Case, cause::Strength,
    kinds, steps,
};

/// Returns the cause that a message names, if it is one of the API server's.
pub(crate) fn cause(case: &Case<'_>, message: &str, fact: Fact) -> Option<Cause> {
    let object = fact.object.clone();
    if let Some(rest) = after(message, "failed calling webhook ").or_else(|| after(message, "failed to call webhook "))
    {
        let (name, detail) = rest.split_once(": ").unwrap_or((rest, ""));
        return Some(admission::failed_call(case, unquoted(name), detail, fact));
    }
    if let Some(rest) = after(message, "conversion webhook for ") {
        return Some(conversion(case, rest, fact));
    }
    let webhook = after(message, "admission webhook ").and_then(|rest| rest.split_once(" denied the request"));
    if let Some((name, text)) = webhook {
        return Some(denied(case, unquoted(name), text.trim_start_matches([':', ' ']), fact));
    }
    let policy = after(message, "ValidatingAdmissionPolicy ").and_then(|rest| rest.split_once(" denied request: "));
    if let Some((name, text)) = policy {
        let name = name.split(" with binding").next().unwrap_or(name);
        return Some(denied(case, &format!("ValidatingAdmissionPolicy {}", unquoted(name)), text, fact));
    }
    if let Some(cause) = forbidden(message, &fact) {
        return Some(cause);
    }
    let lower = message.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if has(&["unable to transform key", "not transformable", "failed to decode", "unable to decode", "error decoding"])
    {
        let kind = object.kind.clone();
        let reason = Reason::ObjectUnreadable { kind, message: message.to_owned() };
        return Some(Cause::new(&object, reason, Strength::Stated).evidence([fact]).steps(steps::unreadable()));
    }
    if has(&["disruption budget"]) {
        let reason = Reason::EvictionBlocked { budget: None };
        return Some(Cause::new(&object, reason, Strength::Stated).evidence([fact]).steps(steps::eviction()));
    }
    // The API server answers 429 to the list of a kind whose instances it cannot read, too.
    if has(&["too many requests", "rate limit", "ratelimit", "toomanyrequests"]) && !has(&["failed to list"]) {
        let reason = Reason::RateLimited { report: message.to_owned() };
        return Some(Cause::new(&object, reason, Strength::Stated).evidence([fact]));
    }
    if has(&["request is too large"]) {
        let reason = Reason::AdmissionDenied { by: String::new(), message: message.to_owned() };
        return Some(Cause::new(&object, reason, Strength::Stated).evidence([fact]).steps(steps::shrink()));
    }
    None
}

fn conversion(case: &Case<'_>, rest: &str, fact: Fact) -> Cause {
    let (gvk, detail) = rest.split_once(" failed").unwrap_or((rest, ""));
    let (version, kind) = gvk.split_once(", Kind=").unwrap_or((gvk, ""));
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let served = case.catalog.iter().find(|known| known.kind.is(group, kind));
    let crd = served.map(|known| kinds::CRD.named(None, format!("{}.{group}", known.plural)));
    let object = crd.clone().unwrap_or_else(|| fact.object.clone());
    let detail = detail.trim_start_matches([':', ' ']).to_owned();
    let reason = Reason::ConversionUnavailable { crd: object.name.clone(), backend: Backend::Reported(detail) };
    Cause::new(&object, reason, Strength::Stated).evidence([fact]).waits_for(crd)
}

/// Returns that a webhook or policy rejects a request. If what it says is that something must be confirmed first, that is
/// a protection.
pub(crate) fn denied(case: &Case<'_>, by: &str, text: &str, fact: Fact) -> Cause {
    let lower = text.to_lowercase();
    let object = fact.object.clone();
    let reason = if ["confirm", "protect"].iter().any(|word| lower.contains(word)) {
        Reason::Protected { by: format!("{by}: {text}") }
    } else {
        Reason::AdmissionDenied { by: by.to_owned(), message: text.to_owned() }
    };
    let configuration = admission::configuration_of(case, by);
    let found = configuration.iter().map(|found| Fact::new(found, "webhooks[].name", by));
    let evidence: Vec<_> = std::iter::once(fact).chain(found).collect();
    let object = if matches!(reason, Reason::Protected { .. }) { object } else { configuration.unwrap_or(object) };
    let party = Responsible::new(by, ResponsibleState::Working);
    Cause::new(&object, reason, Strength::Stated).evidence(evidence).responsible(party).steps(steps::denied(by))
}

/// Reads `User "U" cannot VERB resource "R" in API group "G" in the namespace "N"`.
fn forbidden(message: &str, fact: &Fact) -> Option<Cause> {
    let (user, rest) = after(message, "User ")?.split_once(" cannot ")?;
    let (verb, rest) = rest.split_once(" resource ")?;
    let (resource, rest) = rest.split_once(" in API group ")?;
    let (group, place) = rest.split_once(' ').unwrap_or((rest, ""));
    let namespace = after(place, "in the namespace ").map(|name| unquoted(name.split(' ').next().unwrap_or(name)));
    let (resource, group) = (unquoted(resource), unquoted(group));
    let who = account_name(unquoted(user));
    let reason = Reason::Forbidden {
        who: who.clone(),
        verb: verb.to_owned(),
        resource: if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") },
        namespace: namespace.map(str::to_owned),
    };
    let object = account(unquoted(user)).unwrap_or_else(|| fact.object.clone());
    let party = Responsible::new(who, ResponsibleState::Failing);
    let cause = Cause::new(&object, reason, Strength::Stated).evidence([fact.clone()]);
    Some(cause.responsible(party).steps(steps::right()))
}

fn account(user: &str) -> Option<ObjectRef> {
    let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    Some(kinds::SERVICE_ACCOUNT.named(Some(namespace), name))
}

fn account_name(user: &str) -> String {
    account(user).map_or_else(|| format!("user {user}"), |account| account.to_string())
}

fn after<'a>(message: &'a str, start: &str) -> Option<&'a str> {
    message.split_once(start).map(|(_, rest)| rest)
}

fn unquoted(text: &str) -> &str {
    text.trim().trim_matches(['"', '\'', '\\', ':', ','])
}

#[cfg(test)]
mod tests {
    use billhook_objects::{ApiVersion, Catalog};
    use jiff::Timestamp;

    use super::*;
    use crate::{Options, case::Answers};

    #[test]
    fn messages_of_the_api_server_name_their_cause() {
        let (catalog, answers) = (Catalog::default(), Answers::new());
        let case = Case::new(&catalog, Options::default(), Timestamp::UNIX_EPOCH, &answers);
        let object = ObjectRef::new(ApiVersion::new("shop.example", "v1"), "Database", Some("shop"), "a");
        let check = |message: &str, expected: Option<&str>| {
            let found = cause(&case, message, Fact::new(&object, "message", message));
            let found = found.map(|cause| serde_json::to_value(cause.code()).unwrap().as_str().unwrap().to_owned());
            assert_eq!(found.as_deref(), expected, "{message}");
        };
        check(
            r#"Internal error occurred: failed calling webhook "v.shop.example": failed to call webhook: Post "https://w.shop.svc:443/": service "w" not found"#,
            Some("webhook-unavailable"),
        );
        check(
            r#"admission webhook "v.shop.example" denied the request: field owner is immutable"#,
            Some("admission-denied"),
        );
        check(
            r#"admission webhook "v.shop.example" denied the request: must confirm the deletion first"#,
            Some("protected"),
        );
        check(
            "databases.shop.example \"a\" is forbidden: ValidatingAdmissionPolicy 'keep' with binding 'keep' denied request: no",
            Some("admission-denied"),
        );
        check(
            r#"databases.shop.example "a" is forbidden: User "system:serviceaccount:shop:operator" cannot patch resource "databases" in API group "shop.example" in the namespace "shop""#,
            Some("forbidden"),
        );
        check(
            r#"conversion webhook for shop.example/v1, Kind=Database failed: Post "https://w.shop.svc": service "w" not found"#,
            Some("conversion-webhook-unavailable"),
        );
        check("unable to transform key \"/registry/secrets/a/b\": no matching key", Some("object-unreadable"));
        check("Cannot evict pod as it would violate the pod's disruption budget.", Some("eviction-blocked"));
        check("the server has received too many requests and has asked us to try again later", Some("rate-limited"));
        check("storage is (re)initializing: failed to list, too many requests", None);
        check("deleting the database", None);
    }
}
