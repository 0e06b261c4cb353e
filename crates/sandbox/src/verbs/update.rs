//! PUT, and the common part of PUT and PATCH.

use std::borrow::Cow;

use http::StatusCode;
use serde_json::{Value, json};

use super::{
    Writer, Written, create, decode,
    scale_view::{scale_of, set_replicas},
};
use crate::{
    admission::{self, AdmissionRequest, Operation},
    conversion::readable,
    kinds::{Kind, prepare_part, prepare_update, validate, validate_part},
    object::{is_deleting, meta, meta_list, metadata_mut},
    patch::{Manager, keep_times, track},
    state::State,
    status::{ApiError, Cause},
};

/// Replaces an object. If the new one has a `resourceVersion` or `uid`, the stored one must have the same.
pub(crate) fn update(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    name: &str,
    mut object: Value,
) -> Result<Written, ApiError> {
    let kind = &writer.kind;
    let warnings = decode::decode(writer, &mut object)?;
    decode::place(writer, namespace, &mut object)?;
    decode::same_name(name, &mut object)?;
    let old = match current(state, writer, namespace, name) {
        Err(error)
            if error.code == StatusCode::NOT_FOUND
                && writer.subresource.is_none()
                && kind.allows_create_on_update() =>
        {
            metadata_mut(&mut object).remove("resourceVersion");
            return create::create_decoded(state, writer, object, warnings);
        }
        old => old?,
    };
    check_uid(kind, &old, &object)?;
    check_preconditions(kind, &old, &object)?;
    if matches!(meta(&object, "resourceVersion"), "" | "0") && !kind.allows_unconditional_update() {
        let cause = Cause::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
        let about = if kind.crd.is_some() { kind.resource() } else { kind.qualified() };
        return Err(ApiError::invalid(&about, name, vec![cause]));
    }
    replace(state, writer, old, object, warnings, FieldOwnership::Track)
}

/// Returns the stored object in the version of the request.
pub(crate) fn current(state: &State, writer: &Writer, namespace: &str, name: &str) -> Result<Value, ApiError> {
    let kind = &writer.kind;
    let stored = state.store.get(kind.table(), namespace, name);
    let stored = stored.ok_or_else(|| ApiError::not_found(&kind.resource(), name))?;
    let mut old = readable(state, kind, writer.version, std::slice::from_ref(stored))?[0].value();
    old["apiVersion"] = writer.api_version().into();
    Ok(old)
}

/// Rejects a PUT with another UID than that of the stored object.
pub(super) fn check_uid(kind: &Kind, old: &Value, new: &Value) -> Result<(), ApiError> {
    let (name, uid, known) = (meta(old, "name"), meta(new, "uid"), meta(old, "uid"));
    if uid.is_empty() || uid == known {
        return Ok(());
    }
    let group = if kind.crd.is_some() { format!("{}/", kind.group()) } else { String::new() };
    let namespace = meta(old, "namespace");
    let place = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{group}{}/{place}{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {known}",
        kind.id.plural
    );
    Err(ApiError::conflict(&kind.resource(), name, &why))
}

/// Rejects a write that is based on another `resourceVersion` than the stored one.
pub(super) fn check_preconditions(kind: &Kind, old: &Value, new: &Value) -> Result<(), ApiError> {
    let (name, revision) = (meta(old, "name"), meta(new, "resourceVersion"));
    if !revision.is_empty() && revision.parse::<u64>().is_err() {
        return Err(ApiError::unnamed(format!("strconv.ParseUint: parsing \"{revision}\": invalid syntax")));
    }
    if !revision.is_empty() && revision != "0" && revision != meta(old, "resourceVersion") {
        return Err(ApiError::modified(&kind.resource(), name));
    }
    Ok(())
}

/// How the owners of fields are determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldOwnership {
    /// The writer owns what it changed.
    Track,
    /// Server-side apply has determined the owners.
    Applied,
}

/// Replaces a stored object.
pub(super) fn replace(
    state: &mut State,
    writer: &Writer,
    old: Value,
    new: Value,
    warnings: Vec<String>,
    fields: FieldOwnership,
) -> Result<Written, ApiError> {
    let kind = &writer.kind;
    let mut new = merge_parts(writer, &old, new);
    set_defaults(writer, &mut new);
    prepare(state, writer, &mut new, &old);
    if fields == FieldOwnership::Track {
        let (api_version, time) = (writer.api_version(), state.time());
        let subresource = writer.subresource.as_deref().filter(|name| *name != "finalize");
        let manager = Manager { name: &writer.manager, api_version: &api_version, subresource, time: &time };
        track(Some(&old), &mut new, &writer.version().schema, manager);
    }
    let (namespace, name) = (meta(&old, "namespace").to_owned(), meta(&old, "name").to_owned());
    let options = writer.options("UpdateOptions");
    let scales = writer.subresource.as_deref() == Some("scale");
    let seen_old = seen(writer, &old)?;
    let changed = admission::mutate(state, &request(writer, &seen_old, &*seen(writer, &new)?, &options))?;
    match changed {
        Some(changed) if scales => set_replicas(writer, &mut new, changed["spec"]["replicas"].clone())?,
        Some(mut changed) => {
            decode::redecode(writer, &mut changed)?;
            new = merge_parts(writer, &old, changed);
            prepare(state, writer, &mut new, &old);
        }
        None => {}
    }
    let mut causes = validate(kind, &writer.version().schema, &new, Some(&old));
    if let Some(subresource) = &writer.subresource {
        causes.extend(validate_part(kind, subresource, &new, &old));
    }
    if !causes.is_empty() {
        return Err(ApiError::invalid(&kind.qualified(), &name, causes));
    }
    admission::validate(state, &request(writer, &seen_old, &*seen(writer, &new)?, &options))?;
    count_generation(kind, &old, &mut new);
    if is_released(kind, &new) {
        if !writer.dry_run {
            state.remove(kind.table(), &namespace, &name);
        }
        return Ok(Written { object: new, created: false, warnings });
    }
    keep_times(&old, &mut new);
    if new == old {
        return Ok(Written { object: old, created: false, warnings });
    }
    let object = create::store(state, writer, new)?;
    Ok(Written { object, created: false, warnings })
}

