//! POST of an object.

use serde_json::{Map, Value, json};

use super::{Writer, Written, decode, read::readable};
use crate::{
    admission::{self, AdmissionRequest, Operation},
    conditions,
    kinds::{Kind, ResourceId, prepare_create, validate},
    object::{meta, metadata_mut},
    patch::{Manager, track},
    state::State,
    status::ApiError,
};

/// The request size limit of etcd, 1.5 MiB.
const MAX_BYTES: usize = 1536 * 1024;

/// Creates an object.
pub(crate) fn create(
    state: &mut State,
    writer: &Writer,
    namespace: &str,
    mut object: Value,
) -> Result<Written, ApiError> {
    let warnings = decode::decode(writer, &mut object)?;
    decode::place(writer, namespace, &mut object)?;
    create_decoded(state, writer, object, warnings)
}

/// Creates an object that is already decoded.
pub(super) fn create_decoded(
    state: &mut State,
    writer: &Writer,
    object: Value,
    warnings: Vec<String>,
) -> Result<Written, ApiError> {
    let mut object = new_object(state, writer, object)?;
    let (api_version, time) = (writer.api_version(), state.clock.text());
    let manager = Manager {
        name: &writer.manager,
        api_version: &api_version,
        subresource: writer.subresource.as_deref(),
        time: &time,
    };
    track(None, &mut object, &writer.version().schema, manager);
    finish(state, writer, object, warnings)
}

/// Creates an object for a server-side apply, which has set `managedFields`.
pub(super) fn create_applied(state: &mut State, writer: &Writer, object: Value) -> Result<Written, ApiError> {
    let fields = object["metadata"]["managedFields"].clone();
    let mut new = new_object(state, writer, object)?;
    metadata_mut(&mut new).insert("managedFields".to_owned(), fields);
    finish(state, writer, new, Vec::new())
}

/// Sets what the server sets in every new object.
fn new_object(state: &mut State, writer: &Writer, mut object: Value) -> Result<Value, ApiError> {
    let kind = &writer.kind;
    if kind.crd.is_some() && is_terminating(state, kind) {
        let why = "create not allowed while custom resource definition is terminating";
        return Err(ApiError::forbidden(&kind.resource(), meta(&object, "name"), why));
    }
    if !meta(&object, "resourceVersion").is_empty() {
        return Err(ApiError::unnamed("resourceVersion should not be set on objects to be created"));
    }
    if meta(&object, "name").is_empty() && !meta(&object, "generateName").is_empty() {
        // A long base is truncated, so that the name stays within the limit.
        let base: String = meta(&object, "generateName").chars().take(58).collect();
        let name = base + &state.ids.suffix();
        metadata_mut(&mut object).insert("name".to_owned(), name.into());
    }
    let (uid, now) = (state.ids.uid(), state.clock.text());
    let metadata = metadata_mut(&mut object);
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), uid.into());
    metadata.insert("creationTimestamp".to_owned(), now.into());
    if kind.has_generation() {
        metadata.insert("generation".to_owned(), 1.into());
    }
    drop_empty(metadata);
    if writer.version().status
        && let Value::Object(fields) = &mut object
    {
        fields.remove("status");
    }
    writer.version().schema.set_defaults(&mut object);
    prepare_create(kind, &mut object);
    Ok(object)
}

/// Returns whether no objects of a kind can be created, because its CustomResourceDefinition is being deleted.
pub(crate) fn is_terminating(state: &State, kind: &Kind) -> bool {
    let definitions = ResourceId::new("apiextensions.k8s.io", "customresourcedefinitions");
    let definition = state.store.get(&definitions, "", &format!("{}.{}", kind.id.plural, kind.group()));
    let definition = definition.filter(|stored| stored.deleting);
    definition.is_some_and(|stored| conditions::is_true(&stored.value(), "Terminating"))
}

fn finish(state: &mut State, writer: &Writer, object: Value, warnings: Vec<String>) -> Result<Written, ApiError> {
    let kind = &writer.kind;
    let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
    let request = AdmissionRequest {
        operation: Operation::Create,
        user: &writer.user,
        kind,
        version: &writer.version().name,
        subresource: None,
        namespace: &namespace,
        name: &name,
        object: Some(&object),
        old: None,
        options: &json!({"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}),
        dry_run: writer.dry_run,
    };
    admission::admit(state, &request)?;
    let causes = validate(kind, &writer.version().schema, &object, None);
    if !causes.is_empty() {
        return Err(ApiError::invalid(&kind.qualified(), &name, causes));
    }
    if let Some(there) = state.store.get(&kind.id, &namespace, &name) {
        let mut error = ApiError::already_exists(&kind.resource(), &name);
        if there.deleting {
            error.message = format!("object is being deleted: {}", error.message);
        }
        return Err(error);
    }
    let object = store(state, writer, object)?;
    Ok(Written { object, created: true, warnings })
}

/// Stores an object in the storage version of its kind, except in a dry run, and returns it in the version of the
/// request.
pub(super) fn store(state: &mut State, writer: &Writer, mut object: Value) -> Result<Value, ApiError> {
    let kind = &writer.kind;
    readable(kind, writer.version)?;
    if writer.dry_run {
        return Ok(object);
    }
    object["apiVersion"] = kind.stored_api_version().into();
    if object.to_string().len() > MAX_BYTES {
        return Err(ApiError::unnamed("etcdserver: request is too large"));
    }
    let change = state.put(&kind.id, object.clone());
    metadata_mut(&mut object).insert("resourceVersion".to_owned(), change.revision.to_string().into());
    object["apiVersion"] = writer.api_version().into();
    Ok(object)
}

/// Drops empty fields of the metadata, as Go does. Empty `managedFields` remain, because they ask the server to reset
/// them.
pub(super) fn drop_empty(metadata: &mut Map<String, Value>) {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    };
    metadata.retain(|key, value| key == "managedFields" || !empty(value));
}
