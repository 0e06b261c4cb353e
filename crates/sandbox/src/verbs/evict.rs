//! The subresource `eviction` of Pods, modelled after `EvictionREST` of the API server.

use http::StatusCode;
use serde_json::Value;

use super::{DeleteOptions, Writer, create::store, current, delete::remove, update};
use crate::{
    admission, conditions,
    object::{is_deleting, meta, text},
    selector::label_selector_matches,
    state::State,
    status::{ApiError, Cause, Qualified},
};

const MESSAGE: &str = "Cannot evict pod as it would violate the pod's disruption budget.";

/// Deletes a Pod, unless its PodDisruptionBudget does not allow that.
pub(crate) fn evict(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    name: &str,
    eviction: &Value,
) -> Result<(), ApiError> {
    if meta(eviction, "name") != name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let (options, dry_run) = DeleteOptions::read(&eviction["deleteOptions"], None)?;
    let writer = Writer { dry_run: writer.dry_run || dry_run, ..writer.clone() };
    let options_of_create = writer.options("CreateOptions");
    admission::admit(state, &writer.of_body(namespace, name, eviction, &options_of_create))?;
    let mut pod = current(state, &writer, namespace, name)?;
    let pending = matches!(text(&pod["status"], "phase"), "" | "Pending" | "Succeeded" | "Failed");
    if !pending && !is_deleting(&pod) {
        take_from_budget(state, &writer, &pod)?;
    }
    options.check(&writer.kind, &pod)?;
    if !writer.dry_run {
        let condition = conditions::Condition {
            name: "DisruptionTarget",
            status: true,
            reason: "EvictionByEvictionAPI",
            message: "Eviction API: evicting",
        };
        conditions::set(&mut pod["status"], &condition, &state.time());
        pod = store(state, &writer, pod)?;
    }
    // The preconditions have been checked before the condition was set.
    let options = DeleteOptions { uid: None, resource_version: None, ..options };
    remove(state, &writer, pod, &options).map(drop)
}

/// Takes the eviction of a Pod from the budget that covers it.
fn take_from_budget(state: &mut State, writer: &Writer, pod: &Value) -> Result<(), ApiError> {
    let Some(kind) = state.kinds.find("policy", "poddisruptionbudgets").cloned() else { return Ok(()) };
    let namespace = meta(pod, "namespace");
    let covers = |budget: &Value| {
        let (selector, labels) = (&budget["spec"]["selector"], &pod["metadata"]["labels"]);
        selector.is_object() && label_selector_matches(selector, &|key| labels[key].as_str())
    };
    let budgets = state.store.list(&kind.id, Some(namespace)).map(|budget| budget.value());
    let mut budgets: Vec<Value> = budgets.filter(covers).collect();
    let Some(mut budget) = budgets.pop() else { return Ok(()) };
    if !budgets.is_empty() {
        let message =
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Err(ApiError::unnamed(message));
    }
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
    if !conditions::is_true(pod, "Ready") {
        let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
        let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
        if always || (healthy >= desired && desired > 0) {
            return Ok(());
        }
    }
    check(&budget)?;
    let status = &mut budget["status"];
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or_default() - 1;
    status["disruptionsAllowed"] = allowed.into();
    if allowed == 0 {
        set_disruption_allowed(status, &state.time());
    }
    if writer.dry_run {
        return Ok(());
    }
    status["disruptedPods"][meta(pod, "name")] = state.time().into();
    let server = Writer::controller(&kind, "kube-apiserver").subresource("status");
    let name = meta(&budget, "name").to_owned();
    update(state, &server, namespace, &name, budget).map(drop)
}

/// Checks whether a budget allows an eviction.
fn check(budget: &Value) -> Result<(), ApiError> {
    let (name, status) = (meta(budget, "name"), &budget["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or_default();
    let refused = |message: String, retry_after: Option<u64>| {
        let cause = Cause { reason: "DisruptionBudget", field: String::new(), message };
        let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", MESSAGE);
        ApiError { retry_after, ..error.causes(vec![cause]) }
    };
    if number("observedGeneration") < budget["metadata"]["generation"].as_i64().unwrap_or_default() {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(refused(why, Some(10)));
    }
    let (allowed, healthy, desired) =
        (number("disruptionsAllowed"), number("currentHealthy"), number("desiredHealthy"));
    if allowed < 0 {
        let kind = Qualified::new("policy", "poddisruptionbudget");
        return Err(ApiError::forbidden(&kind, name, "pdb disruptions allowed is negative"));
    }
    let condition = conditions::find(budget, "DisruptionAllowed").filter(|condition| condition["status"] == "False");
    let said = condition.map(|condition| (text(condition, "reason"), text(condition, "message")));
    match (allowed, said.filter(|(_, message)| !message.is_empty())) {
        (1.., _) => Ok(()),
        (_, said) if healthy > desired => Err(refused(
            match said {
                Some((reason, message)) => {
                    format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
                }
                None => format!("The disruption budget {name} does not allow evicting pods currently"),
            },
            None,
        )),
        _ => {
            let why = format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
            Err(refused(why, None))
        }
    }
}

/// Sets the condition that tells whether Pods may be evicted.
pub(crate) fn set_disruption_allowed(status: &mut Value, now: &str) {
    let allowed = status["disruptionsAllowed"].as_i64().unwrap_or_default() > 0;
    let reason = if allowed { "SufficientPods" } else { "InsufficientPods" };
    let condition = conditions::Condition { name: "DisruptionAllowed", status: allowed, reason, message: "" };
    conditions::set(status, &condition, now);
    let generation = status["observedGeneration"].clone();
    let conditions = status["conditions"].as_array_mut().into_iter().flatten();
    for condition in conditions.filter(|condition| condition["type"] == "DisruptionAllowed") {
        condition["observedGeneration"] = generation.clone();
    }
}