/// Returns what admission sees of an object: its Scale, if that is what is written.
fn seen<'a>(writer: &Writer, object: &'a Value) -> Result<Cow<'a, Value>, ApiError> {
    match writer.subresource.as_deref() {
        Some("scale") => scale_of(writer, object).map(Cow::Owned),
        _ => Ok(Cow::Borrowed(object)),
    }
}

fn request<'a>(writer: &'a Writer, old: &'a Value, new: &'a Value, options: &'a Value) -> AdmissionRequest<'a> {
    AdmissionRequest {
        operation: Operation::Update,
        user: &writer.user,
        kind: &writer.kind,
        version: &writer.version().name,
        subresource: writer.subresource.as_deref(),
        namespace: meta(old, "namespace"),
        name: meta(old, "name"),
        object: Some(new),
        old: Some(old),
        options,
        dry_run: writer.dry_run,
    }
}

/// Sets defaults in what is written.
fn set_defaults(writer: &Writer, new: &mut Value) {
    let schema = &writer.version().schema;
    match writer.subresource.as_deref() {
        None => schema.set_defaults(new),
        Some("status") if !new["status"].is_null() => {
            let mut part = json!({"status": new["status"].take()});
            schema.set_defaults(&mut part);
            new["status"] = part["status"].take();
        }
        Some(_) => {}
    }
}

/// Sets what only the server sets.
fn prepare(state: &State, writer: &Writer, new: &mut Value, old: &Value) {
    match &writer.subresource {
        None => prepare_update(&writer.kind, new, old),
        Some(subresource) => prepare_part(&writer.kind, subresource, new, old, &state.time()),
    }
}

/// Combines the fields that the request may change with the stored values of all others.
fn merge_parts(writer: &Writer, old: &Value, mut new: Value) -> Value {
    let kind = &writer.kind;
    let set = |object: &mut Value, field: &str, value: &Value| match object.as_object_mut() {
        Some(fields) if value.is_null() => drop(fields.remove(field)),
        Some(fields) => drop(fields.insert(field.to_owned(), value.clone())),
        None => {}
    };
    match writer.subresource.as_deref() {
        Some("finalize") => {
            let mut object = old.clone();
            if object["spec"].is_null() {
                object["spec"] = json!({});
            }
            set(&mut object["spec"], "finalizers", &new["spec"]["finalizers"]);
            new = object;
        }
        Some("status") => {
            let mut object = old.clone();
            set(&mut object, "status", &new["status"]);
            if kind.crd.is_some() {
                set(&mut object["metadata"], "managedFields", &new["metadata"]["managedFields"]);
            } else {
                object["metadata"] = new["metadata"].take();
                let kept = kind.field_kept_by_status();
                set(&mut object["metadata"], kept, &old["metadata"][kept]);
            }
            new = object;
        }
        Some("approval") => {
            let mut object = old.clone();
            object["metadata"] = new["metadata"].take();
            if object["status"].is_null() {
                object["status"] = json!({});
            }
            set(&mut object["status"], "conditions", &new["status"]["conditions"]);
            new = object;
        }
        _ if writer.version().status => set(&mut new, "status", &old["status"]),
        _ => {}
    }
    for field in ["uid", "name", "namespace"] {
        // If the client sends these fields, they are validated.
        if meta(&new, field).is_empty() {
            set(&mut new["metadata"], field, &old["metadata"][field]);
        }
    }
    for field in ["generation", "resourceVersion", "creationTimestamp"] {
        set(&mut new["metadata"], field, &old["metadata"][field]);
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        // A deletion cannot be undone.
        set(&mut new["metadata"], field, &old["metadata"][field]);
    }
    create::drop_empty(metadata_mut(&mut new));
    new
}

/// Increments the generation if anything but metadata and status has changed.
fn count_generation(kind: &Kind, old: &Value, new: &mut Value) {
    if !kind.has_generation() {
        return;
    }
    let has_status = kind.versions.iter().any(|version| version.status);
    let differs = |one: &Value, other: &Value| {
        let fields = |object: &Value| object.as_object().cloned().unwrap_or_default();
        let (one, other) = (fields(one), fields(other));
        let counts = |key: &str| match key {
            "apiVersion" | "kind" | "metadata" => false,
            "status" => !has_status,
            _ => true,
        };
        one.keys().chain(other.keys()).any(|key| counts(key) && one.get(key) != other.get(key))
    };
    if differs(old, new) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
        metadata_mut(new).insert("generation".to_owned(), generation.into());
    }
}

/// Returns whether an object that is being deleted can be removed, because nothing holds it.
pub(super) fn is_released(kind: &Kind, object: &Value) -> bool {
    let graceful = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) > 0;
    let held = meta_list(object, "finalizers").next().is_some() || kind.has_spec_finalizers(object);
    is_deleting(object) && !held && !graceful
}
