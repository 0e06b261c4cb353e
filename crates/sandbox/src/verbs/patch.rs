//! PATCH of an object.

use http::StatusCode;
use serde_json::Value;

use super::{
    Writer, Written, create, decode,
    scale::applied_scale,
    scale_view::{SCALE, scale_of},
    update::{FieldOwnership, check_preconditions, current, replace},
    update_scale,
};
use crate::{
    call::Call,
    object::{meta, metadata_mut},
    patch::{self as patches, Manager},
    state::State,
    status::{ApiError, Cause},
};

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// Patches an object. A server-side apply creates it if it does not exist.
pub(crate) fn patch(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    name: &str,
    call: &Call,
) -> Result<Written, ApiError> {
    let types: &[&str] =
        if writer.kind.crd.is_some() { &[JSON, MERGE, APPLY] } else { &[JSON, MERGE, STRATEGIC, APPLY] };
    let content = call.content_type();
    if !types.contains(&content) {
        if writer.kind.crd.is_some() {
            return Err(ApiError::unsupported_media_type(types));
        }
        let message = "415: Unsupported Media Type";
        let error = ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message);
        return Err(error.about_nothing());
    }
    if content == APPLY {
        return apply(state, writer, namespace, name, call);
    }
    if call.param("force").is_some() {
        let cause = Cause::forbidden("force", "may not be specified for non-apply patch");
        return Err(ApiError::options("PatchOptions", vec![cause]));
    }
    let old = current(state, writer, namespace, name)?;
    let scale = writer.subresource.as_deref() == Some("scale");
    let base = if scale { scale_of(writer, &old)? } else { old.clone() };
    let body = call.json()?;
    let kind = &writer.kind;
    let mut new = match content {
        JSON => patches::json_patch(&base, &body)?,
        MERGE => patches::merge_patch(&base, &body)?,
        _ => patches::strategic_merge_patch(&base, &body, &writer.version().schema)?,
    };
    if scale {
        return update_scale(state, writer, namespace, name, new);
    }
    let warnings = decode::decode_patched(writer, &mut new)?;
    decode::place(writer, namespace, &mut new)?;
    decode::same_name(name, &mut new)?;
    check_preconditions(kind, &old, &new)?;
    replace(state, writer, old, new, warnings, FieldOwnership::Track)
}

/// Performs a server-side apply.
fn apply(state: &mut State, writer: &Writer, namespace: &str, name: &str, call: &Call) -> Result<Written, ApiError> {
    if call.text("fieldManager").is_none() {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        return Err(ApiError::options("PatchOptions", vec![cause]));
    }
    let kind = &writer.kind;
    let mut applied = call.json()?;
    let scales = writer.subresource.as_deref() == Some("scale");
    if scales {
        applied = applied_scale(writer, &applied)?;
    }
    let fields = applied["metadata"]["managedFields"].clone();
    decode::decode_applied(writer, &applied)?;
    if !fields.is_null() && fields != Value::Array(Vec::new()) {
        return Err(ApiError::bad_request("metadata.managedFields must be nil"));
    }
    decode::check_place(writer, namespace, &applied)?;
    decode::same_name(name, &mut applied)?;
    keep_part(writer, &mut applied);
    let live = match current(state, writer, namespace, name) {
        Ok(live) => Some(live),
        Err(error) if error.code == StatusCode::NOT_FOUND && writer.subresource.is_none() => None,
        Err(error) => return Err(error),
    };
    let (api_version, time) = (writer.api_version(), state.time());
    let subresource = writer.subresource.as_deref();
    let manager = Manager { name: &writer.manager, api_version: &api_version, subresource, time: &time };
    let Some(live) = live else {
        let uid = meta(&applied, "uid");
        if !uid.is_empty() {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(ApiError::conflict(&kind.resource(), name, &why));
        }
        let metadata = metadata_mut(&mut applied);
        metadata.remove("resourceVersion");
        let mut merged = patches::apply(None, &applied, &writer.version().schema, manager, call.flag("force"))?;
        decode::place(writer, namespace, &mut merged)?;
        return create::create_applied(state, writer, merged);
    };
    let merged = patches::apply(Some(&live), &applied, &writer.version().schema, manager, call.flag("force"));
    let merged = merged.map_err(|error| if scales { of_scale(error, &api_version) } else { error })?;
    check_preconditions(kind, &live, &merged)?;
    let written = replace(state, writer, live, merged, Vec::new(), FieldOwnership::Applied)?;
    Ok(if scales { Written { object: scale_of(writer, &written.object)?, ..written } } else { written })
}

/// Words a conflict about the number of replicas as one about the Scale.
fn of_scale(mut error: ApiError, api_version: &str) -> ApiError {
    let words = |text: &str| text.replace(&format!(" using {api_version}"), &format!(" using {SCALE}"));
    error.message = words(&error.message);
    for cause in error.about.iter_mut().flat_map(|about| &mut about.causes) {
        cause.message = words(&cause.message);
    }
    error
}

/// Drops the parts that the endpoint does not accept: the status outside its subresource, and everything else within
/// it.
fn keep_part(writer: &Writer, applied: &mut Value) {
    let Some(fields) = applied.as_object_mut().filter(|_| writer.version().status) else { return };
    if writer.subresource.as_deref() == Some("status") {
        fields.retain(|key, _| matches!(key.as_str(), "apiVersion" | "kind" | "metadata" | "status"));
    } else {
        fields.remove("status");
    }
}
