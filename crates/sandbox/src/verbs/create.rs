//! POST of an object.

use serde_json::{Map, Value};

use super::{Writer, Written, decode};
use crate::{
    admission::{self, AdmissionRequest, Operation},
    conditions,
    conversion::convert,
    kinds::{Kind, ResourceId, prepare_create, validate},
    object::{meta, metadata_mut},
    patch::{Manager, track},
    state::State,
    status::ApiError,
    webhooks::Identity,
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
    let born = identity(state, &object);
    let result = Birth { writer, born: &born }.of_sent(state, object, warnings);
    keep(state, born);
    result
}

/// Creates an object for a server-side apply, which has set `managedFields`.
pub(super) fn create_applied(state: &mut State, writer: &Writer, object: Value) -> Result<Written, ApiError> {
    let born = identity(state, &object);
    let result = Birth { writer, born: &born }.of_applied(state, object);
    keep(state, born);
    result
}

/// Returns what the server generates for a new object: the same in each repetition of a request that waits for webhooks.
fn identity(state: &mut State, object: &Value) -> Identity {
    let known = state.memory.get_mut().identity.take();
    known.unwrap_or_else(|| {
        let generates = meta(object, "name").is_empty() && !meta(object, "generateName").is_empty();
        let suffix = generates.then(|| state.ids.suffix());
        Identity { uid: state.ids.uid(), suffix }
    })
}

fn keep(state: &mut State, born: Identity) {
    let memory = state.memory.get_mut();
    memory.identity = memory.is_waiting().then_some(born);
}

/// The creation of an object.
struct Birth<'a> {
    writer: &'a Writer,
    born: &'a Identity,
}

impl Birth<'_> {
    fn of_sent(&self, state: &mut State, object: Value, warnings: Vec<String>) -> Result<Written, ApiError> {
        let writer = self.writer;
        let mut object = self.new_object(state, object)?;
        let (api_version, time) = (writer.api_version(), state.time());
        let manager = Manager {
            name: &writer.manager,
            api_version: &api_version,
            subresource: writer.subresource.as_deref(),
            time: &time,
        };
        track(None, &mut object, &writer.version().schema, manager);
        self.finish(state, object, warnings)
    }

    fn of_applied(&self, state: &mut State, object: Value) -> Result<Written, ApiError> {
        let fields = object["metadata"]["managedFields"].clone();
        let mut new = self.new_object(state, object)?;
        metadata_mut(&mut new).insert("managedFields".to_owned(), fields);
        self.finish(state, new, Vec::new())
    }

    fn new_object(&self, state: &State, mut object: Value) -> Result<Value, ApiError> {
        let kind = &self.writer.kind;
        if kind.crd.is_some() && is_terminating(state, kind) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(ApiError::forbidden(&kind.resource(), meta(&object, "name"), why));
        }
        let metadata = metadata_mut(&mut object);
        for field in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(field);
        }
        self.complete(state, &mut object);
        Ok(object)
    }

    /// Sets what the server sets in every new object.
    fn complete(&self, state: &State, object: &mut Value) {
        let kind = &self.writer.kind;
        let generated = self.born.suffix.as_ref().map(|suffix| {
            // A long base is truncated, so that the name stays within the limit.
            meta(object, "generateName").chars().take(58).collect::<String>() + suffix
        });
        let metadata = metadata_mut(object);
        if let Some(name) = generated {
            metadata.insert("name".to_owned(), name.into());
        }
        metadata.insert("uid".to_owned(), self.born.uid.as_str().into());
        metadata.insert("creationTimestamp".to_owned(), state.time().into());
        if kind.has_generation() {
            metadata.insert("generation".to_owned(), 1.into());
        }
        drop_empty(metadata);
        if self.writer.version().status
            && let Value::Object(fields) = object
        {
            fields.remove("status");
        }
        self.writer.version().schema.set_defaults(object);
        prepare_create(kind, object, &self.writer.user);
    }

    fn finish(&self, state: &mut State, mut object: Value, warnings: Vec<String>) -> Result<Written, ApiError> {
        let (writer, kind) = (self.writer, &self.writer.kind);
        let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
        let options = writer.options("CreateOptions");
        // A generated name is not known yet when webhooks may change the object.
        let sent_name = if self.born.suffix.is_some() { "" } else { &name };
        let request = self.request(&namespace, sent_name, &object, &options);
        if let Some(mut changed) = admission::mutate(state, &request)? {
            decode::redecode(writer, &mut changed)?;
            decode::place(writer, &namespace, &mut changed)?;
            self.complete(state, &mut changed);
            object = changed;
        }
        let name = meta(&object, "name").to_owned();
        let causes = validate(kind, &writer.version().schema, &object, None);
        if !causes.is_empty() {
            return Err(ApiError::invalid(&kind.qualified(), &name, causes));
        }
        admission::validate(state, &self.request(&namespace, &name, &object, &options))?;
        self.insert(state, object, warnings)
    }

    fn request<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        object: &'a Value,
        options: &'a Value,
    ) -> AdmissionRequest<'a> {
        AdmissionRequest {
            operation: Operation::Create,
            user: &self.writer.user,
            kind: &self.writer.kind,
            version: &self.writer.version().name,
            subresource: None,
            namespace,
            name,
            object: Some(object),
            old: None,
            options,
            dry_run: self.writer.dry_run,
        }
    }

    fn insert(&self, state: &mut State, mut object: Value, warnings: Vec<String>) -> Result<Written, ApiError> {
        let (kind, dry_run) = (&self.writer.kind, self.writer.dry_run);
        let (namespace, name) = (meta(&object, "namespace").to_owned(), meta(&object, "name").to_owned());
        if !dry_run {
            let given = metadata_mut(&mut object).remove("resourceVersion");
            let revision = given.as_ref().and_then(Value::as_str).and_then(|text| text.parse::<u64>().ok());
            if revision.is_some_and(|revision| revision > 0) {
                return Err(ApiError::unnamed("resourceVersion should not be set on objects to be created"));
            }
        }
        if let Some(there) = state.store.get(kind.table(), &namespace, &name) {
            let mut error = ApiError::already_exists(&kind.resource(), &name);
            if there.deleting {
                error.message = format!("object is being deleted: {}", error.message);
            }
            return Err(error);
        }
        let object = store(state, self.writer, object)?;
        Ok(Written { object, created: true, warnings })
    }
}

