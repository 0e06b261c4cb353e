//! A disruption budget lets no Pod be evicted, so that a machine or node cannot be drained.
//!
//! Situation: 3.13.

use serde_json::Value;

use crate::{
    Cause, Fact, Reason, Responsible, ResponsibleState,
    case::{Case, Priority},
    cause::Strength,
    kinds, object, report,
    rule::Held,
    steps,
};

pub(crate) fn judge(case: &Case<'_>, held: &Held<'_>) -> Vec<Cause> {
    let Some(value) = held.seen.value().filter(|value| object::is_deleting(value)) else { return Vec::new() };
    let Some(said) = report::of(case, held.object, value) else { return Vec::new() };
    let lower = said.value.to_lowercase();
    if !["disruption budget", "poddisruptionbudget", "evict"].iter().any(|word| lower.contains(word)) {
        return Vec::new();
    }
    let allowed = |budget: &&Value| budget.pointer("/status/disruptionsAllowed").and_then(Value::as_i64) == Some(0);
    let budgets = case.list(&kinds::BUDGET, None, Priority::Detail).items();
    // The report may name the budget; otherwise each that allows nothing may be the one.
    let blocked: Vec<_> = budgets.iter().filter(allowed).collect();
    let named: Vec<_> = blocked.iter().filter(|budget| said.value.contains(object::name(budget))).collect();
    let budgets: Vec<&Value> = if named.is_empty() { blocked } else { named.into_iter().copied().collect() };
    let cause = |budget: &Value| {
        let reference = kinds::BUDGET.named(object::namespace(budget), object::name(budget));
        let name = format!("{}/{}", object::namespace(budget).unwrap_or_default(), object::name(budget));
        let fact = Fact::new(&reference, "status.disruptionsAllowed", "0");
        let party = Responsible::new(format!("PodDisruptionBudget {name}"), ResponsibleState::Failing);
        Cause::new(&reference, Reason::EvictionBlocked { budget: Some(name) }, Strength::Proven)
            .evidence([said.clone(), fact])
            .responsible(party)
            .steps(steps::eviction())
    };
    budgets.into_iter().map(cause).collect()
}

#[cfg(test)]
mod tests {
    use crate::tests::check_table;

    /// The budget that the report is about is named.
    #[test]
    fn a_budget_blocks_if_the_controller_says_so() {
        check_table(
            r#"
title: the report names the budget
why: Thing m
kinds: [x.example/v1 Thing things -]
operators: [{name: x/core, group: x.example}]
objects:
- {kind: Thing, name: m, deleted: 1h, finalizers: [x.example/a], by: core, conditions: ["Drained=False Failed: failed to evict: the disruption budget db needs 2 healthy pods and has 2 currently"]}
- {kind: PodDisruptionBudget, name: shop/db, status: {disruptionsAllowed: 0}}
- {kind: PodDisruptionBudget, name: shop/other, status: {disruptionsAllowed: 0}}
expect: {code: eviction-blocked, object: PodDisruptionBudget shop/db, responsible: failing}
---
title: budgets that allow nothing do not matter without a report
why: Thing m
kinds: [x.example/v1 Thing things -]
operators: [{name: x/core, group: x.example}]
objects:
- {kind: Thing, name: m, deleted: 1h, finalizers: [x.example/a], by: core}
- {kind: PodDisruptionBudget, name: shop/db, status: {disruptionsAllowed: 0}}
expect: {code: finalizer-in-progress}
"#,
        );
    }
}
