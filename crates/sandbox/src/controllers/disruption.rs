//! The disruption controller, which computes how many Pods of a PodDisruptionBudget may be evicted.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::objects::{Next, Step, edit_status, id, load, objects};
use crate::{
    conditions,
    object::{is_deleting, meta},
    selector::label_selector_matches,
    state::State,
    verbs::set_disruption_allowed,
};

const CONTROLLER: &str = "disruption-controller";

/// How long an evicted Pod counts as gone although its deletion has not been observed.
const PATIENCE: SignedDuration = SignedDuration::from_mins(2);

/// Computes the status of all budgets of a namespace.
pub(super) fn sync(state: &mut State, namespace: &str) -> Step {
    let mut next = Next::Done;
    for budget in objects(state, "policy", "poddisruptionbudgets", namespace) {
        let budget_id = id("policy", "poddisruptionbudgets", namespace, &budget.name);
        let Some(budget) = load(state, &budget_id) else { continue };
        let status = status(state, &budget);
        if status["disruptedPods"].as_object().is_some_and(|pods| !pods.is_empty()) {
            next = Next::After(PATIENCE.unsigned_abs());
        }
        edit_status(state, &budget_id, CONTROLLER, |object| object["status"] = status)?;
    }
    Ok(next)
}

fn status(state: &State, budget: &Value) -> Value {
    let (spec, namespace) = (&budget["spec"], meta(budget, "namespace"));
    let selected = |pod: &Value| {
        let labels = &pod["metadata"]["labels"];
        spec["selector"].is_object() && label_selector_matches(&spec["selector"], &|key| labels[key].as_str())
    };
    let pods = objects(state, "", "pods", namespace).into_iter().map(|pod| pod.value());
    let pods: Vec<Value> = pods.filter(selected).collect();
    let disrupted = disrupted(budget, &pods, state.clock.now());
    let is_healthy = |pod: &&Value| {
        !is_deleting(pod) && !disrupted.contains_key(meta(pod, "name")) && conditions::is_true(pod, "Ready")
    };
    let healthy = number(pods.iter().filter(is_healthy).count());
    let (expected, desired) = match (&spec["maxUnavailable"], &spec["minAvailable"]) {
        (Value::Null, Value::Number(least)) => (number(pods.len()), least.as_i64().unwrap_or_default()),
        (Value::Null, least) => {
            let expected = expected(state, &pods);
            (expected, share(least, expected))
        }
        (most, _) => {
            let expected = expected(state, &pods);
            (expected, (expected - share(most, expected)).max(0))
        }
    };
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut status = json!({
        "currentHealthy": healthy, "desiredHealthy": desired, "expectedPods": expected, "disruptionsAllowed": allowed,
        "observedGeneration": budget["metadata"]["generation"], "conditions": budget["status"]["conditions"],
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = json!(disrupted);
    }
    set_disruption_allowed(&mut status, &state.time());
    status
}

/// Returns the evicted Pods whose deletion is not observed yet.
fn disrupted(budget: &Value, pods: &[Value], now: Timestamp) -> BTreeMap<String, Value> {
    let waits = |(name, time): (&String, &Value)| {
        let is_there = pods.iter().any(|pod| meta(pod, "name") == name && !is_deleting(pod));
        let evicted: Timestamp = time.as_str()?.parse().ok()?;
        (is_there && evicted.checked_add(PATIENCE).ok()? > now).then(|| (name.clone(), time.clone()))
    };
    budget["status"]["disruptedPods"].as_object().into_iter().flatten().filter_map(waits).collect()
}

/// Returns the number of Pods that the controllers of these Pods want.
fn expected(state: &State, pods: &[Value]) -> i64 {
    let controller = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
        let uid = owners.filter(|owner| owner["controller"] == true).find_map(|owner| owner["uid"].as_str())?;
        state.store.find_uid(uid).and_then(|id| load(state, id))
    };
    let scales: BTreeMap<String, i64> = pods
        .iter()
        .filter_map(controller)
        // The Deployment behind a ReplicaSet counts in its place.
        .map(|owner| controller(&owner).unwrap_or(owner))
        .map(|owner| (meta(&owner, "uid").to_owned(), owner["spec"]["replicas"].as_i64().unwrap_or(1)))
        .collect();
    scales.values().sum()
}

/// Returns a number, or a percentage of all, rounded up.
fn share(value: &Value, all: i64) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    percent.map_or_else(|| value.as_i64().unwrap_or_default(), |percent| (all * percent + 99) / 100)
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_rounded_up() {
        for (value, all, expected) in [
            (json!(2), 7, 2),
            (json!("50%"), 7, 4),
            (json!("0%"), 7, 0),
            (json!("100%"), 7, 7),
            (json!("x"), 7, 0),
            (Value::Null, 7, 0),
        ] {
            assert_eq!(share(&value, all), expected, "{value}");
        }
    }
}