/// Returns whether no objects of a kind can be created, because its CustomResourceDefinition is being deleted.
pub(crate) fn is_terminating(state: &State, kind: &Kind) -> bool {
    let definitions = ResourceId::new("apiextensions.k8s.io", "customresourcedefinitions");
    let definition = state.store.get(&definitions, "", &format!("{}.{}", kind.id.plural, kind.group()));
    let definition = definition.filter(|stored| stored.deleting);
    definition.is_some_and(|stored| conditions::is_true(&stored.value(), "Terminating"))
}

/// Stores an object in the storage version of its kind, except in a dry run, and returns it in the version of the
/// request.
pub(super) fn store(state: &mut State, writer: &Writer, mut object: Value) -> Result<Value, ApiError> {
    let kind = &writer.kind;
    let stored_version = kind.stored_api_version();
    let mut stored = object.clone();
    if kind.converts() {
        // What is stored is read back, so that the answer shows what a conversion loses.
        let there = convert(state, kind, vec![object], &stored_version)?;
        let back = convert(state, kind, there.clone(), &writer.api_version())?;
        [stored, object] = [there, back].map(|mut one| one.pop().unwrap_or_default());
    }
    if writer.dry_run {
        return Ok(object);
    }
    stored["apiVersion"] = stored_version.into();
    if !fits(state, kind, &stored) {
        // The API server then tries again without them.
        metadata_mut(&mut stored).remove("managedFields");
        metadata_mut(&mut object).remove("managedFields");
        check_size(state, kind, &stored)?;
    }
    let change = state.put(kind.table(), stored);
    metadata_mut(&mut object).insert("resourceVersion".to_owned(), change.revision.to_string().into());
    Ok(object)
}

/// Rejects an object that does not fit into a request to etcd.
pub(super) fn check_size(state: &State, kind: &Kind, object: &Value) -> Result<(), ApiError> {
    if fits(state, kind, object) { Ok(()) } else { Err(ApiError::unnamed("etcdserver: request is too large")) }
}

/// Returns whether a request with an object is small enough for etcd: it names the key in each of its operations. The API server
/// stores custom resources as JSON, as here; its own kinds are smaller in its storage than here.
fn fits(state: &State, kind: &Kind, object: &Value) -> bool {
    let mut size = Counted(0);
    if serde_json::to_writer(&mut size, object).is_err() {
        return false;
    }
    let (namespace, name) = (meta(object, "namespace"), meta(object, "name"));
    let group = if kind.crd.is_some() { kind.group() } else { "" };
    let key = ["/registry", group, &kind.id.plural, namespace, name];
    let key = key.iter().filter(|part| !part.is_empty()).map(|part| part.len() + 1).sum::<usize>() - 1;
    let revision = meta(object, "resourceVersion");
    // Is not stored: `"resourceVersion":"1",`.
    let revision = if revision.is_empty() { 0 } else { revision.len() + 21 };
    let around = if state.store.get(kind.table(), namespace, name).is_some() { 3 * key + 46 } else { 2 * key + 40 };
    size.0 - revision + around <= MAX_BYTES
}

/// Counts what is written.
struct Counted(usize);

impl std::io::Write for Counted {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
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
