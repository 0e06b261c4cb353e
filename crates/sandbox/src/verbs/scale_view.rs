//! The Scale of an object, which the subresource `scale` shows.

use serde_json::{Map, Value, json};

use super::Writer;
use crate::{kinds::Scale, object::at_path, status::ApiError};

/// The version of the Scale.
pub(super) const SCALE: &str = "autoscaling/v1";

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
        "kind": "Scale", "apiVersion": SCALE, "metadata": metadata,
        "spec": spec, "status": status,
    }))
}

/// Sets the number of replicas of an object.
pub(super) fn set_replicas(writer: &Writer, object: &mut Value, replicas: Value) -> Result<(), ApiError> {
    *place(object, &fields(writer)?.spec_replicas) = replicas;
    Ok(())
}

/// Returns the place of a dotted path, which is created if it is missing.
fn place<'a>(object: &'a mut Value, path: &str) -> &'a mut Value {
    path.split('.').fold(object, |place, part| &mut place[part])
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
