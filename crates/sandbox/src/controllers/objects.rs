//! What all controllers do with objects.

use std::{sync::Arc, time::Duration};

use serde_json::Value;

use crate::{
    kinds::{Kind, ResourceId},
    object::{Stored, meta_list, metadata_mut},
    state::State,
    status::ApiError,
    store::ObjectId,
    verbs::{Writer, update},
};

/// What comes after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Done,
    /// The same once more, later.
    After(Duration),
    /// It could not be done: once more, at growing intervals.
    Retry,
}

pub(super) type Step = Result<Next, ApiError>;

/// A controller that speaks the version of a kind that clients prefer.
pub(super) fn writer(kind: &Arc<Kind>, controller: &str) -> Writer {
    let mut writer = Writer::controller(kind, controller);
    if let Some(preferred) = kind.versions.iter().position(|version| version.served) {
        writer.version = preferred;
    }
    writer
}

/// Changes an object; a change that changes nothing is not written. What is gone is fine.
pub(super) fn edit(
    state: &mut State,
    id: &ObjectId,
    controller: &str,
    change: impl FnOnce(&mut Value),
) -> Result<(), ApiError> {
    edit_part(state, id, controller, None, change)
}

/// The same for its status, whereupon the rest of the object stays as it is.
pub(super) fn edit_status(
    state: &mut State,
    id: &ObjectId,
    controller: &str,
    change: impl FnOnce(&mut Value),
) -> Result<(), ApiError> {
    edit_part(state, id, controller, Some("status"), change)
}

fn edit_part(
    state: &mut State,
    id: &ObjectId,
    controller: &str,
    subresource: Option<&str>,
    change: impl FnOnce(&mut Value),
) -> Result<(), ApiError> {
    let Some(stored) = state.store.get_id(id) else { return Ok(()) };
    let Some(kind) = state.kinds.get(&id.resource) else { return Err(not_served(&id.resource)) };
    let mut writer = writer(kind, controller);
    writer.subresource = subresource.map(str::to_owned);
    let mut object = stored.value();
    object["apiVersion"] = writer.api_version().into();
    let old = object.clone();
    change(&mut object);
    if object != old {
        update(state, &writer, &id.namespace, &id.name, object)?;
    }
    Ok(())
}

/// A kind that is not served now may be served again.
pub(super) fn not_served(resource: &ResourceId) -> ApiError {
    ApiError::internal(format!("{resource} is not served"))
}

pub(super) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let kept: Vec<Value> =
        meta_list(object, "finalizers").filter(|known| *known != finalizer).map(Value::from).collect();
    metadata_mut(object).insert("finalizers".to_owned(), kept.into());
}

pub(super) fn add_finalizer(object: &mut Value, finalizer: &str) {
    if !has_finalizer(object, finalizer) {
        let mut finalizers: Vec<Value> = meta_list(object, "finalizers").map(Value::from).collect();
        finalizers.push(finalizer.into());
        metadata_mut(object).insert("finalizers".to_owned(), finalizers.into());
    }
}

pub(super) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    meta_list(object, "finalizers").any(|known| known == finalizer)
}

/// Where the object of a namespace lies.
pub(super) fn id(group: &str, plural: &str, namespace: &str, name: &str) -> ObjectId {
    ObjectId::new(&ResourceId::new(group, plural), namespace, name)
}

/// The objects of a namespace.
pub(super) fn objects(state: &State, group: &str, plural: &str, namespace: &str) -> Vec<Arc<Stored>> {
    state.store.list(&ResourceId::new(group, plural), Some(namespace)).cloned().collect()
}

/// The object that lies there.
pub(super) fn load(state: &State, id: &ObjectId) -> Option<Value> {
    state.store.get_id(id).map(|stored| stored.value())
}
