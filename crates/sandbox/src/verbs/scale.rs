//! The subresource `scale`.

use serde_json::{Map, Value, json};

use super::{
    Writer, Written,
    update::{FieldOwnership, check_preconditions, current, replace},
};
use crate::{
    kinds::Scale,
    object::at_path,
    state::State,
    status::{ApiError, Cause, Qualified},
};

/// Returns the Scale of a stored object.
pub(crate) fn scale(state: &State, writer: &Writer, namespace: &str, name: &str) -> Result<Value, ApiError> {
    scale_of(writer, &current(state, writer, namespace, name)?)
}

/// Returns the `autoscaling/v1` Scale of an object.
pub(crate) fn scale_of(writer: &Writer, object: &Value) -> Result<Value, ApiError> {
    let scale = fields(writer)?;
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if !object["metadata"][field].is_null() {
            metadata.insert(field.to_owned(), object["metadata"][field].clone());
        }
    }
    let number = |path: &str| at_path(object, path).as_i64().unwrap_or(0);
    let mut status = json!({"replicas": number(&scale.status_replicas)});
    let selector = scale.selector.as_ref().map(|path| at_path(object, path)).map(|selector| match selector.as_str() {
        Some(text) => text.to_owned(),
        None => selector_text(selector),
    });
    let replicas = number(&scale.spec_replicas);
    let spec = if replicas == 0 { json!({}) } else { json!({"replicas": replicas}) };
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        status["selector"] = selector.into();
    }
    Ok(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": spec, "status": status,
    }))
}

/// Writes the number of replicas of a Scale to the object.
pub(crate) fn update_scale(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    name: &str,
    wanted: Value,
) -> Result<Written, ApiError> {
    let scale = fields(writer)?;
    let old = current(state, writer, namespace, name)?;
    check_preconditions(&writer.kind, &old, &wanted)?;
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let cause = Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
        return Err(ApiError::invalid(&Qualified::new("autoscaling", "Scale"), name, vec![cause]));
    }
    let mut new = old.clone();
    let mut place = &mut new;
    for part in scale.spec_replicas.split('.') {
        place = &mut place[part];
    }
    *place = replicas.into();
    let written = replace(state, writer, old, new, Vec::new(), FieldOwnership::Track)?;
    Ok(Written { object: scale_of(writer, &written.object)?, ..written })
}

fn fields(writer: &Writer) -> Result<&Scale, ApiError> {
    writer.version().scale.as_ref().ok_or_else(ApiError::no_such_path)
}

/// Returns a label selector as text: `app=web,tier=db`.
fn selector_text(selector: &Value) -> String {
    let labels = selector["matchLabels"].as_object().or_else(|| selector.as_object());
    let equal = |(key, value): (&String, &Value)| value.as_str().map(|value| format!("{key}={value}"));
    labels.into_iter().flatten().filter_map(equal).collect::<Vec<_>>().join(",")
}
