//! API Priority and Fairness rejects the requests of the controller or the caller.
//!
//! The answers to our own requests are in the rule about what cannot be read.

use crate::{Cause, Fact, Reason, Responsible, ResponsibleState, case::Case, cause::Strength, object, rule::Held};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value().filter(|value| object::is_deleting(value)) else { return Vec::new() };
    if object::finalizers(value).is_empty() {
        return Vec::new();
    }
    let limits = |message: &&str| {
        let message = message.to_lowercase();
        message.contains("too many requests") || message.contains("request limit exceeded")
    };
    let events = case.warnings(value);
    let newest = events.first().and_then(|event| object::text(event, "/message")).filter(limits);
    let cause = |message: &str| {
        let reason = Reason::RateLimited { report: message.to_owned() };
        let party = Responsible::new("API Priority and Fairness", ResponsibleState::Working);
        Cause::new(held.object, reason, Strength::Stated)
            .evidence([Fact::new(held.object, "Event", message)])
            .responsible(party)
    };
    newest.map(cause).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// Only the newest warning counts.
    #[test]
    fn warnings_about_limits_are_quoted() {
        check_table(
            r#"
title: the API server rejects the requests of the controller
why: Thing shop/a
kinds: [x.example/v1 Thing things]
objects:
- {kind: Thing, name: shop/a, deleted: 1h, finalizers: [x.example/a], by: kubectl}
- {kind: Event, name: shop/e1, type: Warning, lastTimestamp: "2026-11-22T11:58:00Z", involvedObject: {uid: uid-Thing-a}, message: "the server has received too many requests"}
expect: {code: rate-limited}
"#,
        );
    }
}
