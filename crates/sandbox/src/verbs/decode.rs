//! Decoding of bodies: version and kind, fields, namespace and name.

use http::StatusCode;
use serde_json::Value;

use super::{FieldValidation, Writer};
use crate::{
    object::{meta, metadata_mut},
    status::{ApiError, Cause, Qualified},
};

/// How many unknown fields an error names at most.
const MAX_UNKNOWN: usize = 16;

/// Decodes the body of a write into an object of the writer's kind. Drops unknown fields and returns the warnings about
/// them.
pub(crate) fn decode(writer: &Writer, object: &mut Value) -> Result<Vec<String>, ApiError> {
    name_kind(writer, object)?;
    let schema = &writer.version().schema;
    if let Some(wrong) = schema.wrong_types(object) {
        return Err(undecodable(writer, &wrong));
    }
    if writer.kind.crd.is_some() {
        schema.set_defaults(object);
    }
    let unknown = unknown(writer, schema.prune(object));
    match writer.validation {
        FieldValidation::Strict => refuse_unknown(writer, &unknown).map(|()| Vec::new()),
        FieldValidation::Warn => Ok(unknown),
        FieldValidation::Ignore => Ok(Vec::new()),
    }
}

/// Checks the body of a server-side apply. The merge rejects unknown fields, and defaults must not be added, because
/// nobody would own them.
pub(super) fn decode_applied(writer: &Writer, object: &Value) -> Result<(), ApiError> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version != writer.api_version() || kind != writer.kind.kind {
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        return Err(ApiError::bad_request(format!("invalid object type: {version}, Kind={kind}")));
    }
    Ok(())
}

/// Decodes the result of a patch. Errors blame the patch.
pub(super) fn decode_patched(writer: &Writer, object: &mut Value) -> Result<Vec<String>, ApiError> {
    let text = object.to_string();
    decode(writer, object).map_err(|error| {
        if error.code != StatusCode::BAD_REQUEST || writer.kind.crd.is_some() {
            return error;
        }
        let cause = Cause::invalid("patch", &text.into(), &error.message);
        ApiError::invalid(&Qualified::default(), "", vec![cause])
    })
}

/// Decodes an object that a webhook has changed.
pub(super) fn redecode(writer: &Writer, object: &mut Value) -> Result<(), ApiError> {
    let schema = &writer.version().schema;
    if let Some(wrong) = schema.wrong_types(object) {
        return Err(ApiError::internal(wrong));
    }
    schema.prune(object);
    schema.set_defaults(object);
    Ok(())
}

fn name_kind(writer: &Writer, object: &mut Value) -> Result<(), ApiError> {
    let kind = &writer.kind.kind;
    if !object.is_object() {
        return Err(ApiError::bad_request(format!("the body of the request is not a {kind}: it is not a JSON object")));
    }
    check_version(writer, object)?;
    object["apiVersion"] = writer.api_version().into();
    object["kind"] = kind.as_str().into();
    metadata_mut(object).remove("selfLink");
    Ok(())
}

fn unknown(writer: &Writer, paths: Vec<String>) -> Vec<String> {
    let duplicates = writer.duplicates.iter().map(|field| format!("duplicate field \"{field}\""));
    let unknown = paths.iter().map(|field| format!("unknown field \"{field}\""));
    duplicates.chain(unknown).take(MAX_UNKNOWN).collect()
}

fn refuse_unknown(writer: &Writer, unknown: &[String]) -> Result<(), ApiError> {
    if unknown.is_empty() {
        return Ok(());
    }
    let why = format!("strict decoding error: {}", unknown.join(", "));
    Err(undecodable(writer, &why))
}

fn undecodable(writer: &Writer, why: &str) -> ApiError {
    let (kind, version) = (&writer.kind.kind, &writer.version().name);
    ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
}

fn check_version(writer: &Writer, object: &Value) -> Result<(), ApiError> {
    let (expected, kind) = (writer.api_version(), &writer.kind.kind);
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, found) = (text("apiVersion"), text("kind"));
    if writer.kind.crd.is_some() && found.is_empty() {
        let body = object.to_string();
        return Err(ApiError::bad_request(format!("Object 'Kind' is missing in '{body}'")));
    }
    if writer.kind.crd.is_some() && found != kind {
        let cause = Cause::invalid("kind", &found.into(), &format!("must be {kind}"));
        let name = meta(object, "name");
        return Err(ApiError::invalid(&Qualified::new(writer.kind.group(), found), name, vec![cause]));
    }
    if !found.is_empty() && found != kind || !version.is_empty() && version != expected {
        let group_version = |version: &str| {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            format!("{group}/{version}")
        };
        if !found.is_empty() && found != kind {
            let message = format!(
                "{found} in version \"{}\" cannot be handled as a {kind}: converting ({}.{found}) to ({}.{kind}): unknown conversion",
                version.rsplit('/').next().unwrap_or_default(),
                group_version(version),
                group_version(&expected),
            );
            return Err(ApiError::bad_request(message));
        }
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}) does not match the expected API version ({expected})"
        )));
    }
    Ok(())
}

/// Rejects an object whose namespace differs from that of the path.
pub(super) fn check_place(writer: &Writer, namespace: &str, object: &Value) -> Result<(), ApiError> {
    let named = meta(object, "namespace");
    if writer.kind.namespaced && !named.is_empty() && named != namespace {
        let message = "the namespace of the provided object does not match the namespace sent on the request";
        return Err(ApiError::bad_request(message));
    }
    Ok(())
}

/// Sets the namespace of an object to that of the path, unless the object names another one.
pub(super) fn place(writer: &Writer, namespace: &str, object: &mut Value) -> Result<(), ApiError> {
    check_place(writer, namespace, object)?;
    if !writer.kind.namespaced {
        // Like the API server, drops the namespace of a cluster-scoped object.
        metadata_mut(object).remove("namespace");
        return Ok(());
    }
    metadata_mut(object).insert("namespace".to_owned(), namespace.into());
    Ok(())
}

/// Sets the name of an object to that of the path, unless the object has another one.
pub(super) fn same_name(name: &str, object: &mut Value) -> Result<(), ApiError> {
    let named = meta(object, "name").to_owned();
    if !named.is_empty() && named != name {
        let message = format!("the name of the object ({named}) does not match the name on the URL ({name})");
        return Err(ApiError::bad_request(message));
    }
    metadata_mut(object).insert("name".to_owned(), name.into());
    Ok(())
}
