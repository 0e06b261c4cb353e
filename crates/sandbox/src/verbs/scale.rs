//! The subresource `scale`.

use serde_json::{Value, json};

use super::{
    Writer, Written,
    scale_view::{SCALE, scale_of, set_replicas},
    update::{FieldOwnership, check_preconditions, current, replace},
};
use crate::{
    object::{meta, text},
    state::State,
    status::{ApiError, Cause, Qualified},
};

/// Returns what the server-side apply of a Scale applies to the object itself.
pub(super) fn applied_scale(writer: &Writer, applied: &Value) -> Result<Value, ApiError> {
    let (version, kind) = (text(applied, "apiVersion"), text(applied, "kind"));
    if version != SCALE || kind != "Scale" {
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        return Err(ApiError::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    let mut object = json!({
        "apiVersion": writer.api_version(), "kind": writer.kind.kind, "metadata": applied["metadata"],
    });
    if let Some(replicas) = applied["spec"].get("replicas") {
        check_replicas(replicas.as_i64().unwrap_or_default(), meta(applied, "name"))?;
        set_replicas(writer, &mut object, replicas.clone())?;
    }
    Ok(object)
}

fn check_replicas(replicas: i64, name: &str) -> Result<(), ApiError> {
    if replicas >= 0 {
        return Ok(());
    }
    let cause = Cause::invalid("spec.replicas", &json!(replicas), "must be greater than or equal to 0");
    Err(ApiError::invalid(&Qualified::new("autoscaling", "Scale"), name, vec![cause]))
}

/// Returns the Scale of a stored object.
pub(crate) fn scale(state: &State, writer: &Writer, namespace: &str, name: &str) -> Result<Value, ApiError> {
    scale_of(writer, &current(state, writer, namespace, name)?)
}

/// Writes the number of replicas of a Scale to the object.
pub(crate) fn update_scale(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    name: &str,
    wanted: Value,
) -> Result<Written, ApiError> {
    let old = current(state, writer, namespace, name)?;
    check_preconditions(&writer.kind, &old, &wanted)?;
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    check_replicas(replicas, name)?;
    let mut new = old.clone();
    set_replicas(writer, &mut new, replicas.into())?;
    let written = replace(state, writer, old, new, Vec::new(), FieldOwnership::Track)?;
    Ok(Written { object: scale_of(writer, &written.object)?, ..written })
}
