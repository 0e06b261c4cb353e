//! The subresource `binding` of Pods.

use serde_json::{Value, json};

use super::{
    Writer,
    create::store,
    current,
    update::{check_preconditions, check_uid},
};
use crate::{
    admission,
    conditions::{self, Condition},
    object::{is_deleting, meta, metadata_mut, text},
    state::State,
    status::{ApiError, Qualified},
};

/// Assigns a Pod to a Node.
pub(crate) fn bind(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    name: &str,
    binding: &Value,
) -> Result<(), ApiError> {
    if meta(binding, "name") != name {
        return Err(ApiError::bad_request("name in URL does not match name in Binding object"));
    }
    let target = &binding["target"];
    match (text(target, "kind"), text(target, "name")) {
        ("" | "Node", "") => return Err(ApiError::unnamed("target.name: Required value")),
        ("" | "Node", _) => {}
        (kind, _) => {
            let why = format!("target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\"");
            return Err(ApiError::unnamed(why));
        }
    }
    let options = writer.options("CreateOptions");
    admission::admit(state, &writer.of_body(namespace, name, binding, &options))?;
    let mut pod = current(state, writer, namespace, name)?;
    check_uid(&writer.kind, &pod, binding)?;
    check_preconditions(&writer.kind, &pod, binding)?;
    let refused = |why: &str| Err(ApiError::conflict(&Qualified::new("", "pods/binding"), name, why));
    if is_deleting(&pod) {
        return refused(&format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = text(&pod["spec"], "nodeName");
    if !node.is_empty() {
        return refused(&format!("pod {name} is already assigned to node {node:?}"));
    }
    if pod["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
        return refused(&format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = target["name"].clone();
    for field in ["annotations", "labels"] {
        for (key, value) in binding["metadata"][field].as_object().into_iter().flatten() {
            let fields = metadata_mut(&mut pod).entry(field).or_insert_with(|| json!({}));
            fields[key] = value.clone();
        }
    }
    let scheduled = Condition { name: "PodScheduled", status: true, reason: "", message: "" };
    conditions::set(&mut pod["status"], &scheduled, &state.time());
    for condition in pod["status"]["conditions"].as_array_mut().into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.retain(|field, value| !matches!(field.as_str(), "reason" | "message") || value != "");
        }
    }
    store(state, writer, pod).map(drop)
}
